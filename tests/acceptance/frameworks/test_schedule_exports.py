"""Exported schedules in the hands of those that they are for: Airflow and LangGraph, each run for real."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.acceptance.frameworks.test_frameworks import called

CONFIG = """\
datasets: [{id: levels, rights: {license: CC0-1.0, care: {label: Public}}}]
sources: [{id: daily, dataset: levels, kind: files, folder: incoming}]
publish: [{kind: local, path: published}]
"""
CRON = """\
schedules:
  - {id: morning, source: daily, cron: "30 2 * * *", time_zone: America/Chicago}
  - {id: often, source: daily, every: PT90M}
  - {id: odd, source: daily, every: PT7H}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "incoming").mkdir(parents=True)
    (folder / "incoming" / "levels.csv").write_text("site,level\na,1\n")
    (folder / "kfm.yml").write_text(CONFIG)
    (folder / "cron.yml").write_text(CRON)
    return folder


def exported(project: Path, target: str, python: str = sys.executable) -> str:
    return called([python, "-m", "kfm", "schedule", "export", target], project).stdout


def runs_of(project: Path) -> int:
    listed = called([sys.executable, "-m", "kfm", "runs", "--json"], project).stdout
    return len(json.loads(listed)["runs"])


@pytest.mark.slow
@pytest.mark.req("UPD-13")
def test_airflow(project: Path, tmp_path: Path, airflow_environment: str) -> None:
    """Airflow reads a DAG for each schedule and `airflow dags test` brings the source up to date."""
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "kfm_dags.py").write_text(exported(project, "airflow"))
    env = {
        "PATH": f"{airflow_environment}/bin:/usr/bin:/bin",
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "KFM_CONFIG": str(project / "kfm.yml"),
    }
    airflow = f"{airflow_environment}/bin/airflow"
    called([airflow, "db", "migrate"], dags, **env)
    called([airflow, "dags", "test", "kfm.morning"], dags, **env)
    assert runs_of(project) == 1


@pytest.mark.slow
@pytest.mark.req("UPD-13")
def test_airflow_times(project: Path, tmp_path: Path, airflow_environment: str) -> None:
    """Airflow's timetables tell the instants that kfm tells, on days on which the clocks run evenly."""
    (tmp_path / "kfm_dags.py").write_text(exported(project, "airflow"))
    program = (
        "import kfm_dags, json, pendulum\n"
        "from airflow.timetables.base import TimeRestriction as R\n"
        "told = {}\n"
        "for dag in (kfm_dags.dag_0, kfm_dags.dag_2):\n"
        "    last, told[dag.dag_id] = None, []\n"
        "    for _ in range(4):\n"
        "        info = dag.timetable.next_dagrun_info(last_automated_data_interval=last,\n"
        "            restriction=R(pendulum.datetime(2027, 5, 1), None, True))\n"
        "        last = info.data_interval\n"
        "        told[dag.dag_id].append(info.run_after.in_timezone('UTC').format('YYYY-MM-DDTHH:mm:ss'))\n"
        "print('told', json.dumps(told))\n"
    )
    env = {"AIRFLOW_HOME": str(tmp_path / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    printed = called([f"{airflow_environment}/bin/python", "-c", program], tmp_path, **env).stdout
    told = json.loads(next(line[5:] for line in printed.splitlines() if line.startswith("told ")))
    for name in ("morning", "often"):
        command = ["schedule", "next", name, "--from", "2027-05-01", "--count", "4", "--json"]
        listed = json.loads(called([sys.executable, "-m", "kfm", *command], project).stdout)
        assert told[f"kfm.{name}"] == [each["instant"][:19] for each in listed["instants"]]


@pytest.mark.slow
@pytest.mark.req("UPD-13")
def test_langgraph(project: Path, langgraph_environment: str) -> None:
    """The graph brings a schedule's source up to date; what LangGraph can't keep is refused before."""
    cron = project / "cron.yml"
    cron.write_text(CRON.replace("PT7H", "PT8H"))
    (project / "kfm_graph.py").write_text(exported(project, "langgraph"))
    program = "import kfm_graph; print(kfm_graph.graph.invoke({'schedule': 'morning'}))"
    path = f"{langgraph_environment}/bin:/usr/bin:/bin"
    ended = called([f"{langgraph_environment}/bin/python", "-c", program], project, PATH=path)
    assert "'exit_code': 0" in ended.stdout
    assert runs_of(project) == 1
