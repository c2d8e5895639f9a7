"""The commands that deploy/ starts, as it starts them: they come up, answer their health check, and stop."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services import die_with_parent

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
KFM = Path(sys.executable).with_name("kfm")
CONFIG = """\
version: 1
datasets:
  - id: rain
    rights: {license: CC0-1.0, care: {label: Public, level: public}}
sources:
  - id: gauges
    dataset: rain
    kind: files
    folder: /nonexistent
    webhook: {secrets: ["file:SECRETS/secret_gauges"]}
publish:
  - {kind: local, path: SRV/published}
"""
CRON = 'version: 1\nschedules: [{id: yearly, source: gauges, cron: "5 4 3 2 *", time_zone: UTC}]\n'
STOP_SECONDS_MAX = 30


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """The folders of an installation, below another root."""
    for name in ("etc", "run", "srv"):
        (tmp_path / name).mkdir()
    config = CONFIG.replace("SECRETS", str(tmp_path / "run")).replace("SRV", str(tmp_path / "srv"))
    (tmp_path / "etc" / "kfm.yml").write_text(config)
    (tmp_path / "etc" / "cron.yml").write_text(CRON)
    (tmp_path / "run" / "secret_gauges").write_text("k" * 40 + "\n")
    return tmp_path / "etc"


def _unit_command() -> list[str]:
    (line,) = re.findall(r"^ExecStart=\S+ (.*)$", (DEPLOY / "kfm.service").read_text(), re.MULTILINE)
    return str(line).split()


def _container(instruction: str) -> list[str]:
    """The words of its CMD; of its health check, whose CMD is indented."""
    (found,) = re.findall(rf"^{instruction} (\[.*\])$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    return [str(word) for word in json.loads(found)]


def _environment(etc: Path) -> dict[str, str]:
    """Nothing but what the unit says, seen from the other root; and a path, which systemd gives everybody."""
    root = etc.parent
    (line,) = re.findall(r"^Environment=(.*)$", (DEPLOY / "kfm.service").read_text(), re.MULTILINE)
    said = line.replace("/etc/kfm", str(etc)).replace("%S", f"{root}/state").replace("%C", f"{root}/cache")
    return {"PATH": "/usr/bin:/bin", **dict(pair.split("=", 1) for pair in said.split())}


@contextmanager
def _started(words: list[str], etc: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and the port that it has chosen."""
    process = subprocess.Popen(
        [str(KFM), *words, "--port", "0"],
        env=_environment(etc),
        cwd=etc.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:  # ends with the process, so a start that fails is seen at once
            said.append(line)
            if found := re.search(r"serving http://127\.0\.0\.1:(\d+)/", line):
                yield process, int(found[1])
                break
        else:
            pytest.fail("".join(said))
    finally:
        process.kill()
        process.communicate(timeout=STOP_SECONDS_MAX)


def _files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_the_unit_starts_and_stops(etc: Path) -> None:
    """Its very command, with its variables: JSON on stderr, files in the state alone, 0 after SIGTERM."""
    before = _files(etc)
    with _started(_unit_command(), etc) as (process, _):
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=STOP_SECONDS_MAX)
    assert (process.returncode, out) == (0, "")
    assert json.loads(err.splitlines()[-1])["message"] == "stopped"
    assert _files(etc) == before
    assert (etc.parent / "state" / "kfm" / "kfm.db").exists()
    assert {path.name for path in etc.parent.iterdir()} <= {"etc", "run", "srv", "state", "cache"}


def test_the_health_check_knows_alive_from_dead(etc: Path) -> None:
    """The image's own check says 0 while the service answers, and something else when it does not."""
    check = [sys.executable, *_container(" +CMD")[1:]]
    local = [word.replace("0.0.0.0", "127.0.0.1") for word in _container("CMD")]
    with _started(local, etc) as (process, port):
        asked = [word.replace("8377", str(port)) for word in check]
        assert subprocess.run(asked, timeout=30).returncode == 0
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=STOP_SECONDS_MAX)
        assert process.returncode == 0
    assert subprocess.run(asked, timeout=30, stderr=subprocess.DEVNULL).returncode != 0


def test_the_container_refuses_to_listen_without_tokens(etc: Path) -> None:
    """At every address of a container each caller needs a token: it ends with 2 and says what is missing."""
    ran = subprocess.run(
        [str(KFM), *_container("CMD")],
        env=_environment(etc),
        cwd=etc.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ran.returncode == 2
    assert "no person has a token" in ran.stderr
