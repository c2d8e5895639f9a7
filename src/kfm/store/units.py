"""The write-ahead ledger of units on either database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kfm.core.records import GovernanceEntry, Unit
from kfm.core.wal import (
    Claim,
    Claimed,
    Exchanged,
    Finish,
    Finished,
    Intake,
    IntakeReport,
    Lane,
    Taken,
)
from kfm.store import governance, unit_claims, unit_counts, unit_intake, unit_work
from kfm.store.collection_figures import Figures, Told
from kfm.store.session import Database, Session
from kfm.store.unit_counts import Tally
from kfm.store.unit_reading import UnitQueries

if TYPE_CHECKING:
    from kfm.store.incidents import Watch

LANES_MAX = 10_000
REAPED_MAX = 10_000
TOGETHER_MAX = 200  # lapsed leases in one transaction: nobody else writes to SQLite meanwhile


class UnitReader(UnitQueries):
    """Implements `ingest_ports.WalReader`."""

    def lanes(self) -> list[Lane]:
        """Found one after the other in the index, so that what waits in them is not counted."""
        found: list[Lane] = []
        at: tuple[str, str, int] = ("", "", 0)
        session = self._database.session
        for _ in range(LANES_MAX):
            row = session.one("units.next_lane", dataset=at[0], provider=at[1], alone=at[2])
            if row is None:
                break
            found.append(Lane(*row))
            at = row[:3]
        return found


def _pages_of(finish: Finish | None, claim: Claim | None, fresh: Sequence[Taken]) -> list[str]:
    """A new page for what is claimed, one for what is new, and one for what succeeded."""
    pages = (claim is not None) + bool(fresh) + bool(finish is not None and finish.done)
    return ["unit_pages.next"] * pages


class Units(UnitReader):
    """Implements `ingest_ports.Wal`. Each method is one transaction."""

    def __init__(self, database: Database, watch: Watch) -> None:
        super().__init__(database)
        self._watch = watch
        self._told = Told()

    def take_in(self, intake: Intake) -> IntakeReport:
        return self._database.write(lambda session: unit_intake.take_in(session, intake, self._watch))

    def turn(self, finish: Finish | None, claim: Claim | None) -> tuple[Finished, list[Claimed]]:
        exchanged = self.exchange(finish, claim, ())
        return exchanged.finished, list(exchanged.claimed)

    def exchange(self, finish: Finish | None, claim: Claim | None, fresh: Sequence[Taken]) -> Exchanged:
        def change(session: Session) -> tuple[Exchanged, Figures]:
            session.expect("policy.epoch_for_share", *_pages_of(finish, claim, fresh))
            now_ms, tally, figures = session.now_ms(), Tally(), Figures(self._told)
            if unit_claims.is_outdated(session, finish, claim):
                return Exchanged(Finished(epoch_moved=True), left=tuple(fresh)), figures
            finished, entries, waited = Finished(), [], 0
            if finish is not None:
                ending = unit_work.Ending(session, finish, self._watch, now_ms, tally, figures)
                finished, entries = ending.end(), ending.entries
            # A claim waits for nobody, and new units only for others that are being taken in: so whoever
            # waits for us is not waited for in turn. Known ones would be, and are left for later.
            if claim is not None:
                claimed, left, waited = unit_claims.claim(session, claim, now_ms, tally, fresh)
            else:
                left, claimed = unit_intake.insert_new(session, fresh, now_ms, tally)
            tally.write(session, figures.lines())
            governance.append(session, entries)
            created = len(fresh) - len(left)
            return Exchanged(finished, tuple(claimed), waited, created, tuple(left)), figures

        exchanged, figures = self._database.write(change)
        self._told.learn(figures)
        return exchanged

    def reap_units(
        self, unit_random: float, dead: Callable[[str], bool] | None = None, *, lineage: bool = True
    ) -> int:
        """Units whose lease has lapsed, or whose worker is known to be gone, fail and are tried again."""
        session = self._database.session
        found = session.all("units.leased", row_limit=REAPED_MAX)
        now_ms = session.now_ms()
        workers = {worker_id for _, worker_id, _ in found if worker_id is not None}
        gone = {worker_id for worker_id in workers if dead is not None and dead(worker_id)}
        lapsed = sorted(row[0] for row in found if row[2] <= now_ms or row[1] in gone)

        def change(session: Session, some: Sequence[str]) -> int:
            now_ms, tally = session.now_ms(), Tally()
            ending = unit_work.Ending(session, Finish(lineage=lineage), self._watch, now_ms, tally)
            count = sum(ending.lapse(wal_id, unit_random, gone) for wal_id in some)
            ending.end()
            tally.write(session)
            governance.append(session, ending.entries)
            return count

        batches = [lapsed[at : at + TOGETHER_MAX] for at in range(0, len(lapsed), TOGETHER_MAX)]
        return sum(self._database.write(partial(change, some=some)) for some in batches)

    def release_dead(self, envelope_hash: str, entry: GovernanceEntry) -> int:
        def change(session: Session) -> int:
            released = session.all("dead_messages.release", envelope_hash=envelope_hash)
            governance.append(session, [entry] if released else [])
            return len(released)

        return self._database.write(change)

    def bring_in(self, units: Sequence[Unit], actor: str, rationale: str) -> int:
        from kfm.store import unit_imports  # late: once in a ledger's life

        return self._database.write(lambda session: unit_imports.bring_in(session, units, actor, rationale))

    def fold_counts(self, limit: int = 10_000) -> int:
        return self._database.write(lambda session: unit_counts.fold(session, limit))
