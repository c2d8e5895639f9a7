"""Every wrong configuration gets a sentence that names file, line and the right word."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.config.loader import load
from kfm.model.errors import ConfigError
from tests.unit.config.nonsense import GOOD, NONSENSE

EXPLAINED = "The configuration is not valid. "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_good_one_is_good(folder: Path) -> None:
    """What the nonsense was made from loads."""
    (folder / "kfm.yml").write_text(GOOD)
    assert load(environ={}).settings.sources[0].id == "daily"


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_told_in_one_sentence(folder: Path, case: str) -> None:
    """The message is exactly this one: file, line, and the nearest right word where there is one."""
    text, sentence = NONSENSE[case]
    (folder / "kfm.yml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(environ={})
    assert caught.value.message == EXPLAINED + sentence
    assert caught.value.exit_code == 2
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.req("CLI-2")
def test_every_problem_is_told_at_once(folder: Path) -> None:
    """A file with three problems is corrected in one go, in the order of its lines."""
    (folder / "kfm.yml").write_text(
        "lease: {seconds: 0}\nlimits: {versions_kept: 0}\ndatasets: [{id: '..'}]\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(environ={})
    problems = caught.value.facts["problems"]
    assert [problem.split(":")[1] for problem in problems] == ["1", "2", "3"]


JSON_NONSENSE = {
    "trailing comma": ('{\n"version": 1,\n}', "kfm.json:3: expected a name in double quotes, found `}`"),
    "cut": ('{"version": 1', "kfm.json:1: expected `,` between two settings, found the end of the file"),
    "single quotes": ("{'version': 1}", "kfm.json:1: expected a name in double quotes, found `'`"),
    "no value": ('{"version": }', "kfm.json:1: expected a value, found `}`"),
    "twice": (
        '{"version": 1,\n "version": 1}',
        "kfm.json:2: `version` is given twice; the first is on line 1",
    ),
    "not a number": ('{"lease": {"seconds": NaN}}', "kfm.json:1: expected a value, found `N`"),
    "more than one": ('{"version": 1} {}', "kfm.json:1: expected the end of the file, found `{`"),
    "half a pair": ('{"state": "\\ud800"}', "kfm.json:1: the text holds half of a surrogate pair"),
    "misspelt": (
        '{"version": 1,\n\t"sorces": []}',
        "kfm.json:2: `sorces` is not a setting; did you mean `sources`?",
    ),
    "wrong type": ('{\n"lease":\n{"seconds": "soon"}}', "kfm.json:3: `seconds` must be a number, not `soon`"),
}


@pytest.mark.req("UPD-1", "CLI-2")
@pytest.mark.parametrize("case", JSON_NONSENSE)
def test_nonsense_in_json_is_told_with_its_line(folder: Path, case: str) -> None:
    """JSON is read as strictly as YAML, with the same sentences."""
    text, sentence = JSON_NONSENSE[case]
    (folder / "kfm.json").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(environ={})
    assert caught.value.message == EXPLAINED + sentence


def test_bytes_that_are_no_text(folder: Path) -> None:
    """A file that is not UTF-8 is named with the line of its first wrong byte."""
    (folder / "kfm.yml").write_bytes(b"version: 1\nstate: \xff\n")
    with pytest.raises(ConfigError, match=r"kfm\.yml:2: the file is not UTF-8 text"):
        load(environ={})


def test_bomb_of_aliases_is_refused(folder: Path) -> None:
    """A file that unfolds without end is refused before it fills the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (folder / "kfm.yml").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match="is an alias repeated too often"):
        load(environ={})


def test_endless_nesting_is_refused(folder: Path) -> None:
    """Depth has a limit in both formats."""
    (folder / "kfm.json").write_text('{"a": ' * 5000)
    with pytest.raises(ConfigError, match="nested more than 64 levels deep"):
        load(environ={})
    (folder / "kfm.json").unlink()
    (folder / "kfm.yml").write_text("[" * 5000)
    with pytest.raises(ConfigError, match="not YAML"):
        load(environ={})
