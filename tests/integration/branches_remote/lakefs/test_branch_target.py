"""A branch target on a lakeFS server: a version is one commit there, and never replaces a newer one."""

from __future__ import annotations

import pytest

from kfm.publish.targets.branch import BranchTree
from tests.integration.branches_remote.lakefs.conftest import Site
from tests.unit.publish.stand_ins import DATASET, Database, MemoryObjects

pytestmark = pytest.mark.req("UPD-6")


class Kept(MemoryObjects):
    """Objects of the published database, in the store that the branches upload from."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site

    def add(self, data: bytes, at_ms: int = 0) -> str:
        staging, _ = self._site.objects.stage()
        staging.write(data)
        staging.commit()
        return super().add(data, at_ms)


def test_the_head_on_a_branch_of_lakefs(site: Site) -> None:
    """Each version replaces the one before it, in one commit with its number."""
    objects = Kept(site)
    database = Database(objects)
    target = BranchTree("lakefs", lambda: site.branches, objects, "published")
    for sequence in (1, 2):
        database.promote()
        assert target.project(DATASET.id, database.head, database.known) == sequence
        assert target.project(DATASET.id, database.head, database.known) == sequence
    shown = site.shows("published")
    assert shown[f"{DATASET.id}/data/now.txt"] == "version 2"
    names = [path for path in shown if path.startswith(f"{DATASET.id}/versions/")]
    assert len(names) == 1
    newest = site.branches.log("published", limit=1)[0]
    assert newest.message == f"{DATASET.id}: version 2"
    assert str(newest.meta["sequence"]) == "2"
