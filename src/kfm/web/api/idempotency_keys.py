"""Idempotency keys: a change that is requested twice under one key is made once, and answered alike.

The ledger keeps permanently, in append-only marks, which request took the key and its answer. A request that
changed nothing gives the key back: the next one takes the turn after it. If the process ended before the
answer was recorded, the outcome is unknown, and the key is not answered any more.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

import msgspec

from kfm.model.errors import UsageError

_KEY = re.compile(r"[!-~]{1,200}")
TURNS_MAX = 100
_AGAIN = "again"


class KeyTaken(NamedTuple):
    """This request has the key, and must record an answer or give it back."""

    name: str


class AnsweredBefore(NamedTuple):
    """The recorded answer of the first request."""

    document: Any
    headers: dict[str, str]
    status: int | None = None


class InHand(NamedTuple):
    """The first request has no answer yet, or its process ended before."""

    name: str


class Reused(NamedTuple):
    """The key was used for another request."""


def read_key(values: list[str]) -> str | None:
    """The key of a request, if it has one."""
    if not values:
        return None
    if len(values) > 1 or _KEY.fullmatch(values[0]) is None:
        raise UsageError(
            "Idempotency-Key is not one word.",
            remedy="Send one of 1 to 200 printed characters, without spaces.",
        )
    return values[0]


def take(
    store: Any, subject: str, key: str, request: str, nonce: str
) -> KeyTaken | AnsweredBefore | InHand | Reused:
    """Take the key for `request`, a digest; or what is on record of it."""
    digest = hashlib.sha256(msgspec.json.encode([subject, key])).hexdigest()
    for turn in range(TURNS_MAX):
        name = f"api-key/{digest}/{turn}"
        first, _, by = store.ensure_mark(name, f"{request} {nonce}").partition(" ")
        if first != request:
            return Reused()
        if by == nonce:
            return KeyTaken(name)
        answer = store.mark(f"{name}/answer")
        if answer is None:
            return InHand(name)
        if answer != _AGAIN:
            return AnsweredBefore(**msgspec.json.decode(answer))
    return InHand(name)


def answered(
    store: Any, name: str, document: Any, headers: dict[str, str], status: int | None = None
) -> AnsweredBefore | None:
    """Record the answer; the one that is on record already, if another request was first."""
    kept = {"document": document, "headers": headers} | ({} if status is None else {"status": status})
    text = msgspec.json.encode(kept).decode()
    first = store.ensure_mark(f"{name}/answer", text)
    return None if first in (text, _AGAIN) else AnsweredBefore(**msgspec.json.decode(first))


def given_back(store: Any, taken: KeyTaken) -> None:
    """Nothing was changed: the next request may take the key."""
    store.ensure_mark(f"{taken.name}/answer", _AGAIN)
