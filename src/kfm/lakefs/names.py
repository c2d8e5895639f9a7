"""Names of branches as lakeFS takes them: letters, digits, `_` and `-` alone."""

from __future__ import annotations

import re

TEMPORARY = "kfm-tmp-"  # branches on which a change is prepared; nobody else is shown them

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]|-(?=-[0-9a-f]{2})")
_WRITTEN = re.compile(r"--([0-9a-f]{2})")


def to_server(name: str) -> str:
    """`run/7` → `run--2f7`. What lakeFS takes as it is stays as it is."""
    return _FOREIGN.sub(lambda found: f"--{ord(found[0]):02x}", name)


def from_server(name: str) -> str:
    """The other way round; a name that we would not have written so is kept as it is."""
    read = _WRITTEN.sub(lambda found: chr(int(found[1], 16)), name)
    return read if to_server(read) == name else name
