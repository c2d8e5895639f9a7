"""The write-ahead ledger of units: claims, queries, counters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.db import duties, fact_pages, governance, rows, unit_history, unit_intake, unit_results, unit_rows
from kfm.db.catalogue import Figures, KnownFigures
from kfm.db.queries import parameters_of
from kfm.db.session import Database, Row, Session
from kfm.db.unit_intake import ClaimableUnits, insert_new
from kfm.db.unit_rows import CountChanges
from kfm.model.audit import SealedPage
from kfm.model.feeds import HOUR_MS, HourCounts
from kfm.model.records import GovernanceEntry, Justification, Unit
from kfm.model.retry import RetryPolicy
from kfm.model.runs import OutboxMessage
from kfm.model.times import last_ms
from kfm.model.units import (
    AFTER_ALL_IDS,
    ClaimedUnit,
    ClaimRequest,
    DeadCause,
    DeadMessage,
    ExchangeReport,
    FlowHour,
    IntakeBatch,
    IntakeReport,
    IntakeUnit,
    KnownContent,
    Lane,
    ResultBatch,
    ResultReport,
    StoredUnit,
    UnitCause,
    UnitFilter,
    UnitTransition,
    data_time_ms,
    first_id,
    holds_lease,
)

if TYPE_CHECKING:
    from kfm.db.incidents import IncidentKeeper


_ENCODE = msgspec.json.Encoder().encode
ATTEMPTS_PAGE = 10_000
HourKey = tuple[int, str | None, str | None]  # hour, product, platform
# Each status that few units have is found by an index of its own.
LISTS = {
    "pending": "units.list_waiting",
    "in_progress": "units.list_leased",
    "failed": "units.list_stuck",
    "quarantined": "units.list_stuck",
}
WAITING = {"waiting": "no", "retrying": "yes"}  # of those that wait, whether they were tried before


class UnitQueries:
    """Queries of units, without claims."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def unit(self, wal_id: str) -> Unit | None:
        stored = self.stored(wal_id)
        return None if stored is None else stored.unit

    def stored(self, wal_id: str) -> StoredUnit | None:
        """The unit, and what the ledger keeps beside it."""
        return unit_rows.get(self._database.session, wal_id)

    def find(self, start: str, limit: int = 2) -> list[str]:
        """Ids that begin so."""
        found = self._database.session.all("units.find", **rows.beginning(start), row_limit=limit)
        return [str(row[0]) for row in found]

    def history_of(self, wal_id: str) -> list[UnitTransition]:
        stored = self.stored(wal_id)
        return [] if stored is None else unit_history.history(self._database.session, wal_id, stored.trail)

    def attempts(self) -> Iterator[tuple[str, int]]:
        """Every unit with the number of its last attempt, the newest time first."""
        before = "~"  # after every id
        while page := self._database.session.all("units.attempts", before=before, row_limit=ATTEMPTS_PAGE):
            yield from ((str(wal_id), int(attempts)) for wal_id, attempts in page)
            before = page[-1][0]

    def messages_of(self, wal_id: str) -> list[OutboxMessage]:
        """Those that tell of the ends of its attempts, and of others that ended with it, in their order."""
        stored = self.stored(wal_id)
        return [] if stored is None else unit_history.of_trail(self._database.session, stored.trail)

    def contents(self, wal_ids: Sequence[str]) -> dict[str, KnownContent]:
        """What is known of the content of many units."""
        found = self._database.session.all("units.contents", wal_ids=_ENCODE(wal_ids).decode())
        return {row[0]: KnownContent(*row) for row in found}

    def unit_counts(self) -> dict[tuple[str, str], int]:
        """(dataset, status) → units, from counters, not by counting."""
        return {key: amount for key, (amount, _) in self.totals().items()}

    def totals(self) -> dict[tuple[str, str], tuple[int, int | None]]:
        """(dataset, name) → amount and the newest time, from counters."""
        return unit_rows.totals(self._database.session)

    def find_units(self, wanted: UnitFilter) -> list[Unit]:
        """The newest first. Of one dataset by data time, its units without one last; else by the time that
        they cover, which their ids begin with."""
        whole = wanted.start_ms is None and wanted.end_ms is None and not (wanted.product or wanted.platform)
        if (whole or not wanted.dataset) and wanted.standing in WAITING:
            return self._listed("units.list_waiting", wanted, tried=WAITING[wanted.standing])
        if (whole or not wanted.dataset) and not wanted.standing and wanted.status in LISTS:
            return self._listed(LISTS[wanted.status], wanted, tried="")
        if not wanted.dataset:
            return self._listed("units.list", wanted)
        return self._of_dataset(wanted)

    def _listed(self, name: str, wanted: UnitFilter, **more: Any) -> list[Unit]:
        before = wanted.before
        if wanted.end_ms is not None:
            before = min(before, first_id(wanted.end_ms))
        first = "" if wanted.start_ms is None else first_id(wanted.start_ms)
        return self._found(name, wanted, before=before, first=first, **more)

    def _of_dataset(self, wanted: UnitFilter) -> list[Unit]:
        place = self.unit(wanted.before) if wanted.before != AFTER_ALL_IDS else None
        place_ms = None if place is None else data_time_ms(place)
        found: list[Unit] = []
        if place is None or place_ms is not None:
            found = self._found(
                "units.of_product" if wanted.is_of_product else "units.of_dataset",
                wanted,
                before_ms=rows.NEVER if place_ms is None else place_ms,
                start_ms=-rows.NEVER if wanted.start_ms is None else wanted.start_ms,
                end_ms=rows.NEVER if wanted.end_ms is None else wanted.end_ms,
            )
        left = wanted.limit - len(found)
        if left > 0 and not wanted.is_of_product and wanted.start_ms is None and wanted.end_ms is None:
            after = wanted.before if place is not None and place_ms is None else AFTER_ALL_IDS
            found += self._found("units.timeless", wanted, before=after, row_limit=left)
        return found

    def _found(self, name: str, wanted: UnitFilter, **more: Any) -> list[Unit]:
        given = {**msgspec.structs.asdict(wanted), "row_limit": wanted.limit, **more}
        known = {each: given[each] for each in parameters_of(name)}
        found = self._database.session.all(name, **known)
        return [one.unit for one in unit_rows.stored(self._database.session, found)]

    def causes(self, dataset: str = "") -> list[UnitCause]:
        """What was given up or waits for another attempt, by error: the most first."""
        session = self._database.session
        if dataset:
            rows = session.all("units.stuck_causes_of", dataset=dataset)
            rows += session.all("units.retry_causes_of", dataset=dataset)
        else:
            rows = session.all("units.stuck_causes") + session.all("units.retry_causes")
        found = [UnitCause(*row) for row in rows]
        return sorted(found, key=lambda one: (one.heals, -one.count, one.dataset, one.error_code or ""))

    def flow(self, dataset: str, start_ms: int, end_ms: int) -> list[FlowHour]:
        """When the objects of a span of data time were taken in, and when they came to their end."""
        found = self._database.session.all("units.flow", dataset=dataset, start_ms=start_ms, end_ms=end_ms)
        return [FlowHour(*row) for row in found]

    def hours(self, dataset: str, hours: Iterable[int]) -> dict[HourKey, HourCounts]:
        """What became of the objects whose data time is in these hours, by hour, product and platform.
        Found by the index of data times: the cost follows the hours that are asked for."""
        found: dict[HourKey, HourCounts] = {}
        for start_ms, end_ms in _spans(hours):
            for hour_ms, product, platform, *counts in self._database.session.all(
                "units.hours", dataset=dataset, start_ms=start_ms, end_ms=end_ms
            ):
                known: dict[str, Any] = dict(zip(HourCounts.__struct_fields__, counts, strict=True))
                for name, value in known.items():
                    if name != "code" and value is not None:
                        known[name] = int(value)  # PostgreSQL's sums are decimals
                found[int(hour_ms), product, platform] = HourCounts(**known)
        return found

    def oldest_open(self, dataset: str) -> StoredUnit | None:
        """The unit that waits or is worked on and is of the earliest time."""
        found = [
            row[0]
            for name in ("units.oldest_open", "units.oldest_leased")
            if (row := self._database.session.one(name, dataset=dataset)) and row[0] is not None
        ]
        return self.stored(min(found)) if found else None

    # --- the history's pages ---------------------------------------------------------

    def pages_between(self, first: int, last: int, limit: int) -> list[SealedPage]:
        """Pages of the history by their numbers, as they are stored."""
        return governance.pages(self._database.session, (first, last), limit)

    def pages_written(self, after: int = 0, limit: int = 2**62) -> int:
        """How many pages there are above that number; they are counted up to a limit."""
        row = self._database.session.one("unit_pages.count", after_number=after, row_limit=limit)
        assert row is not None
        return int(row[0])

    def states_after(self, wal_id: str, limit: int) -> list[unit_history.UnitState]:
        """Units in the order of their ids, each with what the last page of its history says of it."""
        return unit_history.states(self._database.session, wal_id, limit)

    def versions_of(self, wal_ids: Sequence[str]) -> dict[str, int]:
        found = self._database.session.all("replays.versions", wal_ids=_ENCODE(wal_ids).decode())
        return {row[0]: row[1] for row in found}

    # --- dead messages ---------------------------------------------------------------

    def dead_causes(self) -> list[DeadCause]:
        """Dead messages that are not released, by error and queue: the most first."""
        found = self._database.session.all("dead_messages.causes")
        made = (DeadCause(code, queue, *map(int, counts)) for code, queue, *counts in found)
        return sorted(made, key=lambda one: (-one.count, one.error_code, one.queue))

    def dead_messages(
        self,
        state: str = "held",
        error_code: str = "",
        limit: int = 100,
        *,
        before: tuple[int, str, int] | None = None,
        queue: str = "",
    ) -> list[DeadMessage]:
        """Without their bodies, the newest first; `before` is (last_at_ms, envelope_hash, record_index) of
        the last one of the page before."""
        session = self._database.session
        before_ms, after_hash, after_index = before or (rows.NEVER, "", 0)
        place: dict[str, Any] = {
            "before_ms": before_ms,
            "after_hash": after_hash,
            "after_index": after_index,
            "row_limit": limit,
        }
        if state or queue:
            states = (state,) if state else ("held", "released")
            every = [
                DeadMessage(*row)
                for each in states
                for row in session.all(
                    "dead_messages.in_state", state=each, error_code=error_code, queue=queue, **place
                )
            ]
            every.sort(key=lambda one: (-one.last_at_ms, one.envelope_hash, one.record_index))
            return every[:limit]
        if error_code:
            found = session.all("dead_messages.of_error", error_code=error_code, **place)
        else:
            found = session.all("dead_messages.list", **place)
        return [DeadMessage(*row) for row in found]

    def dead_message(self, envelope_hash: str) -> list[DeadMessage]:
        """Its records, each with its body."""
        found = self._database.session.all("dead_messages.bodies", envelope_hash=envelope_hash)
        ordered = [(*row[:5], *row[6:], row[5]) for row in found]
        return [DeadMessage(*values) for values in ordered]


def _spans(hours: Iterable[int]) -> list[tuple[int, int]]:
    """Hours that follow each other as one span. A statement for each, by bounds that a planner sees: a list
    of hours would make PostgreSQL read the whole table."""
    spans: list[tuple[int, int]] = []
    for hour_ms in sorted(hours):
        if spans and spans[-1][1] == hour_ms:
            spans[-1] = (spans[-1][0], hour_ms + HOUR_MS)
        else:
            spans.append((hour_ms, hour_ms + HOUR_MS))
    return spans


_CLAIMED_OBJECT = ClaimedUnit.__struct_fields__.index("object_uri")
LANES_MAX = 10_000
REAPED_MAX = 10_000
TOGETHER_MAX = 200  # lapsed leases in one transaction: SQLite has one writer


class UnitReader(UnitQueries):
    """Read access to the ledger of units."""

    def now_ms(self) -> int:
        """The ledger's time, which all times of units are in."""
        return self._database.session.now_ms()

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


def _pages_of(
    finish: ResultBatch | None, claim: ClaimRequest | None, fresh: Sequence[IntakeUnit]
) -> list[str]:
    """A new page for what is claimed, one for what is new, and one for what succeeded."""
    pages = (claim is not None) + bool(fresh) + bool(finish is not None and finish.successes)
    return ["unit_pages.next"] * pages


class Units(UnitReader):
    """The ledger of units. Each method is one transaction."""

    def __init__(self, database: Database, watch: IncidentKeeper) -> None:
        super().__init__(database)
        self._watch = watch
        self._known_figures = KnownFigures()
        self._workers: dict[str, str] = {}  # that are durable: a worker's id → how rows name it

    def take_in(self, intake: IntakeBatch) -> IntakeReport:
        return self._database.write(lambda session: unit_intake.take_in(session, intake, self._watch))

    def exchange(
        self, results: ResultBatch | None, claim: ClaimRequest | None, arrivals: Sequence[IntakeUnit] = ()
    ) -> ExchangeReport:
        """Record results, insert new units and claim the next ones, in one transaction.

        New units are claimed at once as far as the claim has room for them.
        """

        named: dict[str, str] = {}

        def change(session: Session) -> tuple[ExchangeReport, Figures]:
            session.expect(*governance.HELD_EPOCH, *_pages_of(results, claim, arrivals))
            now_ms, tally, figures = session.now_ms(), CountChanges(), Figures(self._known_figures)
            if is_outdated(session, results, claim):
                return ExchangeReport(ResultReport(epoch_moved=True), skipped=tuple(arrivals)), figures
            ending = unit_results.UnitResults(
                session, results or ResultBatch(), self._watch, now_ms, tally, figures
            )
            recorded, waited = ending.end() if results is not None else ResultReport(), 0
            # A claim waits for no lock, and new units only for others that are being inserted: so there is no
            # deadlock. Known units would wait for their rows; they are skipped here and taken in later.
            if claim is not None:
                worker = self._workers.get(claim.worker_id) or unit_rows.worker_text(session, claim.worker_id)
                named[claim.worker_id] = worker
                claimed, skipped, waited = claim_units(session, claim, worker, now_ms, tally, arrivals)
            else:
                skipped, claimed = unit_intake.insert_new(session, arrivals, now_ms, tally)
            tally.write(session, figures.lines())
            ending.close()
            created = len(arrivals) - len(skipped)
            return ExchangeReport(recorded, tuple(claimed), waited, created, tuple(skipped)), figures

        exchanged, figures = self._database.write(change)
        self._known_figures.learn(figures)
        self._workers |= named
        return exchanged

    def renew_units(self, claimed: Sequence[ClaimedUnit], lease_ms: int) -> set[str]:
        """Begin their leases anew; which of them are still of this claim. The others are counted as lost."""
        alike: dict[int, list[str]] = {}
        for one in claimed:
            alike.setdefault(one.version, []).append(one.wal_id)

        def change(session: Session) -> set[str]:
            tally, kept = CountChanges(), set[str]()
            lease = {"lease_ms": lease_ms, "until_ms": session.now_ms() + lease_ms}
            if len(alike) > 1:
                unit_rows.hold_all(session, [one.wal_id for one in claimed])
            for version, ids in alike.items():
                landed = session.all("units.renew", wal_ids=_ENCODE(ids).decode(), version=version, **lease)
                kept.update(wal_id for (wal_id,) in landed)
            for one in claimed:
                if one.wal_id not in kept:
                    tally.add(one.dataset, unit_rows.LOST)
            tally.write(session)
            return kept

        return self._database.write(change)

    def reap_units(
        self,
        unit_random: float,
        gone: Collection[str] = (),
        *,
        lineage: bool = True,
        policy_of: Callable[[str], RetryPolicy] | None = None,
    ) -> int:
        """Units whose lease has lapsed, or whose worker is one of those that are gone, fail and are tried
        again; by one process at a time.

        `policy_of`: the retry policy of a dataset's units; None: the shipped one.
        """
        now_ms = self._database.session.now_ms()
        lapsed = sorted(self._lapsed(now_ms, gone))

        def change(session: Session, some: Sequence[str]) -> int:
            if not duties.take(session, "lapsed leases"):
                return 0
            now_ms, tally = session.now_ms(), CountChanges()
            ending = unit_results.UnitResults(
                session, ResultBatch(lineage=lineage), self._watch, now_ms, tally
            )
            count = sum(ending.lapse(wal_id, unit_random, gone, policy_of) for wal_id in some)
            ending.end()
            tally.write(session)
            ending.close()
            return count

        self._make_stranded_due(now_ms)
        batches = [lapsed[at : at + TOGETHER_MAX] for at in range(0, len(lapsed), TOGETHER_MAX)]
        return sum(self._database.write(partial(change, some=some)) for some in batches)

    def _lapsed(self, now_ms: int, gone: Collection[str]) -> set[str]:
        """What is read follows what has lapsed, not what is being worked on."""
        session = self._database.session
        found = {row[0] for row in session.all("units.lapsed", now_ms=now_ms, row_limit=REAPED_MAX)}
        for row_limit in (1, REAPED_MAX):  # by a clock that was ahead: then those are the last to lapse
            ahead = {
                wal_id
                for wal_id, until_ms, claimed_at_ms in session.all("units.last_leased", row_limit=row_limit)
                if not holds_lease(until_ms, claimed_at_ms or 0, now_ms)
            }
            found |= ahead
            if not ahead:
                break
        workers = unit_rows.texts_of(session, gone) if gone else []
        if workers:
            left = session.all("units.leased_by", workers=_ENCODE(workers).decode(), row_limit=REAPED_MAX)
            found |= {row[0] for row in left}
        return found

    def _make_stranded_due(self, now_ms: int) -> None:
        """What is due later than anything may wait was put off by a clock that was ahead: it is due now."""
        latest_ms, session = last_ms(now_ms), self._database.session
        for one in self.lanes():
            lane: dict[str, object] = {"dataset": one.dataset, "provider": one.provider, "alone": one.alone}
            row = session.one("units.last_due", **lane)
            if row is not None and row[0] is not None and row[0] > latest_ms:
                self._database.write(partial(_make_due, lane=lane, latest_ms=latest_ms))

    def quarantine(self, wal_id: str, by: Justification) -> StoredUnit | None:
        """By a person's decision, if it waits or has failed; None if it does not."""

        def change(session: Session) -> StoredUnit | None:
            seen = unit_rows.held(session, wal_id)
            if seen is None or seen.unit.status not in ("pending", "failed"):
                return None
            now_ms, tally = session.now_ms(), CountChanges()
            ending = unit_results.UnitResults(session, ResultBatch(), self._watch, now_ms, tally)
            made = ending.quarantine(seen, by)
            tally.write(session)
            ending.close()
            return made

        return self._database.write(change)

    def release_dead(self, envelope_hash: str, entry: GovernanceEntry) -> int:
        """Release a dead message; how many records it has."""

        def change(session: Session) -> int:
            released = session.all("dead_messages.release", envelope_hash=envelope_hash)
            governance.append(session, [entry] if released else [])
            return len(released)

        return self._database.write(change)

    def bring_in(self, units: Sequence[Unit], actor: str, rationale: str) -> int:
        """As they are, those that are not known yet, in one transaction; how many."""
        from kfm.db import unit_intake  # late: once in a ledger's life

        return self._database.write(lambda session: unit_intake.bring_in(session, units, actor, rationale))

    def fold_counts(self, limit: int = 10_000) -> int:
        """Add deltas up, unless another process does; how many there were."""
        return self._database.write(lambda session: unit_rows.fold(session, limit))


def _make_due(session: Session, lane: dict[str, object], latest_ms: int) -> int:
    return len(session.all("units.make_due", latest_ms=latest_ms, **lane))


def claim_units(
    session: Session,
    claim: ClaimRequest,
    worker: str,
    now_ms: int,
    tally: CountChanges,
    fresh: Sequence[IntakeUnit] = (),
) -> tuple[list[ClaimedUnit], list[IntakeUnit], int]:
    """What waits comes first; new units, which are taken in here, have the room that is left.

    Those that are not new come back; and how many had waited.
    """
    lane = claim.lane
    created = unit_history.begin(session) if fresh else 0  # before the other, as it is in their histories
    number = unit_history.begin(session)
    limit = 1 if lane.alone else claim.limit
    # No unit is due there before the first, so none is looked for: that saves a round trip to a server.
    found = _waiting(session, claim, worker, limit, now_ms, number) if lane.due_ms <= now_ms else []
    afar = {row[0]: row[-1] for row in found if not row[_CLAIMED_OBJECT]}
    objects = fact_pages.objects(session, afar)
    claimed = [_claimed(row, objects) for row in found]
    waited = len(claimed)
    claimable = ClaimableUnits(claim, worker, limit - waited, created, number)
    known, ours = insert_new(session, fresh, now_ms, tally, claimable)
    claimed += ours
    if claimed:
        members = [(one.wal_id, one.version, one.attempts) for one in claimed]
        unit_history.write(
            session, number, "claimed", "in_progress", members, at_ms=now_ms, worker_id=claim.worker_id
        )
        tally.moved(lane.dataset, "pending", "in_progress", len(claimed))
    return claimed, known, waited


def _claimed(row: Row, objects: Mapping[str, str]) -> ClaimedUnit:
    before, after = row[:_CLAIMED_OBJECT], row[_CLAIMED_OBJECT + 1 : -1]
    return ClaimedUnit(*(*before, row[_CLAIMED_OBJECT] or objects[row[0]], *after))


def _waiting(
    session: Session, claim: ClaimRequest, worker: str, limit: int, now_ms: int, number: int
) -> list[Row]:
    lane = claim.lane
    return session.all(
        "units.claim",
        dataset=lane.dataset,
        provider=lane.provider,
        alone=lane.alone,
        worker_id=worker,
        ingest_run_id=unit_rows.run_text(claim),
        now_ms=now_ms,
        lease_until_ms=now_ms + claim.lease_ms,
        row_limit=limit,
        trail=f" {number}",
        first_part=first_part(number),
    )


def first_part(number: int) -> int:
    """The sixteenth of a lane at which the claim with this page begins. Pages are numbered for the whole
    fleet, so claims that follow each other begin apart, however many numbers are between them."""
    return number * 0x9E3779B1 % 2**32 >> 28


def is_outdated(session: Session, finish: ResultBatch | None, claim: ClaimRequest | None) -> bool:
    """Have the gates to be asked again, since a switch was set meanwhile?"""
    asked = {one.policy_epoch for one in (finish, claim) if one is not None} - {None}
    return bool(asked) and asked != {governance.held_epoch(session, is_expected=True)}
