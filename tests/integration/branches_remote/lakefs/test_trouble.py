"""lakeFS when something is wrong: what is told, what is tried again, what is never done twice."""

from __future__ import annotations

import importlib
import socket
from typing import Any

import pytest

from kfm.model.errors import BranchesUnavailable, ExtraMissing, KfmError, RefNotFound
from tests.integration.branches_remote.lakefs.conftest import Site
from tests.lakefs_model import Repository
from tests.lakefs_server import ACCESS_KEY, SECRET_KEY

pytestmark = pytest.mark.req("RS-5")


def test_a_server_that_is_away(site: Site) -> None:
    """A server that can't be reached is tried a few times; then it is a backend's fault: exit code 4."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(BranchesUnavailable, match=r"can't be reached: .*refused") as caught:
            site.open(endpoint=endpoint).branches()
    assert caught.value.exit_code == 4
    assert len(site.clock.slept) >= 1


def test_wrong_keys(site: Site) -> None:
    """Are told at once, by the names of the settings, and without the keys."""
    with pytest.raises(BranchesUnavailable, match="does not accept our keys") as caught:
        site.open(secret_key="another-secret").branches()
    assert site.clock.slept == []
    assert "lakefs.secret_key" in caught.value.way_out
    for told in (str(caught.value), repr(caught.value.facts), caught.value.way_out):
        assert "another-secret" not in told
        assert ACCESS_KEY not in told


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_is_asked_again(site: Site, status: int) -> None:
    """After the time that it asks for."""
    troubles = [status, status]
    site.server.fail = lambda _operation: troubles.pop() if troubles else None
    assert [branch.name for branch in site.branches.branches()] == ["main"]
    assert len(site.clock.slept) == 2
    assert all(slept >= 1000 for slept in site.clock.slept)


def test_what_can_not_pass_is_not_asked_again(site: Site) -> None:
    """And what the server said is told."""
    site.server.fail = lambda _operation: 400
    with pytest.raises(BranchesUnavailable, match="answered 400: as the test wants it"):
        site.branches.branches()
    assert site.clock.slept == []
    assert len(site.server.requests) == 1


@pytest.mark.parametrize(
    "operation",
    ["createBranch", "uploadObject", "deleteObjects", "commit", "mergeIntoBranch", "deleteBranch"],
)
def test_a_lost_answer_does_nothing_twice(site: Site, operation: str) -> None:
    """Whichever call it was: the commit is there once, with what it was to hold."""
    site.put("main", a="1", b="1")
    lost: list[str] = []

    def lose(name: str) -> bool:
        if name == operation and not lost:
            lost.append(name)
            return True
        return False

    site.server.lose = lose
    site.put("main", a="2", b=None)
    assert lost == [operation]
    assert site.shows("main") == {"a": "2"}
    assert [one.message for one in site.branches.log("main")] == ["put", "put", "Repository created"]


def test_a_lost_answer_to_a_merge_or_a_revert(site: Site) -> None:
    """Merges leave one commit, reverts one, though the first answer never came."""
    site.put("main", a="1")
    site.branches.create("side", "main")
    site.put("side", b="1")
    pending = ["mergeIntoBranch", "revertBranch"]

    def lose(name: str) -> bool:
        if name in pending:
            pending.remove(name)
            return True
        return False

    site.server.lose = lose
    merged = site.branches.merge(site.branches.propose("side", "main"), message="merge", author="ada")
    assert merged.commit is not None  # type: ignore[union-attr]
    site.branches.revert("main", "main", message="back", author="ada")
    assert pending == []
    assert [one.message for one in site.branches.log("main", limit=3)] == ["back", "merge", "put"]
    assert site.shows("main") == {"a": "1"}


def test_a_change_that_fails_leaves_the_branch_as_it_was(site: Site) -> None:
    """Half of it may be uploaded; no reader sees any of it."""
    before = site.put("main", a="1")
    site.server.fail = lambda name: 400 if name == "commit" else None
    with pytest.raises(KfmError):
        site.put("main", a="2", b="2")
    assert site.branches.resolve("main") == before
    assert site.shows("main") == {"a": "1"}


def test_another_repository(site: Site) -> None:
    """One that is not there is the server's answer, not a branch that is missing."""
    site.server.repository.name = "another"
    with pytest.raises(BranchesUnavailable, match="repository not found"):
        site.branches.branches()
    site.server.repository.name = "example"
    with pytest.raises(RefNotFound):
        site.branches.resolve("nothing")


def test_without_the_sdk(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    whole = importlib.import_module

    def missing(name: str, *args: Any) -> Any:
        if name == "lakefs_sdk":
            raise ModuleNotFoundError(name)
        return whole(name, *args)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ExtraMissing) as caught:
        site.branches.branches()
    assert "kfm-kernel[lakefs]" in caught.value.way_out


def test_no_error_tells_the_secret(site: Site) -> None:
    """Whatever the server answers, and however the error is shown."""
    site.put("main", a="1")
    for status in (400, 401, 403, 404, 409, 412, 418, 500):
        site.server.fail = lambda _operation, status=status: status
        with pytest.raises(KfmError) as caught:
            site.put("main", a="2")
        shown = f"{caught.value!r} {caught.value.facts} {caught.value.as_document()} {caught.getrepr()}"
        assert SECRET_KEY not in shown
    site.server.fail = lambda _operation: None


def test_a_model_of_its_own() -> None:
    """A new repository has its default branch and one commit, without entries."""
    repository = Repository()
    assert list(repository.branches) == ["main"]
    assert repository.find("main").tree == {}
