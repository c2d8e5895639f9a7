"""Branches while a pipeline run works on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kfm as library
from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]


@pytest.mark.req("RS-5")
def test_a_branch_is_not_deleted_under_a_pass(kfm: Kfm, project: Path) -> None:
    """It would be begun anew by the pass's last commit, without all that it held before."""
    (project / "kfm.yml").write_text("version: 1\nenvironment: test\ndatasets: []\nsources: []\n")
    flow = library.Pipeline("flow")
    deleted: list[Called] = []
    delete = ("branch", "delete", "work", "--rationale", "no more needed")

    @flow.node("flow.made")
    def made() -> int:
        deleted.append(kfm(*delete))
        return 1

    assert kfm("branch", "create", "work").code == 0
    assert flow.run(branch="work").state == "success"
    assert (deleted[0].code, "works on work" in deleted[0].err) == (5, True)
    assert kfm(*delete).code == 0
