"""Incidents, changed in the transaction that causes or ends them, and the deliveries of each hook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kfm.db import rows
from kfm.db.session import Row, Session
from kfm.model import incidents
from kfm.model.breaker import Breaker
from kfm.model.dataset_changes import Withdrawal
from kfm.model.incidents import (
    TOPIC,
    About,
    Change,
    Incident,
    IncidentCause,
    IncidentRenderer,
    IncidentSubject,
    Notification,
    RoutedChange,
    RoutedFacts,
    Silence,
)
from kfm.model.quarantine import Approval, QuarantineEntry, RetryState
from kfm.model.records import Run
from kfm.model.runs import Backlog, OutboxMessage
from kfm.model.times import holds

if TYPE_CHECKING:
    from kfm.model.window_rules import Rewindow

_FIELDS = Incident.__struct_fields__
_FREE = ("name", "message", "subject", "acknowledged_by")
ANY_PARTITION = "*"


def incident_from(row: Row) -> Incident:
    return rows.converted(_FIELDS, row, Incident)


def subject_from(row: Row) -> IncidentSubject:
    return rows.converted(IncidentSubject.__struct_fields__, row, IncidentSubject)


class IncidentKeeper:
    """Keeps the incidents of one store.

    The row of a cause is held while its subjects change, so that two transactions that add or remove some at
    once agree on how many there are. Subjects end one by one, each with what it is about; the incident ends
    with the last.
    """

    def __init__(self, renderer: IncidentRenderer | None = None) -> None:
        self._renderer = renderer or IncidentRenderer()  # which tells no names

    def late(self) -> LateIncidents:
        """For one transaction that may change several, or goes on to other rows."""
        return LateIncidents(self, self._renderer)

    # --- what comes ----------------------------------------------------------------------

    def gave_up(
        self,
        session: Session,
        held: QuarantineEntry | None,
        state: RetryState | None,
        now_ms: int,
        *,
        halted: bool = False,
    ) -> None:
        if held is not None:
            self._struck(session, incidents.held_trouble(held, state, halted=halted), now_ms)

    def circuit(self, session: Session, seen: Breaker, kept: Breaker, now_ms: int) -> None:
        """A circuit has changed: it may have opened, or closed."""
        trouble = incidents.circuit_trouble(seen, kept)
        if trouble is not None:
            self._struck(session, trouble, now_ms)
        elif incidents.circuit_closed(seen, kept):
            self._ended(session, incidents.provider_cause(kept.provider), now_ms)

    def overdue(
        self,
        session: Session,
        source_id: str,
        dataset_id: str,
        window: tuple[int, int],
        due_ms: int,
        now_ms: int,
    ) -> None:
        """A window (from, to) of a source was expected by `due_ms`, and has not come. Told once, however
        often it is found; it ends by `succeeded` or `settled`."""
        trouble = incidents.overdue_trouble(dataset_id, source_id, window, due_ms)
        self._struck_once(session, trouble, now_ms)

    def approval_waiting(self, session: Session, approval: Approval, now_ms: int) -> None:
        """A request waits for an approval. It ends by `approval_decided`."""
        self._struck_once(session, incidents.approval_trouble(approval), now_ms)

    def withdrawn(
        self,
        session: Session,
        dataset_id: str,
        withdrawal_id: str,
        targets: Sequence[str],
        reason: str,
        now_ms: int,
    ) -> None:
        """Data was taken down. It is over once each of the targets shows that (`withdrawal_shown`); without
        targets it is told, and over at once."""
        for target in targets or [dataset_id]:
            trouble = incidents.withdrawn_trouble(dataset_id, withdrawal_id, target, reason)
            self._struck_once(session, trouble, now_ms)
        if not targets:
            self.withdrawal_shown(session, dataset_id, withdrawal_id, dataset_id, now_ms)

    def no_more_expected(self, session: Session, withdrawal: Withdrawal, now_ms: int) -> None:
        """Windows that are withdrawn are overdue no more; those that one target shows no longer are still
        expected. What is quarantined of them stays for a person."""
        if withdrawal.target:
            return
        cause = incidents.overdue_cause(withdrawal.dataset_id)
        listed = session.all("incident_subjects.windows", cause=cause)
        gone = [subject for subject, *window in listed if withdrawal.covers(*window)]
        if gone:
            self._ended(session, cause, now_ms, gone)

    def rewindowed(self, session: Session, dataset_id: str, wanted: Rewindow, now_ms: int) -> None:
        """Windows of an earlier length are expected no more, so they are not overdue either."""
        from kfm.model.window_rules import WindowSpan, is_window  # late: few sources get another length

        cause = incidents.overdue_cause(dataset_id)
        gone = [
            subject
            for subject, source_id, start_ms, end_ms in session.all("incident_subjects.windows", cause=cause)
            if source_id == wanted.source_id
            and not is_window(WindowSpan(start_ms=start_ms, end_ms=end_ms), wanted.new, wanted.time_zone)
        ]
        if gone:
            self._ended(session, cause, now_ms, gone)

    # --- what goes -----------------------------------------------------------------------

    def succeeded(self, session: Session, run: Run, now_ms: int, *, is_there: bool = True) -> None:
        """What was wrong with the window is over, whichever run or revision of it that was; overdue it is as
        long as its data is not there."""
        window = (run.window_start_ms, run.window_end_ms)
        kept = None if is_there else incidents.window_subject(run.source_id, window)
        self._end_window(session, run.source_id, window, run.partition or "", now_ms, kept)

    def settled(self, session: Session, source_id: str, window: tuple[int, int], now_ms: int) -> None:
        """The window (from, to) has come in another way than by a run, or a person has dismissed it."""
        self._end_window(session, source_id, window, ANY_PARTITION, now_ms)

    def _end_window(
        self,
        session: Session,
        source_id: str,
        window: tuple[int, int],
        partition: str,
        now_ms: int,
        kept: str | None = None,
    ) -> None:
        found = session.all(
            "incident_subjects.of_window",
            source_id=source_id,
            window_start_ms=window[0],
            window_end_ms=window[1],
            partition_key=partition,
        )
        found = [row for row in found if row[1] != kept]
        for cause in sorted({row[0] for row in found}):
            self._ended(session, cause, now_ms, [row[1] for row in found if row[0] == cause])

    def ended(self, session: Session, subject: str, now_ms: int) -> None:
        """A run, a request or an approval is settled by a person's decision: nothing affects it any more."""
        for (cause,) in sorted(session.all("incident_subjects.of_subject", subject=subject)):
            self._ended(session, cause, now_ms, [subject])

    def approval_decided(self, session: Session, request_id: str, now_ms: int) -> None:
        """It was approved or rejected, or it has lapsed."""
        self.ended(session, request_id, now_ms)

    def withdrawal_shown(
        self, session: Session, dataset_id: str, withdrawal_id: str, target: str, now_ms: int
    ) -> None:
        """A target shows what was taken down as gone."""
        trouble = incidents.withdrawn_trouble(dataset_id, withdrawal_id, target, "")
        self._ended(session, incidents.cause_of(trouble), now_ms, [target])

    def let_go(self, session: Session, wal_id: str, now_ms: int, by: str) -> None:
        """What was held of a unit is settled: it no longer suffers from what it was held for."""
        found = session.all("held.resolve_unit", subject=wal_id, released_at_ms=now_ms, released_by=by)
        for dataset_id, error_code, error_classes in found:
            cause = incidents.held_cause(dataset_id, rows.value_of(error_classes), error_code)
            self._ended(session, cause, now_ms, [wal_id])

    def dismissed(
        self,
        session: Session,
        subject: str,
        dataset_id: str,
        error_code: str,
        error_classes: str,
        now_ms: int,
    ) -> None:
        """The window of a quarantined run or request is settled: it no longer suffers from anything."""
        cause = incidents.held_cause(dataset_id, rows.value_of(error_classes), error_code)
        self._ended(session, cause, now_ms, [subject])

    def closed(self, session: Session, cause: str, now_ms: int) -> bool:
        """A person closes the incident; False if it is over already."""
        row = session.one("incidents.get_for_update", cause=cause)
        if row is None or incident_from(row).state != "open":
            return False
        session.all("incident_subjects.clear", cause=cause)
        self._ended(session, cause, now_ms)
        return True

    # --- who is told ---------------------------------------------------------------------

    def escalated(self, session: Session, cause: str, incident_id: str, now_ms: int) -> bool:
        """It stayed unacknowledged for too long: posted once. False if it is over, seen or silenced."""
        row = session.one("incidents.get_for_update", cause=cause)
        seen = incident_from(row) if row is not None else None
        if seen is None or seen.incident_id != incident_id or seen.state != "open":
            return False
        if seen.acknowledged_at_ms is not None or seen.escalated_at_ms is not None:
            return False
        if (cause,) in session.all("silences.causes"):
            return False
        met, change = incidents.escalated(seen, now_ms)
        session.all("incidents.change", **_changing(met))
        self._post(session, met, change, now_ms)
        return True

    def silence_ended(self, session: Session, scope: str, now_ms: int) -> bool:
        """The present state of what it covered is told once; False if another process has ended it."""
        if session.one("silences.end", scope=scope, now_ms=now_ms) is None:
            return False
        still = {row[0] for row in session.all("silences.causes")}
        for (cause,) in sorted(session.all("silences.causes_of", scope=scope)):
            if cause not in still:
                self._tell_again(session, cause, now_ms)
        return True

    def _tell_again(self, session: Session, cause: str, now_ms: int) -> None:
        """What waited is dropped. An open incident is told as it is now; a resolved one only where a hook was
        told that it is open."""
        row = session.one("incidents.get_for_update", cause=cause)
        assert row is not None, "it was listed a moment ago, and incidents are not removed"
        seen = incident_from(row)
        known = session.one("hook_deliveries.known", subject=cause, topic=TOPIC, since_ms=seen.opened_at_ms)
        waiting = [
            int(one[0]) for one in session.all("hook_deliveries.waiting_of", subject=cause, topic=TOPIC)
        ]
        if seen.state == "resolved" and known is not None:
            waiting = waiting[:-1]  # the last says that it is resolved
        for number in waiting:
            session.all("outbox.delivered", number=number, delivered_at_ms=now_ms)
        if seen.state == "open":
            met, change = incidents.reminded(seen, is_known=known is not None)
            session.all("incidents.change", **_changing(met))
            self._post(session, met, change, now_ms)

    # --- the row -------------------------------------------------------------------------

    def _struck(self, session: Session, trouble: IncidentCause, now_ms: int) -> None:
        cause = incidents.cause_of(trouble)
        row = session.one("incidents.get_for_update", cause=cause)
        if row is None:
            made, change = self._decided(None, trouble, cause, 1, now_ms)
            if session.one("incidents.insert", **_parameters(made)):
                self._add_subject(session, cause, trouble)
                self._post(session, made, change, now_ms)
                return
            row = session.one("incidents.get_for_update", cause=cause)  # another transaction was faster
            assert row is not None
        seen = incident_from(row)
        fresh = self._add_subject(session, cause, trouble)
        affected = fresh + (seen.affected if seen.state == "open" else 0)
        met, change = self._decided(seen, trouble, cause, affected, now_ms)
        session.all("incidents.change", **_changing(met))
        self._post(session, met, change, now_ms)

    def _struck_once(self, session: Session, trouble: IncidentCause, now_ms: int) -> None:
        """Nothing is written of what is known: such trouble is found again and again."""
        cause = incidents.cause_of(trouble)
        if session.one("incident_subjects.get", cause=cause, subject=trouble.subject) is None:
            self._struck(session, trouble, now_ms)

    def _decided(
        self, seen: Incident | None, trouble: IncidentCause, cause: str, affected: int, now_ms: int
    ) -> tuple[Incident, Change | None]:
        occurrence = (seen.occurrence if seen else 0) + 1
        return incidents.struck(
            seen,
            trouble,
            affected=affected if trouble.count is None else trouble.count,
            incident_id=self._renderer.incident_id(trouble.about, trouble.name, cause, occurrence),
            now_ms=now_ms,
        )

    @staticmethod
    def _add_subject(session: Session, cause: str, trouble: IncidentCause) -> int:
        """1 if it was not among them. A run that fails again with the same is no second one."""
        if trouble.count is not None:
            return 0
        added = session.one(
            "incident_subjects.add",
            cause=cause,
            subject=trouble.subject,
            dataset_id=trouble.name,
            source_id=trouble.source_id,
            window_start_ms=trouble.window[0] if trouble.window else None,
            window_end_ms=trouble.window[1] if trouble.window else None,
        )
        return 0 if added is None else 1

    def _ended(
        self, session: Session, cause: str, now_ms: int, subjects: Sequence[str] | None = None
    ) -> None:
        """The cause is gone, for these subjects or altogether."""
        row = session.one("incidents.get_for_update", cause=cause)
        if row is None:  # its circuit opened before there were incidents
            return
        if subjects is not None:
            for subject in subjects:
                session.all("incident_subjects.remove_one", cause=cause, subject=subject)
            if session.one("incident_subjects.any", cause=cause) is not None:
                return
        over, change = incidents.ended(incident_from(row), now_ms)
        if change is not None:
            session.all("incidents.change", **_changing(over))
            self._post(session, over, change, now_ms)

    def _post(self, session: Session, incident: Incident, change: Change | None, now_ms: int) -> None:
        if change is None:
            return
        event = self._renderer.change(incident, change, _held(session, incident), _latest(session, incident))
        session.all(
            "outbox.post",
            event_id=event.id,
            topic=TOPIC,
            subject=incident.cause,
            body=rows.prose_of(event),
            recorded_at_ms=now_ms,
        )


class LateIncidents(IncidentKeeper):
    """What one transaction changes of incidents, kept until `settle`.

    Rows of incidents are held last of all but the chain's head, in the order of their causes: so two
    transactions that meet the same causes never wait in a circle, and a row is not held while others are
    waited for. Those of one cause change in the order in which they were asked for.
    """

    def __init__(self, keeper: IncidentKeeper, renderer: IncidentRenderer) -> None:
        super().__init__(renderer)
        self._keeper = keeper
        self._changes: list[tuple[str, Callable[[], None]]] = []

    def settle(self) -> None:
        """Make the changes; before the chain's entries, after everything else."""
        changes, self._changes = self._changes, []
        for _, change in sorted(changes, key=lambda one: one[0]):
            change()

    def _struck(self, session: Session, trouble: IncidentCause, now_ms: int) -> None:
        self._later(trouble, partial(self._keeper._struck, session, trouble, now_ms))

    def _struck_once(self, session: Session, trouble: IncidentCause, now_ms: int) -> None:
        self._later(trouble, partial(self._keeper._struck_once, session, trouble, now_ms))

    def _later(self, trouble: IncidentCause, change: Callable[[], None]) -> None:
        self._changes.append((incidents.cause_of(trouble), change))

    def _ended(
        self, session: Session, cause: str, now_ms: int, subjects: Sequence[str] | None = None
    ) -> None:
        self._changes.append((cause, partial(self._keeper._ended, session, cause, now_ms, subjects)))


def _latest(session: Session, incident: Incident) -> IncidentSubject | None:
    row = session.one("incident_subjects.get", cause=incident.cause, subject=incident.subject)
    return None if row is None else subject_from(row)


def _held(session: Session, incident: Incident) -> int:
    if incident.about != "dataset":
        return 0
    row = session.one("held.of_cause", dataset_id=incident.name, error_code=incident.error_code)
    assert row is not None
    return int(row[0])


def _parameters(incident: Incident) -> dict[str, Any]:
    return rows.with_storable(msgspec.structs.asdict(incident), _FREE)


def _changing(incident: Incident) -> dict[str, Any]:
    """What the cause stands for does not change."""
    kept = ("about", "name", "error_class", "error_code")
    return {name: value for name, value in _parameters(incident).items() if name not in kept}


LOOK_MAX = 10_000
Wants = Callable[[About, str, RoutedFacts], bool]  # about, its unmasked name, the change


def silence_from(row: Row) -> Silence:
    return rows.converted(Silence.__struct_fields__, row, Silence)


def silence(session: Session, made: Silence) -> None:
    """In place of the one that the scope is under, if it is under one."""
    session.all("silences.end", scope=rows.storable(made.scope), now_ms=made.set_at_ms)
    parameters = rows.with_storable(msgspec.structs.asdict(made), ("scope", "set_by", "rationale"))
    del parameters["ended_at_ms"]
    session.all("silences.put", **parameters)


def notification_from(row: Row) -> Notification:
    change_id, recorded_at_ms, body, hook, tries, delivered_at_ms = row
    return Notification(
        change_id=change_id,
        recorded_at_ms=recorded_at_ms,
        body=body,
        hook=hook,
        tries=tries or 0,
        delivered_at_ms=delivered_at_ms,
    )


def backlog(session: Session, hook: str) -> Backlog:
    row = session.one("hook_deliveries.backlog", topic=TOPIC, hook=hook)
    assert row is not None
    return Backlog(waiting=row[0], oldest_ms=row[1])


def claim(
    session: Session, hook: str, limit: int, claim_ms: int, wants: Wants | None = None
) -> list[OutboxMessage]:
    """The oldest that are due. What follows a message that rests, about the same cause, rests with it.

    What is silenced stays; what the hook is not to get is settled for it, with no try.
    """
    session.all("outbox.hold")
    now_ms = session.now_ms()
    found = session.all("hook_deliveries.waiting", topic=TOPIC, hook=hook, row_limit=LOOK_MAX)
    taken: list[OutboxMessage] = []
    resting = {str(row[0]) for row in session.all("silences.causes")} if found else set()
    named = (
        {row[0]: (row[1], row[2]) for row in session.all("incidents.waiting", topic=TOPIC)} if found else {}
    )
    for message in map(rows.message_from, found):
        if wants is not None and message.tries == 0 and not _is_wanted(wants, message, named):
            session.all("hook_deliveries.skip", hook=hook, number=message.number, at_ms=now_ms)
        elif holds(message.not_before_ms, now_ms):
            resting.add(message.subject)
        elif message.subject not in resting and len(taken) < limit:
            taken.append(message)
    for message in taken:
        session.all("hook_deliveries.claim", hook=hook, number=message.number, until_ms=now_ms + claim_ms)
    return [replace(message, tries=message.tries + 1) for message in taken]


def _is_wanted(wants: Wants, message: OutboxMessage, named: dict[str, tuple[About, str]]) -> bool:
    if message.subject not in named:
        return True
    return wants(*named[message.subject], msgspec.json.decode(message.body, type=RoutedChange).data)


def delivered(session: Session, hook: str, numbers: Sequence[int]) -> None:
    now_ms = session.now_ms()
    for number in numbers:
        session.all("hook_deliveries.delivered", hook=hook, number=number, delivered_at_ms=now_ms)


def put_back(session: Session, hook: str, numbers: Sequence[int], not_before_ms: int) -> None:
    for number in numbers:
        session.all("hook_deliveries.put_back", hook=hook, number=number, not_before_ms=not_before_ms)


def settle(session: Session, hooks: Sequence[str]) -> int:
    """Mark as delivered the messages that each of these hooks has had; returns how many there were."""
    session.all("outbox.hold")
    had: dict[int, set[str]] = {}
    for number, hook in session.all("hook_deliveries.arrived", topic=TOPIC):
        had.setdefault(number, set()).add(hook)
    done = [number for number, names in had.items() if names.issuperset(hooks)]
    now_ms = session.now_ms()
    for number in done:
        session.all("outbox.delivered", number=number, delivered_at_ms=now_ms)
    return len(done)
