"""The smaller examples: what their pages tell people to type works, and does what they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.demo.conftest import ROOT, SECONDS_MAX, clean_environment

EXAMPLES = ROOT / "examples"
SCREEN_LINES = 50


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the examples beside an environment, as in a clone."""
    shutil.copytree(
        EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns(".kfm", ".work*", "published")
    )
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def follow(page: Path, checkout: Path) -> list[int]:
    """Type every command of a page into one shell; returns the exit codes of those that are kfm's."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL)
    commands = [line for block in blocks for line in re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE)]
    script = "\n".join(
        f"{command}\necho code $? >&3" if "kfm" in command else command for command in commands
    )
    (checkout / "codes").touch()
    subprocess.run(
        ["sh", "-c", f"exec 3>>{checkout}/codes\n{script}"],
        cwd=checkout,
        env=clean_environment(HOME=str(checkout)),
        capture_output=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return [int(line.split()[1]) for line in (checkout / "codes").read_text().splitlines()]


def test_python_pipeline(checkout: Path) -> None:
    """A pipeline of one's own turns feet into metres and CSV into GeoJSON."""
    assert follow(checkout / "examples/python-pipeline/README.md", checkout) == [0, 0]
    published = checkout / "examples/python-pipeline/published/ks-wells/current"
    wells = json.loads((published / "data/wells.geojson").read_text())["features"]
    assert [well["properties"]["depth_m"] for well in wells] == [39.14, 52.4, 62.03]
    (item,) = (json.loads(path.read_text()) for path in published.glob("items/**/*.json"))
    assert item["bbox"] == [-101.31, 37.89, -100.87, 39.35]


def test_python_pipeline_fits_on_a_screen() -> None:
    """What a newcomer has to read is short: configuration and function together."""
    parts = [EXAMPLES / "python-pipeline" / name for name in ("kfm.yml", "pipeline.py")]
    assert sum(len(part.read_text().splitlines()) for part in parts) <= SCREEN_LINES


@pytest.mark.req("UPD-16")
def test_sync(checkout: Path) -> None:
    """Two sources are promoted together, or neither: a slip in one keeps back the other."""
    example = checkout / "examples/sync"
    assert follow(example / "README.md", checkout) == [0, 3, 0]
    versions = sorted((example / "published/ks-lakes/.versions").iterdir())
    files = [sorted(path.relative_to(v / "data").as_posix() for path in v.rglob("*.csv")) for v in versions]
    first = ["levels/2026-05-01.csv", "quality/2026-05-01.csv"]
    assert files == [first, sorted([*first, "levels/2026-05-02.csv", "quality/2026-05-02.csv"])]


@pytest.mark.parametrize("folder", ["demo", "python-pipeline", "sync"])
def test_configurations_are_right(folder: str, checkout: Path) -> None:
    """Every configuration that people may copy passes its own check, and its policies their fixtures."""
    here = checkout / "examples" / folder
    kfm = str(checkout / ".venv/bin/kfm")
    if folder == "demo":  # which makes its secret itself
        (here / "webhook.secret").write_text("a secret that is long enough")
    commands = [["config", "check"], ["doctor", "--offline"]]
    if (here / "policies").exists():
        commands.append(["gate", "test", "policies/fixtures.yaml"])
    for command in commands:
        ended = subprocess.run(
            [kfm, *command],
            cwd=here,
            env=clean_environment(HOME=str(checkout)),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert ended.returncode == 0, (command, ended.stdout, ended.stderr)


def test_pages_lead_somewhere() -> None:
    """Every relative link of the examples' pages names a file that is there."""
    for page in EXAMPLES.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#\s:]+)", page.read_text()):
            assert (page.parent / target).exists(), (page, target)
