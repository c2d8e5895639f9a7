"""JSON that all readers understand alike, read at speed.

`kfm.ingest.bodies` is the reference: slower, and able to say what is wrong with a text.
This reader declines whatever it can't prove to be read the same way there.
"""

from __future__ import annotations

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
    if not same_but_blanks(text, written):
        return DECLINED
    # Brackets within strings count as well: where there are few at all, nothing can be deep.
    if written.count(b"{") + written.count(b"[") > depth_max and is_deeper(document, depth_max):
        return DECLINED
    return document


def same_but_blanks(text: bytes, written: bytes) -> bool:
    """Does a JSON text consist of just those tokens that its reader writes of it again?

    Then no name stood twice, or one of the two would be missing; and no number was cut, or it would be
    another. Blanks within strings are left out as well: that moves no quote, so the tokens stay the same.
    """
    return text == written or text.translate(None, _BLANKS) == written.translate(None, _BLANKS)


def is_deeper(document: Any, depth_max: int) -> bool:
    """Level by level, so that nothing recurses."""
    level = [document]
    for _ in range(depth_max + 1):
        level = [value for value in level if type(value) is dict or type(value) is list]
        if not level:
            return False
        level = [inner for value in level for inner in (value.values() if type(value) is dict else value)]
    return True
