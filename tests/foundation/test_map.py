"""The contributors' map says what the import contracts and the folders say."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = """
[[tool.importlinter.contracts]]
name = "Downwards"
type = "layers"
layers = ["kfm.cli", "kfm.runs | kfm.nodd", "(kfm.gone) : kfm.model"]

[[tool.importlinter.contracts]]
name = "The model is pure"
type = "forbidden"
source_modules = ["kfm.model"]
forbidden_modules = ["time"]
"""


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("map")


@pytest.fixture
def project(tmp_path: Path, drawn: ModuleType) -> Path:
    for name in ("cli", "runs", "nodd", "model", "sinks"):
        folder = tmp_path / "src" / "kfm" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f'"""What {name} is for. More.\n\nAnd more.\n"""\n')
    (tmp_path / "pyproject.toml").write_text(CONTRACTS)
    (tmp_path / "CONTRIBUTING.md").write_text(f"# Title\n\n{drawn.BEGIN}\nold\n{drawn.END}\n\n## Next\n")
    return tmp_path


def test_layers_and_docstrings_make_the_table(drawn: ModuleType, project: Path) -> None:
    """Layers come in their order with the first sentence of each folder; what no layer names comes after."""
    assert drawn.main(["--root", str(project)]) == 0
    page = (project / "CONTRIBUTING.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "where" not in line]
    assert rows == [
        "| 1 | `cli/` | What cli is for. |",
        "| 2 | `runs/` | What runs is for. |",
        "| 2 | `nodd/` | What nodd is for. |",
        "| 3 | `model/` | What model is for. |",
        "| – | `sinks/` | What sinks is for. |",
    ]
    assert "Rows with the same number do not import each other, except in 3." in page
    assert "Also checked: The model is pure." in page
    assert page.startswith("# Title\n")
    assert page.endswith("\n\n## Next\n")


def test_a_stale_map_fails_the_check(drawn: ModuleType, project: Path) -> None:
    """A contract or a docstring that changed fails the check, which writes nothing."""
    drawn.main(["--root", str(project)])
    assert drawn.main(["--root", str(project), "--check"]) == 0
    (project / "src/kfm/runs/__init__.py").write_text('"""Another purpose."""\n')
    before = (project / "CONTRIBUTING.md").read_text()
    assert drawn.main(["--root", str(project), "--check"]) == 1
    assert (project / "CONTRIBUTING.md").read_text() == before


def test_a_folder_says_what_it_is_for(
    drawn: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without a docstring is named, and fails the check."""
    (project / "src/kfm/sinks/__init__.py").write_text("")
    drawn.main(["--root", str(project)])
    assert drawn.main(["--root", str(project), "--check"]) == 1
    assert "map: kfm.sinks has no docstring" in capsys.readouterr().err


def test_the_map_of_this_project_is_up_to_date(drawn: ModuleType) -> None:
    """CONTRIBUTING.md shows the layers that are checked."""
    assert drawn.main(["--check"]) == 0
