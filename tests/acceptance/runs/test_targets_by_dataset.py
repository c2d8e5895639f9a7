"""Targets by dataset: restricted data reaches no target that does not take it, seen on the wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kfm.app import App, open_app
from kfm.config.loader import load
from kfm.runs.kernel import RunRequest
from tests import services
from tests.acceptance.runs.conftest import Inside
from tests.crash.project import Ended, table
from tests.recording_s3 import RecordingS3, recording

pytestmark = pytest.mark.req("DAT-6")

CONFIG = """\
version: 1
environment: test
lease: {{seconds: 1}}
datasets:
  - {{id: levels, rights: {{license: CC0-1.0, care: {{label: Public}}}}}}
  - {{id: nests, rights: {{license: CC0-1.0, care: {{label: Sites, level: {level}}}}}}}
sources:
  - {{id: notes, dataset: levels, kind: files, folder: incoming, pattern: "*.csv"}}
  - {{id: sites, dataset: nests, kind: files, folder: sites, pattern: "*.csv"{extra}}}
publish:
{publish}"""
TARGET = """\
  - kind: s3
    name: {name}
    url: s3://{bucket}/{name}
    options: {{endpoint: "{endpoint}", region: {region}, access_key_id: env:SHELF_KEY, \
secret_access_key: env:SHELF_SECRET, allow_http: "true"}}
"""
SECRETS = ("nests", "egg-site-9")
WINDOW = ("--source", "sites", "--window", "2026-01-01/P1D")
TWICE = 'pipeline: "twice.py:publish", output_version: "1"'
FAILING = """\
import os

def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
    if not os.path.exists("second"):
        open("second", "w").close()
        raise TimeoutError("no answer")
"""
CHANGING = """\
import os

def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
    if os.path.exists("next.yml"):
        os.replace("next.yml", "kfm.yml")
"""


class Desk(Inside):
    """A public and a restricted dataset, two prefixes of one bucket, and two people."""

    wire: RecordingS3
    bucket: str
    server: str  # without the recording
    account: Callable[[str], None]

    def targets(
        self, *chosen: str, level: str = "restricted", extra: str = "", into: str = "kfm.yml"
    ) -> None:
        """`NAME` or `NAME: {more: fields}`, each a target of that name."""
        publish = ""
        for one in chosen:
            name, _, more = one.partition(":")
            publish += TARGET.format(
                name=name, bucket=self.bucket, endpoint=self.wire.address, region=services.S3_REGION
            )
            publish += "".join(f"    {line.strip()}\n" for line in more.split(";") if line.strip())
        extra = f", {extra}" if extra else ""
        self.write(into, CONFIG.format(publish=publish, level=level, extra=extra))

    def as_(self, who: str, *arguments: str) -> Ended:
        self.account(who)
        return self.kfm(*arguments)

    def asked(self) -> str:
        """A request for one attempt at the restricted dataset."""
        ended = self.as_("ann", "approvals", "request", *WINDOW, "--rationale", "yearly", "--json")
        return str(ended.document["request"]["request_id"])

    def approved(self) -> str:
        request = self.asked()
        ended = self.as_("bob", "approvals", "approve", request, "--rationale", "council", "--json")
        assert ended.code == 0, ended
        return request

    def published_run(self) -> Ended:
        """One attempt, approved and made."""
        self.approved()
        done = self.as_("ann", "run", *WINDOW, "--json")
        assert done.result["word"] == "published", done
        return done

    def shown(self, target: str, dataset: str) -> int | None:
        """The version that readers of a target see."""
        client = services.s3_client(self.server)
        key = f"{target}/{dataset}/current.json"
        found = client.list_objects_v2(Bucket=self.bucket, Prefix=key).get("Contents")
        if not found:
            return None
        return int(json.loads(client.get_object(Bucket=self.bucket, Key=key)["Body"].read())["sequence"])

    def keys(self, prefix: str) -> list[str]:
        client = services.s3_client(self.server)
        found = client.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])
        return sorted(one["Key"] for one in found)


@pytest.fixture
def desk(
    project: Inside, s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    project.__class__ = Desk
    assert isinstance(project, Desk)
    project.account = lambda name: monkeypatch.setattr("kfm.config.loader.actor", lambda: name)
    project.env |= {"SHELF_KEY": services.S3_ACCESS_KEY, "SHELF_SECRET": services.S3_SECRET_KEY}
    project.bucket, project.server = s3_bucket, s3_endpoint
    project.write("sites/egg-site-9.csv", table("egg-site-9", 2))
    project.write("twice.py", FAILING)
    with recording(s3_endpoint) as project.wire:
        project.targets("open")
        yield project


def test_restricted_data_reaches_no_target_by_default(desk: Desk) -> None:
    """Approved, published, forced, retried, replayed, projected again: no request to the bucket names it."""
    desk.targets("open", extra=TWICE)
    assert desk.kfm("run", "--source", "notes").code == 0
    desk.approved()
    assert desk.as_("ann", "run", *WINDOW, "--json").result["word"] == "failed"
    desk.approved()
    done = desk.as_("ann", "run", *WINDOW, "--json")  # the retry of the same work
    assert done.result["word"] == "published", done
    assert done.result["projections"] == []
    desk.approved()
    forced = ("run", *WINDOW, "--force", "--rationale", "again", "--ticket", "OPS-1", "--json")
    desk.as_("ann", *forced)
    assert desk.as_("ann", "project", "--json").code == 0
    desk.approved()
    desk.as_("ann", "run", *WINDOW)  # finds it done, and brings targets up to date
    assert desk.wire.tells(*SECRETS) == []
    assert desk.shown("open", "levels") == 1
    status = desk.kfm("status", "--json").document
    assert status["pending_projections"] == []
    assert status["not_taken"] == []


@pytest.mark.parametrize(
    "choice", ["datasets: [nests]", "care: [restricted]", "datasets: ['*']; care: [restricted]"]
)
def test_a_target_that_names_it_shows_it_and_no_other_does(desk: Desk, choice: str) -> None:
    """By its id or by its level: the version is there, and only there; public data stays where it was."""
    desk.targets("open", f"vault: {choice}")
    assert desk.kfm("run", "--source", "notes").code == 0
    done = desk.published_run()
    assert [one["target"] for one in done.result["projections"]] == ["vault"]
    assert desk.shown("vault", "nests") == 1
    assert desk.shown("vault", "levels") is None
    assert desk.shown("open", "levels") == 1
    assert [
        one.path for one in desk.wire.tells(*SECRETS) if not one.path.startswith(f"/{desk.bucket}/vault")
    ] == []
    assert desk.as_("ann", "project").code == 0
    assert desk.shown("open", "nests") is None


def test_a_pattern_names_no_restricted_dataset(desk: Desk) -> None:
    """`*` and `nest*` take what is not restricted; a list of levels is a limit for ids, too."""
    desk.targets("open: datasets: ['nest*', levels]", "other: datasets: ['*']")
    assert desk.published_run().result["projections"] == []
    assert desk.wire.tells(*SECRETS) == []
    desk.targets("open: datasets: [nests]; care: [public]")
    ended = desk.kfm("config", "check")
    assert (ended.code, "whose CARE level is restricted" in ended.err) == (2, True), ended


def test_an_approval_shows_and_binds_the_targets(desk: Desk) -> None:
    """Another target makes it another request: before the approval, after it, and after the promotion."""
    desk.targets("open", "vault: datasets: [nests]")
    request = desk.asked()
    (listed,) = desk.kfm("approvals", "list", "--json").document["requests"]
    assert f"shown by vault (s3://{desk.bucket}/vault)" in listed["about"]
    desk.targets("open: care: [public, restricted]", "vault: datasets: [nests]")
    refused = desk.as_("bob", "approvals", "approve", request, "--rationale", "council", "--json")
    assert refused.code == 3, refused
    desk.targets("open", "vault: datasets: [nests]")
    assert desk.as_("bob", "approvals", "approve", request, "--rationale", "council").code == 0
    desk.targets("open: care: [public, restricted]", "vault: datasets: [nests]")
    stopped = desk.as_("ann", "run", *WINDOW, "--json")
    assert stopped.result["error"]["code"] == "KFM311", stopped  # another request waits
    assert desk.wire.tells(*SECRETS) == []
    desk.targets("open", "vault: datasets: [nests]")
    assert desk.as_("ann", "run", *WINDOW, "--json").result["word"] == "published"
    desk.targets("open: care: [public, restricted]", "vault: datasets: [nests]")
    assert desk.as_("ann", "project", "--json").code == 4
    assert desk.shown("open", "nests") is None


def test_a_plan_names_its_targets_and_refuses_others(desk: Desk, valid: Callable[[str, Any], None]) -> None:
    """`kfm diff` shows them; a run of that plan is refused where another target would show the outcome."""
    made = desk.kfm("diff", "--source", "notes", "--plan", "plan.jsonl")
    assert f"shown by open (s3://{desk.bucket}/open)" in made.out, made
    desk.targets("open", "more")
    drifted = desk.kfm("run", "--plan", "plan.jsonl", "--json")
    valid("cli-run", drifted.document)
    assert drifted.result["error"]["code"] == "KFM306", drifted
    assert "more" in drifted.result["error"]["message"]
    desk.targets("open")
    done = desk.kfm("run", "--plan", "plan.jsonl", "--json")
    assert done.result["word"] == "published", done
    valid("cli-run", done.document)


def test_what_a_target_shows_and_does_not_take_stays_and_is_named(
    desk: Desk, valid: Callable[[str, Any], None]
) -> None:
    """Nothing disappears and nothing is updated; status, doctor and config check name it with its removal."""
    desk.targets("open: care: [public, restricted]")
    desk.published_run()
    assert desk.shown("open", "nests") == 1
    desk.targets("open")
    desk.write("sites/more.csv", table("more", 1))
    desk.published_run()
    assert desk.shown("open", "nests") == 1
    assert desk.as_("ann", "project").code == 0
    assert desk.shown("open", "nests") == 1
    command = "kfm withdraw nests --target open"
    status = desk.kfm("status", "--json").document
    valid("cli-status", status)
    (named,) = status["not_taken"]
    assert (named["dataset_id"], named["target"], named["shown"], named["command"]) == (
        "nests",
        "open",
        1,
        command,
    )
    assert status["headline"]["command"] == command
    assert command in desk.kfm("status").out
    assert command in desk.kfm("doctor", "--offline").out
    checked = desk.kfm("config", "check", "--json").document
    valid("cli-config-check", checked)
    assert [(one["dataset_id"], one["target"], one["shown"]) for one in checked["notes"]] == [
        ("nests", "open", 1)
    ]


def test_what_a_target_does_not_take_is_withdrawn_from_it_alone(desk: Desk) -> None:
    """A bucket that takes it no more keeps a tombstone and no byte of it; other targets show it as before."""
    desk.targets("open: care: [public, restricted]", "vault: datasets: [nests]")
    desk.published_run()
    assert desk.kfm("run", "--source", "notes").code == 0
    withdraw = ("withdraw", "nests", "--target", "open", "--purge", "--rationale", "not for everybody")
    assert desk.kfm(*withdraw, "--yes").code == 2, "it takes the dataset"
    desk.targets("open", "vault: datasets: [nests]")
    assert desk.kfm(*withdraw).code == 0
    assert any("/files/" in key for key in desk.keys("open/nests/")), "without --yes it is only shown"
    assert desk.kfm(*withdraw, "--yes").code == 0
    assert not [key for key in desk.keys("open/nests/") if "/files/" in key]
    assert (desk.shown("vault", "nests"), desk.shown("open", "levels")) == (2, 1)  # 2: the content of 1
    assert [key for key in desk.keys("vault/nests/") if "/files/" in key]
    assert desk.kfm("status", "--json").document["not_taken"] == []
    assert desk.kfm("audit", "verify").code == 0


def test_a_lift_shows_nothing_at_a_target_that_does_not_take_it(desk: Desk) -> None:
    """Lifted, or less than before: where only a tombstone stands, and the dataset is not taken, nothing of it
    is shown anew."""
    desk.targets("open: care: [public, restricted]", "vault: datasets: [nests]")
    desk.published_run()
    desk.targets("open", "vault: datasets: [nests]")
    withdraw = ("withdraw", "nests", "--yes", "--rationale", "not for everybody")
    assert desk.kfm(*withdraw, "--target", "open", "--purge").code == 0
    assert desk.kfm(*withdraw, "--target", "open", "--lift").code == 0
    assert not [key for key in desk.keys("open/nests/") if "/files/" in key]
    assert desk.kfm(*withdraw, "--window", "2026-02-01/P1D").code == 0
    assert not [key for key in desk.keys("open/nests/") if "/files/" in key]
    assert (desk.shown("vault", "nests"), desk.shown("open", "nests")) == (4, 2)


def test_config_check_names_what_a_target_leaves_out(desk: Desk) -> None:
    """Each restricted dataset that a target would have shown before targets chose; none that was chosen."""
    assert (
        "note: target open does not take dataset nests, which is restricted"
        in desk.kfm("config", "check").out
    )
    desk.targets("open: care: [public]")
    assert "note" not in desk.kfm("config", "check").out
    desk.targets("open: datasets: [nest]")
    ended = desk.kfm("config", "check")
    assert (ended.code, "which is not one of the datasets; did you mean `nests`" in ended.err) == (2, True), (
        ended
    )


def test_doctor_warns_where_restricted_and_public_data_share_a_target(desk: Desk) -> None:
    """A shared target is a warning with both datasets; one of its own is none."""
    desk.targets("open: care: [public, restricted]")
    told = desk.kfm("doctor", "--offline").out
    assert "open: restricted data (nests) shares it with other data (levels)" in told, told
    desk.targets("open", "vault: datasets: [nests]")
    assert "shares it" not in desk.kfm("doctor", "--offline").out


@contextmanager
def opened(desk: Desk) -> Iterator[App]:
    """An application that lives as long as a service."""
    with desk._surroundings(), open_app(load()) as app:
        yield app


@pytest.mark.parametrize(
    ("level", "chosen"),
    [
        ("restricted", "open"),
        ("public", "open: datasets: [levels]"),
        ("public", "open: care: [review]"),
        ("public", "moved"),
    ],
)
def test_a_configuration_that_changes_while_running_is_followed(desk: Desk, level: str, chosen: str) -> None:
    """Made restricted, or taken from the target, while its run is at work: the old settings send nothing."""
    desk.write("twice.py", CHANGING)
    desk.targets(chosen, level=level, extra=TWICE, into="next.yml")
    desk.targets("open", level="public", extra=TWICE)
    with opened(desk) as app:
        report = app.run(RunRequest(source_id="sites", actor="ann"))
        assert (report.projections, app.project(everything=True)) == ((), []), report
    assert desk.wire.tells(*SECRETS) == []
    if level == "public":
        assert report.outcome == "success", report
        desk.targets("open", level="public", extra=TWICE)
        assert desk.kfm("project").code == 0
        assert desk.shown("open", "nests") == 1


def test_lineage_names_the_targets_that_show_it_alone(desk: Desk) -> None:
    """The outputs of a run are at the targets that take its dataset."""
    desk.targets("open", "more: datasets: [nests]")
    done = desk.kfm("run", "--source", "notes", "--json")
    events = desk.kfm("lineage", "show", done.result["run_id"], "--events", "--json").out
    assert f"s3://{desk.bucket}" in events
    assert "open/levels" in events
    assert "more/levels" not in events
