"""Ledgers full of history, made by the database itself, and what to ask them.

Rows are made from the schema, column by column: a table that is added is filled without a word here.
Everything is settled, as almost everything on record is, and is about one dataset, source and window: the
worst case of an index that leads to a dataset and no further.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import apsw

from kfm.db import queries

World = Literal["snapshots", "windows", "apart"]
WORLDS: tuple[World, ...] = ("snapshots", "windows")  # one window for all; one for each row; all apart

# Columns that have the same value in every row: what there is little of.
SAME = {
    "dataset_id", "source_id", "schedule_id", "pipeline_id", "branch", "lakefs_branch", "topic", "provider",
    "queue", "kind", "dataset", "collection_id", "replica", "hook", "work_base", "trigger_type", "actor",
    "worker_id", "alone", "grain", "error_code", "error_class", "last_error_code", "rule", "about", "name",
    "node", "became", "state_key", "inputs_hash", "code_sha", "plan_digest", "digest", "target", "place",
    "requested_by", "event", "partition_key",
}  # fmt: skip
# The value of a column in all rows, where its name alone does not say it.
SETTLED: dict[str, str] = {
    "runs.status": "'success'", "runs.outcome": "'unchanged'", "runs.error_code": "NULL",
    "runs.partition_key": "NULL", "runs.force": "0", "runs.correction": "NULL",
    "invocations.outcome": "'noop'", "invocations.run_id": "'run_id1'", "attempts.ending": "'complete'",
    "attempts.node": "''", "locks.scope": "'scope' || i", "locks.worker_id": "NULL",
    "governance.subject": "'one'", "retry_states.fate": "'spent'", "held.state": "'resolved'",
    "held.grain": "'run'", "approvals.state": "'approved'", "approvals.kind": "'update'",
    "approvals.rejected_at_ms": "NULL", "approvals.rejected_by": "NULL", "approvals.superseded_by": "NULL",
    "approvals.revoked_at_ms": "NULL", "incidents.state": "'resolved'", "incidents.about": "'dataset'",
    "run_states.outcome": "'success'", "run_states.reverted": "0", "passes.state": "'success'",
    "pass_attempts.state": "'success'", "units.status": "'succeeded'", "units.extra": "'{}'",
    "dead_messages.state": "'released'", "requests.state": "'done'", "requests.outcome": "'noop'",
    "requests.run_id": "'run_id1'", "requests.cancel": "NULL", "requests.claimed_by": "NULL",
    "requests.blocked_by": "NULL", "requests.overtaken": "0", "requests.is_bound": "0",
    "requests.correction": "NULL", "requests.kind": "'cron'", "replays.state": "'done'",
    "replay_units.replay_id": "'replay_id1'", "replay_units.receipt": "'replayed'",
    "purges.state": "'done'", "replica_items.wanted": "1", "replica_items.sent": "1",
    "settled_windows.kind": "'dismissed'", "derived_windows.asked": "NULL", "outbox.topic": "'openlineage'",
    "outbox.tries": "1", "request_members.request_id": "'request_id' || i",
    "breakers.provider": "'provider' || i", "schedules.schedule_id": "'schedule_id' || i",
    "derived_sources.source_id": "'source_id' || i", "turns.dataset_id": "'dataset_id' || i",
    "branches.name": "'name' || i", "tags.name": "'name' || i", "unit_totals.name": "'name' || i",
    "expectations.rule": "'rule' || i", "overdue_marks.rule": "'rule' || i",
    "states.state_key": "'state_key' || i", "projections.target": "'target' || i", "acts.name": "'name'",
    "silences.scope": "'dataset:scope' || i", "unit_deltas.name": "'name' || (i % 10)",
    "hook_deliveries.hook": "'one'", "file_checksums.path": "'path' || i", "withdrawals.target": "''",
    "run_states.dataset_id": "'one'", "node_heads.dataset_id": "'dataset_id' || i",
    "counters.name": "'name' || i", "marks.name": "'name' || i", "chain_heads.name": "'name' || i",
    "items.item_id": "'item_id' || i", "items.west": "0", "items.east": "1", "items.south": "0",
    "items.north": "1", "items.data": "'{}'", "items.box": "1", "items.start_ms": "i", "items.end_ms": "i",
    "previews.digest": "'digest' || i", "folds.name": "'name' || i", "run_states.skipped_because": "NULL",
    "unit_pages.letters_before": "i", "unit_pages.packed": "NULL", "outbox.packed": "NULL",
    "fact_pages.packed": "'x'", "items.name_order": "i", "items.name_digest": "i", "items.page": "i",
    "items.place": "0", "unit_workers.worker_id": "'worker_id' || i",
}  # fmt: skip
SKIPPED = (
    "item_boxes",
    "migrations",
    "sqlite_",
)  # the spatial index of SQLite; what migrations themselves write
_APART = {
    "incidents.about": "'dataset'",
    "runs.status": "CASE WHEN i % 20 = 0 THEN 'failed' ELSE 'success' END",
    "approvals.state": "'state' || i",
    "held.state": "'state' || i",
    "dead_messages.state": "'state' || i",
}
_NAMES = SAME | {"subject", "run_id", "replay_id"}
_WINDOW = {"window_start_ms": "i", "window_end_ms": "i + 1", "start_ms": "i", "end_ms": "i + 1"}
_ONE_WINDOW = {"window_start_ms": "0", "window_end_ms": "0", "start_ms": "0", "end_ms": "0"}


def _value(table: str, column: str, kind: str, world: World) -> str:
    settled = SETTLED.get(f"{table}.{column}")
    if kind.upper() == "BLOB" and settled == "'x'":
        return "x'78'"  # SQLite keeps a text as one, whatever the column says
    if world == "apart" and f"{table}.{column}" in _APART:
        return _APART[f"{table}.{column}"]
    if settled is not None and not (world == "apart" and column in _NAMES):
        return settled
    spans = table not in ("derived_windows", "settled_windows") and world == "snapshots"
    if column in _WINDOW:
        return (_ONE_WINDOW if spans else _WINDOW)[column]
    if column in SAME and world != "apart":
        return "'one'" if "TEXT" in kind.upper() else "1"
    if "TEXT" in kind.upper():
        return f"'{column}' || i"
    return "i" if column in ("number", "sequence", "revision", "item") or column.endswith("_ms") else "1"


def insertion(table: str, columns: list[tuple[str, str]], rows: int, world: World) -> str:
    """One statement that fills a table; the same text for both databases. `columns`: name and type."""
    names = ", ".join(name for name, _ in columns)
    values = ", ".join(_value(table, name, kind, world) for name, kind in columns)
    return (
        f"INSERT INTO {table} ({names}) "
        f"WITH RECURSIVE many (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many WHERE i < {rows}) "
        f"SELECT {values} FROM many WHERE true ON CONFLICT DO NOTHING"
    )


def sqlite_of(rows: int, world: World) -> apsw.Connection:
    """A database in memory. No statement is cached: each count of its steps begins anew."""
    connection = apsw.Connection(":memory:", statementcachesize=0)
    for _, _, text in queries.migration_files():
        connection.execute(queries.in_dialect(text, "sqlite"))
    connection.pragma("ignore_check_constraints", 1)
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        if not table.startswith(SKIPPED):
            columns = [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({table})")]
            connection.execute(insertion(table, columns, rows, world))
    return connection


def fill_postgres(connection: Any, rows: int, world: World) -> None:
    """A schema that was migrated; `connection` commits by itself. Constraints that rows do not keep go."""
    for kind in ("f", "c"):
        found = connection.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint "
            "WHERE connamespace = current_schema()::regnamespace AND contype = %s",
            [kind],
        ).fetchall()
        for table, name in found:
            connection.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
    columns: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in connection.execute(
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND is_identity = 'NO' AND NOT EXISTS ("
        "SELECT 1 FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace "
        "AND c.relname = table_name AND c.relispartition) "
        "ORDER BY table_name, ordinal_position"
    ).fetchall():
        columns.setdefault(table, []).append((column, kind))
    for table, found in columns.items():
        if not table.startswith(SKIPPED):
            connection.execute(insertion(table, found, rows, world))
    # As many in the default partition, too: a planner reads what is empty in any order.
    names = ", ".join(name for name, _ in columns["outbox"][1:])
    connection.execute(
        f"INSERT INTO outbox (number, {names}) SELECT number + 1000000000, {names} FROM outbox_0"
    )
    connection.execute("ANALYZE")


def steps_of(connection: apsw.Connection, sql: str, parameters: dict[str, Any]) -> int:
    """How many steps SQLite's machine takes for a statement; what it changes is taken back."""
    found: list[int] = []
    connection.execute("SAVEPOINT asked")
    connection.trace_v2(
        apsw.SQLITE_TRACE_PROFILE,
        lambda event: found.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]),
    )
    try:
        connection.execute(sql, parameters).fetchall()
    except apsw.ConstraintError:
        pass  # it is there already: found by its key
    finally:
        connection.trace_v2(0, None)
        connection.execute("ROLLBACK TO asked")
        connection.execute("RELEASE asked")
    return sum(found)


# --- questions -----------------------------------------------------------------------------------------

_OPTIONAL = re.compile(r"(?:CAST\()?:([a-z_]+)( AS TEXT\))? (= '(?:|\[\])'|IS NULL) OR")
_LISTS = {
    "wal_ids",
    "worker_ids",
    "workers",
    "numbers",
    "items",
    "datasets",
    "statuses",
    "error_codes",
    "page_ids",
    "digests",
    "former_ids",
}
_LATE = re.compile(r"^(now|until|before|end|last|latest|high|created_before|event_time_end)(_|$)")
_RECENT = {"start_ms", "from_ms"}


def optional_parameters(name: str) -> dict[str, str | None]:
    """The filters of a statement that need not be given, each with the value that says so."""
    sql = queries.portable().get(name) or queries.overrides("sqlite")[name]
    return {found[1]: None if found[3] == "IS NULL" else found[3][3:-1] for found in _OPTIONAL.finditer(sql)}


def question(name: str, rows: int, world: World, asked: Literal["one", "none"]) -> dict[str, Any]:
    """Parameters: of what everything is about, or of what is not there."""
    table = name.partition(".")[0]
    found: dict[str, Any] = {}
    for each in queries.parameters_of(name):
        if table == "units" and each == "before":
            found[each] = "~"  # an id: after all of them
            continue
        settled = SETTLED.get(f"{table}.{each}", "")
        if asked == "one" and each in _STATES and settled.startswith("'"):
            found[each] = settled[1:-1]
        elif table == "windows" and each == "start_ms" and world == "snapshots":
            found[each] = -1  # the one window has no time: every span is asked for
        else:
            found[each] = _argument(each, rows, world, asked)
    return found


def _argument(name: str, rows: int, world: World, asked: Literal["one", "none"]) -> Any:
    if name in ("row_limit", "limit"):
        return 10
    if name == "pairs":
        return '[["one", "item_id1"]]'
    if name == "spans":
        return "[[1, 3], [5, 5]]"
    if name == "extra":
        return "{}"
    if name == "lines":
        return "[]"
    if name in _LISTS:
        return '["1"]' if name in ("numbers", "items") else '["one"]'
    if name in ("low", "high"):
        return "run_id1" if name == "low" else "run_id1zz"
    if name in ("west", "south", "east", "north"):
        return 0
    if name in ("window_start_ms", "window_end_ms"):
        return (0 if world == "snapshots" else rows + (name == "window_end_ms")) if asked == "one" else -1
    if name in _RECENT:
        return rows - 1
    if _LATE.match(name):
        return 2**60 if not name.endswith("id") else "~"
    if name.endswith(("_ms", "_number", "number", "chars", "sequence", "version")) or name in _WHOLE:
        return _NUMBERS.get(name, 0)
    if asked == "none":
        return "none"
    return "one" if name in SAME or name in ("subject", "without") else _NAMED.get(name, f"{name}1")


_STATES = ("state", "status", "kind", "outcome", "grain")
_NUMBERS = {"number": 1, "sequence": 1}
_NAMED = {
    "state": "done",
    "status": "success",
    "trail": "%",
    "scope": "dataset:one",
}
_WHOLE = {
    "attempt", "attempts", "force", "fence", "amount", "size", "tries", "revision", "seen_fence",
    "seen_attempts", "wanted", "sent", "untried", "success", "failed", "partial", "skipped", "grants",
    "number", "before", "box", "given", "seen_version", "alone", "removed", "gone", "record_index",
    "any_event_time", "attempts_max", "item", "protected", "cpu_us",
}  # fmt: skip
