"""A short form of the removals of `make crash`: killed and stalled, while a folder and a bucket are read."""

from __future__ import annotations

import pytest

from tests.crash import removals

TRIALS = 6


@pytest.mark.slow
@pytest.mark.req("DAT-4", "DAT-5", "TRG-4")
@pytest.mark.usefixtures("s3_endpoint")  # the campaign starts a server of its own, where one can be started
def test_removals_are_whole_whatever_is_killed() -> None:
    """Readers see whole versions only, never an older one after a newer one, and never withdrawn content
    after its tombstone; a pointer at an earlier name leads to what is there; in the end each target shows the
    change, and a purge has left no byte."""
    outcomes = removals.campaign(TRIALS, seed=20260101)
    assert not [problem for one in outcomes for problem in one.problems], removals.summary(outcomes)
    assert {one.change for one in outcomes} == set(removals.CHANGES)
    assert all(one.reads > 10 for one in outcomes), "the readers have seen something"
