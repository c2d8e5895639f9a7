"""Copy of a ledger to another database while work goes on, with a fenced cut-over.

Pages, then rounds over the keys that triggers noted meanwhile, then the comparison in one moment of the
source; then the fence and the last round. Then the target is live and the source has moved. Each step can be
killed and done again: how far it came is written with what it did.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from kfm.audit import anchors, chain
from kfm.config.state_folder import StateFolder
from kfm.db import governance, moves
from kfm.db.connection import POSTGRES, open_side, sqlite_path
from kfm.db.ledger_reader import LedgerReader
from kfm.db.moves import Move, Side, Table, TableDigest, TableReader, ledger_tables
from kfm.db.queries import ARRIVING, MOVED, is_current
from kfm.db.session import Row, Session
from kfm.model.audit import Anchor, ChainVerdict
from kfm.model.errors import ChainBroken, LostLease, StoreCorrupt, UsageError
from kfm.model.records import Justification, Record, governance_entry, justified

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.ports import Clock, Ids, Progress

KIND = "store-copy"
ROUNDS_MAX = 20  # before the fence falls even though writers are quicker than we are
BACKLOG_ROWS = 1_000  # noted keys that are few enough for the fence
NOTES_CHUNK = 200
DONE = "done"
_OLDER = "Back it up; the copy itself, or the next command that writes, brings it up to date."
_INDEXES = ("index", "unique")
_REFERENCES = ("reference",)


class CopyPlan(Record, frozen=True):
    """What a copy would do."""

    source: str
    target: str
    resumes: bool
    tables: tuple[tuple[str, int], ...]

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.tables)


class CopyReport(Record, frozen=True):
    """What a copy has done, and what was compared."""

    source: str
    target: str
    move_id: str
    resumed: bool
    tables: tuple[TableDigest, ...]  # as both sides were compared, before the last rounds
    noted: int  # keys that were written while rows were copied, and copied again
    rounds: int
    repaired: int  # rows that no trigger had noted
    chain_rows: int
    chain_hash: str
    fenced_ms: int

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.tables)


class LedgerCopy:
    """One copy, from the database that is in use to one that is empty."""

    def __init__(
        self,
        source: Side,
        target: Side,
        *,
        clock: Clock,
        ids: Ids,
        progress: Progress,
        anchors: Sequence[Anchor] = (),
        by: Justification,
        environment: str = "",
    ) -> None:
        self._source = source
        self._target = target
        self._clock = clock
        self._ids = ids
        self._progress = progress
        self._anchors = anchors
        self._by = by
        self._environment = environment
        self._tables = ledger_tables()
        self._noted = self._rounds = self._repaired = 0
        self._compared: tuple[TableDigest, ...] = ()

    # --- before anything is done -------------------------------------------------------

    def plan(self) -> CopyPlan:
        """Reads only; raises what the copy would raise."""
        return CopyPlan(
            source=self._source.place,
            target=self._target.place,
            resumes=self._under_way() is not None,
            tables=tuple((table.name, self._source.count(table)) for table in self._tables),
        )

    def _under_way(self) -> Move | None:
        """The copy that goes on, if one was begun; a target that is of no use for it is refused."""
        begun = self._begun()
        if begun is not None and begun.place != self._target.place:
            raise UsageError(
                f"A copy to {begun.place} is under way.",
                remedy=f"Run it again: `{_command(begun)}`; or give it up: `{_command(begun)} --abandon`.",
            )
        is_ours = begun is not None and (self._is_arriving(begun.move_id) or self._is_live(begun.move_id))
        if not self._target.is_empty() and not is_ours:
            raise UsageError(
                f"{self._target.place} holds a ledger already.",
                remedy="Name an empty database, schema or file; a copy never mixes two ledgers.",
            )
        return begun

    def _begun(self) -> Move | None:
        """As the source has it."""
        found = moves.latest(self._source.database.session)
        is_ours = found is not None and found.role == "source" and found.state in ("copying", "fenced")
        return found if is_ours else None

    def _is_arriving(self, move_id: str) -> bool:
        """Is the target marked as being filled by this move?"""
        there = None if self._target.is_empty() else moves.latest(self._target.database.session)
        return there is not None and (there.move_id, there.state) == (move_id, "copying")

    def _is_live(self, move_id: str) -> bool:
        """Was the target live once, whatever has become of it since?"""
        return moves.has_arrived(self._target.database.session, move_id)

    # --- the copy ----------------------------------------------------------------------

    def run(self) -> CopyReport:
        self._source.hold()
        begun = self._under_way()
        move_id = begun.move_id if begun is not None else self._ids.new()
        if begun is None:
            self._source.write(lambda session: self._begin(session, move_id))
        if not self._is_live(move_id):
            self._source.capture(
                self._tables, f"This ledger is moving, or has moved, to {self._target.place}."
            )
            arrive(self._target, move_id, self._source.place, self._clock.now_ms())
            copy_tables(self._source, self._target, move_id, self._progress)
            self._round()
            self._tighten(_INDEXES)
            self._catch_up()
            self._round(compare=True)
            self._catch_up()
            report = self._cut_over(move_id, resumed=begun is not None)
        else:  # killed between the two last steps: the target may have grown since
            report = self._arrived(move_id)
        self._progress.phase("leaving")
        self._source.write(lambda session: self._leave(session, move_id))
        self._progress.done()
        return report

    def _begin(self, session: Session, move_id: str) -> None:
        moves.begin(session, move_id, "source", self._target.place)
        governance.append(session, [self._entry("begun", session.now_ms(), self._target.place)])

    def _entry(self, step: str, now_ms: int, place: str) -> Any:
        return governance_entry(KIND, self._environment, now_ms, self._by, step=step, place=place)

    def _tighten(self, kinds: Sequence[str]) -> None:
        """What was taken away for the load."""
        self._progress.phase("making indexes")
        self._target.relax(on=True)
        self._target.tighten(moves.progress_of(self._target.database.session)["rebuild"], kinds)
        self._target.relax(on=False)
        self._progress.done()

    def _catch_up(self) -> None:
        """Rounds, until so little is noted that it can be left for the fence."""
        for _ in range(ROUNDS_MAX):
            if moves.backlog(self._source.database.session, BACKLOG_ROWS) < BACKLOG_ROWS:
                break
            self._round()

    def _round(self, *, compare: bool = False) -> int:
        """Bring the target to one moment of the source: what was noted, in one transaction.

        In that moment all tables can be compared while work goes on: nothing else writes to the target.
        """
        self._progress.phase("catching up")
        with self._source.snapshot():
            notes = self._source.captured()
            if notes:
                todo = self._todo(notes)
                self._target.write(lambda _: self._replace(todo))
                if self._compared:
                    self._require_same(todo)
            if compare:
                self._compared = self._compare()
        if notes:
            self._source.write(lambda _: self._source.forget([number for number, _, _ in notes]))
        self._noted += len(notes)
        self._rounds += bool(notes)
        self._progress.done()
        return len(notes)

    def _todo(self, notes: Sequence[tuple[int, str, str]]) -> list[tuple[Table, list[str]]]:
        by_table: dict[str, dict[str, None]] = {}
        for _, name, key in notes:
            by_table.setdefault(name, {})[key] = None
        return [(table, list(by_table[table.name])) for table in self._tables if table.name in by_table]

    def _replace(self, todo: Sequence[tuple[Table, list[str]]]) -> None:
        # First all that goes: a value that must be unique may have passed from one row to another.
        for table, keys in todo:
            for chunk in _chunks(keys):
                self._target.drop(table, chunk)
        for table, keys in todo:
            for chunk in _chunks(keys):
                self._target.load(table, self._source.rows_of(table, chunk))
                self._progress.advance(len(chunk))

    def _require_same(self, todo: Sequence[tuple[Table, list[str]]]) -> None:
        """What comes after the comparison is compared row by row."""
        for table, keys in todo:
            for chunk in _chunks(keys):
                here, there = self._source.rows_of(table, chunk), self._target.rows_of(table, chunk)
                if sorted(map(moves.row_digest, here)) != sorted(map(moves.row_digest, there)):
                    raise _otherwise(table, f"{len(chunk)} rows that were changed meanwhile")

    # --- behind the fence --------------------------------------------------------------

    def _cut_over(self, move_id: str, *, resumed: bool) -> CopyReport:
        with self._fence(move_id) as began_ms:
            while self._round():
                pass  # nothing is added behind the fence: the second finds nothing
            if any(self._source.count(table) != self._target.count(table) for table in self._tables):
                self._compared = self._compare()  # what no trigger sees: a partition that was dropped
            self._tighten(_REFERENCES)
            self._target.check_references()
            verdict = require_sound(LedgerReader(self._target.database), self._anchors, self._progress)
            positions = self._source.positions()
            begun = self._begun()
            if begun is None or begun.state != "fenced":
                raise LostLease("The fence was taken away meanwhile.", remedy="Run the copy again.")
        self._progress.phase("going live")
        # From here on an error leaves the fence: whether the target is live is only known when it is asked.
        self._target.write(lambda session: self._go_live(session, move_id, positions))
        return CopyReport(
            source=self._source.place,
            target=self._target.place,
            move_id=move_id,
            resumed=resumed,
            tables=self._compared,
            noted=self._noted,
            rounds=self._rounds,
            repaired=self._repaired,
            chain_rows=verdict.rows,
            chain_hash=verdict.head_hash,
            fenced_ms=self._clock.monotonic_ms() - began_ms,
        )

    @contextmanager
    def _fence(self, move_id: str) -> Iterator[int]:
        def change(session: Session) -> None:
            self._source.exclude_writers()
            moves.set_state(session, move_id, "fenced")

        self._progress.phase("fence")
        self._source.write(change)
        try:
            yield self._clock.monotonic_ms()
        except BaseException:
            self._source.write(lambda session: moves.set_state(session, move_id, "copying"))
            raise

    def _compare(self) -> tuple[TableDigest, ...]:
        """Each table on both sides, each side by itself; what no trigger noted is copied again, once."""
        found = digests_of_both(self._source, self._target, self._tables, self._progress)
        kept = []
        for table, (here, there) in zip(self._tables, found, strict=True):
            if here != there:
                there = self._repair(table)
            if here != there:
                raise _otherwise(table, f"{here.rows} rows, {here.digest}, and {there.rows}, {there.digest}")
            kept.append(there)
        return tuple(kept)

    def _repair(self, table: Table) -> TableDigest:
        wrong = moves.differences(self._source, self._target, table)

        def change(_: Session) -> None:
            for chunk in _chunks(wrong):
                self._target.drop(table, chunk)
            for chunk in _chunks(wrong):
                self._target.load(table, self._source.rows_of(table, chunk))

        self._target.write(change)
        self._repaired += len(wrong)
        return moves.digest(self._target, table)

    def _go_live(self, session: Session, move_id: str, positions: dict[str, int]) -> None:
        self._target.settle(positions)
        moves.unmark(session)
        moves.set_state(session, move_id, "live")
        governance.append(session, [self._entry("arrived", session.now_ms(), self._source.place)])

    def _leave(self, session: Session, move_id: str) -> None:
        moves.set_state(session, move_id, "moved")
        moves.mark(session, MOVED, move_id, self._target.place)
        session.all("captured.clear")

    def _arrived(self, move_id: str) -> CopyReport:
        reader = LedgerReader(self._target.database)
        number, hash_ = reader.chain_head()
        return CopyReport(
            source=self._source.place,
            target=self._target.place,
            move_id=move_id,
            resumed=True,
            tables=tuple(moves.digest(self._source, table) for table in self._tables),
            noted=0,
            rounds=0,
            repaired=0,
            chain_rows=number,
            chain_hash=hash_,
            fenced_ms=0,
        )

    # --- giving up ---------------------------------------------------------------------

    def abandon(self) -> Move:
        """The source goes on as if nothing had been; the target is never opened."""
        self._source.hold()
        source = self._begun()
        if source is None:
            raise UsageError("No copy is under way.", remedy="`kfm store copy --to ADDRESS` begins one.")
        if source.place != self._target.place:
            raise UsageError(
                f"The copy that is under way goes to {source.place}.",
                remedy=f"Name that address: `{_command(source)} --abandon`.",
            )
        if self._is_live(source.move_id):
            raise UsageError(
                f"{self._target.place} is live already: a ledger that goes on in two places is none.",
                remedy=f"Run `{_command(source)}` once more: its last step is missing.",
            )
        if not (self._target.is_empty() or self._is_arriving(source.move_id)):
            raise UsageError(
                f"{self._target.place} holds a ledger that is in use, or was: it may be this one, gone on.",
                remedy="If it is this one, set `store` to it. If it is another, move it away and run this "
                "again.",
            )
        self._source.release(self._tables)

        def change(session: Session) -> None:
            moves.set_state(session, source.move_id, "abandoned")
            governance.append(session, [self._entry("abandoned", session.now_ms(), source.place)])

        self._source.write(change)
        return source


# --- shared with backups and restores --------------------------------------------------------


def arrive(target: Side, move_id: str, place: str, now_ms: int) -> None:
    """Mark a database as being filled, make the schema, take away what holds only once all rows are there."""
    target.relax(on=True)
    if target.is_empty():

        def mark(session: Session) -> None:
            session.all("migrations.create")
            moves.mark(session, ARRIVING, move_id, place)

        target.write(mark)
    target.prepare(now_ms, arriving=True)
    if moves.progress_of(target.database.session) is None:

        def loosen(session: Session) -> None:
            moves.begin(session, move_id, "target", place)
            for table in ledger_tables():
                target.clear(table)
            moves.set_progress(session, move_id, {"rebuild": target.loosen(), "tables": {}})

        target.write(loosen)
    target.relax(on=False)


def copy_tables(source: TableReader, target: Side, move_id: str, progress: Progress) -> None:
    """Every table in the order of its key; each page with how far it goes."""
    reached = moves.progress_of(target.database.session)
    target.relax(on=True)
    for table in ledger_tables():
        after = reached["tables"].get(table.name)
        if after == DONE:
            continue
        progress.phase(f"copying {table.name}", source.count(table))
        for page in moves.pages(source, table, after):
            reached["tables"][table.name] = list(table.key_of(page[-1]))
            target.write(partial(_load, target, move_id, reached, table, page))
            progress.advance(len(page))
        reached["tables"][table.name] = DONE
        target.write(lambda session: moves.set_progress(session, move_id, reached))
        progress.done()
    target.relax(on=False)


def _load(
    target: Side, move_id: str, reached: Any, table: Table, page: Sequence[Row], session: Session
) -> None:
    target.load(table, page)
    moves.set_progress(session, move_id, reached)


def digests_of_both(
    source: TableReader, target: TableReader, tables: Sequence[Table], progress: Progress
) -> list[tuple[TableDigest, TableDigest]]:
    """Each side reads by itself, both at once."""
    progress.phase("comparing", len(tables))
    here = []
    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(lambda: [moves.digest(target, table) for table in tables])
        for table in tables:
            here.append(moves.digest(source, table))
            progress.advance(1)
        found = list(zip(here, there.result(), strict=True))
    progress.done()
    return found


def require_sound(ledger: LedgerReader, known: Sequence[Anchor], progress: Progress) -> ChainVerdict:
    """The audit log of a copied ledger, on arrival; ChainBroken if it is not whole."""
    verdict = chain.verify(ledger, known, progress)
    if not verdict.sound:
        detail = verdict.finding.detail if verdict.finding is not None else "its head is missing"
        raise ChainBroken(f"The audit log is not sound: {detail}.")
    return verdict


def require_current(source: Side, remedy: str) -> None:
    """For a reader of a ledger that must not change it."""
    if not is_current(source.database.session):
        raise UsageError(f"The ledger {source.place} was made by an older kfm, or is none.", remedy=remedy)


def _command(move: Move) -> str:
    return f"kfm store copy --to '{move.place}'"


def _otherwise(table: Table, found: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"The table {table.name} did not arrive as it is: {found}.",
        remedy="The source goes on as it was. Run `kfm doctor`, and copy to an empty database.",
    )


def _chunks(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(keys), NOTES_CHUNK):
        yield keys[at : at + NOTES_CHUNK]


def open_copy(
    loaded: Loaded, to: str, progress: Progress, rationale: str | None, held: ExitStack, *, dry_run: bool
) -> LedgerCopy:
    """The copy of this configuration's ledger; both ends are closed by `held`."""
    folder, address = StateFolder.of(loaded), loaded.secret(to)
    path = None if address.startswith(POSTGRES) else sqlite_path(address, folder.path)
    if dry_run and path is not None and not os.path.exists(path):
        address = f"sqlite:{held.enter_context(tempfile.TemporaryDirectory(prefix='kfm-plan-'))}/kfm.db"
    source = folder.open_side()
    held.callback(source.close)
    if dry_run:
        require_current(source, _OLDER)
    else:
        source.prepare(folder.clock.now_ms())
    target = open_side(address, folder.path, folder.clock, fill=True)
    held.callback(target.close)
    if path is not None:
        target.place = f"sqlite:{path}"
    found = anchors.read(loaded.resolve(loaded.settings.audit.anchors)) or []
    return LedgerCopy(
        source,
        target,
        clock=folder.clock,
        ids=folder.ids,
        progress=progress,
        anchors=anchors.of_environment(found, loaded.settings.environment),
        by=justified(loaded.discretion.said, loaded.identity().subject, rationale),
        environment=loaded.settings.environment,
    )
