"""Retention: what is old goes, and nothing that the ledger has promised goes with it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.audit.chain import links, verify, verify_seals
from kfm.audit.records import _units, compare_records
from kfm.db.ledger import Ledger
from kfm.db.requests import accept
from kfm.lineage.unit_provenance import unit_document
from kfm.model.audit import EVENTS, UNITS
from kfm.model.errors import ChainBroken, LostLease
from kfm.model.records import Justification, Lock
from kfm.model.requests import RequestOutcome
from kfm.model.settings import RetentionSettings, Settings
from kfm.model.units import versions
from kfm.reports.explain.subjects import _of_unit
from kfm.storage.retention import Batch, RetentionDuty, RetentionPass, carry_out, preview
from kfm.telemetry.ledger_metrics import FOLD, _decode, _form, keep_fold
from tests.conformance.db.ledgers import Desk, alive, digest, invocation, new_run
from tests.conformance.db.test_windows import DAY_MS, facts, request
from tests.conformance.units.scene import START_MS, Scene, id_of, taken
from tests.conformance.units.test_unit_evidence import NAMES, busy

pytestmark = pytest.mark.req("GRO-2")
BY = Justification(actor="ada", rationale="The disk is small.")
STRICTEST = RetentionSettings(
    **{name: -2 for name in RetentionSettings.__struct_fields__ if name.endswith("_days")}, enabled=True
)  # so strict that all that was ever written is old


def a_pass(store: Ledger, settings: RetentionSettings = STRICTEST, **more: Any) -> RetentionPass:
    return RetentionPass(store, settings, worker_id="keeper", is_dead=alive, by=BY, **more)


def deliver(store: Ledger) -> None:
    for topic in ("openlineage", "unit-lineage", "incident"):
        while found := store.claim_messages(topic, 100, 60_000):
            store.messages_delivered([one.number for one in found])


def lively(scene: Scene) -> Desk:
    """Units of every fate; runs that succeeded or failed; calls that found nothing new or were refused."""
    busy(scene)
    desk = Desk(scene.store)
    for number in range(6):
        run = desk.admitted(f"run {number}")
        if number == 3:
            assert desk.fail(run)
        else:
            assert desk.promote(run, f"bytes {number}").answer == "promoted"
    done = scene.store.run(new_run("run 5").run_id)
    for number in range(20, 26):
        outcome: Any = ("noop", "refused")[number % 2]
        known = done if outcome == "noop" else None
        span = {"window_start_ms": run.window_start_ms, "window_end_ms": run.window_end_ms}
        scene.store.record_invocation(invocation(number, known, outcome=outcome, **span))
    requests = scene.store.requests()
    requests.accept([request(number) for number in range(3)])
    deliver(scene.store)
    return desk


def counts(store: Ledger) -> dict[str, int]:
    tables = ("runs", "requests", "units", "promotions", "governance", "instants", "locks", "held")
    return {name: _number(store, f"SELECT COUNT(*) FROM {name}") for name in tables}


def evidence(store: Ledger) -> dict[str, int]:
    tables = ("outbox", "unit_pages", "invocations", "attempts", "run_documents")
    return {name: _number(store, f"SELECT COUNT(*) FROM {name}") for name in tables}


def _number(store: Ledger, sql: str) -> int:
    return int(Scene(store).sql(sql)[0][0])


def script(store: Ledger, sql: str) -> None:
    store._database.write(lambda _: store._database.script(sql))  # type: ignore[attr-defined]


def last_numbers(store: Ledger) -> dict[str, int]:
    names = ("attempts", "invocations", "retries")
    return {name: _number(store, f"SELECT MAX(number) FROM {name}") for name in names}


def retries_counted(store: Ledger) -> int:
    while keep_fold(store, rows_min=1):
        pass
    fold = store.fold(FOLD, _form())
    assert fold is not None
    return sum(count for _, count in _decode(fold.body).counters["kfm.call.retries_total"])


def problems(store: Ledger) -> list[str]:
    """What verification finds wrong. The desk promotes without an entry in the chain: no finding here."""
    seals = (verify_seals(store, links(store), stream) for stream in (EVENTS, UNITS))
    told = store.events_between(1, 2**62)  # the desk's own events are no JSON
    found = _units(store) if told else compare_records(store).findings
    records = (each.detail for each in found if each is not None and each.kind != "promotion")
    broken = verify(store).finding
    return [*([str(broken)] if broken else []), *(one.detail for one in seals if one.detail), *records]


def test_what_was_previewed_goes_and_the_log_stays_sound(scene: Scene) -> None:
    """As many rows and bytes of each kind as the preview said; the log says what has gone; no key has."""
    lively(scene)
    store, before = scene.store, counts(scene.store)
    plan = preview(store, STRICTEST)
    gone = carry_out(a_pass(store, batch_rows=7))
    assert {one.kind: (one.rows, one.bytes) for one in plan.kinds if one.rows} == {
        kind: (one.rows, one.bytes) for kind, one in gone.items()
    }
    assert {"outbox", "unit_history", "invocations", "attempts", "trigger_documents"} <= gone.keys()
    assert problems(store) == []
    verdict = verify_seals(store, links(store), UNITS)
    assert verdict.retired == gone["unit_history"].rows > 0
    assert verify_seals(store, links(store)).retired == gone["outbox"].rows > 0
    after = counts(store)
    assert {**after, "governance": 0} == {**before, "governance": 0}
    assert carry_out(a_pass(store)) == {}
    assert preview(store, STRICTEST).rows == 0


DAMAGE = (
    ("UPDATE unit_pages SET members = '[]' WHERE number = (SELECT MAX(number) FROM unit_pages)", "page"),
    ("DELETE FROM unit_pages WHERE number = (SELECT MIN(number) FROM unit_pages)", "page"),
    (
        "INSERT INTO unit_pages (number, event, status, at_ms, members, form) "
        "SELECT MIN(number) - 1, 'claimed', 'in_progress', 1, '[]', 1 FROM unit_pages",
        "page",
    ),
    ("UPDATE units SET attempts = attempts + 1 WHERE status = 'succeeded'", "unit"),
)


@pytest.mark.parametrize(("damage", "what"), DAMAGE)
def test_an_edit_of_what_stays_is_found(scene: Scene, damage: str, what: str) -> None:
    """A page or a unit that was changed, removed or put back by hand after retention breaks the log."""
    lively(scene)
    carry_out(a_pass(scene.store))
    assert problems(scene.store) == []
    scene.store._database.write(lambda _: scene.store._database.script(damage))  # type: ignore[attr-defined]
    found = problems(scene.store)
    assert found
    assert what in found[0].lower(), found


def test_nothing_that_is_told_again_is_done_again(scene: Scene) -> None:
    """A unit's message, a webhook's id and a run's key mean after the strictest retention what they meant."""
    desk = lively(scene)
    store = scene.store
    carry_out(a_pass(store))
    states = {name: scene.stored(name).unit for name in NAMES}
    report = scene.take(*(taken(name) for name in NAMES))
    assert (report.created, report.reissued) == (0, 0)
    assert {name: scene.stored(name).unit for name in NAMES} == states
    assert (
        store._database.write(lambda session: accept(session, [request(number) for number in range(3)]))
        == set()
    )
    for number in range(6):
        run = new_run(f"run {number}")
        assert desk.admit(run).answer != "admitted"
        assert store.run(run.run_id) is not None


def test_a_request_keeps_what_it_promises_and_loses_what_its_message_told(scene: Scene) -> None:
    """Of a webhook that is settled the sender's words go; key, digests, window and outcome stay, and the same
    message is known again. One that waits stays whole."""
    store, requests = scene.store, scene.store.requests()
    told = {"scheme": "kfm", "checks": ["signature"], "integrity_hash": digest("body")}
    asked = [
        replace(request(number), kind="webhook", envelope_hash=digest("sent"), rationale="They say so.")
        for number in range(2)
    ]
    asked = [replace(one, claimed_actor="eve", ticket="T-1", details=told) for one in asked]
    requests.accept(asked)
    claimed = requests.claim("w1", 60_000, alive)
    assert claimed is not None
    requests.settle(claimed, RequestOutcome(state="done", outcome="refused", reason="A gate said no."))
    before = {one.request_id: requests.request(one.request_id) for one in asked}
    assert carry_out(a_pass(store))["request_details"].rows == 1
    for one in asked:
        there, was = requests.request(one.request_id), before[one.request_id]
        assert there is not None
        assert was is not None
        slim = {"claimed_actor": None, "rationale": None, "ticket": None}
        slim["details"] = {"integrity_hash": digest("body")}
        assert there == (replace(was, **slim) if one.request_id == claimed.request_id else was)
    assert store._database.write(lambda session: accept(session, asked)) == set()
    assert carry_out(a_pass(store, again=True)).get("request_details") is None


def test_a_seal_goes_only_when_all_of_its_messages_were_delivered(scene: Scene) -> None:
    """One message that waits keeps its seal's rows; later seals go, and it goes once it is delivered."""
    desk, store = Desk(scene.store), scene.store
    desk.promote(desk.admitted("waits"), "one")
    assert store.seal("ada") is not None
    desk.promote(desk.admitted("goes"), "two")
    assert store.seal("ada") is not None
    first, *others = store.claim_messages("openlineage", 100, 1)
    store.messages_delivered([one.number for one in others])
    only = replace(KEEP, outbox_days=-2)
    assert preview(store, only).kinds[0].kept == {"not-delivered": 1}
    assert carry_out(a_pass(store, only))["outbox"].rows == 2
    assert store.events_between(1, 2**62)[0].event_id == first.event_id
    store.messages_delivered([first.number])
    assert carry_out(a_pass(store, only))["outbox"].rows == 2
    assert store.events_between(1, 2**62) == []
    assert problems(store) == []
    desk.promote(desk.admitted("later"), "three")
    assert min(one.number for one in store.events_between(1, 2**62)) > max(one.number for one in others)


KEEP = replace(STRICTEST, **{name: None for name in RetentionSettings.__struct_fields__ if name != "enabled"})


def test_history_that_is_not_as_sealed_stays(scene: Scene) -> None:
    """What was edited after its seal is evidence: nothing of it goes, and the person is told."""
    lively(scene)
    scene.store.seal("ada", stream=UNITS)
    before = scene.store.units().pages_written()
    edit = "UPDATE unit_pages SET worker_id = 'x' WHERE number = (SELECT MIN(number) FROM unit_pages)"
    scene.store._database.write(lambda _: scene.store._database.script(edit))  # type: ignore[attr-defined]
    with pytest.raises(ChainBroken):
        carry_out(a_pass(scene.store, replace(KEEP, unit_history_days=-2)))
    assert scene.store.units().pages_written() == before


def test_one_process_at_a_time(open_store: Callable[[], Ledger], kind: str) -> None:
    """A second one finds it busy; one whose lease has passed on takes nothing more away."""
    if kind == "memory":
        pytest.skip("one process sees it")
    scene = Scene(open_store())
    lively(scene)
    other = open_store()
    begun = a_pass(scene.store, batch_rows=1).steps()
    assert next(begun).rows
    late = a_pass(other)
    assert list(late.steps()) == []
    assert late.blocked_by is not None
    taken_over = other.retention().begin("heir", 60_000, lambda worker_id: worker_id == "keeper")
    assert not isinstance(taken_over, Lock)
    left = evidence(other)
    with pytest.raises(LostLease):
        list(begun)
    assert evidence(other) == left
    other.retention().end(taken_over)
    assert carry_out(a_pass(other))
    assert problems(other) == []


def test_runs_begin_and_end_while_rows_go(scene: Scene) -> None:
    """Between any two batches a run is admitted and promoted, a unit taken in and done: none of it goes."""
    desk = lively(scene)
    scene.store.seal("ada", 5)
    made: list[Batch] = []
    young = replace(STRICTEST, **dict.fromkeys(("outbox_days", "unit_history_days"), 1))
    for number, batch in enumerate(a_pass(scene.store, young, batch_rows=2).steps()):
        made.append(batch)
        if number < 8:
            assert desk.promote(desk.admitted(f"beside {number}"), f"beside {number}").answer == "promoted"
            scene.succeeded(f"beside-{number}")
    assert len(made) > 8
    assert problems(scene.store) == []
    assert all(scene.stored(f"beside-{number}").unit.status == "succeeded" for number in range(8))


def test_the_newest_word_on_each_window_stays(scene: Scene) -> None:
    """What is known of a window is the same before and after, also where only a refusal tells it."""
    lively(scene)
    for day in range(1, 5):
        for number in range(3):
            outcome: Any = ("refused", "noop")[(day + number) % 2]
            span = {"window_start_ms": day * 100, "window_end_ms": day * 100 + 100}
            scene.store.record_invocation(invocation(day * 10 + number + 100, None, outcome=outcome, **span))
    before = facts(scene.store)
    assert len(before) == 5
    carry_out(a_pass(scene.store, batch_rows=3))
    assert facts(scene.store) == before


def test_a_row_that_was_kept_goes_when_it_is_looked_at_again(scene: Scene) -> None:
    """The newest invocation of a window is not the newest for ever: with `again` it goes, and not before."""
    lively(scene)
    store, only = scene.store, replace(KEEP, invocations_days=-2)
    carry_out(a_pass(store, only))
    kept = preview(store, only, again=True)
    assert next(one for one in kept.kinds if one.kind == "invocations").kept
    span = {"window_start_ms": START_MS, "window_end_ms": START_MS + DAY_MS}
    for number in range(300, 303):
        store.record_invocation(invocation(number, None, outcome="refused", **span))
    assert carry_out(a_pass(store, only))["invocations"].rows == 2
    assert carry_out(a_pass(store, only)) == {}
    assert preview(store, only, again=True).rows == 1
    assert carry_out(a_pass(store, only, again=True))["invocations"].rows == 1


def test_no_number_is_given_twice(scene: Scene) -> None:
    """What comes after retention has numbers above all that were there: metrics count every row once, and it
    goes in its turn, but for the last one."""
    store, desk = scene.store, Desk(scene.store)
    retry = (
        "INSERT INTO retries (run_id, attempt, node, call_number, try_number, delay_ms, error_class, "
        "retryable, outcome, circuit_open, at_ms) "
        "VALUES ('{}', 1, 'fetch', 1, 1, 5, 'timeout', 1, 'retried', 0, 1)"
    )

    def work(numbers: range) -> None:
        for number in numbers:
            run = desk.admitted(f"run {number}")
            script(store, retry.format(run.run_id))
            assert desk.promote(run, f"bytes {number}").answer == "promoted"

    work(range(4))
    before = last_numbers(store)
    assert before["attempts"] == before["retries"] == 4
    plan = preview(store, STRICTEST)
    gone = carry_out(a_pass(store, batch_rows=3))
    assert gone["attempts"].rows == gone["call_retries"].rows == 3
    kept = {one.kind: one.kept for one in plan.kinds if one.kind in ("attempts", "call_retries")}
    assert kept == {"attempts": {"last": 1}, "call_retries": {"last": 1}}
    assert carry_out(a_pass(store)) == {}
    work(range(4, 6))
    assert last_numbers(store) == {"attempts": 6, "invocations": 6, "retries": 6}
    assert {"attempts": 2, "call_retries": 2}.items() <= {
        kind: one.rows for kind, one in carry_out(a_pass(store)).items()
    }.items()
    assert retries_counted(store) == 6


def test_what_a_failed_run_found_stays(scene: Scene) -> None:
    """It may be tried again with the same inputs, also where a run that succeeded has found the same."""
    store, desk = scene.store, Desk(scene.store)
    failed, done = desk.admitted("run 0"), None
    assert desk.fail(failed)
    for number in range(1, 3):
        done = desk.admitted(f"run {number}")
        assert desk.promote(done, f"bytes {number}").answer == "promoted"
        script(store, f"INSERT INTO inputs (fingerprint, found) VALUES ('found {number}', '[]')")
        script(store, f"UPDATE runs SET fingerprint = 'found {number}' WHERE run_id = '{done.run_id}'")
    script(store, f"UPDATE runs SET fingerprint = 'found 1' WHERE run_id = '{failed.run_id}'")
    plan = next(one for one in preview(store, STRICTEST).kinds if one.kind == "inputs")
    assert (plan.rows, plan.kept) == (1, {"not-succeeded": 2})
    carry_out(a_pass(store))
    assert (store.inputs("found 1"), store.inputs("found 2")) == ((), None)


def test_collection_and_retention_do_not_wait_for_each_other(scene: Scene) -> None:
    """Objects are collected while rows go, and rows go while objects are collected."""
    lively(scene)
    begun = a_pass(scene.store, batch_rows=1).steps()
    assert next(begun).rows
    fence = scene.store.begin_collection("collector", 60_000, alive)
    assert isinstance(fence, int)
    assert next(begun).rows
    begun.close()  # type: ignore[attr-defined]
    assert all(lock.holder is None for lock in scene.store.locks() if lock.scope == "retention")


class Clocked:
    """Passes with so many batches each; counts those that were begun."""

    def __init__(self, *batches: int) -> None:
        self.batches = list(batches)
        self.closed = 0

    def begin(self) -> Any:
        count = self.batches.pop(0)

        def steps() -> Any:
            try:
                for _ in range(count):
                    yield Batch(kind="outbox", rows=1, bytes=1)
                if count == 0:
                    raise ChainBroken("Row 1: edited.")
            finally:
                self.closed += 1

        return SimpleNamespace(steps=steps)


def test_the_duty_of_a_service_is_hourly_and_in_small_steps(caplog: pytest.LogCaptureFixture) -> None:
    """A pass goes on with each step, begins once an hour, and ends with the service; trouble is logged."""
    passes = Clocked(5, 0, 3)
    duty = RetentionDuty(passes.begin)
    assert [duty.step(at, 3_600_000, 2) for at in (0, 1, 2, 3)] == [True, True, False, False]
    assert passes.closed == 1
    assert not duty.step(3_599_999, 3_600_000, 2)
    assert not duty.step(3_600_000, 3_600_000, 2)
    assert "edited" in caplog.text
    assert duty.step(7_200_000, 3_600_000, 2)
    duty.close()
    assert passes.closed == 3


def test_explanations_of_units_say_what_is_gone_and_invent_nothing(scene: Scene) -> None:
    """The reason is the same before and after; steps that have gone are counted; provenance tells of the
    content that is there, and of units that failed everything stays."""
    lively(scene)

    def told() -> dict[str, Any]:
        return {name: _of_unit(scene.store, Settings(), id_of(name), scene.store.now_ms()) for name in NAMES}

    before, contents = told(), versions(scene.history("superseded"))
    carry_out(a_pass(scene.store))
    after = told()
    assert {name: one.reason for name, one in after.items()} == {
        name: one.reason for name, one in before.items()
    }
    assert "6 earlier steps have gone by retention" in after["superseded"].chain[1].text
    assert [after[name] for name in ("poison", "spent")] == [before[name] for name in ("poison", "spent")]
    stored, history = scene.stored("superseded"), scene.units.history_of(id_of("superseded"))
    document = str(unit_document(stored, history, workers={}, policies={}, mask=None, environment="test"))
    assert [str(one.etag) in document for one in contents] == [False, True]


def test_old_history_is_not_kept_by_young_history_that_was_not_sealed_yet(scene: Scene) -> None:
    """What is old is sealed by itself, and goes; what is young waits for a seal of its own."""
    desk, store = Desk(scene.store), scene.store
    desk.promote(desk.admitted("old"), "one")
    deliver(store)
    aged = "UPDATE outbox SET recorded_at_ms = recorded_at_ms - 864000000"
    store._database.write(lambda _: store._database.script(aged))  # type: ignore[attr-defined]
    desk.promote(desk.admitted("young"), "two")
    deliver(store)
    only = replace(KEEP, outbox_days=5)
    assert preview(store, only).rows == 2
    assert carry_out(a_pass(store, only))["outbox"].rows == 2
    assert verify_seals(store, links(store)).unsealed == len(store.events_between(1, 2**62)) == 2
    assert problems(store) == []


def test_every_table_has_a_size(scene: Scene) -> None:
    """Bytes by table, with indexes, on each database; what rows have left is free for the next ones."""
    lively(scene)
    reader = scene.store.retention_reader()
    sizes = reader.table_sizes()
    assert {"runs", "outbox", "unit_pages", "governance", "retention_marks"} <= sizes.keys()
    assert all(sizes[name] > 0 for name in ("runs", "outbox", "unit_pages"))
    assert reader.free_bytes() >= 0
    carry_out(a_pass(scene.store))
    assert reader.gone()["outbox"].rows > 0
