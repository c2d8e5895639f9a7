"""What became of windows is found by source and window, whatever else happened since."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.completeness import Dismissal, WindowFacts, asked_window, verdict
from kfm.model.quarantine import QuarantineEntry, RetryState
from kfm.model.records import GateResult, Run
from kfm.model.requests import ABSENT, RequestOutcome, UpdateRequest
from tests.conformance.db.ledgers import START_MS, Desk, digest, entry, invocation, new_run

DAY_MS = 86_400_000
SPAN = (START_MS, START_MS + DAY_MS)
SOURCE = "usgs-daily"
DATASET = "ks-streamflow"
REFUSAL = GateResult(gate="licence", allowed=False, reason="Not commercial.")


def facts(store: Ledger, **span: int) -> dict[tuple[int, int], WindowFacts]:
    return store.window_reader().facts(SOURCE, DATASET, lambda _: True, **span)


def request(number: int, **changes: Any) -> UpdateRequest:
    key = digest(f"request {number}")
    made = UpdateRequest(
        request_id=f"request-{number}",
        key=key,
        kind="manual",
        source_id=SOURCE,
        dataset_id="ks-streamflow",
        window_start_ms=SPAN[0],
        window_end_ms=SPAN[1],
        actor="ada",
        accepted_at_ms=START_MS + number,
    )
    return replace(made, **changes)


def held(run_id: str, code: str = "KFM601", grain: Any = "run") -> QuarantineEntry:
    return QuarantineEntry(
        held_id=f"held-{run_id}",
        kind="quarantine",
        grain=grain,
        subject=run_id,
        dataset_id="ks-streamflow",
        source_id=SOURCE,
        payload_hash=None,
        source_ids=(),
        code_sha="",
        idempotency_key=digest("key"),
        attempts=1,
        error_classes=("unknown",),
        error_code=code,
        error_message="No.",
        reason="permanent",
        held_at_ms=START_MS,
    )


@pytest.mark.req("DAT-1")
@pytest.mark.parametrize(
    ("text", "found", "outcome"),
    [
        ("one", "data", "published"),
        (None, "data", "unchanged"),
        (None, "empty", "empty"),
        (None, "absent", "absent"),
    ],
)
def test_a_success_says_what_it_came_to(desk: Desk, text: str | None, found: Any, outcome: str) -> None:
    """Of a run that found nothing it is on record whether upstream has said so."""
    run = desk.admitted("a")
    desk.promote(run, text, found=found)
    stored = desk.store.run(run.run_id)
    assert stored is not None
    assert stored.outcome == outcome
    assert facts(desk.store)[SPAN].outcome == outcome


@pytest.mark.req("DAT-1")
def test_the_newest_run_of_a_window_counts(desk: Desk) -> None:
    """Whatever the version of its pipeline was; one that is running counts before all."""
    first = desk.admitted("a")
    desk.promote(first)
    second = desk.admitted("b")
    assert facts(desk.store)[SPAN].run_status == "running"
    desk.fail(second)
    known = facts(desk.store)[SPAN]
    assert (known.run_id, known.run_status, known.run_error) == (second.run_id, "failed", "KFM601")
    found_done = invocation(
        90, first, outcome="noop", requested_at_ms=2**52, window_start_ms=SPAN[0], window_end_ms=SPAN[1]
    )
    desk.store.record_invocation(found_done)
    known = facts(desk.store)[SPAN]
    assert (known.run_id, known.outcome) == (first.run_id, "published")


@pytest.mark.req("DAT-1")
def test_a_refusal_is_found_by_its_window(desk: Desk) -> None:
    """With the gate that refused, also where no run came of it; an older row names no window."""
    desk.store.record_invocation(invocation(1, None, outcome="refused"))
    assert facts(desk.store) == {}
    refused = invocation(
        2, None, outcome="refused", gates=(REFUSAL,), window_start_ms=SPAN[0], window_end_ms=SPAN[1]
    )
    desk.store.record_invocation(refused)
    for number in range(3, 30):
        other = replace(
            invocation(number, None, outcome="noop"), source_id="other", window_start_ms=0, window_end_ms=1
        )
        desk.store.record_invocation(other)
    assert facts(desk.store) == {SPAN: WindowFacts(refused_ms=START_MS + 2, refused_by="licence")}
    assert facts(desk.store, start_ms=SPAN[1]) == {}
    newest = desk.store.newest_invocation("ks-streamflow")
    assert newest is not None


@pytest.mark.req("DAT-1", "DAT-2")
def test_what_did_not_come_after_a_refusal_is_missing(desk: Desk) -> None:
    """The gate lets it pass by now, and upstream has nothing: the refusal is over; a newer one is not."""
    store = desk.store
    window = {"window_start_ms": SPAN[0], "window_end_ms": SPAN[1]}
    store.record_invocation(invocation(1, None, outcome="refused", gates=(REFUSAL,), **window))
    store.requests().accept([request(1)])
    claimed = store.requests().claim("worker", 60_000, lambda _: False)
    assert claimed is not None
    ending = RequestOutcome(state="done", outcome=ABSENT, reason="It did not come.")
    assert store.requests().settle(claimed, ending)
    known = facts(store)[SPAN]
    assert known.absent_ms is not None
    assert known.refused_ms is not None
    expected = asked_window(SOURCE, *SPAN, START_MS)
    now_ms = known.absent_ms + DAY_MS
    assert verdict(expected, known, now_ms).state == "missing"
    newer = replace(known, refused_ms=known.absent_ms + 1)
    assert verdict(expected, newer, now_ms).state == "refused"


@pytest.mark.req("DAT-1")
def test_requests_quarantine_and_promises_are_facts_of_a_window(desk: Desk) -> None:
    """What waits, what for and until when; what was cancelled; what is held."""
    store = desk.store
    store.requests().accept([request(1, not_before_ms=77, blocked_by="switch")])
    known = facts(store)[SPAN]
    assert (known.request_state, known.blocked_by, known.not_before_ms) == ("open", "switch", 77)
    store.requests().cancel("request-1", "no")
    known = facts(store)[SPAN]
    assert (known.request_id, known.refused_by) == (None, "cancelled")
    run = desk.admitted("a")
    promised = RetryState(
        run_id=run.run_id,
        attempt=1,
        grants=0,
        grant_attempts=0,
        granted_at_ms=START_MS,
        not_before_ms=START_MS + 5,
        fate="retry",
        error_class="unknown",
        reason="retry",
        updated_at_ms=START_MS,
    )
    desk.fail(run, retry=promised)
    known = facts(store)[SPAN]
    assert (known.is_promised, known.not_before_ms, known.held_code) == (True, START_MS + 5, None)
    again = desk.again(store.run(run.run_id)).run  # type: ignore[arg-type]
    assert again is not None
    desk.fail(again, retry=replace(promised, attempt=2, fate="quarantine"), held=held(run.run_id))
    known = facts(store)[SPAN]
    assert (known.is_promised, known.held_code) == (False, "KFM601")


def dismissal(**changes: Any) -> Dismissal:
    made = Dismissal(
        source_id=SOURCE,
        dataset_id="ks-streamflow",
        start_ms=SPAN[0],
        end_ms=SPAN[1],
        actor="ada",
        rationale="The gauge was in repair.",
    )
    return replace(made, **changes)


@pytest.mark.req("DAT-3")
def test_a_dismissal_settles_all_of_a_window(desk: Desk) -> None:
    """Its quarantine is resolved, its requests are cancelled, no attempt is ahead; the chain has it."""
    store = desk.store
    run = desk.admitted("a")
    desk.fail(run, held=held(run.run_id))
    store.requests().accept([request(1)])
    answer = store.windows().dismiss([dismissal()], entry("window-dismissed"))
    assert answer.answer == "dismissed"
    assert facts(store)[SPAN].settled == "dismissed"
    assert facts(store)[SPAN].held_code is None
    assert store.request_reader().request("request-1").state == "cancelled"  # type: ignore[union-attr]
    (settled,) = store.window_reader().settled(SOURCE)
    assert (settled.actor, settled.rationale) == ("ada", "The gauge was in repair.")
    assert store.governance(kind="window-dismissed")
    assert store.windows().undismiss([dismissal()], entry("undone")).answer == "undone"
    assert facts(store)[SPAN].settled is None
    assert store.windows().undismiss([dismissal()], entry("undone")).answer == "not-dismissed"


@pytest.mark.req("DAT-3")
def test_a_dismissal_ends_for_good_with_newer_data(desk: Desk) -> None:
    """Data that came after it ends it, also where a later run of the window fails; a run that found nothing
    does not."""
    store = desk.store
    store.windows().dismiss([dismissal()], entry("window-dismissed"))
    at_ms = store.now_ms()
    while store.now_ms() <= at_ms:  # the clock is real
        pass
    desk.promote(desk.admitted("a"), None, found="absent")
    assert facts(store)[SPAN].settled == "dismissed"
    desk.promote(desk.admitted("b"))
    assert facts(store)[SPAN].settled is None
    assert store.window_reader().settled(SOURCE) == []
    desk.fail(desk.admitted("c"))
    assert (facts(store)[SPAN].run_status, facts(store)[SPAN].settled) == ("failed", None)


@pytest.mark.req("DAT-3")
def test_what_can_not_be_dismissed_keeps_all_as_it_was(desk: Desk) -> None:
    """A window that is running, or halted for review, and every other of the same command."""
    store = desk.store
    other = dismissal(start_ms=SPAN[1], end_ms=SPAN[1] + DAY_MS)
    run = desk.admitted("a")
    assert store.windows().dismiss([other, dismissal()], entry("x")).answer == "running"
    desk.fail(run, held=held(run.run_id, "KFM302"))
    answer = store.windows().dismiss([other, dismissal()], entry("x"))
    assert (answer.answer, answer.window) == ("halted", dismissal())
    assert store.window_reader().settled(SOURCE) == []
    assert store.governance(kind="x") == []


@pytest.mark.req("DAT-1")
def test_an_expectation_is_remembered_once(store: Ledger) -> None:
    """Since when windows are expected is kept for each rule; a second process changes nothing."""
    store.windows().expect([("a", "P1D UTC")])
    first = store.window_reader().expectations()
    store.windows().expect([("a", "P1D UTC"), ("a", "PT1H UTC")])
    second = store.window_reader().expectations()
    assert second[("a", "P1D UTC")] == first[("a", "P1D UTC")]
    assert set(second) == {("a", "P1D UTC"), ("a", "PT1H UTC")}


@pytest.mark.req("DAT-1")
def test_the_newest_of_a_dataset_is_found_below_newer_ones_of_others(desk: Desk) -> None:
    """Newer invocations for another dataset change nothing about this one."""
    run = desk.admitted("a")
    desk.promote(run)
    other = new_run("other", source_id="other", dataset_id="other")
    store = desk.store
    for number in range(100, 160):
        call = replace(invocation(number, None, outcome="noop"), dataset_id="other", source_id="other")
        store.record_invocation(call)
    newest_run, newest_call = store.newest_run("ks-streamflow"), store.newest_invocation("ks-streamflow")
    assert newest_run is not None
    assert newest_call is not None
    assert newest_run.run_id == run.run_id
    assert newest_call.run_id == run.run_id
    assert store.newest_run(other.dataset_id) is None


@pytest.mark.req("DAT-3")
@pytest.mark.parametrize("how", ["made", "found done"])
def test_a_held_request_is_settled_with_its_window(desk: Desk, how: str) -> None:
    """Whether a run brings its data, or finds that it is there; a request for another window stays held."""
    store = desk.store
    other = {"window_start_ms": SPAN[1], "window_end_ms": SPAN[1] + DAY_MS}
    run = desk.admit(new_run("run 1", window_start_ms=SPAN[0], window_end_ms=SPAN[1])).run
    assert run is not None
    if how == "found done":
        desk.promote(run, "data")
    store.requests().accept([request(1), request(2, **other)])
    for _ in range(2):
        claimed = store.requests().claim("worker", 60_000, lambda _: False)
        assert claimed is not None
        ending = RequestOutcome(state="done", outcome="failed", reason="No.")
        entry_ = held(claimed.request_id, "KFM404", grain="request")
        assert store.requests().give_up(claimed, ending, entry_, [])
    if how == "found done":
        window = {"window_start_ms": SPAN[0], "window_end_ms": SPAN[1]}
        store.record_invocation(invocation(9, run, outcome="noop", **window))
    else:
        desk.promote(run, "data")
    assert [one.subject for one in store.held(state="held")] == ["request-2"]
    (incident,) = store.incidents()
    assert (incident.state, store.incident_subjects(incident.cause, 10)) == ("open", ["request-2"])


def _newest(runs: list[Run]) -> Run:
    """The rule itself: one that is under way, else the one that ended last."""
    candidates = [one for one in runs if one.end_time_ms is None] or runs
    return min(
        candidates, key=lambda one: (-(one.end_time_ms or 0), -one.start_time_ms, -one.revision, one.run_id)
    )


@pytest.mark.req("DAT-1")
@pytest.mark.parametrize("seed", range(3))
def test_each_window_shows_its_newest_run_among_windows_that_overlap(store: Ledger, seed: int) -> None:
    """Windows that end together, or are parts of each other, several runs of each, some under way, and runs
    that the source made for another dataset: the one that counts is that of a look at every run, also where
    only a span is asked for."""
    desk, rng, made = Desk(store), random.Random(seed), list[Run]()
    for number in range(60):
        first, length = rng.randrange(6), rng.choice((1, 1, 2, 3))
        start_ms = START_MS + first * DAY_MS
        dataset = rng.choice((DATASET, DATASET, "another"))
        run = new_run(
            f"{seed} {number}",
            dataset_id=dataset,
            window_start_ms=start_ms,
            window_end_ms=start_ms + length * DAY_MS,
            start_time_ms=START_MS + rng.randrange(4),
        )
        run = desk.admit(run, scope=f"run:{number}").run
        made.append(run)
        if rng.random() < 0.6:
            desk.fail(run, scope=f"run:{number}")
    known = [store.run(one.run_id) for one in made]
    by_span: dict[tuple[int, int], list[Run]] = {}
    for one in known:
        if one is not None and one.dataset_id == DATASET:
            by_span.setdefault((one.window_start_ms, one.window_end_ms), []).append(one)
    expected = {span: _newest(runs).run_id for span, runs in by_span.items()}
    assert {span: one.run_id for span, one in facts(store).items()} == expected
    start_ms, end_ms = START_MS + 2 * DAY_MS, START_MS + 4 * DAY_MS
    touching = facts(store, start_ms=start_ms, end_ms=end_ms)
    assert {span: one.run_id for span, one in touching.items()} == {
        span: run_id for span, run_id in expected.items() if span[1] > start_ms and span[0] < end_ms
    }
