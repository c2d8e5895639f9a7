"""The examples in which others call kfm's nodes: plain Python, Airflow and LangGraph, each run for real."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kfm.model.errors import ExtraMissing

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
SECONDS_MAX = 300  # Airflow takes its time to start
SCREEN_LINES = 50


def copied(name: str, folder: Path) -> Path:
    made = folder / name
    shutil.copytree(EXAMPLES / name, made, ignore=shutil.ignore_patterns(".kfm", ".airflow", "__pycache__"))
    return made


def called(command: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """In a fresh shell's environment, and to its end."""
    kept = {"PATH": "/usr/bin:/bin", "HOME": str(folder.parent), "LANG": "C.UTF-8"}
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**kept, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended


def passes_of(python: str, folder: Path) -> list[dict[str, Any]]:
    listed = called([python, "-m", "kfm", "run-state", "list", "--directory", ".", "--json"], folder)
    passes: list[dict[str, Any]] = json.loads(listed.stdout)["passes"]
    return passes


@pytest.mark.req("RS-14")
@pytest.mark.parametrize("name", ["plain", "airflow", "langgraph", "lakefs"])
def test_each_example_links_the_schema_and_the_pattern(name: str) -> None:
    """Its page leads to the schema and to the page about run-state, and both are there."""
    page = (EXAMPLES / name / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", page)
    targets = {(EXAMPLES / name / link.partition("#")[0]).resolve() for link in links if "://" not in link}
    assert all(target.exists() for target in targets), targets
    assert ROOT / "src/kfm/contracts/schemas/run-state.schema.json" in targets
    assert ROOT / "docs/reference/run-state.md" in targets


@pytest.mark.req("RS-14")
def test_plain_python(tmp_path: Path) -> None:
    """The pipeline runs once, after a change what reads it; a wrapped function is not called twice."""
    folder = copied("plain", tmp_path)
    assert called([sys.executable, "soil.py"], folder).stdout.count("ran") == 3
    assert called([sys.executable, "soil.py"], folder).stdout.count("unchanged") == 3
    samples = folder / "samples.csv"
    samples.write_text(samples.read_text().replace("Riley,6.4", "Riley,6.40"))
    lines = called([sys.executable, "soil.py"], folder).stdout.splitlines()
    assert lines == ["soil.samples ran", "soil.means unchanged", "soil.page unchanged"]
    first = called([sys.executable, "anything.py"], folder).stdout
    assert first.splitlines() == ["reading samples.csv", "Ellis 8.0", "reading samples.csv", "Riley 6.4"]
    assert called([sys.executable, "anything.py"], folder).stdout.splitlines() == ["Ellis 8.0", "Riley 6.4"]


def test_the_first_examples_fit_on_a_screen() -> None:
    """What a newcomer has to read is short."""
    for name in ("soil.py", "anything.py"):
        assert len((EXAMPLES / "plain" / name).read_text().splitlines()) <= SCREEN_LINES


def test_without_airflow_the_adapter_says_so() -> None:
    """The provider's description is there without loading Airflow; a DAG needs it, and the error says so."""
    program = (
        "import sys, kfm.integrations.airflow as k; print(k.get_provider_info(), 'airflow' in sys.modules)"
    )
    printed = called([sys.executable, "-c", program], ROOT).stdout
    assert "'package-name': 'kfm-kernel'" in printed  # Airflow compares it with the distribution's own name
    assert printed.endswith("False\n")
    if importlib.util.find_spec("airflow") is None:
        with pytest.raises(ExtraMissing, match="Airflow 3"):
            from kfm.integrations.airflow import dag_of  # noqa: F401


@pytest.mark.slow
@pytest.mark.req("RS-14")
def test_airflow(tmp_path: Path, airflow_environment: str) -> None:
    """`airflow dags test`, twice: three tasks run, then none; and a pass over the pipeline finds all done.
    The other DAG does the window of its date, again and again although it publishes below the DAGs folder."""
    folder = copied("airflow", tmp_path)
    env = {
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    airflow, python = f"{airflow_environment}/bin/airflow", f"{airflow_environment}/bin/python"
    called([airflow, "db", "migrate"], folder, **env)
    first = called([airflow, "dags", "test", "soil"], folder, **env)
    assert len(re.findall(r"soil\.\w+: ran, first run", first.stdout + first.stderr)) == 3
    second = called([airflow, "dags", "test", "soil"], folder, **env)
    assert len(re.findall(r"soil\.\w+: unchanged, unchanged; made by", second.stdout + second.stderr)) == 3
    for date, day in (("2026-03-03T06:00:00Z", "2026-03-02"), ("2026-03-02T06:00:00Z", "2026-03-01")):
        called([airflow, "dags", "test", "levels", date], folder, **env)
        listed = called([python, "-m", "kfm", "runs", "--json"], folder / "levels").stdout
        assert json.loads(listed)["runs"][0]["window_start"].startswith(day)
    newest, oldest = passes_of(python, folder)
    assert newest["run_id"].startswith("soil.manual__")
    assert (oldest["state"], oldest["counts"]) == ("success", {"success": 3})
    assert (newest["state"], newest["counts"]) == ("success", {"skipped": 3})
    whole = [python, "-m", "kfm", "pipeline", "run", "soil_dag.py", "--directory", ".", "--json"]
    assert json.loads(called(whole, folder, **env).stdout)["counts"]["unchanged"] == 3
    provided = (
        "from airflow.providers_manager import ProvidersManager as P; print('kfm-kernel' in P().providers)"
    )
    assert called([python, "-c", provided], folder, **env).stdout.split()[-1] == "True"


@pytest.mark.slow
@pytest.mark.req("RS-14")
def test_langgraph(tmp_path: Path, langgraph_environment: str) -> None:
    """A graph's nodes run once for each county; after a change only those whose values differ."""
    folder, python = copied("langgraph", tmp_path), f"{langgraph_environment}/bin/python"
    command = [python, "survey.py", "Riley", "Ellis", "Nowhere"]
    first = called(command, folder)
    assert first.stderr.split() == [*["reading", "judging", "advising"] * 2, "reading"]
    second = called(command, folder)
    assert (second.stdout, second.stderr) == (first.stdout, "")
    samples = folder / "samples.csv"
    samples.write_text(samples.read_text().replace("Riley,6.4", "Riley,7.4"))
    third = called(command, folder)
    assert third.stderr.split() == ["reading", "judging", "advising", "reading", "reading"]
    assert third.stdout.splitlines()[0] == "Riley: lime is wasted"
    assert {each["run_id"] for each in passes_of(python, folder)} == {
        "survey-Riley",
        "survey-Ellis",
        "survey-Nowhere",
    }
