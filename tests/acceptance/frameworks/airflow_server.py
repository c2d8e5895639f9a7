"""A real Airflow for a test: scheduler, triggerer, DAG processor and API server, each its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.services import die_with_parent, free_port

SECONDS_MAX = 120.0  # for one thing to happen, on a busy machine
# Without their log servers: those listen on every address, and nothing here reads logs over HTTP.
PROCESSES = (
    ("api-server",),
    ("scheduler", "--skip-serve-logs"),
    ("dag-processor",),
    ("triggerer", "--skip-serve-logs"),
)
_Found = TypeVar("_Found")


class AirflowServer:
    """What the tests ask it for, by its public API."""

    def __init__(self, url: str, logs: Path) -> None:
        self._logs = logs
        self._client = httpx.Client(base_url=url, timeout=30)

    def wait(self, what: str, look: Callable[[], _Found | None]) -> _Found:
        ends = time.monotonic() + SECONDS_MAX
        while True:
            found = look()
            if found:
                return found
            assert time.monotonic() < ends, f"{what}\n{self.said()}"
            time.sleep(0.2)

    def said(self) -> str:
        logs = [*self._logs.glob("*.log"), *self._logs.glob("home/logs/**/attempt=*.log")]
        return "\n".join(f"--- {one.name}\n{one.read_text(errors='replace')[-3000:]}" for one in logs)

    def log_in(self) -> None:
        def token() -> str | None:
            try:
                answer = self._client.get("/auth/token")
                return str(answer.json()["access_token"]) if answer.status_code == 201 else None
            except (httpx.HTTPError, ValueError, KeyError):
                return None

        made = self.wait("no token", token)
        self._client.headers["Authorization"] = f"Bearer {made}"

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        answer = self._client.get(f"/api/v2{path}", params=params)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self._client.post(f"/api/v2{path}", json=body)
        assert answer.status_code in (200, 201), answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait_for_dags(self, *names: str) -> None:
        self.wait(f"no DAGs {names}", lambda: set(names) <= {one["dag_id"] for one in self._dags()})

    def _dags(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/dags")["dags"]
        return found

    def tasks(self, dag_id: str) -> list[dict[str, Any]]:
        """The task instances of all runs of a DAG, the oldest logical date first."""
        found: list[dict[str, Any]] = self.get(f"/dags/{dag_id}/dagRuns/~/taskInstances")["task_instances"]
        return sorted(found, key=lambda one: (str(one["logical_date"]), one["dag_run_id"]))

    def wait_for_tasks(self, dag_id: str, *states: str) -> list[dict[str, Any]]:
        """Until the tasks of a DAG are in these states."""

        def look() -> list[dict[str, Any]] | None:
            found = self.tasks(dag_id)
            told = [one["state"] for one in found]
            assert "failed" in states or "failed" not in told, self.said()
            return found if told == list(states) else None

        return self.wait(f"{dag_id} is not {states}", look)

    def wait_for_trigger(self, dag_id: str) -> None:
        """Until the triggerer waits for a task of a DAG: before that it knows nothing of it."""
        logs = f"home/logs/dag_id={dag_id}/**/attempt=*.log.trigger.*.log"
        self.wait(f"no trigger of {dag_id}", lambda: any(self._logs.glob(logs)))

    def xcom(self, task: dict[str, Any]) -> dict[str, Any]:
        path = f"/dags/{task['dag_id']}/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}"
        value = self.get(f"{path}/xcomEntries/return_value")["value"]
        found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
        return found

    def events(self, uri: str) -> list[dict[str, Any]]:
        """Those of one asset, the oldest first."""
        found: list[dict[str, Any]] = self.get("/assets/events", order_by="timestamp")["asset_events"]
        return [one for one in found if one["uri"] == uri]

    def fail(self, task: dict[str, Any]) -> None:
        """Mark a task as failed, as a person does."""
        path = f"/dags/{task['dag_id']}/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}"
        answer = self._client.patch(f"/api/v2{path}", json={"new_state": "failed"})
        assert answer.status_code == 200, answer.text

    def clear(self, task: dict[str, Any]) -> dict[str, Any]:
        """Clear a task, and wait until it has succeeded again."""
        dag_id, run_id, tries = task["dag_id"], task["dag_run_id"], task["try_number"]
        # A run that is about to end, as its tasks have, would end.
        self.wait(
            "the run has not ended",
            lambda: self.get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"] == "success",
        )
        self.post(f"/dags/{dag_id}/clearTaskInstances", dry_run=False, only_failed=False, dag_run_id=run_id)

        def again() -> dict[str, Any] | None:
            (found,) = (one for one in self.tasks(dag_id) if one["dag_run_id"] == run_id)
            return found if found["state"] == "success" and found["try_number"] > tries else None

        return self.wait("it was not done again", again)


@contextmanager
def airflow(
    environment: str, folder: Path, dags: Path, database: str, **more: str
) -> Iterator[AirflowServer]:
    """Its processes are groups of their own, and are ended with what they have started.

    `database` is of PostgreSQL: on SQLite its processes lock each other out, and it makes no backfills."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {
        "PATH": f"{environment}/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "NO_PROXY": "*",
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database.replace("postgresql:", "postgresql+psycopg:"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": database.replace(
            "postgresql:", "postgresql+psycopg_async:"
        ),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of this test, which is long enough for what signs with it",
        "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        **more,
    }
    command = f"{environment}/bin/airflow"
    subprocess.run(
        [command, "db", "migrate"], cwd=folder, env=env, check=True, capture_output=True, timeout=200
    )
    processes = []
    try:
        for name, *options in PROCESSES:
            with (folder / f"{name}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [command, name, *options],
                        cwd=folder,
                        env=env,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        preexec_fn=die_with_parent,
                    )
                )
        server = AirflowServer(url, folder)
        server.log_in()
        yield server
    finally:
        for process in processes:
            _signal(process, signal.SIGTERM)
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            _signal(process, signal.SIGKILL)  # also what it has left behind
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
