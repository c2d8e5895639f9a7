"""The lease of a run, which kill switches, a cancellation and the run's time stop; and that of other work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.model.errors import KfmError
from kfm.model.gates import refusal
from kfm.model.records import Run
from kfm.periodic import HeldLease
from kfm.runs.gates import in_flight
from kfm.runs.kernel import Kernel
from kfm.runs.subjects import RunSubject

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger


def hold(kernel: Kernel, subject: RunSubject, run: Run, policy_epoch: int) -> HeldLease:
    """The lease that the admission of this run took."""

    def stopped(ledger: Ledger) -> KfmError | None:
        decision = in_flight(ledger, subject)
        if decision.allowed:
            return None
        error = refusal(decision, in_flight=True)
        error.facts["gates"] = decision.results
        return error

    return HeldLease(
        subject.scope,
        run.fence,
        run.run_id,
        clock=kernel.clock,
        lease_ms=kernel.lease_ms,
        renew_ms=kernel.heartbeat_ms,
        policy_epoch=policy_epoch,
        gate=stopped,
        heartbeat=kernel.heartbeat,
        store=kernel.store,
        run_ms=kernel.run_ms(subject.source),
        grace_ms=kernel.grace_ms,
        redact=kernel.redact,
    )


def hold_scope(
    kernel: Kernel, scope: str, fence: int, *, lease_ms: int | None = None, renew_ms: int | None = None
) -> HeldLease:
    """A lease of work that is no run: nothing stops it but its loss."""
    return HeldLease(
        scope,
        fence,
        "",
        clock=kernel.clock,
        lease_ms=lease_ms or kernel.lease_ms,
        renew_ms=renew_ms or kernel.heartbeat_ms,
        policy_epoch=kernel.store.policy_epoch(),
        gate=lambda _ledger: None,
        store=kernel.store,
    )
