"""The language of keys."""

from __future__ import annotations

import pytest

from kfm.nodd.patterns import Pattern, Template


def test_options_and_repeated_fields() -> None:
    """An option is there or not; a field named again is the same text."""
    pattern = Pattern("[{folder:word}/]{year:yyyy}-{year}[.{ext:gz|Z}]")
    assert pattern.match("a/2024-2024.gz") == {"folder": "a", "year": "2024", "ext": "gz"}
    assert pattern.match("2024-2024") == {"folder": None, "year": "2024", "ext": None}
    assert pattern.match("2024-2025") is None
    assert pattern.match("2024-2024\n") is None
    assert pattern.match("٢٠٢٤-٢٠٢٤") is None  # digits, but not those of keys
    assert pattern.render({"year": "2024", "ext": "Z"}) == "2024-2024.Z"


def test_what_is_missing_is_told() -> None:
    """A key can't be written without its fields."""
    with pytest.raises(ValueError, match="not there"):
        Pattern("{year:yyyy}").render({})
    with pytest.raises(ValueError, match="not there"):
        Template("{a}-{b}").render({"a": "1"})


@pytest.mark.parametrize(
    "text", ["{a}", "{a:nothing}", "{a:d2}{a:d2}", "[x]", "{a:d2}]", "{A:d2}", "{a:d2", "a[{b:d2}"]
)
def test_patterns_that_are_none(text: str) -> None:
    """A mistake in a pattern shows when the module is loaded."""
    with pytest.raises(ValueError):  # noqa: PT011 - also what the compiler of expressions says
        Pattern(text)
