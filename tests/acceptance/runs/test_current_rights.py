"""Rights as they are configured now: seen by each admission, each promotion, and each update of a target."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kfm.app import App, open_app
from kfm.config.loader import load
from kfm.runs.kernel import RunReport, RunRequest
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_governance import BLOCKED
from tests.crash.project import RIGHTS

CHANGING = """\
import os

def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
    if os.path.exists("next.yml"):
        os.replace("next.yml", "kfm.yml")
"""
EXTRA = 'pipeline: "pipeline.py:publish", output_version: "1"'
REQUEST = RunRequest(source_id="notes", actor="ann")


def configure(project: Inside, rights: str = RIGHTS) -> None:
    project.configure(extra=EXTRA, rights=rights)


def during(project: Inside, *, rights: str = RIGHTS, text: str | None = None) -> None:
    """While its next run is at work, the project gets this configuration."""
    configure(project, rights)
    project.write("next.yml", (project.folder / "kfm.yml").read_text() if text is None else text)
    configure(project)


@pytest.fixture
def changing(project: Inside) -> Inside:
    """A project whose configuration changes while its pipeline is at work."""
    project.write("pipeline.py", CHANGING)
    configure(project)
    return project


@contextmanager
def opened(project: Inside) -> Iterator[App]:
    """An application that lives as long as a service."""
    with project._surroundings(), open_app(load()) as app:
        yield app


def stopped(project: Inside, report: RunReport, outcome: str, code: str) -> None:
    assert (report.outcome, report.error.code if report.error else None) == (outcome, code), report
    assert project.rows("SELECT * FROM promotions") == []
    assert not (project.published / "levels").exists()


@pytest.mark.req("UPD-9", "GOV-1")
def test_rights_blocked_during_a_run_stop_its_promotion(changing: Inside) -> None:
    """What was public at admission and is blocked now is not published, and the halt is reviewed."""
    during(changing, rights=BLOCKED)
    with opened(changing) as app:
        stopped(changing, app.run(REQUEST), "refused", "KFM302")
    assert len(changing.governance("halt")) == 1


@pytest.mark.req("UPD-9")
def test_long_lived_service_sees_rights_at_each_admission(changing: Inside) -> None:
    """Blocked, then public again: an application that was opened before follows both."""
    with opened(changing) as app:
        configure(changing, BLOCKED)
        stopped(changing, app.run(REQUEST), "refused", "KFM301")
        configure(changing)
        assert app.run(REQUEST).outcome == "success"


@pytest.mark.req("UPD-9")
def test_target_shows_nothing_that_is_blocked_by_now(changing: Inside) -> None:
    """A version that was promoted while its rights allowed it is not shown by a target that comes later."""
    with opened(changing) as app:
        assert app.run(REQUEST).outcome == "success"
        configure(changing, BLOCKED)
        (report,) = app.project(everything=True)
        assert report.error is not None
        assert report.error["code"] == "KFM301"


@pytest.mark.req("UPD-9", "DAT-6")
def test_blocked_data_does_not_come_back_to_an_emptied_target(changing: Inside) -> None:
    """What only removes passes a block; showing the same version once more removes nothing."""
    with opened(changing) as app:
        assert app.run(REQUEST).outcome == "success"
        shutil.rmtree(changing.published / "levels")
        configure(changing, BLOCKED)
        (report,) = app.project(everything=True)
        assert report.error is not None
    assert not (changing.published / "levels").exists()


@pytest.mark.req("UPD-9")
def test_promotion_has_the_rights_of_its_moment(changing: Inside) -> None:
    """Another licence that is fine as well is the one that is published; the next run has nothing to do."""
    during(changing, rights=RIGHTS.replace("CC0-1.0", "CC-BY-4.0"))
    with opened(changing) as app:
        assert app.run(REQUEST).outcome == "success"
        assert app.run(REQUEST).outcome == "noop"
    ((manifest,),) = changing.rows("SELECT manifest FROM versions")
    assert json.loads(manifest)["rights"]["license"] == "CC-BY-4.0"


@pytest.mark.req("UPD-9", "RET-3")
@pytest.mark.parametrize("text", ["datasets: [", ""])
def test_file_that_can_not_be_used_stops_a_promotion_for_now(changing: Inside, text: str) -> None:
    """The attempt fails with the configuration's error, and the next one, once it is mended, publishes."""
    during(changing, text=text)
    with opened(changing) as app:
        report = app.run(REQUEST)
        stopped(changing, report, "failed", "KFM201")
        assert changing.rows("SELECT fate FROM retry_states") == [("retry",)]
        configure(changing)
        assert report.run is not None
        assert changing.kfm("retry", report.run.run_id).code == 0


@pytest.mark.req("UPD-9")
def test_dataset_that_is_gone_is_not_promoted(changing: Inside) -> None:
    """A dataset that the configuration declares no more is refused by name, at promotion and at admission."""
    other = (changing.folder / "kfm.yml").read_text().replace("levels", "depths")
    during(changing, text=other)
    with opened(changing) as app:
        for _ in ("at promotion", "at admission"):
            report = app.run(REQUEST)
            stopped(changing, report, "refused", "KFM301")
            assert "The dataset levels is not in the configuration any more." in report.reason
