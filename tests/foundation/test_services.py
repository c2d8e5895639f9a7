"""The services that other tests stand on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import services

ROOT = Path(__file__).resolve().parents[2]

NEEDS_POSTGRES = """
def test_it(postgres_dsn):
    raise AssertionError("never reached")
"""


def _pytest(tmp_path: Path, source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a test file under the project's conftest, with PostgreSQL made unavailable."""
    (tmp_path / "conftest.py").write_text(
        "from tests import services\n"
        "def nothing():\n"
        "    raise services.ServiceUnavailable('made unavailable')\n"
        "services.STARTERS['postgres'] = nothing\n"
        "from tests.conftest import *\n"
        "from tests.conftest import pytest_terminal_summary\n"
    )
    (tmp_path / "test_it.py").write_text(source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
    ]
    clean = {
        k: v for k, v in os.environ.items() if k != "KFM_REQUIRE_SERVICES" and not k.startswith("PYTEST_")
    }
    return subprocess.run(
        [*command, "test_it.py"],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_postgres_is_real_and_durable(postgres_database: str) -> None:
    """The server the tests use keeps the durability settings that the store insists on."""
    import psycopg

    with psycopg.connect(postgres_database) as connection:
        shown = [
            connection.execute(f"SHOW {name}").fetchone()
            for name in ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses")
        ]
    assert shown == [("on",), ("on",), ("on",), ("127.0.0.1",)]


def test_each_test_has_its_own_database(postgres_dsn: str) -> None:
    """A database exists only while its test runs, also if a connection was left open."""
    import psycopg

    with services.postgres_database(postgres_dsn) as dsn:
        left_open = psycopg.connect(dsn)
        name = dsn.rsplit("/", 1)[1]
    with psycopg.connect(postgres_dsn) as connection:
        found = connection.execute("SELECT count(*) FROM pg_database WHERE datname = %s", (name,)).fetchone()
    left_open.close()
    assert found == (0,)


def test_postgres_needs_a_password(postgres_dsn: str) -> None:
    """Another user of this machine can't walk in through the port."""
    import psycopg

    head, tail = postgres_dsn.split("@")
    wrong = head.rsplit(":", 1)[0] + ":wrong@" + tail
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_s3_honours_conditions(s3_endpoint: str, s3_bucket: str) -> None:
    """The emulator refuses a conditional put whose condition does not hold."""
    client = services.s3_client(s3_endpoint)
    etag = client.put_object(Bucket=s3_bucket, Key="pointer", Body=b"1", IfNoneMatch="*")["ETag"]
    client.put_object(Bucket=s3_bucket, Key="pointer", Body=b"2", IfMatch=etag)
    with pytest.raises(client.exceptions.ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=s3_bucket, Key="pointer", Body=b"3", IfMatch=etag)
    assert client.get_object(Bucket=s3_bucket, Key="pointer")["Body"].read() == b"2"


@pytest.mark.parametrize("fixture", ["s3_endpoint", "ministack_endpoint"])
def test_emulators_serve_this_machine_alone(request: pytest.FixtureRequest, fixture: str) -> None:
    """They answer at 127.0.0.1 only: one that listened everywhere would answer at its neighbour, too."""
    port = int(request.getfixturevalue(fixture).rsplit(":", 1)[1])
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)


def test_servers_end_when_their_test_process_is_killed(tmp_path: Path) -> None:
    """A killed test run leaves no server behind."""
    script = (
        "import sys, os, time; from tests import services\n"
        "with services.s3() as s3, services.postgres() as dsn:\n"
        "    print(s3.rsplit(':', 1)[1], dsn.split(':')[3].split('/')[0], flush=True); time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    ports = [int(port) for port in owner.stdout.readline().split()]
    owner.kill()
    owner.wait(10)
    owner.stdout.close()
    deadline = time.monotonic() + 20
    while any(_answers(port) for port in ports) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(ports) == 2
    assert not any(_answers(port) for port in ports)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_missing_service_skips_loudly(tmp_path: Path) -> None:
    """Without the service its tests are skipped, and the last lines say so."""
    ran = _pytest(tmp_path, NEEDS_POSTGRES)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "!!! NOT TESTED, 1 tests skipped: postgres: made unavailable" in ran.stdout


def test_a_required_service_that_is_missing_fails(tmp_path: Path) -> None:
    """Where the environment requires the service, its absence is a failure."""
    ran = _pytest(tmp_path, NEEDS_POSTGRES, KFM_REQUIRE_SERVICES="postgres,s3")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "postgres is required by KFM_REQUIRE_SERVICES: made unavailable" in ran.stdout


def test_a_misspelt_requirement_is_an_error() -> None:
    """A typing error in KFM_REQUIRE_SERVICES can't switch the requirement off."""
    assert services.required(" postgres, s3,") == {"postgres", "s3"}
    with pytest.raises(ValueError, match="postgrse"):
        services.required("postgrse")
