"""Expectations and the answers that are waited through: nonsense is refused, with line and way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.config.loader import load
from kfm.model.errors import ConfigError

pytestmark = pytest.mark.req("DAT-2")

FILE = """\
version: 1
datasets: [{{id: levels, rights: {{license: CC0-1.0, care: {{label: Public}}}}}}]
sources:
  - id: daily
    dataset: levels
    {kind}
    time_zone: Europe/Vienna
    {rule}
"""
FILES = "{kind: files, folder: incoming}"
HTTP = "https://example.org/levels.csv"


def problem(tmp_path: Path, rule: str, kind: str = "kind: files\n    folder: incoming") -> str | None:
    (tmp_path / "kfm.yml").write_text(FILE.format(kind=kind, rule=rule))
    try:
        load(str(tmp_path / "kfm.yml"), {})
    except ConfigError as error:
        return error.detail
    return None


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ('expect: {by: "8"}', "`by` can't be used"),
        ('expect: {by: "24:00"}', 'write it as `"08:00"`'),
        ("expect: {within: two days}", "write it as `P2D` or `PT6H`"),
        ("expect: {every: PT7H}", "`every` can't be used"),
        ("expect: {from: yesterday}", "write it as `2026-01-31`"),
        ("expect: {rows_min: 0}", "`rows_min` must be at least 1"),
        ("not_yet: [404]", "a source of kind `files` has no HTTP status"),
        ("not_yet: [empty, empty]", "names `empty` twice"),
        ("not_yet: [gone]", "`not_yet[0]` must be `empty` or `unchanged`, not `gone`"),
        ("not_yet: [emty]", "did you mean `empty`?"),
        ("not_yet: [1.5]", "must be a whole number"),
    ],
)
def test_refused(tmp_path: Path, rule: str, told: str) -> None:
    """Each is told on its line, with what to write instead."""
    found = problem(tmp_path, rule)
    assert found is not None
    assert "kfm.yml:9: " in found
    assert told in found


@pytest.mark.parametrize("status", [200, 429, 503])
def test_statuses(tmp_path: Path, status: int) -> None:
    """Only what says that something is not there is waited through."""
    kind = f"kind: http\n    url: {HTTP}"
    assert "is retried anyway" in (problem(tmp_path, f"not_yet: [{status}]", kind) or "")
    assert problem(tmp_path, "not_yet: [404, 410, empty, unchanged]", kind) is None


def test_unchanged_needs_one_place(tmp_path: Path) -> None:
    """Where the address names the window, `unchanged` could never be seen."""
    kind = 'kind: http\n    url: "https://example.org/{window.start:date}.csv"'
    assert "always another one" in (problem(tmp_path, "not_yet: [unchanged]", kind) or "")


def test_taken(tmp_path: Path) -> None:
    """The forms that the reference shows are taken."""
    rule = 'expect: {by: "08:00", within: P2D, every: P1D, rows_min: 10, from: 2026-01-31}'
    assert problem(tmp_path, rule) is None


def test_a_word_is_no_problem_beside_another(tmp_path: Path) -> None:
    """Of a file with one mistake only that one is told."""
    assert "not_yet" not in (problem(tmp_path, "not_yet: [empty]\n    retry: 5") or "")
