"""The one store of run-state that an environment has: opened, refused if it is another, or moved."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kfm.model.errors import Busy, ConfigError, StoreCorrupt, UsageError
from kfm.model.records import Justification, Lock, Node, governance_entry
from kfm.model.run_state import (
    STORE_MARK,
    BeginPass,
    Begun,
    EndedPass,
    EndPass,
    Fence,
    Head,
    KnownNodes,
    Own,
    Skips,
    to_document,
)
from kfm.model.settings import RunStateSettings

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.branches_remote.lakefs_branches import LakefsBranches
    from kfm.branches_remote.run_state_objects import BranchRunState
    from kfm.config.loader import Loaded
    from kfm.db.run_state import RunStateTables
    from kfm.pipelines.project import PipelineProject
    from kfm.ports import Clock, Ids, Objects, Rng


RELATIONAL = "relational"
FOLDER = "run-state"  # of the Delta table, in the state folder
PAGE = 1000
LEASE_MS = 60 * 60 * 1000


class StoreParts(msgspec.Struct, frozen=True, eq=False):
    """What a store of run-state is made from."""

    store: Any  # the ledger
    state: str  # its folder
    objects: Objects
    clock: Clock
    ids: Ids
    rng: Rng
    loaded: Loaded | None = None


def parts_of(app: App, store: Any = None, objects: Objects | None = None) -> StoreParts:
    """Those of an application: its ledger for reading, unless another is given."""
    ledger = app.ledger if store is None else store
    return StoreParts(ledger, app.state, objects or app.objects, app.clock, app.ids, app.rng, app.loaded)


def read_run_states(app: App) -> RunStateTables:
    """The application's store of run-state, for reading."""
    return open_run_states(parts_of(app), app.settings.run_state, read_only=True)


def name_of(chosen: RunStateSettings) -> str:
    """The ledger's mark of a store: the same text wherever the project's folder lies."""
    return f"delta:{chosen.path}" if chosen.path else chosen.store


def named(name: str, chosen: RunStateSettings) -> RunStateSettings:
    """The store that a mark names, with the options of the configuration."""
    kind, _, path = name.partition(":")
    if kind == "delta":
        return RunStateSettings(store="delta", path=path or None, options=chosen.options)
    if kind in ("branch", "lakefs"):
        return RunStateSettings(store=kind)  # type: ignore[arg-type]
    return RunStateSettings()


def open_run_states(
    parts: StoreParts, chosen: RunStateSettings, *, read_only: bool = False
) -> RunStateTables:
    """The store that the configuration names; ConfigError if the environment has begun with another."""
    require(parts.store, chosen, read_only=read_only)
    return make(parts, chosen)


def require(store: Any, chosen: RunStateSettings, *, read_only: bool) -> None:
    wanted = name_of(chosen)
    begun = begun_with(store)
    if begun is None and not read_only and wanted != RELATIONAL:
        begun = store.ensure_mark(STORE_MARK, wanted)
    if begun not in (None, wanted):
        raise ConfigError(
            f"The run-state of this environment is kept in `{begun}`; the configuration names `{wanted}`.",
            remedy=f"`kfm run-state migrate --to {chosen.store}` moves it; or set run_state back.",
        )


def begun_with(store: Any) -> str | None:
    """The mark; without one, the ledger's own tables if any pipeline run is on record there."""
    from kfm.db.run_state import RunStateTables

    mark: str | None = store.mark(STORE_MARK)
    if mark is None and RunStateTables(store.database).any_passes():
        return RELATIONAL
    return mark


def make(parts: StoreParts, chosen: RunStateSettings, *, moving: bool = False) -> RunStateTables:
    database = parts.store.database
    if chosen.store == "delta":
        from kfm.db.run_state_external import ExternalRunStates

        return ExternalRunStates(database, delta_backend(parts, chosen))
    if chosen.store == "branch":
        from kfm.db.run_state_external import BranchesInside, ExternalRunStates

        backend = _versioned(parts, outputs=not moving)
        return ExternalRunStates(
            database, backend, lambda session: backend.on(BranchesInside(session, gated=moving))
        )
    if chosen.store == "lakefs":
        return _on_lakefs(parts)
    from kfm.db.run_state import RunStateTables

    return RunStateTables(database)


def _on_lakefs(parts: StoreParts) -> RunStateTables:
    from kfm.branches_remote.run_state_objects import RemoteBranchRunState
    from kfm.db.run_state_external import RemoteRunStates

    branches = lakefs_branches(parts)
    return RemoteRunStates(
        parts.store.database, RemoteBranchRunState(branches, parts.objects, branches.bring)
    )


def lakefs_branches(parts: StoreParts) -> LakefsBranches:
    """The branches in the lakeFS repository of the configuration."""
    from kfm.branches_remote.lakefs_client import open_branches

    if parts.loaded is None or parts.loaded.settings.lakefs is None:
        raise ConfigError(
            "The run-state of this environment is on lakeFS, and the configuration names no server.",
            remedy="Set `lakefs:` to the repository that it is on.",
        )
    return open_branches(
        parts.loaded, parts.objects, parts.store, clock=parts.clock, ids=parts.ids, rng=parts.rng
    )


def _versioned(parts: StoreParts, *, outputs: bool) -> BranchRunState:
    from kfm.branches_remote.run_state_objects import BranchRunState
    from kfm.db.branches import EmbeddedBranches

    return BranchRunState(EmbeddedBranches(parts.store.database), parts.objects, outputs=outputs)


def delta_backend(parts: StoreParts, chosen: RunStateSettings) -> Any:
    from kfm.branches_remote.delta import DeltaRunState

    loaded = parts.loaded
    options = {name: loaded.secret(value) if loaded else value for name, value in chosen.options.items()}
    hide: Callable[[str], str] = loaded.discretion.hide if loaded else lambda text: text
    return DeltaRunState(table_address(parts, chosen.path), options, discreet=hide)


def table_address(parts: StoreParts, path: str | None) -> str:
    if path is None:
        return os.path.join(parts.state, FOLDER)
    if "://" in path or path.startswith("/"):
        return path
    return parts.loaded.resolve(path) if parts.loaded else os.path.abspath(path)


# --- moving ----------------------------------------------------------------------------------


class RecordDigest(NamedTuple):
    """How many records, and one digest of them all, in whichever order they come."""

    records: int
    digest: str


class MovedStore(NamedTuple):
    before: str
    after: str
    records: int
    digest: str


def tally(nodes: Iterable[Node]) -> RecordDigest:
    total, count = 0, 0
    for node in nodes:
        document = msgspec.json.encode(to_document(node), order="deterministic")
        total += int.from_bytes(sha256(document).digest(), "big")
        count += 1
    return RecordDigest(count, f"sha256:{total % 2**256:064x}")


def migrate(
    project: PipelineProject, target: RunStateSettings, *, actor: str, on_page: Callable[[int], None]
) -> MovedStore:
    """Every record, compared before the mark moves. The old store stays as it is.

    While it is under way nothing else runs. What an interrupted one has moved is not moved again.
    """
    from kfm.db import run_state as moves

    parts = project.store_parts()
    before = begun_with(project.store) or RELATIONAL
    after = name_of(target)
    if target.store == "lakefs":
        raise UsageError(
            "Records can't be moved to lakeFS.",
            remedy="Begin a new environment: `environment:` and `state:`.",
        )
    if before == after:
        raise UsageError(f"The run-state of this environment is kept in `{after}` already.")
    fence = _exclusive_fence(project)
    try:
        source, goal = make(parts, named(before, target)), make(parts, target, moving=True)
        moved = 0
        for page in _pages(source.rows()):
            goal.move_in(page)
            moved += len(page)
            on_page(moved)
        reverted = source.reverted()
        goal.take_back(reverted)
        if target.store == "branch":
            _beside_heads(parts)
        had, has = tally(source.rows()), tally(goal.rows())
        if had != has or goal.reverted() != reverted:
            raise StoreCorrupt(
                f"`{before}` holds {had.records} records and `{after}` {has.records}, or they differ.",
                remedy=f"Nothing was switched. Empty `{after}` of what is not from here, and try again.",
            )
        by, facts = Justification(actor=actor), {"records": had.records, "digest": had.digest}
        at_ms = project.store.now_ms()
        entry = governance_entry("run-state-migrate", after, at_ms, by, before=before, **facts)
        if not moves.switch(project.store.database, fence, before, after, entry):
            raise Busy("Another process has taken over meanwhile; nothing was switched.")
        return MovedStore(before, after, *had)
    finally:
        moves.let_go(project.store.database, fence)


def _exclusive_fence(project: PipelineProject) -> int:
    project.liveness.claim(project.worker_id)
    fence = project.store.begin_collection(project.worker_id, LEASE_MS, project.liveness.is_dead)
    if isinstance(fence, Lock):
        holder = fence.holder.run_id if fence.holder else ""
        raise Busy(f"{fence.scope} is held by run {holder or '?'}, so run-state can't be moved now.")
    return int(fence)


def _beside_heads(parts: StoreParts) -> None:
    """A branch that knows of a node what another branch made gets the record, too, as a merge would bring."""
    from kfm.db.run_state import heads

    backend, database = _versioned(parts, outputs=False), parts.store.database
    reverted = backend.reverted()
    for branch, keys in heads(database.session).items():
        missing = set(keys) - backend.present(keys, branch) - reverted
        prepared = backend.prepare_on(branch, backend.get(missing).values())
        database.write(partial(_put_inside, backend, prepared))


def _put_inside(backend: BranchRunState, prepared: Any, session: Any) -> None:
    from kfm.db.run_state_external import BranchesInside

    backend.on(BranchesInside(session, gated=True)).put(prepared)


def _pages(nodes: Iterator[Node]) -> Iterator[list[Node]]:
    while page := list(islice(nodes, PAGE)):
        yield page


# --- a mirror --------------------------------------------------------------------------------


def mirror(parts: StoreParts, tables: RunStateTables, address: str) -> int:
    """All records as a Delta table for analysis, made anew. Nothing ever reads it to decide."""
    mark = begun_with(parts.store) or RELATIONAL
    backend = delta_backend(parts, RunStateSettings(store="delta", path=address))
    if mark.partition(":")[0] == "delta" and backend.uri == table_address(
        parts, mark.partition(":")[2] or None
    ):
        raise UsageError(
            f"{address} is the store of this environment's run-state.", remedy="Name another folder."
        )
    return int(backend.rebuild(_pages(tables.rows())))


class NullRunState:
    """Implements `ports.RunStates` and `ports.PipelineRuns`."""

    def known(self, branch: str, run_id: str, dataset_ids: Collection[str]) -> KnownNodes:  # noqa: ARG002
        return KnownNodes({}, {})

    def own(self, run_id: str) -> dict[str, Own]:  # noqa: ARG002
        return {}

    def made(self, *_what: object) -> Head | None:
        return None

    def was_reverted(self, *_what: object) -> bool:
        return False

    def record(
        self,
        fence: Fence,  # noqa: ARG002
        nodes: Sequence[Node] = (),  # noqa: ARG002
        skips: Skips | None = None,  # noqa: ARG002
        documents: Sequence[tuple[str, str]] = (),  # noqa: ARG002
        events: Sequence[object] = (),  # noqa: ARG002
    ) -> bool:
        return True

    def one(self, *_what: object) -> Node | None:
        return None

    def of_run(self, run_id: str) -> Iterator[Node]:  # noqa: ARG002
        return iter(())

    def history(self, *_what: object, **_how: object) -> list[Node]:
        return []

    def document(self, name: str) -> str | None:  # noqa: ARG002
        return None

    def begin(self, request: BeginPass, dead: Callable[[str], bool]) -> Begun:  # noqa: ARG002
        return Begun(fence=request.fence or 0, attempt=1)

    def end(self, request: EndPass, skips: Skips | None = None) -> EndedPass:  # noqa: ARG002
        return EndedPass(landed=True)

    def checksums(self, first: str, last: str) -> dict[str, tuple[int, int, int, str]]:  # noqa: ARG002
        return {}

    def keep_checksums(self, seen: dict[str, tuple[int, int, int, str]]) -> None:
        """Nothing is kept."""
