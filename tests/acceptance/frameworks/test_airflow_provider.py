"""The Airflow provider in a running Airflow, with a real service of kfm."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.frameworks.airflow_server import AirflowServer, airflow
from tests.acceptance.service.served import Served, serving

TOKEN = "a token for Airflow that is long enough to be one"
CONFIG = """\
datasets:
  - {id: levels, rights: {license: CC0-1.0, care: {label: Public}}}
  - {id: notes, rights: {license: CC0-1.0, care: {label: Public}}}
sources:
  - {id: daily, dataset: levels, kind: files, folder: incoming, pattern: "{window.start:date}.csv"}
  - {id: notes, dataset: notes, kind: files, folder: incoming, pattern: "{window.start:date}.csv"}
publish: [{kind: local, path: published}]
people:
  - {subject: airflow, roles: [operate], tokens: ["sha256:%s"]}
"""
DAGS = """\
from datetime import datetime, timezone

from airflow.sdk import DAG, task
from airflow.timetables.trigger import CronTriggerTimetable
from kfm.integrations.airflow import KfmDatasetSensor, KfmRunOperator, kfm_asset

UTC = timezone.utc
MARCH = {"start_date": datetime(2026, 3, 1, tzinfo=UTC), "end_date": datetime(2026, 3, 31, tzinfo=UTC)}
LEVELS = kfm_asset("levels")

with DAG("levels", schedule=CronTriggerTimetable("0 6 * * *", timezone="UTC"), catchup=False, **MARCH):
    KfmRunOperator(task_id="run", source="daily", outlets=[LEVELS], poll_seconds=2)

with DAG("notes", schedule=[LEVELS]):
    KfmRunOperator(task_id="run", source="notes", poll_seconds=2)

with DAG("waits", schedule=None):
    KfmDatasetSensor(task_id="wait", dataset="levels", poke_interval=2, timeout=600)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "incoming").mkdir(parents=True)
    for day in (1, 2, 3):
        (folder / "incoming" / f"2026-03-0{day}.csv").write_text(f"site,level\na,{day}\n")
    (folder / "kfm.yml").write_text(CONFIG % hashlib.sha256(TOKEN.encode()).hexdigest())
    return folder


def switch(served: Served, position: str) -> None:
    answer = httpx.post(
        f"{served.url}/api/v1/switches/dataset:levels",
        json={"position": position, "rationale": "a test"},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=20,
    )
    assert answer.status_code == 200, answer.text


def windows(result: dict[str, Any]) -> list[str]:
    return [one["window_start"][:10] for one in result["windows"]]


def days(server: AirflowServer) -> set[str]:
    """The days of which the DAG `notes` has made something."""
    done = [one for one in server.tasks("notes") if one["state"] == "success"]
    return {day for one in done for day in windows(server.xcom(one))}


@pytest.mark.slow
@pytest.mark.req("FLT-4")
def test_a_running_airflow(
    project: Path, tmp_path: Path, airflow_environment: str, postgres_database: str
) -> None:
    """A backfill asks for the windows of its dates, deferred until kfm has ended them; a promotion starts
    the DAG that is scheduled on the asset, for that window; a cleared task asks anew for the same window,
    and tells of nothing where nothing changed; a sensor waits for its window."""
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "levels.py").write_text(DAGS)
    with serving(project, environment=[("KFM_TOKEN", TOKEN)]) as served:
        url = httpx.URL(served.url)
        connection = {
            "conn_type": "kfm",
            "host": url.host,
            "port": url.port,
            "schema": "http",
            "password": TOKEN,
        }
        switch(served, "paused")
        told = {"AIRFLOW_CONN_KFM_DEFAULT": json.dumps(connection)}
        with airflow(airflow_environment, tmp_path, dags, postgres_database, **told) as server:
            server.wait_for_dags("levels", "notes", "waits")
            span = {"from_date": "2026-03-02T00:00:00Z", "to_date": "2026-03-04T00:00:00Z"}
            server.post("/backfills", dag_id="levels", max_active_runs=2, run_on_latest_version=False, **span)
            server.wait_for_tasks("levels", "deferred", "deferred")
            server.post("/dags/waits/dagRuns", logical_date="2026-03-03T09:00:00Z")
            server.wait_for_tasks("waits", "deferred")
            assert server.events() == []

            switch(served, "running")
            done = server.wait_for_tasks("levels", "success", "success")
            results = [server.xcom(one) for one in done]
            assert [windows(one) for one in results] == [["2026-03-01"], ["2026-03-02"]]
            assert {one["outcome"] for one in results} == {"published"}
            (waited,) = server.wait_for_tasks("waits", "success")
            assert windows(server.xcom(waited)) == ["2026-03-02"]
            told_of = {one["extra"]["run_id"]: one["extra"] for one in server.events()}
            assert {run: one["version"] for run, one in told_of.items()} == {
                one["run_id"]: one["version"] for one in results
            }
            server.wait("notes did not follow", lambda: days(server))

            def clear() -> dict[str, Any]:
                runs = [done[0]["dag_run_id"]]
                server.post(
                    "/dags/levels/clearTaskInstances", dry_run=False, only_failed=False, dag_run_id=runs[0]
                )
                nonlocal tries
                tries += 1
                return server.xcom(server.wait_for_tasks("levels", "success", "success", tries=tries)[0])

            tries = 2
            again = clear()
            assert (again["outcome"], windows(again)) == ("unchanged", ["2026-03-01"])
            assert again["request_id"] != results[0]["request_id"]
            assert len(server.events()) == 2
            (project / "incoming" / "2026-03-01.csv").write_text("site,level\na,9\n")
            corrected = clear()
            assert (corrected["outcome"], windows(corrected)) == ("published", ["2026-03-01"])
            assert server.events()[-1]["extra"]["version"] == corrected["version"] == 3
            # Airflow leaves an event that comes while a run is being made to the next run.
            server.wait("notes has left one out", lambda: days(server) == {"2026-03-01", "2026-03-02"})
