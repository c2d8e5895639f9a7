"""What a service reads anew while it runs."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import pytest

from kfm.config.live import LiveConfig
from kfm.config.loader import load
from kfm.model.errors import KfmError

pytestmark = pytest.mark.req("UPD-13", "CLI-2")

CONFIG = """\
version: 1
datasets: [{id: rivers, rights: {license: CC0-1.0, care: {label: Public}}}]
sources:
  - {id: river, dataset: rivers, kind: files, folder: in, webhook: {secrets: ["file:secret"]}}
people:
  - {subject: ann, roles: [operate], tokens: ["%s"]}
"""
CRON = "version: 1\nschedules: [{id: %s, source: river, every: PT1H}]\n"


def hashed(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ms = 0
        self.write("kfm.yml", CONFIG % hashed("one"))
        self.write("cron.yml", CRON % "hourly")
        self.write("secret", "a secret, long enough")
        self.live = LiveConfig(load(str(folder / "kfm.yml")), monotonic_ms=lambda: self.now_ms)
        self.live.check()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def later(self) -> LiveConfig:
        self.now_ms += 1_000
        return self.live


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_schedules_people_and_secrets_are_read_anew(project: Project) -> None:
    """What the files say counts a second later, without a restart; until then nothing is read."""
    first, version = project.live.schedules, project.live.secrets_version
    project.write("cron.yml", CRON % "nightly")
    project.write("secret", "another secret, long enough")
    project.write("kfm.yml", CONFIG % hashed("two"))
    assert project.live.schedules is first
    live = project.later()
    assert [one.id for one in live.schedules] == ["nightly"]
    assert live.people[0].token_hashes == (hashed("two").removeprefix("sha256:"),)
    assert live.webhooks["river"][1] == ("another secret, long enough",)
    assert live.secrets_version == version + 1
    assert live.problems == {}


def test_what_did_not_change_is_the_same_object(project: Project) -> None:
    """So that nothing is made anew for it."""
    before = project.live.schedules, project.live.webhooks, project.live.secrets_version
    live = project.later()
    after = live.schedules, live.webhooks, live.secrets_version
    assert before[0] is after[0]
    assert before[1] is after[1]
    assert before[2] == after[2]


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("cron.yml", "schedules: [", "schedules"),
        ("cron.yml", CRON.replace("river", "no-such-source") % "x", "schedules"),
        ("kfm.yml", "version: 2", "configuration"),
        ("kfm.yml", CONFIG % "env:NO_SUCH_TOKEN", "people"),
        ("secret", "short", "webhooks"),
        ("kfm.yml", CONFIG.partition("people:")[0], "people"),  # which would let everyone read
    ],
)
def test_a_broken_file_changes_nothing_and_is_told_once(
    project: Project, caplog: pytest.LogCaptureFixture, name: str, text: str, part: str
) -> None:
    """The last good one stays in force, the log says so once, and once more when it is right again."""
    good = (project.folder / name).read_text()
    before = project.live.schedules, project.live.people, project.live.webhooks
    project.write(name, text)
    with caplog.at_level(logging.INFO, logger="kfm.config.live"):
        for _ in range(3):
            live = project.later()
            assert (live.schedules, live.people, live.webhooks) == before
        assert set(live.problems) == {part}
        assert "stays in force" in live.problems[part]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        project.write(name, good)
        assert project.later().problems == {}
        assert caplog.records[-1].getMessage() == f"{part}: read again"


def test_a_secret_that_changed_is_redacted(project: Project) -> None:
    """Before anything could be said about it; the one before it still is, too."""
    loaded = load(str(project.folder / "kfm.yml"))
    live = LiveConfig(loaded, monotonic_ms=lambda: project.now_ms)
    assert live.secrets_version == 0
    project.write("secret", "another secret, long enough")
    project.now_ms += 1_000
    assert live.secrets_version == 1
    for secret in ("another secret, long enough", "a secret, long enough"):
        assert secret not in loaded.discretion(f"it was {secret}")


def test_a_service_does_not_start_with_a_broken_file(tmp_path: Path) -> None:
    """What is wrong at the start is an error, as ever."""
    project = Project(tmp_path)
    project.write("cron.yml", "schedules: [")
    with pytest.raises(KfmError):
        LiveConfig(load(str(tmp_path / "kfm.yml"))).check()


def test_a_webhook_that_is_taken_away_is_gone(project: Project) -> None:
    """Its sources stay those of the start; whether they may be asked for is as the file says now."""
    text = (CONFIG % hashed("one")).replace(', webhook: {secrets: ["file:secret"]}', "")
    project.write("kfm.yml", text)
    assert project.later().webhooks == {}
