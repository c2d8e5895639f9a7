"""The generated pages say what the code says."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from kfm.model.errors import all_errors

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/reference.py, writing into a scratch folder."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    monkeypatch.setattr(module, "REFERENCE", tmp_path / "docs" / "reference")
    return module


def test_check_finds_a_stale_page(reference: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """A page that was edited by hand, or forgotten, fails the check and is not touched."""
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
    page = reference.REFERENCE / "errors.md"
    page.write_text(page.read_text() + "an edit\n")
    assert reference.main(["--check"]) == 1
    assert "out of date: errors.md; run `make docs`" in capsys.readouterr().err
    assert page.read_text().endswith("an edit\n")


def test_decisions_are_listed_by_number(reference: ModuleType) -> None:
    """A decision that is written is found in the index, with its title and status."""
    folder = reference.REFERENCE.parent / "decisions"
    (folder / "9998-keep-it-small.md").write_text("# 9998: Keep it small\n\nStatus: accepted\n")
    reference.main([])
    index = (folder / "index.md").read_text()
    assert index.rstrip().endswith("| [9998](9998-keep-it-small.md) | Keep it small | accepted |")
    assert "| [0001](0001-record-decisions.md) | Record decisions | accepted |" in index


def test_an_undocumented_setting_fails(reference: ModuleType) -> None:
    """A setting without a description is an error that names it."""
    notes = reference.REFERENCE / "settings.toml"
    notes.write_text(re.sub(r"^pages_max = .*\n", "", notes.read_text(), flags=re.MULTILINE))
    with pytest.raises(SystemExit, match=r"does not describe Pagination\.pages_max"):
        reference.main(["--check"])


def test_a_description_of_nothing_fails(reference: ModuleType) -> None:
    """A setting that is gone takes its description with it."""
    notes = reference.REFERENCE / "settings.toml"
    notes.write_text(notes.read_text() + 'gone = "Was here once."\n')
    with pytest.raises(SystemExit, match=r"describes what is gone: \w+\.gone"):
        reference.main(["--check"])


@pytest.mark.req("CLI-1")
def test_every_error_has_a_code_and_a_section() -> None:
    """Each error code is unique, well formed and has an anchor on the page that errors link to."""
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    codes = [cls.code for cls in all_errors()]
    assert len(codes) == len(set(codes))
    for cls in all_errors():
        assert re.fullmatch(r"KFM\d{3}", cls.code)
        path, _, anchor = cls().as_document()["docs"].partition("#")
        assert path == "docs/reference/errors.md"
        assert f'<a id="{anchor}"></a>' in page
