"""Questions, switches, projections, and text of every kind."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfm.model.errors import KfmError, SchemaViolation
from kfm.model.records import GateResult, Window, Work
from tests.conformance.db.ledgers import START_MS, Desk, digest, entry, invocation, new_run, switch

pytestmark = pytest.mark.req("UPD-4")

AWKWARD = [
    "plain",
    "",
    "Ünïcode – 水 🌊 \u2028 \u202e",
    "tab\tline\nreturn\r",
    "quote ' double \" back \\ percent % colon :name %(x)s {}",
    "\ufffe\uffff\U0010ffff",
    "x" * 200_000,
]


def test_an_empty_ledger_answers(desk: Desk) -> None:
    """Every question has an answer before anything happened."""
    store = desk.store
    assert store.latest_run("x") is None
    assert store.run("x") is None
    assert store.run_by_key("x") is None
    assert store.run_of_correction("x", "y") is None
    assert store.head("x") is None
    assert store.version("x") is None
    assert store.lock("x") is None
    assert (store.runs(), store.invocations(), store.heads(), store.promotions("x")) == ([], [], [], [])
    assert (store.switches(), store.governance(), store.events("x")) == ([], [], [])
    assert (store.projected(), store.states("x"), store.forces("x")) == ({}, {}, 0)
    assert [lock for lock in store.locks() if lock.holder] == []
    assert store.policy_epoch() >= 1
    assert abs(store.now_ms() - store.now_ms()) < 60_000


def test_runs_page_by_page(desk: Desk) -> None:
    """From the last one of a page the next goes on: each run once, also of those that began together."""
    for number in range(7):
        run = new_run(f"r{number}", start_time_ms=START_MS + number // 3)
        assert desk.admit(run, scope=f"dataset:{number}").run is not None
    whole = desk.store.runs()
    found, before = [], None
    while page := desk.store.runs(before=before, limit=2):
        found += page
        before = (page[-1].start_time_ms, page[-1].run_id)
    assert found == whole
    assert len(found) == 7
    assert [run.run_id for run in desk.store.runs(since_ms=START_MS + 2)] == [whole[0].run_id]


def test_runs_are_found_by_what_they_are(desk: Desk) -> None:
    """Newest first, filtered by dataset, source and status, bounded."""
    for number in range(5):
        scope = f"dataset:{number}"
        run = new_run(
            f"r{number}",
            dataset_id=f"d{number % 2}",
            source_id=f"s{number % 3}",
            start_time_ms=START_MS + number,
        )
        admitted = desk.admit(run, scope=scope)
        assert admitted.run is not None
        if number == 3:
            desk.fail(admitted.run, scope=scope)

    def found(**wanted: object) -> list[int]:
        return [run.start_time_ms - START_MS for run in desk.store.runs(**wanted)]  # type: ignore[arg-type]

    assert found() == [4, 3, 2, 1, 0]
    assert found(limit=2) == [4, 3]
    assert found(dataset_id="d0") == [4, 2, 0]
    assert found(source_id="s1") == [4, 1]
    assert found(status="failed") == [3]
    assert found(dataset_id="d1", status="running") == [1]


def test_the_latest_revision_of_a_work_is_found(desk: Desk) -> None:
    """Revisions of one work are one family; forces and corrections in it are counted and found."""
    base = digest("base")
    changes: list[dict[str, object]] = [{}, {"force": 1}, {"correction": "C-7"}, {"force": 2}]
    for revision, extra in enumerate(changes):
        run = new_run(f"r{revision}", work_base=base, revision=revision, **extra)
        admitted = desk.admit(run).run
        assert admitted is not None
        desk.promote(admitted, f"text {revision}")
    latest = desk.store.latest_run(base)
    corrected = desk.store.run_of_correction(base, "C-7")
    assert latest is not None
    assert corrected is not None
    assert (latest.revision, corrected.revision) == (3, 2)
    assert desk.store.forces(base) == 2
    assert desk.store.run_of_correction(base, "C-8") is None


def test_what_published_a_window_last_is_found(desk: Desk) -> None:
    """Whatever the pipeline's version; a failed run, another window or another partition does not count."""
    work = Work(
        source_id="usgs-daily",
        window=Window(start_ms=START_MS, end_ms=START_MS + 86_400_000, spec="P1D"),
        partition=None,
        output_version="any",
    )
    assert desk.store.latest_success(work) is None
    done = desk.admitted("a")
    desk.promote(done, "one")
    desk.fail(desk.admitted("b"))
    for name, change in (("c", {"partition": "p"}), ("d", {"window_start_ms": START_MS + 1})):
        other = desk.admit(new_run(name, **change)).run
        assert other is not None
        desk.promote(other, name)
    found = desk.store.latest_success(work)
    assert found is not None
    assert found.run_id == done.run_id
    parted = desk.store.latest_success(replace(work, partition="p"))
    assert parted is not None
    assert parted.partition == "p"


def test_a_promotion_is_found_by_its_number(desk: Desk) -> None:
    """Each is where its dataset counted it."""
    for text in ("one", "two"):
        desk.promote(desk.admitted(text), text)
    assert desk.store.promotion("ks-streamflow", 1) == desk.store.promotions("ks-streamflow")[1]
    assert desk.store.promotion("ks-streamflow", 3) is None
    assert desk.store.promotion("other", 1) is None


def test_invocations_are_listed_newest_first(desk: Desk) -> None:
    """All of them, or those of a run."""
    run = desk.admitted("a")
    desk.store.record_invocation(invocation(2, run, outcome="noop"))
    desk.store.record_invocation(invocation(3, None, outcome="refused"))
    assert [call.outcome for call in desk.store.invocations()] == ["refused", "noop", None]
    assert [call.outcome for call in desk.store.invocations(run_id=run.run_id)] == ["noop", None]
    assert [call.outcome for call in desk.store.invocations(limit=1)] == ["refused"]


@pytest.mark.req("GOV-1")
def test_a_switch_has_one_position_per_scope_and_moves_the_epoch(desk: Desk) -> None:
    """The last word counts, each word is on record, and every one makes gates be asked again."""
    start = desk.store.policy_epoch()
    epochs = [
        desk.store.set_switch(switch("paused"), entry("switch", "all")),
        desk.store.set_switch(switch("stopped", "dataset:x"), entry("switch", "dataset:x")),
        desk.store.set_switch(switch("running", rationale="Repaired."), entry("switch", "all")),
    ]
    assert epochs == [start + 1, start + 2, start + 3]
    assert desk.store.policy_epoch() == start + 3
    assert desk.store.switches() == [
        switch("running", rationale="Repaired."),
        switch("stopped", "dataset:x"),
    ]
    assert len(desk.store.governance(kind="switch")) == 3
    assert len(desk.store.governance(kind="switch", subject="all")) == 2


def test_projections_only_rise(desk: Desk) -> None:
    """A slow projector that reports an older version changes nothing."""
    for sequence in (3, 1, 2):
        desk.store.raise_projected("d", "local", sequence)
    desk.store.raise_projected("d", "s3", 1)
    assert desk.store.projected() == {("d", "local"): 3, ("d", "s3"): 1}
    desk.store.raise_projected("d", "local", 4)
    assert desk.store.projected()[("d", "local")] == 4


def test_governance_keeps_its_order(desk: Desk) -> None:
    """Newest first, in the order in which they were written, whatever their times say."""
    entries = [entry(f"k{number}", recorded_at_ms=START_MS - number, ticket="T-1") for number in range(4)]
    desk.store.append_governance(iter(entries[:3]))
    desk.store.append_governance(entries[3:])
    assert desk.store.governance() == entries[::-1]
    assert desk.store.governance(limit=1) == entries[3:]


@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
def test_text_comes_back_as_it_was(desk: Desk, text: str) -> None:
    """Whatever people call their things."""
    gates = (GateResult(gate="policy", allowed=True, reason=text, policy_ids=(text,)),)
    run = replace(new_run("a"), partition=text, window_spec=text, correction=text)
    admitted = desk.admit(run, invocation=invocation(1, run, actor=text, rationale=text, gates=gates))
    assert admitted.run is not None
    assert desk.store.run(run.run_id) == admitted.run
    assert desk.store.invocations() == [invocation(1, run, actor=text, rationale=text, gates=gates)]
    notes = entry("note", text, rationale=text, ticket=text, details={text: [text, {"nested": text}]})
    desk.store.append_governance([notes])
    assert desk.store.governance() == [notes]
    desk.store.set_switch(switch(rationale=text, scope=text), entry("switch"))
    assert desk.store.switches() == [switch(rationale=text, scope=text)]
    desk.promote(admitted.run, states=((text, text),), events=((text, {text: text}),))
    assert desk.store.states("ks-streamflow") == {text: text}
    assert desk.store.events(run.run_id) == [(text, {text: text})]


@pytest.mark.parametrize("text", ["nul \0 here", "half \ud800 pair", "\udcff from a file name"])
def test_a_failure_is_recorded_whatever_its_message(desk: Desk, text: str) -> None:
    """Text that a database refuses is replaced sign by sign, never the reason why a failure is lost."""
    run = desk.admitted("a")
    gates = (GateResult(gate="contract", allowed=False, reason=text),)
    landed = desk.fail(
        run,
        error_message=text,
        gates=gates,
        entries=(entry("review", rationale=text, details={"reason": text}),),
        pause=switch(rationale=text),
    )
    assert landed
    stored = desk.store.run(run.run_id)
    assert stored is not None
    assert stored.error_message is not None
    assert len(stored.error_message) == len(text)
    assert stored.error_message.split()[-1] == text.split()[-1].replace("\ud800", "?").replace("\udcff", "?")
    assert desk.store.invocations()[0].outcome == "failed"
    assert len(desk.store.governance()) == 1
    assert desk.store.switches()[0].position == "paused"


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "finished"},
        {"trigger_type": "whim"},
        {"revision": 2**63},
        {"window_spec": None},
        {"work_base": "half \ud800"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_of_the_wrong_shape_is_refused_whole(desk: Desk, wrong: dict[str, object]) -> None:
    """What the schema does not allow is not written, and the lock is not taken."""
    with pytest.raises(KfmError) as refused:
        desk.admit(replace(new_run("a"), **wrong))
    if "status" not in wrong:
        assert isinstance(refused.value, SchemaViolation)
    assert desk.store.runs() == []
    assert [lock for lock in desk.store.locks() if lock.holder] == []
    desk.admitted("a")
