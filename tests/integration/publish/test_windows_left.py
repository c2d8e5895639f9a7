"""One window after the other, by the product itself, to a folder and a bucket: what each costs."""

from __future__ import annotations

import pytest

from bench.windows import grown, slopes

PART = 20


@pytest.mark.slow
@pytest.mark.req("GRO-1")
def test_a_window_more_leaves_and_writes_what_every_window_does() -> None:
    """60 hourly windows of a merged dataset, old versions collected: objects and bytes of the ledger that are
    left, and requests to the bucket, are those of the twenty before."""
    costs = slopes(grown(3 * PART, PART), PART)
    for name in ("objects", "ledger", "puts", "gets"):
        _, before, after = costs[name]
        assert abs(after - before) <= before / 10, (name, costs[name])
    assert costs["objects"][-1] < 3, "its file, its item, and a share of the pages that lead to them"
