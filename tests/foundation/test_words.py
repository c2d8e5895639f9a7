"""Refused words are found wherever people read, and only there."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def check_words(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("check_words")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the real glossary and nothing else."""
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "reference" / "glossary.md", tmp_path / "docs" / "reference")
    (tmp_path / "src" / "kfm").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("def make_wish(): ...\n", "wish"),
        ("class LineageWitness: ...\n", "witness"),
        ('"""A herald of incidents."""\n', "herald"),
        ("# the letters that wait\n", "letters"),
        ("LETTERS_MAX = 3\n", "letters"),
        ('raise Busy("It is left\\nalone.")\n'.replace("\\n", "\n    # "), "left alone"),
        ("say('A switch stands in the way.')\n", "stands in the way"),
        ("# Whoever asks is known.\n", "whoever"),
    ],
)
def test_a_refused_word_is_found(check_words: ModuleType, project: Path, text: str, word: str) -> None:
    """A refused word is found in names, docstrings, comments and messages, with its line and replacement."""
    (project / "src" / "kfm" / "breach.py").write_text("import this\n" + text)
    (found,) = check_words.check(project)
    assert (found.path, found.line, found.word) == ("src/kfm/breach.py", 2, word)
    assert found.instead in (project / "docs" / "reference" / "glossary.md").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "a dead letter, `dead_letters`, deadLetterTargetArn",
        "three letters and digits; a lower-case letter",
        "string.ascii_letters",
        "hatchling builds it",
        "the kind 'letter'",
        "swish, scribed as one word, antibody",
    ],
)
def test_a_right_word_passes(check_words: ModuleType, project: Path, text: str) -> None:
    """A word that only looks like a refused one, or is the right one in its context, passes."""
    (project / "src" / "kfm" / "fine.py").write_text(f"# {text}\n")
    assert check_words.check(project) == []


def test_history_is_not_rewritten(check_words: ModuleType, project: Path) -> None:
    """Applied migrations and decisions keep their words."""
    for place in ("src/kfm/contracts/sql/migrations/0019.sql", "docs/decisions/0008-outbox.md"):
        (project / place).parent.mkdir(parents=True)
        (project / place).write_text("-- A letter waits.\n")
    assert check_words.check(project) == []


def test_every_allowed_file_is_there(check_words: ModuleType) -> None:
    """What is allowed by its path exists: the list has no entry for a file that is gone."""
    assert [path for path in check_words.FILES_ALLOWED if not (ROOT / path).exists()] == []


def test_the_command_prints_places_and_fails(
    check_words: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make words` prints file, line, word and replacement, and exits 1; a clean tree exits 0."""
    assert check_words.main(["--root", str(project)]) == 0
    (project / "src" / "kfm" / "breach.py").write_text("veil = 1\n")
    assert check_words.main(["--root", str(project)]) == 1
    assert "src/kfm/breach.py:1: veil → mask\n" in capsys.readouterr().out
