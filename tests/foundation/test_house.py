"""The mirror shows what is there: each figure is seen to move."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TREE = {
    "src/kfm/runs/plan.py": "class Plan: ...\n",
    "src/kfm/nodd/plan.py": "class Plan: ...\n",  # the name of a class and of a file, a second time
    "src/kfm/model/requests.py": "class Request: ...\n",
    "src/kfm/db/requests.py": "class RequestRows: ...\n",  # one aggregate in two layers: fine
    "src/kfm/service/sweeping.py": "def sweep():\n    from kfm.runs import plan\n    return plan\n",
    "src/kfm/ports.py": (
        "from typing import Protocol\n"
        "class Lonely(Protocol):\n    def read(self, size: int) -> bytes: ...\n"
        "class Twinned(Protocol):\n    def write(self, data: bytes) -> None: ...\n"
    ),
    "src/kfm/objects/files.py": (
        "class File:\n    def read(self, size: int) -> bytes: ...\n"
        "    def write(self, data: bytes) -> None: ...\n"
    ),
    "tests/twins.py": "class Broken:\n    def write(self, data: bytes) -> None: ...\nBroken()._inside\n",
}


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("house")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "reference" / "glossary.md", tmp_path / "docs" / "reference")
    return tmp_path


def test_each_breach_is_counted_and_named(house: ModuleType, project: Path) -> None:
    """Doubled names, gerunds, lonely protocols, lazy imports and private accesses are counted and listed."""
    found = {figure.what: figure for figure in house.figures(project)}
    assert found["files in src/kfm"].value == 7
    assert found["public class names defined twice"].listed == ("Plan: nodd/plan.py, runs/plan.py",)
    assert found["file names shared between features"].listed == ("plan.py: nodd/plan.py, runs/plan.py",)
    assert found["modules named by a gerund"].listed == ("service/sweeping.py",)
    assert found["protocols with < 2 implementations, no twin"].listed == (
        "ports.py:Lonely (1 members): objects/files.py:File",
    )
    assert found["imports of kfm inside functions"].value == 1
    assert found["private attributes used by tests"].value == 1
    assert found["refused words"].value == 0


def test_a_crowded_folder_is_named(house: ModuleType, project: Path) -> None:
    """A folder with more modules than one looks through is listed; a folder of commands is not."""
    for folder in ("runs", "cli"):
        (project / "src/kfm" / folder).mkdir(exist_ok=True)
        for number in range(40):
            (project / "src/kfm" / folder / f"{folder}_{number}.py").touch()
    found = {figure.what: figure for figure in house.figures(project)}
    assert found["folders with more than 35 modules"].listed == ("runs: 41 modules",)


def test_it_never_fails(house: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report is a mirror: it exits 0 whatever it shows, each figure beside its target."""
    assert house.main(["--root", str(project), "--untraced"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["files", "in", "src/kfm", "7", "target", "≤", "450"] for line in lines)


@pytest.mark.slow
def test_functions_are_traced_and_imports_are_not(house: ModuleType) -> None:
    """A command touches the files whose functions it enters, not all that it imports."""
    import touched

    measured = {one.scenario: one.files for one in touched.measure(ROOT)}
    first, unchanged = measured["first `kfm run` of the sample"], measured["`kfm run`, unchanged"]
    assert len(unchanged) < len(first)
    assert all((ROOT / "src" / "kfm" / path).is_file() for path in first)
    assert not any(path.startswith("contracts/") for path in first)
