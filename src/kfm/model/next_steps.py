"""The next step: what a person does about a run that failed, was refused or is held. Pure.

One answer for every place that tells of such a run: `kfm run`, `status`, `explain`, `quarantine`, the API
and the console.
"""

from __future__ import annotations

from typing import Literal

from kfm.model.errors import Halted
from kfm.model.gates import force_command
from kfm.model.quantities import moment, short_id
from kfm.model.quarantine import Approval, QuarantineEntry, RetryState
from kfm.model.records import GateResult, Record, Run
from kfm.model.requests import TOGETHER
from kfm.model.retry_budgets import (
    CIRCUIT_OPEN,
    DEFAULTS,
    NEEDS_APPROVAL,
    RetryLimits,
    is_spent,
    may_be_granted,
)
from kfm.model.times import is_all_time, rfc3339
from kfm.model.units import replay_command

StepCode = Literal[
    "take-over",
    "approve",
    "request-approval",
    "release",
    "replay",
    "lift",
    "correct",
    "retry",
    "answer",
    "force",
]


AGAIN = "Run the same work again"


class NextStep(Record, frozen=True):
    """What to do next: a code for programs, a sentence for readers, the command."""

    code: StepCode
    sentence: str  # without the command
    command: str

    @property
    def line(self) -> str:
        """All of it in one line."""
        return f"{self.sentence}: `{self.command}`."


def run_command(source_id: str, start_ms: int, end_ms: int) -> str:
    """The command that asks for one window of a source."""
    if is_all_time(start_ms, end_ms):
        return f"kfm run --source {source_id}"
    return f"kfm run --source {source_id} --window {window_text(start_ms, end_ms)}"


def window_text(start_ms: int, end_ms: int) -> str:
    """A window as commands take it; of a source without windows `none`."""
    return "none" if is_all_time(start_ms, end_ms) else f"{rfc3339(start_ms)}/{rfc3339(end_ms)}"


def work_command(run: Run) -> str:
    """The command that asks for exactly this run's work."""
    return run_command(run.source_id, run.window_start_ms, run.window_end_ms)


def now_command(command: str) -> str:
    """The command of a person who answers for an attempt that a machine may not make."""
    return f"{command} --now --rationale TEXT"


def approve_command(request_id: str) -> str:
    """The command with which another person approves a request."""
    return f"kfm approvals approve {request_id} --rationale TEXT"


def run_step(
    run: Run,
    *,
    state: RetryState | None = None,
    held: QuarantineEntry | None = None,
    approval: Approval | None = None,
    attempt: Approval | None = None,
    blocker: GateResult | None = None,
    now_ms: int,
    limits: RetryLimits = DEFAULTS,
) -> NextStep | None:
    """Of one run; None: nothing has to be done.

    `held`: its entry in quarantine, if there is one; `approval`: the request for its release that waits;
    `attempt`: the request for another attempt at work that needs an approval, waiting or approved;
    `blocker`: the gate that refused it.
    """
    if run.status == "success":
        return None
    command = work_command(run)
    if run.status == "running":
        return NextStep(
            code="take-over", sentence="Should its process be gone, take it over", command=command
        )
    spent = is_spent(run, state, now_ms, limits)
    if held is not None and (approval is not None or spent or held.error_code == Halted.code):
        return held_step(held, approval)
    if blocker is not None and blocker.command:
        return _lifting(blocker, command)
    judged = state if state is not None and state.attempt == run.attempts else None
    if judged is not None and judged.reason == NEEDS_APPROVAL:
        return _approving(run, attempt)
    if judged is not None and judged.reason == TOGETHER and held is None:
        again = f"kfm run --missing --source {run.source_id} --together"
        return NextStep(
            code="retry", sentence="Ask for all the windows that it is published with again", command=again
        )
    if judged is not None and judged.fate == "retry":
        return _promised(judged, command, now_ms)
    if held is not None:
        return _correcting(judged, command)
    if not spent:
        return NextStep(code="retry", sentence=AGAIN, command=command)
    if may_be_granted(run, state, limits):
        sentence = "Its retry budget is used up; run it again with a rationale and a ticket"
        return NextStep(code="answer", sentence=sentence, command=f"{command} --rationale TEXT --ticket ID")
    return NextStep(
        code="force",
        sentence="Its last grant is used up; only a new revision goes on",
        command=force_command(command),
    )


def _lifting(blocker: GateResult, command: str) -> NextStep:
    if blocker.gate == "freeze":  # old rows have no command that can be run
        sentence = "Run it after the freeze, or pass the freeze with a force"
        return NextStep(code="lift", sentence=sentence, command=force_command(command))
    sentence = f"Lift what refused it (gate {blocker.gate}), then run the same work again"
    return NextStep(code="lift", sentence=sentence, command=blocker.command or command)


def _approving(run: Run, attempt: Approval | None) -> NextStep:
    """Each attempt needs its own approval."""
    if attempt is None:
        sentence = "Request another approval, then run the same work again"
        command = f"kfm approvals request --run {short_id(run.run_id)} --rationale TEXT"
        return NextStep(code="request-approval", sentence=sentence, command=command)
    if attempt.state == "requested":
        sentence = "Another attempt was requested; another person approves it"
        return NextStep(code="approve", sentence=sentence, command=approve_command(attempt.request_id))
    sentence = "Another attempt was approved; run the same work again"
    return NextStep(code="retry", sentence=sentence, command=work_command(run))


def _correcting(state: RetryState | None, command: str) -> NextStep:
    """What may have acted outside is repeated only if a person answers for it."""
    if state is not None and state.reason in ("not-idempotent", "acted"):
        sentence = "See what the attempt has done outside, then run the same work again"
        return NextStep(code="correct", sentence=sentence, command=now_command(command))
    sentence = "Correct the cause, then run the same work again"
    return NextStep(code="correct", sentence=sentence, command=command)


def _promised(state: RetryState, command: str, now_ms: int) -> NextStep:
    """Its next attempt is made by itself. A person may be earlier, unless its provider refuses calls."""
    reasons = {
        CIRCUIT_OPEN: "Its provider's circuit is open",
        "retry-after": "Its provider is not to be called",
    }
    at_ms, why = state.not_before_ms or 0, reasons.get(state.reason)
    if at_ms <= now_ms:
        return NextStep(code="retry", sentence=AGAIN, command=command)
    if why is not None:
        sentence = f"{why} until {moment(at_ms)}, then it is tried again; a person may run it after that"
        return NextStep(code="retry", sentence=sentence, command=command)
    sentence = f"It is tried again at {moment(at_ms)}; a person may start it now"
    return NextStep(code="retry", sentence=sentence, command=now_command(command))


def held_step(
    held: QuarantineEntry, approval: Approval | None = None, *, grants_left: bool = True
) -> NextStep | None:
    """Of one entry in quarantine, where its run says no more; None: it is held no longer.

    `grants_left`: of a unit, whether a replay may grant it attempts.
    """
    if held.state != "held":
        return None
    if approval is not None:
        sentence = "Its release was requested; another person approves it"
        return NextStep(code="approve", sentence=sentence, command=approve_command(approval.request_id))
    if held.grain == "unit":
        status = "failed" if held.kind == "dead-letter" else "quarantined"
        return unit_step(held.subject, status, grants_left=grants_left)
    command = f"kfm quarantine resume {short_id(held.held_id)} --rationale TEXT"
    sentence = "Request its release; another person approves it"
    return NextStep(code="release", sentence=sentence, command=command)


GRANTS_USED = (
    "Its grants are used up: raise `grants` under `retry` of its policy in `ingest.policies`, then bring the "
    "unit back by a replay"
)


def unit_step(wal_id: str, status: str, *, grants_left: bool = True) -> NextStep:
    """Of a unit that failed or is quarantined."""
    sentence = "Bring the unit back by a replay" if grants_left else GRANTS_USED
    return NextStep(code="replay", sentence=sentence, command=replay_command(wal_id, status))
