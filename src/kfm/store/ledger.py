"""Changes to the ledger. Each method is one transaction; its answer says whether it landed."""

from __future__ import annotations

from collections.abc import Iterable

from kfm.core.commits import Admit, Admitted, Fail, Promote, Promoted, Reaped
from kfm.core.records import GovernanceEntry, Invocation, Lock, Switch
from kfm.store import admission, governance, leases, promotion, rows
from kfm.store.reading import Ledger
from kfm.store.session import Session


class SqlStore(Ledger):
    """Implements `ports.Store` on either database."""

    # --- admission -------------------------------------------------------------------

    def admit(self, request: Admit, dead: leases.Dead) -> Admitted:
        return self._database.write(lambda session: admission.admit(session, request, dead))

    def record_invocation(self, invocation: Invocation, entries: Iterable[GovernanceEntry] = ()) -> None:
        """A call that started nothing: a no-op, a refusal, a busy answer."""
        kept = tuple(entries)  # a lost race asks for them again

        def change(session: Session) -> None:
            session.all("invocations.insert", **rows.invocation_parameters(invocation))
            governance.append(session, kept)

        self._database.write(change)

    # --- while a run is under way ----------------------------------------------------

    def renew(self, scope: str, fence: int, lease_ms: int) -> int | None:
        """The policy epoch if the lease still is ours, else None."""

        def change(session: Session) -> int | None:
            until = session.now_ms() + lease_ms
            if not session.one("locks.renew", scope=scope, fence=fence, lease_until_ms=until):
                return None
            row = session.one("policy.epoch")
            assert row is not None
            return int(row[0])

        return self._database.write(change)

    # --- the end of a run ------------------------------------------------------------

    def promote(self, request: Promote) -> Promoted:
        try:
            return self._database.write(lambda session: promotion.promote(session, request))
        except promotion.Undo as undo:
            return undo.answer

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
                error_message=rows.storable(request.error_message),
            )
            session.all(
                "invocations.finish",
                run_id=request.run_id,
                invocation_id=request.invocation_id,
                outcome=request.outcome,
                reason=rows.storable(request.error_message),
                gates=rows.gates_text(request.gates),
            )
            if landed:  # else somebody else has the run: what a stale one says of it does not count
                governance.append(session, request.entries)
                if request.pause is not None:
                    governance.set_switch(session, request.pause)
                session.all("locks.release", scope=request.scope, fence=request.fence)
            return landed is not None

        return self._database.write(change)

    # --- recovery --------------------------------------------------------------------

    def reap(self, dead: leases.Dead) -> list[Reaped]:
        """End the runs whose holder is gone, and free their locks. Needs none of those locks."""
        now_ms = self.now_ms()
        if not any(leases.is_gone(lock, now_ms, dead) for lock in self.locks()):
            return []

        def change(session: Session) -> list[Reaped]:
            reaped, _ = leases.sweep(session, session.now_ms(), dead)
            return reaped

        return self._database.write(change)

    # --- projections and collection ---------------------------------------------------

    def raise_projected(self, dataset_id: str, target: str, sequence: int) -> None:
        self._database.write(
            lambda session: session.all(
                "projections.raise", dataset_id=dataset_id, target=target, sequence=sequence
            )
        )

    def begin_collection(self, worker_id: str, lease_ms: int, dead: leases.Dead) -> int | Lock:
        """The fence of the collection lock, or the lock that stands in the way."""

        def change(session: Session) -> int | Lock:
            now_ms = session.now_ms()
            leases.lock_for_update(session, leases.COLLECTOR)  # first: no run is admitted from here on
            _, live = leases.sweep(session, now_ms, dead)
            if live:
                return live[0]
            own = leases.lock_for_update(session, leases.COLLECTOR)  # a predecessor may have been swept
            leases.take(session, own, own.fence + 1, worker_id, "", now_ms, now_ms + lease_ms)
            return own.fence + 1

        return self._database.write(change)

    def end_collection(self, fence: int, entry: GovernanceEntry) -> None:
        def change(session: Session) -> None:
            session.all("locks.release", scope=leases.COLLECTOR, fence=fence)
            governance.append(session, [entry])

        self._database.write(change)

    # --- governance ------------------------------------------------------------------

    def set_switch(self, switch: Switch, entry: GovernanceEntry) -> int:
        """The new policy epoch: whoever passed the gates before must ask them again."""

        def change(session: Session) -> int:
            epoch = governance.set_switch(session, switch)
            governance.append(session, [entry])
            return epoch

        return self._database.write(change)

    def append_governance(self, entries: Iterable[GovernanceEntry]) -> None:
        kept = tuple(entries)
        self._database.write(lambda session: governance.append(session, kept))
