"""Who gets an incident, on every store: hooks by their rules, acknowledgements, silences, escalations."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.incidents import Wants
from kfm.db.ledger import Ledger
from kfm.model.incidents import (
    TOPIC,
    HookRule,
    Incident,
    IncidentEscalation,
    IncidentOwner,
    IncidentRenderer,
    Silence,
    hook_wants,
)
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import START_MS, Desk
from tests.conformance.db.test_incidents import changes, give_up, only, overdue, succeed, told

pytestmark = pytest.mark.req("DAT-10")

HOUR_MS = 3_600_000
DATASET = "dataset:ks-streamflow"


@pytest.fixture(autouse=True)
def _named(desk: Desk) -> None:
    """Its incidents have names, an owner and an escalation to `pager`."""
    desk.store._journal.watch._renderer = IncidentRenderer(
        masked=lambda _about, _name: False,
        responsible=lambda _name: (
            IncidentOwner(name="Water desk", contact="water@example.org"),
            IncidentEscalation(after="PT4H", to=("pager",), at=None),
        ),
    )


def wants(name: str, **rule: Any) -> Wants:
    return partial(hook_wants, HookRule(name=name, **rule))


def sent(store: Ledger, hook: str, **rule: Any) -> list[str]:
    """Deliver what is due at this hook, and record it; the changes that it got."""
    found = store.claim_for_hook(hook, 100, 60_000, wants(hook, **rule))
    store.hook_delivered(hook, [one.number for one in found])
    return [json.loads(one.body)["data"]["change"] for one in found]


def silence(store: Ledger, scope: str, for_ms: int = HOUR_MS) -> None:
    now_ms = store.now_ms()
    made = Silence(scope=scope, set_at_ms=now_ms, until_ms=now_ms + for_ms, set_by="ada", rationale="Known.")
    store.silence(made, ledgers.entry("incident-silenced"))


def acknowledge(store: Ledger, incident: Incident, by: str = "ada") -> bool:
    return store.acknowledge_incident(incident, by, ledgers.entry("incident-acknowledged"))


# --- which hook --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, ["open", "open"]),
        ({"severity": "error"}, ["open"]),
        ({"kinds": ("overdue",)}, ["open"]),
        ({"kinds": ("halt",)}, []),
        ({"datasets": ("ks-streamflow",)}, ["open", "open"]),
        ({"datasets": ("other",)}, []),
        ({"escalation": True}, []),
    ],
)
def test_a_hook_gets_what_it_asks_for(desk: Desk, rule: dict[str, Any], expected: list[str]) -> None:
    """By dataset, kind and severity; what is not for it is settled, with no try, and holds up nothing."""
    give_up(desk, "one")
    desk.store.mark_overdue([overdue()])
    assert sent(desk.store, "a", **rule) == expected
    assert desk.store.hook_backlog("a").waiting == 0
    assert desk.store.settle_hooks(["a"]) == 2
    tries = sorted(one.tries for one in desk.store.hook_deliveries(only_kind(desk, "quarantine").cause))
    assert tries == ([1] if "severity" in rule or len(expected) == 2 else [])


def only_kind(desk: Desk, kind: str) -> Incident:
    (found,) = (one for one in desk.store.incidents() if one.kind == kind)
    return found


def test_a_masked_dataset_reaches_its_hook(desk: Desk) -> None:
    """Its name is masked in what is sent; which hook gets it is decided by the name that it has."""
    desk.store._journal.watch._renderer = IncidentRenderer()
    give_up(desk, "one")
    assert sent(desk.store, "a", datasets=("ks-streamflow",)) == ["open"]
    assert "ks-streamflow" not in json.dumps(told(desk.store))


def test_each_notification_names_the_owner(desk: Desk) -> None:
    """And the escalation that is ahead of it; that of a masked dataset stays here."""
    give_up(desk, "one")
    (opened,) = told(desk.store)
    assert opened["owner"] == {"name": "Water desk", "contact": "water@example.org"}
    assert opened["escalation"] == {"after": "PT4H", "to": ["pager"], "at": None}
    desk.store._journal.watch._renderer._masked = lambda _about, _name: True
    give_up(desk, "two", code="KFM605")
    assert told(desk.store)[-1]["owner"] is None


# --- acknowledged and escalated ----------------------------------------------------------


def test_an_acknowledgement_is_kept(desk: Desk) -> None:
    """By the first person; it lasts as long as the occurrence, and not for the next one."""
    give_up(desk, "one")
    incident = only(desk.store)
    assert acknowledge(desk.store, incident)
    assert not acknowledge(desk.store, incident, "grace")
    seen = only(desk.store)
    assert (seen.acknowledged_by, seen.state) == ("ada", "open")
    assert seen.acknowledged_at_ms is not None
    assert [link.entry.kind for link in desk.store.chain()].count("incident-acknowledged") == 1
    for number in range(9):
        give_up(desk, f"more {number}")
    assert only(desk.store).acknowledged_by == "ada", "it got worse, and a person knows of it"
    succeed(desk, "well")
    assert not acknowledge(desk.store, only(desk.store)), "it is over"
    give_up(desk, "again")
    assert only(desk.store).acknowledged_at_ms is None


def test_an_escalation_is_one_more_change(desk: Desk) -> None:
    """Posted once, to the hooks that it names; such a hook is told of the end, too, and of nothing before."""
    give_up(desk, "one")
    incident = only(desk.store)
    assert sent(desk.store, "desk") == ["open"]
    assert sent(desk.store, "pager", escalation=True) == []
    assert desk.store.escalate_incident(incident)
    assert not desk.store.escalate_incident(incident)
    assert sent(desk.store, "pager", escalation=True) == ["escalated"]
    assert sent(desk.store, "desk") == []
    assert told(desk.store)[-1]["escalation"]["at"] is not None
    assert "not acknowledged" in told(desk.store)[-1]["summary"]
    succeed(desk, "well")
    assert sent(desk.store, "pager", escalation=True) == sent(desk.store, "desk") == ["resolved"]
    assert changes(desk.store) == ["open", "escalated", "resolved"]
    assert len({one.event_id for one in desk.store.events_between(1, 10**9, 1000) if one.topic == TOPIC}) == 3


@pytest.mark.parametrize("reason", ["acknowledged", "resolved", "silenced", "another occurrence"])
def test_what_is_looked_after_is_not_escalated(desk: Desk, reason: str) -> None:
    """A process that saw it a moment ago escalates nothing that was acknowledged, ended or silenced since."""
    give_up(desk, "one")
    incident = only(desk.store)
    if reason == "acknowledged":
        acknowledge(desk.store, incident)
    elif reason == "silenced":
        silence(desk.store, f"incident:{incident.incident_id}")
    else:
        succeed(desk, "well")
    if reason == "another occurrence":
        give_up(desk, "two")
    assert not desk.store.escalate_incident(incident)
    assert "escalated" not in changes(desk.store)


# --- silences ----------------------------------------------------------------------------


def end(store: Ledger) -> None:
    assert store.end_silence(DATASET, ledgers.entry("incident-silence-ended"))


def lapse(store: Ledger) -> None:
    """Its time is over: found by the next look, once."""
    store._database.write(lambda session: session.all("silences.end", scope=DATASET, now_ms=START_MS))
    silence(store, DATASET, for_ms=-1)
    assert store.end_lapsed_silences() == 1
    assert store.end_lapsed_silences() == 0


@pytest.mark.parametrize("over", [end, lapse])
def test_a_silence_sends_nothing_then_the_present_state_once(
    desk: Desk, over: Callable[[Ledger], None]
) -> None:
    """Whatever happens meanwhile: nothing waits at the hook; at its end one change tells how it stands."""
    store = desk.store
    give_up(desk, "one")
    assert sent(store, "a") == ["open"]
    silence(store, DATASET)
    for number in range(9):
        give_up(desk, f"more {number}")
    assert changes(store) == ["open", "worse"]
    assert (sent(store, "a"), store.hook_backlog("a").waiting) == ([], 0)
    assert store.end_lapsed_silences() == 0
    over(store)
    assert sent(store, "a") == ["reminded"]
    assert told(store)[-1]["affected"] == 10
    assert "still open" in told(store)[-1]["summary"]
    assert sent(store, "a") == []
    assert store.silences() == []


def test_what_opened_in_a_silence_is_told_as_opened(desk: Desk) -> None:
    """Hooks that never heard of it get it as any other."""
    silence(desk.store, DATASET)
    give_up(desk, "one")
    assert sent(desk.store, "a") == []
    lapse(desk.store)
    assert sent(desk.store, "a") == ["open"]


def test_what_came_and_went_in_a_silence_is_not_told(desk: Desk) -> None:
    """No hook knows of it, and none has to."""
    silence(desk.store, DATASET)
    give_up(desk, "one")
    succeed(desk, "well")
    lapse(desk.store)
    assert sent(desk.store, "a") == []
    assert desk.store.backlog(TOPIC).waiting == 0


def test_an_end_in_a_silence_is_told_to_those_who_know(desk: Desk) -> None:
    """A hook that was told that it is open is told that it is not, once the silence is over."""
    give_up(desk, "one")
    assert sent(desk.store, "a") == ["open"]
    silence(desk.store, DATASET)
    succeed(desk, "well")
    assert sent(desk.store, "a") == []
    lapse(desk.store)
    assert sent(desk.store, "a") == ["resolved"]


def test_a_silence_is_for_its_scope_alone(desk: Desk) -> None:
    """Of one incident: others of the dataset are sent. While one of two silences is in force, it holds."""
    store = desk.store
    give_up(desk, "one")
    first = only(store)
    silence(store, f"incident:{first.incident_id}")
    give_up(desk, "two", code="KFM605")
    assert sent(store, "a") == ["open"]
    assert json.loads(store.hook_deliveries(first.cause)[0].body)["data"]["error_code"] == "KFM303"
    silence(store, DATASET)
    assert store.end_silence(f"incident:{first.incident_id}", ledgers.entry("incident-silence-ended"))
    assert sent(store, "a") == [], "the dataset is silenced as well"
    lapse(store)
    assert sorted(sent(store, "a")) == ["open", "reminded"]


def test_a_silence_can_be_prolonged(desk: Desk) -> None:
    """One is in force for each scope; ending what is not there is said."""
    store = desk.store
    silence(store, DATASET, 1)
    silence(store, DATASET, HOUR_MS)
    (one,) = store.silences()
    assert one.until_ms > store.now_ms()
    assert replace(one, until_ms=0, set_at_ms=0) == Silence(
        scope=DATASET, set_at_ms=0, until_ms=0, set_by="ada", rationale="Known."
    )
    end(store)
    assert not store.end_silence(DATASET, ledgers.entry("incident-silence-ended"))
