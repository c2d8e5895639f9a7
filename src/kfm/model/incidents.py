"""Incidents: one per cause, opened, worsened and resolved; rendered for notifications with masked names."""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from kfm.model import keys
from kfm.model.breaker import Breaker
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import CircuitOpen, DataOverdue, NotApproved, TakenDown
from kfm.model.feeds import is_product
from kfm.model.input_hash import sha256_text
from kfm.model.quantities import NO_WINDOW_TEXT, UNIT_ID_CHARS, counted
from kfm.model.quarantine import Approval, QuarantineEntry, RetryState
from kfm.model.records import Record
from kfm.model.times import is_all_time, rfc3339

About = Literal["dataset", "provider"]
Kind = Literal[
    "circuit-open", "dead-letter", "overdue", "approval-waiting", "withdrawn", "quarantine", "halt"
]
# reminded: a silence is over, and it is still open; escalated: it was open for too long; test: of a hook
Change = Literal["open", "worse", "resolved", "reminded", "escalated", "test"]
Severity = Literal["warning", "error", "critical"]

CAUSE_TAG = "incident/1"
OVERDUE = "overdue"  # the class of what has not come; errors have classes of their own
MESSAGE_CHARS_MAX = 1_000
CIRCUIT_CLASS, CIRCUIT_CODE = "circuit-open", CircuitOpen.code

# How bad each kind is. An incident gets worse when its kind rises, and never better but by its end.
SEVERITY: dict[Kind, Severity] = {
    "circuit-open": "warning",  # it ends by itself, and nothing is lost meanwhile
    "dead-letter": "warning",  # it may well succeed when it is replayed later
    "overdue": "warning",  # it may still come
    "approval-waiting": "warning",  # nothing is wrong; a person has to decide
    "withdrawn": "warning",  # it was decided; it is over once every target shows it
    "quarantine": "error",  # trying again can't help
    "halt": "critical",  # data that must not be shown came up to publication
}
RANK: dict[Kind, int] = {
    kind: ("warning", "error", "critical").index(severity) for kind, severity in SEVERITY.items()
}
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
    subject: str  # what it affects: the run's id, the provider's name, a window, an approval, a target
    source_id: str = ""
    count: int | None = None  # how often already, where no subjects are counted
    window: tuple[int, int] | None = None  # from, to; None: that of the run or request which is the subject
    key: str = ""  # tells causes apart that are alike in all else: of a withdrawal its id


class OverdueWindow(Record, frozen=True):
    """A window of a source that was expected by a time, and has not come."""

    source_id: str
    dataset_id: str
    window: tuple[int, int]  # from, to
    due_ms: int


class IncidentSubject(Record, frozen=True):
    """One of those that an incident affects: it ends with the last of them."""

    subject: str
    source_id: str
    window_start_ms: int | None
    window_end_ms: int | None


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
    acknowledged_at_ms: int | None = None
    acknowledged_by: str | None = None
    escalated_at_ms: int | None = None


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
    return _cause(trouble.about, trouble.name, trouble.error_class, trouble.error_code, trouble.key)


def _cause(about: About, name: str, error_class: str, error_code: str, key: str = "") -> str:
    document = {
        "kfm": CAUSE_TAG,
        "about": about,
        "name": name,
        "error_class": error_class,
        "error_code": error_code,
    } | ({"key": key} if key else {})
    return sha256_text(canonical_bytes(document))


# --- what there is trouble with ----------------------------------------------------------


def held_cause(dataset_id: str, error_classes: Sequence[str], error_code: str) -> str:
    """Of something that was given up with this error."""
    return _cause("dataset", dataset_id, error_classes[-1] if error_classes else "unknown", error_code)


def overdue_cause(dataset_id: str) -> str:
    """Of the windows of a dataset that are past their time."""
    return _cause("dataset", dataset_id, OVERDUE, DataOverdue.code)


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


def window_subject(source_id: str, window: tuple[int, int]) -> str:
    """The subject of what is about a window, not about a run of it."""
    if is_all_time(*window):
        return f"{source_id}, {NO_WINDOW_TEXT}"
    return f"{source_id} {rfc3339(window[0])}/{rfc3339(window[1])}"


def overdue_trouble(dataset_id: str, source_id: str, window: tuple[int, int], due_ms: int) -> IncidentCause:
    """Expected data has not come by its time."""
    return IncidentCause(
        about="dataset",
        name=dataset_id,
        kind="overdue",
        error_class=OVERDUE,
        error_code=DataOverdue.code,
        message=f"{window_subject(source_id, window)} was expected by {rfc3339(due_ms)}.",
        subject=window_subject(source_id, window),
        source_id=source_id,
        window=window,
    )


def approval_trouble(approval: Approval) -> IncidentCause:
    """A request waits for an approval."""
    return IncidentCause(
        about="dataset",
        name=approval.dataset_id or "",
        kind="approval-waiting",
        error_class="approval-waiting",
        error_code=NotApproved.code,
        message=f"{approval.about or approval.kind}: {approval.rationale}"[:MESSAGE_CHARS_MAX],
        subject=approval.request_id,
    )


def withdrawn_trouble(dataset_id: str, withdrawal_id: str, target: str, reason: str) -> IncidentCause:
    """Data was taken down, and one target has to show that."""
    return IncidentCause(
        about="dataset",
        name=dataset_id,
        kind="withdrawn",
        error_class="withdrawn",
        error_code=TakenDown.code,
        message=reason[:MESSAGE_CHARS_MAX],
        subject=target,
        key=withdrawal_id,
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


def reminded(seen: Incident, *, is_known: bool) -> tuple[Incident, Change]:
    """A silence is over, and it is open: its present state is told once. `is_known`: hooks know of it."""
    return replace(seen, changes=seen.changes + 1), "reminded" if is_known else "open"


def escalated(seen: Incident, now_ms: int) -> tuple[Incident, Change]:
    """It was left unacknowledged for too long."""
    return replace(seen, changes=seen.changes + 1, escalated_at_ms=now_ms), "escalated"


def escalates_at_ms(incident: Incident, after: str | None) -> int | None:
    """When it is escalated; None: never. `after`: the ISO 8601 duration that its dataset sets."""
    done = incident.acknowledged_at_ms is not None or incident.escalated_at_ms is not None
    if after is None or incident.state != "open" or done:
        return None
    from kfm.model.windows import parse_duration, shifted  # here: readers of the ledger start without

    return shifted(incident.opened_at_ms, parse_duration(after), "UTC")


def step_of(affected: int) -> int:
    """How many of the steps it has passed."""
    return sum(affected >= step for step in STEPS)


TOPIC = "incident"
NAMESPACE = "90b64ece-1410-5460-84ba-ac0f489c4cf2"  # ours alone: ids of incidents are made in it
ChangeType = Literal[
    "incident.opened",
    "incident.worsened",
    "incident.resolved",
    "incident.reminded",
    "incident.escalated",
    "incident.test",
]
TYPES: dict[Change, ChangeType] = {
    "open": "incident.opened",
    "worse": "incident.worsened",
    "resolved": "incident.resolved",
    "reminded": "incident.reminded",
    "escalated": "incident.escalated",
    "test": "incident.test",
}
WITHHELD = "Withheld: the dataset is not to be seen."


class IncidentOwner(Record, frozen=True):
    """Who answers for the dataset."""

    name: str
    contact: str | None


class IncidentEscalation(Record, frozen=True):
    """Who else gets it, and when, if it stays unacknowledged."""

    after: str  # ISO 8601
    to: tuple[str, ...]  # names of hooks
    at: str | None  # when it was


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
    next_step: "IncidentStep | None"  # None: it is over
    owner: IncidentOwner | None
    escalation: IncidentEscalation | None
    acknowledged_at: str | None


class IncidentChange(Record, frozen=True):
    """What a hook gets: one change of one incident."""

    id: str  # the same each time that it is delivered
    type: ChangeType
    timestamp: str
    data: IncidentData


def _instant(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)


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
        responsible: Callable[[str], tuple[IncidentOwner | None, IncidentEscalation | None]] = (
            lambda _dataset: (None, None)
        ),
    ) -> None:
        """`responsible`: of a dataset, its owner and its escalation."""
        self._environment = environment
        self._masked = masked
        self._mask = mask
        self._hide = hide
        self._responsible = responsible

    def incident_id(self, about: About, name: str, cause: str, occurrence: int) -> str:
        """Of a masked dataset it is keyed, too: a guess can't be checked against it."""
        return keys.uuid5(NAMESPACE, f"{self._public_cause(about, name, cause)}/{occurrence}")

    def change(
        self, incident: Incident, change: Change, held: int, subject: IncidentSubject | None = None
    ) -> IncidentChange:
        """`subject`: the latest, with its window, where it has one."""
        masked = self._masked(incident.about, incident.name)
        at_ms = {"resolved": incident.resolved_at_ms, "escalated": incident.escalated_at_ms}.get(
            change, incident.last_at_ms
        )
        owner, escalation = self._responsible(incident.name) if incident.about == "dataset" else (None, None)
        if escalation is not None:
            escalation = replace(escalation, at=_instant(incident.escalated_at_ms))
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
            resolved_at=_instant(incident.resolved_at_ms),
            command=f"kfm incident show {incident.incident_id}",
            next_step=incident_step(incident, subject, masked=masked),
            owner=None if masked else owner,  # it may tell which dataset that is
            escalation=escalation,
            acknowledged_at=_instant(incident.acknowledged_at_ms),
        )
        return IncidentChange(
            id=keys.uuid5(incident.incident_id, f"{incident.changes}/{change}"),
            type=TYPES[change],
            timestamp=rfc3339(at_ms or 0),
            data=data,
        )

    def test(self, hook: str, now_ms: int) -> IncidentChange:
        """A notification that nothing happened: for trying a hook."""
        incident = Incident(
            cause=_cause("dataset", "", "test", hook),
            incident_id=keys.uuid5(NAMESPACE, f"test/{hook}/{now_ms}"),
            about="dataset",
            name="",
            kind="overdue",  # the mildest
            error_class="test",
            error_code="KFM000",
            message="Nothing happened: this is a test of the hook.",
            subject="",
            state="open",
            occurrence=1,
            changes=1,
            affected=1,
            opened_at_ms=now_ms,
            last_at_ms=now_ms,
        )
        shown = self.change(incident, "test", 0)
        data = replace(
            shown.data,
            name="none",
            masked=False,
            message=incident.message,
            summary=f"test of hook {hook}",
            next_step=None,
            command="kfm incident list",
        )
        return replace(shown, data=data)

    def _public_cause(self, about: About, name: str, cause: str) -> str:
        if not self._masked(about, name):
            return cause
        hidden = self._mask(cause)
        # Without a key all would be one. Then nothing leaves: an environment that has hooks has a key.
        return hidden if hidden != _mask(cause) else cause


_DATASET_WORDS: dict[Kind, str] = {
    "halt": "halted",
    "quarantine": "quarantined",
    "dead-letter": "dead-lettered",
}


def summary(incident: Incident, change: Change, held: int, name: str) -> str:
    """One line for a pager."""
    whom = f"{incident.about} {name}"
    if incident.about == "provider":
        if change == "resolved":
            return f"{whom} answers again"
        still = "still " if change == "reminded" else ""
        return f"{whom}: circuit {still}open after {counted(incident.affected, 'failure')} in a row"
    if change == "resolved":
        rest = f"; {counted(held, 'run')} still quarantined" if held else ""
        return f"{whom}: {_over(incident)}{rest}"
    words = {"reminded": "still open: ", "escalated": "not acknowledged: "}
    what = condition(
        incident.kind, incident.affected, incident.error_code, incident.error_class, incident.subject
    )
    return f"{whom}: {words.get(change, '')}{what}"


def is_of_unit(subject: str) -> bool:
    """Is it a unit that an incident affects, not a run?"""
    return len(subject) == UNIT_ID_CHARS and subject[13] == "-"


def condition(kind: Kind, affected: int, error_code: str, error_class: str, subject: str) -> str:
    """What is the matter with a dataset, in a few words; `subject`: one of the runs or units affected."""
    if kind == "overdue":
        return f"{counted(affected, 'window')} past {'its' if affected == 1 else 'their'} time"
    if kind == "approval-waiting":
        return f"{counted(affected, 'request')} waiting for an approval"
    if kind == "withdrawn":
        return f"withdrawn; {counted(affected, 'target')} had to show it"
    word = "unit" if is_of_unit(subject) else "run"
    return f"{error_code} ({error_class}), {counted(affected, word)} {_DATASET_WORDS[kind]}"


def _over(incident: Incident) -> str:
    if incident.kind == "overdue":
        return "nothing is past its time any more"
    if incident.kind == "approval-waiting":
        return "no request waits for an approval any more"
    if incident.kind == "withdrawn":
        return "every target shows that it is withdrawn"
    return f"{incident.error_code} ({incident.error_class}) is over"


# --- what a person does next -------------------------------------------------------------

OPERATOR, APPROVER = "an operator", "another person than the requester"


class IncidentStep(Record, frozen=True):
    """What to do about an incident: a code for programs, a sentence, the command, and who can run it."""

    code: Literal["explain", "release", "reset", "run", "approve", "project", "show"]
    sentence: str  # without the command
    command: str
    who: str
    role: Literal["operate", "approve"]  # that `people:` has to give


def incident_step(
    incident: Incident, subject: IncidentSubject | None, *, masked: bool
) -> IncidentStep | None:
    """None: it is over. A masked one names neither dataset nor anything that is computed from its name."""
    if incident.state == "resolved":
        return None
    role: Literal["operate", "approve"] = "approve" if incident.kind == "approval-waiting" else "operate"
    who = APPROVER if role == "approve" else OPERATOR
    if masked:
        sentence, command = "See what it is about", f"kfm incident show {incident.incident_id}"
        return IncidentStep(code="show", sentence=sentence, command=command, who=who, role=role)
    code, sentence, command = _step(incident, subject)
    return IncidentStep(code=code, sentence=sentence, command=command, who=who, role=role)


def _step(
    incident: Incident, subject: IncidentSubject | None
) -> tuple[Literal["explain", "release", "reset", "run", "approve", "project", "show"], str, str]:
    kind, about = incident.kind, incident.subject
    if kind == "circuit-open":
        sentence = "It is probed by itself; an operator can close the circuit"
        return "reset", sentence, f"kfm breaker reset {incident.name} --rationale TEXT"
    if kind == "approval-waiting":
        sentence = "Look at what was asked for with `kfm approvals show`, then approve or reject it"
        return "approve", sentence, f"kfm approvals approve {about} --rationale TEXT"
    if kind == "withdrawn":
        return "project", "Let every target show it", "kfm project"
    if kind == "halt":
        sentence = "See which rule was violated, then request the release; another person approves it"
        return "release", sentence, f"kfm explain {about}"
    if kind == "overdue" and subject is not None and is_product(subject.source_id):
        sentence = "See which hours are open, and the listing that may fill them"
        return "show", sentence, f"kfm coverage {incident.name}"
    if kind == "overdue" and subject is not None and subject.window_start_ms is not None:
        from kfm.model.next_steps import run_command

        window = (subject.window_start_ms, subject.window_end_ms or 0)
        sentence = "See whether upstream has it, then ask for it again"
        return "run", sentence, run_command(subject.source_id or "", *window)
    if kind == "overdue":
        return "show", "See which windows are past their time", f"kfm incident show {incident.incident_id}"
    return "explain", "See why, and correct the cause", f"kfm explain {about}"


# --- which hook gets it ------------------------------------------------------------------

SEVERITIES: tuple[Severity, ...] = ("warning", "error", "critical")


class HookRule(Record, frozen=True):
    """What one hook is to get."""

    name: str
    datasets: tuple[str, ...] = ()  # empty: all, and providers
    kinds: tuple[str, ...] = ()  # empty: all
    severity: Severity = "warning"  # the least
    escalation: bool = False  # only what is escalated to it, from then on


class RoutedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a posted change as its way depends on. A message of an earlier version has no escalation."""

    change: Change
    kind: Kind
    severity: Severity
    escalation: IncidentEscalation | None = None


class RoutedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A posted change, read for its way to the hooks."""

    data: RoutedFacts


def hook_wants(rule: HookRule, about: About, name: str, data: RoutedFacts) -> bool:
    """Is this change for this hook? `name` is the unmasked one of what the incident is about."""
    escalation = data.escalation
    to_it = escalation is not None and escalation.at is not None and rule.name in escalation.to
    if data.change == "escalated" or rule.escalation:
        return to_it
    if rule.datasets and not (about == "dataset" and name in rule.datasets):
        return False
    if rule.kinds and data.kind not in rule.kinds:
        return False
    return SEVERITIES.index(data.severity) >= SEVERITIES.index(rule.severity)


# --- silences ----------------------------------------------------------------------------


class Silence(Record, frozen=True):
    """Why a dataset or an incident sends nothing, and until when."""

    scope: str  # dataset:NAME or incident:ID
    set_at_ms: int
    until_ms: int
    set_by: str
    rationale: str
    ended_at_ms: int | None = None


def silenced_until(incident: Incident, silences: Sequence[Silence]) -> int | None:
    """The end of the silence that it is under; None: it is under none."""
    scopes = {f"incident:{incident.incident_id}"}
    if incident.about == "dataset":
        scopes.add(f"dataset:{incident.name}")
    ends = [one.until_ms for one in silences if one.scope in scopes and one.ended_at_ms is None]
    return max(ends, default=None)
