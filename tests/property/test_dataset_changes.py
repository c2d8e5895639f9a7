"""What is withdrawn, purged and put back: decided the same over any history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.model.dataset_changes import (
    Withdrawal,
    against_rollback,
    at_version,
    blobs_of,
    gone_from,
    only_removes,
    purgeable,
    purged,
    tombstone,
    withdrawn_items,
    without,
)
from kfm.model.records import Asset, Item, Manifest
from kfm.model.settings import Care, Rights
from kfm.model.versions import Version, version_of

pytestmark = pytest.mark.req("DAT-4", "DAT-5")

RIGHTS = Rights(license="CC0-1.0", care=Care(label="Public"))
HOURS = st.integers(0, 12)
SOURCES = st.sampled_from(["a", "b"])


@st.composite
def items(draw: st.DrawFn) -> Item:
    start, length, source = draw(HOURS), draw(st.integers(1, 4)), draw(SOURCES)
    text = f"{source}_{start}_{start + length}"
    digest = f"{draw(st.integers(0, 9))}" * 64  # few blobs, so that items share them
    asset = Asset(path=f"{text}.csv", sha256=digest, size=1, media_type="text/csv")
    return Item(
        id=text,
        source_id=source,
        window_start_ms=start,
        window_end_ms=start + length,
        partition=None,
        assets=(asset,),
    )


versions = st.lists(items(), max_size=6, unique_by=lambda one: one.id).map(
    lambda found: version_of(
        Manifest(
            dataset_id="d",
            title="d",
            description="d",
            domain="g",
            keywords=(),
            rights=RIGHTS,
            items=tuple(sorted(found, key=lambda one: one.id)),
        )
    )
)


@st.composite
def withdrawals(draw: st.DrawFn) -> Withdrawal:
    whole = draw(st.booleans())
    start = draw(HOURS)
    since = draw(st.integers(1, 9))
    lifted = draw(st.booleans())
    return Withdrawal(
        change_id=f"c{draw(st.integers(0, 99))}",
        dataset_id="d",
        source_id=draw(st.sampled_from(["", "a"])),
        start_ms=None if whole else start,
        end_ms=None if whole else start + draw(st.integers(1, 4)),
        retires=False,
        purge=draw(st.booleans()),
        reason="why",
        since_sequence=since,
        withdrawn_at_ms=0,
        until_sequence=since + draw(st.integers(1, 3)) if lifted else None,
        lifted_by="l" if lifted else None,
    )


def hours_of(item: Item) -> set[int]:
    return set(range(item.window_start_ms, item.window_end_ms))


def forbidden(item: Item, one: Withdrawal) -> bool:
    """Hour by hour, as a person would count."""
    if one.source_id and one.source_id != item.source_id:
        return False
    if one.start_ms is None or one.end_ms is None:
        return True
    return bool(hours_of(item) & set(range(one.start_ms, one.end_ms)))


@given(versions, withdrawals())
def test_a_withdrawal_takes_exactly_the_overlapping_items(version: Version, one: Withdrawal) -> None:
    """What is left overlaps nowhere, what is gone overlaps somewhere, and nothing else changes."""
    left = without(version, one)
    assert left.items() == [item for item in version.items() if not forbidden(item, one)]
    assert not withdrawn_items(left.items(), (one,))
    assert only_removes(version, left)
    assert without(left, one) == left


@given(versions, versions)
def test_only_what_adds_nothing_may_always_be_shown(shown: Version, head: Version) -> None:
    """A version passes the gates unasked only if readers have each of its items already."""
    assert only_removes(shown, head) == (set(head.items()) <= set(shown.items()))
    assert only_removes(None, head) == (not head.items())


@given(st.integers(1, 9), versions, st.lists(withdrawals(), max_size=4))
def test_no_rollback_brings_back_what_may_not_be_seen(
    sequence: int, version: Version, known: list[Withdrawal]
) -> None:
    """A version is refused exactly if it holds what is withdrawn now, or what was purged after it; of a
    dataset that is withdrawn as a whole each is, also an empty one."""
    now = any(one.lifted_by is None and forbidden(item, one) for one in known for item in version.items())
    now = now or any(one.lifted_by is None and one.start_ms is None and not one.source_id for one in known)
    gone = any(
        one.purge and sequence < one.since_sequence and forbidden(item, one)
        for one in known
        for item in version.items()
    )
    answer = against_rollback(sequence, version, known)
    assert (answer is not None) == (now or gone)
    assert (answer is not None and answer[1] == "purged") == gone


@given(st.integers(1, 9), versions, st.lists(withdrawals(), max_size=4))
def test_readers_are_refused_exactly_what_is_gone(
    sequence: int, version: Version, known: list[Withdrawal]
) -> None:
    """A version is gone if all of the dataset is withdrawn now, or if it could not be put back; each reason
    is told once, and lifting ends all but a purge."""
    all_of_it = any(one.lifted_by is None and one.is_whole and not one.target for one in known)
    found = gone_from(sequence, version, known)
    assert bool(found) == (all_of_it or against_rollback(sequence, version, known) is not None)
    assert len({one.change_id for one in found}) == len(found)
    lifted = [replace(one, lifted_by="l") for one in known]
    assert all(one.purge for one in gone_from(sequence, version, lifted))


@given(st.lists(versions, max_size=5), st.lists(versions, max_size=3), withdrawals())
def test_a_purge_never_takes_a_blob_that_is_needed(
    history: list[Version], others: list[Version], one: Withdrawal
) -> None:
    """What goes was only in versions that go; what another dataset or a kept version has stays."""
    gone = [m for number, m in enumerate(history, 1) if purged(number, m, (one,))]
    kept = [m for number, m in enumerate(history, 1) if not purged(number, m, (one,))]
    blobs = purgeable(gone, [*kept, *others])
    assert blobs <= blobs_of(gone)
    assert not blobs & blobs_of([*kept, *others])
    assert blobs_of(gone) <= blobs | blobs_of([*kept, *others])


@given(st.integers(1, 12), st.lists(withdrawals(), max_size=4))
def test_a_version_tells_the_same_of_itself_at_any_time(sequence: int, known: list[Withdrawal]) -> None:
    """Its tombstone names what was withdrawn by then and not yet allowed again, whatever happened since."""
    shown = at_version(known, sequence)
    later = [one for one in known if one.since_sequence <= sequence]
    assert at_version(later, sequence) == shown
    document = tombstone("d", sequence, shown)
    assert (document is None) == (not shown)
    if document is not None:
        assert len(document["withdrawn"]) == len(shown)
        assert (document["state"] == "withdrawn") == any(one.is_whole for one in shown)
