"""Renamings and window lengths: one transaction each, guarded by what was seen, on each database."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.model.dataset_changes import ApplyChange
from kfm.model.incidents import overdue_cause
from kfm.model.versions import version_of
from kfm.model.window_rules import Rewindow
from tests.conformance.db.ledgers import START_MS, Desk, digest, manifest
from tests.conformance.db.test_dataset_changes import ID, SCOPE, apply, findings, promoted, request

pytestmark = pytest.mark.req("DAT-5")

SOURCE = "usgs-daily"
DAY_MS = 86_400_000


def renaming(desk: Desk, new: str, old: str = ID, **changes: Any) -> ApplyChange:
    """The head under another name, as a plan would ask for it."""
    asked = request(desk, "rename", scopes=tuple(sorted((SCOPE, f"dataset:{new}"))), new_name=new)
    change = replace(asked.change, plan=json.dumps({"rename": {"old": old, "new": new}}))
    version = digest(f"named {new}")
    told = [replace(one, details={"dataset_id": ID, "version_id": version}) for one in asked.entries]
    named = version_of(replace(manifest("any"), dataset_id=new))
    made = replace(asked, change=change, version_id=version, version=named, entries=tuple(told))
    return replace(made, **changes)


def rewindowing(desk: Desk, old: str | None, new: str, **changes: Any) -> ApplyChange:
    asked = request(desk, "rewindow", version_id=None, version=None, entries=())
    wanted = Rewindow(
        source_id=SOURCE,
        old=old,
        new=new,
        time_zone="UTC",
        expected_before=f"{old} UTC",
        expected_after=f"{new} UTC",
        look_from_ms=None,
    )
    change = replace(asked.change, sequence=None)
    return replace(asked, change=change, rewindow=replace(wanted, **changes))


def test_a_renaming_is_a_version_under_the_new_name(desk: Desk) -> None:
    """The ledger knows the dataset by its first name; the version, and what is read of it, has the new
    one."""
    promoted(desk, "one", "two")
    assert apply(desk, renaming(desk, "streamflow")).answer == "applied"
    head = desk.store.head(ID)
    assert head is not None
    assert (head[0].dataset_id, head[0].sequence, head[1].dataset_id) == (ID, 3, "streamflow")
    reader = desk.store.change_reader()
    found = reader.renames(ID)
    assert [(one.dataset_id, one.old, one.new, one.sequence) for one in found] == [(ID, ID, "streamflow", 3)]
    assert reader.renames("other") == ()
    assert desk.store.head("streamflow") is None
    assert findings(desk) == []


def test_a_name_stands_for_one_dataset(desk: Desk) -> None:
    """A name that another dataset has or had is refused inside the transaction, and nothing is written."""
    promoted(desk, "one")
    assert apply(desk, renaming(desk, "streamflow")).answer == "applied"
    again = renaming(desk, "rivers", old="streamflow")
    assert apply(desk, again).answer == "applied"
    back = renaming(desk, "streamflow", old="rivers")
    assert apply(desk, back).answer == "applied", "a name that it had once may be its name again"
    other = renaming(desk, "rivers", old="other")
    stranger = replace(other, change=replace(other.change, dataset_id="other", base_sequence=0, sequence=1))
    before = len(desk.store.change_reader().changes())
    assert apply(desk, stranger).answer == "name-taken"
    assert len(desk.store.change_reader().changes()) == before
    assert desk.store.head("other") is None


def test_a_length_is_on_record_with_the_first_version(desk: Desk) -> None:
    """The first promotion keeps it; one with another length is refused, and the run goes on."""
    assert desk.store.change_reader().window_rule(SOURCE) is None
    run = desk.admitted("one")
    assert desk.promote(run, "one", window_length=(SOURCE, "P1D")).answer == "promoted"
    assert desk.store.change_reader().window_rule(SOURCE) == ("P1D", None)
    assert desk.store.change_reader().window_rules() == {SOURCE: ("P1D", None)}
    other = desk.admitted("two")
    assert desk.promote(other, "two", window_length=(SOURCE, "P1W")).answer == "rewindowed"
    found = desk.store.run(other.run_id)
    assert found is not None
    assert found.status == "running"
    assert desk.promote(other, "two", window_length=(SOURCE, "P1D")).answer == "promoted"


def test_a_length_changes_by_its_transaction_alone(desk: Desk) -> None:
    """What counts is the length that the plan was made for; a second one is refused, and nothing of it
    stays."""
    run = desk.admitted("one")
    assert desk.promote(run, "one", window_length=(SOURCE, "P1D")).answer == "promoted"
    asked = rewindowing(desk, "P1D", "P1W")
    assert apply(desk, asked).answer == "applied"
    assert desk.store.change_reader().window_rule(SOURCE) == ("P1W", asked.change.change_id)
    late = rewindowing(desk, "P1D", "P1M")
    assert apply(desk, late).answer == "rewindowed"
    assert desk.store.change_reader().window_rule(SOURCE) == ("P1W", asked.change.change_id)
    assert len(desk.store.change_reader().changes()) == 1


def test_a_length_that_is_not_on_record_gets_its_first(desk: Desk) -> None:
    """A ledger from before has none, and the plan says so."""
    promoted(desk, "one")
    assert apply(desk, rewindowing(desk, None, "P1W")).answer == "applied"
    rule = desk.store.change_reader().window_rule(SOURCE)
    assert rule is not None
    assert rule[0] == "P1W"


def test_the_expectation_goes_on_as_far_back(desk: Desk) -> None:
    """Windows of the new length are expected since those of the earlier one were, also where it was known
    before."""
    promoted(desk, "one")
    desk.store.windows().expect([(SOURCE, "P1D UTC")])
    since_ms = desk.store.window_reader().expectations()[SOURCE, "P1D UTC"]
    while desk.store.now_ms() <= since_ms:
        pass
    desk.store.windows().expect([(SOURCE, "P1W UTC")])
    assert apply(desk, rewindowing(desk, None, "P1W", expected_before="P1D UTC")).answer == "applied"
    found = desk.store.window_reader().expectations()
    assert found[SOURCE, "P1W UTC"] == since_ms
    assert apply(desk, rewindowing(desk, "P1W", "P2D")).answer == "applied"
    assert desk.store.window_reader().expectations()[SOURCE, "P2D UTC"] == since_ms


def test_windows_of_the_earlier_length_are_overdue_no_more(desk: Desk) -> None:
    """The incident keeps the windows that still count, and ends with the last."""
    from kfm.model.incidents import OverdueWindow

    promoted(desk, "one")
    monday = 1_767_571_200_000  # 2026-01-05
    spans = [(monday, monday + DAY_MS), (monday, monday + 7 * DAY_MS)]
    late = [OverdueWindow(source_id=SOURCE, dataset_id=ID, window=span, due_ms=START_MS) for span in spans]
    assert desk.store.windows().mark_overdue(late, SOURCE, "any", None, START_MS)
    assert apply(desk, rewindowing(desk, None, "P1W")).answer == "applied"
    found = next(one for one in desk.store.incidents() if one.cause == overdue_cause(ID))
    assert found.state == "open", "the week still counts"
    assert apply(desk, rewindowing(desk, "P1W", "P1M")).answer == "applied"
    found = next(one for one in desk.store.incidents() if one.cause == overdue_cause(ID))
    assert found.state == "resolved"
