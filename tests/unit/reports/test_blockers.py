"""Blockers are found once, for status and for the console."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.breaker import Breaker
from kfm.model.next_steps import held_step
from kfm.model.quarantine import Approval, QuarantineEntry
from kfm.model.records import GateResult, Invocation, Switch
from kfm.model.settings import DatasetSettings, Freeze, Settings
from kfm.reports.blockers import APPROVER, blockers, failures, open_circuits, switched
from tests.unit.model.test_next_steps import ASKED, HELD

NOW_MS = 1_794_823_468_000
SETTINGS = Settings(environment="test", datasets=(DatasetSettings(id="burials", domain="heritage"),))
CARE = GateResult(
    gate="care",
    allowed=False,
    halts=True,
    policy_ids=("care.restricted-needs-approval",),
    reason="Words for readers.",
    code="rule",
    cause="The dataset's CARE level is restricted, and no approval of this attempt is recorded.",
    remedy="Ask with `kfm approvals request --source mound --window W --rationale TEXT`.",
    command="kfm approvals request --source mound --window W --rationale TEXT",
)
OLD = GateResult(gate="care", allowed=False, policy_ids=("care.x",), reason="Not so. Ask with `kfm request`.")
THROWN = GateResult(gate="switch", allowed=False, reason="Everything is paused.")
CALL = Invocation(
    invocation_id="01a1e3d0-8e4c-7a07-ae85-1da94118b91a",
    run_id=None,
    source_id="mound",
    dataset_id="burials",
    trigger_type="manual",
    idempotency_key="sha256:" + "0" * 64,
    outcome="refused",
    actor="ann",
    requested_at_ms=NOW_MS - 1000,
    gates=(CARE,),
)
SWITCH = Switch(scope="all", position="paused", rationale="repairs", actor="ann", set_at_ms=NOW_MS - 5000)


class Ledger:
    """What of a ledger is looked at here."""

    halt: QuarantineEntry | None = None

    def __init__(self, *calls: Invocation, switches: tuple[Switch, ...] = (), asked: tuple[Any, ...] = ()):
        self._calls, self._switches, self._asked = calls, switches, asked

    def newest_invocation(self, dataset_id: str) -> Invocation | None:
        return next((call for call in self._calls if call.dataset_id == dataset_id), None)

    def switches(self) -> list[Switch]:
        return list(self._switches)

    def approvals(self, **_: Any) -> list[Any]:
        return list(self._asked)

    def breakers(self) -> list[Any]:
        return []

    def halted(self, _dataset_id: str) -> QuarantineEntry | None:
        return self.halt

    def run(self, _run_id: str) -> None:
        return None

    def runs(self, **_: Any) -> list[Any]:
        return []


def found(ledger: Ledger, settings: Settings = SETTINGS) -> list[Any]:
    return blockers(settings, ledger, NOW_MS)  # type: ignore[arg-type]


@pytest.mark.req("RS-12")
def test_a_refusal_that_was_not_lifted_stands() -> None:
    """By what, since when, who can lift it and the command; the rule is named, the command told once."""
    (only,) = found(Ledger(CALL))
    assert only.kind == "refusal"
    assert only.what == "dataset burials"
    assert only.why == (
        "The dataset's CARE level is restricted, and no approval of this attempt is recorded "
        "(care.restricted-needs-approval)."
    )
    assert only.since_ms == CALL.requested_at_ms
    assert only.who == "one person requests it, another approves"
    assert only.command == "kfm approvals request --source mound --window W --rationale TEXT"


def test_a_refusal_of_an_old_row() -> None:
    """It has a sentence only: that is why, and the explanation has the rest."""
    (only,) = found(Ledger(replace(CALL, gates=(OLD,))))
    assert only.why == "Not so. Ask with `kfm request` (care.x)."
    assert only.command == "kfm explain 01a1e3d0-8e4c-7a07-ae85"


def test_once_it_was_asked_for_the_command_approves() -> None:
    """The next reader is told to approve, not to ask again."""
    asked = Approval(
        request_id="01a1",
        kind="attempt",
        subject="sha256:1",
        digest="sha256:2",
        requested_by="ann",
        requested_at_ms=NOW_MS,
        rationale="the council has met",
        dataset_id="burials",
    )
    (only,) = found(Ledger(CALL, asked=(asked,)))
    assert only.command == "kfm approvals approve 01a1 --rationale TEXT"
    (other,) = found(Ledger(CALL, asked=(replace(asked, dataset_id="wells"),)))
    assert other.command.startswith("kfm approvals request")


def test_a_halt_has_the_step_of_its_entry() -> None:
    """Its release is requested; once that was done, another person approves it."""
    ledger = Ledger()
    ledger.halt = HELD
    (only,) = found(ledger)
    assert only.command == held_step(HELD).command  # type: ignore[union-attr]
    assert only.command.startswith("kfm quarantine resume ")
    ledger = Ledger(asked=(ASKED,))
    ledger.halt = HELD
    (only,) = found(ledger)
    assert (only.command, only.who) == (held_step(HELD, ASKED).command, APPROVER)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "calls",
    [
        (replace(CALL, outcome="success", gates=()), CALL),  # a later one passed
        (replace(CALL, run_id="01a1"),),  # its run tells of it
        (replace(CALL, gates=(THROWN,)),),  # the switch has been lifted since
        (replace(CALL, gates=(replace(CARE, gate="plan"),)),),  # that was about one plan
        (replace(CALL, gates=()),),
        (replace(CALL, dataset_id="gone"),),
    ],
)
def test_what_is_over_does_not_stand(calls: tuple[Invocation, ...]) -> None:
    """Only what would turn the next call away, too."""
    if len(calls) == 2:
        calls = (replace(calls[0], requested_at_ms=NOW_MS), calls[1])
    assert found(Ledger(*calls)) == []


def test_a_switch_is_told_once() -> None:
    """An invocation that a switch refused is no blocker beside the switch."""
    (only,) = found(Ledger(replace(CALL, gates=(THROWN,)), switches=(SWITCH,)))
    assert only.kind == "switch"
    assert only.command == "kfm switch set running --all --rationale TEXT"


def test_the_hardest_comes_first() -> None:
    """What stops before what pauses, everything before a part; then freezes, then what needs a consent."""
    part = replace(SWITCH, scope="domain:heritage")
    stop = replace(part, position="stopped")
    scopes = [each.what for each in switched([part, SWITCH, replace(stop, scope="dataset:x")])]
    assert scopes == ["dataset x", "everything", "domain heritage"]
    frozen = replace(SETTINGS, freezes=(Freeze(start="2020-01-01", end="2100-01-01", reason="winter"),))
    kinds = [each.kind for each in found(Ledger(CALL, switches=(SWITCH,)), frozen)]
    assert kinds == ["switch", "freeze", "refusal"]


def test_without_failures_nothing_else_is_read() -> None:
    """Where no run failed, no run is read."""
    nothing = SimpleNamespace(failed_runs=list)
    assert failures(nothing, SimpleNamespace()) == []  # type: ignore[arg-type]


def test_a_circuit_whose_wait_is_over_waits_for_a_call() -> None:
    """It is not tried at the second of looking, and that for days: the next call that comes does it."""
    open_one = Breaker(provider="airnow", state="open", failures=19, opened_at_ms=0, tripped_at_ms=0)
    (late,) = open_circuits(SETTINGS, [open_one], 3 * 86_400_000)
    assert "the next call tries it again" in late.why
