"""What is shipped, and what it costs to install and to start."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
BASE_BYTES_MAX = 60_000_000


def _pinned(name: str) -> list[Requirement]:
    """The requirements of a compiled file that apply on this machine."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    lines = [line.rstrip("\\ ") for line in text.splitlines() if re.match(r"[a-zA-Z0-9]", line)]
    parsed = [Requirement(line) for line in lines]
    return [requirement for requirement in parsed if not requirement.marker or requirement.marker.evaluate()]


def _installed_bytes(name: str) -> int:
    """Files of a distribution, and the bytecode that is compiled from them."""
    files = {Path(str(entry.locate())) for entry in importlib.metadata.distribution(name).files or ()}
    for source in [path for path in files if path.suffix == ".py"]:
        files.update(
            (source.parent / "__pycache__").glob(f"{source.stem}.{sys.implementation.cache_tag}.pyc")
        )
    return sum(path.stat().st_size for path in files if path.is_file())


def test_base_installation_is_below_60_mb() -> None:
    """What every user installs stays below 60 MB, compiled bytecode included."""
    sizes = {requirement.name: _installed_bytes(requirement.name) for requirement in _pinned("base")}
    assert sum(sizes.values()) < BASE_BYTES_MAX, sorted(sizes.items(), key=lambda item: -item[1])[:8]
    assert len(sizes) > 10


def test_everything_is_pinned_with_hashes_and_without_addresses() -> None:
    """A compiled file names versions and hashes, never a registry or a folder of one machine."""
    files = sorted((ROOT / "requirements").glob("*.txt"))
    frameworks = {"airflow", "dbos", "langgraph", "node", "pgstac"}  # each in an environment of its own
    ours = {"uv", "build", "base", "progress", "demo", "service", "test"}
    assert {path.stem for path in files} == ours | frameworks
    for path in files:
        text = path.read_text()
        assert not re.search(r"://|^--(index|extra|find)|/(home|root|tmp|opt)/|^#", text, re.MULTILINE), path
        entries = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
        assert all("==" in entry and "--hash=sha256:" in entry for entry in entries), path


def test_pins_agree_with_each_other() -> None:
    """The tests run with the versions that users get."""
    wanted = {
        requirement.name: str(requirement.specifier)
        for name in ("build", "progress", "service")
        for requirement in _pinned(name)
    }
    tested = {requirement.name: str(requirement.specifier) for requirement in _pinned("test")}
    assert {name: tested.get(name) for name in wanted} == wanted


def test_every_direct_dependency_is_pinned() -> None:
    """A dependency added to pyproject.toml is in the compiled file, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {Requirement(text).name.replace(".", "-") for text in project["dependencies"]}
    assert direct <= {requirement.name for requirement in _pinned("base")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (path,) = out.glob("kfm-*.whl")
    return zipfile.ZipFile(path)


def test_wheel_ships_types_contracts_and_facade(wheel: zipfile.ZipFile) -> None:
    """The wheel has everything that the source tree has, and no leftovers."""
    names = set(wheel.namelist())
    for package in ("kfm", "updater"):
        folder = ROOT / "src" / package
        files = {path.relative_to(ROOT / "src").as_posix() for path in folder.rglob("*") if path.is_file()}
        expected = {name for name in files if "__pycache__" not in name}
        assert expected <= names
    assert "kfm/py.typed" in names
    assert any(name.startswith("kfm/contracts/") for name in names)
    assert not any(name.endswith((".pyc", ".db")) or "/.kfm/" in name for name in names)


def test_wheel_metadata_names_command_and_licence(wheel: zipfile.ZipFile) -> None:
    """The command and the licence are in the metadata."""
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert "kfm = kfm.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert "License-Expression: MIT" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert "Requires-Dist: psycopg[binary]" in metadata


@pytest.mark.req("CLI-1")
def test_module_and_command_are_the_same() -> None:
    """`python -m kfm` answers as `kfm` does."""
    by_module = subprocess.run(
        [sys.executable, "-m", "kfm", "--version"], capture_output=True, text=True, timeout=30
    )
    by_command = subprocess.run(
        [str(Path(sys.executable).with_name("kfm")), "--version"], capture_output=True, text=True, timeout=30
    )
    assert by_module.stdout == by_command.stdout == f"kfm {importlib.metadata.version('kfm')}\n"


def test_asking_for_the_version_imports_nothing_heavy() -> None:
    """Start-up stays quick because what is heavy is imported where it is used."""
    heavy = "apsw cedarpy click httpx jsonschema_rs msgspec orjson rich ruamel psycopg whenever asyncio"
    code = f"import sys, kfm.cli; print(sorted(set({heavy.split()!r}) & sys.modules.keys()))"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "COVERAGE"))}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, env=clean)
    assert ran.stdout.strip() == "[]", ran.stderr
