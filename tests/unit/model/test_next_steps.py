"""The next step follows from the facts, and from nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.gates import freeze_gate, switch_gate
from kfm.model.next_steps import held_step, run_step
from kfm.model.quarantine import Approval, QuarantineEntry, RetryState
from kfm.model.records import GateResult
from kfm.model.settings import Freeze
from tests.acceptance.cli.fakes import NOW_MS, RUN_ID, make_run, make_switch

FAILED = make_run(status="failed", attempts=1, error_code="KFM600", start_time_ms=NOW_MS - 1000)
SPENT = replace(FAILED, attempts=99)
HELD = QuarantineEntry(
    held_id="01a1e3d0-8e4c-7a07-ae85-1da94118b91a",
    kind="quarantine",
    grain="run",
    subject=RUN_ID,
    dataset_id="levels",
    source_id="daily",
    payload_hash=None,
    source_ids=(),
    code_sha="",
    idempotency_key="sha256:1",
    attempts=1,
    error_classes=("work",),
    error_code="KFM600",
    error_message="no",
    reason="non-retryable",
    held_at_ms=NOW_MS,
)
ASKED = Approval(
    request_id="01a1",
    kind="release",
    subject=HELD.held_id,
    digest="sha256:2",
    requested_by="ann",
    requested_at_ms=NOW_MS,
    rationale="repaired",
)
LAST_GRANT = RetryState(
    run_id=RUN_ID,
    attempt=99,
    grants=99,
    grant_attempts=99,
    granted_at_ms=NOW_MS - 1000,
    not_before_ms=None,
    fate="quarantine",
    error_class="work",
    reason="attempts-spent",
    updated_at_ms=NOW_MS,
)
FIRST = replace(LAST_GRANT, attempt=1, grants=1, grant_attempts=1, fate="spent")
APPROVED_ONCE = {"state": replace(FIRST, reason="needs-approval"), "held": HELD}
ATTEMPT = replace(ASKED, kind="attempt", subject="base:1")
FROZEN = freeze_gate([Freeze(start="2026-01-01", end="2026-01-03", reason="no")], "levels", "x", NOW_MS)
THROWN = switch_gate([make_switch()], "levels", "hydrology", in_flight=False)
OLD = GateResult(gate="switch", allowed=False, reason="Paused. Lift it with `kfm switch set running --all`.")


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize(
    ("facts", "code", "beginning"),
    [
        ({"run": replace(FAILED, status="running")}, "take-over", "kfm run --source daily --window "),
        ({}, "retry", "kfm run --source daily --window "),
        ({"held": HELD}, "correct", "kfm run --source daily --window "),
        ({"held": HELD, "approval": ASKED}, "approve", "kfm approvals approve 01a1 --rationale TEXT"),
        (
            {"held": replace(HELD, error_code="KFM302")},
            "release",
            "kfm quarantine resume 01a1e3d0-8e4c-7a07-ae85 ",
        ),
        ({"run": SPENT}, "answer", "kfm run --source daily --window "),
        ({"run": SPENT, "held": HELD}, "release", "kfm quarantine resume 01a1e3d0-8e4c-7a07-ae85 "),
        ({"run": SPENT, "state": LAST_GRANT}, "force", "kfm run --source daily --window "),
        ({"blocker": THROWN}, "lift", "kfm switch set running --dataset levels --rationale TEXT"),
        ({"blocker": FROZEN}, "lift", "kfm run --source daily --window 2"),
        (APPROVED_ONCE, "request-approval", "kfm approvals request --run "),
        ({**APPROVED_ONCE, "attempt": ATTEMPT}, "approve", "kfm approvals approve 01a1 --rationale TEXT"),
        ({**APPROVED_ONCE, "attempt": replace(ATTEMPT, state="approved")}, "retry", "kfm run --source daily"),
        ({**APPROVED_ONCE, "run": replace(FAILED, attempts=2)}, "correct", "kfm run --source daily"),
        ({"blocker": OLD}, "retry", "kfm run --source daily --window "),  # its sentence is not read
    ],
)
def test_the_step_of_a_run(facts: dict[str, Any], code: str, beginning: str) -> None:
    """Each state has one step with its command."""
    step = run_step(**{"run": FAILED, "now_ms": NOW_MS, **facts})
    assert step is not None
    assert step.code == code
    assert step.command.startswith(beginning)
    assert step.line == f"{step.sentence}: `{step.command}`."
    assert "…" not in step.command


PROMISED = replace(FIRST, fate="retry", reason="retry", not_before_ms=NOW_MS + 60_000)
NOW = " --now --rationale TEXT"


@pytest.mark.req("CLI-1", "TRG-1")
@pytest.mark.parametrize(
    ("state", "beginning", "ending"),
    [
        (PROMISED, "It is tried again at ", NOW),
        (replace(PROMISED, reason="next-run"), "It is tried again at ", NOW),
        (replace(PROMISED, reason="retry-after"), "Its provider is not to be called until ", "Z"),
        (replace(PROMISED, reason="circuit-open"), "Its provider's circuit is open until ", "Z"),
        (replace(PROMISED, not_before_ms=NOW_MS), "Run the same work again", "Z"),
        (replace(PROMISED, granted_at_ms=1), "It is tried again at ", NOW),  # its time is over
    ],
)
def test_a_promised_attempt_is_told(state: RetryState, beginning: str, ending: str) -> None:
    """When it is made by itself; a person may be earlier, unless its provider refuses calls."""
    step = run_step(FAILED, state=state, now_ms=NOW_MS)
    assert step is not None
    assert (step.code, step.sentence.startswith(beginning)) == ("retry", True), step
    assert step.command.endswith(ending)


@pytest.mark.req("CLI-1", "RET-1")
@pytest.mark.parametrize("reason", ["acted", "not-idempotent"])
def test_a_person_answers_for_what_may_have_acted(reason: str) -> None:
    """The command says so, and has a place for the reason."""
    step = run_step(FAILED, state=replace(FIRST, reason=reason), held=HELD, now_ms=NOW_MS)
    assert step is not None
    assert (step.code, step.command.endswith(NOW)) == ("correct", True)
    assert step.sentence.startswith("See what the attempt has done outside")


def test_what_is_done_needs_no_step() -> None:
    """Neither does a run that succeeded, nor an entry that was released."""
    assert run_step(make_run(), now_ms=NOW_MS) is None
    assert held_step(replace(HELD, state="released")) is None


def test_a_unit_comes_back_by_a_replay() -> None:
    """It is not released."""
    step = held_step(replace(HELD, grain="unit", subject="w-1"))
    assert step is not None
    assert (step.code, "kfm replay run --unit w-1" in step.command) == ("replay", True)
