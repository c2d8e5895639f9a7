"""What was decided about runs that failed: kept with the run's end, read by whoever tries again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kfm.core.commits import Judge
from kfm.core.holding import Held, RetryState, Waiting
from kfm.store import holding, rows
from kfm.store.session import Row, Session

if TYPE_CHECKING:
    from kfm.store.incidents import Watch

_FIELDS = RetryState.__struct_fields__


def state_from(row: Row) -> RetryState:
    return rows.converted(_FIELDS, row, RetryState)


def waiting_from(row: Row) -> Waiting:
    split = len(_FIELDS)
    return Waiting(state=state_from(row[:split]), run=rows.run_from(row[split:]))


def put(session: Session, state: RetryState | None) -> None:
    if state is not None:
        session.all("retry_states.put", **msgspec.structs.asdict(state))


def judge(session: Session, request: Judge, watch: Watch) -> bool:
    """Decide about a run that has ended, unless somebody has decided or tried again meanwhile."""
    run = request.run
    if session.one("runs.ended", run_id=run.run_id, attempts=run.attempts) is None:
        return False
    row = session.one("retry_states.get", run_id=run.run_id)
    if (state_from(row) if row else None) != request.seen:
        return False
    put(session, request.retry)
    holding.put(session, request.held)
    watch.gave_up(session, request.held, request.retry, session.now_ms())
    from kfm.store import governance  # late: those who only read need it not

    governance.append(session, request.entries)
    return True


def ended(session: Session, state: RetryState | None, held: Held | None, now_ms: int) -> None:
    """A run's attempt has failed: what follows from that."""
    put(session, state)
    if held is not None:
        holding.put(session, held)
    elif state is not None:
        # Tried again since it was held, and it will be again: it is not given up any more.
        by = f"attempt {state.attempt}"
        session.all("held.resolve", subject=state.run_id, released_at_ms=now_ms, released_by=by)


def succeeded(session: Session, run_id: str, now_ms: int) -> None:
    """The work is done: nothing is ahead of its run, and what was held of the same work is settled."""
    session.all("retry_states.remove", run_id=run_id)
    session.all("held.resolve_work", run_id=run_id, released_at_ms=now_ms)
