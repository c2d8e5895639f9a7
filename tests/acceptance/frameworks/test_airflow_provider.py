"""The Airflow provider in a running Airflow, with a real service of kfm."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.frameworks.airflow_server import AirflowServer, airflow
from tests.acceptance.frameworks.test_frameworks import called
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

from airflow.sdk import DAG
from airflow.timetables.trigger import CronTriggerTimetable
from kfm.integrations.airflow import KfmDatasetSensor, KfmRunOperator, kfm_asset

UTC = timezone.utc
MARCH = {"start_date": datetime(2026, 3, 1, tzinfo=UTC), "end_date": datetime(2026, 3, 31, tzinfo=UTC)}
LEVELS = kfm_asset("levels")

with DAG("levels", schedule=CronTriggerTimetable("0 6 * * *", timezone="UTC"), catchup=False, **MARCH):
    KfmRunOperator(task_id="run", source="daily", outlets=[LEVELS], poll_seconds=2)

with DAG("notes", schedule=[LEVELS]):
    KfmRunOperator(task_id="run", source="notes")

with DAG("watches", schedule=[kfm_asset("notes", watch=True, poll_seconds=1)]):
    KfmDatasetSensor(task_id="wait", dataset="notes", newer_than=0)

with DAG("waits", schedule=None):
    KfmDatasetSensor(task_id="wait", dataset="levels", poke_interval=2, timeout=600)

with DAG("stopped", schedule=None):
    KfmRunOperator(task_id="run", source="daily")
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


def connection_to(address: str) -> dict[str, Any]:
    url = httpx.URL(address)
    return {"conn_type": "kfm", "host": url.host, "port": url.port, "schema": "http", "password": TOKEN}


def requests(served: Served, state: str) -> list[dict[str, Any]]:
    answer = httpx.get(
        f"{served.url}/api/v1/requests",
        params={"state": state},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=20,
    )
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["requests"]
    return found


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
    the DAG that is scheduled on the asset, for that window, and the one that watches what that makes; a
    cleared task asks anew for the same window, and tells of nothing where nothing changed; a sensor waits for
    its window; what a task asked for is cancelled when a person marks it."""
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "levels.py").write_text(DAGS)
    with serving(project, environment=[("KFM_TOKEN", TOKEN)]) as served:
        told = {"AIRFLOW_CONN_KFM_DEFAULT": json.dumps(connection_to(served.url))}
        switch(served, "paused")
        with airflow(airflow_environment, tmp_path, dags, postgres_database, **told) as server:
            server.wait_for_dags("levels", "notes", "stopped", "waits", "watches")
            span = {"from_date": "2026-03-02T00:00:00Z", "to_date": "2026-03-04T00:00:00Z"}
            server.post("/backfills", dag_id="levels", max_active_runs=2, run_on_latest_version=False, **span)
            server.post("/dags/waits/dagRuns", logical_date="2026-03-03T09:00:00Z")
            server.post("/dags/stopped/dagRuns", logical_date="2026-03-04T09:00:00Z")
            (stopped,) = server.wait_for_tasks("stopped", "deferred")
            server.wait_for_tasks("waits", "deferred")
            server.wait_for_tasks("levels", "deferred", "deferred")
            assert server.events("kfm://kfm_default/levels") == []
            server.wait_for_trigger("stopped")
            server.fail(stopped)
            (cancelled,) = server.wait("not cancelled", lambda: requests(served, "cancelled"))
            assert cancelled["window_start"].startswith("2026-03-03")

            switch(served, "running")
            done = server.wait_for_tasks("levels", "success", "success")
            results = [server.xcom(one) for one in done]
            assert [windows(one) for one in results] == [["2026-03-01"], ["2026-03-02"]]
            assert {one["outcome"] for one in results} == {"published"}
            (waited,) = server.wait_for_tasks("waits", "success")
            assert windows(server.xcom(waited)) == ["2026-03-02"]
            told_of = {
                one["extra"]["run_id"]: one["extra"] for one in server.events("kfm://kfm_default/levels")
            }
            assert {run: one["version"] for run, one in told_of.items()} == {
                one["run_id"]: one["version"] for one in results
            }
            server.wait("notes did not follow", lambda: days(server))

            again = server.xcom(server.clear(done[0]))
            assert (again["outcome"], windows(again)) == ("unchanged", ["2026-03-01"])
            assert again["request_id"] != results[0]["request_id"]
            assert len(server.events("kfm://kfm_default/levels")) == 2
            (project / "incoming" / "2026-03-01.csv").write_text("site,level\na,9\n")
            corrected = server.xcom(server.clear({**done[0], "try_number": 2}))
            assert (corrected["outcome"], windows(corrected)) == ("published", ["2026-03-01"])
            last = server.events("kfm://kfm_default/levels")[-1]
            assert last["extra"]["version"] == corrected["version"] == 3
            # Airflow leaves an event that comes while a run is being made to the next run.
            server.wait("notes has left one out", lambda: days(server) == {"2026-03-01", "2026-03-02"})
            watched = server.wait("notes is not watched", lambda: server.events("kfm://kfm_default/notes"))
            assert watched[0]["extra"]["payload"]["version"] == 1
            server.wait(
                "no watched event has started a DAG run",
                lambda: [one for one in server.tasks("watches") if one["state"] == "success"],
            )


STOPPED = """
import json, os, signal, sys, threading, time
from airflow.providers_manager import ProvidersManager
from kfm.integrations import airflow_provider as provider

manager = ProvidersManager()
print("fields", json.dumps([
    manager.hooks["kfm"].hook_class_name,
    manager.field_behaviours["kfm"]["relabeling"]["password"],
    sorted(name for name in manager.connection_form_widgets if name.startswith("extra__kfm")),
]))
hook = provider.KfmHook()
print("tested", json.dumps(hook.test_connection()))


class TI:
    dag_id, run_id, task_id, map_index, try_number = "d", "r", "t", -1, 1


class Run:
    from datetime import datetime as _d, timezone as _z
    data_interval_end = _d(2026, 3, 2, 6, tzinfo=_z.utc)


def stop(operator):
    # As Airflow does: in the handler of a signal, while the task waits.
    signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
    threading.Thread(target=when_under_way, args=(operator,), daemon=True).start()
    try:
        operator.execute({"dag_run": Run, "ti": TI})
    except Exception as error:
        print("ended", json.dumps([type(error).__name__, str(error).split(" fix:")[0]]))


def when_under_way(operator):
    while not (operator._asked or operator._process):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)


stop(provider.KfmRunOperator(task_id="t", source="daily", rationale="a test", deferrable=False))
here = [sys.executable, "-c", "import time; time.sleep(600)"]
stop(provider.KfmRunOperator(task_id="t", source="daily", rationale="a test", project=".", command=here))
"""


@pytest.mark.slow
@pytest.mark.req("FLT-4")
def test_connection_and_stopped_tasks(project: Path, tmp_path: Path, airflow_environment: str) -> None:
    """Airflow knows the connection's fields and its test; what a task that is stopped has asked for is
    cancelled, and a command that it has started ends."""
    with serving(project, environment=[("KFM_TOKEN", TOKEN)]) as served:
        switch(served, "paused")
        printed = called(
            [f"{airflow_environment}/bin/python", "-c", STOPPED],
            tmp_path,
            AIRFLOW_HOME=str(tmp_path / "home"),
            AIRFLOW_CONN_KFM_DEFAULT=json.dumps(connection_to(served.url)),
        ).stdout
        lines = [line.split(" ", 1) for line in printed.splitlines()]
        told = [(word, json.loads(rest)) for word, rest in lines if word in ("fields", "tested", "ended")]
        assert told == [
            (
                "fields",
                [
                    "kfm.integrations.airflow_provider.KfmHook",
                    "Token",
                    ["extra__kfm__ca_file", "extra__kfm__prefix"],
                ],
            ),
            ("tested", [True, "known as airflow, roles: read, operate"]),
            ("ended", ["AirflowFailException", "Cancelled by airflow: The task was stopped in Airflow."]),
            ("ended", ["AirflowException", "The command ended with -15."]),
        ]
        (cancelled,) = requests(served, "cancelled")
        assert cancelled["window_start"].startswith("2026-03-01")
