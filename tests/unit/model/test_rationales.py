"""Reasons of people: words of their own."""

from __future__ import annotations

import pytest

from kfm.model.errors import RationaleRequired
from kfm.model.rationales import is_placeholder, require_rationale


@pytest.mark.parametrize("text", ["TEXT", " text ", "<WHY>", "“reason”", "…", "...", "--", "[your reason]"])
def test_what_help_prints_in_place_of_a_reason_is_none(text: str) -> None:
    """A command pasted as it was printed changes nothing: the words of a person are missing."""
    assert is_placeholder(text)
    with pytest.raises(RationaleRequired, match="stands for a reason"):
        require_rationale(text, "A switch needs one.")


@pytest.mark.parametrize(
    "text", ["provider is back", "WHY-204", "text of a contract was wrong", "ok", "再発"]
)
def test_words_of_a_person_are_a_reason(text: str) -> None:
    """Nothing is asked of the words themselves."""
    assert require_rationale(text, "") == text


@pytest.mark.parametrize("text", [None, "", " \t"])
def test_no_reason_is_told_what_needs_one(text: str | None) -> None:
    """The error says what the reason is needed for."""
    with pytest.raises(RationaleRequired, match="A switch needs one"):
        require_rationale(text, "A switch needs one.")
