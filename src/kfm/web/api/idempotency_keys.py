"""A change that is asked for twice under one Idempotency-Key is made once, and answered alike.

The ledger keeps, for good and in marks that are only ever added, who took the key for what, and how it was
answered. A turn that changed nothing gives the key back: the next one takes the turn after it. Where the
process ended in the middle, nobody can tell; then the key answers nothing any more.
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
    """The key is ours: its turn has to be ended."""

    name: str


class AnsweredBefore(NamedTuple):
    """It was answered before: with this."""

    document: Any
    headers: dict[str, str]


class InHand(NamedTuple):
    """Somebody has it in hand, or had when his process ended."""


class Reused(NamedTuple):
    """The key was used for something else."""


def read_key(said: list[str]) -> str | None:
    """The key of a request, if it has one."""
    if not said:
        return None
    if len(said) > 1 or _KEY.fullmatch(said[0]) is None:
        raise UsageError(
            "Idempotency-Key is not one word.",
            remedy="Send one of 1 to 200 printed characters, without spaces.",
        )
    return said[0]


def take(
    store: Any, subject: str, key: str, said: str, nonce: str
) -> KeyTaken | AnsweredBefore | InHand | Reused:
    """Take the key for what is asked for now, or tell what it was used for."""
    digest = hashlib.sha256(msgspec.json.encode([subject, key])).hexdigest()
    for turn in range(TURNS_MAX):
        name = f"api-key/{digest}/{turn}"
        asked, _, by = store.ensure_mark(name, f"{said} {nonce}").partition(" ")
        if asked != said:
            return Reused()
        if by == nonce:
            return KeyTaken(name)
        answer = store.mark(f"{name}/answer")
        if answer is None:
            return InHand()
        if answer != _AGAIN:
            return AnsweredBefore(**msgspec.json.decode(answer))
    return InHand()


def answered(store: Any, taken: KeyTaken, document: Any, headers: dict[str, str]) -> None:
    text = msgspec.json.encode({"document": document, "headers": headers}).decode()
    store.ensure_mark(f"{taken.name}/answer", text)


def given_back(store: Any, taken: KeyTaken) -> None:
    """Nothing was changed: whoever asks again may."""
    store.ensure_mark(f"{taken.name}/answer", _AGAIN)
