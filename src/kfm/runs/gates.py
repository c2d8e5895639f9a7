"""The gates of a run: at its admission, at its promotion, and before a target shows what it published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace

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
from kfm.model.dataset_names import owner_of
from kfm.model.gates import (
    HALTING_GATES,
    ForceRequest,
    GateDecision,
    combine,
    contract_gate,
    freeze_gate,
    length_gates,
    name_gates,
    rights_gate,
    switch_gate,
    undeclared_gate,
    window_gate,
    withdrawal_gates,
)
from kfm.model.next_steps import run_command, window_text
from kfm.model.quarantine import Approval, QuarantineEntry
from kfm.model.records import GateResult, Promotion, Run, ValidationReport, Window
from kfm.model.requests import UpdateRequest
from kfm.model.settings import DatasetSettings, SourceSettings
from kfm.model.window_rules import merges_windows, spans_of
from kfm.model.windows import SNAPSHOT
from kfm.ports import PolicyEngine
from kfm.publish.manifest import of_source, shows
from kfm.runs.kernel import Kernel
from kfm.runs.subjects import RunSubject, as_configured

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.versions import Version

APPROVALS_MAX = 1000  # of one piece of work
NEWER_MAX = 20  # successful runs for newer windows that are looked at, the newest first


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
