"""Attempts at passes whose process is gone, closed by whoever finds them."""

from __future__ import annotations

from kfm.core.passes import Parent, PassTry
from kfm.store.session import Session


def close_left(session: Session, run_id: str, now_ms: int, node: str = "") -> list[PassTry]:
    """Those of a run, or of a node of it, that were open, with the governed run that they are a part of."""
    closed = session.all("pass_attempts.close", run_id=run_id, node=node, state="aborted", ended_at_ms=now_ms)
    if not closed:
        return []
    row = session.one("pass_attempts.parent", run_id=run_id)
    parent = Parent(*row) if row else None
    return [PassTry(*each)._replace(parent=parent) for each in closed]


def fail_pass(session: Session, run_id: str, code: str, now_ms: int) -> None:
    """The pass itself: it has failed, until somebody goes on with it."""
    session.all("passes.interrupt", run_id=run_id, ended_at_ms=now_ms, error_code=code)
