"""The next step: what a person does about a run that failed, was refused or is held. Pure.

One answer for every place that tells of such a run: `kfm run`, `status`, `explain`, `quarantine`, the API
and the console.
"""

from __future__ import annotations

from typing import Literal

from kfm.model.errors import Halted
from kfm.model.quantities import short_id
from kfm.model.quarantine import Approval, QuarantineEntry, RetryState
from kfm.model.records import GateResult, Record, Run
from kfm.model.retry_budgets import is_spent, may_be_granted
from kfm.model.times import rfc3339
from kfm.model.units import replay_command

StepCode = Literal["take-over", "approve", "release", "replay", "lift", "correct", "retry", "answer", "force"]


class NextStep(Record, frozen=True):
    """What to do next: a code for programs, a sentence for readers, the command."""

    code: StepCode
    sentence: str  # without the command
    command: str

    @property
    def line(self) -> str:
        """All of it in one line."""
        return f"{self.sentence}: `{self.command}`."


def work_command(run: Run) -> str:
    """The command that asks for exactly this run's work."""
    window = f"{rfc3339(run.window_start_ms)}/{rfc3339(run.window_end_ms)}"
    return f"kfm run --source {run.source_id} --window {window}"


def run_step(
    run: Run,
    *,
    state: RetryState | None = None,
    held: QuarantineEntry | None = None,
    approval: Approval | None = None,
    blocker: GateResult | None = None,
    now_ms: int,
) -> NextStep | None:
    """Of one run; None: nothing has to be done.

    `held`: its entry in quarantine, if there is one; `approval`: the request for its release that waits;
    `blocker`: the gate that refused it.
    """
    if run.status == "success":
        return None
    command = work_command(run)
    if run.status == "running":
        return NextStep(
            code="take-over", sentence="Should its process be gone, take it over", command=command
        )
    spent = is_spent(run, state, now_ms)
    if held is not None and (approval is not None or spent or held.error_code == Halted.code):
        return held_step(held, approval)
    if blocker is not None and blocker.command:
        sentence = f"Lift what refused it (gate {blocker.gate}), then run the same work again"
        return NextStep(code="lift", sentence=sentence, command=blocker.command)
    if held is not None:
        sentence = "Correct the cause, then run the same work again"
        return NextStep(code="correct", sentence=sentence, command=command)
    if not spent:
        return NextStep(code="retry", sentence="Run the same work again", command=command)
    if may_be_granted(run, state):
        sentence = "Its retry budget is used up; run it again with a rationale and a ticket"
        return NextStep(code="answer", sentence=sentence, command=f"{command} --rationale TEXT --ticket ID")
    return NextStep(
        code="force",
        sentence="Its last grant is used up; only a new revision goes on",
        command=f"{command} --force --rationale TEXT --ticket ID",
    )


def held_step(held: QuarantineEntry, approval: Approval | None = None) -> NextStep | None:
    """Of one entry in quarantine, where its run says no more; None: it is held no longer."""
    if held.state != "held":
        return None
    if approval is not None:
        command = f"kfm approvals approve {approval.request_id} --rationale TEXT"
        sentence = "Its release was requested; another person approves it"
        return NextStep(code="approve", sentence=sentence, command=command)
    if held.grain == "unit":
        status = "failed" if held.kind == "dead-letter" else "quarantined"
        command = replay_command(held.subject, status)
        return NextStep(code="replay", sentence="Bring the unit back by a replay", command=command)
    command = f"kfm quarantine resume {short_id(held.held_id)} --rationale TEXT"
    sentence = "Request its release; another person approves it"
    return NextStep(code="release", sentence=sentence, command=command)
