"""Incidents on every store: in the transaction of their cause, one for each, each change posted once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.incidents import IncidentKeeper
from kfm.db.ledger import Ledger
from kfm.db.session import Session
from kfm.model import breaker as rules
from kfm.model.errors import BackendUnavailable
from kfm.model.incidents import TOPIC, Incident, IncidentRenderer, OverdueWindow
from kfm.model.quarantine import Approval, release_digest
from kfm.model.retry_budgets import granted
from kfm.model.runs import Approve, Judge
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import START_MS, Desk, new_run, settle_window
from tests.conformance.db.test_quarantine import held_of, state_of

pytestmark = pytest.mark.req("TRG-7")

PROVIDER = "api.example.org"
THREADS = 8
DAY_MS = 86_400_000
NEXT = (START_MS + DAY_MS, START_MS + 2 * DAY_MS)  # the day after that of every other run


def give_up(
    desk: Desk, name: str, *, code: str = "KFM303", message: str = "It breaks its contract.", **changes: Any
) -> None:
    """One run of its own window that ends in quarantine."""
    run = desk.admit(new_run(name, **changes)).run
    assert run is not None
    state = state_of(run, fate="quarantine", reason="non-retryable", error_class="schema")
    held = held_of(run, error_code=code, error_message=message)
    assert desk.fail(run, retry=state, held=held, error_code=code)


def succeed(desk: Desk, name: str, **changes: Any) -> None:
    answer = desk.admit(new_run(name, **changes))
    assert answer.run is not None
    assert desk.promote(answer.run).answer in ("promoted", "unchanged")


def told(store: Ledger) -> list[dict[str, Any]]:
    """Every change that was posted, in its order."""
    messages = [one for one in store.events_between(1, 10**9, 100_000) if one.topic == TOPIC]
    for message in messages:
        assert json.loads(message.body)["id"] == message.event_id
    return [json.loads(message.body)["data"] for message in messages]


def changes(store: Ledger) -> list[str]:
    return [data["change"] for data in told(store)]


def only(store: Ledger, **wanted: Any) -> Incident:
    (found,) = store.incidents(**wanted)
    return found


def test_what_is_given_up_opens_an_incident(desk: Desk) -> None:
    """In the transaction that holds the run: the row, its subject, one message."""
    give_up(desk, "one")
    incident = only(desk.store, state="open")
    assert (incident.about, incident.name, incident.kind) == ("dataset", "ks-streamflow", "quarantine")
    assert (incident.error_class, incident.error_code, incident.affected) == ("schema", "KFM303", 1)
    assert desk.store.incident_subjects(incident.cause) == [incident.subject]
    assert changes(desk.store) == ["open"]
    assert desk.store.find_incidents(incident.incident_id[:8]) == [incident]
    assert desk.store.find_incidents(incident.cause) == [incident]


def test_many_runs_of_one_cause_are_one_incident(desk: Desk) -> None:
    """A hundred held runs: opened, worse at ten and at a hundred; and the same run twice counts once."""
    for number in range(100):
        give_up(desk, f"run {number}")
    incident = only(desk.store)
    assert (incident.affected, incident.changes) == (100, 3)
    assert changes(desk.store) == ["open", "worse", "worse"]
    assert [data["affected"] for data in told(desk.store)] == [1, 10, 100]
    assert [data["held"] for data in told(desk.store)] == [1, 10, 100]


def test_the_same_run_counts_once(desk: Desk) -> None:
    """Tried again and given up again for the same reason, it is no second one that is affected."""
    give_up(desk, "one")
    stored = desk.store.run(only(desk.store).subject)
    for _ in range(10):
        assert stored is not None
        run = desk.again(stored).run
        assert run is not None
        state = state_of(run, fate="quarantine", reason="non-retryable", error_class="schema")
        assert desk.fail(run, retry=state, held=held_of(run), error_code="KFM303")
        stored = desk.store.run(run.run_id)
    assert only(desk.store).affected == 1
    assert changes(desk.store) == ["open"]


def test_a_thousand_held_runs_are_four_messages() -> None:
    """One open and three worse, not a thousand; the success that follows is one more."""
    store = ledgers.memory_store(SystemClock())
    desk = Desk(store)
    for number in range(1_000):
        give_up(desk, f"run {number}")
    assert changes(store) == ["open", "worse", "worse", "worse"]
    succeed(desk, "well")
    assert changes(store)[4:] == ["resolved"]
    assert len(store.incidents()) == 1
    store.close()


def test_another_error_is_another_incident(desk: Desk) -> None:
    """What is mended by itself is told by itself."""
    give_up(desk, "one")
    give_up(desk, "two", code="KFM605")
    assert changes(desk.store) == ["open", "open"]
    assert len(desk.store.incidents(state="open")) == 2


@pytest.mark.req("DAT-10")
def test_the_windows_success_resolves_it(desk: Desk) -> None:
    """Another run of the same source and window that succeeds, of any revision, ends what the window had."""
    give_up(desk, "one")
    give_up(desk, "two")
    succeed(desk, "three", revision=3, pipeline_version=ledgers.digest("another"))
    incident = only(desk.store)
    assert incident.state == "resolved"
    assert desk.store.incidents(state="open") == []
    assert changes(desk.store) == ["open", "resolved"]
    assert told(desk.store)[-1]["held"] == 0
    assert desk.store.incident_subjects(incident.cause) == []


@pytest.mark.req("DAT-10")
def test_another_window_resolves_nothing(desk: Desk) -> None:
    """An incident about a window ends with that window, not with the next one that is well."""
    give_up(desk, "one")
    succeed(desk, "next day", window_start_ms=NEXT[0], window_end_ms=NEXT[1])
    assert only(desk.store).state == "open"
    assert changes(desk.store) == ["open"]
    give_up(desk, "next day again", window_start_ms=NEXT[0], window_end_ms=NEXT[1])
    succeed(desk, "mended")
    assert only(desk.store).state == "open", "one window is well, the other is not"
    succeed(desk, "both", window_start_ms=NEXT[0], window_end_ms=NEXT[1])
    assert changes(desk.store) == ["open", "resolved"]


def test_another_partition_resolves_nothing(desk: Desk) -> None:
    """The same window of another partition is other work."""
    give_up(desk, "one", partition="north")
    succeed(desk, "two", partition="south")
    assert only(desk.store).state == "open"
    succeed(desk, "three", partition="north")
    assert only(desk.store).state == "resolved"


@pytest.mark.req("DAT-10")
def test_a_release_ends_its_part(desk: Desk) -> None:
    """What a person releases from quarantine is not affected any more; what stays quarantined is."""
    for name in ("one", "two"):
        give_up(desk, name)
    for number, left in ((0, 1), (1, 0)):
        held = desk.store.held(state="held")[0]
        run = desk.store.run(held.subject)
        assert run is not None
        approval = replace(
            waiting_approval(f"release-{number}"),
            kind="release",
            subject=held.held_id,
            digest=release_digest(held),
        )
        desk.store.request_approval(approval, ledgers.entry("release-requested"))
        state = desk.store.retry_state(run.run_id)
        answer = desk.store.approve(
            Approve(
                request_id=approval.request_id,
                digest=approval.digest,
                approved_by="grace",
                rationale="Seen.",
                held_id=held.held_id,
                grant=granted(run, state, desk.store.now_ms()),
                entries=(),
            )
        )
        assert answer.answer == "approved"
        (incident,) = (one for one in desk.store.incidents() if one.kind == "quarantine")
        assert len(desk.store.incident_subjects(incident.cause)) == left
    about = [data["change"] for data in told(desk.store) if data["kind"] == "quarantine"]
    assert about == ["open", "resolved"]


def waiting_approval(request_id: str, **changes: Any) -> Approval:
    made = Approval(
        request_id=request_id,
        kind="update",
        subject=f"request {request_id}",
        digest=ledgers.digest(request_id),
        requested_by="ada",
        requested_at_ms=START_MS,
        rationale="A correction.",
        about="update of ks-streamflow",
        dataset_id="ks-streamflow",
    )
    return replace(made, **changes)


# --- overdue, waiting for an approval, withdrawn -----------------------------------------


def overdue(start_ms: int = START_MS, **changes: Any) -> OverdueWindow:
    window = (start_ms, start_ms + DAY_MS)
    due_ms = window[1] + 3_600_000
    made = OverdueWindow(source_id="usgs-daily", dataset_id="ks-streamflow", window=window, due_ms=due_ms)
    return replace(made, **changes)


def keeping(desk: Desk, act: Callable[[IncidentKeeper, Session, int], None]) -> None:
    """Some of the keeper's work, in a transaction of its own."""
    store = desk.store
    store._database.write(lambda session: act(store._journal.watch, session, session.now_ms()))


@pytest.mark.req("DAT-10")
def test_overdue_windows_are_one_incident(desk: Desk) -> None:
    """Told once however often it is found; it ends when each window is there or dismissed."""
    named(desk)
    desk.store.mark_overdue([overdue()])
    before = only(desk.store)
    desk.store.mark_overdue([overdue(), overdue()])
    assert only(desk.store) == before, "what is known is not written again"
    desk.store.mark_overdue([overdue(NEXT[0])])
    incident = only(desk.store)
    assert (incident.kind, incident.error_code, incident.affected) == ("overdue", "KFM640", 2)
    succeed(desk, "late", window_start_ms=NEXT[0], window_end_ms=NEXT[1])
    assert only(desk.store).state == "open"
    settle_window(desk.store, "usgs-daily", (START_MS, START_MS + DAY_MS))
    assert only(desk.store).state == "resolved"
    assert changes(desk.store) == ["open", "resolved"]
    first, last = told(desk.store)
    assert first["severity"] == "warning"
    assert first["summary"] == "dataset ks-streamflow: 1 window past its time"
    window = "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"
    assert first["next_step"] == {
        "code": "run",
        "sentence": "See whether upstream has it, then ask for it again",
        "command": f"kfm run --source usgs-daily --window {window}",
        "who": "an operator",
        "role": "operate",
    }
    assert (last["next_step"], last["summary"]) == (
        None,
        "dataset ks-streamflow: nothing is past its time any more",
    )


@pytest.mark.req("DAT-10")
def test_a_dismissed_window_ends_all_about_it(desk: Desk) -> None:
    """What will never come is neither overdue nor quarantined any more; other windows of its source are."""
    give_up(desk, "one")
    desk.store.mark_overdue([overdue(), overdue(NEXT[0])])
    settle_window(desk.store, "other", (START_MS, START_MS + DAY_MS))
    assert len(desk.store.incidents(state="open")) == 2
    settle_window(desk.store, "usgs-daily", (START_MS, START_MS + DAY_MS))
    assert desk.store.open_incidents() == {"overdue": 1}
    assert {one.kind: one.state for one in desk.store.incidents()} == {
        "quarantine": "resolved",
        "overdue": "open",
    }


@pytest.mark.req("DAT-10")
def test_a_waiting_approval_is_an_incident(desk: Desk) -> None:
    """One for a dataset, with the command of the latest request; it ends with the last that is decided."""
    named(desk)
    for request_id in ("a", "b", "b"):
        asked = waiting_approval(request_id)
        keeping(
            desk, lambda watch, session, now_ms, asked=asked: watch.approval_waiting(session, asked, now_ms)
        )
    assert (only(desk.store).kind, only(desk.store).affected) == ("approval-waiting", 2)
    (opened,) = told(desk.store)
    assert opened["next_step"]["command"] == "kfm approvals approve a --rationale TEXT"
    assert (opened["next_step"]["who"], opened["next_step"]["role"]) == (
        "another person than the requester",
        "approve",
    )
    keeping(desk, lambda watch, session, now_ms: watch.approval_decided(session, "a", now_ms))
    assert only(desk.store).state == "open"
    keeping(desk, lambda watch, session, now_ms: watch.approval_decided(session, "b", now_ms))
    assert changes(desk.store) == ["open", "resolved"]


@pytest.mark.req("DAT-10")
def test_a_withdrawal_is_over_once_every_target_shows_it(desk: Desk) -> None:
    """Each take-down is told by itself, and resolved by the last target; without targets at once."""
    named(desk)
    targets = ["site", "bucket"]

    def take_down(withdrawal: str, places: list[str]) -> None:
        keeping(
            desk,
            lambda watch, session, now_ms: watch.withdrawn(
                session, "ks-streamflow", withdrawal, places, "Consent ended.", now_ms
            ),
        )

    def shown(withdrawal: str, target: str) -> None:
        keeping(
            desk,
            lambda watch, session, now_ms: watch.withdrawal_shown(
                session, "ks-streamflow", withdrawal, target, now_ms
            ),
        )

    take_down("w1", targets)
    take_down("w2", targets)
    assert len(desk.store.incidents(state="open")) == 2, "each is told by itself"
    shown("w1", "site")
    assert changes(desk.store) == ["open", "open"]
    shown("w1", "bucket")
    assert changes(desk.store) == ["open", "open", "resolved"]
    (left,) = desk.store.incidents(state="open")
    assert (left.kind, left.message, left.affected) == ("withdrawn", "Consent ended.", 2)
    take_down("w3", [])
    assert changes(desk.store)[3:] == ["open", "resolved"]


@pytest.mark.req("DAT-10")
def test_new_kinds_of_a_masked_dataset_name_nothing(desk: Desk) -> None:
    """Neither its source nor its window, its request or the reason for its withdrawal leaves."""
    desk.store.mark_overdue([overdue()])
    keeping(
        desk, lambda watch, session, now_ms: watch.approval_waiting(session, waiting_approval("a-1"), now_ms)
    )
    keeping(
        desk,
        lambda watch, session, now_ms: watch.withdrawn(
            session, "ks-streamflow", "w", ["t-1"], "Why.", now_ms
        ),
    )
    said = json.dumps(told(desk.store))
    for name in ("usgs-daily", "ks-streamflow", "2026-01-01", "a-1", "t-1", "Why.", "correction"):
        assert name not in said
    assert {one["next_step"]["code"] for one in told(desk.store)} == {"show"}


def named(desk: Desk) -> None:
    """Its incidents are told with their names."""
    desk.store._journal.watch._renderer = IncidentRenderer(masked=lambda _about, _name: False)


def test_another_source_of_the_dataset_resolves_nothing(desk: Desk) -> None:
    """As long as one source suffers, the incident is open."""
    give_up(desk, "one")
    succeed(desk, "two", source_id="other")
    assert only(desk.store).state == "open"
    assert changes(desk.store) == ["open"]


def test_it_is_open_until_the_last_source_succeeds(desk: Desk) -> None:
    """Two sources suffer from one cause: the first that is well leaves it to the other."""
    give_up(desk, "one")
    run = desk.admit(new_run("two", source_id="other")).run
    assert run is not None
    state = state_of(run, fate="quarantine", reason="non-retryable", error_class="schema")
    assert desk.fail(run, retry=state, held=held_of(run), error_code="KFM303")
    assert only(desk.store).affected == 2
    succeed(desk, "three")
    assert only(desk.store).state == "open"
    succeed(desk, "four", source_id="other")
    assert only(desk.store).state == "resolved"
    assert changes(desk.store) == ["open", "resolved"]


def test_what_comes_back_is_a_new_occurrence(desk: Desk) -> None:
    """The cause is the same, the incident has a new id, and its count begins anew."""
    give_up(desk, "one")
    first = only(desk.store)
    succeed(desk, "two")
    give_up(desk, "three")
    again = only(desk.store)
    assert again.cause == first.cause
    assert again.incident_id != first.incident_id
    assert (again.occurrence, again.affected, again.state) == (2, 1, "open")
    assert changes(desk.store) == ["open", "resolved", "open"]


def test_a_halt_makes_it_worse(desk: Desk) -> None:
    """What was in quarantine and is now halted has risen to the highest severity."""
    give_up(desk, "one")
    run = desk.admitted("two")
    state = state_of(run, fate="quarantine", reason="non-retryable", error_class="schema")
    desk.fail(run, retry=state, held=held_of(run), pause=ledgers.switch(scope="dataset:ks-streamflow"))
    assert changes(desk.store) == ["open", "worse"]
    assert [data["severity"] for data in told(desk.store)] == ["error", "critical"]


def test_what_does_not_land_tells_nothing(desk: Desk) -> None:
    """A stale failure, a stale judgement and a failing run that is retried open no incident."""
    run = desk.admitted("one")
    assert not desk.fail(replace(run, fence=run.fence + 1), retry=state_of(run), held=held_of(run))
    assert desk.fail(run, retry=state_of(run))
    stored = desk.store.run(run.run_id)
    assert stored is not None
    assert not desk.store.judge(Judge(run=stored, seen=None, retry=state_of(run), held=held_of(run)))
    assert desk.store.incidents() == []
    assert told(desk.store) == []


def test_a_later_judgement_opens_one(desk: Desk) -> None:
    """A run whose process died is given up by the process that judges it, with its incident."""
    run = desk.admitted("one")
    desk.fail(run)
    stored = desk.store.run(run.run_id)
    assert stored is not None
    gone = state_of(run, fate="spent", reason="budget-spent", not_before_ms=None)
    assert desk.store.judge(Judge(run=stored, seen=None, retry=gone, held=held_of(run, kind="dead-letter")))
    assert only(desk.store).kind == "dead-letter"
    assert changes(desk.store) == ["open"]


def test_an_open_circuit_is_an_incident_of_its_provider(store: Ledger) -> None:
    """Opened with the circuit, no second one by a failed probe, resolved when it closes, or is reset."""
    for _ in range(rules.FAILURES_MAX):
        store.change_breaker(PROVIDER, lambda one, now_ms: rules.on_failure(one, now_ms - 300_000))
    assert (only(store).about, only(store).name, only(store).affected) == ("provider", PROVIDER, 3)
    _, probing = store.change_breaker(PROVIDER, rules.probe_started)
    for _ in range(7):
        store.change_breaker(PROVIDER, lambda one, now_ms: rules.on_failure(one, now_ms - 300_000, one.fence))
        _, probing = store.change_breaker(PROVIDER, rules.probe_started)
    assert changes(store) == ["open", "worse"]  # ten failures in a row
    store.change_breaker(PROVIDER, lambda one, now_ms: rules.on_success(one, probing.fence, now_ms))
    assert only(store).state == "resolved"
    for _ in range(rules.FAILURES_MAX):
        store.change_breaker(PROVIDER, rules.on_failure)
    store.change_breaker(PROVIDER, rules.reset, [ledgers.entry("breaker-reset")])
    assert changes(store) == ["open", "worse", "resolved", "open", "resolved"]


def test_a_store_without_a_renderer_names_nothing(desk: Desk) -> None:
    """Without a renderer of incidents a message is posted all the same, without names and words."""
    give_up(desk, "one")
    (data,) = told(desk.store)
    assert (data["name"], data["masked"]) == ("masked", True)
    assert "contract" not in data["message"]


def test_any_message_can_be_told(desk: Desk) -> None:
    """Half surrogate pairs and zeros in an error keep neither run nor incident from being recorded."""
    desk.store._journal.watch._renderer = IncidentRenderer(masked=lambda _about, _name: False)
    give_up(desk, "one", message="a\0b\ud800c")
    (data,) = told(desk.store)
    assert data["message"].startswith("a")
    assert only(desk.store).state == "open"


def test_incidents_survive_a_restart(tmp_path: Path) -> None:
    """What was open is open, counts go on, and nothing is told twice."""
    path = str(tmp_path / "kfm.db")
    first = ledgers.sqlite_store(path, SystemClock())
    desk = Desk(first)
    for number in range(9):
        give_up(desk, f"run {number}")
    first.close()
    second = ledgers.sqlite_store(path, SystemClock())
    later = Desk(second)
    later.calls = 100
    give_up(later, "run 9")
    assert changes(second) == ["open", "worse"]
    assert only(second).affected == 10
    second.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
    """Opens the same database again and again."""
    opened: list[Ledger] = []
    if request.param == "sqlite":
        place = str(tmp_path / "kfm.db")
        make: Callable[[], Ledger] = lambda: ledgers.sqlite_store(place, SystemClock())  # noqa: E731
    else:
        dsn = request.getfixturevalue("postgres_schema")()
        make = lambda: ledgers.postgres_store(dsn)  # noqa: E731

    def another() -> Ledger:
        opened.append(make())
        return opened[-1]

    another()
    yield another
    for one in opened:
        one.close()


def test_those_who_give_up_at_once_open_one(opener: Callable[[], Ledger]) -> None:
    """Processes that meet one cause in the same instant: one opens it, all are counted, ten is told once."""
    stores = [opener() for _ in range(THREADS)]
    ready = threading.Barrier(THREADS)
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            desk = Desk(stores[number])
            ready.wait(20)
            for turn in range(3):
                desk.calls = 1_000 * (number + 1) + turn
                run = desk.admit(
                    new_run(f"{number}/{turn}"), scope=f"dataset:{number}", worker_id=f"w-{number}"
                ).run
                assert run is not None
                state = state_of(run, fate="quarantine", reason="non-retryable", error_class="schema")
                desk.fail(run, scope=f"dataset:{number}", retry=state, held=held_of(run))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems, problems
    incident = only(stores[0])
    assert incident.affected == THREADS * 3
    assert changes(stores[0]) == ["open", "worse"]


# --- hooks -------------------------------------------------------------------------------


def claimed(store: Ledger, hook: str, limit: int = 10) -> list[str]:
    return [json.loads(one.body)["data"]["change"] for one in store.claim_for_hook(hook, limit, 60_000)]


def test_each_hook_has_its_own_state(desk: Desk) -> None:
    """One that had it is not offered it again, however often another fails; then the message is done with."""
    store = desk.store
    give_up(desk, "one")
    (first,) = store.claim_for_hook("a", 10, 60_000)
    (second,) = store.claim_for_hook("b", 10, 60_000)
    assert first.number == second.number
    assert store.claim_for_hook("a", 10, 60_000) == []
    store.hook_delivered("a", [first.number])
    store.hook_put_back("b", [second.number], store.now_ms())
    assert store.settle_hooks(["a", "b"]) == 0
    assert store.hook_backlog("a").waiting == 0
    assert store.hook_backlog("b").waiting == 1
    (again,) = store.claim_for_hook("b", 10, 60_000)
    assert (again.tries, again.body) == (2, first.body)
    store.hook_delivered("b", [again.number])
    assert store.settle_hooks(["a", "b"]) == 1
    assert store.backlog(TOPIC).waiting == 0
    assert [(one.hook, one.tries) for one in store.hook_deliveries(only(store).cause)] == [("a", 1), ("b", 2)]


def test_changes_of_one_cause_stay_in_order(desk: Desk) -> None:
    """While the opening rests, its end is not told; of another cause it is."""
    store = desk.store
    give_up(desk, "one")
    (opening,) = store.claim_for_hook("a", 1, 60_000)
    store.hook_put_back("a", [opening.number], store.now_ms() + 3_600_000)
    succeed(desk, "two")
    give_up(desk, "three", code="KFM605")
    assert claimed(store, "a") == ["open"]
    store.hasten_hook("a")
    assert claimed(store, "a") == ["open", "resolved", "open"]


def test_notifications_without_hooks_are_settled(desk: Desk) -> None:
    """Without hooks messages do not pile up for the day on which there is one."""
    give_up(desk, "one")
    assert desk.store.settle_hooks([]) == 1
    assert claimed(desk.store, "late") == []


def test_a_lapsed_claim_is_offered_again(desk: Desk) -> None:
    """A process dies between sending and recording: the same message comes again."""
    give_up(desk, "one")
    (first,) = desk.store.claim_for_hook("a", 10, -1)
    (second,) = desk.store.claim_for_hook("a", 10, 60_000)
    assert first.event_id == second.event_id


def test_a_message_is_posted_only_with_its_cause(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the transaction that holds the run fails at its end, there is no incident either."""

    def broken(*_arguments: Any) -> None:
        raise BackendUnavailable("The disk is full.")

    run = desk.admitted("one")
    monkeypatch.setattr("kfm.db.governance.append", broken)
    with pytest.raises(BackendUnavailable):
        desk.fail(run, held=held_of(run), retry=state_of(run, fate="quarantine"))
    monkeypatch.undo()
    assert desk.store.incidents() == []
    assert told(desk.store) == []
    assert desk.store.held() == []
