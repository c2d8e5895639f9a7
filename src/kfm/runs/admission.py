"""Admission: facts for the decision on a request, and the transaction that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import UNSET
from msgspec.structs import replace

from kfm.model import keys
from kfm.model.admission import Asked, CircuitWait, StartDecision, StartFacts, may_start
from kfm.model.approvals import (
    assumed,
    attempt_digest,
    holds,
    is_required,
    missing,
    names_of,
    seen,
    standing,
    standing_digest,
    terms_of,
    usable,
)
from kfm.model.arrival import not_yet_error
from kfm.model.breaker import providers_of
from kfm.model.dataset_names import owner_of
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
    HALTING_GATES,
    ForceRequest,
    GateDecision,
    combine,
    contract_gate,
    freeze_gate,
    length_gates,
    name_gates,
    refusal,
    rights_gate,
    switch_gate,
    undeclared_gate,
    window_gate,
    withdrawal_gates,
)
from kfm.model.input_hash import fingerprint as fingerprint_of
from kfm.model.next_steps import run_command, window_text
from kfm.model.quarantine import Approval, QuarantineEntry, RetryState
from kfm.model.records import (
    GateResult,
    GovernanceEntry,
    Invocation,
    InvocationOutcome,
    Justification,
    Lock,
    Promotion,
    Record,
    ReopenReason,
    Run,
    Trigger,
    ValidationReport,
    Window,
    Work,
    governance_entry,
)
from kfm.model.requests import NOT_YET, SYNCHRONOUS, TOGETHER, UpdateRequest, synchronous_key
from kfm.model.retry_budgets import granted, limits_of
from kfm.model.runs import Admit, AdmitResult, Circumstances, retried, started, taken_over
from kfm.model.settings import DatasetSettings, NotYet, SourceSettings
from kfm.model.times import rfc3339
from kfm.model.window_rules import merges_windows, spans_of
from kfm.model.windows import SNAPSHOT
from kfm.ports import PolicyEngine
from kfm.publish.manifest import header, of_source, of_window, same_contents, shows
from kfm.runs import plan as plans
from kfm.runs.kernel import Kernel
from kfm.runs.plan import RunPlan

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.versions import Version

APPROVALS_MAX = 1000  # of one piece of work
NEWER_MAX = 20  # successful runs for newer windows that are looked at, the newest first
CIRCUIT_MS = 2_000  # a circuit that opens again at once is not asked at once
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


def key_documents(
    ledger: LedgerReader, subject: RunSubject, revision: int, begun: Run | None = None
) -> dict[str, Any]:
    """What the keys of a run are made of; of a run that has begun, as its first attempt kept it."""
    documents: dict[str, Any] = {"work": keys.work_document(subject.work, revision)}
    kept = ledger.run_documents(begun.run_id) if begun is not None else None
    if kept is not None:
        return documents | kept
    trigger = subject.trigger
    if keys.names_itself(trigger):
        named = keys.trigger_document(trigger, subject.work, revision)
        # Runs of earlier versions kept none: what asks now may be another trigger than theirs.
        if begun is None or keys.key_of(named) == begun.idempotency_key:
            documents["trigger"] = named
            if trigger.envelope:
                documents["envelope"] = trigger.envelope
    return documents


class Start(Record, frozen=True):
    """How a run is asked for."""

    request: UpdateRequest | None = None  # stored and claimed; None: asked for by its own process, at once
    by_person: bool = False
    force: bool = False
    plan: RunPlan | None = None  # what it may publish, and nothing else
    artifacts_dir: str | None = None
    assume: bool = False  # a preview as if a second person had approved it
    together: str | None = None  # what names the windows that are promoted together with it
    leaves_out: bool = False  # of them those that fail are left out: each is then on its own

    @property
    def is_promised(self) -> bool:
        """Is it an attempt that was promised to the run of its request?"""
        return self.request is not None and self.request.run_id is not None

    @property
    def binds(self) -> str | None:
        """The digest that binds every attempt."""
        return self.plan.header.digest if self.plan is not None else None


def asked_for(subject: RunSubject, start: Start) -> Asked:
    """What the decision is told of a request."""
    request = start.request
    return Asked(
        trigger=subject.trigger,
        name=request.request_id if request is not None else "",
        by_person=start.by_person if request is None else request.by_person,
        can_wait=request is not None,
        plan=start.binds,
        promised=start.is_promised,
    )


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


def as_configured(kernel: Kernel, subject: RunSubject) -> RunSubject | None:
    """The subject with its dataset as it is declared now; None: it is declared no more."""
    dataset = kernel.dataset_now(subject.dataset.id)
    return None if dataset is None else replace(subject, dataset=dataset)


def at_admission(
    kernel: Kernel,
    asked: RunSubject,
    *,
    request: UpdateRequest | None = None,
    dry_run: bool = False,
    assume: bool = False,
) -> GateDecision:
    """The gates of an admission, by the rights of now. Reads only.

    `assume`: as if a second person had approved it, for the preview that one is asked about.
    """
    subject = as_configured(kernel, asked)
    if subject is None:
        return combine([undeclared_gate(asked.dataset.id)])
    dataset, approval = subject.dataset, usable_approval(kernel, subject, request)
    approval = approval or (assumed(dataset.id) if assume else None)
    results = [
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=False),
        _freezes(kernel, subject),
        *_windows(kernel, subject),
        rights_gate(dataset),
        *_policies(kernel, subject, "run", approval, dry_run, request),
        *_withdrawn(kernel, subject),
        *name_gates(dataset.id, owner_of(dataset.id, kernel.ledger.change_reader().renames())),
    ]
    decision = combine(results, force_request(subject))
    if approval is None or not approval.request_id:
        return decision
    # Only who approved one attempt answers for it as a person who is there does.
    unattended = UNSET if approval.kind == "attempt" else True
    return replace(decision, approval=(approval.request_id, approval.digest), unattended=unattended)


def at_promotion(
    kernel: Kernel,
    admitted: RunSubject,
    report: ValidationReport | None,
    *,
    run: Run | None = None,
    request: UpdateRequest | None = None,
    dry_run: bool = False,
    assume: bool = False,
) -> GateDecision:
    """The gates of a promotion, by the rights of now, with the approval that the attempt used; in a dry-run
    with a usable one, or as if there were one."""
    subject = as_configured(kernel, admitted)
    if subject is None:
        return combine([undeclared_gate(admitted.dataset.id)])
    dataset = subject.dataset
    if run is not None:
        used, version = approval_of(kernel.ledger, run), subject.work.output_version
        approval = _still(kernel, used, dataset, subject.source.id, version, run.work_base)
        approval = None if approval is not None and approval.revoked_at_ms is not None else approval
    else:
        approval = usable_approval(kernel, subject, request)
        approval = approval or (assumed(dataset.id) if assume else None)
    results = [
        contract_gate(report),
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=True),
        _freezes(kernel, subject),
        *_windows(kernel, subject),
        rights_gate(dataset),
        *_policies(kernel, subject, "publish", approval, dry_run, request),
        *_withdrawn(kernel, subject),
    ]
    return combine(results, force_request(subject))


def _withdrawn(kernel: Kernel, subject: RunSubject) -> list[GateResult]:
    """A gate that is there only where it refuses: the usual run has nothing to tell of it."""
    known = kernel.ledger.change_reader().withdrawals(subject.dataset.id)
    window = subject.window
    return withdrawal_gates(known, subject.source.id, window.start_ms, window.end_ms) if known else []


def _freezes(kernel: Kernel, subject: RunSubject) -> GateResult:
    dataset, window = subject.dataset, subject.window
    work = run_command(subject.source.id, window.start_ms, window.end_ms)
    now_ms = kernel.ledger.now_ms()
    return freeze_gate(kernel.settings.freezes, dataset.id, dataset.domain, now_ms, work=work)


def _windows(kernel: Kernel, subject: RunSubject) -> list[GateResult]:
    """Where windows replace each other, an older one never takes the place of a newer one by itself."""
    source, window = subject.source, subject.window
    if merges_windows(source):
        recorded = kernel.ledger.change_reader().window_rule(source.id)
        head = kernel.ledger.head(subject.dataset.id) if recorded and recorded[1] else None
        return length_gates(source, window, recorded, spans_of(head[1].items(), source) if head else ())
    if source.mode != "replace" or window == SNAPSHOT:
        return []
    newest = newest_shown(kernel.ledger, subject)
    work = run_command(source.id, window.start_ms, window.end_ms)
    return [window_gate(subject.dataset.id, window, newest, work=work)]


def window_length(source: SourceSettings) -> tuple[str, str] | None:
    """What is kept of a source's windows with its versions; None where they do not stand beside each
    other."""
    return (source.id, source.window) if merges_windows(source) else None


def is_rewindowed(ledger: LedgerReader, source: SourceSettings) -> bool:
    """Did its windows ever get another length? Then one takes the place of those that lie in it."""
    if not merges_windows(source):
        return False
    recorded = ledger.change_reader().window_rule(source.id)
    return recorded is not None and recorded[1] is not None


def newest_shown(ledger: LedgerReader, subject: RunSubject) -> Window | None:
    """The newest window whose content the dataset shows of this source.

    A newer window with the same files makes no version: its run says that it is shown, too.
    """
    head, source_id = ledger.head(subject.dataset.id), subject.source.id
    if head is None:
        return None
    shown = [
        Window(start_ms=one.window_start_ms, end_ms=one.window_end_ms, spec="")
        for one in of_source(head[1], source_id)
    ]
    if not shown:
        return None
    newest = max(shown, key=lambda one: one.end_ms)
    for run in ledger.newer_successes(source_id, newest.end_ms, NEWER_MAX):
        if is_shown(ledger, head, run):
            return Window(start_ms=run.window_start_ms, end_ms=run.window_end_ms, spec="")
    return newest


def is_shown(ledger: LedgerReader, head: tuple[Promotion, Version], run: Run) -> bool:
    """Does the head show what this run published, or found published?"""
    if run.version_id == head[0].version_id:
        return True
    published = ledger.version(run.version_id) if run.version_id else None
    return published is not None and shows(head[1], published, run.source_id)


def at_projection(kernel: Kernel, dataset: DatasetSettings, head: Promotion) -> GateDecision:
    """May a target show this version now? Decided for the promotion's actor, with the reasons given then.

    Freezes are not checked: the promotion was allowed in one, or by force, and its targets belong to it.
    """
    run = kernel.ledger.run(head.run_id)
    entry = next(iter(kernel.ledger.governance(kind="promotion", subject=head.run_id, limit=1)), None)
    approval = _of_change(kernel.ledger, head)
    if run is not None:  # what was published under an approval that ended since stays as it is
        used = approval_of(kernel.ledger, run)
        approval = _still(kernel, used, dataset, run.source_id, run.pipeline_version, run.work_base)
    said = (entry.rationale, entry.ticket) if entry else (None, None)
    context = facts(run.trigger_type if run else "manual", *_reasons(*said, approval), approval)
    results = [
        switch_gate(kernel.ledger.switches(), dataset.id, dataset.domain, in_flight=True),
        rights_gate(dataset),
        *kernel.policies.decide("publish", dataset, entry.actor if entry else "unknown", context),
    ]
    return combine(results)


def _of_change(ledger: LedgerReader, head: Promotion) -> Approval | None:
    """The approval under which a person's change made this version, if it needed one."""
    known = ledger.approvals(state="approved", subject=f"change:{head.dataset_id}", limit=APPROVALS_MAX)
    return next((one for one in known if one.used_by == head.run_id), None)


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


def asks_approval(kernel: Kernel, asked: RunSubject, request: UpdateRequest | None) -> bool:
    """Would an approval let this begin, and nothing less? Then it is asked for, with a preview.

    Not where a switch or a freeze keeps it waiting, nor where a rule refuses it also with an approval.
    """
    subject = as_configured(kernel, asked)
    if subject is None or usable_approval(kernel, subject, request) is not None:
        return False
    with_one = at_admission(kernel, subject, request=request, assume=True)
    if not with_one.allowed:
        return False
    if is_required(subject.source, request):
        return True
    given = assumed(subject.dataset.id)
    for action in ("run", "publish"):
        if _is_refused(kernel, subject, action, None, request):
            return not _is_refused(kernel, subject, "publish", given, request)
    return False


def _is_refused(
    kernel: Kernel, subject: RunSubject, action: str, approval: Approval | None, request: UpdateRequest | None
) -> bool:
    return any(not one.allowed for one in _policies(kernel, subject, action, approval, False, request))


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
        "window": window_text(window.start_ms, window.end_ms),
        **({"held": halted.held_id} if halted is not None else {}),
    }
    reasons = _reasons(trigger.rationale, trigger.ticket, approval)
    known = facts(trigger.type, *reasons, approval, halted is not None, dry_run)
    return {**known, "named": named}


def _reasons(
    rationale: str | None, ticket: str | None, approval: Approval | None
) -> tuple[str | None, str | None]:
    """Rationale and ticket of a trigger; where it has none, those of the approval that it begins under."""
    if approval is None or approval.kind == "attempt":
        return rationale, ticket
    number = f"approval {approval.request_id or 'asked for'}"
    return rationale or approval.approval_rationale or "asked for", ticket or approval.ticket or number


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


def usable_approval(kernel: Kernel, subject: RunSubject, request: UpdateRequest | None) -> Approval | None:
    """The approval that the next attempt may begin with: of its request's preview, of one attempt at exactly
    this work, or one that stands for its source."""
    ledger, now_ms = kernel.ledger, kernel.ledger.now_ms()
    digest = attempt_digest(subject.dataset, subject.work_base, kernel.reached(subject.dataset))
    if request is not None:
        for one in ledger.approvals(state="approved", subject=request.request_id, limit=APPROVALS_MAX):
            if one.kind == "update" and one.digest == request.plan_digest and holds(one, digest, now_ms):
                return one
    known = ledger.approvals(state="approved", subject=subject.work_base, limit=APPROVALS_MAX)
    return usable(known, digest, now_ms) or _standing(kernel, subject, now_ms)


def _standing(kernel: Kernel, subject: RunSubject, now_ms: int) -> Approval | None:
    source, people, trigger = subject.source, kernel.settings.people, subject.trigger
    known = kernel.ledger.approvals(state="approved", subject=source.id, limit=APPROVALS_MAX)
    if not any(one.kind == "standing" for one in known):
        return None
    asks = (*names_of(people, trigger.actor), *((trigger.claimed_actor,) if trigger.claimed_actor else ()))
    digest = standing_terms(kernel, subject.dataset, source.id, subject.work.output_version)
    return standing(known, digest, now_ms, source=source, people=people, asks=asks)


def standing_terms(kernel: Kernel, dataset: DatasetSettings, source_id: str, output_version: str) -> str:
    """What a standing approval of a source would be given for now."""
    return standing_digest(dataset, source_id, output_version, kernel.reached(dataset))


def approval_of(ledger: LedgerReader, run: Run) -> Approval | None:
    """The approval under which the present attempt of this run was begun, if it needed one."""
    return ledger.approval_of_attempt(run.run_id, run.attempts)


def _still(
    kernel: Kernel,
    approval: Approval | None,
    dataset: DatasetSettings,
    source_id: str,
    output_version: str,
    work_base: str,
) -> Approval | None:
    """The approval, if the rights and the targets are still those that it was given for."""
    if approval is None:
        return None
    if approval.kind == "standing":
        now = standing_terms(kernel, dataset, source_id, output_version)
    else:
        now = attempt_digest(dataset, work_base, kernel.reached(dataset))
    return approval if terms_of(approval) == now else None


def _policies(
    kernel: Kernel,
    subject: RunSubject,
    action: str,
    approval: Approval | None,
    dry_run: bool,
    request: UpdateRequest | None,
) -> list[GateResult]:
    dataset = subject.dataset
    halted = kernel.ledger.halted(dataset.id)
    context = _context(subject, approval, halted, dry_run)
    results = kernel.policies.decide(action, dataset, subject.trigger.actor, context)
    if approval is not None:
        return [*results, seen(approval)]
    if is_required(subject.source, request):
        window = window_text(subject.window.start_ms, subject.window.end_ms)
        return [*results, missing(subject.source.id, window)]
    return results


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
            until_ms = error.facts.get("not_before_ms")
            return CircuitWait(
                provider=str(error.facts.get("provider") or wanted[0]),
                until_ms=max(until_ms if isinstance(until_ms, int) else 0, now_ms + CIRCUIT_MS),
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
