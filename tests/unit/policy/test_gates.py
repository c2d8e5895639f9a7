"""Properties of gate decisions that no example can prove."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.errors import (
    ContractViolated,
    GateDenied,
    Halted,
    RationaleRequired,
    RightsMissing,
    SwitchThrown,
)
from kfm.model.gates import (
    OVERRIDABLE_GATES,
    ForceRequest,
    GateDecision,
    combine,
    freeze_gate,
    refusal,
    switch_gate,
)
from kfm.model.records import GateResult, Switch
from kfm.model.settings import Freeze

NEVER = (
    "care",
    "sovereignty",
    "switch",
    "signature",
    "lock",
    "fence",
    "schema",
    "contract",
    "licence",
    "rights",
)
FORCE = ForceRequest(actor="ann", rationale="late correction", ticket="T-1")

results = st.builds(
    GateResult,
    gate=st.sampled_from([*NEVER, *sorted(OVERRIDABLE_GATES), "policy", "plan", "plugin"]),
    allowed=st.booleans(),
    reason=st.just("because."),
    overridable=st.booleans(),
    halts=st.booleans(),
)
switches = st.builds(
    Switch,
    scope=st.sampled_from(["all", "domain:h", "dataset:d", "domain:x", "dataset:x"]),
    position=st.sampled_from(["running", "paused", "stopped"]),
    rationale=st.text(max_size=20),
    actor=st.text(max_size=10),
    set_at_ms=st.integers(0, 10),
)


@pytest.mark.req("UPD-10")
@given(st.lists(results, max_size=8))
def test_no_force_passes_a_gate_that_is_not_overridable(answers: list[GateResult]) -> None:
    """Whatever stands beside it, a denial that may not be overridden stays a denial under force."""
    decision = combine(answers, FORCE)
    hard = [
        result
        for result in answers
        if not result.allowed
        and (result.gate not in OVERRIDABLE_GATES or not result.overridable or result.halts)
    ]
    assert decision.allowed is (not hard)
    assert all(result.gate in OVERRIDABLE_GATES for result in decision.results if result.overridden)
    if hard:
        assert decision.first_blocker is not None
        assert decision.first_blocker in hard
        assert decision.overridden == ()


@pytest.mark.req("UPD-9")
@given(st.lists(results, max_size=8))
def test_without_a_force_every_denial_blocks(answers: list[GateResult]) -> None:
    """One denial is enough, halting is reported, and the blocker is one of the denials."""
    decision = combine(answers)
    denied = [result for result in answers if not result.allowed]
    assert decision.allowed is (not denied)
    assert decision.results == tuple(answers)
    assert decision.halts is any(result.halts for result in denied)
    assert (decision.first_blocker in denied) if denied else (decision.first_blocker is None)


@pytest.mark.req("UPD-10")
@pytest.mark.parametrize("missing", ["actor", "rationale", "ticket"])
def test_a_force_answers_for_itself(missing: str) -> None:
    """A force without actor, rationale or ticket is refused even where no gate refuses."""
    given_fields = {"actor": "ann", "rationale": "why", "ticket": "T-1", missing: " "}
    with pytest.raises(RationaleRequired):
        combine([], ForceRequest(**given_fields))


@pytest.mark.req("GOV-1")
@given(st.lists(switches, max_size=8), st.booleans())
def test_throwing_a_switch_never_opens_a_gate(thrown: list[Switch], in_flight: bool) -> None:
    """A stop added later than all others always blocks; work in flight is never judged more strictly."""
    stop = Switch(scope="all", position="stopped", rationale="x", actor="ann", set_at_ms=11)
    assert not switch_gate([*thrown, stop], "d", "h", in_flight).allowed
    if switch_gate(thrown, "d", "h", in_flight=False).allowed:
        assert switch_gate(thrown, "d", "h", in_flight=True).allowed


@pytest.mark.req("GOV-1")
@given(st.lists(switches, max_size=6))
def test_the_order_of_switches_does_not_matter(thrown: list[Switch]) -> None:
    """The decision depends on what is set, not on the order in which the store lists it."""
    forward = switch_gate(thrown, "d", "h", in_flight=True).allowed
    assert switch_gate(thrown[::-1], "d", "h", in_flight=True).allowed is forward


@pytest.mark.req("UPD-9")
def test_a_freeze_date_is_read_in_the_given_zone() -> None:
    """A date begins at midnight in the zone that the caller names."""
    freeze = Freeze(start="2026-07-04", end="2026-07-05", reason="holiday")
    midnight_utc_ms = 1783123200000
    chicago = ZoneInfo("America/Chicago")
    assert not freeze_gate([freeze], "d", "h", midnight_utc_ms).allowed
    assert freeze_gate([freeze], "d", "h", midnight_utc_ms, chicago).allowed
    assert not freeze_gate([freeze], "d", "h", midnight_utc_ms + 5 * 3_600_000, chicago).allowed


@pytest.mark.req("RET-2", "UPD-9")
@pytest.mark.parametrize(
    ("gate", "halts", "in_flight", "kind"),
    [
        ("care", True, False, GateDenied),
        ("care", True, True, Halted),
        ("sovereignty", True, True, Halted),
        ("switch", False, True, SwitchThrown),
        ("rights", False, False, RightsMissing),
        ("contract", False, True, ContractViolated),
        ("licence", False, False, GateDenied),
    ],
)
def test_a_refusal_says_what_kind_it_is(gate: str, halts: bool, in_flight: bool, kind: type) -> None:
    """CARE and sovereignty are a refusal before the start and a halt afterwards; all exit with 3."""
    decision = combine([GateResult(gate=gate, allowed=False, reason="because.", halts=halts)])
    error = refusal(decision, in_flight=in_flight)
    assert type(error) is kind
    assert error.exit_code == 3
    assert "because." in error.message


def test_an_allowed_decision_has_no_refusal() -> None:
    """Asking for the error of an allowed decision is a mistake in the program."""
    with pytest.raises(ValueError, match="denied"):
        refusal(GateDecision(allowed=True, results=()))
