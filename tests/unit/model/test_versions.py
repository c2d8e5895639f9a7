"""Versions that are made of each other."""

from __future__ import annotations

import pytest

from kfm.model import versions
from kfm.model.versions import edited, version_of
from kfm.publish.manifest import merge_items
from tests.unit.publish.stand_ins import DATASET, asset, item


def test_what_is_remembered_of_items_has_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many versions follow each other in one process, the items that they read are kept up to the
    bound, not up to the bound for each."""
    monkeypatch.setattr(versions, "ITEMS_KEPT_BYTES", 2_000)
    head = version_of(merge_items(None, DATASET, [item(0, asset("0.csv", b"x"))], "merge").manifest())
    for day in range(1, 40):
        one = merge_items(None, DATASET, [item(day, asset(f"{day}.csv", b"x"))], "merge").items()[0]
        made = edited(head, head.header, {one.id: one})
        assert [now for _, now in made.changed_items(head)] == [one]
        assert sum(len(versions.item_row(each)[1]) for each in made.pages.remembered.items.values()) <= 2_000
        head = made
    assert len(head.items()) == 40
