"""A refusal names what it is blocked by, who can unblock it, and how."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.model.gates import combine, contract_gate, denied, freeze_gate, refusal, rights_gate, switch_gate
from kfm.model.records import Check, GateResult, GovernanceEntry, ValidationReport
from kfm.model.runs import ChainLink
from kfm.model.settings import DatasetSettings, Freeze
from kfm.reports.explain.invocations import blocker_text, refusals, unblocking
from tests.acceptance.cli.fakes import NOW_MS, FakeLedger, make_call, make_switch

pytestmark = pytest.mark.req("RS-12", "CLI-1")

BUNDLE = "sha256:" + "5" * 64
TEXT = '@id("care.x")\n@lift("A reviewer approves it with `kfm approve`.")\nforbid (principal, action, r);'


def rule(gate: str) -> GateResult:
    remedy, ids = "A reviewer approves it with `kfm approve`.", ("care.x",)
    return denied(gate, "rule", "Not allowed.", remedy=remedy, command="kfm approve", policy_ids=ids)


def old(gate: str, **more: Any) -> GateResult:
    """As an earlier version stored it: a sentence, and nothing else that says why."""
    said = "levels: Not allowed. A reviewer approves it with `kfm approve`."
    return GateResult(gate=gate, allowed=False, **{"reason": said, "policy_ids": ("care.x",), **more})


def test_a_switch():
    """The operator, and the command that lifts it."""
    said = blocker_text(switch_gate([make_switch()], "levels", "hydrology", in_flight=False))
    assert "paused since 2026-01-01T23:59:00Z by ana: the gauge is broken." in said
    assert "To unblock: An operator lifts it" in said
    assert "`kfm switch set running --dataset levels --rationale TEXT`" in said
    assert said.count("kfm switch set") == 1


def test_a_freeze():
    """When it ends by itself, and how an operator passes it before."""
    freeze = Freeze(start="2026-01-01", end="2026-01-03", reason="holidays")
    said = blocker_text(freeze_gate([freeze], "levels", "hydrology", NOW_MS))
    assert "Unblocked after 2026-01-03T00:00:00Z. To override: " in said
    assert "--force --rationale TEXT --ticket ID" in said


def test_missing_rights():
    """Missing rights name the person who keeps the configuration, and the command that names the file."""
    said = blocker_text(rights_gate(DatasetSettings(id="levels")))
    assert "declares no rights.license and no rights.care.label" in said
    assert "To unblock: " in said
    assert "`kfm config show --origin`" in said


def test_a_broken_contract():
    """The failing check, and who corrects what."""
    report = ValidationReport(checks=(Check(name="unique:id", passed=False, detail="2 rows are alike"),))
    said = blocker_text(contract_gate(report))
    assert "1 of 1 check failed: unique:id: 2 rows are alike." in said
    assert "To unblock: Fix the data or the contract" in said


@pytest.mark.parametrize(
    ("gate", "who"),
    [
        ("care", "the community decides otherwise or a reviewer approves"),
        ("sovereignty", "the authority that the rights name grants its consent"),
        ("licence", "name an open licence in rights.license"),
        ("policy", "do what the rule asks for, or change the policy"),
    ],
)
def test_a_rule_of_an_old_row(gate, who):
    """Who can lift it is still said, for each kind of gate."""
    assert who in unblocking(old(gate))


def test_a_rule_with_its_own_way_out():
    """What the rule says is told once, in its own words."""
    said = blocker_text(rule("care"))
    assert said == ("Rule care.x: Not allowed. To unblock: A reviewer approves it with `kfm approve`.")


@pytest.mark.parametrize("gate", ["switch", "freeze", "rights", "contract"])
def test_an_old_row_is_explained(gate: str) -> None:
    """A row with a sentence only: all of it is the cause, and what lifts such a gate is said in general."""
    sentence = "Frozen from X to Y: holidays. An operator lifts it with `kfm run`."
    said = blocker_text(old(gate, reason=sentence, policy_ids=()))
    assert said.startswith(f"{sentence} To unblock: ")


def test_a_reworded_sentence_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explanations and errors are made of the facts: the stored sentence may say anything."""

    def told() -> list[str]:
        report = ValidationReport(checks=(Check(name="unique:id", passed=False, detail="2 rows"),))
        freeze = Freeze(start="2026-01-01", end="2026-01-03", reason="holidays")
        gates = [
            switch_gate([make_switch()], "levels", "hydrology", in_flight=False),
            freeze_gate([freeze], "levels", "hydrology", NOW_MS),
            rights_gate(DatasetSettings(id="levels")),
            contract_gate(report),
            rule("care"),
        ]
        errors = [refusal(combine([gate])) for gate in gates]
        return [*map(blocker_text, gates), *(f"{each.message} {each.way_out}" for each in errors)]

    before = told()
    monkeypatch.setattr("kfm.model.gates.gate_sentence", lambda *_: "Lorem ipsum to 2099: `kfm nonsense`.")
    assert told() == before


def test_a_gate_that_says_nothing():
    """Nothing is made up."""
    said = unblocking(GateResult(gate="custom", allowed=False, reason="no"))
    assert said == "No evidence of what would unblock it."


def link(**details: str) -> ChainLink:
    entry = GovernanceEntry(
        kind="gate-refused", subject="levels", actor="ana", recorded_at_ms=NOW_MS, details=details
    )
    return ChainLink(number=1, entry=entry, previous="0" * 64, hash="1" * 64)


def test_the_text_of_the_policy_that_was_in_force():
    """With its bundle as the record; where text or bundle are lost, that is said."""
    call = make_call(outcome="refused", gates=(rule("care"),))
    ledger = FakeLedger(policies={BUNDLE: {"care.x": TEXT}})
    *_, last = refusals(ledger, call, [link(invocation_id="call-1", policies=BUNDLE)])
    assert last.text.startswith('Policy care.x says: @id("care.x") @lift(')
    assert (last.record.type, last.record.id) == ("policy", f"{BUNDLE}/care.x")
    for kept in ({}, {BUNDLE: {"care.other": TEXT}}):
        *_, lost = refusals(FakeLedger(policies=kept), call, [link(invocation_id="call-1", policies=BUNDLE)])
        assert lost.text == "The text of policy care.x is not kept."
    *_, unknown = refusals(ledger, call, [link(invocation_id="another", policies=BUNDLE)])
    assert unknown.text.startswith("No evidence of which text policy care.x had")
