"""Incidents: one per cause, opened, worsened and resolved; rendered for notifications with masked names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec.structs import replace

from kfm.model import keys
from kfm.model.breaker import Breaker
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import CircuitOpen
from kfm.model.input_hash import sha256_text
from kfm.model.quantities import counted
from kfm.model.quarantine import QuarantineEntry, RetryState
from kfm.model.records import Record
from kfm.model.times import rfc3339

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
    "dead-letter": "warning",  # it may well succeed when it is replayed later
    "quarantine": "error",  # trying again can't help
    "halt": "critical",  # data that must not be shown came up to publication
}
RANK: dict[Kind, int] = {"circuit-open": 0, "dead-letter": 0, "quarantine": 1, "halt": 2}
# It also gets worse each time that so many are affected: so a thousand runs make four notifications.
STEPS = tuple(10**power for power in range(1, 16))


class IncidentCause(Record, frozen=True):
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


class Notification(Record, frozen=True):
    """One change, and how far one hook has been told of it."""

    change_id: str
    recorded_at_ms: int
    body: str
    hook: str | None = None  # None: not offered yet
    tries: int = 0
    delivered_at_ms: int | None = None


def cause_of(trouble: IncidentCause) -> str:
    """The cause of an incident: the same for every trouble of one dataset or provider with one error."""
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


def held_trouble(held: QuarantineEntry, state: RetryState | None, *, halted: bool = False) -> IncidentCause:
    """Something was given up."""
    last = held.error_classes[-1] if held.error_classes else "unknown"
    return IncidentCause(
        about="dataset",
        name=held.dataset_id,
        kind="halt" if halted else held.kind,
        error_class=state.error_class if state else last,
        error_code=held.error_code,
        message=held.error_message[:MESSAGE_CHARS_MAX],
        subject=held.subject,
        source_id=held.source_id,
    )


def circuit_trouble(seen: Breaker, kept: Breaker) -> IncidentCause | None:
    """A circuit has opened, or its probe has failed; None if neither."""
    if kept.state != "open" or seen == kept:
        return None
    return IncidentCause(
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
        IncidentCause(
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
    seen: Incident | None, trouble: IncidentCause, *, affected: int, incident_id: str, now_ms: int
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


TOPIC = "incident"
NAMESPACE = "90b64ece-1410-5460-84ba-ac0f489c4cf2"  # ours alone: ids of incidents are made in it
TYPES: dict[Change, Literal["incident.opened", "incident.worsened", "incident.resolved"]] = {
    "open": "incident.opened",
    "worse": "incident.worsened",
    "resolved": "incident.resolved",
}
WITHHELD = "Withheld: the dataset is not to be seen."


class IncidentData(Record, frozen=True):
    """An incident, as it stands after the change."""

    incident_id: str  # the same for all changes of one occurrence: for tools that group by a key
    cause: str  # the same for all occurrences
    environment: str
    change: Change
    state: Literal["open", "resolved"]
    severity: Severity
    kind: Kind
    about: About
    name: str
    masked: bool
    error_class: str
    error_code: str
    message: str
    summary: str
    occurrence: int
    affected: int
    held: int  # runs of this cause that wait in quarantine, also after its end
    opened_at: str
    last_at: str
    resolved_at: str | None
    command: str


class IncidentChange(Record, frozen=True):
    """What a hook gets: one change of one incident."""

    id: str  # the same each time that it is delivered
    type: Literal["incident.opened", "incident.worsened", "incident.resolved"]
    timestamp: str
    data: IncidentData


def _mask(name: str) -> str:
    from kfm.model.redaction import mask  # here: readers of the ledger start without its patterns

    return mask(name, None)


class IncidentRenderer:
    """Turns changes into what is told. Pure: a transaction that is tried again asks again."""

    def __init__(
        self,
        *,
        environment: str = "default",
        masked: Callable[[About, str], bool] = lambda _about, _name: True,
        mask: Callable[[str], str] = lambda name: _mask(name),
        hide: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._environment = environment
        self._masked = masked
        self._mask = mask
        self._hide = hide

    def incident_id(self, about: About, name: str, cause: str, occurrence: int) -> str:
        """Of a masked dataset it is keyed, too: a guess can't be checked against it."""
        return keys.uuid5(NAMESPACE, f"{self._public_cause(about, name, cause)}/{occurrence}")

    def change(self, incident: Incident, change: Change, held: int) -> IncidentChange:
        masked = self._masked(incident.about, incident.name)
        at_ms = incident.resolved_at_ms if change == "resolved" else incident.last_at_ms
        data = IncidentData(
            incident_id=incident.incident_id,
            cause=self._public_cause(incident.about, incident.name, incident.cause),
            environment=self._environment,
            change=change,
            state=incident.state,
            severity=SEVERITY[incident.kind],
            kind=incident.kind,
            about=incident.about,
            name=self._mask(incident.name) if masked else incident.name,
            masked=masked,
            error_class=incident.error_class,
            error_code=incident.error_code,
            message=WITHHELD if masked else self._hide(incident.message),
            summary=summary(incident, change, held, self._mask(incident.name) if masked else incident.name),
            occurrence=incident.occurrence,
            affected=incident.affected,
            held=held,
            opened_at=rfc3339(incident.opened_at_ms),
            last_at=rfc3339(incident.last_at_ms),
            resolved_at=None if incident.resolved_at_ms is None else rfc3339(incident.resolved_at_ms),
            command=f"kfm incident show {incident.incident_id}",
        )
        return IncidentChange(
            id=keys.uuid5(incident.incident_id, f"{incident.changes}/{change}"),
            type=TYPES[change],
            timestamp=rfc3339(at_ms or 0),
            data=data,
        )

    def _public_cause(self, about: About, name: str, cause: str) -> str:
        if not self._masked(about, name):
            return cause
        hidden = self._mask(cause)
        # Without a key all would be one. Then nothing leaves: an environment that has hooks has a key.
        return hidden if hidden != _mask(cause) else cause


def summary(incident: Incident, change: Change, held: int, name: str) -> str:
    """One line for a pager."""
    whom = f"{incident.about} {name}"
    if incident.about == "provider":
        if change == "resolved":
            return f"{whom} answers again"
        return f"{whom}: circuit open after {counted(incident.affected, 'failure')} in a row"
    what = f"{incident.error_code} ({incident.error_class})"
    if change == "resolved":
        rest = f"; {counted(held, 'run')} still quarantined" if held else ""
        return f"{whom} is brought up to date again after {what}{rest}"
    words = {"halt": "halted", "quarantine": "quarantined"}
    state = words.get(incident.kind, "dead-lettered")
    return f"{whom}: {what}, {counted(incident.affected, 'run')} {state}"
