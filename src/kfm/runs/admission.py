"""Admission: subject, gates, circuit and lock decide on a request in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from msgspec.structs import replace

from kfm.model import keys
from kfm.model.approvals import attempt_digest, seen, usable, used_by
from kfm.model.breaker import providers_of
from kfm.model.errors import BudgetSpent, Busy, CircuitOpen, KfmError, LockHeld, LostLease, Refused
from kfm.model.gates import (
    HALTING_GATES,
    ForceRequest,
    GateDecision,
    combine,
    contract_gate,
    freeze_gate,
    refusal,
    rights_gate,
    switch_gate,
)
from kfm.model.next_steps import run_command
from kfm.model.quarantine import Approval, QuarantineEntry, RetryState, Waiting
from kfm.model.records import (
    GateResult,
    GovernanceEntry,
    Invocation,
    InvocationOutcome,
    Justification,
    Lock,
    Promotion,
    ReasonCode,
    Record,
    ReopenReason,
    Run,
    Trigger,
    ValidationReport,
    Window,
    Work,
    governance_entry,
)
from kfm.model.retry_budgets import grant_usage, granted, is_spent, may_be_granted
from kfm.model.runs import Admit, Circumstances, retried, started, taken_over
from kfm.model.settings import DatasetSettings, SourceSettings
from kfm.model.times import rfc3339
from kfm.ports import Liveness, PolicyEngine
from kfm.publish.manifest import merge_items
from kfm.runs.kernel import Kernel

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

APPROVALS_MAX = 1000  # of one piece of work
UPSTREAM_CHANGED = ReopenReason(code="upstream-changed", text="Upstream has changed.")
ROUNDS_MAX = 10  # how often the ledger may change between a decision and its commit


class RunSubject(Record, frozen=True):
    """What a request is about: source, dataset, window, work and trigger."""

    source: SourceSettings
    dataset: DatasetSettings
    window: Window
    work: Work
    work_base: str
    trigger: Trigger
    environment: str

    @property
    def scope(self) -> str:
        """The lock that this work takes."""
        if self.dataset.lock == "domain":
            return f"domain:{self.dataset.domain}"
        return f"dataset:{self.dataset.id}"

    def new_run(self, revision: int, now_ms: int) -> Run:
        """The row for one revision of the work, on its first attempt."""
        return started(
            self.trigger,
            self.work,
            environment=self.environment,
            revision=revision,
            pipeline_id=self.source.id,
            fence=0,
            now_ms=now_ms,
        )


def describe(
    source: SourceSettings,
    dataset: DatasetSettings,
    window: Window,
    output_version: str,
    trigger: Trigger,
    environment: str,
) -> RunSubject:
    work = Work(source_id=source.id, window=window, partition=source.partition, output_version=output_version)
    return RunSubject(
        source=source,
        dataset=dataset,
        window=window,
        work=work,
        work_base=keys.work_base(work),
        trigger=trigger,
        environment=environment,
    )


def forced(subject: RunSubject, number: int) -> RunSubject:
    """The same subject, requested with --force for the n-th time."""
    return replace(subject, trigger=replace(subject.trigger, force=number))


class AdmissionVerdict(Record, frozen=True):
    """What a request means now.

    start: a new revision · restart: the same run again · compare: with upstream first · done: nothing to do ·
    busy: another process runs it · stop: a person must give a rationale.
    """

    kind: Literal["start", "restart", "compare", "done", "busy", "stop"]
    code: ReasonCode
    reason: str
    revision: int = 0
    run: Run | None = None
    governed: bool = False  # past the budget, with a rationale and a ticket


def look(store: LedgerReader, liveness: Liveness, subject: RunSubject) -> AdmissionVerdict:
    """The decision on a request, from the ledger. Reads only: a dry-run calls the same function."""
    run = store.latest_run(subject.work_base)
    correction = subject.trigger.correction
    if correction is not None:
        corrected = store.run_of_correction(subject.work_base, correction)
        if corrected is not None and corrected.status == "success" and not subject.trigger.force:
            reason = f"Correction {correction} was applied as revision {corrected.revision}."
            return AdmissionVerdict(
                kind="done",
                code="correction-applied",
                run=corrected,
                revision=corrected.revision,
                reason=reason,
            )
    now_ms = store.now_ms()
    live = run is not None and any(
        is_live(lock, run, now_ms, liveness.is_dead(lock.holder.worker_id))
        for lock in store.locks()  # under whichever scope it began: the setting may have changed since
        if lock.holder is not None and lock.holder.run_id == run.run_id
    )
    state = store.retry_state(run.run_id) if run is not None and run.status != "success" else None
    return decide(run, subject.trigger, live=live, now_ms=now_ms, state=state)


def is_live(lock: Lock | None, run: Run, now_ms: int, dead: bool) -> bool:
    """Is the lock held for this run, with time left, by a process that is not known to be dead?"""
    return (
        lock is not None
        and lock.holder is not None
        and lock.holder.run_id == run.run_id
        and lock.lease_until_ms > now_ms
        and not dead
    )


def decide(
    run: Run | None, trigger: Trigger, *, live: bool, now_ms: int, state: RetryState | None = None
) -> AdmissionVerdict:
    if run is None:
        return AdmissionVerdict(kind="start", code="first-time", reason="This work has not been done yet.")
    if run.status == "running" and live:
        return AdmissionVerdict(kind="busy", code="running", run=run, reason="The same work is running.")
    if trigger.force:
        return _next(run, "forced", "Forced")
    if run.dataset_id != trigger.dataset_id:
        text = f"The source feeds {trigger.dataset_id} now, not {run.dataset_id}"
        return _next(run, "dataset-changed", text)
    if trigger.correction is not None and run.correction != trigger.correction:
        return _next(run, "correction", f"Correction {trigger.correction}")
    if run.status == "success":
        reason = f"Done as revision {run.revision}."
        return AdmissionVerdict(
            kind="compare", code="compared", run=run, revision=run.revision, reason=reason
        )
    return _again(run, trigger, now_ms, state)


def _next(run: Run, code: ReasonCode, why: str) -> AdmissionVerdict:
    """A new revision of the same work."""
    number = run.revision + 1
    reason = f"{why}: revision {number} opens."
    return AdmissionVerdict(kind="start", code=code, run=run, revision=number, reason=reason)


def _again(run: Run, trigger: Trigger, now_ms: int, state: RetryState | None) -> AdmissionVerdict:
    """A failed run, or one whose worker is gone: free within its budget, past it with a rationale."""
    code: ReasonCode = "attempt-failed" if run.status == "failed" else "attempt-interrupted"
    why = (
        f"Attempt {run.attempts} failed with {run.error_code}."
        if run.status == "failed"
        else f"Attempt {run.attempts} was interrupted."
    )
    if not is_spent(run, state, now_ms):
        return AdmissionVerdict(kind="restart", code=code, run=run, revision=run.revision, reason=why)
    if trigger.rationale and trigger.ticket and may_be_granted(run, state):
        return AdmissionVerdict(
            kind="restart",
            code="budget-spent",
            run=run,
            revision=run.revision,
            governed=True,
            reason=f"{why} Retried past its budget by {trigger.actor} ({trigger.ticket}).",
        )
    used = grant_usage(run, state)
    spent = f"{why} {used.attempts} attempts since {rfc3339(used.since_ms)} have used up its budget."
    if not may_be_granted(run, state):
        spent += f" It was granted {used.grants} times; only a new revision (--force) goes on."
    return AdmissionVerdict(kind="stop", code="budget-spent", run=run, revision=run.revision, reason=spent)


def reopened(run: Run, why: ReopenReason) -> AdmissionVerdict:
    """The next revision of work that was done."""
    reason = f"{why.text.rstrip('.')}: revision {run.revision + 1} opens."
    return AdmissionVerdict(kind="start", code=why.code, revision=run.revision + 1, reason=reason)


def unchanged(run: Run) -> ReopenReason:
    return ReopenReason(code="unchanged", text=f"Upstream is unchanged since revision {run.revision}.")


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
    described = merge_items(head[1], subject.dataset, (), "merge")
    if described != head[1]:
        return ReopenReason(
            code="description-changed", text="The dataset's description or rights have changed."
        )
    return None


def at_admission(kernel: Kernel, subject: RunSubject, *, dry_run: bool = False) -> GateDecision:
    """The gates of an admission. Reads only."""
    dataset, approval = subject.dataset, _usable(kernel, subject)
    results = [
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=False),
        _freezes(kernel, subject),
        rights_gate(dataset),
        *_policies(kernel, subject, "run", approval, dry_run),
    ]
    decision = combine(results, force_request(subject))
    return replace(decision, approval=(approval.request_id, approval.digest)) if approval else decision


def at_promotion(
    kernel: Kernel,
    subject: RunSubject,
    report: ValidationReport | None,
    *,
    run: Run | None = None,
    dry_run: bool = False,
) -> GateDecision:
    """The gates of a promotion, with the approval that the attempt used; in a dry-run with a usable one."""
    dataset = subject.dataset
    used = approval_of(kernel.ledger, run) if run is not None else _usable(kernel, subject)
    approval = _still(used, dataset, subject.work_base)
    results = [
        contract_gate(report),
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=True),
        _freezes(kernel, subject),
        rights_gate(dataset),
        *_policies(kernel, subject, "publish", approval, dry_run),
    ]
    return combine(results, force_request(subject))


def _freezes(kernel: Kernel, subject: RunSubject) -> GateResult:
    dataset, window = subject.dataset, subject.window
    work = run_command(subject.source.id, window.start_ms, window.end_ms)
    now_ms = kernel.ledger.now_ms()
    return freeze_gate(kernel.settings.freezes, dataset.id, dataset.domain, now_ms, work=work)


def at_projection(kernel: Kernel, dataset: DatasetSettings, head: Promotion) -> GateDecision:
    """May a target show this version now? Decided for the promotion's actor, with the reasons given then.

    Freezes are not checked: the promotion was allowed in one, or by force, and its targets belong to it.
    """
    run = kernel.ledger.run(head.run_id)
    entry = next(iter(kernel.ledger.governance(kind="promotion", subject=head.run_id, limit=1)), None)
    approval = _still(approval_of(kernel.ledger, run), dataset, run.work_base) if run else None
    context = facts(
        run.trigger_type if run else "manual",
        entry.rationale if entry else None,
        entry.ticket if entry else None,
        approval,
    )
    results = [
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=True),
        rights_gate(dataset),
        *kernel.policies.decide("publish", dataset, entry.actor if entry else "unknown", context),
    ]
    return combine(results)


def in_flight(ledger: LedgerReader, subject: RunSubject) -> GateDecision:
    """The switches alone: checked when the policy epoch has moved under a running run."""
    dataset = subject.dataset
    return combine([switch_gate(ledger.switches(), dataset.id, dataset.domain, in_flight=True)])


def beyond_approval(policies: PolicyEngine, dataset: DatasetSettings, actor: str) -> GateResult | None:
    """The gate that would refuse work on this dataset also with an approval; None: no gate."""
    context = {
        "trigger": "manual",
        "rationale": "asked for",
        "ticket": "asked for",
        "approvals": [dataset.id],
        "halted": False,
        "is_dry_run": False,
    }
    for action in ("run", "publish"):
        for result in policies.decide(action, dataset, actor, context):
            if not result.allowed and result.gate in HALTING_GATES:
                return result
    return None


def force_request(subject: RunSubject) -> ForceRequest | None:
    trigger = subject.trigger
    if not trigger.force:
        return None
    return ForceRequest(actor=trigger.actor, rationale=trigger.rationale, ticket=trigger.ticket)


def _context(
    subject: RunSubject, approval: Approval | None, halted: QuarantineEntry | None, dry_run: bool
) -> dict[str, Any]:
    """The context of the policies, and the names that complete the command of a rule's remedy."""
    trigger, window = subject.trigger, subject.window
    named = {
        "source": subject.source.id,
        "window": f"{rfc3339(window.start_ms)}/{rfc3339(window.end_ms)}",
        **({"held": halted.held_id} if halted is not None else {}),
    }
    known = facts(trigger.type, trigger.rationale, trigger.ticket, approval, halted is not None, dry_run)
    return {**known, "named": named}


def facts(
    trigger_type: str,
    rationale: str | None,
    ticket: str | None,
    approval: Approval | None = None,
    halted: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    return {
        "trigger": trigger_type,
        "rationale": rationale or "",
        "ticket": ticket or "",
        "approvals": [approval.dataset_id] if approval is not None else [],
        "halted": halted,
        "is_dry_run": dry_run,
    }


def _usable(kernel: Kernel, subject: RunSubject) -> Approval | None:
    """A second person's approval of one attempt at exactly this work, not yet used."""
    known = kernel.ledger.approvals(state="approved", subject=subject.work_base, limit=APPROVALS_MAX)
    if not known:
        return None
    return usable(known, attempt_digest(subject.dataset, subject.work_base), kernel.ledger.now_ms())


def approval_of(ledger: LedgerReader, run: Run) -> Approval | None:
    """The approval under which the present attempt of this run was begun, if it needed one."""
    return used_by(ledger.approvals(state="approved", subject=run.work_base, limit=APPROVALS_MAX), run)


def _still(approval: Approval | None, dataset: DatasetSettings, work_base: str) -> Approval | None:
    """The approval, if the rights are still those that it was given for."""
    if approval is None or approval.digest != attempt_digest(dataset, work_base):
        return None
    return approval


def _policies(
    kernel: Kernel, subject: RunSubject, action: str, approval: Approval | None, dry_run: bool
) -> list[GateResult]:
    dataset = subject.dataset
    halted = kernel.ledger.halted(dataset.id)
    context = _context(subject, approval, halted, dry_run)
    results = kernel.policies.decide(action, dataset, subject.trigger.actor, context)
    return [*results, seen(approval)] if approval is not None else results


class Admitted(Record, frozen=True):
    """The invocation has a run, and holds its lock."""

    subject: RunSubject
    run: Run
    invocation: Invocation
    policy_epoch: int
    reason: str
    known: Circumstances


class AlreadyDone(Record, frozen=True):
    """The invocation needs no run: the work is done."""

    subject: RunSubject
    run: Run
    invocation: Invocation
    reason: str


class NotAdmitted(Exception):
    """The invocation was refused, found the work busy, or could not be decided; it is on record."""

    def __init__(self, error: KfmError, invocation: Invocation, run: Run | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.invocation = invocation
        self.run = run


class Admission:
    """The admission of one invocation."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        fingerprint: Callable[[], str],
        force: bool = False,
        due: Waiting | None = None,
    ) -> None:
        self._kernel = kernel
        self._store = kernel.store
        self._invocation_id = kernel.ids.new()
        self._policies = kernel.policies.bundle_id  # in force while this is decided
        self._fingerprint = fingerprint  # of upstream now; read only where it decides
        self._force = force
        self._due = due  # an automatic attempt: of this run, after this attempt, or not at all

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
        if self._force:
            subject = forced(subject, self._store.forces(subject.work_base) + 1)
        epoch = self._store.policy_epoch()
        verdict = look(self._store, self._kernel.liveness, subject)
        if verdict.kind == "busy":
            assert verdict.run is not None
            self._not_admitted(subject, "busy", LockHeld(self._holder(subject.scope)), run=verdict.run)
        self._refuse_overtaken(subject, verdict)
        decision = at_admission(self._kernel, subject)
        if not decision.allowed:
            self._not_admitted(
                subject, "refused", refusal(decision), gates=decision.results, halts=decision.halts
            )
        if verdict.kind == "stop":
            self._not_admitted(subject, "refused", BudgetSpent(verdict.reason), run=verdict.run)
        if verdict.kind == "done":
            assert verdict.run is not None
            why = ReopenReason(code=verdict.code, text=verdict.reason)
            return self._already_done(subject, verdict.run, decision, why)
        self._require_providers(subject, verdict)
        if verdict.kind == "compare":
            assert verdict.run is not None
            changed: ReopenReason | None = UPSTREAM_CHANGED
            if self._compared(subject, verdict.run) == verdict.run.fingerprint:
                changed = unsettled(self._kernel.ledger, subject, verdict.run)
            if changed is None:
                return self._already_done(subject, verdict.run, decision, unchanged(verdict.run))
            verdict = reopened(verdict.run, changed)
        return self._commit(subject, verdict, decision, epoch)

    def _refuse_overtaken(self, subject: RunSubject, verdict: AdmissionVerdict) -> None:
        """A due retry is made once: a later process finds another attempt, and makes none."""
        if self._due is None:
            return
        run, seen = verdict.run, self._due.run
        same = run is not None and (run.run_id, run.attempts) == (seen.run_id, seen.attempts)
        if not same or verdict.kind not in ("restart", "stop"):
            error = Busy(
                f"Run {seen.run_id} was retried by another process.", remedy="Nothing is left to do."
            )
            self._not_admitted(subject, "busy", error, run=run)

    def _require_providers(self, subject: RunSubject, verdict: AdmissionVerdict) -> None:
        """Nothing begins while a provider's circuit is open: no run, no key, no attempt."""
        providers = self._kernel.providers
        try:
            if providers is not None:
                providers.ask(providers_of(subject.source, self._kernel.settings.source))
        except CircuitOpen as error:
            same = verdict.kind in ("restart", "compare")
            self._not_admitted(subject, "failed", error, run=verdict.run if same else None)

    def _compared(self, subject: RunSubject, run: Run) -> str:
        """Upstream's fingerprint now; where it can't be read, the invocation fails on record."""
        try:
            return self._fingerprint()
        except KfmError as error:
            self._not_admitted(subject, "failed", error, run=run)

    def _commit(
        self, subject: RunSubject, verdict: AdmissionVerdict, decision: GateDecision, epoch: int
    ) -> Admitted | None:
        now_ms = self._store.now_ms()
        if verdict.kind == "restart":
            assert verdict.run is not None
            seen: Run | None = verdict.run
            again = retried if verdict.run.status == "failed" else taken_over
            run = again(verdict.run, fence=verdict.run.fence + 1)  # at least; the lock decides
        else:
            seen, run = None, subject.new_run(verdict.revision, now_ms)
        why = ReopenReason(code=verdict.code, text=verdict.reason)
        invocation = self._invocation(subject, None, run, why.text, why.code, decision.results)
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
                worker_id=self._kernel.worker_id,
                lease_ms=self._kernel.lease_ms,
                invocation=invocation,
                policy_epoch=epoch,
                entries=entries,
                known=known,
                grant=grant,
                approval=decision.approval or None,
                claim=self._kernel.claim,
            ),
            self._kernel.liveness.is_dead,
        )
        if admitted.answer == "unclaimed":
            self._not_admitted(
                subject, "busy", LostLease("The request has passed to another runner, or is done.")
            )
        if admitted.answer == "locked":
            assert admitted.lock is not None
            self._not_admitted(subject, "busy", LockHeld(held_by(admitted.lock)))
        if admitted.answer != "admitted":
            return None
        assert admitted.run is not None
        return Admitted(
            subject=subject,
            run=admitted.run,
            invocation=invocation,
            policy_epoch=epoch,
            reason=verdict.reason,
            known=known,
        )

    # --- without a run ---------------------------------------------------------------

    def _already_done(
        self, subject: RunSubject, run: Run, decision: GateDecision, why: ReopenReason
    ) -> AlreadyDone:
        invocation = self._invocation(subject, "noop", run, why.text, why.code, decision.results)
        self._store.record_invocation(invocation)
        return AlreadyDone(subject=subject, run=run, invocation=invocation, reason=why.text)

    def _not_admitted(
        self,
        subject: RunSubject,
        outcome: InvocationOutcome,
        error: KfmError,
        *,
        run: Run | None = None,
        gates: tuple[GateResult, ...] = (),
        halts: bool = False,
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
        raise NotAdmitted(error, invocation, run)

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
        )

    def _known(self, subject: RunSubject, gates: tuple[GateResult, ...], revision: int) -> Circumstances:
        documents: dict[str, Any] = {"work": keys.work_document(subject.work, revision)}
        if keys.names_itself(subject.trigger):
            documents["trigger"] = keys.trigger_document(subject.trigger, subject.work, revision)
        if subject.trigger.envelope:
            documents["envelope"] = subject.trigger.envelope
        return Circumstances(gates=gates, policies=self._policies, key_documents=documents)

    def _entries(
        self, subject: RunSubject, run: Run, verdict: AdmissionVerdict, decision: GateDecision
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

    def _entry(
        self, kind: str, about: str, subject: RunSubject, details: dict[str, object]
    ) -> GovernanceEntry:
        facts = {"invocation_id": self._invocation_id, "dataset_id": subject.dataset.id, **details}
        return trigger_entry(subject.trigger, kind, about, self._store.now_ms(), facts)


def trigger_entry(
    trigger: Trigger, kind: str, about: str, at_ms: int, details: Mapping[str, object]
) -> GovernanceEntry:
    """The governance entry of something that a trigger led to."""
    by = Justification(actor=trigger.actor, rationale=trigger.rationale, ticket=trigger.ticket)
    return governance_entry(kind, about, at_ms, by, **details)


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
