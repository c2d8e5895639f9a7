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
from kfm.model.retry import Classification, Failure, classify
from kfm.model.retry_budgets import fate_of
from kfm.model.settings import Ingest
from kfm.model.units import (
    Claim,
    Claimed,
    Done,
    Exchanged,
    Finish,
    Finished,
    IntakeBatch,
    IntakeReport,
    IntakeUnit,
    Lane,
    Undone,
)
from kfm.nodd.catalogue.item_facts import entry
from kfm.nodd.dataset_registry import Registry
from kfm.nodd.grammar import Reading
from kfm.nodd.inspect.inspection import InspectionResult, Look
from kfm.nodd.inspect.verdicts import NOTHING_ASKED, Levels
from kfm.nodd.key_cache import KeyCache
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.unit_observer import UnitObserver
from kfm.ports import Clock, Rng

if TYPE_CHECKING:
    from kfm.db.units import Units

EPOCHS_MAX = 100  # how often switches may move while a batch ends; its leases lapse after that
LANES_FRESH_MS = 1_000  # how long a worker trusts what it saw of other lanes
SWITCHED_OFF = "SWITCHED_OFF"
NOTHING = IntakeBatch()
NEVER_MS = 1 << 62  # what waits in a lane is due: nothing does


@dataclass(frozen=True)
class WorkerContext:
    """Everything that intake and work need, chosen by the wiring."""

    settings: Ingest
    wal: Units
    registry: Registry
    clock: Clock
    rng: Rng
    worker_id: str
    ingest_run_id: str
    memory: KeyCache
    # May a dataset's units be worked on; asked again when the policy epoch moves. (dataset, in flight)
    gate: Callable[[str, bool], GateResult]
    policy_epoch: Callable[[], int]
    look: Look | None = None  # None: nothing can be read upstream; what was announced has to do
    shut: Callable[[str], int | None] = lambda _provider: None  # until when a provider is left alone
    redact: Discretion = field(default_factory=Discretion)
    downstream: tuple[tuple[str, str], ...] = ()  # (dataset, source)
    replicas: tuple[str, ...] = ()
    lineage: bool = True  # does anybody take events
    watch: UnitObserver | None = None
    # Runs a function over many units at once where each waits for upstream.
    spread: Callable[[Callable[[Claimed], Done | Undone], Sequence[Claimed]], Iterable[Done | Undone]] = map


class BatchResult(Record, frozen=True):
    """What one step of a worker came to."""

    succeeded: int = 0
    failed: int = 0
    lost: int = 0
    claimed: int = 0  # and not ended yet
    report: IntakeReport = IntakeReport()  # of what was heard and taken in with it


class Worker:
    """Claims units lane by lane, lets the operators look at them, and ends them."""

    def __init__(self, kernel: WorkerContext) -> None:
        self._kernel = kernel
        self._lanes: list[Lane] = []
        self._seen_ms: int | None = None
        self._held: list[Claimed] = []
        self._ending: Finish | None = None  # worked on, and not known to have landed
        self._epoch = 0
        self._gates: dict[tuple[str, bool], GateResult] = {}
        self._levels: dict[str, Levels] = {}
        self.blocked: dict[str, str] = {}  # dataset → why nothing of it is claimed

    @property
    def takes_long(self) -> bool:
        """Objects are to be looked at: what is heard meanwhile should be durable before."""
        return bool(self._held) and self._levels_of(self._held[0].dataset) is not NOTHING_ASKED

    @property
    def may_wait(self) -> bool:
        """Something is held, and nothing else is known to be due: its end can go with what is heard next."""
        return bool(self._held) and all(lane.due_ms == NEVER_MS for lane in self._lanes)

    def step(self, heard: IntakeBatch = NOTHING, *, claim: bool = True, ahead: bool = True) -> BatchResult:
        """End what is held, and claim what comes next. Nothing claimed and nothing ended: nothing is due.

        What was heard is durable when this returns; new units may be claimed already, and wait for the
        next step. Without `ahead` nothing is held afterwards.
        """
        kernel = self._kernel
        if self._ending is None and not self._held:
            exchanged = self._claimed(None, heard.taken) if claim else Exchanged(left=heard.taken)
            self._held = list(exchanged.claimed)
            if not self._held or heard is not NOTHING:
                return BatchResult(claimed=len(self._held), report=self._reported(heard, exchanged))
        began_ms = kernel.clock.monotonic_ms()
        finish = self._ending
        if finish is None:
            # Kept until it has landed: the ledger may be away for a while. Fences make it safe to repeat.
            finish = self._ending = self._worked()
            self._held = []
        exchanged = self._claimed(finish, heard.taken) if claim and ahead else self._turned(finish, None)
        finished, self._held = exchanged.finished, list(exchanged.claimed)
        for _ in range(EPOCHS_MAX):
            if not finished.epoch_moved:
                break
            finish = self._ending = self._again(finish)
            finished, _ = kernel.wal.turn(finish, None)
        self._ending = None
        if kernel.watch is not None:
            kernel.watch.ended(finish, finished, kernel.clock.monotonic_ms() - began_ms)
        return BatchResult(
            succeeded=len(finished.succeeded),
            failed=len(finished.failed),
            lost=len(finished.lost),
            claimed=len(self._held),
            report=self._reported(heard, exchanged),
        )

    def drain(self) -> BatchResult:
        """End what is held and claim nothing more."""
        return self.step(claim=False)

    def _reported(self, heard: IntakeBatch, exchanged: Exchanged) -> IntakeReport:
        """Take in what is not new, too."""
        created = exchanged.created
        if not exchanged.left and not heard.gone and not heard.rejected:
            return IntakeReport(created=created)
        report = self._kernel.wal.take_in(replace(heard, taken=exchanged.left))
        return replace(report, created=report.created + created)

    def _worked(self) -> Finish:
        done: list[Done] = []
        undone: list[Undone] = []
        for outcome in self._kernel.spread(self._work, self._held):
            if isinstance(outcome, Done):
                done.append(outcome)
            else:
                undone.append(outcome)
        return self._finish(done, undone)

    # --- claiming --------------------------------------------------------------------

    def _turned(
        self, finish: Finish | None, wish: Claim | None, fresh: Sequence[IntakeUnit] = ()
    ) -> Exchanged:
        wal = self._kernel.wal
        if fresh:
            return wal.exchange(finish, wish, fresh)
        finished, claimed = wal.turn(finish, wish) if finish or wish else (Finished(), [])
        return Exchanged(finished, tuple(claimed), waited=len(claimed))

    def _claimed(self, finish: Finish | None, fresh: Sequence[IntakeUnit] = ()) -> Exchanged:
        lane = self._next_lane(fresh)
        if lane is None:
            return self._turned(finish, None, fresh)
        kernel = self._kernel
        wish = Claim(
            lane=lane,
            limit=kernel.settings.batch,
            worker_id=kernel.worker_id,
            ingest_run_id=kernel.ingest_run_id,
            lease_ms=kernel.settings.lease_ms,
            policy_epoch=self._epoch,
        )
        exchanged = self._turned(finish, wish, fresh)
        claimed = exchanged.claimed
        if exchanged.finished.epoch_moved:  # what the gates said of the other lanes is as old
            self._lanes.clear()
            return exchanged
        # A full batch: there may be more. Then the next lane has its turn first.
        if len(claimed) == (1 if lane.alone else wish.limit):
            self._lanes.append(lane if exchanged.waited else replace(lane, due_ms=NEVER_MS))
        elif not claimed and not self._lanes:
            self._seen_ms = None
        return exchanged

    def _next_lane(self, fresh: Sequence[IntakeUnit]) -> Lane | None:
        """One in which something waits; otherwise one that something comes into just now."""
        kernel = self._kernel
        now_ms = kernel.clock.monotonic_ms()
        if self._seen_ms is None or not self._lanes or now_ms - self._seen_ms >= LANES_FRESH_MS:
            self._look_around()
            self._seen_ms = now_ms
        if self._lanes:
            return self._lanes.pop(0)
        now_ms = kernel.clock.now_ms()
        coming = dict.fromkeys((one.unit.dataset, one.unit.provider) for one in fresh)
        lanes = (Lane(*lane, due_ms=NEVER_MS) for lane in coming)
        return next((lane for lane in lanes if self._shut(lane, now_ms) is None), None)

    def _look_around(self) -> None:
        """Which lanes have something due that may be worked on now."""
        kernel = self._kernel
        self._epoch = kernel.policy_epoch()
        self._gates.clear()
        now_ms, lanes = kernel.clock.now_ms(), kernel.wal.lanes()
        blocked: dict[str, str] = {}
        ready = []
        for lane in (one for one in lanes if one.due_ms <= now_ms):
            reason = self._shut(lane, now_ms)
            if reason is None:
                ready.append(lane)
            else:
                blocked[lane.dataset] = reason
        known, open_now = set(map(_key, self._lanes)), set(map(_key, ready))
        order = [lane for lane in self._lanes if _key(lane) in open_now]
        self._lanes = order + [lane for lane in ready if _key(lane) not in known]
        self.blocked = blocked

    def _shut(self, lane: Lane, now_ms: int) -> str | None:
        """Why nothing of it may be claimed."""
        gate = self._gate(lane.dataset, in_flight=False)
        if not gate.allowed:
            return gate.reason
        if self._levels_of(lane.dataset) is NOTHING_ASKED:
            return None
        until_ms = self._kernel.shut(lane.provider)
        return f"The circuit of {lane.provider} is open." if until_ms and until_ms > now_ms else None

    def _gate(self, dataset: str, *, in_flight: bool) -> GateResult:
        key = (dataset, in_flight)
        if key not in self._gates:
            self._gates[key] = self._kernel.gate(dataset, in_flight)
        return self._gates[key]

    # --- one unit --------------------------------------------------------------------

    def _work(self, claimed: Claimed) -> Done | Undone:
        kernel = self._kernel
        try:
            reading = self._reading(claimed)
            policy = kernel.settings.policy_of(claimed.dataset)
            if claimed.removed and policy.removal == "remove":
                return gone(claimed)
            levels = self._levels_of(claimed.dataset)
            if claimed.unclear and levels.integrity == "announced":
                levels = HEAD_DECIDES
            dataset = kernel.registry.find(claimed.dataset)
            if levels is NOTHING_ASKED or kernel.look is None:
                return Done(
                    claimed,
                    "unknown",
                    "suspect" if reading.suspect else "ok",
                    "ok",
                    dated(entry(reading, claimed.content, claimed.content_version, None, dataset), claimed),
                )
            looked = kernel.look(reading, claimed.content, levels, declared(claimed.extra))
            if looked.error_code is not None:
                return self._failed(
                    claimed,
                    classify(Failure(code=looked.error_code)),
                    looked.error_code,
                    looked.error_message or "",
                    integrity_status=looked.integrity_status,
                    metadata_status=looked.metadata_status,
                )
            content = looked.content or claimed.content
            return Done(
                claimed,
                looked.integrity_status,
                looked.metadata_status,
                "ok",
                dated(entry(reading, content, claimed.content_version, looked, dataset), claimed),
                joined(claimed.extra, looked),
                looked.content,
            )
        except RecordRefusal as refusal:
            return self._failed(claimed, _UNREADABLE, refusal.code, refusal.text)
        except (CircuitOpen, ConfigError, ExtraMissing) as error:  # ours, not the unit's: nobody looked
            later_ms = error.facts.get("not_before_ms", kernel.clock.now_ms() + UNABLE_MS)
            return self._put_back(claimed, error.code, str(error), later_ms)
        except Exception as error:  # noqa: BLE001 - one unit's trouble is never its neighbours'
            code = error.code if isinstance(error, KfmError) else type(error).__name__
            return self._failed(claimed, classify_call(error), code, str(error))

    def _reading(self, claimed: Claimed) -> Reading:
        """What its key tells, and the record's doubts: they must not depend on who works on it, and when."""
        reading = self._kernel.memory.take(claimed.wal_id, claimed.object_uri)
        doubts: tuple[str, ...] = ()
        if '"suspect"' in claimed.extra:
            doubts = tuple(msgspec.json.decode(claimed.extra).get("suspect", ()))
        return reading if reading.suspect == doubts else replace(reading, suspect=doubts)

    def _levels_of(self, dataset: str) -> Levels:
        found = self._levels.get(dataset)
        if found is None:
            policy = self._kernel.settings.policy_of(dataset)
            asked = Levels(integrity=policy.integrity, metadata=policy.metadata)
            found = self._levels[dataset] = NOTHING_ASKED if asked == NOTHING_ASKED else asked
        return found

    def _failed(
        self,
        claimed: Claimed,
        kind: Classification,
        code: str,
        message: str,
        *,
        integrity_status: str = "unknown",
        metadata_status: str = "unknown",
    ) -> Undone:
        kernel = self._kernel
        outlook = fate_of(
            kind,
            grants=claimed.grants,
            grant_attempts=claimed.grant_attempts,
            granted_at_ms=claimed.granted_at_ms,
            now_ms=kernel.clock.now_ms(),
            unit_random=kernel.rng.unit(),
        )
        return Undone(
            claimed=claimed,
            error_code=code,
            error_message=kernel.redact.hide(message)[:MESSAGE_CHARS_MAX],
            error_class=kind.error_class,
            fate=outlook.fate,
            reason=outlook.reason,
            not_before_ms=outlook.not_before_ms,
            integrity_status=integrity_status,
            metadata_status=metadata_status,
        )

    def _put_back(self, claimed: Claimed, code: str, message: str, not_before_ms: int | None) -> Undone:
        """Nothing was tried, so nothing is charged."""
        return Undone(
            claimed=claimed,
            error_code=code,
            error_message=self._kernel.redact.hide(message)[:MESSAGE_CHARS_MAX],
            error_class="circuit-open" if code == CircuitOpen.code else "governance",
            fate="retry",
            reason="put-back",
            not_before_ms=not_before_ms,
            charged=False,
        )

    # --- ending ----------------------------------------------------------------------

    def _finish(self, done: list[Done], undone: list[Undone]) -> Finish:
        kernel = self._kernel
        return Finish(
            done=tuple(done),
            undone=tuple(undone),
            policy_epoch=self._epoch,
            replicas=kernel.replicas,
            downstream=kernel.downstream,
            lineage=kernel.lineage,
        )

    def _again(self, finish: Finish) -> Finish:
        """A switch was set since the gates were asked: what is stopped now goes back untried."""
        self._epoch = self._kernel.policy_epoch()
        self._gates.clear()
        self._lanes.clear()  # they were let through by the gates of before
        done: list[Done] = []
        undone = list(finish.undone)
        for one in finish.done:
            gate = self._gate(one.claimed.dataset, in_flight=True)
            if gate.allowed:
                done.append(one)
            else:
                undone.append(self._put_back(one.claimed, SWITCHED_OFF, gate.reason, None))
        return self._finish(done, undone)


MESSAGE_CHARS_MAX = 1_000
UNABLE_MS = 60_000  # another worker may be able to
HEAD_DECIDES = Levels(integrity="head")
_UNREADABLE = Classification(retryable=False, error_class="schema")
_key = attrgetter("dataset", "provider", "alone")  # of a lane


def dated(made: CatalogueEntry, claimed: Claimed) -> CatalogueEntry:
    """Where neither key nor header tell a time, the announcement's stands in for it."""
    if made.at_ms is not None or claimed.event_time_ms is None:
        return made
    return msgspec.structs.replace(made, at_ms=claimed.event_time_ms)


def declared(extra: str) -> dict[str, str] | None:
    """Checksums that the announcement brought along."""
    md5 = msgspec.json.decode(extra).get("md5") if '"md5"' in extra else None
    return {"md5": md5} if isinstance(md5, str) else None


def joined(extra: str, looked: InspectionResult) -> str | None:
    """The unit's extra with what looking added to it; None: as it was."""
    added = {**looked.extra, **({"doubts": list(looked.doubts)} if looked.doubts else {})}
    if not added:
        return None
    return msgspec.json.encode({**msgspec.json.decode(extra), **added}, order="sorted").decode()


def gone(claimed: Claimed) -> Done:
    return Done(claimed, "unknown", "unknown", "ok", None)
