"""What is told to the outside of an incident: who it is about by a name that may be told, and no secrets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kfm.core import keys
from kfm.core.incidents import SEVERITY, About, Change, Incident, Kind, Severity
from kfm.core.masking import mask
from kfm.core.records import Record
from kfm.core.times import rfc3339
from kfm.core.wording import counted

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


class Herald:
    """Turns changes into what is told. Pure: a transaction that is tried again asks again."""

    def __init__(
        self,
        *,
        environment: str = "default",
        masked: Callable[[About, str], bool] = lambda _about, _name: True,
        mask: Callable[[str], str] = lambda name: mask(name, None),
        hide: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._environment = environment
        self._masked = masked
        self._mask = mask
        self._hide = hide

    def incident_id(self, about: About, name: str, cause: str, occurrence: int) -> str:
        """Of a masked dataset it is keyed, too: nobody can check a guess against it."""
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
        return hidden if hidden != mask(cause, None) else cause


def summary(incident: Incident, change: Change, held: int, name: str) -> str:
    """One line for a pager."""
    whom = f"{incident.about} {name}"
    if incident.about == "provider":
        if change == "resolved":
            return f"{whom} answers again"
        return f"{whom} is left alone after {counted(incident.affected, 'failure')} in a row"
    what = f"{incident.error_code} ({incident.error_class})"
    if change == "resolved":
        rest = f"; {counted(held, 'run')} still held" if held else ""
        return f"{whom} is brought up to date again after {what}{rest}"
    words = {"halt": "halted", "quarantine": "in quarantine"}
    state = words.get(incident.kind, "given up")
    return f"{whom}: {what}, {counted(incident.affected, 'run')} {state}"
