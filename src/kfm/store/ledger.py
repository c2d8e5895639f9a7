"""Changes to the ledger. Each method is one transaction; its answer says whether it landed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from kfm.core.commits import Admit, Admitted, Fail, Promote, Promoted, Reaped
from kfm.core.records import GovernanceEntry, Invocation, Lock, Run, Switch
from kfm.core.states import check_transition
from kfm.store import rows
from kfm.store.reading import Ledger
from kfm.store.session import Session

Dead = Callable[[str], bool]

LEASE_EXPIRED = "LEASE_EXPIRED"
WORKER_DIED = "WORKER_DIED"
COLLECTOR = "gc"  # the lock that garbage collection holds; no run starts while it is held


class SqlStore(Ledger):
    """Implements `ports.Store` on either database."""

    # --- admission -------------------------------------------------------------------

    def admit(self, request: Admit, dead: Dead) -> Admitted:
        return self._database.write(lambda session: _admit(session, request, dead))

    def record_invocation(self, invocation: Invocation, entries: Iterable[GovernanceEntry] = ()) -> None:
        """A call that started nothing: a no-op, a refusal, a busy answer."""

        def change(session: Session) -> None:
            session.all("invocations.insert", **rows.invocation_parameters(invocation))
            _append(session, entries)

        self._database.write(change)

    # --- while a run is under way ----------------------------------------------------

    def renew(self, scope: str, fence: int, lease_ms: int) -> int | None:
        """The policy epoch if the lease still is ours, else None."""

        def change(session: Session) -> int | None:
            until = session.now_ms() + lease_ms
            if not session.one("locks.renew", scope=scope, fence=fence, lease_until_ms=until):
                return None
            return _epoch(session)

        return self._database.write(change)

    # --- the end of a run ------------------------------------------------------------

    def promote(self, request: Promote) -> Promoted:
        return self._database.write(lambda session: _promote(session, request))

    def fail(self, request: Fail) -> bool:
        def change(session: Session) -> bool:
            now_ms = session.now_ms()
            session.one("locks.get_for_update", scope=request.scope)
            landed = session.one(
                "runs.fail",
                run_id=request.run_id,
                fence=request.fence,
                end_time_ms=now_ms,
                error_code=request.error_code,
                error_message=request.error_message,
            )
            session.all(
                "invocations.finish",
                invocation_id=request.invocation_id,
                outcome=request.outcome,
                reason=request.error_message,
                gates=rows.gates_text(request.gates),
            )
            _append(session, request.entries)
            if request.pause is not None:
                _set_switch(session, request.pause)
            if landed:
                session.all("locks.release", scope=request.scope, fence=request.fence)
            return landed is not None

        return self._database.write(change)

    # --- recovery --------------------------------------------------------------------

    def reap(self, dead: Dead) -> list[Reaped]:
        """End the runs whose holder is gone, and free their locks. Needs none of those locks."""
        if not any(_is_gone(lock, self.now_ms(), dead) for lock in self.locks()):
            return []

        def change(session: Session) -> list[Reaped]:
            now_ms = session.now_ms()
            reaped = []
            for (scope,) in [(row[0],) for row in session.all("locks.held")]:
                row = session.one("locks.get_for_update", scope=scope)
                lock = rows.lock_from(row) if row else None
                if lock is None or lock.holder is None or not _is_gone(lock, now_ms, dead):
                    continue
                reaped.append(_evict(session, lock, now_ms))
                # The fence grows, so whatever the evicted run still tries is refused.
                _take(session, lock, lock.fence + 1, None, None, now_ms, 0)
            return reaped

        return self._database.write(change)

    # --- projections and collection ---------------------------------------------------

    def raise_projected(self, dataset_id: str, target: str, sequence: int) -> None:
        self._database.write(
            lambda session: session.all(
                "projections.raise", dataset_id=dataset_id, target=target, sequence=sequence
            )
        )

    def begin_collection(self, worker_id: str, lease_ms: int, dead: Dead) -> int | Lock:
        """The fence of the collection lock, or the lock that stands in the way."""

        def change(session: Session) -> int | Lock:
            now_ms = session.now_ms()
            session.all("locks.ensure", scope=COLLECTOR)
            row = session.one("locks.get_for_update", scope=COLLECTOR)
            assert row is not None
            own = rows.lock_from(row)
            for held in (rows.lock_from(row) for row in session.all("locks.held")):
                if not _is_gone(held, now_ms, dead):
                    return held
                if held.scope != COLLECTOR:
                    _evict(session, held, now_ms)
                    _take(session, held, held.fence + 1, None, None, now_ms, 0)
            _take(session, own, own.fence + 1, worker_id, "", now_ms, now_ms + lease_ms)
            return own.fence + 1

        return self._database.write(change)

    def end_collection(self, fence: int, entry: GovernanceEntry) -> None:
        def change(session: Session) -> None:
            session.all("locks.release", scope=COLLECTOR, fence=fence)
            _append(session, [entry])

        self._database.write(change)

    # --- governance ------------------------------------------------------------------

    def set_switch(self, switch: Switch, entry: GovernanceEntry) -> int:
        """The new policy epoch: whoever passed the gates before must ask them again."""

        def change(session: Session) -> int:
            epoch = _set_switch(session, switch)
            _append(session, [entry])
            return epoch

        return self._database.write(change)

    def append_governance(self, entries: Iterable[GovernanceEntry]) -> None:
        self._database.write(lambda session: _append(session, entries))


def _is_gone(lock: Lock, now_ms: int, dead: Dead) -> bool:
    if lock.holder is None:
        return False
    return lock.lease_until_ms <= now_ms or dead(lock.holder.worker_id)


def _epoch(session: Session) -> int:
    row = session.one("policy.epoch_for_share")
    assert row is not None
    return int(row[0])


def _set_switch(session: Session, switch: Switch) -> int:
    row = session.one("policy.advance")
    assert row is not None
    session.all(
        "switches.set",
        scope=switch.scope,
        position=switch.position,
        rationale=switch.rationale,
        actor=switch.actor,
        set_at_ms=switch.set_at_ms,
    )
    return int(row[0])


def _append(session: Session, entries: Iterable[GovernanceEntry]) -> None:
    for entry in entries:
        session.all("governance.append", **rows.entry_parameters(entry))


def _take(
    session: Session,
    lock: Lock,
    fence: int,
    worker_id: str | None,
    run_id: str | None,
    now_ms: int,
    lease_until_ms: int,
) -> None:
    taken = session.one(
        "locks.take",
        scope=lock.scope,
        seen_fence=lock.fence,
        fence=fence,
        worker_id=worker_id,
        run_id=run_id,
        acquired_at_ms=now_ms,
        lease_until_ms=lease_until_ms,
    )
    assert taken is not None, "the lock's row is ours inside this transaction"


def _evict(session: Session, lock: Lock, now_ms: int) -> Reaped:
    """The run of a holder that is gone has failed."""
    assert lock.holder is not None
    lapsed = lock.lease_until_ms <= now_ms
    code = LEASE_EXPIRED if lapsed else WORKER_DIED
    session.one(
        "runs.fail",
        run_id=lock.holder.run_id,
        fence=lock.fence,
        end_time_ms=now_ms,
        error_code=code,
        error_message="The process that ran it is gone.",
    )
    session.all("invocations.interrupt", run_id=lock.holder.run_id, reason=code)
    return Reaped(
        run_id=lock.holder.run_id, scope=lock.scope, worker_id=lock.holder.worker_id, lapsed=lapsed
    )


def _admit(session: Session, request: Admit, dead: Dead) -> Admitted:
    if _epoch(session) != request.policy_epoch:
        return Admitted(answer="epoch-moved")
    now_ms = session.now_ms()
    lock = _lock_for_update(session, request.scope)
    collector = session.one("locks.get", scope=COLLECTOR)
    for held in (lock, rows.lock_from(collector) if collector else None):
        if held is not None and held.holder is not None and not _is_gone(held, now_ms, dead):
            return Admitted(answer="locked", lock=held)
    if lock.holder is not None:
        _evict(session, lock, now_ms)
    fence = lock.fence + 1
    stored = _store_run(session, replace(request.run, fence=fence), request.seen)
    if stored is None:
        row = session.one("runs.by_id", run_id=request.run.run_id)
        return Admitted(answer="moved", run=rows.run_from(row) if row else None)
    _take(
        session, lock, fence, request.worker_id, request.run.run_id, now_ms, now_ms + request.lease_ms
    )
    session.all("invocations.insert", **rows.invocation_parameters(request.invocation))
    _append(session, request.entries)
    return Admitted(answer="admitted", run=stored)


def _lock_for_update(session: Session, scope: str) -> Lock:
    row = session.one("locks.get_for_update", scope=scope)
    if row is None:
        session.all("locks.ensure", scope=scope)
        row = session.one("locks.get_for_update", scope=scope)
    assert row is not None
    return rows.lock_from(row)


def _store_run(session: Session, run: Run, seen: Run | None) -> Run | None:
    """Insert a new run, or restart the one that was seen; None if the world has moved."""
    if seen is None:
        return run if session.one("runs.insert", **rows.run_parameters(run)) else None
    if seen.status != "failed":
        check_transition("run", seen.status, "failed")  # it was evicted in this transaction
    check_transition("run", "failed", "running")
    landed = session.one(
        "runs.restart",
        run_id=run.run_id,
        attempts=run.attempts,
        fence=run.fence,
        seen_fence=seen.fence,
        seen_attempts=seen.attempts,
    )
    return run if landed else None


def _promote(session: Session, request: Promote) -> Promoted:
    row = session.one("locks.get_for_update", scope=request.scope)
    lock = rows.lock_from(row) if row else None
    ours = (
        lock is not None
        and lock.fence == request.fence
        and lock.holder is not None
        and lock.holder.run_id == request.run_id
    )
    if not ours:
        return Promoted(answer="lost")
    if _epoch(session) != request.policy_epoch:
        return Promoted(answer="epoch-moved")
    head = session.one("promotions.head", dataset_id=request.dataset_id)
    sequence = rows.promotion_from(head).sequence if head else 0
    if sequence != request.base_sequence:
        return Promoted(answer="head-moved", sequence=sequence)
    now_ms = session.now_ms()
    if request.manifest is not None:
        sequence += 1
        _insert_version(session, request, sequence, now_ms)
    succeeded = session.one(
        "runs.succeed",
        run_id=request.run_id,
        fence=request.fence,
        end_time_ms=now_ms,
        fingerprint=request.fingerprint,
        version_id=request.version_id,
    )
    assert succeeded is not None, "the lock names a run that is not running"
    session.all(
        "invocations.finish",
        invocation_id=request.invocation_id,
        outcome="success",
        reason=request.reason,
        gates=rows.gates_text(request.gates),
    )
    _append(session, request.entries)
    for key, value in request.states:
        session.all(
            "states.set",
            dataset_id=request.dataset_id,
            state_key=key,
            value=rows.text_of(value),
            run_id=request.run_id,
        )
    for event_type, payload in request.events:
        session.all(
            "events.append",
            run_id=request.run_id,
            dataset_id=request.dataset_id,
            event_type=event_type,
            payload=rows.text_of(payload),
            emitted_at_ms=now_ms,
        )
    session.all("locks.release", scope=request.scope, fence=request.fence)
    return Promoted(answer="promoted" if request.manifest is not None else "unchanged", sequence=sequence)


def _insert_version(session: Session, request: Promote, sequence: int, now_ms: int) -> None:
    session.all(
        "versions.insert",
        version_id=request.version_id,
        dataset_id=request.dataset_id,
        manifest=rows.text_of(request.manifest),
    )
    landed = session.one(
        "promotions.insert",
        dataset_id=request.dataset_id,
        sequence=sequence,
        version_id=request.version_id,
        run_id=request.run_id,
        fence=request.fence,
        policy_epoch=request.policy_epoch,
        promoted_at_ms=now_ms,
    )
    assert landed is not None, "this run has promoted before"
