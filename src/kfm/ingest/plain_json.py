"""JSON that all readers understand alike, read at speed.

`kfm.ingest.bodies` is the reference: slower, and able to say what is wrong with a text.
This reader declines whatever it can't prove to be read the same way there. What it proves:
the text consists, blanks aside, of just those tokens that make up the document it was read
into. Then no name stood twice, for one of the two would be missing; and no number was cut,
for it would be written differently.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

DECLINED = object()
_BLANKS = b" \t\r\n"


def read(text: bytes, depth_max: int) -> Any:
    """The document, or DECLINED."""
    try:
        document = orjson.loads(text)
        written = orjson.dumps(document)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # the second: it is far too deep
        return DECLINED
    if text.startswith(b"{\n") and _one_member_a_line(text, document, len(written)):
        return document
    # Blanks are dropped within strings too: that moves no quote, so the tokens stay the same.
    if written != text and written.translate(None, _BLANKS) != text.translate(None, _BLANKS):
        return DECLINED
    # Brackets within strings count as well: where there are few at all, nothing can be deep.
    if written.count(b"{") + written.count(b"[") > depth_max and is_deeper(document, depth_max):
        return DECLINED
    return document


def _one_member_a_line(text: bytes, document: Any, written_bytes: int) -> bool:
    """Is it a flat object, as SNS writes its envelopes? Cheaper to see than to compare everything.

    Each line begins with another member of the document: with two blanks, its name, and the quote that
    opens its value. A line end can't stand within a string, so this accounts for five blanks a member.
    A member more, or any other token, would make the text longer than the written document and those blanks:
    strings are written as short as they can be. (Numbers are not, so there must be none.)
    """
    if type(document) is not dict or set(map(type, document.values())) != {str}:
        return False
    lines = text.split(b"\n")
    members = len(document)
    return (
        len(lines) == members + 2
        and len(text) == written_bytes + 5 * members + 1
        and all(map(bytes.startswith, lines[1:-1], _beginnings(tuple(document))))
    )


@lru_cache(maxsize=64)  # two or three forms of envelopes; more if somebody plays with us
def _beginnings(names: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(b'  %b : "' % orjson.dumps(name) for name in names)


def is_deeper(document: Any, depth_max: int) -> bool:
    """Level by level, so that nothing recurses."""
    level = [document]
    for _ in range(depth_max + 1):
        level = [value for value in level if type(value) is dict or type(value) is list]
        if not level:
            return False
        level = [inner for value in level for inner in (value.values() if type(value) is dict else value)]
    return True
