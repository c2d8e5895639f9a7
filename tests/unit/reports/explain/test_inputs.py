"""Which input changed is told from the two lists, and never more than was seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.records import Found
from kfm.reports.explain.inputs import SHOWN_MAX, compared, differences
from tests.acceptance.cli.fakes import FakeLedger, make_run

pytestmark = pytest.mark.req("RS-12")

FOUND = st.builds(
    Found,
    uri=st.sampled_from(["file:a", "file:b"]),
    path=st.sampled_from(["a.csv", "b.csv", "c.csv", "d.csv"]),
    media_type=st.just("text/csv"),
    size=st.none() | st.integers(0, 3),
    etag=st.none() | st.sampled_from(['"1"', '"2"']),
)
LISTS = st.lists(FOUND, unique_by=lambda found: found.path, max_size=4)


def found(path: str, **facts: object) -> Found:
    return Found(uri=f"file:{path}", path=path, media_type="text/csv", **facts)


@given(before=LISTS, after=LISTS)
def test_differences_are_exactly_those_of_the_lists(before, after):
    """Each object that came, went or changed is named once; what stayed is not named."""
    told = {each.path: each for each in differences(before, after)}
    old, new = ({each.path: each for each in found} for found in (before, after))
    for path in old.keys() | new.keys():
        if old.get(path) == new.get(path):
            assert path not in told
        else:
            expected = "added" if path not in old else "removed" if path not in new else "changed"
            assert told[path].kind == expected
            assert (told[path].fields != ()) == (expected == "changed")


def test_what_changed_from_what_to_what():
    """The sentence names the object, the field, and both values."""
    ledger = FakeLedger(
        inputs={
            "sha256:old": (found("a.csv", size=1, etag='"1"'), found("b.csv", size=1)),
            "sha256:new": (found("a.csv", size=2, etag='"2"'), found("c.csv", size=1)),
        }
    )
    previous = make_run(run_id="before", fingerprint="sha256:old")
    because, told = compared(ledger, previous, make_run(fingerprint="sha256:new", revision=1))
    assert because == 'input a.csv changed: ETag from "1" to "2", size from 1 to 2, and 2 more inputs did too'
    assert [sentence.text for sentence in told][1:] == [
        'Input a.csv changed: ETag from "1" to "2", size from 1 to 2.',
        "Input b.csv was removed.",
        "Input c.csv was added.",
    ]
    assert {(sentence.record.type, sentence.record.id) for sentence in told} == {("inputs", "sha256:new")}


def test_a_long_list_is_cut():
    """Of very many only the first are named, and how many more there are."""
    many = tuple(found(f"{number:03}.csv", size=1) for number in range(SHOWN_MAX + 37))
    ledger = FakeLedger(inputs={"sha256:old": (), "sha256:new": many})
    _, told = compared(ledger, make_run(fingerprint="sha256:old"), make_run(fingerprint="sha256:new"))
    assert len(told) == SHOWN_MAX + 2
    assert told[-1].text == "And 37 more inputs."


@pytest.mark.parametrize("kept", [{}, {"sha256:old": ()}, {"sha256:new": ()}])
def test_without_evidence_nothing_is_guessed(kept):
    """Where a list is not kept, that is what is said."""
    ledger = FakeLedger(inputs=kept)
    because, told = compared(ledger, make_run(fingerprint="sha256:old"), make_run(fingerprint="sha256:new"))
    assert because is None
    assert told[-1].text.startswith("No evidence of which input changed")


def test_without_a_fingerprint_nothing_is_guessed():
    """A run that never looked upstream has no inputs to speak of."""
    because, told = compared(FakeLedger(), make_run(fingerprint="sha256:old"), make_run(fingerprint=None))
    assert because is None
    assert [sentence.text for sentence in told] == [
        "No evidence of which input changed: its fingerprint is not on record."
    ]
