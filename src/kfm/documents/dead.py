"""Messages that could not be taken in, as documents: all but what they say."""

from __future__ import annotations

from typing import Any

from kfm.core.errors import UsageError
from kfm.core.wording import instant

SEARCHED_MAX = 10_000
PREFIX_CHARS_MIN = 6
HASH_PREFIX = "sha256:"


def dead_document(one: Any) -> dict[str, Any]:
    """All but the message itself."""
    return {
        "message": one.envelope_hash,
        "record": one.record_index,
        "queue": one.queue,
        "error_code": one.error_code,
        "error": one.error,
        "times": one.times,
        "first_at": instant(one.first_at_ms),
        "last_at": instant(one.last_at_ms),
        "state": one.state,
    }


def find_dead(reader: Any, wanted: str) -> list[Any]:
    """By its hash, or the beginning of it, if that is enough to tell."""
    start = wanted.lower().partition("/")[0]
    start = start if start.startswith(HASH_PREFIX) else f"{HASH_PREFIX}{start}"
    exact: list[Any] = reader.dead_message(start)
    if exact:
        return exact
    if len(start) < len(HASH_PREFIX) + PREFIX_CHARS_MIN:
        raise UsageError(
            f"`{wanted[:80]}` is too short: give at least {PREFIX_CHARS_MIN} characters of the hash.",
            remedy="`kfm nodd dead list` has them.",
        )
    every = reader.dead_messages("", "", SEARCHED_MAX)
    found = sorted({one.envelope_hash for one in every if one.envelope_hash.startswith(start)})
    if len(found) == 1:
        whole: list[Any] = reader.dead_message(found[0])
        return whole
    if found:
        raise UsageError(f"Several messages begin with `{wanted[:80]}`.", remedy="Give more of the hash.")
    raise UsageError(
        f"There is no dead message `{wanted[:80]}`.", remedy="`kfm nodd dead list --all` has all."
    )
