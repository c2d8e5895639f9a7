"""What is promised of requests, by every ledger."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kfm.db.ledger import Ledger
from kfm.db.requests import Requests
from kfm.model.keys import former_webhook_key, request_id
from kfm.model.records import GovernanceEntry, Switch, Trigger
from kfm.model.requests import SPREAD_MS, PutOff, RequestOutcome, RequestPart, UpdateRequest
from kfm.model.schedules import Accounting, Instant, ScheduleState

Open = Callable[[], Ledger]
CLAIM_MS = 60_000


def made(name: str, **more: object) -> UpdateRequest:
    key = f"sha256:{name}"
    given = {
        "request_id": request_id(key),
        "key": key,
        "kind": "webhook",
        "source_id": "river",
        "dataset_id": "rivers",
        "window_start_ms": 0,
        "window_end_ms": 86_400_000,
        "actor": "webhook:river",
        "accepted_at_ms": 1_000,
        "details": {"scheme": "kfm", "checks": ["signature"]},
        **more,
    }
    return UpdateRequest(**given)  # type: ignore[arg-type]


def none_dead(_worker: str) -> bool:
    return False


def claimed(requests: Requests, worker: str) -> UpdateRequest:
    """The one that is this worker's now."""
    found = requests.claim(worker, CLAIM_MS, none_dead)
    assert found is not None
    return found


def now(requests: Requests, request: UpdateRequest) -> UpdateRequest:
    found = requests.request(request.request_id)
    assert found is not None
    return found


@pytest.mark.req("TRG-2")
def test_accepted_once(open_store: Open) -> None:
    """The same request is accepted once: a repetition, also in the same batch, is answered with the first."""
    requests = open_store().requests()
    first, other = made("a", rationale="first"), made("b")
    assert requests.accept([first, other, made("a", rationale="again")]) == [None, None, first]
    (again,) = requests.accept([made("a", rationale="third")])
    assert again is not None
    assert again.rationale == "first"
    assert requests.request(first.request_id) == first
    assert requests.request("nowhere") is None


@pytest.mark.req("TRG-2")
def test_each_source_is_compared_with_its_own_past(open_store: Open) -> None:
    """What a source was sent under the former key of webhooks, which named none, is new to other sources."""
    requests = open_store().requests()
    message = Trigger(type="webhook", source_id="river", dataset_id="rivers", request_uuid="u")
    key = former_webhook_key(message)
    old = made("old", key=key, request_id=request_id(key), request_uuid="u")
    assert requests.accept([old]) == [None]
    again, lakes = made("a", request_uuid="u"), made("b", request_uuid="u", source_id="lakes")
    assert requests.accept([again, lakes, made("c", request_uuid="v")]) == [old, None, None]
    assert requests.accept([lakes, again]) == [lakes, old]
    assert requests.request(again.request_id) is None


def test_who_asked_is_on_record_with_it(open_store: Open) -> None:
    """An entry is made with the request that is new, and with the cancelling that landed; else none is."""
    store = open_store()
    requests, request = store.requests(), made("a", kind="manual", actor="ann")

    def entry(kind: str) -> GovernanceEntry:
        return GovernanceEntry(kind=kind, subject="rivers", actor="ann", recorded_at_ms=1, rationale="why")

    for _ in range(2):
        requests.accept([request], entry("asked"))
    assert requests.cancel(request.request_id, "not needed", entry("cancelled"))
    assert not requests.cancel(request.request_id, "again", entry("cancelled"))
    assert not requests.cancel("nowhere", "again", entry("cancelled"))
    assert sorted(one.kind for one in store.governance()) == ["asked", "cancelled"]


@pytest.mark.req("TRG-2")
def test_claimed_by_one(open_store: Open, kind: str) -> None:
    """However many ask at once, each request is handed to one of them."""
    store = open_store()
    count, workers = 40, 1 if kind == "memory" else 4
    store.requests().accept([made(str(number), dataset_id=f"d{number}") for number in range(count)])
    got: list[list[str]] = [[] for _ in range(workers)]

    def work(index: int) -> None:
        mine = store if workers == 1 else open_store()
        while claimed := mine.requests().claim(f"w{index}", CLAIM_MS, none_dead):
            got[index].append(claimed.request_id)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [one for mine in got for one in mine]
    assert len(everything) == len(set(everything)) == count


def test_a_claim_that_was_renewed_meanwhile_stays(open_store: Open, kind: str) -> None:
    """A process that took a runner for lost compares before it claims: one that is back keeps its claim."""
    store = open_store()
    requests = store.requests()
    requests.accept([made("a")])
    first = claimed(requests, "w1")

    def is_dead(_worker: str) -> bool:
        renewed = (store if kind == "memory" else open_store()).requests().renew(first, 2 * CLAIM_MS)
        assert renewed is not None
        return True

    assert requests.claim("w2", CLAIM_MS, is_dead) is None
    assert requests.settle(first, RequestOutcome(state="done", outcome="success", reason="ok", run_id="r1"))


def test_one_at_a_time_for_a_dataset(open_store: Open) -> None:
    """While a request of a dataset runs, others of it wait, and those of other datasets do not."""
    requests = open_store().requests()
    requests.accept([made("a"), made("b", accepted_at_ms=2_000), made("c", dataset_id="lakes")])
    first, second = claimed(requests, "w1"), claimed(requests, "w2")
    assert {first.dataset_id, second.dataset_id} == {"rivers", "lakes"}
    assert requests.claim("w3", CLAIM_MS, none_dead) is None
    running = first if first.dataset_id == "rivers" else second
    requests.settle(running, RequestOutcome(state="done", outcome="success", reason="ok", run_id="r1"))
    third = claimed(requests, "w3")
    assert third.dataset_id == "rivers"
    assert [one.request_id for one in requests.of_run("r1")] == [running.request_id]


def test_a_claim_passes_on(open_store: Open) -> None:
    """What a dead runner held, or one that overslept, is handed out again; then its word counts no more."""
    requests = open_store().requests()
    requests.accept([made("a")])
    first = claimed(requests, "w1")
    assert (first.state, first.claimed_by, first.tries) == ("running", "w1", 1)
    assert requests.claim("w2", CLAIM_MS, none_dead) is None
    second = requests.claim("w2", CLAIM_MS, "w1".__eq__)
    assert second is not None
    assert (second.claimed_by, second.tries) == ("w2", 2)
    assert requests.renew(first, CLAIM_MS) is None
    assert not requests.settle(first, RequestOutcome(state="done", outcome="success", reason="late"))
    assert requests.settle(second, RequestOutcome(state="done", outcome="success", reason="ok", run_id="r1"))
    ended = requests.request(first.request_id)
    assert ended is not None
    assert (ended.state, ended.run_id, ended.reason, ended.is_settled) == ("done", "r1", "ok", True)
    assert ended.ended_at_ms is not None
    (lapsed,) = requests.accept([made("a")])
    assert lapsed == ended


def test_a_lapsed_claim_is_open_again(open_store: Open) -> None:
    """A runner that does not renew loses what it held, although it lives."""
    requests = open_store().requests()
    requests.accept([made("a")])
    requests.claim("w1", -1, none_dead)
    assert claimed(requests, "w2").claimed_by == "w2"


def test_a_claim_by_a_clock_far_ahead_has_lapsed(open_store: Open) -> None:
    """A claim that ends later than any claim can was written while the ledger's clock was far ahead: it
    keeps the request, and its dataset, from no runner."""
    requests = open_store().requests()
    requests.accept([made("a")])
    requests.claim("w1", 400 * 86_400_000, none_dead)
    assert claimed(requests, "w2").claimed_by == "w2"


def test_a_runner_gives_back_what_it_held_under_a_former_name(open_store: Open) -> None:
    """Its claims are open again at once; those of others stay."""
    requests = open_store().requests()
    requests.accept([made("a"), made("b", dataset_id="lakes")])
    mine, other = claimed(requests, "w1"), claimed(requests, "w2")
    requests.give_back("w1")
    assert claimed(requests, "w3").request_id == mine.request_id
    assert requests.claim("w3", CLAIM_MS, none_dead) is None
    assert requests.renew(other, CLAIM_MS) is not None


def test_later(open_store: Open) -> None:
    """What can't begin now waits, with the reason and what blocks it, and no worker has it meanwhile; it is
    not charged for what was not tried. Once nothing blocks it, it is woken."""
    store = open_store()
    requests = store.requests()
    later_ms = store.now_ms() + 3_600_000
    requests.accept([made("a")])
    mine, later = (
        claimed(requests, "w1"),
        PutOff(not_before_ms=later_ms, blocked_by="switch", reason="paused\0"),
    )
    assert requests.reopen(mine, later, tried=False)
    assert not requests.reopen(mine, later), "it is not ours any more"
    assert requests.claim("w1", CLAIM_MS, none_dead) is None
    assert requests.next_due_ms() == later_ms
    waiting = now(requests, mine)
    assert (waiting.state, waiting.reason) == ("open", "paused\N{SYMBOL FOR NULL}")
    assert (waiting.blocked_by, waiting.tries, waiting.tried_at_ms) == ("switch", 0, None)
    lifted = Switch(scope="all", position="running", rationale="over", actor="ann", set_at_ms=1)
    entry = GovernanceEntry(kind="switch", subject="all", actor="ann", recorded_at_ms=1)
    before_ms = store.now_ms()
    store.set_switch(lifted, entry)
    assert before_ms <= now(requests, mine).not_before_ms <= store.now_ms() + SPREAD_MS


@pytest.mark.parametrize(
    ("part", "names"),
    [("all", {"plain", "burst", "again"}), ("retries", {"again"}), ("bursts", {"burst"})],
)
def test_a_part_of_the_requests(open_store: Open, part: RequestPart, names: set[str]) -> None:
    """Who works off promised attempts only, or announced arrivals only, is handed nothing else."""
    requests = open_store().requests()
    wanted = {
        "plain": made("plain"),
        "burst": made("burst", dataset_id="lakes", kind="upstream-event"),
        "again": made("again", dataset_id="seas", run_id="r1"),
    }
    requests.accept(list(wanted.values()))
    found = set()
    while one := requests.claim("w1", CLAIM_MS, none_dead, part):
        found.add(one.request_id)
    assert found == {wanted[name].request_id for name in names}


def test_datasets_take_turns(open_store: Open) -> None:
    """The dataset whose turn is longest ago is next, however long the requests of another have waited."""
    requests = open_store().requests()
    many = [made(f"a{number}", not_before_ms=number) for number in range(3)]
    requests.accept([*many, made("b", dataset_id="lakes", not_before_ms=900)])
    order = []
    for _ in range(4):
        one = claimed(requests, "w1")
        order.append(one.dataset_id)
        requests.settle(one, RequestOutcome(state="done", outcome="success", reason="ok"))
    assert order == ["rivers", "lakes", "rivers", "rivers"]


def test_cancelled(open_store: Open) -> None:
    """What waits never begins, what runs learns of it when it renews, what has ended stays as it is."""
    requests = open_store().requests()
    requests.accept([made("a"), made("b", accepted_at_ms=2_000)])
    running = claimed(requests, "w1")
    waiting = next(one for one in requests.requests() if one.request_id != running.request_id)
    assert requests.cancel(waiting.request_id, "a later one covers it")
    assert requests.cancel(running.request_id, "a later one covers it")
    renewed = requests.renew(running, CLAIM_MS)
    assert renewed is not None
    assert renewed.cancel == "a later one covers it"
    assert requests.claim("w1", CLAIM_MS, none_dead) is None
    requests.settle(running, RequestOutcome(state="cancelled", outcome="cancelled", reason="stopped"))
    assert not requests.cancel(running.request_id, "again")
    assert {one.state for one in requests.requests()} == {"cancelled"}


def test_pages(open_store: Open) -> None:
    """Lists come newest first, page by page, and each filter holds."""
    requests = open_store().requests()
    requests.accept([made(str(n), accepted_at_ms=n // 2, source_id=f"s{n % 3}") for n in range(10)])
    seen: list[UpdateRequest] = []
    while page := requests.requests(
        limit=3, before=(seen[-1].accepted_at_ms, seen[-1].request_id) if seen else None
    ):
        seen += page
    assert len({one.request_id for one in seen}) == 10
    assert [one.accepted_at_ms for one in seen] == sorted((n // 2 for n in range(10)), reverse=True)
    assert len(requests.requests(source_id="s0")) == 4
    assert requests.requests(state="done") == requests.requests(kind="cron") == []


@pytest.mark.req("TRG-4")
def test_previews_are_kept(open_store: Open) -> None:
    """What a run is about to change is on record under its digest, once, with each request that ends with
    the run; a plan that binds a request stays its plan."""
    requests = open_store().requests()
    first, second, other = made("a"), made("b", run_id="r1"), made("c", run_id="r2")
    bound = made("d", run_id="r1", plan_digest="sha256:approved", is_bound=True)
    requests.accept([first, second, other, bound])
    for _ in range(2):
        requests.keep_preview(first.request_id, "r1", ("sha256:d", "the plan"))
    assert requests.preview("sha256:d") == "the plan"
    kept = [now(requests, one).plan_digest for one in (first, second, other, bound)]
    assert kept == ["sha256:d", "sha256:d", None, "sha256:approved"]
    assert requests.bound_to("r1") == "sha256:approved"
    assert requests.bound_to("r2") is None


# --- schedules ---------------------------------------------------------------------------


def state(cursor_ms: int, version: int) -> ScheduleState:
    return ScheduleState(schedule_id="daily", definition="d", cursor_ms=cursor_ms, version=version)


@pytest.mark.req("TRG-2")
def test_an_instant_has_one_fate(open_store: Open) -> None:
    """Of two that account for the same instants one is heard; the other writes nothing at all."""
    store = open_store()
    states, requests = store.schedule_states(), store.requests()
    assert states.account(Accounting(seen=None, state=state(1_000, 1)))
    assert not states.account(Accounting(seen=None, state=state(9_000, 1)))
    request = made("i", kind="cron", schedule_id="daily", instant_ms=2_000)
    instant = Instant(
        schedule_id="daily", instant_ms=2_000, last_ms=2_000, became="request", request_id=request.request_id
    )
    step = Accounting(seen=state(1_000, 1), state=state(2_000, 2), instants=(instant,), requests=(request,))
    assert states.account(step)
    rival = Accounting(
        seen=state(1_000, 1),
        state=state(3_000, 2),
        instants=(Instant(schedule_id="daily", instant_ms=3_000, last_ms=3_000, became="missed"),),
    )
    assert not states.account(rival)
    assert states.states() == {"daily": state(2_000, 2)}
    assert states.instants("daily", 0, 10_000) == [instant]
    assert requests.unsettled_of("daily") == [request]


def test_spans_are_found_from_within(open_store: Open) -> None:
    """A row that stands for many instants is found by any part of its span."""
    states = open_store().schedule_states()
    span = Instant(schedule_id="daily", instant_ms=1_000, last_ms=9_000, became="missed", reason="away")
    states.account(Accounting(seen=None, state=state(9_000, 1), instants=(span,)))
    assert states.instants("daily", 5_000, 6_000) == [span]
    assert states.instants("daily", 9_001, 20_000) == states.instants("daily", 0, 1_000) == []


def test_backfilled(open_store: Open) -> None:
    """Instants that became nothing can be asked for afterwards: once."""
    store = open_store()
    states = store.schedule_states()
    missed = Instant(schedule_id="daily", instant_ms=1_000, last_ms=1_000, became="missed", reason="away")
    states.account(Accounting(seen=None, state=state(1_000, 1), instants=(missed,)))
    request = made("i", kind="cron", schedule_id="daily", instant_ms=1_000)
    instant = Instant(
        schedule_id="daily",
        instant_ms=1_000,
        last_ms=1_000,
        became="backfilled",
        request_id=request.request_id,
    )
    entry = GovernanceEntry(kind="backfill", subject="daily", actor="ann", recorded_at_ms=1)
    assert states.backfill([instant], [request], entry) == [request]
    assert states.backfill([instant], [request], entry) == []
    assert states.instants("daily", 0, 2_000) == [instant]


@pytest.mark.req("GRO-6")
def test_a_large_batch_is_answered_and_kept_as_each_alone_would_be(open_store: Open) -> None:
    """However many rows go into a statement: what is new, what was there and what comes twice are told apart,
    and every row is what was asked for."""
    requests = open_store().requests()
    there = [made(f"there {number}") for number in range(3)]
    assert requests.accept(there) == [None] * 3
    new = [
        made(f"new {number}", rationale=f"it's number {number}", instant_ms=number) for number in range(171)
    ]
    batch = [*new[:50], there[1], *new[50:], new[7], there[2]]
    assert requests.accept(batch) == [None] * 50 + [there[1]] + [None] * 121 + [new[7], there[2]]
    assert [requests.request(one.request_id) for one in (*there, *new)] == [*there, *new]
    assert requests.accept([made(f"alone {number}") for number in range(200)]) == [None] * 200
