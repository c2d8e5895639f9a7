"""Ledgers to move: every table filled with rows that the schema takes, writers that work meanwhile, kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from kfm.db import moves
from kfm.db.ledger import Ledger
from kfm.db.moves import Side
from kfm.db.postgres_side import PostgresSide
from kfm.db.sqlite_side import SqliteSide
from kfm.model.records import GovernanceEntry, Justification
from kfm.storage.ledger_copy import CopyReport, LedgerCopy
from kfm.system import SystemClock, SystemIds
from tests.conformance.db import filled

# Values that the constraints ask for, where those of the filled ledgers would not do.
_VALID = {
    "runs.trigger_type": "'manual'", "switches.position": "'running'", "attempts.outcome": "'success'",
    "retries.outcome": "'retried'", "breakers.state": "'closed'", "instants.became": "'request'",
    "run_states.inputs_hash": "'sha256:' || printf('%064d', i)", "held.kind": "'quarantine'",
    "run_inputs.read_as": "'window'", "incidents.kind": "'halt'", "dataset_changes.kind": "'rollback'",
    "incident_subjects.cause": "'cause' || i", "purges.change_id": "'change_id' || i",
    "branches.head": "'commit_id' || i", "tags.commit_id": "'commit_id' || i",
    "approval_uses.request_id": "'request_id' || i", "promotions.version_id": "'version_id' || i",
    "counters.value": "i", "items.box": "NULL", "units.extra": """'{"é":"\u2028' || i || '"}'""",
    "versions.manifest": "'{' || i || char(10, 9, 34, 92) || '€𝄞'", "items.west": "i / 7.0 - 10",
    "approvals.approved_by": "'other'", "pass_attempts.ended_at_ms": "i", "incidents.resolved_at_ms": "i",
    "run_states.skipped_because": "NULL", "window_rules.source_id": "'source_id' || i",
}  # fmt: skip
_CHAINED = ("governance", "chain_heads")  # written by the product: they are hashed
BY = Justification(actor="ada", rationale="a second machine")


def fill(path: str, rows: int, more: Mapping[str, int] = {}) -> None:
    """Every table of a ledger in SQLite, some with more rows; the chain has a few entries of its own."""
    side = SqliteSide(path, SystemClock(), fill=True)
    side.prepare(0)

    def change(_: Any) -> None:
        for table in moves.ledger_tables():
            if table.name in _CHAINED:
                continue
            kinds = {row[1]: row[2] for row in side.database.execute(f"PRAGMA table_info({table.name})")}
            values = [
                _VALID.get(f"{table.name}.{name}") or filled._value(table.name, name, kinds[name], "windows")
                for name in table.columns
            ]
            side.database.execute(
                f"INSERT INTO {table.name} ({', '.join(table.columns)}) "
                "WITH RECURSIVE many (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many "
                f"WHERE i < {more.get(table.name, rows)}) "
                f"SELECT {', '.join(values)} FROM many WHERE true ON CONFLICT DO NOTHING"
            )

    side.write(change)
    side.check_references()
    ledger = Ledger(side.database)
    for number in range(5):
        enter(ledger, f"before {number}")
    side.close()


def enter(ledger: Ledger, subject: str) -> None:
    entry = GovernanceEntry(
        kind="note", subject=subject, actor="ada", recorded_at_ms=1, rationale=None, ticket=None, details={}
    )
    ledger.append_governance([entry])


def open_side(address: str, *, fill: bool) -> Side:
    if address.startswith("postgresql://"):
        return PostgresSide(address)
    return SqliteSide(address, SystemClock(), fill=fill)


class Steps:
    """Progress that does something at each step."""

    def __init__(self, act: Callable[[int, str], None] = lambda _at, _name: None) -> None:
        self.names: list[str] = []
        self._act = act

    def phase(self, name: str, total: int | None = None) -> None:
        self.names.append(name)
        self._act(len(self.names), name)

    def advance(self, amount: int, note: str = "") -> None:
        self.phase(f"{self.names[-1].removesuffix(' +')} +")

    def done(self) -> None: ...


def copy(source: str, target: str, steps: Steps | None = None) -> CopyReport:
    """A whole copy, in this process."""
    ends = open_side(source, fill=False), open_side(target, fill=True)
    try:
        ends[0].prepare(0)
        return mover(*ends, steps).run()
    finally:
        for end in ends:
            end.close()


def mover(source: Side, target: Side, steps: Steps | None = None) -> LedgerCopy:
    return LedgerCopy(source, target, clock=SystemClock(), ids=SystemIds(), progress=steps or Steps(), by=BY)


def killed_copy(source: str, target: str, stage: str, times: int = 1) -> bool:
    """A copy in a process of its own, killed when it comes to a stage of that name for the so many-eth time;
    False: it came to its end."""
    left = times

    def kill(_step: int, name: str) -> None:
        nonlocal left
        left -= name.startswith(stage)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            copy(source, target, Steps(kill))
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)


def contents(address: str) -> dict[str, list[Any]]:
    """Every row of every table, in an order that both databases share."""
    side = open_side(address, fill=False)
    try:
        return {
            table.name: sorted(
                (row for page in moves.pages(side, table) for row in page), key=lambda row: table.note_of(row)
            )
            for table in moves.ledger_tables()
        }
    finally:
        side.close()
