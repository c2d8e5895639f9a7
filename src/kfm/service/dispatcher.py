"""The dispatcher: claims requests that are due, has them worked off, and settles what no run has settled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from kfm.model.admission import SWITCH_MS, StartDecision, may_preview
from kfm.model.errors import (
    Busy,
    Cancelled,
    CircuitOpen,
    DataNotYet,
    DataOverdue,
    KfmError,
    PlanDrifted,
    Refused,
    SwitchThrown,
    WorkFailed,
    outage_of,
)
from kfm.model.quantities import short_id
from kfm.model.quarantine import held_request
from kfm.model.records import BY_KFM, Run, governance_entry
from kfm.model.requests import ABSENT, NOT_YET, PutOff, RequestOutcome, RequestPart, UpdateRequest
from kfm.model.retry import backoff_ms, decide_retry
from kfm.model.retry_budgets import NOT_RETRIED, RetryLimits
from kfm.model.settings import DatasetSettings, SourceSettings
from kfm.model.times import rfc3339
from kfm.reports.state_words import of_report
from kfm.runs.kernel import RunReport, RunRequest
from kfm.runs.outcome import asked_ms, kind_of
from kfm.runs.plan import RunPlan
from kfm.system import os_trouble
from kfm.telemetry.compliance import AUTOMATIC

if TYPE_CHECKING:
    from kfm.db.requests import Requests

CLAIM_MS = 60_000
BUSY_MS = 5_000  # another run of the dataset is under way
OTHERS_MS = 5 * 60_000  # for what one service does not know, and another may
UNKNOWN_MS = 15_000
TROUBLE_MS = 5_000
TROUBLE_MS_MAX = 15 * 60_000
ENVELOPE = ("signature", "reason")
TRIES_MAX = 100  # of a request that could not even be decided: more than a day
logger = logging.getLogger(__name__)


class DispatchedRuns(Protocol):
    """What a dispatcher needs of an application. Simulations have their own."""

    def run(self, request: UpdateRequest, plan: RunPlan | None) -> RunReport: ...
    def asks_approval(self, request: UpdateRequest) -> bool:
        """Would a second person's approval let it run, and nothing less?"""

    def asked_before(self, request: UpdateRequest) -> RequestOutcome | None:
        """Its end, where the same preview waits already, or was rejected and nothing has changed since."""

    def preview(self, request: UpdateRequest) -> RunReport: ...
    def ask_approval(self, request: UpdateRequest, plan: RunPlan) -> bool:
        """Keep the plan and ask for a second person; False if the request is not ours any more."""

    def plan(self, request: UpdateRequest) -> RunPlan:
        """The plan that binds a request."""

    def hopeless(self, request: UpdateRequest, run: Run) -> str | None:
        """Why the promised attempt of this run is never to be made, if so."""

    def give_up(self, run: Run, reason: str, answer: tuple[UpdateRequest, RequestOutcome]) -> None: ...
    def run_by_id(self, run_id: str) -> Run | None: ...
    def find(self, source_id: str) -> tuple[SourceSettings, DatasetSettings] | None: ...
    def limits(self, source: SourceSettings) -> RetryLimits: ...
    def redact(self, text: str) -> str: ...


class Dispatcher:
    """Claims requests, one after the other."""

    def __init__(
        self,
        requests: Requests,
        runs: DispatchedRuns,
        worker_id: str,
        *,
        now_ms: Callable[[], int],
        unit_random: Callable[[], float],
        dead: Callable[[str], bool],
        part: RequestPart = "all",
        holding: Callable[[UpdateRequest], AbstractContextManager[object]] = lambda _request: nullcontext(),
        on_report: Callable[[UpdateRequest, RunReport], None] = lambda _request, _report: None,
    ) -> None:
        self._requests = requests
        self._runs = runs
        self._worker_id = worker_id
        self._now_ms = now_ms
        self._unit_random = unit_random
        self._dead = dead
        self._part = part
        self._holding = holding  # renews the claim as long as anything works for it
        self._on_report = on_report

    def step(self) -> UpdateRequest | None:
        """One request that is due, worked off; None: there is none."""
        request = self._requests.claim(self._worker_id, CLAIM_MS, self._dead, self._part)
        if request is None:
            return None
        self.work(request)
        return request

    def work(self, request: UpdateRequest) -> None:
        """Work off a request that is ours."""
        logger.debug(
            "%s: request %s is claimed", request.source_id, request.request_id, extra=_about(request)
        )
        try:
            with self._holding(request):
                self._work_off(request)
        except Exception as error:  # noqa: BLE001 - a defect in one request is no reason to lose the others
            self._undecided(request, error)

    def _work_off(self, request: UpdateRequest) -> None:
        if request.cancel is not None:
            self._cancelled(request, request.cancel)
            return
        found = self._runs.find(request.source_id)
        if found is None and self._now_ms() - request.accepted_at_ms < OTHERS_MS:
            # Another service knows the source: while services are replaced, some have an older file.
            reason = f"A service that runs requests has no source {request.source_id}; another one may."
            self._put_off(request, UNKNOWN_MS, "trouble", reason)
            return
        run = self._runs.run_by_id(request.run_id) if request.run_id is not None else None
        if run is not None and run.status == "success":
            self._end(request, "success", "Done before its runner was lost.", run.run_id)
            return
        if found is None:
            reason = f"There is no source {request.source_id} any more."
            self._end_with_promise(request, run, "source-gone", "refused", reason)
            self._tell_not_made(request, run, "source-gone")
            return
        if run is not None and _is_for_node(found[0]):
            reason = "Its pipeline is an ES module: `node node/runner.mjs run` makes the promised attempt."
            self._put_off(request, OTHERS_MS, "trouble", reason)
            return
        hopeless = self._runs.hopeless(request, run) if run is not None and run.status == "failed" else None
        if hopeless is not None:
            reason = f"Its promised attempt is not made: {NOT_RETRIED[hopeless]}."
            self._end_with_promise(request, run, hopeless, "failed", reason)
            self._tell_not_made(request, run, hopeless)
        elif self._runs.asks_approval(request):
            self._ask(request, found[0])
        else:
            plan = self._runs.plan(request) if request.is_bound else None
            report = self._runs.run(request, plan)
            self._settle(request, found[0], report, run)
            self._on_report(request, report)

    def _ask(self, request: UpdateRequest, source: SourceSettings) -> None:
        """The preview first; another person decides whether it is run. Nothing is asked for twice."""
        if not may_preview(request, self._runs.limits(source)):
            # Its process died each time: the next one would die, too.
            self._in_vain(request, source, WorkFailed("Its preview ended its process each time."))
            return
        try:
            known = self._runs.asked_before(request)
            report = self._runs.preview(request) if known is None else None
        except (KfmError, OSError) as error:
            self._in_vain(request, source, error)
            return
        if known is not None or report is None:
            if known is not None:
                self._requests.settle(request, known)
            return
        if report.plan is None or report.outcome != "planned":
            self._settle(request, source, report, None)
        elif not report.plan.changes:
            self._nothing_to_approve(request, report)
        elif self._runs.ask_approval(request, report.plan):
            logger.info(
                "%s: request %s waits for an approval",
                request.source_id,
                request.request_id,
                extra=_about(request),
            )
        else:
            now = self._requests.request(request.request_id)
            if now is not None and now.cancel is not None:
                self._cancelled(request, now.cancel)

    def _nothing_to_approve(self, request: UpdateRequest, report: RunReport) -> None:
        """What would change nothing needs no person. It ends as its run would have, without one."""
        from kfm.runs.executor import NOTHING

        outcome = {"absent": ABSENT, "empty": "empty"}.get(report.found, "noop")
        reason = NOTHING.get(report.found, "It would publish what is published.")
        self._end(request, outcome, f"{reason} It needs no approval.")
        logger.info("%s: %s", request.source_id, reason, extra=_about(request))

    # --- endings: of what is settled with its run already, nothing is changed ---------------

    def _settle(
        self, request: UpdateRequest, source: SourceSettings, report: RunReport, run: Run | None
    ) -> None:
        decision, error = report.decision, report.error
        run_id = report.run.run_id if report.run is not None else None
        if isinstance(error, DataNotYet | DataOverdue):
            self._not_come(request, error)
            return
        if decision is not None and decision.kind == "waits":
            later = PutOff(
                not_before_ms=decision.until_ms, blocked_by=decision.blocked_by, reason=decision.reason
            )
            # What needs an approval, or has it, does not end with a run of others.
            own = request.needs_approval or request.is_bound
            tied = decision.run.run_id if decision.run is not None and not own else None
            self._requests.reopen(request, later, run_id=tied, tried=False)
            return
        if isinstance(error, Busy):
            self._put_off(request, BUSY_MS, "busy", report.reason)
            return
        if isinstance(error, Cancelled):
            self._cancelled(request, report.reason, run_id)
        elif isinstance(error, PlanDrifted):
            reason = f"Not what was approved: {report.reason}"
            self._end_with_promise(request, run, "drifted", "refused", reason, run_id)
        elif isinstance(error, SwitchThrown):  # in the middle of a preview; a run has put it off itself
            self._put_off(request, SWITCH_MS, "switch", report.reason)
        elif isinstance(error, Refused):
            self._end_with_promise(request, run, "refused", "refused", report.reason, run_id)
        elif report.outcome == "failed" and error is not None:
            self._in_vain(request, source, error)
        else:
            self._end(request, report.outcome, report.reason, run_id)
        logger.info(
            "%s: %s, asked for by %s%s",
            request.source_id,
            of_report(report.word),
            request.kind,
            f", run {short_id(run_id)}" if run_id is not None else "",
            extra={**_about(request), "run_id": run_id},
        )

    def _not_come(self, request: UpdateRequest, error: KfmError) -> None:
        """Upstream does not have it yet: asked again later, without an attempt spent; when its time is over
        the request ends, and its window is missing."""
        reason = self._runs.redact(error.message)
        if isinstance(error, DataNotYet):
            later = PutOff(not_before_ms=error.facts["not_before_ms"], blocked_by=NOT_YET, reason=reason)
            self._requests.reopen(request, later, tried=False)
        else:
            self._end(request, ABSENT, reason)
        logger.info("%s: %s", request.source_id, reason, extra=_about(request))

    def _in_vain(self, request: UpdateRequest, source: SourceSettings, error: KfmError | OSError) -> None:
        """It was tried and became no run: its preview failed, or upstream could not be compared. The rules of
        its trigger decide, as they do for a run."""
        now_ms, message = self._now_ms(), self._runs.redact(str(error))
        kind, wait_ms = kind_of(error), asked_ms(error)
        if isinstance(error, CircuitOpen):
            later = PutOff(
                not_before_ms=now_ms + max(wait_ms or 0, BUSY_MS),
                blocked_by=f"circuit:{error.facts.get('provider')}",
                reason=message,
            )
            self._requests.reopen(request, later, tried=False)
            return
        decision = decide_retry(
            kind,
            self._runs.limits(source).of(request.kind),
            request.tries,
            request.tried_at_ms or request.accepted_at_ms,
            now_ms,
            self._unit_random(),
            wait_ms,
        )
        if decision.retry:
            self._requests.reopen(
                request,
                PutOff(
                    not_before_ms=decision.not_before_ms or now_ms,
                    blocked_by="retry" if wait_ms is None else "retry-after",
                    reason=message,
                ),
            )
            return
        held = held_request(
            request,
            error_class=kind.error_class,
            error_code=error.code if isinstance(error, KfmError) else "KFM400",
            error_message=message,
            reason=decision.reason,
            now_ms=now_ms,
        )
        entry = governance_entry(
            held.kind,
            request.request_id,
            now_ms,
            BY_KFM,
            held_id=held.held_id,
            dataset_id=request.dataset_id,
            attempts=request.tries,
            error_classes=[kind.error_class],
            reason=decision.reason,
        )
        self._requests.give_up(
            request, RequestOutcome(state="done", outcome="failed", reason=message), held, [entry]
        )

    def _end_with_promise(
        self,
        request: UpdateRequest,
        run: Run | None,
        why: str,
        outcome: str,
        reason: str,
        run_id: str | None = None,
    ) -> None:
        """The end of a request, and of the attempt that its run was promised, in one: a promise that outlived
        its request would wait for ever."""
        ending = RequestOutcome(state="done", outcome=outcome, reason=reason, run_id=run_id)
        if run is not None and run.status == "failed":
            self._runs.give_up(run, why, (request, ending))
        self._requests.settle(request, ending)  # where nothing was promised any more

    def _tell_not_made(self, request: UpdateRequest, run: Run | None, reason: str) -> None:
        """A promised attempt that is never to be made is told of."""
        if run is None:
            return
        text = f"It is not retried automatically: {NOT_RETRIED[reason]}."
        self._on_report(
            request,
            RunReport(
                outcome="refused",
                word="given-up",
                reason=text,
                source_id=request.source_id,
                dataset_id=request.dataset_id,
                window_start_ms=request.window_start_ms,
                window_end_ms=request.window_end_ms,
                invocation_id=None,
                run=run,
                decision=StartDecision(kind="refused", code="quarantined", reason=text, run=run),
            ),
        )

    def _put_off(self, request: UpdateRequest, delay_ms: int, blocked_by: str, reason: str) -> None:
        later = PutOff(not_before_ms=self._now_ms() + delay_ms, blocked_by=blocked_by, reason=reason)
        self._requests.reopen(request, later, tried=False)

    def _end(self, request: UpdateRequest, outcome: str, reason: str, run_id: str | None = None) -> None:
        self._requests.settle(
            request, RequestOutcome(state="done", outcome=outcome, reason=reason, run_id=run_id)
        )

    def _cancelled(self, request: UpdateRequest, reason: str, run_id: str | None = None) -> None:
        ending = RequestOutcome(state="cancelled", outcome="cancelled", reason=reason, run_id=run_id)
        self._requests.settle(request, ending)

    def _undecided(self, request: UpdateRequest, error: Exception) -> None:
        """It could not even be decided: later, and not for ever."""
        if isinstance(error, OSError):
            message = os_trouble(error).text
        else:
            message = error.message if isinstance(error, KfmError) else f"{type(error).__name__}: {error}"
        about = {**_about(request), "tries": request.tries, **outage_of(error)}
        logger.warning("%s: %s", request.source_id, message, extra=about)
        if request.tries >= TRIES_MAX:
            run = self._runs.run_by_id(request.run_id) if request.run_id is not None else None
            self._end_with_promise(
                request, run, "", "failed", f"Stopped after {request.tries} tries: {message}"
            )
            return
        at_ms = self._now_ms() + backoff_ms(TROUBLE_MS, TROUBLE_MS_MAX, request.tries)
        self._requests.reopen(request, PutOff(not_before_ms=at_ms, blocked_by="trouble", reason=message))


def _is_for_node(source: SourceSettings) -> bool:
    """Is its pipeline one that only the Node.js twin runs? Python must not spend what that was promised."""
    return (source.pipeline or "").rpartition(":")[0].endswith(".mjs")


def _about(request: UpdateRequest) -> dict[str, object]:
    """What log records about a request can be found by."""
    return {"request_id": request.request_id, "source": request.source_id, "dataset": request.dataset_id}


def run_request_of(request: UpdateRequest) -> RunRequest:
    return RunRequest(
        source_id=request.source_id,
        window_spec=f"{rfc3339(request.window_start_ms)}/{rfc3339(request.window_end_ms)}",
        trigger_type=request.kind,
        correction=request.correction,
        actor=request.actor,
        claimed_actor=AUTOMATIC if request.run_id is not None else request.claimed_actor,
        rationale=request.rationale,
        ticket=request.ticket,
        message_id=request.key if request.kind == "upstream-event" else None,  # of a burst it is the message
        request_uuid=request.request_uuid,
        envelope=envelope_of(request),
    )


def envelope_of(request: UpdateRequest) -> dict[str, str]:
    """What lineage has of the message: hashes and verdicts."""
    if request.envelope_hash is None:
        return {}
    facts = {name: str(value) for name, value in request.details.items() if name in ENVELOPE}
    return {"envelope_sha256": request.envelope_hash, **facts}
