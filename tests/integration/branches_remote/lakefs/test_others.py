"""lakeFS with others at work on the same repository, and with rules of its own."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.branches_remote.lakefs_branches import CANNOT
from kfm.branches_remote.lakefs_client import from_server, to_server
from kfm.model.branches import Commit, Moved, NewCommit, TreeEntry, check_name
from kfm.model.errors import BranchMoved, BranchProtected, GateDenied, RefNameInvalid, UsageError
from kfm.model.records import Justification
from kfm.runs.branch_merges import Merging
from tests.integration.branches_remote.lakefs.conftest import Site
from tests.lakefs_contract import Contract
from tests.lakefs_model import Refusal, Thing

pytestmark = pytest.mark.req("RS-5")
MOMENTS = ("createBranch", "uploadObject", "commit", "mergeIntoBranch")
WHY = Justification(actor="ada", rationale="because it has to be")


def by_others(site: Site, path: str, text: str) -> str:
    """A commit that kfm knows nothing of."""
    site.server.repository.stage("main", path, Thing(text.encode()))
    return site.server.repository.commit("main", "by hand", {}, False).id


@pytest.mark.parametrize("moment", MOMENTS)
def test_another_process_comes_between_with_another_path(site: Site, moment: str) -> None:
    """lakeFS takes no expected head: the commit lands on top of the other's, and both are there."""
    base = site.put("main", a="1").commit_id
    others: list[str] = []

    def between(operation: str) -> None:
        if operation == moment and not others:
            others.append(by_others(site, "b", "theirs"))

    site.server.fail = between
    made = site.branches.commit(
        NewCommit("main", {"a": site.entry("2")}, message="", author="ada", expected=base)
    )
    assert isinstance(made, Commit)
    assert made.parents == (others[0],)
    assert site.shows("main") == {"a": "2", "b": "theirs"}


@pytest.mark.parametrize("moment", MOMENTS)
def test_another_process_comes_between_with_the_same_path(site: Site, moment: str) -> None:
    """Then nothing is written, and the caller that expected a head is told where the branch is."""
    base = site.put("main", a="1").commit_id
    others: list[str] = []

    def between(operation: str) -> None:
        if operation == moment and not others:
            others.append(by_others(site, "a", "theirs"))

    site.server.fail = between
    answer = site.branches.commit(
        NewCommit("main", {"a": site.entry("2")}, message="", author="ada", expected=base)
    )
    assert answer == Moved(branch="main", expected=base, actual=others[0])
    assert site.shows("main") == {"a": "theirs"}
    site.put("main", a="3")  # without an expectation the newest content counts, as everywhere
    assert site.shows("main") == {"a": "3"}


def test_what_is_prepared_is_hidden(site: Site) -> None:
    """No reader who lists branches sees a change before it is there; afterwards nothing is left of it."""
    seen: list[tuple[str, bool]] = []

    def look(operation: str) -> None:
        if operation == "mergeIntoBranch":
            seen.extend((name, line.hidden) for name, line in site.server.repository.branches.items())
            assert [one.name for one in site.open().branches()] == ["main"]

    site.server.fail = look
    site.put("main", a="1")
    assert [hidden for _name, hidden in sorted(seen)] == [True, False]


def test_what_others_have_staged_is_not_touched(site: Site) -> None:
    """It neither gets into a commit of ours nor is it lost; the branch waits for those who staged it."""
    site.put("main", a="1")
    site.server.repository.stage("main", "half-done", Thing(b"x"))
    assert dict(site.branches.entries("main")).keys() == {"a"}
    with pytest.raises(BranchMoved, match="staged") as caught:
        site.put("main", a="2")
    assert "lakectl branch reset" in caught.value.way_out
    assert site.server.repository.branches["main"].staged == {"half-done": Thing(b"x")}
    assert site.shows("main") == {"a": "1"}


def test_what_others_committed_is_read(site: Site) -> None:
    """An object without our note is read and hashed once; its bytes are in the object store then."""
    by_others(site, "theirs.csv", "1,2,3")
    wanted = TreeEntry(sha256=sha256(b"1,2,3").hexdigest(), size=5)
    for _ in range(3):
        assert dict(site.branches.entries("main")) == {"theirs.csv": wanted}
    assert site.asked("getObject") == 1
    assert site.objects.has(wanted.sha256)
    (newest, _first) = site.branches.log("main")
    assert (newest.message, newest.author, newest.meta) == ("by hand", "server-user", {})


def test_bytes_that_are_only_there_can_be_brought(site: Site) -> None:
    """As on another machine, which has the branch and not the object."""
    made = site.put("main", a="text")
    entry = dict(site.branches.entries("main"))["a"]
    site.objects.delete(entry.sha256)
    assert site.branches.bring(made.commit_id, "a") == entry
    assert site.objects.has(entry.sha256)


@pytest.mark.req("RS-10")
def test_a_hook_of_the_server_refuses_a_merge(site: Site) -> None:
    """Its word is a gate's word: exit code 3, and the target is as it was."""
    before = site.put("main", a="1")
    site.branches.create("run/1", "main")
    site.put("run/1", a="worse")
    site.server.repository.before_merge = lambda _source, into: (
        "quality below 0.9" if into == "main" else None
    )
    with pytest.raises(GateDenied, match=r"quality below 0\.9") as caught:
        site.branches.merge(site.branches.propose("run/1", "main"), message="", author="ada")
    assert caught.value.exit_code == 3
    assert site.branches.resolve("main") == before
    site.server.repository.before_merge = lambda _source, _into: None
    site.branches.merge(site.branches.propose("run/1", "main"), message="", author="ada")
    assert site.shows("main") == {"a": "worse"}


def test_a_gate_of_ours_refuses_before_the_server_is_asked(site: Site) -> None:
    """No merge is sent; what was protected stays."""
    before = site.put("main", a="1")
    site.branches.create("run/1", "main")
    site.put("run/1", a="2")
    site.branches.protect("main", True, why=WHY)
    merging = Merging(site.branches)

    @merging.before_merge
    def no(_proposal: object) -> None:
        raise GateDenied("Not today.")

    sent = site.asked("mergeIntoBranch")
    with pytest.raises(GateDenied, match="Not today"):
        merging.merge("run/1", "main", author="ada", why=WHY)
    assert site.asked("mergeIntoBranch") == sent
    assert site.branches.resolve("main") == before


def test_protection_holds_for_everybody(site: Site) -> None:
    """It is the server's own rule: others' direct writes are refused, our gated merge and revert are not."""
    site.put("main", a="1")
    site.branches.create("side", "main")
    site.put("side", b="1")
    site.branches.protect("main", True, why=WHY)
    with pytest.raises(Refusal):
        by_others(site, "a", "theirs")
    merging = Merging(site.branches)
    merging.before_merge(lambda _proposal: None)
    done = merging.merge("side", "main", author="ada", why=WHY)
    assert site.shows("main") == {"a": "1", "b": "1"}
    assert done.commit is not None
    merging.revert("main", done.commit.commit_id, author="ada", why=WHY)
    assert site.shows("main") == {"a": "1"}
    with pytest.raises(BranchProtected):
        site.put("main", a="2")


def test_a_rule_that_was_changed_meanwhile_is_kept(site: Site) -> None:
    """The rules are replaced as a whole: only if no other process has replaced them since they were read."""
    seen: list[str] = []

    def between(operation: str) -> None:
        if operation == "setBranchProtectionRules" and not seen:
            seen.append(operation)
            site.server.repository.rules.append("release-*")

    site.server.fail = between
    site.branches.protect("main", True, why=WHY)
    assert site.server.repository.rules == ["release-*", "main"]
    site.branches.create("release-1", "main")
    with pytest.raises(UsageError, match="Another rule"):
        site.branches.protect("release-1", False, why=WHY)


def test_names_with_slashes(site: Site) -> None:
    """lakeFS knows no slash in a branch's name: it is written otherwise there, and read back."""
    site.branches.create("runs/2026-03-14.a", "main")
    assert "runs--2f2026-03-14--2ea" in site.server.repository.branches
    assert [one.name for one in site.branches.branches()] == ["main", "runs/2026-03-14.a"]
    assert site.branches.resolve("runs/2026-03-14.a") == site.branches.resolve("main")


@given(st.text(alphabet="ab01f-_./@+=", min_size=1, max_size=20))
def test_every_name_comes_back(name: str) -> None:
    """And no two names are written alike."""
    try:
        check_name(name)
    except RefNameInvalid:
        return
    written = to_server(name)
    assert set(written) <= set("ab01f-_cde23456789")
    assert written[0] != "-"
    assert from_server(written) == name


def test_large_objects_are_sent_as_a_stream(site: Site) -> None:
    """And arrive whole."""
    text = "0123456789abcdef" * 200_000
    site.put("main", large=text)
    assert site.shows("main") == {"large": text}


def test_the_contract_notices() -> None:
    """A field too many, or one too few, is a violation also without lakeFS's document."""
    contract = Contract(None)
    contract.request("createBranch", {}, {}, {}, b'{"name": "a"}')
    contract.request("commit", {}, {}, {}, b'{"message": "a", "expected": "b"}')
    contract.request("statObject", {}, {}, {}, b"")
    assert len(contract.violations) == 3


def test_what_can_not_be_promised_is_documented() -> None:
    """Each with the reason that the adapter gives."""
    page = (Path(__file__).parents[4] / "docs/reference/branches.md").read_text()
    for promise, reason in CANNOT.items():
        assert f"| `{promise}`: " in page
        assert f"no: {reason} |" in page
