"""A Dask cluster of real processes on 127.0.0.1, whose workers can be killed and replaced."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.services import START_SECONDS_MAX, ServiceUnavailable, die_with_parent, free_port, stop

# What the scheduler and the workers of a machine without kfm are started with.
WITHOUT_KFM = (
    "import sys, runpy; sys.modules['kfm'] = None; runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)


class DaskCluster:
    """A scheduler, and workers of one thread each."""

    def __init__(self, folder: Path, *, has_kfm: bool = True, env: dict[str, str] | None = None) -> None:
        self._folder = folder
        self._has_kfm = has_kfm
        self._env = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "2s", **(env or {})}
        self._port = free_port()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start(
            "distributed.cli.dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            str(self._port),
            "--no-dashboard",
        )
        self._await_scheduler()

    @property
    def address(self) -> str:
        return f"dask://127.0.0.1:{self._port}"

    def add_worker(self) -> subprocess.Popen[bytes]:
        worker = self._start(
            "distributed.cli.dask_worker",
            f"tcp://127.0.0.1:{self._port}",
            *("--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard"),
            *("--local-directory", str(self._folder)),
        )
        self.workers.append(worker)
        return worker

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            stop(process, signal.SIGKILL)

    def log(self) -> str:
        return (self._folder / "dask.log").read_text()

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        how = ["-m", module] if self._has_kfm else ["-c", WITHOUT_KFM, module]
        with (self._folder / "dask.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *how, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._env,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, signal.SIGKILL),  # also of one that is suspended
            )

    def _await_scheduler(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline and self.scheduler.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.05)
        self.close()
        raise ServiceUnavailable(f"the Dask scheduler did not start: {self.log()[-500:]}")


@contextlib.contextmanager
def dask_cluster(
    folder: Path, workers: int, *, has_kfm: bool = True, env: dict[str, str] | None = None
) -> Iterator[DaskCluster]:
    """A cluster in a scratch folder; it ends with the process that started it."""
    if importlib.util.find_spec("distributed") is None:
        raise ServiceUnavailable("distributed is not installed (the extra `dask`)")
    cluster = DaskCluster(folder, has_kfm=has_kfm, env=env)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.close()
