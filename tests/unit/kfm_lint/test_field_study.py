"""What the documentation says of the linter's precision is what the verdicts say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from kfm_lint.rules import CODES

pytestmark = pytest.mark.req("RET-10")

ROOT = Path(__file__).resolve().parents[3]
READ_MIN = 200


@pytest.fixture(scope="module")
def study() -> ModuleType:
    place = importlib.util.spec_from_file_location("lint_field_study", ROOT / "tools/lint_field_study.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_data(study: ModuleType) -> None:
    """No figure on the page was edited by hand."""
    text = study.PAGE.read_text(encoding="utf-8")
    assert study.page_with(text, study.tables(study.verdicts())) == text


def test_enough_was_read(study: ModuleType) -> None:
    """At least two hundred findings, each once a round, each with a verdict and a reason."""
    rows = study.verdicts()
    assert len(rows) >= READ_MIN
    assert len({(each.round, each.package, each.place, each.rule) for each in rows}) == len(rows)
    for each in rows:
        assert each.rule in CODES
        assert each.verdict in ("true", "false")
        assert each.reason
        assert each.place.rpartition(":")[2].isdigit()


def test_a_false_verdict_counts(study: ModuleType) -> None:
    """The tables tell true from false."""
    row = study.Verdict("1", "pack", "1.0", "a.py:3", "KFM103", "true", "fixed")
    made = study.tables([row, row._replace(place="a.py:9", verdict="false")])
    assert "| KFM103 | 1 of 2 (50 %) |" in made
    assert "| 1 | pack | 1.0 | 2 | 1 | 50 % | KFM103 1/2 |" in made
