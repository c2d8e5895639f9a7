"""What hooks, and whoever catches the error in the end, are told about tries that failed."""

from __future__ import annotations

import contextlib
from typing import Literal

import msgspec

_MARK = "__kfm_handed_up__"
_ORIGIN = "__kfm_handed_up_by__"

Outcome = Literal["retry", "gave-up", "recovered"]


class FailedTry(msgspec.Struct, frozen=True, kw_only=True):
    """One failed try. A recovery repeats the last one that failed before the success."""

    call: str  # the function's name
    provider: str | None
    attempt: int  # of this try, from 1
    outcome: Outcome
    reason: str  # retry, or why there is no further try
    error_class: str
    retryable: bool  # by its class, whatever was decided
    delay_ms: int
    not_before_ms: int | None
    circuit_open: bool
    error: Exception
    sequence: int = 0  # the tries of one call share it, and no two calls of a process do


class HandedUp(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call gave up, for the tier above. `not_before_ms` is when trying again makes sense."""

    call: str
    provider: str | None
    attempts: int
    reason: str
    error_class: str
    retryable: bool
    not_before_ms: int | None


def handed_up(error: BaseException) -> HandedUp | None:
    """What the call tier says of an error that it let through; None if it never saw it."""
    found = getattr(error, _MARK, None)
    return found if isinstance(found, HandedUp) else None


def mark(error: BaseException, handed: HandedUp, origin: object) -> None:
    with contextlib.suppress(AttributeError, TypeError):  # an exception with slots keeps its secret
        setattr(error, _MARK, handed)
        setattr(error, _ORIGIN, origin)


def handed_up_inside(error: BaseException, origin: object) -> HandedUp | None:
    """As `handed_up`, if another declaration did it: an error object that is raised again and again
    may still bear the mark of an earlier call of the same one."""
    return None if getattr(error, _ORIGIN, None) == origin else handed_up(error)
