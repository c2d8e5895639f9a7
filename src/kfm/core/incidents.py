"""Incidents: one for each cause, however many runs it stops, and the three changes that are told of it.

A cause is what went wrong with whom: a dataset or a provider, the class of the error and its code. Nothing
of the single run is part of it. Pure; the store keeps the rows and posts a letter for each change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from kfm.core.breaker import Breaker
from kfm.core.canonical import canonical_bytes
from kfm.core.errors import CircuitOpen
from kfm.core.hashing import sha256_text
from kfm.core.holding import Held, RetryState
from kfm.core.records import Record

About = Literal["dataset", "provider"]
Kind = Literal["circuit-open", "dead-letter", "quarantine", "halt"]
Change = Literal["open", "worse", "resolved"]
Severity = Literal["warning", "error", "critical"]

CAUSE_TAG = "incident/1"
MESSAGE_CHARS_MAX = 1_000
CIRCUIT_CLASS, CIRCUIT_CODE = "circuit-open", CircuitOpen.code

# How bad each kind is. An incident gets worse when its kind rises, and never better but by its end.
SEVERITY: dict[Kind, Severity] = {
    "circuit-open": "warning",  # it ends by itself, and nothing is lost meanwhile
    "dead-letter": "warning",  # it may well succeed when somebody tries it later
    "quarantine": "error",  # trying again can't help
    "halt": "critical",  # data that must not be shown came up to publication
}
RANK: dict[Kind, int] = {"circuit-open": 0, "dead-letter": 0, "quarantine": 1, "halt": 2}
# It also gets worse each time that so many are affected: so a thousand runs are told of four times.
STEPS = tuple(10**power for power in range(1, 16))


class Trouble(Record, frozen=True):
    """What has just happened, as far as an incident is made of it."""

    about: About
    name: str  # of the dataset or the provider
    kind: Kind
    error_class: str
    error_code: str
    message: str
    subject: str  # whom it struck: the run's id, the provider's name
    source_id: str = ""
    count: int | None = None  # how often already, where no subjects are counted


class Incident(Record, frozen=True):
    """One cause, since it was first met."""

    cause: str
    incident_id: str  # of this occurrence of it; the same for all its changes
    about: About
    name: str
    kind: Kind  # the worst that it was
    error_class: str
    error_code: str
    message: str  # the latest
    subject: str  # the latest
    state: Literal["open", "resolved"]
    occurrence: int  # how often the cause has come up
    changes: int  # of this occurrence, each told once
    affected: int  # runs; of a provider: failures in a row
    opened_at_ms: int
    last_at_ms: int
    resolved_at_ms: int | None = None


class Told(Record, frozen=True):
    """One change, and how far one hook has been told of it."""

    change_id: str
    recorded_at_ms: int
    body: str
    hook: str | None = None  # None: offered to nobody yet
    tries: int = 0
    delivered_at_ms: int | None = None


def cause_of(trouble: Trouble) -> str:
    """What makes two troubles the same: whom, and what."""
    return _cause(trouble.about, trouble.name, trouble.error_class, trouble.error_code)


def _cause(about: About, name: str, error_class: str, error_code: str) -> str:
    document = {
        "kfm": CAUSE_TAG,
        "about": about,
        "name": name,
        "error_class": error_class,
        "error_code": error_code,
    }
    return sha256_text(canonical_bytes(document))


# --- what there is trouble with ----------------------------------------------------------


def held_cause(dataset_id: str, error_classes: Sequence[str], error_code: str) -> str:
    """Of something that was given up with this error."""
    return _cause("dataset", dataset_id, error_classes[-1] if error_classes else "unknown", error_code)


def held_trouble(held: Held, state: RetryState | None, *, halted: bool = False) -> Trouble:
    """Something was given up."""
    last = held.error_classes[-1] if held.error_classes else "unknown"
    return Trouble(
        about="dataset",
        name=held.dataset_id,
        kind="halt" if halted else held.kind,
        error_class=state.error_class if state else last,
        error_code=held.error_code,
        message=held.error_message[:MESSAGE_CHARS_MAX],
        subject=held.subject,
        source_id=held.source_id,
    )


def circuit_trouble(seen: Breaker, kept: Breaker) -> Trouble | None:
    """A circuit has opened, or its probe has failed; None if neither."""
    if kept.state != "open" or seen == kept:
        return None
    return Trouble(
        about="provider",
        name=kept.provider,
        kind="circuit-open",
        error_class=CIRCUIT_CLASS,
        error_code=CIRCUIT_CODE,
        message=f"{kept.failures} calls in a row have failed.",
        subject=kept.provider,
        count=kept.failures,
    )


def circuit_closed(seen: Breaker, kept: Breaker) -> bool:
    return seen.state != "closed" and kept.state == "closed"


def provider_cause(provider: str) -> str:
    return cause_of(
        Trouble(
            about="provider",
            name=provider,
            kind="circuit-open",
            error_class=CIRCUIT_CLASS,
            error_code=CIRCUIT_CODE,
            message="",
            subject=provider,
        )
    )


# --- what becomes of the incident --------------------------------------------------------


def struck(
    seen: Incident | None, trouble: Trouble, *, affected: int, incident_id: str, now_ms: int
) -> tuple[Incident, Change | None]:
    """The incident after this trouble, and what is to be told. `incident_id` is for a new occurrence."""
    if seen is None or seen.state == "resolved":
        opened = Incident(
            cause=cause_of(trouble),
            incident_id=incident_id,
            about=trouble.about,
            name=trouble.name,
            kind=trouble.kind,
            error_class=trouble.error_class,
            error_code=trouble.error_code,
            message=trouble.message,
            subject=trouble.subject,
            state="open",
            occurrence=(seen.occurrence if seen else 0) + 1,
            changes=1,
            affected=affected,
            opened_at_ms=now_ms,
            last_at_ms=now_ms,
        )
        return opened, "open"
    assert seen.cause == cause_of(trouble), "an incident is met by its own cause only"
    affected = max(affected, seen.affected)
    kind = max(seen.kind, trouble.kind, key=lambda one: RANK[one])
    worse = RANK[kind] > RANK[seen.kind] or step_of(affected) > step_of(seen.affected)
    met = replace(
        seen,
        kind=kind,
        message=trouble.message,
        subject=trouble.subject,
        changes=seen.changes + worse,
        affected=affected,
        last_at_ms=max(now_ms, seen.last_at_ms),
    )
    return met, "worse" if worse else None


def ended(seen: Incident, now_ms: int) -> tuple[Incident, Change | None]:
    """The cause is gone."""
    if seen.state == "resolved":
        return seen, None
    return replace(seen, state="resolved", changes=seen.changes + 1, resolved_at_ms=now_ms), "resolved"


def step_of(affected: int) -> int:
    """How many of the steps it has passed."""
    return sum(affected >= step for step in STEPS)
