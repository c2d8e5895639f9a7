"""Admission: facts for the decision on a request, and the transaction that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from kfm.model import keys
from kfm.model.admission import Asked, CircuitWait, StartDecision, StartFacts, may_start
from kfm.model.arrival import not_yet_error
from kfm.model.breaker import providers_of
from kfm.model.errors import (
    BudgetSpent,
    Busy,
    CircuitOpen,
    DataNotYet,
    KfmError,
    LockHeld,
    LostLease,
    PersonNeeded,
    Refused,
    WaitsUntil,
    WorkQuarantined,
)
from kfm.model.gates import (
    GateDecision,
    refusal,
)
from kfm.model.input_hash import fingerprint as fingerprint_of
from kfm.model.quarantine import RetryState
from kfm.model.records import (
    GateResult,
    GovernanceEntry,
    Invocation,
    InvocationOutcome,
    Justification,
    Lock,
    Record,
    ReopenReason,
    Run,
    Trigger,
    governance_entry,
)
from kfm.model.requests import NOT_YET, SYNCHRONOUS, TOGETHER, UpdateRequest, synchronous_key
from kfm.model.retry_budgets import granted, limits_of
from kfm.model.runs import Admit, AdmitResult, Circumstances, retried, taken_over
from kfm.model.settings import NotYet
from kfm.model.times import rfc3339
from kfm.publish.manifest import header, of_window, same_contents
from kfm.runs import plan as plans
from kfm.runs.gates import at_admission, is_shown
from kfm.runs.kernel import Kernel
from kfm.runs.subjects import RunSubject, Start, asked_for, forced, key_documents

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.versions import Version

CIRCUIT_MS = 2_000  # a circuit that opens again at once is not asked at once
ROUNDS_MAX = 10  # how often the ledger may change between a decision and its commit


def facts_of_run(kernel: Kernel, subject: RunSubject, run: Run | None, gates: GateDecision) -> StartFacts:
    """What the ledger knows about the newest run of the work. Reads only, as in a dry-run."""
    ledger, correction = kernel.ledger, subject.trigger.correction
    corrected = ledger.run_of_correction(subject.work_base, correction) if correction is not None else None
    limits = limits_of(kernel.settings, subject.source.id)
    if run is None or run.status == "success":
        return StartFacts(gates=gates, corrected=corrected, limits=limits)
    now_ms = ledger.now_ms()
    return StartFacts(
        gates=gates,
        corrected=corrected,
        limits=limits,
        is_live=any(
            is_live(lock, run, now_ms, kernel.liveness.is_dead(lock.holder.worker_id))
            for lock in ledger.locks()  # under whichever scope it began: the setting may have changed since
            if lock.holder is not None and lock.holder.run_id == run.run_id
        ),
        state=ledger.retry_state(run.run_id),
        acts=ledger.acts(run.run_id),
        idempotent=subject.source.idempotent,
        bound=ledger.request_reader().bound_to(run.run_id),
        next_run_ms=_overtaking_ms(kernel, run),
    )


def _overtaking_ms(kernel: Kernel, run: Run) -> int | None:
    """When its schedule begins the next run, if an attempt that begins now would still be at work then; the
    last attempt says how long that takes."""
    if run.trigger_type != "cron" or (next_ms := kernel.next_scheduled_ms(run)) is None:
        return None
    whole = [
        one for one in kernel.ledger.attempts(run.run_id) if not one.node and one.ended_at_ms is not None
    ]
    lasts_ms = max(0, (whole[-1].ended_at_ms or 0) - whole[-1].started_at_ms) if whole else 0
    return next_ms if kernel.ledger.now_ms() + lasts_ms >= next_ms else None


def is_live(lock: Lock | None, run: Run, now_ms: int, dead: bool) -> bool:
    """Is the lock held for this run, with time left, by a process that is not known to be dead?"""
    return (
        lock is not None
        and lock.holder is not None
        and lock.holder.run_id == run.run_id
        and lock.lease_until_ms > now_ms
        and not dead
    )


def unsettled(ledger: LedgerReader, subject: RunSubject, run: Run) -> ReopenReason | None:
    """Why the work has to run although upstream is unchanged; None if it has not."""
    newest = ledger.latest_success(subject.work)
    if newest is not None and newest.run_id != run.run_id:
        text = f"Pipeline version {newest.pipeline_version} has published this window since."
        return ReopenReason(code="other-pipeline-published", text=text)
    head = ledger.head(subject.dataset.id)
    if head is None:
        missing = ReopenReason(code="not-published", text="Nothing of this dataset is published.")
        return missing if run.version_id else None
    if subject.source.mode == "replace" and run.version_id and not is_shown(ledger, head, run):
        return ReopenReason(code="not-shown", text="The dataset shows another window.")
    changed = _changed_by_person(ledger, head[1], subject, run)
    if changed is not None:
        return ReopenReason(code="not-published", text=changed)
    if header(subject.dataset, head[1].dataset_id) != head[1].header:
        return ReopenReason(
            code="description-changed", text="The dataset's description or rights have changed."
        )
    return None


def _changed_by_person(ledger: LedgerReader, head: Version, subject: RunSubject, run: Run) -> str | None:
    """Does a person's change show something else, or nothing, in the place of what this run published?"""
    changed = ledger.change_reader().newest(subject.dataset.id) if run.version_id else None
    if changed is None or subject.source.mode == "replace" or (run.end_time_ms or 0) > changed[1]:
        return None
    published = ledger.version(run.version_id or "")
    shown, was = (
        of_window(each, subject.source.id, subject.window) if each is not None else []
        for each in (head, published)
    )
    if was and not shown:
        return "A rollback or withdrawal has removed it since."
    return None if same_contents(shown, was) else "Since a rollback the dataset shows something else."


def may_be_to_come(subject: RunSubject, run: Run | None) -> bool:
    """May upstream's answer mean that the data has not come yet? Not where a run has found some."""
    if not subject.source.not_yet or subject.trigger.force:
        return False
    return run is None or run.status != "success" or run.fingerprint == fingerprint_of(())


class Admitted(Record, frozen=True):
    """The invocation has a run, and holds its lock."""

    subject: RunSubject
    run: Run
    invocation: Invocation
    policy_epoch: int
    reason: str
    known: Circumstances
    request_id: str  # that the attempt is for


class Proposal(Record, frozen=True):
    """A run that may begin, and the transaction that begins it."""

    subject: RunSubject
    admit: Admit
    reason: str


class AlreadyDone(Record, frozen=True):
    """The invocation needs no run: the work is done."""

    subject: RunSubject
    run: Run
    invocation: Invocation
    reason: str


class NotAdmitted(Exception):
    """The invocation was refused, waits, found the work busy or done, or could not be decided."""

    def __init__(
        self,
        error: KfmError,
        invocation: Invocation | None = None,
        run: Run | None = None,
        decision: StartDecision | None = None,
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.invocation = invocation  # None: a request that waits, which is on record itself
        self.run = run
        self.decision = decision


class Admission:
    """The admission of one invocation."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        fingerprint: Callable[[], str],
        start: Start,
        not_yet: Callable[[], tuple[NotYet, int] | None] = lambda: None,
    ) -> None:
        self._kernel = kernel
        self._store = kernel.store
        self._invocation_id = kernel.ids.new()
        self._policies = kernel.policies.bundle_id  # in force while this is decided
        self._fingerprint = fingerprint  # of upstream now; read only where it decides
        # Upstream's answer, if it means that the data has not come yet, and until when it is asked for then.
        self._not_yet = not_yet
        self._start = start

    def admit(self, subject: RunSubject) -> Admitted | AlreadyDone:
        """Decide, and commit the decision; NotAdmitted where no run may begin."""
        for _ in range(ROUNDS_MAX):
            answer = self._once(subject)
            if answer is not None:
                return answer
        raise Busy("The ledger kept changing while this invocation was being decided.")

    def refuse(self, subject: RunSubject, error: Refused) -> NoReturn:
        """Record a refusal for a reason that the executor has found."""
        self._not_admitted(subject, "refused", error)

    def _once(self, subject: RunSubject) -> Admitted | AlreadyDone | None:
        """One decision and one try to commit it; None if the ledger changed in between."""
        proposed = self.propose(subject)
        if isinstance(proposed, AlreadyDone):
            return proposed
        answer = self._store.admit(proposed.admit, self._kernel.liveness.is_dead)
        return self.admitted(proposed, answer, answer.run)

    def propose(self, subject: RunSubject) -> Proposal | AlreadyDone:
        """Decide; NotAdmitted where no run may begin."""
        if self._start.force:
            subject = forced(subject, self._store.forces(subject.work_base) + 1)
        epoch = self._store.policy_epoch()
        gates = at_admission(self._kernel, subject, request=self._start.request)
        decision, judged = self._decided(subject, gates)
        if decision.kind == "duplicate":
            assert decision.run is not None
            return self._already_done(subject, decision, gates)
        if decision.kind != "admitted":
            self._refused_or_put_off(subject, decision, gates)
        return self._proposal(subject, decision, gates, epoch, judged)

    def _decided(self, subject: RunSubject, gates: GateDecision) -> tuple[StartDecision, RetryState | None]:
        """The decision, and what was decided before about the run's last attempt."""
        store, asked = self._store, asked_for(subject, self._start)
        run = store.latest_run(subject.work_base)
        facts = facts_of_run(self._kernel, subject, run, gates)
        decision = may_start(asked, run, facts, store.now_ms())
        if decision.kind in ("admitted", "compare"):
            facts = replace(facts, circuit=self._circuit(subject, asked, decision))
            decision = may_start(asked, run, facts, store.now_ms())
        if decision.kind in ("admitted", "compare") and may_be_to_come(subject, run):
            self._require_arrival(subject, decision)
        if decision.kind == "compare" and run is not None:
            facts = compared(self._kernel.ledger, subject, run, facts, self._compared(subject, run))
            decision = may_start(asked, run, facts, store.now_ms())
        return decision, facts.state

    def _circuit(self, subject: RunSubject, asked: Asked, decision: StartDecision) -> CircuitWait | None:
        """Nothing begins while a provider's circuit is open, and after an outage not all at once."""
        providers = self._kernel.providers
        if providers is None:
            return None
        wanted, now_ms = providers_of(subject.source, self._kernel.settings.source), self._store.now_ms()
        at_ms = providers.released_ms(wanted, asked.name) if asked.can_wait else 0
        if at_ms > now_ms:
            return CircuitWait(provider=wanted[0], until_ms=at_ms)
        try:
            providers.ask(wanted)
        except CircuitOpen as error:
            if not asked.can_wait:
                same = decision.run is not None and decision.revision == decision.run.revision
                self._not_admitted(subject, "failed", error, run=_concerned(decision.run) if same else None)
            return CircuitWait(
                provider=str(error.facts.get("provider") or wanted[0]),
                until_ms=now_ms + max(error.facts.get("wait_ms", 0), CIRCUIT_MS),
            )
        return None

    def _compared(self, subject: RunSubject, run: Run) -> str:
        """Upstream's fingerprint now; where it can't be read, the invocation fails on record."""
        try:
            return self._fingerprint()
        except KfmError as error:
            self._not_admitted(subject, "failed", error, run=_concerned(run))

    def _require_arrival(self, subject: RunSubject, decision: StartDecision) -> None:
        """Data that has not come yet begins no run: what asked for it waits; a call that can't is told."""
        answered = self._not_yet()
        if answered is None:
            return
        (answer, until_ms), request, now_ms = answered, self._start.request, self._store.now_ms()
        since_ms = request.accepted_at_ms if request is not None else now_ms
        error = not_yet_error(answer, since_ms, now_ms, until_ms, self._kernel.rng.unit())
        if request is not None:
            raise NotAdmitted(error, run=decision.run)
        if isinstance(error, DataNotYet):
            self._wait_for(subject, error, now_ms)
        self._not_admitted(subject, "busy", error)  # nothing failed: the window has no data

    def _wait_for(self, subject: RunSubject, error: DataNotYet, now_ms: int) -> None:
        """The call leaves a request that asks again, unless one does already."""
        requests, window = self._store.requests(), subject.window
        if requests.is_asked_for(subject.source.id, "", window.start_ms, window.end_ms):
            return
        run = subject.new_run(0, now_ms)
        requests.accept(
            [
                replace(
                    self._synchronous(subject, run, now_ms),
                    state="open",
                    run_id=None,
                    claimed_by=None,
                    claim_until_ms=0,
                    tries=0,
                    tried_at_ms=None,
                    details={},
                    not_before_ms=error.facts["not_before_ms"],
                    blocked_by=NOT_YET,
                    reason=self._kernel.redact(error.message),
                )
            ]
        )

    def _refused_or_put_off(
        self, subject: RunSubject, decision: StartDecision, gates: GateDecision
    ) -> NoReturn:
        error = error_of(decision, gates, lambda: self._holder(subject.scope))
        outcome: InvocationOutcome = "refused" if decision.kind == "refused" else "busy"
        if decision.kind == "waits" and self._start.request is not None:
            raise NotAdmitted(error, run=decision.run, decision=decision)
        results = gates.results if decision.blocked_by.startswith("gate:") else ()
        halts = gates.halts and bool(results)
        self._not_admitted(
            subject, outcome, error, run=decision.run, gates=results, halts=halts, decision=decision
        )

    def _proposal(
        self,
        subject: RunSubject,
        decision: StartDecision,
        gates: GateDecision,
        epoch: int,
        judged: RetryState | None,
    ) -> Proposal:
        now_ms, start = self._store.now_ms(), self._start
        seen: Run | None = None
        if decision.how == "restart":
            assert decision.run is not None
            seen = decision.run
            again = retried if seen.status == "failed" else taken_over
            run = again(seen, fence=seen.fence + 1)  # at least; the lock decides
        else:
            run = subject.new_run(decision.revision, now_ms)
        invocation = self._invocation(subject, None, run, decision.reason, decision.code, gates.results)
        entries = self._entries(subject, run, decision, gates)
        known = self._known(subject, gates.results, run.revision, seen)
        asked = self._synchronous(subject, run, now_ms) if start.request is None else None
        plan = start.plan if asked is not None else None
        admit = Admit(
            run=run,
            seen=seen,
            scope=subject.scope,
            worker_id=self._kernel.worker_id,
            lease_ms=self._kernel.lease_ms,
            invocation=invocation,
            policy_epoch=epoch,
            entries=entries,
            known=known,
            judged=judged,
            grant=self._grant(decision, seen, now_ms),
            approval=gates.approval or None,
            claim=self._claim(),
            asked=asked,
            plan=(plan.header.digest, plans.write(plan).decode()) if plan is not None else None,
        )
        return Proposal(subject=subject, admit=admit, reason=decision.reason)

    def admitted(self, proposed: Proposal, admitted: AdmitResult, run: Run | None) -> Admitted | None:
        """What the transaction has answered: with the run's row, if it has begun; None: decide anew."""
        subject, admit = proposed.subject, proposed.admit
        if admitted.answer == "unclaimed":
            self._not_admitted(
                subject, "busy", LostLease("The request has passed to another runner, is cancelled or done.")
            )
        if admitted.answer == "locked":
            assert admitted.lock is not None
            self._not_admitted(subject, "busy", LockHeld(held_by(admitted.lock)))
        if admitted.answer != "admitted":
            return None
        assert run is not None
        return Admitted(
            subject=subject,
            run=run,
            invocation=admit.invocation,
            policy_epoch=admit.policy_epoch,
            reason=proposed.reason,
            known=admit.known,
            request_id=(self._start.request or admit.asked).request_id,  # type: ignore[union-attr]
        )

    def _claim(self) -> tuple[str, str] | None:
        request = self._start.request
        return (request.request_id, request.claimed_by or "") if request is not None else None

    def _grant(self, decision: StartDecision, seen: Run | None, now_ms: int) -> RetryState | None:
        if not decision.grant or seen is None:
            return None
        fingerprint = self._fingerprint() if decision.grant == "inputs" else None  # read before: kept
        return granted(seen, self._store.retry_state(seen.run_id), now_ms, fingerprint=fingerprint)

    def _synchronous(self, subject: RunSubject, run: Run, now_ms: int) -> UpdateRequest:
        """The request of a run that its own process asks for: it exists with the run, and is claimed."""
        start, trigger, key = self._start, subject.trigger, synchronous_key(self._invocation_id)
        return UpdateRequest(
            request_id=keys.request_id(key),
            key=key,
            kind="manual" if trigger.type == "retry" else trigger.type,
            source_id=subject.source.id,
            dataset_id=subject.dataset.id,
            window_start_ms=subject.window.start_ms,
            window_end_ms=subject.window.end_ms,
            actor=trigger.actor,
            accepted_at_ms=now_ms,
            claimed_actor=trigger.claimed_actor,
            rationale=trigger.rationale,
            ticket=trigger.ticket,
            correction=trigger.correction,
            request_uuid=trigger.request_uuid,
            state="running",
            run_id=run.run_id,
            plan_digest=start.binds,
            is_bound=start.binds is not None,
            by_person=start.by_person,
            claimed_by=self._kernel.worker_id,
            claim_until_ms=now_ms + self._kernel.lease_ms,
            tries=1,
            tried_at_ms=now_ms,
            details={SYNCHRONOUS: True, **({TOGETHER: start.together} if start.together else {})},
        )

    # --- without a run ---------------------------------------------------------------

    def _already_done(self, subject: RunSubject, decision: StartDecision, gates: GateDecision) -> AlreadyDone:
        run = decision.run
        assert run is not None
        invocation = self._invocation(subject, "noop", run, decision.reason, decision.code, gates.results)
        self._store.record_invocation(invocation)
        return AlreadyDone(subject=subject, run=run, invocation=invocation, reason=decision.reason)

    def _not_admitted(
        self,
        subject: RunSubject,
        outcome: InvocationOutcome,
        error: KfmError,
        *,
        run: Run | None = None,
        gates: tuple[GateResult, ...] = (),
        halts: bool = False,
        decision: StartDecision | None = None,
    ) -> NoReturn:
        reason = self._kernel.redact(error.message)
        invocation = self._invocation(subject, outcome, run, reason, error.code, gates)
        entries = []
        if outcome == "refused":
            kinds = ["gate-refused", "review"] if halts else ["gate-refused"]
            entries = [
                self._entry(kind, subject.dataset.id, subject, {"reason": reason, "policies": self._policies})
                for kind in kinds
            ]
        # An invocation that found its run busy did nothing that needs a lineage event.
        known = self._known(subject, gates, run.revision if run else 0) if outcome != "busy" else None
        self._store.record_invocation(invocation, entries, known)
        raise NotAdmitted(error, invocation, run, decision)

    def _holder(self, scope: str) -> str:
        lock = self._store.lock(scope)
        return held_by(lock) if lock else ""

    # --- records ---------------------------------------------------------------------

    def _invocation(
        self,
        subject: RunSubject,
        outcome: InvocationOutcome | None,
        run: Run | None,
        reason: str,
        code: str,
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
            reason_code=code,
            gates=gates,
            window_start_ms=subject.window.start_ms,
            window_end_ms=subject.window.end_ms,
        )

    def _known(
        self, subject: RunSubject, gates: tuple[GateResult, ...], revision: int, begun: Run | None = None
    ) -> Circumstances:
        documents = key_documents(self._store, subject, revision, begun)
        return Circumstances(gates=gates, policies=self._policies, key_documents=documents)

    def _entries(
        self, subject: RunSubject, run: Run, decision: StartDecision, gates: GateDecision
    ) -> tuple[GovernanceEntry, ...]:
        facts = {"reason": decision.reason, "overridden": list(gates.overridden), "revision": run.revision}
        kinds = [
            *(["force"] if self._start.force else []),
            *(["correction"] if subject.trigger.correction and decision.how == "start" else []),
            *(["governed-retry"] if decision.grant == "governed" else []),
        ]
        if gates.approval:
            kinds.append("approved-attempt")
            facts["request_id"] = gates.approval[0]
        return tuple(self._entry(kind, run.run_id, subject, facts) for kind in kinds)

    def _entry(
        self, kind: str, about: str, subject: RunSubject, details: dict[str, object]
    ) -> GovernanceEntry:
        facts = {"invocation_id": self._invocation_id, "dataset_id": subject.dataset.id, **details}
        return trigger_entry(subject.trigger, kind, about, self._store.now_ms(), facts)


def _concerned(run: Run | None) -> Run | None:
    """The run that a failure before the next attempt belongs to: not one that has succeeded before."""
    return None if run is None or run.status == "success" else run


def trigger_entry(
    trigger: Trigger, kind: str, about: str, at_ms: int, details: Mapping[str, object]
) -> GovernanceEntry:
    """The governance entry of something that a trigger led to."""
    by = Justification(actor=trigger.actor, rationale=trigger.rationale, ticket=trigger.ticket)
    return governance_entry(kind, about, at_ms, by, **details)


def compared(
    ledger: LedgerReader, subject: RunSubject, run: Run, facts: StartFacts, fingerprint: str
) -> StartFacts:
    """The facts, once upstream's fingerprint is known."""
    same = run.status == "success" and fingerprint == run.fingerprint
    return replace(facts, fingerprint=fingerprint, reopens=unsettled(ledger, subject, run) if same else None)


def error_of(decision: StartDecision, gates: GateDecision, holder: Callable[[], str]) -> KfmError:
    """The error that tells a person of a decision against a start."""
    if decision.kind == "busy":
        return LockHeld(holder())
    if decision.kind == "waits":
        return WaitsUntil(decision.reason, not_before_ms=decision.until_ms, blocked_by=decision.blocked_by)
    if decision.blocked_by.startswith("gate:"):
        return refusal(gates)
    kinds: dict[str, type[Refused]] = {"acts": PersonNeeded, "quarantine": WorkQuarantined}
    return kinds.get(decision.blocked_by, BudgetSpent)(decision.reason)


def held_by(lock: Lock) -> str:
    holder = lock.holder
    if holder is None:
        return f"{lock.scope} was just released."
    if lock.scope == "gc":
        since = rfc3339(lock.acquired_at_ms)
        return f"Garbage collection is under way, or waits for runs in progress to end, since {since}."
    if lock.scope == "retention":
        return f"Old rows have been going by retention since {rfc3339(lock.acquired_at_ms)}."
    return (
        f"{lock.scope} is held by run {holder.run_id} (worker {holder.worker_id}) "
        f"since {rfc3339(lock.acquired_at_ms)}; its lease ends {rfc3339(lock.lease_until_ms)}."
    )
