"""Incidents, purely: what is one cause, what is worse, and what is told of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.model.breaker import Breaker, on_failure, on_success, probe_started
from kfm.model.errors import CircuitOpen
from kfm.model.incidents import (
    CIRCUIT_CODE,
    RANK,
    SEVERITY,
    Incident,
    IncidentCause,
    IncidentRenderer,
    cause_of,
    circuit_closed,
    circuit_trouble,
    ended,
    provider_cause,
    step_of,
    struck,
)
from kfm.model.redaction import mask

pytestmark = pytest.mark.req("TRG-7")

NOW_MS = 1_767_225_600_000
ID = "90b64ece-1410-5460-84ba-ac0f489c4cf2"
KINDS = st.sampled_from(sorted(RANK))


def trouble(**changes: Any) -> IncidentCause:
    made = IncidentCause(
        about="dataset",
        name="levels",
        kind="dead-letter",
        error_class="timeout",
        error_code="KFM409",
        message="No answer.",
        subject="run-1",
        source_id="notes",
    )
    return replace(made, **changes)


def met(seen: Incident | None, what: IncidentCause, affected: int, now_ms: int = NOW_MS) -> Any:
    return struck(seen, what, affected=affected, incident_id=ID, now_ms=now_ms)


@pytest.mark.parametrize(
    "changes",
    [{"kind": "halt"}, {"message": "Other words."}, {"subject": "run-2"}, {"source_id": "b"}, {"count": 4}],
)
def test_what_differs_from_run_to_run_makes_no_other_cause(changes: dict[str, Any]) -> None:
    """Whom, and what kind of error: nothing else."""
    assert cause_of(trouble(**changes)) == cause_of(trouble())


@pytest.mark.parametrize(
    "changes", [{"name": "rain"}, {"about": "provider"}, {"error_class": "schema"}, {"error_code": "KFM303"}]
)
def test_another_dataset_or_error_is_another_cause(changes: dict[str, Any]) -> None:
    """Two things that have to be mended are two incidents."""
    assert cause_of(trouble(**changes)) != cause_of(trouble())


def test_a_thousand_runs_are_told_of_four_times() -> None:
    """Opened at the first, worse at 10, 100 and 1,000, and nothing between."""
    seen, told = None, []
    for count in range(1, 1001):
        seen, change = met(seen, trouble(subject=f"run-{count}"), count)
        if change is not None:
            told.append((count, change))
    assert told == [(1, "open"), (10, "worse"), (100, "worse"), (1000, "worse")]
    assert seen is not None
    assert (seen.changes, seen.affected) == (4, 1000)


@given(st.lists(st.tuples(KINDS, st.integers(1, 5000), st.booleans()), max_size=60))
def test_changes_are_told_in_order_and_severity_only_rises(story: list[tuple[Any, int, bool]]) -> None:
    """Whatever happens: open, then worse each time that it is, then resolved; `changes` counts them."""
    seen: Incident | None = None
    told = 0
    for kind, affected, ends in story:
        before = seen
        if ends and seen is not None:
            seen, change = ended(seen, NOW_MS)
            assert (change == "resolved") == (before is not None and before.state == "open")
        elif not ends:
            seen, change = met(seen, trouble(kind=kind), affected)
            if before is None or before.state == "resolved":
                assert change == "open"
                assert seen.occurrence == (before.occurrence if before else 0) + 1
                told = 0
            else:
                higher = RANK[seen.kind] > RANK[before.kind] or step_of(seen.affected) > step_of(
                    before.affected
                )
                assert (change == "worse") == higher
                assert RANK[seen.kind] >= RANK[before.kind]
                assert seen.affected >= before.affected
                assert seen.incident_id == before.incident_id
        else:
            continue
        told += change is not None
        assert seen.changes == told
        assert (seen.state == "resolved") == (seen.resolved_at_ms is not None)


def test_every_kind_has_a_severity() -> None:
    """The two tables speak of the same kinds, and a higher rank is never a lower severity."""
    assert SEVERITY.keys() == RANK.keys()
    order = ["warning", "error", "critical"]
    ranked = sorted(RANK, key=lambda kind: RANK[kind])
    assert [order.index(SEVERITY[kind]) for kind in ranked] == sorted(
        order.index(SEVERITY[kind]) for kind in ranked
    )


def test_a_circuit_that_opens_is_trouble_until_it_closes() -> None:
    """Its third failure opens it, a failed probe is the same trouble, a good one ends it."""
    breaker, found = Breaker(provider="api.example.org"), []
    for _ in range(3):
        after = on_failure(breaker, NOW_MS)
        found.append(circuit_trouble(breaker, after))
        breaker = after
    assert [one is not None for one in found] == [False, False, True]
    assert found[2] is not None
    assert cause_of(found[2]) == provider_cause("api.example.org")
    assert found[2].error_code == CIRCUIT_CODE == CircuitOpen.code
    probing = probe_started(breaker, NOW_MS + 300_000)
    assert circuit_trouble(breaker, probing) is None
    again = on_failure(probing, NOW_MS + 300_001, probing.fence)
    trouble_again = circuit_trouble(probing, again)
    assert trouble_again is not None
    assert trouble_again.count == 4
    well = on_success(probing, probing.fence, NOW_MS + 300_001)
    assert circuit_closed(probing, well)
    assert not circuit_closed(well, well)


# --- what is told ------------------------------------------------------------------------


def renderer(*, masked: bool, key: str | None = "key") -> IncidentRenderer:
    return IncidentRenderer(
        environment="test",
        masked=lambda _about, _name: masked,
        mask=lambda name: mask(name, key),
        hide=lambda text: text.replace("s3cret", "***"),
    )


def test_what_is_told_names_whom_and_what() -> None:
    """Of a public dataset: its id, the message without secrets, and the command that shows more."""
    incident, change = met(None, trouble(message="With s3cret."), 1)
    said = renderer(masked=False).change(incident, change, 1)
    assert (said.type, said.data.name, said.data.message) == ("incident.opened", "levels", "With ***.")
    assert said.data.command == f"kfm incident show {incident.incident_id}"
    assert "levels" in said.data.summary


@pytest.mark.req("RS-13")
def test_a_masked_name_can_not_be_guessed_from_anything() -> None:
    """Name, message, cause and both ids: none is the same as for a reader who guesses the name."""
    incident, change = met(None, trouble(), 1)
    guess = renderer(masked=False)
    ours = renderer(masked=True)
    ids = [one.incident_id("dataset", "levels", incident.cause, 1) for one in (ours, guess)]
    assert ids[0] != ids[1]
    incident = replace(incident, incident_id=ids[0])
    said = json.dumps(msgspec.to_builtins(ours.change(incident, change, 1)))
    for word in ("levels", "No answer.", incident.cause, ids[1]):
        assert word not in said
    assert mask("levels", "key") in said


def test_each_change_has_an_id_of_its_own_that_stays() -> None:
    """Told twice it is the same; another change, or another occurrence, is another."""
    tells, ids = renderer(masked=False), []
    seen: Incident | None = None
    for at in range(2):
        incident_id = tells.incident_id("dataset", "levels", cause_of(trouble()), at + 1)
        for affected in (1, 10):
            seen, change = struck(seen, trouble(), affected=affected, incident_id=incident_id, now_ms=NOW_MS)
            assert change is not None
            ids.append(tells.change(seen, change, 0).id)
            assert tells.change(seen, change, 0).id == ids[-1]
        seen, change = ended(seen, NOW_MS)
        assert change is not None
        ids.append(tells.change(seen, change, 0).id)
    assert len(set(ids)) == 6


def test_the_end_says_what_is_still_held() -> None:
    """The cause may be gone while work that it stopped still waits."""
    seen, _ = met(None, trouble(), 12)
    over, change = ended(seen, NOW_MS + 1)
    assert change is not None
    assert "12 runs still quarantined" in renderer(masked=False).change(over, change, 12).data.summary
