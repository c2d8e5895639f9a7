"""A Dask cluster of real processes on 127.0.0.1, whose workers can be killed and replaced."""

from __future__ import annotations

import contextlib
import datetime
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
from typing import Any

from tests.services import START_SECONDS_MAX, ServiceUnavailable, die_with_parent, free_port, stop

# What the scheduler and the workers of a machine without kfm are started with.
WITHOUT_KFM = (
    "import sys, runpy; sys.modules['kfm'] = None; runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)


class DaskCluster:
    """A scheduler, and workers of one thread each."""

    def __init__(
        self, folder: Path, *, has_kfm: bool = True, env: dict[str, str] | None = None, is_tls: bool = False
    ) -> None:
        """`is_tls`: with the certificates that `env` names."""
        self._folder = folder
        self._scheme = "tls" if is_tls else "tcp"
        self._has_kfm = has_kfm
        self._env = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "2s", **(env or {})}
        self._port = free_port()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start(
            "distributed.cli.dask_scheduler",
            *("--host", "127.0.0.1", "--port", str(self._port), "--protocol", self._scheme, "--no-dashboard"),
        )
        self._await_scheduler()

    @property
    def address(self) -> str:
        return f"{'dask+tls' if self._scheme == 'tls' else 'dask'}://127.0.0.1:{self._port}"

    def add_worker(self) -> subprocess.Popen[bytes]:
        worker = self._start(
            "distributed.cli.dask_worker",
            f"{self._scheme}://127.0.0.1:{self._port}",
            *("--host", "127.0.0.1", "--protocol", self._scheme, "--nthreads", "1", "--no-nanny"),
            "--no-dashboard",
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
    folder: Path,
    workers: int,
    *,
    has_kfm: bool = True,
    env: dict[str, str] | None = None,
    is_tls: bool = False,
) -> Iterator[DaskCluster]:
    """A cluster in a scratch folder; it ends with the process that started it."""
    if importlib.util.find_spec("distributed") is None:
        raise ServiceUnavailable("distributed is not installed (the extra `dask`)")
    cluster = DaskCluster(folder, has_kfm=has_kfm, env=env, is_tls=is_tls)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.close()


def certificates(folder: Path) -> dict[str, str]:
    """An authority of its own, and one certificate of it for both sides, where Dask looks for them."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder.mkdir()
    now = datetime.datetime.now(datetime.UTC)

    def signed(name: str, issuer: str, key: Any, by: Any, is_authority: bool) -> x509.Certificate:
        made = (
            x509.CertificateBuilder().serial_number(x509.random_serial_number()).public_key(key.public_key())
        )
        made = made.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        made = made.issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        made = made.not_valid_before(now - datetime.timedelta(days=1))
        made = made.not_valid_after(now + datetime.timedelta(days=1))
        basic = x509.BasicConstraints(ca=is_authority, path_length=None)
        return made.add_extension(basic, critical=True).sign(by, hashes.SHA256())

    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    pem = serialization.Encoding.PEM
    files = {
        "CA_FILE": signed("ca", "ca", authority, authority, True).public_bytes(pem),
        "CERT": signed("dask", "ca", own, authority, False).public_bytes(pem),
        "KEY": own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    }
    env = {}
    for name, data in files.items():
        path = folder / f"{name.lower()}.pem"
        path.write_bytes(data)
        sides = ("",) if name == "CA_FILE" else ("CLIENT__", "SCHEDULER__", "WORKER__")
        env |= {f"DASK_DISTRIBUTED__COMM__TLS__{side}{name}": str(path) for side in sides}
    return env
