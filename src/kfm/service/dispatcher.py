"""The dispatcher: claims accepted requests and runs them, through the same admission as any invocation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from kfm.model.errors import Cancelled, CircuitOpen, KfmError, PlanDrifted
from kfm.model.gates import switch_command
from kfm.model.quantities import short_id
from kfm.model.records import Run, Switch
from kfm.model.requests import RequestOutcome, UpdateRequest
from kfm.model.retry import backoff_ms
from kfm.model.settings import DatasetSettings, SourceSettings
from kfm.model.times import rfc3339
from kfm.reports.state_words import of_report
from kfm.runs.kernel import RunReport, RunRequest
from kfm.runs.plan import RunPlan

if TYPE_CHECKING:
    from kfm.db.requests import Requests

CLAIM_MS = 60_000
BUSY_MS = 2_000  # another run of the dataset is under way
BUSY_MS_MAX = 60_000
PAUSED_MS = 15_000
OTHERS_MS = 5 * 60_000  # for what one service does not know, and another may
TROUBLE_MS = 5_000
TROUBLE_MS_MAX = 15 * 60_000
ENVELOPE = ("signature", "reason")
PREVIEWS_MAX = 20  # of one request; what has no run yet has no budget of attempts either
TRIES_MAX = 100  # of a request that could not even be decided: more than a day
logger = logging.getLogger(__name__)


class DispatchedRuns(Protocol):
    """What a dispatcher needs of an application. Simulations have their own."""

    def run(self, request: UpdateRequest, run_request: RunRequest, plan: RunPlan | None) -> RunReport: ...
    def preview(self, run_request: RunRequest) -> RunReport: ...
    def ask_approval(self, request: UpdateRequest, plan: RunPlan) -> bool:
        """Keep the plan and ask for a second person; False if the request is not ours any more."""

    def approved_plan(self, request: UpdateRequest) -> RunPlan:
        """The plan that was approved."""

    def run_by_key(self, key: str) -> Run | None: ...
    def run_by_id(self, run_id: str) -> Run | None: ...
    def switches(self) -> Iterable[Switch]: ...
    def find(self, source_id: str) -> tuple[SourceSettings, DatasetSettings] | None: ...


class Dispatcher:
    """Claims requests, one after the other."""

    def __init__(
        self,
        requests: Requests,
        runs: DispatchedRuns,
        worker_id: str,
        *,
        now_ms: Callable[[], int],
        dead: Callable[[str], bool],
    ) -> None:
        self._requests = requests
        self._runs = runs
        self._worker_id = worker_id
        self._now_ms = now_ms
        self._dead = dead

    def step(self) -> UpdateRequest | None:
        """One request that is due, worked off; None: there is none."""
        claimed = self._requests.claim(self._worker_id, CLAIM_MS, self._dead)
        if not claimed:
            return None
        request = claimed[0]
        logger.debug(
            "%s: request %s is claimed", request.source_id, request.request_id, extra=_about(request)
        )
        try:
            self._work_off(request)
        except KfmError as error:
            self._trouble(request, error.message)
        except Exception as error:  # noqa: BLE001 - a defect in one request is no reason to lose the others
            self._trouble(request, f"{type(error).__name__}: {error}")
        return request

    def _work_off(self, request: UpdateRequest) -> None:
        if request.cancel is not None:
            self._cancelled(request, request.cancel)
            return
        found = self._runs.find(request.source_id)
        if found is None and self._now_ms() - request.accepted_at_ms < OTHERS_MS:
            # Another service knows the source: while services are replaced, some have an older file.
            reason = f"A service that runs requests has no source {request.source_id}; another one may."
            self._requests.reopen(request, self._now_ms() + PAUSED_MS, reason, tried=False)
            return
        if found is None:
            self._end(request, "refused", f"There is no source {request.source_id} any more.")
            return
        done = self._done_before(request)
        if done is not None:
            self._end(request, "success", "Done before its runner was lost.", done.run_id)
            return
        paused = self._pause(found[1])
        if paused is not None:
            self._requests.reopen(request, self._now_ms() + PAUSED_MS, paused, tried=False)
            return
        run_request = run_request_of(request)
        plan = None
        if request.needs_approval:
            if request.plan_digest is None and request.tries > PREVIEWS_MAX:
                # Its process died each time: the next one would die, too.
                self._end(request, "failed", f"Stopped: {PREVIEWS_MAX} previews did not end.")
                return
            if request.plan_digest is None:
                self._ask(request, run_request)
                return
            plan = self._runs.approved_plan(request)
        self._settle(request, self._runs.run(request, run_request, plan))

    def _done_before(self, request: UpdateRequest) -> Run | None:
        """What was asked for once is never done twice, whatever has moved upstream since.

        A run that began for a request is on record with it; of a webhook the key is its run's, too.
        """
        run = self._runs.run_by_id(request.run_id) if request.run_id is not None else None
        if run is None and request.kind == "webhook":
            run = self._runs.run_by_key(request.key)
        return run if run is not None and run.status == "success" else None

    def _pause(self, dataset: DatasetSettings) -> str | None:
        """A switch that says `paused` delays; one that says `stopped` is admission's to refuse."""
        scopes = {"all", f"domain:{dataset.domain}", f"dataset:{dataset.id}"}
        thrown = [one for one in self._runs.switches() if one.scope in scopes]
        paused = next((one for one in thrown if one.position == "paused"), None)
        if paused is None or any(one.position == "stopped" for one in thrown):
            return None
        return (
            f"The switch {paused.scope} is paused since {rfc3339(paused.set_at_ms)}. "
            f"An operator lifts it with `{switch_command(paused.scope)}`."
        )

    def _ask(self, request: UpdateRequest, run_request: RunRequest) -> None:
        """The preview first; another person decides whether it is run."""
        report = self._runs.preview(run_request)
        if report.plan is None or report.outcome != "planned":
            self._settle(request, report)
            return
        if self._runs.ask_approval(request, report.plan):
            logger.info(
                "%s: request %s waits for an approval",
                request.source_id,
                request.request_id,
                extra=_about(request),
            )

    # --- endings -----------------------------------------------------------------------

    def _settle(self, request: UpdateRequest, report: RunReport) -> None:
        now_ms, run_id = self._now_ms(), report.run.run_id if report.run is not None else None
        if report.outcome == "busy":
            later_ms = backoff_ms(BUSY_MS, BUSY_MS_MAX, request.tries)
            self._requests.reopen(request, now_ms + later_ms, report.reason)
        elif isinstance(report.error, CircuitOpen):
            at_ms = report.error.facts.get("not_before_ms")
            later = at_ms if isinstance(at_ms, int) else now_ms + BUSY_MS_MAX
            self._requests.reopen(request, max(later, now_ms + BUSY_MS), report.reason)
        elif isinstance(report.error, Cancelled):
            self._cancelled(request, report.reason, run_id)
        elif isinstance(report.error, PlanDrifted) and request.needs_approval:
            self._end(request, "refused", f"Not what was approved: {report.reason}", run_id)
        else:
            self._end(request, report.outcome, report.reason, run_id)
            logger.info(
                "%s: %s, asked for by %s%s",
                request.source_id,
                of_report(report.word),
                request.kind,
                _named(run_id),
                extra={**_about(request), "run_id": run_id},
            )

    def _end(self, request: UpdateRequest, outcome: str, reason: str, run_id: str | None = None) -> None:
        self._requests.settle(
            request, RequestOutcome(state="done", outcome=outcome, reason=reason, run_id=run_id)
        )

    def _cancelled(self, request: UpdateRequest, reason: str, run_id: str | None = None) -> None:
        ending = RequestOutcome(state="cancelled", outcome="cancelled", reason=reason, run_id=run_id)
        self._requests.settle(request, ending)

    def _trouble(self, request: UpdateRequest, message: str) -> None:
        """It could not be decided: later, and not for ever."""
        logger.warning(
            "%s: %s", request.source_id, message, extra={**_about(request), "tries": request.tries}
        )
        if request.tries >= TRIES_MAX:
            self._end(request, "failed", f"Stopped after {request.tries} tries: {message}")
            return
        later_ms = backoff_ms(TROUBLE_MS, TROUBLE_MS_MAX, request.tries)
        self._requests.reopen(request, self._now_ms() + later_ms, message)


def _about(request: UpdateRequest) -> dict[str, object]:
    """What log records about a request can be found by."""
    return {"request_id": request.request_id, "source": request.source_id, "dataset": request.dataset_id}


def _named(run_id: str | None) -> str:
    return f", run {short_id(run_id)}" if run_id is not None else ""


def run_request_of(request: UpdateRequest) -> RunRequest:
    return RunRequest(
        source_id=request.source_id,
        window_spec=f"{rfc3339(request.window_start_ms)}/{rfc3339(request.window_end_ms)}",
        trigger_type=request.kind,
        correction=request.correction,
        actor=request.actor,
        claimed_actor=request.claimed_actor,
        rationale=request.rationale,
        ticket=request.ticket,
        # Of a webhook the request is the message: its key names nothing else.
        request_uuid=request.request_uuid,
        envelope=envelope_of(request),
    )


def envelope_of(request: UpdateRequest) -> dict[str, str]:
    """What lineage has of the message: hashes and verdicts."""
    if request.envelope_hash is None:
        return {}
    facts = {name: str(value) for name, value in request.details.items() if name in ENVELOPE}
    return {"envelope_sha256": request.envelope_hash, **facts}
