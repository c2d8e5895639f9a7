"""Run-state records in a Delta table: one writer at a time, any number of readers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kfm.model.errors import BackendUnavailable, ExtraMissing, StoreBusy, StoreCorrupt
from kfm.model.records import Node
from kfm.model.run_state import outputs_of, outputs_text
from kfm.ports import Key
from kfm.system import sync

TRIES_MAX = 10
COMPACT_EVERY = 100  # commits
FILE_BYTES = 64 * 1024 * 1024  # a file that has grown to this is not rewritten any more
RETENTION_HOURS = 7 * 24  # a reader that began before may finish
RUNS_NAMED_MAX = 200  # more are cheaper to filter here
PAGE_RUNS = 500


def driver() -> Any:
    try:
        import deltalake
    except ImportError:
        raise extra_missing() from None
    return deltalake


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def listed(texts: Iterable[str]) -> str:
    return ", ".join(quoted(text) for text in texts)


class DeltaRunState:
    """Implements `ports.RunStateBackend`."""

    names_commits = True

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str] | None = None,
        *,
        compact_every: int = COMPACT_EVERY,
        retention_hours: int = RETENTION_HOURS,
        discreet: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._delta = driver()
        self.uri = uri
        self._options = dict(options or {})
        self._compact_every = compact_every
        self._retention_hours = retention_hours
        self._discreet = discreet
        self._table: Any = None
        self._keys: dict[str, set[str]] = {}  # run → nodes that the table holds, at _keys_version
        self._keys_version = -1

    # --- writing -----------------------------------------------------------------------------

    def prepare(self, nodes: Sequence[Node]) -> tuple[list[Key], Any]:
        return [(node.run_id, node.dataset_id) for node in nodes], table_of(nodes)

    def put(self, prepared: tuple[list[Key], Any]) -> None:
        keys, rows = prepared
        if not keys:
            return
        self._committed(lambda table: self._upsert(table, keys, rows))
        if self._table.version() == self._keys_version + 1:  # ours, with no other commit in between
            for run_id, dataset_id in keys:
                self._keys.setdefault(run_id, set()).add(dataset_id)
            self._keys_version += 1
        self._tidy()

    def revert(self, branch: str, dataset_ids: Collection[str]) -> None:
        if not dataset_ids:
            return
        where = (
            f"lakefs_branch = {quoted(branch)} AND outcome = 'success' AND NOT reverted"
            f" AND dataset_id IN ({listed(sorted(dataset_ids))})"
        )
        self._update(where)

    def reverted(self) -> set[Key]:
        table = self._fresh()
        if table is None:
            return set()
        found = self._query(table, "SELECT run_id, dataset_id FROM t WHERE reverted")
        return {pair for batch in found.to_batches() for pair in _pairs_of(batch)}

    def take_back(self, keys: Collection[Key]) -> None:
        left = sorted(keys)
        for start in range(0, len(left), RUNS_NAMED_MAX):
            where = " OR ".join(
                f"(run_id = {quoted(run_id)} AND dataset_id = {quoted(dataset_id)})"
                for run_id, dataset_id in left[start : start + RUNS_NAMED_MAX]
            )
            self._update(where)

    def _update(self, where: str) -> None:
        self._committed(lambda table: table.update(predicate=where, updates={"reverted": "true"}))

    def rebuild(self, pages: Iterable[Sequence[Node]]) -> int:
        """All of it anew, in one commit; returns how many rows there are now."""
        parts = [table_of(page) for page in pages] or [table_of([])]
        core = arrow()
        whole = core.Table.from_batches([batch for part in parts for batch in part.to_batches()])
        self._committed(lambda table: self._delta.write_deltalake(table, whole, mode="overwrite"))
        self._keys_version = -1
        return int(whole.num_rows)

    def _upsert(self, table: Any, keys: Sequence[Key], rows: Any) -> None:
        runs = sorted({run_id for run_id, _dataset_id in keys})
        there = self._there(table, runs)
        if not any(dataset_id in there.get(run_id, ()) for run_id, dataset_id in keys):
            self._delta.write_deltalake(table, rows, mode="append")
            return
        predicate = f"t.run_id = s.run_id AND t.dataset_id = s.dataset_id AND t.run_id IN ({listed(runs)})"
        merge = table.merge(rows, predicate, source_alias="s", target_alias="t", streamed_exec=False)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def _there(self, table: Any, runs: Sequence[str]) -> dict[str, set[str]]:
        """Which nodes of these runs the table holds: known from before, if nothing was written since."""
        if self._keys_version != table.version():
            self._keys, self._keys_version = {}, table.version()
        unknown = [run_id for run_id in runs if run_id not in self._keys]
        if unknown:
            self._keys |= {run_id: set() for run_id in unknown}
            for run_id, dataset_id in self._pairs(table, unknown):
                self._keys[run_id].add(dataset_id)
        return self._keys

    def _pairs(self, table: Any, runs: Sequence[str]) -> Iterator[Key]:
        where = f"run_id IN ({listed(runs)})" if len(runs) <= RUNS_NAMED_MAX else "true"
        wanted = set(runs)
        found = self._query(table, f"SELECT run_id, dataset_id FROM t WHERE {where}")
        for batch in found.to_batches():
            yield from (pair for pair in _pairs_of(batch) if pair[0] in wanted)

    def _committed(self, change: Callable[[Any], Any]) -> None:
        """Reload and try again, if another process has committed in between."""
        for _ in range(TRIES_MAX):
            table = self._fresh(make=True)
            before = table.version()
            try:
                change(table)
            except self._delta.exceptions.CommitFailedError:
                self._keys_version = -1
                continue
            except self._delta.exceptions.DeltaError as error:
                raise self._said(error) from None
            if table.version() > before:
                self._settle(table, before + 1)
            return
        raise StoreBusy(f"The table {self.uri} was changed by others {TRIES_MAX} times in a row.")

    def _settle(self, table: Any, since: int) -> None:
        """On a disk of this machine, what was written is durable before it is relied on."""
        root = local_folder(self.uri)
        if root is None:
            return
        log = os.path.join(root, "_delta_log")
        written = [os.path.join(log, f"{version:020}.json") for version in range(since, table.version() + 1)]
        added: list[str] = []
        for path in written:
            added += _added(path, root)
        for path in (*added, root, *written, log):
            _sync(path)

    # --- tidying -----------------------------------------------------------------------------

    def _tidy(self) -> None:
        if self._table.version() % self._compact_every == 0:
            self.compact()

    def compact(self) -> None:
        """Small files into larger ones; a process that loses the race for it leaves it to the next."""
        table = self._fresh(make=True)
        before = table.version()
        with contextlib.suppress(self._delta.exceptions.CommitFailedError):
            table.optimize.compact(target_size=FILE_BYTES)
            if table.version() > before:
                self._settle(table, before + 1)
            table.vacuum(
                retention_hours=self._retention_hours,
                dry_run=False,
                enforce_retention_duration=self._retention_hours >= RETENTION_HOURS,
            )
        if self._keys_version == before:
            self._keys_version = table.version()  # not a row has changed

    # --- reading -----------------------------------------------------------------------------

    def get(self, keys: Collection[Key], branch: str | None = None) -> dict[Key, Node]:  # noqa: ARG002
        found: dict[Key, Node] = {}
        wanted = set(keys)
        if not wanted:
            return found
        runs = sorted({run_id for run_id, _dataset_id in wanted})
        where = [f"run_id IN ({listed(runs)})"] if len(runs) <= RUNS_NAMED_MAX else []
        if len(wanted) == 1:
            where.append(f"dataset_id = {quoted(next(iter(wanted))[1])}")
        for node in self._select(where):
            if (node.run_id, node.dataset_id) in wanted:
                found[node.run_id, node.dataset_id] = node
        return found

    def present(self, keys: Collection[Key], branch: str | None = None) -> set[Key]:  # noqa: ARG002
        if not keys:
            return set()
        wanted = set(keys)
        runs = sorted({run_id for run_id, _dataset_id in wanted})
        table = self._fresh()
        return {pair for pair in self._pairs(table, runs) if pair in wanted} if table is not None else set()

    def of_run(self, run_id: str, branch: str | None = None) -> Iterator[Node]:  # noqa: ARG002
        yield from sorted(self._select([f"run_id = {quoted(run_id)}"]), key=lambda node: node.dataset_id)

    def made(self, branch: str, dataset_id: str, inputs_hash: str, code_sha: str | None) -> Node | None:
        where = [
            f"dataset_id = {quoted(dataset_id)}",
            f"lakefs_branch = {quoted(branch)}",
            f"inputs_hash = {quoted(inputs_hash)}",
            "outcome = 'success'",
            "NOT reverted",
            f"code_sha = {quoted(code_sha)}" if code_sha is not None else "code_sha IS NULL",
        ]
        return next(iter(self._select(where, newest=1)), None)

    def history(self, dataset_id: str, branch: str | None, limit: int) -> list[Node]:
        where = [f"dataset_id = {quoted(dataset_id)}"]
        if branch is not None:
            where.append(f"lakefs_branch = {quoted(branch)}")
        return list(self._select(where, newest=limit))

    def rows(self) -> Iterator[Node]:
        """By run, some at a time."""
        table = self._fresh()
        if table is None:
            return
        found = self._query(table, "SELECT DISTINCT run_id FROM t")
        runs = [run_id for batch in found.to_batches() for run_id in batch.column("run_id").to_pylist()]
        runs.sort()
        for start in range(0, len(runs), PAGE_RUNS):
            page = self._select([f"run_id IN ({listed(runs[start : start + PAGE_RUNS])})"])
            yield from sorted(page, key=lambda node: (node.run_id, node.dataset_id))

    def _select(self, where: Sequence[str], newest: int | None = None) -> Iterator[Node]:
        order = f" ORDER BY recorded_us DESC, run_id DESC LIMIT {newest:d}" if newest is not None else ""
        text = f"SELECT {SELECTED} FROM t WHERE {' AND '.join(where) or 'true'}{order}"
        table = self._fresh()
        return nodes_of(self._query(table, text)) if table is not None else iter(())

    def _query(self, table: Any, text: str) -> Any:
        try:
            return self._delta.QueryBuilder().register("t", table).execute(text).read_all()
        except Exception as error:  # noqa: BLE001 - the engine has no class of its own for what it raises
            raise self._said(error) from None

    def _fresh(self, *, make: bool = False) -> Any:
        """The table as it is now; None if there is none, and nothing is to be written."""
        try:
            if self._table is not None:
                self._table.update_incremental()
            elif make or self._delta.DeltaTable.is_deltatable(self.uri, self._options or None):
                self._table = self._opened()
        except self._delta.exceptions.DeltaError as error:
            raise self._said(error) from None
        return self._table

    def _opened(self) -> Any:
        options = self._options or None
        with contextlib.suppress(self._delta.exceptions.CommitFailedError):  # another process makes it
            self._delta.DeltaTable.create(
                self.uri, schema(), mode="ignore", name="run_state", storage_options=options
            )
        table = self._delta.DeltaTable(self.uri, storage_options=options)
        found = {field.name for field in table.schema().fields}
        if missing := [name for name in NAMES if name not in found]:
            raise StoreCorrupt(f"The table {self.uri} is not one of run-state: it has no {missing[0]}.")
        return table

    def _said(self, error: Exception) -> BackendUnavailable:
        reason = self._discreet(str(error).split("\n")[0])[:300]
        return BackendUnavailable(f"The table {self.uri}: {reason}")


def _pairs_of(batch: Any) -> Iterator[Key]:
    return zip(*(batch.column(name).to_pylist() for name in ("run_id", "dataset_id")), strict=True)


# --- durability on a local disk --------------------------------------------------------------


def local_folder(uri: str) -> str | None:
    if uri.startswith("file://"):
        return uri.removeprefix("file://")
    return None if "://" in uri else uri


def _added(log_entry: str, root: str) -> list[str]:
    import msgspec

    with open(log_entry, "rb") as lines:
        actions = [msgspec.json.decode(line) for line in lines if line.strip()]
    return [os.path.join(root, each["add"]["path"]) for each in actions if "add" in each]


def _sync(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # compacted and removed by another process meanwhile
        handle = os.open(path, os.O_RDONLY)
        try:
            sync(handle)
        finally:
            os.close(handle)


# In the order of the record; what follows the first seven may be empty.
TEXTS = ("dataset_id", "run_id", "lakefs_branch", "inputs_hash", "validation_summary", "outcome")
EXTRAS = (
    "output_commit",
    "outputs",
    "skipped_because",
    "code_sha",
    "pipeline_id",
    "error_code",
    "error_message",
    "reason",
)
COUNTS = ("attempt", "duration_ms")
NAMES = (*TEXTS, "recorded_at", *COUNTS, *EXTRAS, "reverted")


def extra_missing() -> ExtraMissing:
    return ExtraMissing(
        "Run-state in a Delta table needs the extra `delta`.", remedy="pip install 'kfm-kernel[delta]'"
    )


def arrow() -> Any:
    try:
        from arro3 import core
    except ImportError:
        raise extra_missing() from None
    return core


def schema() -> Any:
    core = arrow()
    text, number = core.DataType.utf8(), core.DataType.int64()
    return core.Schema(
        [
            *(core.Field(name, text, nullable=False) for name in TEXTS),
            core.Field("recorded_at", core.DataType.timestamp("us", tz="UTC"), nullable=False),
            core.Field("attempt", number, nullable=False),
            core.Field("duration_ms", number, nullable=True),
            *(core.Field(name, text, nullable=True) for name in EXTRAS),
            core.Field("reverted", core.DataType.bool(), nullable=False),
        ]
    )


def table_of(nodes: Sequence[Node]) -> Any:
    """Arrow, of the schema above."""
    core = arrow()
    text, number = core.DataType.utf8(), core.DataType.int64()
    plain = [_plain(node) for node in nodes]
    columns = {name: core.Array([row[name] for row in plain], text) for name in (*TEXTS, *EXTRAS)}
    columns |= {name: core.Array([row[name] for row in plain], number) for name in COUNTS}
    stamps = core.Array([node.recorded_at_ms * 1000 for node in nodes], number)
    columns["recorded_at"] = stamps.cast(core.DataType.timestamp("us", tz="UTC"))
    columns["reverted"] = core.Array([False] * len(nodes), core.DataType.bool())
    return core.Table.from_pydict({name: columns[name] for name in NAMES}, schema=schema())


def _plain(node: Node) -> dict[str, Any]:
    row = msgspec.structs.asdict(node)
    row["validation_summary"] = msgspec.json.encode(node.validation_summary).decode()
    row["outputs"] = outputs_text(node.outputs) if node.outputs else None
    return row


# What a query selects so that `nodes_of` can read it: times as whole microseconds.
SELECTED = ", ".join(
    "arrow_cast(recorded_at, 'Int64') AS recorded_us" if name == "recorded_at" else name
    for name in NAMES
    if name != "reverted"
)


def nodes_of(table: Any) -> Iterator[Node]:
    for batch in table.to_batches():
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        for values in zip(*columns.values(), strict=True):
            yield _node(dict(zip(columns, values, strict=True)))


def _node(row: dict[str, Any]) -> Node:
    row["recorded_at_ms"] = row.pop("recorded_us") // 1000
    try:
        row["validation_summary"] = msgspec.json.decode(row["validation_summary"])
        row["outputs"] = outputs_of(row["outputs"] or "[]")
        return msgspec.convert(row, Node)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"A record of run-state can't be read: {error}.") from error
