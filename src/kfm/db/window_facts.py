"""Windows: what the ledger knows of each, found by source and window; what persons settled; expectations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from kfm.db import rows
from kfm.db.session import Database, Row, Session
from kfm.model.completeness import NOTHING, Dismissal, DismissAnswer, SettledWindow, WindowFacts
from kfm.model.feeds import HOUR_MS
from kfm.model.records import GovernanceEntry, Record

if TYPE_CHECKING:
    from kfm.db.incidents import IncidentKeeper
    from kfm.model.incidents import OverdueWindow

Span = tuple[int, int]  # of a window: start, end
FIRST_MS, LAST_MS = -(2**62), 2**62
HALTED = "KFM302"  # a dataset that waits for a review: two persons end that, and no dismissal


class OpenHour(Record, frozen=True):
    """An hour of a feed's product that was due and not there."""

    dataset: str
    source_id: str
    hour_ms: int
    is_told: bool = False

    @property
    def key(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "source_id": self.source_id, "hour_ms": self.hour_ms}


class FactRows(Record, frozen=True):
    """What the ledger holds of the windows of a source, as it was read."""

    runs: list[Row]
    invocations: list[Row]
    kept: list[Row]
    requests: list[Row]
    seen: list[Row]
    absent: list[Row]
    settled: list[Row]

    def under_way(self) -> list[str]:
        """The runs of windows that have no end."""
        return [row[0] for row in self.runs if row[3] == "running"]


class WindowReader:
    """Read access to what became of windows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def facts(
        self,
        source_id: str,
        dataset_id: str,
        is_live: Callable[[str], bool],
        start_ms: int = FIRST_MS,
        end_ms: int = LAST_MS,
    ) -> dict[Span, WindowFacts]:
        """What is on record of each window that touches a span, for a dataset: what the source has brought
        to another one is not there. `is_live`: does a lease of this run hold?"""
        return facts_of(self.read(source_id, dataset_id, start_ms, end_ms), is_live)

    def read(
        self, source_id: str, dataset_id: str, start_ms: int = FIRST_MS, end_ms: int = LAST_MS
    ) -> FactRows:
        """The rows that facts follow from."""
        all_ = self._database.session.all
        touching = {"source_id": source_id, "start_ms": start_ms, "end_ms": end_ms}
        asked = {**touching, "dataset_id": dataset_id}
        runs = all_("windows.runs", **asked)
        invocations = all_("windows.invocations", **asked)
        is_absent = any(row[7] == "absent" for row in runs) or any(row[9] == "absent" for row in invocations)
        return FactRows(
            runs=runs,
            invocations=invocations,
            kept=all_("windows.kept", **asked) if is_absent else [],
            requests=all_("windows.requests", **asked),
            seen=all_("windows.seen", **asked),
            absent=all_("windows.absent", **asked),
            settled=[row for row in all_("windows.settled", **touching) if row[7] == dataset_id],
        )

    def settled(self, source_id: str, start_ms: int = FIRST_MS, end_ms: int = LAST_MS) -> list[SettledWindow]:
        """The windows that persons settled, in order."""
        found = self._database.session.all(
            "windows.settled", source_id=source_id, start_ms=start_ms, end_ms=end_ms
        )
        return [
            SettledWindow(
                source_id=source_id,
                start_ms=row[0],
                end_ms=row[1],
                kind=row[2],
                settled_at_ms=row[3],
                actor=row[4],
                rationale=row[5],
                ticket=row[6],
                dataset_id=row[7],
            )
            for row in found
        ]

    def held_of(self, source_id: str, start_ms: int, end_ms: int) -> list[str]:
        """What is quarantined of one window, by run or by request: the ids of the entries."""
        found = self._database.session.all(
            "windows.held", source_id=source_id, window_start_ms=start_ms, window_end_ms=end_ms
        )
        return [row[0] for row in found]

    def expectations(self) -> dict[tuple[str, str], int]:
        """Since when windows are expected, by source and rule."""
        found = self._database.session.all("expectations.list")
        return {(source_id, rule): since_ms for source_id, rule, since_ms in found}

    def overdue_marks(self) -> dict[tuple[str, str], int]:
        """How far the windows that are due were looked at, by source and rule."""
        found = self._database.session.all("overdue_marks.list")
        return {(source_id, rule): mark_ms for source_id, rule, mark_ms in found}

    def open_hours(self, dataset: str) -> dict[str, dict[int, bool]]:
        """The hours of a feed that were found open, by product's row: hour, and whether an incident was
        opened."""
        found: dict[str, dict[int, bool]] = {}
        for source_id, hour_ms, is_told in self._database.session.all("open_hours.list", dataset=dataset):
            found.setdefault(source_id, {})[hour_ms] = bool(is_told)
        return found


def facts_of(known: FactRows, is_live: Callable[[str], bool]) -> dict[Span, WindowFacts]:
    """The facts of each window that is on record."""
    found = dict[Span, WindowFacts]()
    for row in sorted(known.runs, key=lambda one: one[5] is None):  # what is under way takes the place
        found[row[1], row[2]] = _of_run(row, is_live)
    for row in known.invocations:
        span = (row[0], row[1])
        found[span] = _with_invocation(found.get(span, NOTHING), row)
    for run_id, start, end, ended_ms, outcome in known.kept:
        if found[start, end].outcome == "absent":
            kept = {"run_id": run_id, "run_ended_ms": ended_ms, "outcome": outcome}
            found[start, end] = replace(found[start, end], **kept)
    for row in known.requests:
        span = (row[0], row[1])
        found[span] = _with_request(found.get(span, NOTHING), row)
    for row in known.seen:
        span = (row[0], row[1])
        found[span] = _with_look(found.get(span, NOTHING), row[2], row[3])
    for row in known.absent:
        span = (row[0], row[1])
        found[span] = replace(found.get(span, NOTHING), absent_ms=row[2])
    for row in known.settled:
        span = (row[0], row[1])
        settled = {"settled": row[2], "settled_ms": row[3], "settled_why": row[5]}
        found[span] = replace(found.get(span, NOTHING), **settled)
    return found


def _of_run(row: Row, is_live: Callable[[str], bool]) -> WindowFacts:
    run_id, _, _, status, started_ms, ended_ms, error, outcome, held_code, not_before_ms = row
    return WindowFacts(
        run_id=run_id,
        run_status=status,
        run_started_ms=started_ms,
        run_ended_ms=ended_ms,
        run_error=error,
        is_live=status == "running" and is_live(run_id),
        outcome=outcome,
        held_code=held_code,
        is_promised=not_before_ms is not None,
        not_before_ms=not_before_ms,
    )


def _with_invocation(facts: WindowFacts, row: Row) -> WindowFacts:
    """A refusal, a failure before there was a run, or work that was found done, as the newest of these."""
    _, _, outcome, at_ms, code, gates, run_id, status, ended_ms, came_to = row
    if outcome == "refused":
        return replace(facts, refused_ms=at_ms, refused_by=_gate(gates) or code)
    if outcome == "failed":
        return replace(facts, failed_ms=at_ms, failed_by=code)
    ends_ms = facts.run_ended_ms or 0
    if status == "success" and run_id != facts.run_id and facts.run_status == "failed" and at_ms >= ends_ms:
        # A version of the pipeline that is in use again has found its own work done.
        return WindowFacts(
            run_id=run_id,
            run_status="success",
            run_started_ms=facts.run_started_ms,
            run_ended_ms=ended_ms,
            outcome=came_to,
            found_ms=at_ms,
        )
    return replace(facts, found_ms=at_ms) if outcome == "noop" else facts


def _gate(text: str) -> str | None:
    """The gate that refused, where it was one."""
    return next((gate.gate for gate in rows.gates_from(text) if not gate.allowed), None)


def _with_request(facts: WindowFacts, row: Row) -> WindowFacts:
    _, _, is_unsettled, request_id, state, outcome, blocked_by, accepted_ms, not_before_ms, ended_ms, held = (
        row
    )
    if is_unsettled:
        return replace(
            facts,
            request_id=request_id,
            request_state=state,
            requested_ms=accepted_ms,
            blocked_by=blocked_by,
            not_before_ms=not_before_ms or facts.not_before_ms,
        )
    if state == "cancelled" and ended_ms >= (facts.refused_ms or 0):
        return replace(facts, refused_ms=ended_ms, refused_by="cancelled")
    if outcome == "refused" and facts.refused_ms is None:
        return replace(facts, refused_ms=ended_ms)
    if outcome == "failed" and ended_ms >= (facts.failed_ms or 0):
        facts = replace(facts, failed_ms=ended_ms, failed_by=held or facts.failed_by)
        is_newest = ended_ms >= (facts.run_ended_ms or 0)
        return replace(facts, held_code=held) if held is not None and is_newest else facts
    return facts


def _with_look(facts: WindowFacts, outcome: str, ended_ms: int) -> WindowFacts:
    """A preview that would have changed nothing has seen what is there."""
    if ended_ms <= (facts.run_ended_ms or 0) or facts.run_status == "running":
        return facts
    return replace(
        facts,
        run_id=None,
        run_status="success",
        run_ended_ms=ended_ms,
        run_error=None,
        outcome="empty" if outcome == "empty" else "unchanged",
        held_code=None,
    )


class Windows(WindowReader):
    """What persons settle, and since when windows are expected. Each method is one transaction."""

    def __init__(self, database: Database, watch: IncidentKeeper) -> None:
        super().__init__(database)
        self._watch = watch

    def expect(self, rules: Iterable[tuple[str, str]]) -> None:
        """From now on windows are expected of these sources, by these rules, unless that is known."""
        known = self.expectations()
        fresh = [one for one in rules if one not in known]
        if not fresh:  # the usual case writes nothing
            return

        def change(session: Session) -> None:
            now_ms = session.now_ms()
            for source_id, rule in fresh:
                session.all("expectations.ensure", source_id=source_id, rule=rule, since_ms=now_ms)

        self._database.write(change)

    def mark_overdue(
        self,
        found: Sequence[OverdueWindow],
        source_id: str,
        rule: str,
        seen_ms: int | None,
        mark_ms: int,
        open_hours: Sequence[OpenHour] = (),
    ) -> bool:
        """Open or extend the incidents of these windows, and remember how far was looked; False, and nothing
        is written, if another process has looked meanwhile. `open_hours`: those of a feed's product that
        are not there; all others up to the mark are."""
        parameters = {"source_id": source_id, "rule": rule, "mark_ms": mark_ms}

        def change(session: Session) -> bool:
            if seen_ms is None:
                moved = session.one("overdue_marks.insert", **parameters)
            else:
                moved = session.one("overdue_marks.move", **parameters, seen_ms=seen_ms)
            if moved is None:
                return False
            for hour in open_hours:
                session.all("open_hours.put", **hour.key, is_told=int(hour.is_told))
            late = self._watch.late()
            for one in found:
                late.overdue(session, one.source_id, one.dataset_id, one.window, one.due_ms, session.now_ms())
            late.settle()
            return True

        return self._database.write(change)

    def look_again(self, closed: Sequence[OpenHour], overdue: Sequence[OverdueWindow]) -> None:
        """Hours of feeds that are there now, or settled, are open no more: incidents about them end. Of
        others that are overdue an incident is opened or extended, once for each."""

        def change(session: Session) -> None:
            now_ms, late = session.now_ms(), self._watch.late()
            for hour in closed:
                if session.one("open_hours.close", **hour.key) is not None:
                    late.settled(session, hour.source_id, (hour.hour_ms, hour.hour_ms + HOUR_MS), now_ms)
            for one in overdue:
                key = {"dataset": one.dataset_id, "source_id": one.source_id, "hour_ms": one.window[0]}
                if session.one("open_hours.told", **key) is not None:
                    late.overdue(session, one.source_id, one.dataset_id, one.window, one.due_ms, now_ms)
            late.settle()

        if closed or overdue:
            self._database.write(change)

    def dismiss(self, wanted: Sequence[Dismissal], entry: GovernanceEntry) -> DismissAnswer:
        """Settle windows that will never have data, all or none: what is quarantined of them is resolved,
        what waits for them is cancelled, no attempt is ahead."""

        from kfm.db import governance  # late: readers do not need it

        def change(session: Session) -> DismissAnswer:
            now_ms, late = session.now_ms(), self._watch.late()
            for one in wanted:
                blocked = _dismissed(session, one, late, now_ms)
                if blocked is not None:
                    raise _Undo(DismissAnswer(answer=blocked, window=one))
            late.settle()
            governance.append(session, [entry])
            return DismissAnswer(answer="dismissed")

        try:
            return self._database.write(change)
        except _Undo as undo:
            return undo.answer

    def undismiss(self, wanted: Sequence[Dismissal], entry: GovernanceEntry) -> DismissAnswer:
        """Expect dismissed windows again, all or none."""
        from kfm.db import governance  # late: readers do not need it

        def change(session: Session) -> DismissAnswer:
            for one in wanted:
                if session.one("windows.unsettle", **_named(one), kind="dismissed") is None:
                    raise _Undo(DismissAnswer(answer="not-dismissed", window=one))
                session.all("overdue_marks.lower", source_id=one.source_id, mark_ms=one.start_ms)
            governance.append(session, [entry])
            return DismissAnswer(answer="undone")

        try:
            return self._database.write(change)
        except _Undo as undo:
            return undo.answer


class _Undo(Exception):
    """Roll back, and answer this."""

    def __init__(self, answer: DismissAnswer) -> None:
        super().__init__(answer.answer)
        self.answer = answer


def _named(one: Dismissal) -> dict[str, Any]:
    return {"source_id": one.source_id, "window_start_ms": one.start_ms, "window_end_ms": one.end_ms}


def _settling(one: Dismissal, now_ms: int) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(one)
    free = {name: parameters[name] for name in ("actor", "rationale", "ticket")}
    return {
        **_named(one),
        "dataset_id": one.dataset_id,
        "kind": "dismissed",
        "settled_at_ms": now_ms,
        **rows.with_storable(free, ("actor", "rationale", "ticket")),
    }


def _dismissed(
    session: Session, one: Dismissal, watch: IncidentKeeper, now_ms: int
) -> Literal["running", "halted", "withdrawn"] | None:
    from kfm.db import requests  # late: readers do not need it

    window = _named(one)
    if session.all("windows.running", **window):
        return "running"
    held = session.all("windows.held", **window)
    if any(row[4] == HALTED for row in held):
        return "halted"
    if session.one("windows.settle", **_settling(one, now_ms)) is None:
        return "withdrawn"
    by = rows.storable(one.actor)
    for held_id, _, subject, dataset_id, error_code, error_classes in held:
        session.one("held.dismiss", held_id=held_id, released_at_ms=now_ms, released_by=by)
        watch.dismissed(session, subject, dataset_id, error_code, error_classes, now_ms)
    for (request_id,) in session.all("windows.unsettled_requests", **window):
        requests.cancel(session, request_id, f"Its window was dismissed by {by}.", watch)
    session.all("retry_states.dismiss", **window, now_ms=now_ms)
    watch.settled(session, one.source_id, (one.start_ms, one.end_ms), now_ms)
    return None
