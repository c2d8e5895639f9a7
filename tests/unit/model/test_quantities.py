"""How facts are written for people."""

from __future__ import annotations

import json

import pytest

from kfm.cli.output import encode
from kfm.model.quantities import stopped, visible_json


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_json_shows_what_it_holds(output: str) -> None:
    """What turns, hides or joins text stands in JSON as an escape, and means the same to a program."""
    hidden = "".join(map(chr, (0x7F, 0x9B, 0xAD, 0x200B, 0x200D, 0x202E, 0x2066, 0x2028, 0xFEFF, 0xE0041)))
    text = encode({f"a{hidden}": [f"b{hidden}", "é🌽\u0001"]}, output)
    assert not set(hidden) & set(text)
    assert "\\u202e" in text
    assert "\\udb40\\udc41" in text
    assert "é🌽" in text
    assert json.loads(text) == {f"a{hidden}": [f"b{hidden}", "é🌽\u0001"]}


def test_plain_json_is_left_as_it_is() -> None:
    """The common case costs a look."""
    text = '{"a": "b"}'
    assert visible_json(text) is text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("soil has no node maps", "soil has no node maps."),
        ("soil has no node maps; did you mean `map`?", "soil has no node maps; did you mean `map`?"),
        ("it is over. ", "it is over."),
        ("go on with `kfm run`", "go on with `kfm run`"),
    ],
)
def test_a_sentence_ends_once(text: str, sentence: str) -> None:
    """A question is no statement: its mark is its end."""
    assert stopped(text) == sentence
