"""The unit worker: claims units, inspects objects, records results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from kfm.calls.guard import classify_call
from kfm.model.catalogue import CatalogueEntry
from kfm.model.errors import CircuitOpen, ConfigError, ExtraMissing, KfmError
from kfm.model.records import GateResult, Record
from kfm.model.redaction import Discretion
from kfm.model.retry import Classification, Failure, RetryPolicy, classify
from kfm.model.retry_budgets import fate_of
from kfm.model.settings import Ingest
from kfm.model.units import (
    UNKNOWN,
    ClaimedUnit,
    ClaimRequest,
    ExchangeReport,
    IntakeBatch,
    IntakeReport,
    IntakeUnit,
    Lane,
    ResultBatch,
    UnitFailure,
    UnitSuccess,
)
from kfm.nodd.catalogue.item_facts import entry
from kfm.nodd.dataset_registry import Registry
from kfm.nodd.grammar import Reading
from kfm.nodd.inspect.inspection import InspectionResult, Inspector
from kfm.nodd.inspect.verdicts import FAILED, NOTHING_ASKED, Levels
from kfm.nodd.intake import KeyCache
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.open_batch import OpenBatch, log_lost
from kfm.nodd.unit_observer import UnitObserver
from kfm.ports import Clock, Rng

if TYPE_CHECKING:
    from kfm.db.units import Units

EPOCHS_MAX = 100  # how often switches may move while results are recorded; the leases lapse after that
LANES_FRESH_MS = 1_000  # how long a list of lanes is used before it is read again
SWITCHED_OFF = "SWITCHED_OFF"
NOT_BEGUN = "NOT_BEGUN"
NOT_BEGUN_TEXT = "Its batch took longer than half of its lease, or its worker was stopped."
NO_INTAKE = IntakeBatch()
NEVER_MS = 1 << 62  # when a lane is due in which nothing waits
MESSAGE_CHARS_MAX = 1_000
UNABLE_MS = 60_000  # another worker may be able to
PROVENANCE_PARTIAL = "PROVENANCE_PARTIAL"
MISSING = "OBJECT_MISSING"
_UNREADABLE = Classification(retryable=False, error_class="schema")
_PUT_BACK_CLASSES = {CircuitOpen.code: "circuit-open", NOT_BEGUN: "lease"}
_key = attrgetter("dataset", "provider", "alone")  # of a lane


@dataclass(frozen=True)
class IngestContext:
    """Dependencies of pollers and the worker."""

    settings: Ingest
    wal: Units
    registry: Registry
    clock: Clock
    rng: Rng
    worker_id: str
    ingest_run_id: str
    keys: KeyCache
    # May a dataset's units be worked on; asked again when the policy epoch moves. (dataset, in flight)
    gate: Callable[[str, bool], GateResult]
    policy_epoch: Callable[[], int]
    inspect: Inspector | None = None  # None: nothing can be read upstream, so announcements are trusted
    circuit_open_until: Callable[[str], int | None] = lambda _provider: None
    retry_policy: Callable[[str], RetryPolicy | None] = lambda _dataset: None  # None: the shipped one
    redact: Discretion = field(default_factory=Discretion)
    downstream: tuple[tuple[str, str], ...] = ()  # (dataset, source)
    replicas: tuple[str, ...] = ()
    lineage: bool = True  # are events exported
    observer: UnitObserver | None = None
    introduce: Callable[[], None] = lambda: None  # puts on record what this worker is; asked before it works
    # Applies a function to units as they are handed out, in threads if they wait for upstream (the last
    # argument). None among the results: nothing has ended for a while.
    map_units: Callable[
        [Callable[[ClaimedUnit], UnitSuccess | UnitFailure], Iterable[ClaimedUnit], bool],
        Iterable[UnitSuccess | UnitFailure | None],
    ] = lambda process, units, _wait: map(process, units)
    stopping: Callable[[], bool] = lambda: False  # objects are not begun to be read any more


class StepReport(Record, frozen=True):
    """What one step of a worker did."""

    succeeded: int = 0
    failed: int = 0
    put_back: int = 0  # untried, at no cost to them
    lost: int = 0
    claimed: int = 0  # and not worked on yet
    intake: IntakeReport = IntakeReport()


class LedgerTime:
    """The ledger's time, which all times of units are in: read now and then, and carried on from there by a
    clock that nothing sets. So units are worked on in several threads without asking the ledger, and a worker
    whose own clock is wrong is as right as others."""

    def __init__(self, clock: Clock, ledger_now_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._ledger_now_ms = ledger_now_ms
        self._ahead_ms: int | None = None

    def read(self) -> int:
        """Ask the ledger. For the thread that its connection belongs to."""
        now_ms = self._ledger_now_ms()
        self._ahead_ms = now_ms - self._clock.monotonic_ms()
        return now_ms

    def now_ms(self) -> int:
        return self.read() if self._ahead_ms is None else self._clock.monotonic_ms() + self._ahead_ms


class Worker:
    """Claims units lane by lane, inspects their objects and records the results."""

    def __init__(self, context: IngestContext) -> None:
        self._context = context
        self._lanes: list[Lane] = []
        self._lanes_read_ms: int | None = None
        self._claimed: list[ClaimedUnit] = []
        self._claimed_ms = 0  # when the claim was asked for, on the clock that nothing sets
        self._open: OpenBatch | None = None  # claimed, and being read
        self._open_epoch = 0  # that the gates were asked at
        self._lost = 0  # units that renewals found to be others'
        self._unrecorded: ResultBatch | None = None  # worked on, and not known to be recorded
        self._ledger = LedgerTime(context.clock, context.wal.now_ms)
        self._epoch = 0
        self._introduced = False
        self._gates: dict[tuple[str, bool], GateResult] = {}
        self._levels: dict[str, Levels] = {}
        self.blocked: dict[str, str] = {}  # dataset → why nothing of it is claimed

    @property
    def reads_objects(self) -> bool:
        """The claimed units need requests upstream, which take time: intake should be durable before them."""
        return bool(self._claimed) and self._levels_of(self._claimed[0].dataset) is not NOTHING_ASKED

    @property
    def is_busy(self) -> bool:
        """It holds units."""
        return bool(self._claimed) or self._unrecorded is not None

    @property
    def may_wait(self) -> bool:
        """Units are claimed and nothing else is due: their results share the next intake's transaction."""
        return bool(self._claimed) and all(lane.due_ms == NEVER_MS for lane in self._lanes)

    def step(self, intake: IntakeBatch = NO_INTAKE, *, claim: bool = True, ahead: bool = True) -> StepReport:
        """Process the claimed units and claim the next ones. An empty report: nothing is due.

        The intake is durable when this returns; new units may be claimed already, and wait for the next
        step. Without `ahead` nothing is claimed for the next step.
        """
        context = self._context
        if self._unrecorded is None and not self._claimed:
            exchanged = (
                self._claim(None, intake.arrivals) if claim else ExchangeReport(skipped=intake.arrivals)
            )
            self._claimed = list(exchanged.claimed)
            if not self._claimed or intake is not NO_INTAKE:
                return StepReport(claimed=len(self._claimed), intake=self._take_in_rest(intake, exchanged))
        began_ms = context.clock.monotonic_ms()
        results = self._unrecorded
        if results is None:
            # Kept until it is recorded: the ledger may be unavailable. Fences make it safe to repeat.
            results = self._unrecorded = self._process_claimed()
        if claim and ahead and not self._claimed:
            exchanged = self._claim(results, intake.arrivals)
        else:
            exchanged = self._exchange(results, None, intake.arrivals)
        recorded = exchanged.results
        self._claimed += exchanged.claimed
        for _ in range(EPOCHS_MAX):
            if not recorded.epoch_moved:
                break
            results = self._unrecorded = self._apply_gates(results)
            recorded = context.wal.exchange(results, None).results
        self._unrecorded = None
        lasted_ms = context.clock.monotonic_ms() - began_ms
        if recorded.lost:
            log_lost(list(recorded.lost), _dataset_of(results), lasted_ms)
        if context.observer is not None:
            context.observer.batch_ended(results, recorded, lasted_ms)
        untried = {one.claimed.wal_id for one in results.failures if not one.charged}
        put_back = len(untried.intersection(recorded.failed))
        return StepReport(
            succeeded=len(recorded.succeeded),
            failed=len(recorded.failed) - put_back,
            put_back=put_back,
            lost=len(recorded.lost) + self._take_lost(),
            claimed=len(self._claimed),
            intake=self._take_in_rest(intake, exchanged),
        )

    def drain(self) -> StepReport:
        """Process the claimed units and claim nothing more. It is busy still if some are being read."""
        return self.step(claim=False)

    def _take_in_rest(self, intake: IntakeBatch, exchanged: ExchangeReport) -> IntakeReport:
        """Take in what the exchange did not: known units, removals and refused records."""
        created = exchanged.created
        if not exchanged.skipped and not intake.removals and not intake.rejected:
            return IntakeReport(created=created)
        report = self._context.wal.take_in(replace(intake, arrivals=exchanged.skipped))
        return replace(report, created=report.created + created)

    def _process_claimed(self) -> ResultBatch:
        """The results of the claimed units; of a batch that is cut those that there are, and its other units
        untried. What is being read then stays claimed."""
        context = self._context
        if not self._introduced:
            context.introduce()
            self._introduced = True
        if self._open is None and not self._asks_upstream(self._claimed):
            ended = [one for one in context.map_units(self._process, self._claimed, False) if one is not None]
            self._claimed = []
            return self._batch(ended, self._epoch)
        if self._open is None:
            self._open = OpenBatch(context, self._process, self._claimed, self._claimed_ms)
            self._open_epoch = self._epoch
        batch = self._open
        ended = batch.ended()
        ended += [self._put_back(one, NOT_BEGUN, NOT_BEGUN_TEXT, None) for one in batch.not_begun()]
        self._claimed = batch.begun()
        self._lost += batch.take_lost()
        if not self._claimed:
            self._open = None
        return self._batch(ended, self._open_epoch)

    def _asks_upstream(self, claimed: Sequence[ClaimedUnit]) -> bool:
        """Does some unit of a batch, which is of one dataset, wait for requests upstream?"""
        dataset = claimed[0].dataset
        if self._context.inspect is None:
            return False
        if self._levels_of(dataset) is not NOTHING_ASKED:
            return True
        is_wanted = self._context.settings.policy_of(dataset).provenance == "ok"
        return is_wanted or any(one.unclear for one in claimed)

    def _take_lost(self) -> int:
        lost, self._lost = self._lost, 0
        return lost

    # --- claiming --------------------------------------------------------------------

    def _exchange(
        self, results: ResultBatch | None, request: ClaimRequest | None, arrivals: Sequence[IntakeUnit] = ()
    ) -> ExchangeReport:
        if results is None and request is None and not arrivals:
            return ExchangeReport()
        return self._context.wal.exchange(results, request, arrivals)

    def _claim(self, results: ResultBatch | None, arrivals: Sequence[IntakeUnit] = ()) -> ExchangeReport:
        lane = self._next_lane(arrivals)
        if lane is None:
            return self._exchange(results, None, arrivals)
        context = self._context
        request = ClaimRequest(
            lane=lane,
            limit=context.settings.batch,
            worker_id=context.worker_id,
            ingest_run_id=context.ingest_run_id,
            lease_ms=context.settings.lease_ms,
            policy_epoch=self._epoch,
        )
        self._claimed_ms = context.clock.monotonic_ms()
        exchanged = self._exchange(results, request, arrivals)
        if exchanged.results.epoch_moved:  # the gates' answers for the other lanes are outdated, too
            self._lanes.clear()
            return exchanged
        # A full batch: there may be more. Then the next lane has its turn first.
        if len(exchanged.claimed) == (1 if lane.alone else request.limit):
            self._lanes.append(lane if exchanged.waited else replace(lane, due_ms=NEVER_MS))
        elif not exchanged.claimed and not self._lanes:
            self._lanes_read_ms = None
        return exchanged

    def _next_lane(self, arrivals: Sequence[IntakeUnit]) -> Lane | None:
        """A lane with units that are due; otherwise one that units are arriving in."""
        context = self._context
        now_ms = context.clock.monotonic_ms()
        read_ms = self._lanes_read_ms
        if read_ms is None or not self._lanes or now_ms - read_ms >= LANES_FRESH_MS:
            self._read_lanes()
            self._lanes_read_ms = now_ms
        if self._lanes:
            return self._lanes.pop(0)
        now_ms = self._ledger.now_ms()
        arriving = dict.fromkeys((one.unit.dataset, one.unit.provider) for one in arrivals)
        lanes = (Lane(*lane, due_ms=NEVER_MS) for lane in arriving)
        return next((lane for lane in lanes if self._blocked_by(lane, now_ms) is None), None)

    def _read_lanes(self) -> None:
        """Find the lanes with units that are due and may be worked on now."""
        context = self._context
        self._epoch = context.policy_epoch()
        self._gates.clear()
        now_ms, lanes = self._ledger.read(), context.wal.lanes()
        blocked: dict[str, str] = {}
        ready = []
        for lane in (one for one in lanes if one.due_ms <= now_ms):
            reason = self._blocked_by(lane, now_ms)
            if reason is None:
                ready.append(lane)
            else:
                blocked[lane.dataset] = reason
        known, open_now = set(map(_key, self._lanes)), set(map(_key, ready))
        order = [lane for lane in self._lanes if _key(lane) in open_now]
        self._lanes = order + [lane for lane in ready if _key(lane) not in known]
        self.blocked = blocked

    def _blocked_by(self, lane: Lane, now_ms: int) -> str | None:
        """Why nothing of a lane may be claimed; None if it may."""
        gate = self._gate(lane.dataset, in_flight=False)
        if not gate.allowed:
            return gate.reason
        if self._levels_of(lane.dataset) is NOTHING_ASKED:
            return None
        until_ms = self._context.circuit_open_until(lane.provider)
        return f"The circuit of {lane.provider} is open." if until_ms and until_ms > now_ms else None

    def _gate(self, dataset: str, *, in_flight: bool) -> GateResult:
        key = (dataset, in_flight)
        if key not in self._gates:
            self._gates[key] = self._context.gate(dataset, in_flight)
        return self._gates[key]

    # --- one unit --------------------------------------------------------------------

    def _process(self, claimed: ClaimedUnit) -> UnitSuccess | UnitFailure:
        context = self._context
        try:
            reading = self._reading(claimed)
            policy = context.settings.policy_of(claimed.dataset)
            if claimed.removed and (policy.removal == "remove" or claimed.content == UNKNOWN):
                return UnitSuccess(claimed, "unknown", "unknown", "ok", None)
            levels, proven = self._levels_of(claimed.dataset), claimed.is_identified
            wanted = not proven and policy.provenance == "ok"  # then a HEAD has to name the bytes
            if (claimed.unclear or wanted) and levels.integrity == "announced":
                levels = replace(levels, integrity="head")
            dataset = context.registry.find(claimed.dataset)
            if levels is NOTHING_ASKED or context.inspect is None:
                if wanted:
                    return self._unproven(claimed)
                return UnitSuccess(
                    claimed,
                    "unknown",
                    "suspect" if reading.suspect else "ok",
                    "ok" if proven else "partial",
                    dated(entry(reading, claimed.content, claimed.content_version, None, dataset), claimed),
                )
            found = context.inspect(reading, claimed.content, levels, declared(claimed.extra))
            if found.error_code == MISSING and claimed.unclear:
                gone = self._gone(claimed, reading, removes=policy.removal == "remove")
                if gone is not None:
                    return gone
            if found.error_code is not None:
                return self._failed(
                    claimed,
                    classify(Failure(code=found.error_code)),
                    found.error_code,
                    found.error_message or "",
                    integrity_status=found.integrity_status,
                    metadata_status=found.metadata_status,
                )
            content = found.content or claimed.content
            proven = any((content.etag, content.version_id, found.checksum))
            if wanted and not proven:
                return self._unproven(claimed)
            return UnitSuccess(
                claimed,
                found.integrity_status,
                found.metadata_status,
                "ok" if proven else "partial",
                dated(entry(reading, content, claimed.content_version, found, dataset), claimed),
                joined(claimed.extra, found),
                found.content,
                None if found.checksum is None else found.checksum.removeprefix("sha256:"),
            )
        except RecordRefusal as refusal:
            return self._failed(claimed, _UNREADABLE, refusal.code, refusal.text)
        except (
            CircuitOpen,
            ConfigError,
            ExtraMissing,
        ) as error:  # of this worker, not of the unit: nothing was inspected
            later_ms = self._ledger.now_ms() + error.facts.get("wait_ms", UNABLE_MS)
            return self._put_back(claimed, error.code, str(error), later_ms)
        except Exception as error:  # noqa: BLE001 - a failure of one unit must not fail the batch
            code = error.code if isinstance(error, KfmError) else type(error).__name__
            return self._failed(claimed, classify_call(error), code, str(error))

    def _gone(self, claimed: ClaimedUnit, reading: Reading, *, removes: bool) -> UnitSuccess | None:
        """A HEAD was to decide between a removal and an announcement, and there is no object. None: there is
        no item yet that could stay, and what has to be inspected first can't be."""
        if removes:
            return UnitSuccess(claimed, "unknown", "unknown", "ok", None, gone=2)
        if not claimed.done_version and self._levels_of(claimed.dataset) is not NOTHING_ASKED:
            return None
        dataset = self._context.registry.find(claimed.dataset)
        kept = dated(entry(reading, claimed.content, claimed.content_version, None, dataset), claimed)
        return UnitSuccess(claimed, "unknown", "suspect" if reading.suspect else "ok", "ok", kept, gone=1)

    def _reading(self, claimed: ClaimedUnit) -> Reading:
        """The reading of its key, with the stored doubts: they must not depend on the worker and the time."""
        reading = self._context.keys.take(claimed.wal_id, claimed.object_uri)
        doubts: tuple[str, ...] = ()
        if '"suspect"' in claimed.extra:
            doubts = tuple(msgspec.json.decode(claimed.extra).get("suspect", ()))
        return reading if reading.suspect == doubts else replace(reading, suspect=doubts)

    def _levels_of(self, dataset: str) -> Levels:
        found = self._levels.get(dataset)
        if found is None:
            policy = self._context.settings.policy_of(dataset)
            asked = Levels(integrity=policy.integrity, metadata=policy.metadata)
            found = self._levels[dataset] = NOTHING_ASKED if asked == NOTHING_ASKED else asked
        return found

    def _failed(
        self,
        claimed: ClaimedUnit,
        kind: Classification,
        code: str,
        message: str,
        *,
        integrity_status: str = "unknown",
        metadata_status: str = "unknown",
    ) -> UnitFailure:
        context = self._context
        failed = failure_of_unit(
            claimed,
            kind,
            code,
            context.redact.hide(message)[:MESSAGE_CHARS_MAX],
            now_ms=self._ledger.now_ms(),
            unit_random=context.rng.unit(),
            policy=context.retry_policy(claimed.dataset),
        )
        return replace(failed, integrity_status=integrity_status, metadata_status=metadata_status)

    def _unproven(self, claimed: ClaimedUnit) -> UnitFailure:
        kind = classify(Failure(code=PROVENANCE_PARTIAL))
        return self._failed(claimed, kind, PROVENANCE_PARTIAL, FAILED[PROVENANCE_PARTIAL])

    def _put_back(
        self, claimed: ClaimedUnit, code: str, message: str, not_before_ms: int | None
    ) -> UnitFailure:
        """Back to waiting, untried: no attempt is charged."""
        return UnitFailure(
            claimed=claimed,
            error_code=code,
            error_message=self._context.redact.hide(message)[:MESSAGE_CHARS_MAX],
            error_class=_PUT_BACK_CLASSES.get(code, "governance"),
            fate="retry",
            reason="put-back",
            not_before_ms=not_before_ms,
            charged=False,
        )

    # --- results ---------------------------------------------------------------------

    def _batch(self, ended: Iterable[UnitSuccess | UnitFailure], epoch: int) -> ResultBatch:
        """`epoch`: that the gates were asked at."""
        context = self._context
        successes: list[UnitSuccess] = []
        failures: list[UnitFailure] = []
        for one in ended:
            if isinstance(one, UnitSuccess):
                successes.append(one)
            else:
                failures.append(one)
        return ResultBatch(
            successes=tuple(successes),
            failures=tuple(failures),
            policy_epoch=epoch,
            replicas=context.replicas,
            downstream=context.downstream,
            lineage=context.lineage,
        )

    def _apply_gates(self, results: ResultBatch) -> ResultBatch:
        """A switch was set since the gates were asked: units of stopped datasets are put back untried."""
        self._epoch = self._context.policy_epoch()
        self._gates.clear()
        self._lanes.clear()  # the gates of before allowed them
        ended: list[UnitSuccess | UnitFailure] = list(results.failures)
        for one in results.successes:
            gate = self._gate(one.claimed.dataset, in_flight=True)
            if gate.allowed:
                ended.append(one)
            else:
                ended.append(self._put_back(one.claimed, SWITCHED_OFF, gate.reason, None))
        return self._batch(ended, self._epoch)


def _dataset_of(results: ResultBatch) -> str:
    """A batch is of one."""
    first = results.successes[0] if results.successes else results.failures[0]
    return first.claimed.dataset


def failure_of_unit(
    claimed: ClaimedUnit,
    kind: Classification,
    code: str,
    message: str,
    *,
    now_ms: int,
    unit_random: float,
    policy: RetryPolicy | None = None,
) -> UnitFailure:
    """A failed attempt that is charged, and what its budget decides."""
    outlook = fate_of(
        kind,
        grants=claimed.grants,
        grant_attempts=claimed.grant_attempts,
        granted_at_ms=claimed.granted_at_ms,
        now_ms=now_ms,
        unit_random=unit_random,
        policy=policy,
    )
    return UnitFailure(
        claimed=claimed,
        error_code=code,
        error_message=message,
        error_class=kind.error_class,
        fate=outlook.fate,
        reason=outlook.reason,
        not_before_ms=outlook.not_before_ms,
    )


def dated(made: CatalogueEntry, claimed: ClaimedUnit) -> CatalogueEntry:
    """With the time of the announcement where neither key nor header has one."""
    if made.at_ms is not None or claimed.event_time_ms is None:
        return made
    return replace(made, at_ms=claimed.event_time_ms)


def declared(extra: str) -> dict[str, str] | None:
    """Checksums that the announcement declared."""
    md5 = msgspec.json.decode(extra).get("md5") if '"md5"' in extra else None
    return {"md5": md5} if isinstance(md5, str) else None


def joined(extra: str, found: InspectionResult) -> str | None:
    """The unit's extra fields with those of its inspection; None: unchanged."""
    added = {**found.extra, **({"doubts": list(found.doubts)} if found.doubts else {})}
    if not added:
        return None
    return msgspec.json.encode({**msgspec.json.decode(extra), **added}, order="sorted").decode()
