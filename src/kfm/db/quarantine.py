"""Retry states of failed runs, and quarantine entries: rows, reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kfm.db import rows
from kfm.db.session import Row, Session
from kfm.model.quarantine import QuarantineEntry, RetryState, Waiting
from kfm.model.runs import Judge

if TYPE_CHECKING:
    from kfm.db.incidents import IncidentKeeper


_FIELDS = RetryState.__struct_fields__


def state_from(row: Row) -> RetryState:
    return rows.converted(_FIELDS, row, RetryState)


def waiting_from(row: Row) -> Waiting:
    split = len(_FIELDS)
    return Waiting(state=state_from(row[:split]), run=rows.run_from(row[split:]))


def put_retry_state(session: Session, state: RetryState | None) -> None:
    if state is not None:
        session.all("retry_states.put", **msgspec.structs.asdict(state))


def judge(session: Session, request: Judge, watch: IncidentKeeper) -> bool:
    """Decide about a run that has ended, unless it was decided on or retried meanwhile."""
    run = request.run
    if session.one("runs.ended", run_id=run.run_id, attempts=run.attempts) is None:
        return False
    row = session.one("retry_states.get", run_id=run.run_id)
    if (state_from(row) if row else None) != request.seen:
        return False
    put_retry_state(session, request.retry)
    hold(session, request.held)
    from kfm.db import governance, requests  # late: readers do not need it

    if request.answer is not None:
        requests.settle(session, *request.answer)
    requests.settle_run(session, run.run_id, request.settle, session.now_ms())
    watch.gave_up(session, request.held, request.retry, session.now_ms())
    governance.append(session, request.entries)
    return True


def ended(session: Session, state: RetryState | None, held: QuarantineEntry | None, now_ms: int) -> None:
    """A run's attempt has failed: what follows from that."""
    put_retry_state(session, state)
    if held is not None:
        hold(session, held)
    elif state is not None:
        # Tried again since it was held, and it will be again: it is not given up any more.
        by = f"attempt {state.attempt}"
        session.all("held.resolve", subject=state.run_id, released_at_ms=now_ms, released_by=by)


def succeeded(session: Session, run_id: str, now_ms: int) -> None:
    """The work is done: nothing is ahead of its run, and what was held of the same work is settled, requests
    that became no run included."""
    session.all("retry_states.remove", run_id=run_id)
    session.all("held.resolve_work", run_id=run_id, released_at_ms=now_ms)


def found_done(session: Session, run_id: str, watch: IncidentKeeper, now_ms: int) -> None:
    """The work was asked for again and is done: requests for its window that are held are settled."""
    if session.all("held.resolve_requests", run_id=run_id, released_at_ms=now_ms):
        row = session.one("runs.by_id", run_id=run_id)
        assert row is not None, "something was held of its window"
        run = rows.run_from(row)
        watch.succeeded(session, run, now_ms, is_there=run.outcome != "absent")


_HELD_FIELDS = QuarantineEntry.__struct_fields__
_FREE = ("error_message",)


def held_from(row: Row) -> QuarantineEntry:
    values = dict(zip(_HELD_FIELDS, row, strict=True))
    for name in ("source_ids", "error_classes"):
        values[name] = rows.value_of(values[name])
    return rows.converted(_HELD_FIELDS, tuple(values.values()), QuarantineEntry)


def held_parameters(held: QuarantineEntry) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(held)
    for name in ("source_ids", "error_classes"):
        parameters[name] = rows.prose_of(parameters[name])
    return rows.with_storable(parameters, _FREE)


def listed(
    session: Session,
    *,
    state: str | None,
    kind: str | None,
    dataset_id: str | None,
    before: int | None,
    limit: int,
) -> list[tuple[int, QuarantineEntry]]:
    """Newest first, each with its number, by the statement whose index leads to the fewest: little is held
    beside what was. `before`: the number of the last one of the page before."""
    asked = {"state": state or "", "kind": kind or "", "dataset_id": dataset_id or ""}
    if state == "held" or (state and not dataset_id):
        name = "held.in_state"
    elif dataset_id:
        name = "held.of_dataset"
    else:
        name = "held.of_kind" if kind else "held.list"
        asked = {"kind": kind} if kind else {}
    found = session.all(name, before=rows.NEVER if before is None else before, row_limit=limit, **asked)
    return [(row[-1], held_from(row[:-1])) for row in found]


def of_subject(
    session: Session, subject: str, state: str | None, kind: str | None, dataset_id: str | None, limit: int
) -> list[QuarantineEntry]:
    """Newest first, all that was ever held of a run, unit or request."""
    asked = {"state": state or "", "kind": kind or "", "dataset_id": dataset_id or ""}
    found = session.all("held.of_subject", subject=subject, row_limit=limit, **asked)
    return [held_from(row) for row in found]


def hold(session: Session, held: QuarantineEntry | None) -> None:
    if held is not None:
        session.all("held.put", **held_parameters(held))
