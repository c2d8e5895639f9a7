"""`make demo`: it does what it says, says so truthfully, and leaves nothing behind."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.demo.conftest import DEMO, ROOT, SECONDS_MAX, Played, clean_environment, run_demo

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "tutorials" / "demo.md"
SCENES = (
    "1  A first update, from a server that misbehaves",
    "2  The same again: unchanged",
    "3  Late data opens a revision",
    "4  A broken contract is stopped at the gate",
    "5  Look first, then apply exactly that",
    "6  Killed half-way: machines wait, a person goes on",
    "7  A pipeline: only what a change or a revert reaches runs again",
    "8  Governance: a refusal, and a kill switch",
    "9  Evidence: what a stranger can check",
    "10  One process with scheduler, webhooks, API and console",
    "11  Thousands of announcements, and a worker that is killed",
    "12  What could not be believed, was damaged, or never came",
    "13  A catalogue that any STAC client searches",
)


def _commands(text: str) -> list[str]:
    return re.findall(r"^ *\$ (.*)$", text, flags=re.MULTILINE)


@pytest.mark.req(
    "UPD-5", "UPD-7", "UPD-9", "TRG-4", "GOV-1", "RET-5", "GOV-2", "TRG-8", "RS-3", "RS-10", "WAL-2", "WAL-20"
)  # fmt: skip
def test_every_scene_is_played_and_verified(played: Played) -> None:
    """Thirteen scenes in order, each verified at least once, and exit code 0."""
    assert played.code == 0, played.text
    rest = played.text
    for title in SCENES:
        _, found, rest = rest.partition(f"\n{title}\n")
        assert found, title
        scene = re.split(r"\n(?=\d+  |Where)", rest)[0]
        assert "   ✓ " in scene, title
        assert "   Why it matters: " in scene, title
        assert "   $ kfm " in scene, title
    assert "✗" not in played.text


def test_plain_text_without_a_terminal(played: Played) -> None:
    """Where no terminal shows colours there are none."""
    assert "\x1b" not in played.text


def test_nothing_outside_its_folder_is_touched(played: Played) -> None:
    """The home folder and the folder for temporary files stay empty; an earlier demo is gone."""
    assert list(played.home.iterdir()) == []
    assert list(played.tmp.iterdir()) == []
    assert not (played.folder / "stale").exists()


def test_what_is_published_is_whole(played: Played) -> None:
    """Every file that a STAC item names is there with the checksum that it says."""
    checked = 0
    for dataset, version in (("ks-streamflow", 4), ("ks-gauges", 1), ("ks-counties", 1), ("ks-rainfall", 2)):
        current = (played.folder / "published" / dataset / "current").resolve()
        assert current.name.startswith(f"{version:08d}-")
        collection = json.loads((current / "collection.json").read_text())
        assert (collection["type"], collection["id"]) == ("Collection", dataset)
        for path in current.glob("items/**/*.json"):
            for asset in json.loads(path.read_text())["assets"].values():
                data = (path.parent / asset["href"]).read_bytes()
                assert asset["file:checksum"] == "1220" + hashlib.sha256(data).hexdigest()
                checked += 1
    assert checked == 6 + 3 + 1 + 2
    assert not (played.folder / "published" / "ks-heritage-sites").exists()


def test_paths_shown_are_there(played: Played) -> None:
    """What readers are told to look at exists, seen from where the demo was started."""
    section = played.text.partition("\nWhat readers see\n")[2].partition("\n\n")[0]
    shown = [line.split()[-1] for line in section.splitlines()]
    assert len(shown) == 4
    assert all((ROOT / path).exists() for path in shown)


@pytest.mark.req("CLI-1")
def test_what_to_try_next_works_as_typed(played: Played, tmp_path: Path) -> None:
    """Every command at the end can be pasted into the shell in which the demo was started."""
    commands = _commands(played.text.partition("\nWhat to try next\n")[2])
    assert len(commands) == 6
    environ = clean_environment(HOME=str(tmp_path), PYTHONUNBUFFERED="1")
    server = next(command for command in commands if command.endswith(" &"))
    with subprocess.Popen(
        server.removesuffix(" &").split(), cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert "http://127.0.0.1:" in process.stdout.readline()
            for command in commands:
                if command != server:
                    ended = subprocess.run(
                        ["sh", "-c", command],
                        cwd=ROOT,
                        env=environ,
                        capture_output=True,
                        text=True,
                        timeout=SECONDS_MAX,
                    )
                    assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert (tmp_path / "my-data" / "kfm.yml").exists()
    assert (played.folder / "published/ks-streamflow/current/data/2026/03/2026-03-16-summary.csv").exists()


def test_the_tutorial_shows_the_same_commands(played: Played) -> None:
    """The page that explains the demo shows exactly the commands that it runs, in their order."""
    scenes = played.text.partition("\nWhat readers see\n")[0]
    ran = [re.sub(r"^kill -9 \d+$", "kill -9 PID", command) for command in _commands(scenes)]
    ran = [re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]+", "RUN", command) for command in ran]
    ran = [re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", command) for command in ran]
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    shown = [command for block in blocks for command in _commands(block)]
    assert [command for command in shown if command != "make demo"] == ran
    headings = re.findall(r"^## (\d+)\. (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    assert [f"{number}  {title}" for number, title in headings] == list(SCENES)


def test_a_scene_that_fails_fails_the_demo(tmp_path: Path) -> None:
    """A claim that does not hold ends the demo with exit code 1 and is named."""
    lie = "lambda self: self.teller.verify('pigs fly', False)"
    script = f"import sys, demo; demo.Demo.first_update = {lie}; sys.exit(demo.main())"
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "work")],
        env=clean_environment(PYTHONPATH=str(DEMO), HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS_MAX,
    )
    assert ended.returncode == 1
    assert "✗ pigs fly" in ended.stdout
    assert "verified" not in ended.stdout


def test_a_command_that_ends_otherwise_fails_the_demo(tmp_path: Path) -> None:
    """An exit code that a scene does not expect is a failure, whatever was printed."""
    script = "import sys, demo; demo.NEXT = demo.FIRST = 'nonsense'; sys.exit(demo.main())"
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "work")],
        env=clean_environment(PYTHONPATH=str(DEMO), HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS_MAX,
    )
    assert ended.returncode == 1
    assert "✗ the command should have ended with exit code 0, not 2" in ended.stdout


def test_a_strangers_folder_is_not_emptied(tmp_path: Path) -> None:
    """A folder that no demo made keeps its files, and the demo ends with 1."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.txt").write_text("years of work")
    ended = run_demo(tmp_path / "work", clean_environment(HOME=str(tmp_path)))
    assert ended.returncode == 1
    assert (tmp_path / "work" / "thesis.txt").read_text() == "years of work"


def test_control_c_stops_everything(tmp_path: Path) -> None:
    """Interrupted, the demo ends with 130; the server is gone, the command that ran is gone."""
    with subprocess.Popen(
        [sys.executable, str(DEMO / "demo.py"), str(tmp_path / "work")],
        env=clean_environment(HOME=str(tmp_path)),
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        address = next(found[1] for line in lines if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
        next(line for line in lines if line.startswith("   $ kfm run"))
        next(lines)  # the command is at work
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130
    assert "Stopped" in rest
    assert "Traceback" not in rest
    with socket.socket() as probe:
        probe.settimeout(2)
        assert probe.connect_ex(("127.0.0.1", int(address))) != 0


def test_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo in the same folder says so and does not disturb the first."""
    environ = clean_environment(HOME=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, str(DEMO / "demo.py"), str(tmp_path / "work")],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as first:
        assert first.stdout is not None
        first.stdout.readline()
        ended = run_demo(tmp_path / "work", environ)
        first.send_signal(signal.SIGINT)
        first.stdout.read()
    assert ended.returncode == 1
    assert "another demo is running" in ended.stdout
    assert first.returncode == 130
