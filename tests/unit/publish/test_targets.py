"""GitHub Actions, noop, and how targets are made from the configuration."""

from __future__ import annotations

import random
from importlib import metadata
from typing import Any

import msgspec
import pytest

from kfm.model.errors import ConfigError, PluginConflict
from kfm.model.settings import Care, Rights, Target
from kfm.model.versions import edited
from kfm.publish.targets import target_kinds
from kfm.publish.targets.folder import LocalTree
from kfm.publish.targets.github_actions import GithubActions, escaped, outputs, summary
from kfm.publish.targets.s3 import BucketTree
from kfm.publish.targets.target_kinds import Noop
from tests.power import PowerCutFiles, PowerLost
from tests.unit.publish.stand_ins import DATASET, CountedIds, Database, MemoryObjects

pytestmark = pytest.mark.req("UPD-6")


class Job:
    """What a CI job would see."""

    def __init__(self) -> None:
        self.files = PowerCutFiles(random.Random(0))
        self.objects = MemoryObjects()
        self.database = Database(self.objects)
        self.ids = CountedIds()
        self.written: dict[str, bytes] = {}

    def append(self, path: str, data: bytes) -> None:
        self.written[path] = self.written.get(path, b"") + data

    def target(self, files: PowerCutFiles | None = None) -> GithubActions:
        return GithubActions(
            "github-actions",
            files or self.files,
            self.objects,
            self.ids,
            "/job/artifacts",
            append=self.append,
            output_path="/out",
            summary_path="/summary",
        )

    def project(self, files: PowerCutFiles | None = None) -> int | None:
        return self.target(files).project(DATASET.id, self.database.head)


def parsed(data: bytes) -> dict[str, str]:
    """$GITHUB_OUTPUT as the runner reads it."""
    values = {}
    lines = iter(data.decode().split("\n"))
    for line in lines:
        if not line:
            continue
        name, _, delimiter = line.partition("<<")
        value = []
        for inner in lines:
            if inner == delimiter:
                break
            value.append(inner)
        else:
            raise AssertionError("a value has no end")
        values[name] = "\n".join(value)
    return values


def test_a_job_gets_files_outputs_and_a_summary() -> None:
    """The version's files stand in one folder, which the output `path` names."""
    job = Job()
    assert job.project() is None
    job.database.promote()
    assert job.project() == 1
    values = parsed(job.written["/out"])
    assert values["sequence"] == values["ks-streamflow_sequence"] == "1"
    assert values["version_id"] == job.database.history[0][0].version_id
    assert f"{values['path']}/data/now.txt" in job.files.tree()
    assert f"{values['path']}/collection.json" in job.files.tree()
    assert b"Kansas streamflow: version 1" in job.written["/summary"]


def test_a_sequence_is_reported_once() -> None:
    """Projecting again adds nothing; the next version is reported after the first."""
    job = Job()
    job.database.promote()
    job.project()
    before = dict(job.written)
    assert job.project() == 1
    assert job.written == before
    job.database.promote()
    assert job.project() == 2
    assert parsed(job.written["/out"])["sequence"] == "2"
    assert job.written["/summary"].count(b"###") == 2


def test_killed_anywhere_the_job_still_gets_its_outputs() -> None:
    """Whatever was done when the process died, the next call completes it."""
    for calls in range(1, 200):
        job = Job()
        job.database.promote()
        job.files.die_after(calls)
        try:
            job.project()
            break
        except PowerLost:
            assert job.project(job.files.another()) == 1
        assert parsed(job.written["/out"])["sequence"] == "1"
        path = parsed(job.written["/out"])["path"]
        assert job.files.another().tree()[f"{path}/data/now.txt"] == b"version 1"
    assert calls > 20


@pytest.mark.parametrize(
    "value", ["plain", "two\nlines", "x<<EOF\nEOF\nevil=1", "kfm_00000001-0000-7000-8000-000000000000"]
)
def test_no_value_can_end_early(value: str) -> None:
    """A value that looks like a delimiter or like another output stays one value."""
    assert parsed(outputs({"name": value, "next": "n"}, CountedIds())) == {"name": value, "next": "n"}


def test_text_in_a_summary_is_only_text() -> None:
    """Titles and paths can't inject markup into the summary."""
    text = escaped("<img src=x> | **bold** [link](http://x)\n# title & `code`")
    assert "<" not in text
    assert "|" not in text
    assert "\n" not in text
    for mark in ("**", "[link]", "`code`"):
        assert mark not in text


@pytest.mark.req("RS-13")
def test_the_summary_hides_restricted_datasets() -> None:
    """A public summary names neither a restricted dataset nor its files."""
    job = Job()
    job.database.promote()
    promotion, version = job.database.history[0]
    hidden = msgspec.structs.replace(
        version.header, rights=Rights(license="CC0-1.0", care=Care(label="Restricted", level="restricted"))
    )
    text = summary(promotion, edited(version, hidden, {}))
    assert "Kansas" not in text
    assert "now.txt" not in text


# --- the registry --------------------------------------------------------------------


def surroundings() -> target_kinds.TargetParts:
    return target_kinds.TargetParts(
        root="/config",
        files=PowerCutFiles(random.Random(0)),
        objects=MemoryObjects(),
        ids=CountedIds(),
        bucket=lambda url, options: (object(), "prefix"),  # type: ignore[arg-type,return-value]
        append=lambda path, data: None,
    )


def test_each_kind_is_built() -> None:
    """Built-in kinds need no entry points; a relative path is below the configuration."""
    found = target_kinds.build(
        [
            Target(kind="local", path="published"),
            Target(kind="s3", url="s3://bucket/prefix"),
            Target(kind="github-actions"),
            Target(kind="noop", name="nothing"),
        ],
        surroundings(),
    )
    assert [type(one) for one in found] == [LocalTree, BucketTree, GithubActions, Noop]
    assert [one.name for one in found] == ["local", "s3", "github-actions", "nothing"]
    assert found[0]._path == "/config/published"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ([Target(kind="local")], "needs `path`"),
        ([Target(kind="s3")], "needs `url`"),
        ([Target(kind="local", path="a"), Target(kind="local", path="b")], "called local"),
        ([Target(kind="local", path="a", options={"link": "soft"})], "link is one of"),
        ([Target(kind="local", path="a", options={"lnk": "never"})], "no option 'lnk'"),
        ([Target(kind="lokal", path="a")], "there are branch, dcat, github-actions, local, noop, s3, stac"),
    ],
)
def test_mistakes_are_named(targets: list[Target], words: str) -> None:
    """A target that can't be built is an error of the configuration."""
    with pytest.raises(ConfigError, match=words):
        target_kinds.build(targets, surroundings())


class Entry:
    def __init__(self, name: str, dist: str, value: str = "pkg:make") -> None:
        self.name = name
        self.value = value
        self.dist = type("Dist", (), {"name": dist})()

    def load(self) -> Any:
        return lambda name, target, around: Noop(name)


def test_plugins_are_found_and_conflicts_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin adds a kind; two of one name are an error naming both; a built-in name can't be taken."""
    entries = [Entry("ftp", "kfm-ftp")]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries)
    assert target_kinds.build([Target(kind="ftp")], surroundings())[0].name == "ftp"
    entries.append(Entry("ftp", "other-ftp"))
    with pytest.raises(PluginConflict, match=r"kfm-ftp .* and other-ftp"):
        target_kinds.build([Target(kind="ftp")], surroundings())
    entries[:] = [Entry("noop", "kfm-noop")]
    assert type(target_kinds.build([Target(kind="noop")], surroundings())[0]) is Noop
