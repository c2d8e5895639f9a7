"""The lakeFS example, command by command, against the stand-in for its server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.demo.conftest import ROOT, SECONDS_MAX, clean_environment
from tests.lakefs_model import Change
from tests.lakefs_server import ACCESS_KEY, SECRET_KEY, Server, serving

pytestmark = [pytest.mark.req("RS-14"), pytest.mark.slow]


class Lakes:
    """A copy of the example, and the server that it works on."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server = folder, server

    def kfm(self, *words: str, code: int = 0) -> Any:
        keys = {"LAKEFS_ACCESS_KEY": ACCESS_KEY, "LAKEFS_SECRET_KEY": SECRET_KEY}
        environment = clean_environment(HOME=str(self.folder), LAKEFS_ENDPOINT=self.server.endpoint, **keys)
        done = subprocess.run(
            [f"{sys.prefix}/bin/kfm", *words, "--json"],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert SECRET_KEY not in done.stdout + done.stderr
        return json.loads(done.stdout) if done.stdout else None

    def run(self, branch: str) -> set[str]:
        """Which nodes were executed."""
        report = self.kfm("pipeline", "run", "flow.py", "--branch", branch)
        return {
            node["node"].removeprefix("lakes.") for node in report["nodes"] if node["outcome"] == "success"
        }

    def paths(self, ref: str) -> set[str]:
        return set(self.server.repository.find(ref).tree)

    def report(self, ref: str) -> Any:
        (found,) = [
            thing.data
            for path, thing in self.server.repository.find(ref).tree.items()
            if path.startswith("lakes.report/")
        ]
        return json.loads(found)


def known_gauges_only(source: Change, into: str) -> str | None:
    """The hook before merges into main, as it would be set up on the server."""
    if into != "main":
        return None
    reports = [
        json.loads(each.data) for path, each in source.tree.items() if path.startswith("lakes.report/")
    ]
    return "readings of unknown gauges" if any(each["strangers"] for each in reports) else None


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[Lakes]:
    shutil.copytree(ROOT / "examples/lakefs", tmp_path / "lakefs", ignore=shutil.ignore_patterns(".kfm"))
    with serving() as server:
        server.repository.before_merge = known_gauges_only
        yield Lakes(tmp_path / "lakefs", server)


ALL = {"gauges", "levels", "directory", "report"}
WHY = ("--rationale", "as the example says")


@pytest.mark.req("RS-5", "RS-10")
def test_the_example(lakes: Lakes) -> None:
    """A run works on its own branch; a gate that refuses leaves main as it was; what passes is merged,
    records and outputs together; and after a revert exactly the nodes run again whose work was undone."""
    lakes.kfm("branch", "protect", "main", *WHY)
    lakes.kfm("branch", "create", "run/1")
    assert lakes.run("run/1") == ALL
    assert lakes.paths("main") == set()
    assert lakes.kfm("branch", "merge", "run/1", *WHY)["outcome"] == "merged"
    written = lakes.paths("main")
    assert {path.partition("/")[0] for path in written} == {"_run_state", *(f"lakes.{node}" for node in ALL)}
    assert {path.split("/")[1] for path in written if path.startswith("_run_state/")} == {
        f"lakes.{node}" for node in ALL
    }

    levels = lakes.folder / "incoming/levels.csv"
    levels.write_text(levels.read_text() + "ks-9,1.0\n")
    lakes.kfm("branch", "create", "run/2")
    assert lakes.run("run/2") == {"levels", "report"}
    before = lakes.server.repository.branches["main"].commit
    lakes.kfm("branch", "merge", "run/2", *WHY, code=3)
    assert lakes.server.repository.branches["main"].commit == before
    assert lakes.report("main")["strangers"] == []

    levels.write_text(levels.read_text().replace("ks-9,1.0", "ks-2,349.2"))
    assert lakes.run("run/2") == {"levels", "report"}
    merged = lakes.kfm("branch", "merge", "run/2", *WHY)
    assert lakes.report("main")["readings"] == 3

    lakes.kfm("branch", "create", "run/3")
    assert lakes.run("run/3") == set()
    lakes.kfm("branch", "revert", merged["commit"]["commit_id"], *WHY)
    assert lakes.report("main")["readings"] == 2
    lakes.kfm("branch", "create", "run/4")
    assert lakes.run("run/4") == {"levels", "report"}
    assert lakes.run("run/4") == set()


def test_a_pass_on_a_protected_branch_is_refused(lakes: Lakes) -> None:
    """Before any node runs."""
    lakes.kfm("branch", "protect", "main", *WHY)
    lakes.kfm("pipeline", "run", "flow.py", code=3)
    assert lakes.paths("main") == set()


def test_the_doctor_asks_the_server(lakes: Lakes) -> None:
    """Whether it answers and has the repository."""
    found = {(each["name"], each["state"]) for each in lakes.kfm("doctor")["checks"]}
    assert ("branches", "ok") in found
    lakes.server.fail = lambda _operation: 503
    found = {(each["name"], each["state"]) for each in lakes.kfm("doctor", code=4)["checks"]}
    assert ("branches", "fail") in found


def test_the_page_names_every_step() -> None:
    """What the test does is what the example's page tells people to type, and it links what it rests on."""
    page = (ROOT / "examples/lakefs/README.md").read_text()
    for words in ("branch protect main", "branch create run/1", "pipeline run flow.py --branch run/1"):
        assert words in page
    for words in ("branch merge run/1", "branch revert", "run-state.schema.json", "stand-in"):
        assert words in page
