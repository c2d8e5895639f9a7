"""Rollback and withdrawal: one transaction, in the same locks as a run's promotion, on each database."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfm.audit.chain import links
from kfm.audit.records import RecordFinding, _promotions, _switches, _Told
from kfm.model.dataset_changes import ApplyChange, ApplyResult, DatasetChange, Purge, Withdrawal
from kfm.model.quarantine import Approval
from kfm.model.records import GovernanceEntry
from kfm.model.runs import Approve
from kfm.model.versions import version_of
from tests.conformance.db.ledgers import (
    MINUTE_MS,
    START_MS,
    Desk,
    alive,
    dead,
    digest,
    entry,
    manifest,
    switch,
)

pytestmark = pytest.mark.req("DAT-4", "DAT-5")

ID = "ks-streamflow"
SCOPE = f"dataset:{ID}"


def request(desk: Desk, kind: Any = "withdraw", **changes: Any) -> ApplyChange:
    """A change of the head, as a plan would ask for it."""
    head = desk.store.head(ID)
    base = head[0].sequence if head else 0
    number = len(desk.store.change_reader().changes()) + 1
    change_id = f"{number:08x}-0000-7000-8000-00000000cccc"
    empty = version_of(replace(manifest("any"), items=()))
    change = DatasetChange(
        change_id=change_id,
        dataset_id=ID,
        kind=kind,
        base_sequence=base,
        sequence=base + 1,
        to_sequence=None,
        digest=digest("plan"),
        actor="ada",
        rationale="It was wrong.",
        ticket=None,
        changed_at_ms=START_MS,
        plan="{}",
    )
    collector = desk.store.lock("gc")
    assert collector is not None
    details = {"dataset_id": ID, "version_id": digest("empty")}
    made = ApplyChange(
        change=change,
        scopes=(SCOPE,),
        collections=collector.fence,
        version_id=digest("empty"),
        version=empty,
        entries=(entry("promotion", change_id, rationale="It was wrong.", details=details),),
    )
    return replace(made, **changes)


def withdrawal(asked: ApplyChange, **changes: Any) -> Withdrawal:
    made = Withdrawal(
        change_id=asked.change.change_id,
        dataset_id=ID,
        source_id="",
        start_ms=None,
        end_ms=None,
        retires=False,
        purge=False,
        reason="It was wrong.",
        since_sequence=asked.change.base_sequence + 1,
        withdrawn_at_ms=0,
    )
    return replace(made, **changes)


def apply(desk: Desk, asked: ApplyChange, is_dead: Any = alive) -> ApplyResult:
    return desk.store.dataset_changes().apply(asked, is_dead)


def shown_by(desk: Desk) -> Any:
    """The head as a target is given it."""
    found = desk.store.change_reader().shown_head(ID)
    assert found is not None
    return found[0]


def promoted(desk: Desk, *texts: str) -> None:
    for text in texts:
        run = desk.admitted(text)
        version = digest(f"version {text} {ID}")
        told = entry("promotion", run.run_id, details={"dataset_id": ID, "version_id": version})
        assert desk.promote(run, text, entries=(told,)).answer == "promoted"


def findings(desk: Desk) -> list[RecordFinding]:
    """What `kfm audit verify` finds in promotions and switches; the events of this store are no lineage."""
    told = _Told(links(desk.store))
    compared = [*_promotions(desk.store, told), *_switches(desk.store, told)]
    return [one for one in compared if one is not None]


def test_a_change_is_one_whole(desk: Desk) -> None:
    """Version, pointer, withdrawal, purges, pause and audit log appear together, and the log agrees."""
    promoted(desk, "one", "two")
    asked = request(desk)
    pause = switch("paused", SCOPE, rationale="Rolled back.")
    told = entry("switch", SCOPE, rationale="Rolled back.", details={"position": "paused"})
    epoch = desk.store.policy_epoch()
    asked = replace(
        asked,
        withdrawal=withdrawal(asked, purge=True),
        pause=pause,
        places=("objects", "target:local"),
        entries=(*asked.entries, told),
    )
    assert apply(desk, asked) == ApplyResult(answer="applied", sequence=3)
    head = desk.store.head(ID)
    assert head is not None
    assert (head[0].sequence, head[0].run_id, head[1].items()) == (3, asked.change.change_id, [])
    assert desk.store.policy_epoch() == head[0].policy_epoch == epoch + 1
    reader = desk.store.change_reader()
    (known,) = reader.withdrawals(ID)
    assert (known.is_active, known.is_whole, known.since_sequence, known.purge) == (True, True, 3, True)
    assert [(one.place, one.state) for one in reader.purges()] == [
        ("objects", "outstanding"),
        ("target:local", "outstanding"),
    ]
    (stored,) = reader.changes(ID)
    assert (
        stored == replace(asked.change, changed_at_ms=stored.changed_at_ms) == reader.change(stored.change_id)
    )
    assert reader.newest(ID) == (3, stored.changed_at_ms)
    (paused,) = [one for one in desk.store.switches() if one.scope == SCOPE]
    assert paused.position == "paused"
    assert findings(desk) == []


def test_the_head_comes_with_its_tombstone(desk: Desk) -> None:
    """What a target shows names what is withdrawn; other readers get the plain head."""
    promoted(desk, "one")
    reader = desk.store.change_reader()
    plain = desk.store.head(ID)
    assert reader.shown_head(ID) == plain
    asked = request(desk)
    apply(desk, replace(asked, withdrawal=withdrawal(asked)))
    shown = reader.shown_head(ID)
    assert shown is not None
    stands: Any = shown[0].tombstone
    assert (stands["state"], stands["sequence"], stands["withdrawn"][0]["reason"]) == (
        "withdrawn",
        2,
        "It was wrong.",
    )


def test_a_run_at_work_is_not_overtaken(desk: Desk) -> None:
    """While a run holds the dataset, a change is refused as busy, and nothing of it is stored."""
    promoted(desk, "one")
    asked = request(desk)
    run = desk.admitted("two")
    answer = apply(desk, asked)
    assert (answer.answer, answer.lock and answer.lock.holder and answer.lock.holder.run_id) == (
        "busy",
        run.run_id,
    )
    assert desk.store.change_reader().changes() == []
    assert desk.promote(run, "two").answer == "promoted"
    assert apply(desk, asked).answer == "head-moved"


def test_a_dead_run_is_fenced_off(desk: Desk) -> None:
    """The lock of a process that is gone is taken from it: what it still tries is refused."""
    promoted(desk, "one")
    run = desk.admitted("two")
    asked = request(desk)
    assert apply(desk, asked, dead("worker-1")).answer == "applied"
    assert desk.promote(run, "two").answer == "lost"
    stored = desk.store.run(run.run_id)
    assert stored is not None
    assert stored.status == "failed"


def test_collected_objects_refuse_a_change(desk: Desk) -> None:
    """A garbage collection since the plan was made may have removed what it counts on."""
    promoted(desk, "one")
    asked = request(desk)
    fence = desk.store.begin_collection("collector", MINUTE_MS, alive)
    assert isinstance(fence, int)
    assert apply(desk, asked).answer == "busy"
    desk.store.end_collection(fence, entry("gc"))
    assert apply(desk, asked).answer == "collected"
    assert apply(desk, request(desk)).answer == "applied"


def test_a_collector_that_is_gone_goes_on_after_no_change(desk: Desk) -> None:
    """A change begins although a dead collector has its lock; should that one wake up, its fence is old."""
    promoted(desk, "one")
    fence = desk.store.begin_collection("collector", MINUTE_MS, alive)
    assert isinstance(fence, int)
    assert apply(desk, request(desk), dead("collector")).answer == "applied"
    assert desk.store.renew("gc", fence, MINUTE_MS) is None


def test_withdrawn_data_is_not_promoted(desk: Desk) -> None:
    """A run that would bring withdrawn data back is refused in its promotion, until that is lifted."""
    promoted(desk, "one")
    asked = request(desk)
    span = {"start_ms": START_MS, "end_ms": START_MS + 1}
    apply(desk, replace(asked, withdrawal=withdrawal(asked, **span)))
    run = desk.admitted("two")
    assert desk.promote(run, "two").answer == "withdrawn"
    assert desk.promote(run, None).answer == "unchanged"
    (known,) = desk.store.change_reader().withdrawals(ID)
    assert getattr(shown_by(desk), "tombstone", None) is not None
    lift = request(desk, "lift", lifts=(known.change_id,), entries=())
    assert apply(desk, lift) == ApplyResult(answer="applied", sequence=3)
    (lifted,) = desk.store.change_reader().withdrawals(ID)
    assert (lifted.is_active, lifted.until_sequence) == (False, 3)
    assert getattr(shown_by(desk), "tombstone", None) is None, "the version of the lift has no tombstone"
    assert apply(desk, request(desk, "lift", lifts=(known.change_id,), entries=())).answer == "lifted"
    assert desk.store.head(ID) is not None
    assert desk.promote(desk.admitted("three"), "three").answer == "promoted"


def test_another_window_is_promoted(desk: Desk) -> None:
    """A withdrawal of one span does not touch the next."""
    promoted(desk, "one")
    asked = request(desk)
    span = {"start_ms": START_MS + 1, "end_ms": START_MS + 2}
    apply(desk, replace(asked, withdrawal=withdrawal(asked, **span)))
    assert desk.promote(desk.admitted("two"), "two").answer == "promoted"


def approval(desk: Desk, asked: ApplyChange) -> str:
    made = Approval(
        request_id="00000001-0000-7000-8000-00000000aaaa",
        kind="change",
        subject=f"change:{ID}",
        digest=asked.change.digest,
        requested_by="ada",
        requested_at_ms=START_MS,
        rationale="Please.",
    )
    desk.store.request_approval(made, entry("approval-requested", details={"request_id": made.request_id}))
    told: GovernanceEntry = entry("approval", actor="bea", details={"request_id": made.request_id})
    desk.store.approve(
        Approve(
            request_id=made.request_id,
            digest=made.digest,
            approved_by="bea",
            names=("bea",),
            rationale="Yes.",
            valid_ms=MINUTE_MS,
            entries=(told,),
        )
    )
    return made.request_id


def test_an_approval_is_for_one_plan_and_used_once(desk: Desk) -> None:
    """Another digest, or a second use, is refused inside the transaction."""
    promoted(desk, "one")
    asked = request(desk)
    request_id = approval(desk, asked)
    assert apply(desk, replace(asked, approval=(request_id, digest("other")))).answer == "not-approved"
    assert apply(desk, replace(asked, approval=(request_id, asked.change.digest))).answer == "applied"
    again = request(desk)
    assert apply(desk, replace(again, approval=(request_id, again.change.digest))).answer == "not-approved"


def test_a_purge_is_counted_until_it_is_done(desk: Desk) -> None:
    """What is removed in several goes is added up, and the last word about a place stays."""
    promoted(desk, "one")
    asked = request(desk)
    apply(desk, replace(asked, withdrawal=withdrawal(asked, purge=True), places=("objects",)))
    changes = desk.store.dataset_changes()
    part = Purge(
        change_id=asked.change.change_id, dataset_id=ID, place="objects", state="outstanding", removed=2
    )
    changes.purge_done(replace(part, detail="A run is at work."))
    changes.purge_done(replace(part, state="done", removed=3))
    (known,) = changes.purges(asked.change.change_id)
    assert (known.state, known.removed, known.detail) == ("done", 5, "")


def test_an_edited_change_is_found(desk: Desk) -> None:
    """A version that a change made is compared with the chain like that of a run."""
    promoted(desk, "one")
    asked = request(desk)
    apply(desk, replace(asked, entries=()))
    (finding,) = findings(desk)
    assert (finding.kind, finding.subject) == ("promotion", f"{ID}/2")


def test_pages_tell_each_version_and_change_once(desk: Desk) -> None:
    """By the last one of the page before, the newest first, of one dataset and kind or of all."""
    promoted(desk, "one", "two")
    for _ in range(3):
        assert apply(desk, request(desk, "retire")).answer == "applied"
    numbers = []
    before: int | None = None
    while page := desk.store.promotions(ID, 2, before):
        numbers += [one.sequence for one in page]
        before = page[-1].sequence
    assert numbers == [5, 4, 3, 2, 1]
    reader = desk.store.change_reader()
    told: list[str] = []
    last: tuple[int, str] | None = None
    while found := reader.page(dataset_id=ID, kind="retire", before=last, limit=2):
        told += [one.change_id for one in found]
        last = (found[-1].changed_at_ms, found[-1].change_id)
    assert told == [one.change_id for one in reader.changes(ID)]
    assert len(told) == 3
    assert reader.page(kind="lift", limit=9) == []
    assert [one.change_id for one in reader.page(limit=9)] == told
    assert reader.page(dataset_id="other", limit=9) == []
