"""Announced feeds: how far each has come, what of it waits, what became of each hour, and what failed why."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kfm.model.completeness import DatasetHealth, WindowState, WindowVerdict
from kfm.model.feeds import HOUR_MS, NO_OBJECTS, HourCounts, together
from kfm.model.incidents import Incident
from kfm.model.quantities import instant
from kfm.model.records import UNIT_STATUSES, Record
from kfm.model.units import DeadCause, FlowHour, UnitCause
from kfm.reports.coverage import health_document

if TYPE_CHECKING:
    from kfm.datasets.completeness import CompletenessReader, DatasetCoverage
    from kfm.db.ledger_reader import LedgerReader
    from kfm.db.units import HourKey, UnitReader
    from kfm.model.settings import Ingest

LATELY_HOURS = 24
INCIDENTS_MAX = 500
GAPS = ("overdue", "missing")
_NOT_EXPECTED = ("dismissed", "withdrawn")
Totals = Mapping[tuple[str, str], tuple[int, int | None]]


# --- how far each has come -------------------------------------------------------------


def watermark_documents(reader: UnitReader, now_ms: int, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """How far each dataset has come, of these or of all."""
    totals = reader.totals()
    known = sorted({dataset for dataset, _ in totals if dataset})
    return [_watermark(reader, totals, dataset, now_ms) for dataset in known if not names or dataset in names]


def _watermark(reader: UnitReader, totals: Totals, dataset: str, now_ms: int) -> dict[str, Any]:
    amounts = {name: totals.get((dataset, name), (0, None))[0] for name in UNIT_STATUSES}
    newest_ms = totals.get((dataset, "watermark"), (0, None))[1]
    waiting = amounts["pending"] + amounts["in_progress"]
    oldest = reader.oldest_open(dataset) if waiting else None
    return {
        "dataset": dataset,
        "newest": instant(newest_ms),
        "lag_ms": None if newest_ms is None else max(0, now_ms - newest_ms),
        "open": waiting,
        "given_up": amounts["failed"] + amounts["quarantined"],
        "oldest_open": None if oldest is None else _open(oldest),
    }


def _open(stored: Any) -> dict[str, Any]:
    unit = stored.unit
    times = (unit.time_range_start_ms, unit.event_time_ms, unit.created_at_ms)
    at_ms = next(at_ms for at_ms in times if at_ms is not None)
    return {"wal_id": unit.wal_id, "at": instant(at_ms), "since": instant(unit.created_at_ms)}


class FlowSum(Record, frozen=True):
    """One hour of work: objects that were taken in, that came to their end, and that were open at its end."""

    hour_ms: int
    taken_in: int
    ended: int
    open: int


def flow_sums(flow: Iterable[FlowHour], first_ms: int, last_ms: int) -> list[FlowSum]:
    """Hour by hour, the objects of the flow. What came before the first hour is open in it."""
    listed = list(flow)
    found, open_now = [], 0
    open_now += sum(one.count for one in listed if one.taken_in_ms < first_ms)
    open_now -= sum(one.count for one in listed if one.ended_ms is not None and one.ended_ms < first_ms)
    for hour_ms in range(first_ms, last_ms + 1, HOUR_MS):
        taken_in = sum(one.count for one in listed if one.taken_in_ms == hour_ms)
        ended = sum(one.count for one in listed if one.ended_ms == hour_ms)
        open_now += taken_in - ended
        found.append(FlowSum(hour_ms=hour_ms, taken_in=taken_in, ended=ended, open=open_now))
    return found


class FeedStanding(Record, frozen=True):
    """How one announced dataset is now."""

    dataset: str
    health: DatasetHealth | None  # None: nothing is expected of it by the configuration
    counts: Mapping[str, int]  # by the status of its units
    retrying: int  # of those that wait, what was tried before
    newest_ms: int | None  # data time of the newest object of the last day
    covered_ms: int | None  # the newest time that the catalogue covers: its watermark
    lag_ms: int | None
    expected: int | None  # objects of the last day that are due by now
    arrived: int | None  # how many of those are there
    objects: int  # of the last day, whether expected or not
    flow: tuple[FlowSum, ...]  # of the last day

    @property
    def waiting(self) -> int:
        return self.counts.get("pending", 0) - self.retrying

    @property
    def running(self) -> int:
        return self.counts.get("in_progress", 0)

    @property
    def backlog(self) -> int:
        return self.counts.get("pending", 0) + self.running

    @property
    def gaps(self) -> int | None:
        """Hours of any age that are past their time and not there."""
        return None if self.health is None else sum(self.health.counts.get(one, 0) for one in GAPS)

    @property
    def per_hour(self) -> float:
        """Objects that came to their end in an hour, the mean of the last day."""
        return sum(one.ended for one in self.flow) / max(len(self.flow), 1)

    @property
    def trend(self) -> int:
        """How many more objects are open than six hours ago."""
        return self.flow[-1].open - self.flow[-min(7, len(self.flow))].open if self.flow else 0


def feeds_known(completeness: CompletenessReader, totals: Totals) -> list[str]:
    """The datasets that are looked at as feeds, and all others of which an object was announced."""
    return sorted({*completeness.feeds(), *(dataset for dataset, _ in totals if dataset)})


def feed_standings(
    completeness: CompletenessReader,
    ledger: LedgerReader,
    names: Iterable[str],
    now_ms: int,
    causes: Iterable[UnitCause],
) -> list[FeedStanding]:
    """`causes`: of these feeds, at least those that wait for a retry."""
    reader = ledger.unit_reader()
    totals = reader.totals()
    retried: dict[str, int] = {}
    for one in causes:
        if one.heals:
            retried[one.dataset] = retried.get(one.dataset, 0) + one.count
    return [_standing(completeness, reader, name, totals, retried.get(name, 0), now_ms) for name in names]


def feed_standing(
    completeness: CompletenessReader, ledger: LedgerReader, name: str, now_ms: int
) -> FeedStanding:
    causes = ledger.unit_reader().causes(name)
    (found,) = feed_standings(completeness, ledger, [name], now_ms, causes)
    return found


def _standing(
    completeness: CompletenessReader,
    reader: UnitReader,
    name: str,
    totals: Totals,
    retrying: int,
    now_ms: int,
) -> FeedStanding:
    last_ms = now_ms // HOUR_MS * HOUR_MS
    first_ms = last_ms - (LATELY_HOURS - 1) * HOUR_MS
    hours = reader.hours(name, range(first_ms, last_ms + 1, HOUR_MS))
    lately = together(hours.values())
    coverage = completeness.coverage(name, first_ms, now_ms) if name in completeness.feeds() else None
    covered_ms = totals.get((name, "watermark"), (0, None))[1]
    behind_ms = lately.newest_ms if lately.newest_ms is not None else covered_ms
    expected = arrived = None
    if coverage is not None and any(one.is_expected for one in coverage.products):
        due = [one for one in coverage.windows if first_ms <= one.start_ms and _is_due(one, now_ms)]
        expected = sum(one.objects_min or 0 for one in due)
        arrived = sum(min(one.objects or 0, one.objects_min or 0) for one in due)
    return FeedStanding(
        dataset=name,
        health=None if coverage is None else coverage.health,
        counts={status: totals.get((name, status), (0, None))[0] for status in UNIT_STATUSES},
        retrying=retrying,
        newest_ms=lately.newest_ms,
        covered_ms=covered_ms,
        lag_ms=None if behind_ms is None else max(now_ms - behind_ms, 0),
        expected=expected,
        arrived=arrived,
        objects=lately.there,
        flow=tuple(flow_sums(reader.flow(name, first_ms, last_ms + HOUR_MS), first_ms, last_ms)),
    )


def _is_due(one: WindowVerdict, now_ms: int) -> bool:
    return one.due_ms <= now_ms and one.state not in _NOT_EXPECTED


def standing_document(one: FeedStanding, watermark: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "dataset": one.dataset,
        "is_expected": one.expected is not None,
        "health": None if one.health is None else health_document(one.health),
        "newest": instant(one.newest_ms),
        "lag_ms": one.lag_ms,
        "watermark": watermark,
        "expected": one.expected,
        "arrived": one.arrived,
        "gaps": one.gaps,
        "backlog": {
            "waiting": one.waiting,
            "running": one.running,
            "retrying": one.retrying,
            "more_than_six_hours_ago": one.trend,
        },
        "per_hour": round(one.per_hour, 3),
        "units": dict(one.counts),
    }


# --- product by hour -------------------------------------------------------------------


class FeedCell(Record, frozen=True):
    """One hour of one product."""

    source_id: str
    product: str
    platform: str | None
    start_ms: int
    state: WindowState
    counts: HourCounts
    expected: int | None  # None: nothing was expected of it
    verdict: WindowVerdict | None = None

    @property
    def end_ms(self) -> int:
        return self.start_ms + HOUR_MS

    @property
    def objects(self) -> int:
        """All that are known of, in whatever state."""
        one = self.counts
        return one.there + one.running + one.waiting + one.retrying + one.failed + one.quarantined


class FeedHours(Record, frozen=True):
    """What became of a span of hours, by product."""

    coverage: DatasetCoverage
    cells: tuple[FeedCell, ...]  # by hour and product; only where something is expected or known
    delays: Mapping[int, int]  # hour → from data time to intake, the mean of what was announced


def feed_hours(
    completeness: CompletenessReader, reader: UnitReader, name: str, start_ms: int, end_ms: int
) -> FeedHours:
    """Of the hours that begin in a span; those that are expected, and those of which an object is known."""
    first_ms = -(-start_ms // HOUR_MS) * HOUR_MS
    coverage = completeness.coverage(name, first_ms, end_ms)
    known = reader.hours(name, range(first_ms, end_ms, HOUR_MS))
    cells = sorted(
        _cells(completeness, coverage, known, name, first_ms, end_ms),
        key=lambda one: (one.start_ms, one.source_id),
    )
    return FeedHours(coverage=coverage, cells=tuple(cells), delays=_delays(known))


def _cells(
    completeness: CompletenessReader,
    coverage: DatasetCoverage,
    known: Mapping[HourKey, HourCounts],
    name: str,
    first_ms: int,
    end_ms: int,
) -> Iterator[FeedCell]:
    rows = {one.id: one for one in completeness.products(name)}
    by_row: dict[tuple[str, int], list[HourCounts]] = {}
    for (hour_ms, product, platform), counts in known.items():
        mine = [
            one.id for one in rows.values() if one.product == product and one.platform in (None, platform)
        ]
        for row_id in mine:
            by_row.setdefault((row_id, hour_ms), []).append(counts)
        if not mine:
            yield _unexpected(name, product, platform, hour_ms, counts)
    for one in coverage.windows:
        row = rows.get(one.source_id)
        if row is None or not first_ms <= one.start_ms < end_ms:
            continue
        counts = together(by_row.pop((row.id, one.start_ms), [NO_OBJECTS]))
        yield FeedCell(
            source_id=row.id,
            product=row.product,
            platform=row.platform,
            start_ms=one.start_ms,
            state=one.state,
            counts=counts,
            expected=one.objects_min,
            verdict=one,
        )
    for (row_id, hour_ms), found in by_row.items():  # hours of which nothing was expected
        yield _unexpected(name, rows[row_id].product, rows[row_id].platform, hour_ms, together(found))


def _unexpected(
    name: str, product: str | None, platform: str | None, hour_ms: int, counts: HourCounts
) -> FeedCell:
    states: tuple[tuple[int, WindowState], ...] = (
        (counts.failed, "failed"),
        (counts.quarantined, "quarantined"),
        (counts.running, "running"),
        (counts.waiting + counts.retrying, "waiting"),
    )
    return FeedCell(
        source_id=" ".join(part for part in (name, product, platform) if part),
        product=product or "",
        platform=platform,
        start_ms=hour_ms,
        state=next((state for count, state in states if count), "published"),
        counts=counts,
        expected=None,
    )


def _delays(known: Mapping[HourKey, HourCounts]) -> dict[int, int]:
    by_hour: dict[int, list[HourCounts]] = {}
    for (hour_ms, _, _), counts in known.items():
        by_hour.setdefault(hour_ms, []).append(counts)
    sums = {hour_ms: together(found) for hour_ms, found in by_hour.items()}
    return {
        hour_ms: max(round(one.delay_ms / one.announced), 0) for hour_ms, one in sums.items() if one.announced
    }


def gap_verdicts(coverage: DatasetCoverage) -> list[WindowVerdict]:
    """Hours of any age that are past their time and not there, the newest first."""
    found = [one for one in coverage.windows if one.state in GAPS]
    return sorted(found, key=lambda one: (one.start_ms, one.source_id), reverse=True)


def cell_document(one: FeedCell) -> dict[str, Any]:
    counts = one.counts
    return {
        "source_id": one.source_id,
        "product": one.product,
        "platform": one.platform,
        "start": instant(one.start_ms),
        "end": instant(one.end_ms),
        "state": one.state,
        "expected": one.expected,
        "arrived": counts.there,
        "running": counts.running,
        "waiting": counts.waiting,
        "retrying": counts.retrying,
        "failed": counts.failed,
        "quarantined": counts.quarantined,
        "newest": instant(counts.newest_ms),
        "error_code": counts.code,
    }


def flow_document(one: FlowSum, delays: Mapping[int, int]) -> dict[str, Any]:
    return {
        "hour_start": instant(one.hour_ms),
        "taken_in": one.taken_in,
        "ended": one.ended,
        "open": one.open,
        "latency_ms": delays.get(one.hour_ms),
    }


# --- failures by cause -----------------------------------------------------------------


class FeedFailure(Record, frozen=True):
    """Units of a feed that one error holds up."""

    cause: UnitCause
    then: str  # what becomes of them
    command: str  # empty: nothing is to be done
    incident_id: str | None = None


def feed_failures(
    causes: Iterable[UnitCause], incidents: Iterable[Incident], ingest: Ingest
) -> list[FeedFailure]:
    """By cause: first what comes back by no attempt of its own, the most first."""
    known = {
        (one.name, one.error_code): one.incident_id
        for one in incidents
        if one.about == "dataset" and one.state == "open"
    }
    return [
        FeedFailure(
            cause=one,
            then=_then(one, ingest),
            command=failure_command(one, ingest),
            incident_id=None if one.heals else known.get((one.dataset, one.error_code or "")),
        )
        for one in causes
    ]


def comes_back(dataset: str, standing: str, error_code: str | None, ingest: Ingest) -> bool:
    """May a replay bring it back? What is in quarantine only where the policy of its dataset says so."""
    return standing != "quarantined" or ingest.policy_of(dataset).may_end_quarantine(error_code)


def _then(one: UnitCause, ingest: Ingest) -> str:
    if one.heals:
        return "tried again by itself"
    if not comes_back(one.dataset, one.standing, one.error_code, ingest):
        return (
            f"stays until new bytes are announced, or a policy of {one.dataset} names {one.error_code} under "
            "replay_quarantined"
        )
    if one.standing == "quarantined":
        return "comes back by a repair, which a second person approves"
    return "its attempts are spent: comes back by a replay"


def failure_command(one: UnitCause, ingest: Ingest) -> str:
    if one.heals or one.error_code is None:
        return ""
    if not comes_back(one.dataset, one.standing, one.error_code, ingest):
        return ""
    mode = "failed-only" if one.standing == "failed" else "repair-and-replace"
    chosen = f"--dataset {shlex.quote(one.dataset)} --error-code {shlex.quote(one.error_code)}"
    return f"kfm replay run {chosen} --mode {mode} --reason incident --rationale TEXT"


def failure_document(one: FeedFailure, message: str | None) -> dict[str, Any]:
    """`message`: of one of the units, as far as the caller may see it."""
    cause = one.cause
    return {
        "dataset": cause.dataset,
        "error_code": cause.error_code,
        "state": cause.standing,
        "count": cause.count,
        "since": instant(cause.first_ms),
        "last_at": instant(cause.last_ms),
        "heals": cause.heals,
        "next_attempt": instant(cause.due_ms) if cause.due_ms else None,
        "then": one.then,
        "message": message,
        "example": cause.example,
        "incident_id": one.incident_id,
        "command": one.command or None,
    }


def dead_cause_document(one: DeadCause) -> dict[str, Any]:
    return {
        "error_code": one.error_code,
        "queue": one.queue,
        "count": one.count,
        "times": one.times,
        "first_at": instant(one.first_ms),
        "last_at": instant(one.last_ms),
    }
