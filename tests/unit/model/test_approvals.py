"""Approvals: whether one holds, and for whom."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfm.model.admission import Asked, StartFacts, is_answered
from kfm.model.approvals import holds, standing
from kfm.model.gates import GateDecision
from kfm.model.quarantine import Approval
from kfm.model.records import Trigger
from kfm.model.settings import PersonSettings, SourceSettings

pytestmark = pytest.mark.req("DAT-9")

NOW_MS = 1_000_000
TERMS = "sha256:terms"
GIVEN = Approval(
    request_id="a",
    kind="standing",
    subject="notes",
    digest=TERMS,
    requested_by="source:notes",
    requested_at_ms=1,
    rationale="agreed",
    state="approved",
    approved_by="bob",
    approved_at_ms=1,
    expires_at_ms=NOW_MS + 1,
)
SOURCE = SourceSettings(id="notes", dataset="levels", kind="files")
BOB = PersonSettings(subject="bob", roles=("approve",), accounts=("bob-os",))


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({}, True),
        ({"expires_at_ms": NOW_MS}, False),
        ({"digest": "sha256:other"}, False),
        ({"revoked_at_ms": 5}, False),
        ({"used_at_ms": 5}, True),
        ({"kind": "attempt"}, True),
        ({"kind": "attempt", "used_at_ms": 5}, False),
        ({"kind": "update", "terms": TERMS}, True),
        ({"kind": "update", "terms": None}, False),
        ({"kind": "update", "terms": TERMS, "expires_at_ms": NOW_MS}, False),
        ({"kind": "update", "terms": TERMS, "expires_at_ms": NOW_MS, "used_at_ms": 5}, True),
        ({"kind": "update", "terms": TERMS, "superseded_by": "b"}, False),
    ],
)
def test_when_an_approval_holds(changes: dict[str, object], held: bool) -> None:
    """One attempt uses it up, one preview every attempt of its request, and a standing one until its date."""
    assert holds(replace(GIVEN, **changes), TERMS, NOW_MS) == held


@pytest.mark.parametrize(
    ("asks", "people", "counts"),
    [
        (("ann",), (BOB,), True),
        (("bob",), (BOB,), False),
        (("bob-os",), (BOB,), False),
        (("ann",), (), False),
        (("ann",), (replace(BOB, roles=("operate",)),), False),
    ],
)
def test_for_whom_a_standing_approval_counts(
    asks: tuple[str, ...], people: tuple[PersonSettings, ...], counts: bool
) -> None:
    """Not for its giver, under any name; not once the giver is declared no more, or approves no more."""
    found = standing([GIVEN], TERMS, NOW_MS, source=SOURCE, people=people, asks=asks)
    assert (found is not None) == counts


@pytest.mark.parametrize(("unattended", "answered"), [(False, True), (True, False)])
def test_only_an_approval_of_one_attempt_answers_for_it(unattended: bool, answered: bool) -> None:
    """A standing approval, or one of a preview, lets no machine pass a time or a quarantine."""
    gates = GateDecision(allowed=True, results=(), approval=("a", TERMS))
    gates = replace(gates, unattended=True) if unattended else gates
    asked = Asked(trigger=Trigger(type="cron", source_id="notes", dataset_id="levels"))
    assert is_answered(asked, StartFacts(gates=gates)) == answered
