"""Folders that cost too much to make anew with every version."""

from __future__ import annotations

import pytest

from kfm.model.versions import version_of
from kfm.publish.manifest import merge_items
from kfm.publish.targets.folder import crowded
from tests.unit.publish.stand_ins import DATASET, asset, item


@pytest.mark.req("GRO-1")
def test_folders_with_many_entries_are_named() -> None:
    """Files and folders count, each folder by itself; what is spread over date folders is none of them."""
    flat = [item(day, asset(f"{day}.csv", b"x")) for day in range(12)]
    beside = [item(day, asset(f"days/{day}/a.csv", b"x"), source="noaa") for day in range(11)]
    head = merge_items(None, DATASET, [*flat, *beside], "merge")
    assert crowded(head, 10) == [("", 13), ("days", 11)]
    assert crowded(head, 13) == []
    assert crowded(version_of(head.header)) == []
