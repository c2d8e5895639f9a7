"""The front door: key, gates and lock in one transaction, or a clear no."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from kfm.admission.decide import Verdict, decide, is_live
from kfm.admission.subject import Subject, forced
from kfm.core import keys
from kfm.core.commits import Admit
from kfm.core.errors import BudgetSpent, Busy, CircuitOpen, KfmError, LockHeld, LostLease, Refused
from kfm.core.evidence import Circumstances
from kfm.core.gates import GateDecision
from kfm.core.grants import granted
from kfm.core.holding import Waiting
from kfm.core.records import GateResult, GovernanceEntry, Invocation, InvocationOutcome, Lock, Record, Run
from kfm.core.run_transitions import retried, taken_over
from kfm.core.times import rfc3339
from kfm.ports import LedgerReader, Liveness, Store

ROUNDS_MAX = 10  # how often the world may move between a look and a commit


class Entered(Record, frozen=True):
    """The call was let in: there is a run, its lock is ours."""

    subject: Subject
    run: Run
    invocation: Invocation
    policy_epoch: int
    reason: str
    known: Circumstances


class Answered(Record, frozen=True):
    """The call needs no run: the work is done."""

    subject: Subject
    run: Run
    invocation: Invocation
    reason: str


class TurnedAway(Exception):
    """The call was refused, found somebody at work, or could not be decided; the invocation is on record."""

    def __init__(self, error: KfmError, invocation: Invocation, run: Run | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.invocation = invocation
        self.run = run


class Door:
    """One call's way in."""

    def __init__(
        self,
        store: Store,
        liveness: Liveness,
        *,
        worker_id: str,
        lease_ms: int,
        invocation_id: str,
        gates: Callable[[Subject], GateDecision],
        refusal: Callable[[GateDecision], KfmError],
        fingerprint: Callable[[], str],
        unsettled: Callable[[Run], str | None],
        force: bool,
        policies: str,
        redact: Callable[[str], str],
        ask: Callable[[Subject], None] = lambda _subject: None,
        due: Waiting | None = None,
        claim: tuple[str, str] | None = None,
    ) -> None:
        self._claim = claim  # the request that asks: only for who still has it
        self._due = due  # an automatic attempt: of this run, after this attempt, or not at all
        self._store = store
        self._liveness = liveness
        self._worker_id = worker_id
        self._lease_ms = lease_ms
        self._invocation_id = invocation_id
        self._gates = gates
        self._refusal = refusal
        self._fingerprint = fingerprint
        self._unsettled = unsettled
        self._force = force
        self._policies = policies  # the bundle in force
        self._redact = redact
        self._ask = ask  # raises CircuitOpen where a provider is left alone

    def enter(self, subject: Subject) -> Entered | Answered:
        for _ in range(ROUNDS_MAX):
            answer = self._once(subject)
            if answer is not None:
                return answer
        raise Busy("The ledger kept changing while this call was being decided.")

    def turn_away(self, subject: Subject, error: Refused) -> NoReturn:
        """Refuse a call for a reason that the engine knows."""
        self._away(subject, "refused", error)

    def _once(self, subject: Subject) -> Entered | Answered | None:
        """One look and one try; None if the world moved in between."""
        if self._force:
            subject = forced(subject, self._store.forces(subject.work_base) + 1)
        epoch = self._store.policy_epoch()
        verdict = look(self._store, self._liveness, subject)
        if verdict.kind == "busy":
            assert verdict.run is not None
            self._away(subject, "busy", LockHeld(self._holder(subject.scope)), run=verdict.run)
        self._refuse_overtaken(subject, verdict)
        decision = self._gates(subject)
        if not decision.allowed:
            self._away(
                subject, "refused", self._refusal(decision), gates=decision.results, halts=decision.halts
            )
        if verdict.kind == "stop":
            self._away(subject, "refused", BudgetSpent(verdict.reason), run=verdict.run)
        if verdict.kind == "done":
            assert verdict.run is not None
            return self._answered(subject, verdict.run, decision, verdict.reason)
        self._require_providers(subject, verdict)
        if verdict.kind == "compare":
            assert verdict.run is not None
            why: str | None = "Upstream has changed."
            if self._compared(subject, verdict.run) == verdict.run.fingerprint:
                why = self._unsettled(verdict.run)
            if why is None:
                return self._answered(subject, verdict.run, decision, unchanged(verdict.run))
            verdict = reopened(verdict.run, why)
        return self._admit(subject, verdict, decision, epoch)

    def _refuse_overtaken(self, subject: Subject, verdict: Verdict) -> None:
        """What was due is due once: whoever comes later finds another attempt, and leaves it alone."""
        if self._due is None:
            return
        run, seen = verdict.run, self._due.run
        same = run is not None and (run.run_id, run.attempts) == (seen.run_id, seen.attempts)
        if not same or verdict.kind not in ("restart", "stop"):
            error = Busy(f"Somebody else has tried run {seen.run_id} again.", remedy="Nothing is left to do.")
            self._away(subject, "busy", error, run=run)

    def _require_providers(self, subject: Subject, verdict: Verdict) -> None:
        """Nothing begins for a provider that is left alone: no run, no key, no attempt."""
        try:
            self._ask(subject)
        except CircuitOpen as error:
            same = verdict.kind in ("restart", "compare")
            self._away(subject, "failed", error, run=verdict.run if same else None)

    def _compared(self, subject: Subject, run: Run) -> str:
        """Upstream's fingerprint now; that it can't be had is an answer that goes on record, too."""
        try:
            return self._fingerprint()
        except KfmError as error:
            self._away(subject, "failed", error, run=run)

    def _admit(
        self, subject: Subject, verdict: Verdict, decision: GateDecision, epoch: int
    ) -> Entered | None:
        now_ms = self._store.now_ms()
        if verdict.kind == "restart":
            assert verdict.run is not None
            seen: Run | None = verdict.run
            again = retried if verdict.run.status == "failed" else taken_over
            run = again(verdict.run, fence=verdict.run.fence + 1)  # at least; the lock decides
        else:
            seen, run = None, subject.new_run(verdict.revision, now_ms)
        invocation = self._invocation(subject, None, run, verdict.reason, decision.results)
        entries = self._entries(subject, run, verdict, decision)
        grant = None
        if verdict.governed and seen is not None:
            grant = granted(seen, self._store.retry_state(seen.run_id), now_ms)
        known = self._known(subject, decision.results, run.revision)
        admitted = self._store.admit(
            Admit(
                run=run,
                seen=seen,
                scope=subject.scope,
                worker_id=self._worker_id,
                lease_ms=self._lease_ms,
                invocation=invocation,
                policy_epoch=epoch,
                entries=entries,
                known=known,
                grant=grant,
                approval=decision.approval or None,
                claim=self._claim,
            ),
            self._liveness.is_dead,
        )
        if admitted.answer == "unclaimed":
            self._away(subject, "busy", LostLease("The request has passed to another runner, or is done."))
        if admitted.answer == "locked":
            assert admitted.lock is not None
            self._away(subject, "busy", LockHeld(held_by(admitted.lock)))
        if admitted.answer != "admitted":
            return None
        assert admitted.run is not None
        return Entered(
            subject=subject,
            run=admitted.run,
            invocation=invocation,
            policy_epoch=epoch,
            reason=verdict.reason,
            known=known,
        )

    # --- leaving without a run -------------------------------------------------------

    def _answered(self, subject: Subject, run: Run, decision: GateDecision, reason: str) -> Answered:
        invocation = self._invocation(subject, "noop", run, reason, decision.results)
        self._store.record_invocation(invocation)
        return Answered(subject=subject, run=run, invocation=invocation, reason=reason)

    def _away(
        self,
        subject: Subject,
        outcome: InvocationOutcome,
        error: KfmError,
        *,
        run: Run | None = None,
        gates: tuple[GateResult, ...] = (),
        halts: bool = False,
    ) -> NoReturn:
        reason = self._redact(error.message)
        invocation = self._invocation(subject, outcome, run, reason, gates)
        entries = []
        if outcome == "refused":
            kinds = ["gate-refused", "review"] if halts else ["gate-refused"]
            entries = [
                self._entry(kind, subject.dataset.id, subject, {"reason": reason, "policies": self._policies})
                for kind in kinds
            ]
        # Somebody who found another at work did nothing that needs a witness.
        known = self._known(subject, gates, run.revision if run else 0) if outcome != "busy" else None
        self._store.record_invocation(invocation, entries, known)
        raise TurnedAway(error, invocation, run)

    def _holder(self, scope: str) -> str:
        lock = self._store.lock(scope)
        return held_by(lock) if lock else ""

    # --- records ---------------------------------------------------------------------

    def _invocation(
        self,
        subject: Subject,
        outcome: InvocationOutcome | None,
        run: Run | None,
        reason: str,
        gates: tuple[GateResult, ...],
    ) -> Invocation:
        trigger = subject.trigger
        return Invocation(
            invocation_id=self._invocation_id,
            run_id=run.run_id if run else None,
            source_id=subject.source.id,
            dataset_id=subject.dataset.id,
            trigger_type="retry" if run and run.attempts > 1 and outcome is None else trigger.type,
            idempotency_key=run.idempotency_key if run else keys.trigger_key(trigger, subject.work),
            outcome=outcome,
            actor=trigger.actor,
            requested_at_ms=self._store.now_ms(),
            claimed_actor=trigger.claimed_actor,
            rationale=trigger.rationale,
            ticket=trigger.ticket,
            reason=reason,
            gates=gates,
        )

    def _known(self, subject: Subject, gates: tuple[GateResult, ...], revision: int) -> Circumstances:
        documents: dict[str, Any] = {"work": keys.work_document(subject.work, revision)}
        if keys.names_itself(subject.trigger):
            documents["trigger"] = keys.trigger_document(subject.trigger, subject.work, revision)
        if subject.trigger.envelope:
            documents["envelope"] = subject.trigger.envelope
        return Circumstances(gates=gates, policies=self._policies, key_documents=documents)

    def _entries(
        self, subject: Subject, run: Run, verdict: Verdict, decision: GateDecision
    ) -> tuple[GovernanceEntry, ...]:
        facts = {"reason": verdict.reason, "overridden": list(decision.overridden), "revision": run.revision}
        kinds = [
            *(["force"] if self._force else []),
            *(["correction"] if subject.trigger.correction and verdict.kind == "start" else []),
            *(["governed-retry"] if verdict.governed else []),
        ]
        if decision.approval:
            kinds.append("approved-attempt")
            facts["request_id"] = decision.approval[0]
        return tuple(self._entry(kind, run.run_id, subject, facts) for kind in kinds)

    def _entry(self, kind: str, about: str, subject: Subject, details: dict[str, object]) -> GovernanceEntry:
        return GovernanceEntry(
            kind=kind,
            subject=about,
            actor=subject.trigger.actor,
            recorded_at_ms=self._store.now_ms(),
            rationale=subject.trigger.rationale,
            ticket=subject.trigger.ticket,
            details={"invocation_id": self._invocation_id, "dataset_id": subject.dataset.id, **details},
        )


def look(store: LedgerReader, liveness: Liveness, subject: Subject) -> Verdict:
    """What this call means right now. Reads only: a dry-run asks the same function."""
    run = store.latest_run(subject.work_base)
    correction = subject.trigger.correction
    if correction is not None:
        corrected = store.run_of_correction(subject.work_base, correction)
        if corrected is not None and corrected.status == "success" and not subject.trigger.force:
            reason = f"Correction {correction} was applied as revision {corrected.revision}."
            return Verdict(kind="done", run=corrected, revision=corrected.revision, reason=reason)
    now_ms = store.now_ms()
    live = run is not None and any(
        is_live(lock, run, now_ms, liveness.is_dead(lock.holder.worker_id))
        for lock in store.locks()  # under whichever scope it began: the setting may have changed since
        if lock.holder is not None and lock.holder.run_id == run.run_id
    )
    state = store.retry_state(run.run_id) if run is not None and run.status != "success" else None
    return decide(run, subject.trigger, live=live, now_ms=now_ms, state=state)


def reopened(run: Run, why: str) -> Verdict:
    """The next revision of work that was done."""
    reason = f"{why.rstrip('.')}: revision {run.revision + 1} opens."
    return Verdict(kind="start", revision=run.revision + 1, reason=reason)


def unchanged(run: Run) -> str:
    return f"Upstream is unchanged since revision {run.revision}."


def held_by(lock: Lock) -> str:
    holder = lock.holder
    if holder is None:
        return f"{lock.scope} was just released."
    if lock.scope == "gc":
        return f"Garbage collection has been running since {rfc3339(lock.acquired_at_ms)}."
    return (
        f"{lock.scope} is held by run {holder.run_id} (worker {holder.worker_id}) "
        f"since {rfc3339(lock.acquired_at_ms)}; its lease ends {rfc3339(lock.lease_until_ms)}."
    )
