"""Whether work may start: one decision for every starter, whatever the facts are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.model.admission import Asked, CircuitWait, StartDecision, StartFacts, may_start
from kfm.model.gates import GateDecision
from kfm.model.quarantine import RetryState
from kfm.model.records import GateResult, Run, Trigger

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
OPEN = GateDecision(allowed=True, results=())
FINGERPRINTS = ("sha256:a", "sha256:b")

TRIGGER = Trigger(type="webhook", source_id="notes", dataset_id="levels", actor="ada")
RUN = Run(
    run_id="11111111-1111-8111-8111-111111111111",
    source_id="notes",
    dataset_id="levels",
    pipeline_id="notes",
    idempotency_key="sha256:k",
    work_key="sha256:w",
    work_base="sha256:base",
    revision=0,
    trigger_type="webhook",
    window_spec="P1D",
    window_start_ms=0,
    window_end_ms=86_400_000,
    partition=None,
    pipeline_version="1",
    status="failed",
    attempts=1,
    fence=1,
    start_time_ms=NOW_MS - HOUR_MS,
    error_code="KFM607",
)


def blocker(gate: str) -> GateDecision:
    result = GateResult(gate=gate, allowed=False, reason="No.", until_ms=NOW_MS + HOUR_MS)
    return GateDecision(allowed=False, results=(result,), first_blocker=result)


gates = st.sampled_from([OPEN, *(blocker(gate) for gate in ("switch", "freeze", "rights", "care"))])
triggers = st.builds(
    lambda rationale, ticket, correction, force: replace(
        TRIGGER, rationale=rationale, ticket=ticket, correction=correction, force=force
    ),
    st.sampled_from([None, "mended"]),
    st.sampled_from([None, "T-1"]),
    st.sampled_from([None, "c1"]),
    st.sampled_from([0, 0, 0, 1]),
)
asking = st.builds(
    Asked,
    trigger=triggers,
    name=st.sampled_from(["a", "b"]),
    by_person=st.booleans(),
    can_wait=st.booleans(),
    plan=st.sampled_from([None, "sha256:plan"]),
    promised=st.booleans(),
)
runs = st.none() | st.builds(
    lambda status, attempts, correction, dataset: replace(
        RUN,
        status=status,
        attempts=attempts,
        correction=correction,
        dataset_id=dataset,
        fingerprint=FINGERPRINTS[0] if status == "success" else None,
    ),
    st.sampled_from(["failed", "failed", "running", "success"]),
    st.integers(1, 9),
    st.sampled_from([None, "c1"]),
    st.sampled_from(["levels", "levels", "levels", "others"]),
)
states = st.none() | st.builds(
    RetryState,
    run_id=st.just(RUN.run_id),
    attempt=st.integers(1, 9),
    grants=st.integers(1, 6),
    grant_attempts=st.integers(0, 9),
    granted_at_ms=st.sampled_from([NOW_MS - 30 * HOUR_MS, NOW_MS - HOUR_MS, NOW_MS - 1]),
    not_before_ms=st.sampled_from([None, NOW_MS - 1, NOW_MS, NOW_MS + HOUR_MS]),
    fate=st.sampled_from(["retry", "spent", "quarantine"]),
    error_class=st.just("timeout"),
    reason=st.sampled_from(["retry", "retry-after", "circuit-open", "granted", "stopped", "attempts-spent"]),
    updated_at_ms=st.just(NOW_MS - 1),
    fingerprint=st.sampled_from([None, *FINGERPRINTS]),
    day_grants=st.integers(0, 13),
)
knowing = st.builds(
    StartFacts,
    gates=gates,
    is_live=st.booleans(),
    state=states,
    acts=st.sampled_from([(), (), ("send",)]),
    idempotent=st.booleans(),
    bound=st.sampled_from([None, None, "sha256:plan", "sha256:other"]),
    fingerprint=st.sampled_from([None, *FINGERPRINTS]),
    circuit=st.none() | st.just(CircuitWait(provider="gauges", until_ms=NOW_MS + HOUR_MS)),
    next_run_ms=st.sampled_from([None, NOW_MS + HOUR_MS]),
)


def judged(run: Run | None, facts: StartFacts) -> RetryState | None:
    """What was decided about the run's last attempt, where it has failed."""
    state = facts.state
    return state if run is not None and state is not None and state.attempt == run.attempts else None


def restarts(decision: StartDecision) -> bool:
    return decision.kind == "admitted" and decision.how == "restart"


@given(asking, runs, knowing)
@pytest.mark.req("UPD-2")
def test_an_answer_says_what_follows_from_it(asked: Asked, run: Run | None, facts: StartFacts) -> None:
    """What waits names a time ahead and what blocks it, what is refused names what blocks it; the rest
    names neither."""
    decision = may_start(asked, run, facts, NOW_MS)
    assert decision.reason
    assert (decision.until_ms > NOW_MS) == (decision.kind == "waits")
    assert bool(decision.blocked_by) == (decision.kind in ("waits", "refused"))
    assert decision.how == "start" or run is not None
    assert not decision.grant or restarts(decision)


@given(asking, runs, knowing)
@pytest.mark.req("GOV-1", "RET-7")
def test_nothing_starts_past_a_gate_or_a_circuit(asked: Asked, run: Run | None, facts: StartFacts) -> None:
    """No gate is passed, and no provider with an open circuit is asked, not even for its fingerprint."""
    decision = may_start(asked, run, facts, NOW_MS)
    if decision.kind in ("admitted", "compare"):
        assert facts.gates.allowed
        assert facts.circuit is None
    if not facts.gates.allowed and asked.can_wait and facts.gates.first_blocker is not None:
        waited_for = facts.gates.first_blocker.gate in ("switch", "freeze")
        is_busy = run is not None and run.status == "running" and facts.is_live
        assert decision.kind == ("busy" if is_busy else "waits" if waited_for else "refused")


@given(asking, runs, knowing)
@pytest.mark.req("RET-6")
def test_an_act_is_not_repeated_without_a_person(asked: Asked, run: Run | None, facts: StartFacts) -> None:
    """A run that may have acted outside is begun again only where a person answers with a reason: who asks,
    or two who have released it."""
    decision = may_start(asked, run, facts, NOW_MS)
    state = judged(run, facts)
    released = state is not None and state.reason == "granted"
    person = asked.by_person and not asked.promised
    # Nor is the next revision of a run that is bound to another plan a way around it.
    opened = decision.kind == "admitted" and decision.code == "bound"
    if (restarts(decision) and not released) or opened:
        assert not facts.acts or (person and asked.trigger.rationale)
        assert facts.idempotent or person


@given(asking, runs, knowing)
@pytest.mark.req("TRG-3", "RET-5")
def test_a_machine_waits_for_its_time(asked: Asked, run: Run | None, facts: StartFacts) -> None:
    """Before the time of a promised attempt only a person begins it; from then on it is made."""
    decision, state = may_start(asked, run, facts, NOW_MS), judged(run, facts)
    if state is None or state.fate != "retry" or state.reason == "stopped":
        return
    person = asked.by_person and not asked.promised
    if restarts(decision):
        assert person or (state.not_before_ms or 0) <= NOW_MS
    plain = replace(facts, gates=OPEN, circuit=None, acts=(), idempotent=True, bound=None, next_run_ms=None)
    plain = replace(plain, is_live=False)
    again = run is not None and run.status == "failed" and run.dataset_id == "levels"
    if again and not asked.trigger.force and asked.trigger.correction is None:
        due = (state.not_before_ms or 0) <= NOW_MS
        assert restarts(may_start(asked, run, plain, NOW_MS)) == (due or person)


@given(asking, runs, knowing)
@pytest.mark.req("RET-2", "TRG-7")
def test_a_machine_leaves_quarantined_inputs(asked: Asked, run: Run | None, facts: StartFacts) -> None:
    """What was given up is tried again by a machine only at other inputs, with a new grant."""
    decision, state = may_start(asked, run, facts, NOW_MS), judged(run, facts)
    person = asked.by_person and not asked.promised
    if restarts(decision) and not person and state is not None:
        given_up = state.fate != "retry" and state.reason != "stopped"
        if given_up:
            assert facts.fingerprint not in (None, state.fingerprint)
            assert decision.grant == "inputs"


@given(asking, runs, knowing)
@pytest.mark.req("TRG-4")
def test_a_plan_binds_every_attempt(asked: Asked, run: Run | None, facts: StartFacts) -> None:
    """A run that is bound to a plan is begun again with that plan only."""
    decision = may_start(asked, run, facts, NOW_MS)
    if restarts(decision):
        assert facts.bound in (None, asked.plan)


@given(asking, runs, knowing)
@pytest.mark.req("UPD-2")
def test_who_runs_is_not_disturbed(asked: Asked, run: Run | None, facts: StartFacts) -> None:
    """The same work never runs twice at a time."""
    if run is not None and run.status == "running" and facts.is_live:
        assert may_start(asked, run, facts, NOW_MS).kind == "busy"


@given(asking, runs, knowing)
@pytest.mark.req("GOV-3")
def test_a_person_may_what_a_machine_may(asked: Asked, run: Run | None, facts: StartFacts) -> None:
    """No rule holds a person back that lets a machine pass."""
    machine = may_start(replace(asked, by_person=False, promised=False), run, facts, NOW_MS)
    person = may_start(replace(asked, by_person=True, promised=False), run, facts, NOW_MS)
    if machine.kind == "admitted":
        assert person.kind == "admitted"
