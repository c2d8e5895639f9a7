"""Which of two versions of an object is newer. Pure."""

from __future__ import annotations

from typing import Literal

from kfm.core.wal import Content

Verdict = Literal["duplicate", "stale", "newer", "unclear"]


def newer(sequencer: str | None, other: str | None) -> bool | None:
    """Is the first sequencer of a key after the second? None if they can't be compared."""
    if not sequencer or not other:
        return None
    width = max(len(sequencer), len(other))
    first, second = (text.upper().ljust(width, "0") for text in (sequencer, other))
    return first > second


def compare(known: Content, said: Content, *, removed: bool = False) -> Verdict:
    """What an announcement means for an object that is known with this content.

    Equal bytes are a duplicate, whoever is newer. After a removal even equal bytes are news.
    """
    if not removed and known.etag == said.etag and (known.etag is not None or known.size == said.size):
        return "duplicate"
    order = newer(said.sequencer, known.sequencer)
    if order is None:
        return "unclear"
    if order:
        return "newer"
    return "duplicate" if known.sequencer == said.sequencer else "stale"
