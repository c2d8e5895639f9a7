"""A STAC API with transactions: stac-fastapi on pgSTAC, as another organisation would run it.

PostgreSQL and PostGIS are the system's; pypgstac and the API live in the environment that
`make pgstac` makes. From nothing to the first answer it takes two or three seconds, most of it
imports and `initdb`: keeping a migrated data folder would not be worth its staleness.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.services import (
    PORT_TRIES_MAX,
    START_SECONDS_MAX,
    ServiceUnavailable,
    die_with_parent,
    environment,
    free_port,
    postgres_server,
    stop,
)

LIBRARY = Path("/usr/lib/postgresql")
SHARE = Path("/usr/share/postgresql")
MIGRATION_SECONDS_MAX = 120.0
# A replica, which can be made again: it need not survive a power cut.
HASTY = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


def _with_postgis(_scratch: Path, _who: dict[str, Any]) -> Path:
    """The newest of the system's PostgreSQL installations that has PostGIS."""
    found = [
        folder
        for folder in LIBRARY.glob("*")
        if (folder / "bin" / "postgres").exists()
        and (SHARE / folder.name / "extension" / "postgis.control").exists()
    ]
    if not found:
        raise ServiceUnavailable("no PostgreSQL with PostGIS (Debian package `postgresql-15-postgis-3`)")
    return max(found, key=lambda folder: [int(part) for part in re.findall(r"\d+", folder.name)])


def _variables(dsn: str) -> dict[str, str]:
    """What both programs are told, and nothing of ours."""
    parts = urlsplit(dsn)
    return {
        "PATH": os.defpath,
        "PGHOST": str(parts.hostname),
        "PGPORT": str(parts.port),
        "PGUSER": str(parts.username),
        "PGPASSWORD": str(parts.password),
        "PGDATABASE": parts.path.lstrip("/"),
        "ENABLE_TRANSACTIONS_EXTENSIONS": "true",
    }


def _migrate(python: str, variables: dict[str, str], scratch: str) -> None:
    command = [python, "-m", "pypgstac.pypgstac", "migrate"]
    done = subprocess.run(
        command, env=variables, cwd=scratch, capture_output=True, text=True, timeout=MIGRATION_SECONDS_MAX
    )
    if done.returncode != 0:
        raise ServiceUnavailable(f"pypgstac migrate failed: {done.stderr.strip()[-500:]}")


def _answers(server: subprocess.Popen[bytes], address: str, log: Path) -> bool:
    """True once it answers; False if it ended (most likely the port was taken meanwhile)."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if server.poll() is not None:
            return False
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/_mgmt/health", timeout=5):
            return True
        time.sleep(0.05)
    raise ServiceUnavailable(
        f"the STAC API did not answer in {START_SECONDS_MAX:.0f} s: {log.read_text()[-500:]}"
    )


@contextlib.contextmanager
def _api(python: str, variables: dict[str, str], scratch: str) -> Iterator[str]:
    log = Path(scratch, "log")
    application = ["stac_fastapi.pgstac.app:create_app", "--factory"]
    for _ in range(PORT_TRIES_MAX):
        port = free_port()
        command = [python, "-m", "uvicorn", *application, "--host", "127.0.0.1", "--port", str(port)]
        with log.open("ab") as out:
            server = subprocess.Popen(
                [*command, "--log-level", "warning"],
                env=variables,
                cwd=scratch,  # it would read a file `.env`
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        address = f"http://127.0.0.1:{port}"
        try:
            if _answers(server, address, log):
                yield address
                return
        finally:
            stop(server, signal.SIGTERM)
    raise ServiceUnavailable(f"the STAC API did not start: {log.read_text()[-500:]}")


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """A database and the API over it; yields the API's address."""
    with contextlib.ExitStack() as stack:
        python = str(Path(stack.enter_context(environment("pgstac")), "bin", "python"))
        dsn = stack.enter_context(postgres_server(_with_postgis, HASTY))
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="kfm-pgstac-"))
        variables = _variables(dsn)
        _migrate(python, variables, scratch)
        yield stack.enter_context(_api(python, variables, scratch))
