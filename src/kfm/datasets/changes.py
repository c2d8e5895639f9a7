"""Changes of a dataset by a person: planned by reading, frozen by a digest, applied in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from kfm.db.leases import COLLECTOR
from kfm.model.canonical import canonical_bytes
from kfm.model.dataset_changes import (
    OBJECTS,
    ApplyChange,
    ChangeKind,
    DatasetChange,
    Withdrawal,
    active,
    against_rollback,
    blobs_of,
    lift_command,
    only_removes,
    purgeable,
    purged,
    span_words,
    withdrawn_sentence,
    without,
)
from kfm.model.dataset_names import identity_of, of_dataset, owner_of, present_name, rename_command
from kfm.model.errors import ContentGone, LockHeld, NotApproved, PlanDrifted, UsageError
from kfm.model.gates import combine, refusal, rights_gate
from kfm.model.input_hash import sha256_text
from kfm.model.quantities import counted, did_you_mean, one_line
from kfm.model.quarantine import Approval
from kfm.model.records import Justification, Manifest, Promotion, Record, Switch, governance_entry
from kfm.model.settings import DatasetSettings
from kfm.model.targets import target_name
from kfm.model.versions import Version, edited, emptied
from kfm.model.window_rules import Rewindow, RewindowPreview
from kfm.model.windows import SNAPSHOT
from kfm.ports import PurgingProjection
from kfm.publish.manifest import ChangeTally, VersionChange, diff, header, tally

if TYPE_CHECKING:
    from kfm.model.records import Window
    from kfm.runs.kernel import Kernel

PROMOTIONS_MAX = 1_000_000
APPROVALS_MAX = 1000
RUNS_MAX = 1000
NAME_CHARS_MAX = 80
TAG = "dataset-change/1"
Reach = Literal["artifacts", "previews", "derived", "target", "history", "ledger", "backups", "copies"]


class TargetEffect(Record, frozen=True):
    """What a target shows now; after the change it shows the new version."""

    target: str
    kind: str
    shows: int | None


class OutOfReach(Record, frozen=True):
    """Copies that the change does not remove: a person has to look there."""

    what: Reach
    name: str
    detail: str


class PurgePreview(Record, frozen=True):
    """What a purge removes for good."""

    versions: tuple[int, ...]
    blobs: int
    bytes: int
    shared: int  # blobs that stay: another kept version needs them


class PlannedNames(Record, frozen=True):
    """The name that readers know a dataset by, and the one that they find it by afterwards."""

    old: str
    new: str


class ChangePlan(Record, frozen=True):
    """What a change does, and nothing else: applied to anything else it is refused."""

    kfm: str
    kind: ChangeKind
    dataset_id: str
    base_sequence: int
    base_version_id: str
    sequence: int | None  # None: no version is made
    version_id: str | None
    to_sequence: int | None
    source_id: str | None
    target: str | None  # at this one alone
    window_start_ms: int | None
    window_end_ms: int | None
    lifts: tuple[str, ...]
    pauses: str | None
    items_removed: tuple[str, ...]
    tally: ChangeTally
    changes: tuple[VersionChange, ...]
    targets: tuple[TargetEffect, ...]
    purge: PurgePreview | None
    out_of_reach: tuple[OutOfReach, ...]
    digest: str = ""
    rename: PlannedNames | msgspec.UnsetType = msgspec.UNSET
    rewindow: RewindowPreview | msgspec.UnsetType = msgspec.UNSET
    ends_retirement: bool | msgspec.UnsetType = msgspec.UNSET  # of a lift: the dataset was retired


class PreparedChange(Record, frozen=True):
    """A plan with what it is made of."""

    plan: ChangePlan
    version: Version | None  # None: none is made
    withdrawal: Withdrawal | None
    collections: int  # the fence of garbage collection before the objects were looked at
    rights_of: DatasetSettings
    rewindow: Rewindow | None = None


def read_plan(text: str) -> ChangePlan:
    """A plan as it was kept for who approves it."""
    return msgspec.json.decode(text, type=ChangePlan)


def digest_of(plan: ChangePlan) -> str:
    document = msgspec.to_builtins(replace(plan, digest=""))
    return sha256_text(canonical_bytes(document))


# --- planning ----------------------------------------------------------------------------


def plan_rollback(kernel: Kernel, dataset_id: str, to_sequence: int) -> PreparedChange:
    """The content of an earlier version as a new one, described and licensed as the dataset is now."""
    head, shown = head_of(kernel, dataset_id)
    collections = collections_of(kernel)
    known = kernel.ledger.change_reader().withdrawals(dataset_id)
    target = kernel.ledger.promotion(dataset_id, to_sequence)
    old = kernel.ledger.version(target.version_id) if target is not None else None
    if target is None or old is None:
        raise UsageError(
            f"{dataset_id} has no version {to_sequence}; the newest is {head.sequence}.",
            remedy=f"`kfm dataset show {dataset_id}` lists its versions.",
        )
    if to_sequence == head.sequence:
        raise UsageError(f"{dataset_id} shows version {to_sequence} already.")
    _require_content(kernel, dataset_id, to_sequence, old, known)
    declared = kernel.dataset_now(dataset_id)
    described = header(declared, shown.dataset_id) if declared is not None else shown.header
    made = edited(old, described, {})
    plan = plan_of(
        kernel, "rollback", head, shown, made, pauses=f"dataset:{dataset_id}", to_sequence=to_sequence
    )
    return PreparedChange(
        plan=plan,
        version=made,
        withdrawal=None,
        collections=collections,
        rights_of=declared or _as_published(head.dataset_id, shown.header),
    )


def _require_content(
    kernel: Kernel, dataset_id: str, sequence: int, version: Version, known: Sequence[Withdrawal]
) -> None:
    against = against_rollback(sequence, version, known)
    if against is not None:
        one, why = against
        if why == "withdrawn" and one.is_whole:
            raise ContentGone(
                f"{withdrawn_sentence(one)}: no version of it can be put back.",
                remedy=f"Lift that first: `{lift_command(one)}`.",
            )
        raise ContentGone(
            f"Version {sequence} of {dataset_id} holds what was {why} with version {one.since_sequence}: "
            f"{span_words(one)}."
        )
    lacking = [sha256 for sha256 in sorted(blobs_of((version,))) if not kernel.objects.has(sha256)]
    if lacking:
        raise ContentGone(
            f"{counted(len(lacking), 'object')} of version {sequence} of {dataset_id} "
            f"{'was' if len(lacking) == 1 else 'were'} collected.",
            remedy="Choose a newer version, or raise limits.versions_kept for the next time.",
        )


def plan_withdrawal(
    kernel: Kernel,
    dataset_id: str,
    window: Window | None = None,
    source_id: str | None = None,
    *,
    purge: bool = False,
    retires: bool = False,
    target: str | None = None,
) -> PreparedChange:
    """The head without what is withdrawn; which may be nothing of it yet: it then stays away.

    From one target alone: the content stays as it is under the next number, and that target shows a tombstone
    in its place."""
    head, shown = head_of(kernel, dataset_id)
    _require_whole(target, window, source_id)
    if target is not None:
        _require_removable(kernel, dataset_id, target)
    _require_meant(kernel, dataset_id, shown, window, source_id)
    withdrawal = Withdrawal(
        change_id="",
        dataset_id=dataset_id,
        source_id=source_id or "",
        start_ms=window.start_ms if window else None,
        end_ms=window.end_ms if window else None,
        retires=retires,
        purge=purge,
        reason="",
        since_sequence=head.sequence + 1,
        withdrawn_at_ms=0,
        target=target or "",
    )
    for one in active(_known(kernel, dataset_id, target)):
        same = (one.source_id, one.start_ms, one.end_ms) == (
            withdrawal.source_id,
            withdrawal.start_ms,
            withdrawal.end_ms,
        )
        if same and one.retires == retires and (one.purge or not purge):
            raise UsageError(
                f"{withdrawn_sentence(one)} already.",
                remedy="`kfm project` finishes what is outstanding at its targets.",
            )
    made = edited(shown, shown.header, {}) if target is not None else without(shown, withdrawal)
    kind: ChangeKind = "retire" if retires else "withdraw"
    kept = emptied(made, made.dataset_id) if target is not None else made
    preview = _purge_preview(kernel, head, kept, withdrawal) if purge else None
    plan = plan_of(kernel, kind, head, shown, made, window=window, source_id=source_id, purge=preview)
    if target is not None:
        mine = tuple(one for one in plan.targets if one.target == target)
        plan = digested(replace(plan, target=target, targets=mine))
    return PreparedChange(
        plan=plan,
        version=made,
        withdrawal=withdrawal,
        collections=collections_of(kernel),
        rights_of=kernel.dataset_now(dataset_id) or _as_published(head.dataset_id, shown.header),
    )


def _known(kernel: Kernel, dataset_id: str, target: str | None) -> list[Withdrawal]:
    reader = kernel.ledger.change_reader()
    if target is None:
        return reader.withdrawals(dataset_id)
    return [one for one in reader.target_withdrawals(dataset_id) if one.target == target]


def _require_whole(target: str | None, window: Window | None, source_id: str | None) -> None:
    if target is not None and (window is not None or source_id is not None):
        raise UsageError(
            "From one target a dataset is withdrawn whole.",
            remedy="Name the target without a window and a source.",
        )


def _require_meant(
    kernel: Kernel, dataset_id: str, version: Version, window: Window | None, source_id: str | None
) -> None:
    """A source that nothing came from, and a span of what has no windows, are slips: nothing is taken down
    for them, and nothing else instead."""
    if source_id is not None:
        known = {one.id for one in kernel.settings.sources if one.dataset == dataset_id}
        known |= {item.source_id for item in version.items()}
        ran = source_id not in known and kernel.ledger.runs(
            dataset_id=dataset_id, source_id=source_id, limit=1
        )
        if source_id not in known and not ran:
            shown = one_line(source_id)[:80]
            raise UsageError(
                f"Nothing of {dataset_id} came from a source `{shown}`{did_you_mean(shown, sorted(known))}"
            )
    if window is not None and window != SNAPSHOT:
        whole = [one for one in version.items() if one.is_snapshot and source_id in (None, one.source_id)]
        if whole:
            raise UsageError(
                f"Source {whole[0].source_id} of {dataset_id} has no windows: it is withdrawn as a whole.",
                remedy="Leave --window out, or name another source with --source.",
            )


def _require_removable(kernel: Kernel, dataset_id: str, target: str) -> None:
    """A target that takes the dataset would get it again with the next version."""
    names = [one.name for one in kernel.projections]
    if target not in names:
        raise UsageError(f"There is no target `{target[:80]}`{did_you_mean(target[:80], names)}")
    if (dataset_id, target) not in kernel.ledger.projected():
        raise UsageError(f"The target {target} shows nothing of {dataset_id}.")
    declared = kernel.dataset_now(dataset_id)
    if declared is not None and any(one.name == target for one in kernel.reached(declared)):
        raise UsageError(
            f"The target {target} takes {dataset_id}.",
            remedy="Change `datasets` or `care` of the target first, or withdraw the dataset everywhere.",
        )


def plan_rename(kernel: Kernel, old: str, new: str) -> PreparedChange:
    """The head under another name, which the configuration has already; its history stays its own."""
    reader, now = kernel.ledger.change_reader(), kernel.settings_as_of_now()
    renames = reader.renames()
    dataset_id = identity_of(new, now, renames)
    declared = now.declared(dataset_id)
    if declared is None or declared.name != new or old not in declared.names or old == new:
        raise UsageError(
            f"The configuration does not say that `{old[:NAME_CHARS_MAX]}` is called "
            f"`{new[:NAME_CHARS_MAX]}` now.",
            remedy=f"Write the dataset as `{{id: {new}, formerly: [{old}], …}}` first; until the command is "
            "applied readers find it as before."
            if old != new
            else "Name two different ids: the one that readers know, and the new one.",
        )
    head, shown = head_of(kernel, dataset_id)
    mine = of_dataset(dataset_id, renames)
    known_as = present_name(dataset_id, mine)
    if known_as == new:
        raise UsageError(f"Readers find {new} by that name already.")
    if known_as != old:
        raise UsageError(
            f"Readers know this dataset as `{known_as}`, not as `{old}`.",
            remedy=f"`{rename_command(known_as, new)}` renames it.",
        )
    owner = owner_of(new, renames) or (new if kernel.ledger.head(new) is not None else None)
    if owner not in (None, dataset_id):
        raise name_taken(new)
    made = edited(shown, header(declared, new), {})
    plan = plan_of(kernel, "rename", head, shown, made)
    plan = digested(replace(plan, rename=PlannedNames(old=old, new=new)))
    return PreparedChange(
        plan=plan,
        version=made,
        withdrawal=None,
        collections=collections_of(kernel),
        rights_of=declared,
    )


def name_taken(name: str) -> UsageError:
    return UsageError(
        f"`{name}` is or was the name of another dataset here, and readers of it find that one.",
        remedy="Choose another name: an address stands for one dataset.",
    )


def plan_lift(
    kernel: Kernel,
    dataset_id: str,
    window: Window | None = None,
    source_id: str | None = None,
    target: str | None = None,
) -> PreparedChange:
    """Let what is withdrawn be published again: the same content as a new version, without the tombstone.
    Nothing comes back by itself."""
    head, shown = head_of(kernel, dataset_id)
    _require_whole(target, window, source_id)
    span = (source_id or "", window.start_ms if window else None, window.end_ms if window else None)
    known = active(_known(kernel, dataset_id, target))
    lifted = [one for one in known if (one.source_id, one.start_ms, one.end_ms) == span]
    if not lifted:
        if not known:
            where = f" from target {target}" if target is not None else ""
            raise UsageError(f"Nothing of {dataset_id} is withdrawn{where}, so there is nothing to lift.")
        there = "; ".join(map(withdrawn_sentence, known))
        raise UsageError(
            f"This part of {dataset_id} is not withdrawn by itself. {there}.",
            remedy=f"`kfm dataset show {dataset_id}` shows each with the command that lifts it.",
        )
    made = edited(shown, shown.header, {})
    plan = plan_of(kernel, "lift", head, shown, made, window=window, source_id=source_id)
    lifts = tuple(sorted(one.change_id for one in lifted))
    targets = tuple(one for one in plan.targets if target in (None, one.target))
    ends = True if any(one.retires for one in lifted) else msgspec.UNSET
    plan = digested(replace(plan, lifts=lifts, target=target, targets=targets, ends_retirement=ends))
    return PreparedChange(
        plan=plan,
        version=made,
        withdrawal=None,
        collections=collections_of(kernel),
        rights_of=kernel.dataset_now(dataset_id) or _as_published(head.dataset_id, shown.header),
    )


def head_of(kernel: Kernel, dataset_id: str) -> tuple[Promotion, Version]:
    found = kernel.ledger.head(dataset_id)
    if found is None:
        known = sorted({head.dataset_id for head in kernel.ledger.heads()})
        raise UsageError(
            f"Nothing of a dataset `{dataset_id[:80]}` is published{did_you_mean(dataset_id[:80], known)}",
            remedy="`kfm dataset list` lists what is.",
        )
    return found


def collections_of(kernel: Kernel) -> int:
    lock = kernel.ledger.lock(COLLECTOR)
    assert lock is not None, "the first migration makes it"
    return lock.fence


def _as_published(dataset_id: str, manifest: Manifest) -> DatasetSettings:
    """A dataset that is not configured any more, as its last version describes it."""
    return DatasetSettings(
        id=dataset_id,
        domain=manifest.domain,
        title=manifest.title,
        keywords=manifest.keywords,
        rights=manifest.rights,
    )


def plan_of(
    kernel: Kernel,
    kind: ChangeKind,
    head: Promotion,
    old: Version,
    new: Version | None,
    *,
    window: Window | None = None,
    source_id: str | None = None,
    purge: PurgePreview | None = None,
    pauses: str | None = None,
    to_sequence: int | None = None,
) -> ChangePlan:
    changed = new.changed_items(old) if new is not None else []
    return digested(
        ChangePlan(
            kfm=TAG,
            kind=kind,
            dataset_id=head.dataset_id,
            base_sequence=head.sequence,
            base_version_id=head.version_id,
            sequence=head.sequence + 1 if new is not None else None,
            version_id=new.version_id if new is not None else None,
            to_sequence=to_sequence,
            source_id=source_id,
            target=None,
            window_start_ms=window.start_ms if window else None,
            window_end_ms=window.end_ms if window else None,
            lifts=(),
            pauses=pauses,
            items_removed=tuple(was.id for was, now in changed if was is not None and now is None),
            tally=tally(old, new or old),
            changes=tuple(diff(old, new)) if new is not None else (),
            targets=_targets(kernel, head.dataset_id) if new is not None else (),
            purge=purge,
            out_of_reach=_out_of_reach(kernel, head.dataset_id, purge)
            if kind in ("withdraw", "retire")
            else (),
        )
    )


def digested(plan: ChangePlan) -> ChangePlan:
    return replace(plan, digest=digest_of(plan))


def _targets(kernel: Kernel, dataset_id: str) -> tuple[TargetEffect, ...]:
    """The targets that show the dataset, or take it now."""
    shown, declared = kernel.ledger.projected(), kernel.dataset_now(dataset_id)
    kinds = {target_name(target): target.kind for target in kernel.settings.publish}
    takes = {one.name for one in kernel.reached(declared)} if declared is not None else set()
    return tuple(
        TargetEffect(target=one.name, kind=kinds.get(one.name, ""), shows=shown.get((dataset_id, one.name)))
        for one in kernel.projections
        if (dataset_id, one.name) in shown or one.name in takes
    )


def _purge_preview(kernel: Kernel, head: Promotion, made: Version, withdrawal: Withdrawal) -> PurgePreview:
    ledger, gone, kept, numbers = kernel.ledger, [], [made], []
    for promotion in ledger.promotions(head.dataset_id, limit=PROMOTIONS_MAX):
        version = ledger.version(promotion.version_id)
        if version is not None and purged(promotion.sequence, version, (withdrawal,)):
            gone.append(version)
            numbers.append(promotion.sequence)
        elif version is not None:
            kept.append(version)
    for other in ledger.heads():
        if other.dataset_id != head.dataset_id:
            recent = ledger.promotions(other.dataset_id, limit=max(1, kernel.settings.limits.versions_kept))
            kept += [one for each in recent if (one := ledger.version(each.version_id)) is not None]
    sizes = {sha256: size for one in gone for _, sha256, size in one.files()}
    going = purgeable(gone, kept)
    return PurgePreview(
        versions=tuple(sorted(numbers)),
        blobs=len(going),
        bytes=sum(sizes[sha256] for sha256 in going),
        shared=len(sizes) - len(going),
    )


def _out_of_reach(kernel: Kernel, dataset_id: str, purge: PurgePreview | None) -> tuple[OutOfReach, ...]:
    """What this can't remove, by name where the ledger or the configuration has one."""
    found = []
    configured = {one.name for one in kernel.projections}
    for (dataset, target), sequence in sorted(kernel.ledger.projected().items()):
        if dataset == dataset_id and target not in configured:
            detail = f"It is not configured any more, and showed version {sequence}."
            found.append(OutOfReach(what="target", name=target, detail=detail))
    if purge is not None:
        found += [
            OutOfReach(what="history", name=one.name, detail="This kind of target keeps its history.")
            for one in kernel.projections
            if not isinstance(one, PurgingProjection)
        ]
    runs = kernel.ledger.runs(dataset_id=dataset_id, limit=RUNS_MAX)
    if runs:
        many = f"{counted(len(runs), 'run')}{' or more' if len(runs) == RUNS_MAX else ''}"
        detail = f"Logs, traces and reports of {many}; of fetched bytes they have names, sizes and hashes."
        found.append(OutOfReach(what="artifacts", name=kernel.runs_folder, detail=detail))
        detail = "Previews that were kept for approvals, and exported plans: names and hashes of files."
        found.append(OutOfReach(what="previews", name="requests", detail=detail))
    for source in kernel.settings.sources:
        if dataset_id in (getattr(source, "datasets", None) or ()):
            detail = f"The dataset {source.dataset} is made from it."
            found.append(OutOfReach(what="derived", name=source.dataset, detail=detail))
    return (
        *found,
        OutOfReach(
            what="ledger", name="ledger", detail="It keeps names, sizes and hashes of files, for good."
        ),
        OutOfReach(what="backups", name="backups", detail="Of the ledger, the object store and the targets."),
        OutOfReach(what="copies", name="readers", detail="Copies, mirrors and caches of readers."),
    )


# --- policies ----------------------------------------------------------------------------


def approval_of(kernel: Kernel, plan: ChangePlan) -> Approval | None:
    """An approval of exactly this plan that can still be used."""
    now_ms = kernel.ledger.now_ms()
    known = kernel.ledger.approvals(
        state="approved", subject=subject_of(plan.dataset_id), limit=APPROVALS_MAX
    )
    usable = (
        one
        for one in known
        if one.kind == "change"
        and one.digest == plan.digest
        and one.used_at_ms is None
        and (one.expires_at_ms or 0) > now_ms
    )
    return min(usable, key=lambda one: (one.expires_at_ms, one.request_id), default=None)


def subject_of(dataset_id: str) -> str:
    return f"change:{dataset_id}"


def actions_of(kernel: Kernel, prepared: PreparedChange) -> tuple[str, ...]:
    """What the policies are asked about. What adds nothing for readers is no publication."""
    plan = prepared.plan
    if plan.kind == "rollback":
        found = kernel.ledger.head(plan.dataset_id)
        before = found[1] if found else None
        adds = prepared.version is not None and not only_removes(before, prepared.version)
        return ("rollback", "publish") if adds else ("rollback",)
    if plan.kind == "rename":
        return ("rename", "publish")  # all of it is shown at another address
    if plan.kind in ("lift", "rewindow"):
        return (plan.kind,)
    return (plan.kind, "purge") if plan.purge is not None else (plan.kind,)


def needs_approval(kernel: Kernel, prepared: PreparedChange, by: Justification) -> bool:
    """Does a policy ask for a second person? Raises where it refuses even then."""
    if approval_of(kernel, prepared.plan) is not None:
        _require_allowed(kernel, prepared, by, approved=True)
        return False
    if _refusals(kernel, prepared, by, approved=False) is None:
        return False
    _require_allowed(kernel, prepared, by, approved=True)
    return True


def _require_allowed(kernel: Kernel, prepared: PreparedChange, by: Justification, *, approved: bool) -> None:
    refused = _refusals(kernel, prepared, by, approved=approved)
    if refused is not None:
        raise refused


def _refusals(
    kernel: Kernel, prepared: PreparedChange, by: Justification, *, approved: bool
) -> Exception | None:
    dataset = prepared.rights_of
    context: dict[str, Any] = {
        "trigger": "manual",
        "rationale": by.rationale or "",
        "ticket": by.ticket or "",
        "approvals": [dataset.id] if approved else [],
        "halted": False,
        "is_dry_run": False,
        "people": bool(kernel.settings.people),
    }
    for action in actions_of(kernel, prepared):
        results = list(kernel.policies.decide(action, dataset, by.actor, context))
        if action == "publish":
            results.append(rights_gate(dataset))
        decision = combine(results)
        if not decision.allowed:
            return refusal(decision)
    return None


# --- applying ----------------------------------------------------------------------------


def apply(
    kernel: Kernel, prepared: PreparedChange, by: Justification, scopes: tuple[str, ...]
) -> DatasetChange:
    """All of the plan in one transaction, or nothing. Targets are brought up to date by the caller."""
    plan, store = prepared.plan, kernel.store
    if needs_approval(kernel, prepared, by):
        raise NotApproved("A second person has to approve this change first.")
    approval = approval_of(kernel, plan)
    if approval is not None:  # what readers are told, and the audit log, is what was approved
        by = replace(by, rationale=approval.rationale, ticket=approval.ticket or by.ticket)
    change = DatasetChange(
        change_id=kernel.ids.new(),
        dataset_id=plan.dataset_id,
        kind=plan.kind,
        base_sequence=plan.base_sequence,
        sequence=plan.sequence,
        to_sequence=plan.to_sequence,
        digest=plan.digest,
        actor=by.actor,
        rationale=by.rationale or "",
        ticket=by.ticket,
        changed_at_ms=store.now_ms(),
        plan=canonical_bytes(msgspec.to_builtins(plan)).decode(),
    )
    kernel.liveness.claim(kernel.worker_id)
    answer = store.dataset_changes().apply(
        _request(kernel, prepared, change, by, scopes, approval), kernel.liveness.is_dead
    )
    if answer.answer == "busy":
        assert answer.lock is not None
        holder = answer.lock.holder.run_id if answer.lock.holder else "?"
        raise LockHeld(
            f"Run {holder} is at work under {answer.lock.scope}.",
            remedy=f"Wait for its end, or stop it first: kfm switch set stopped --dataset {plan.dataset_id} "
            "--rationale TEXT",
        )
    if answer.answer == "not-approved":
        raise NotApproved("The approval was used or has lapsed meanwhile.")
    if answer.answer == "name-taken":
        assert plan.rename is not msgspec.UNSET
        raise name_taken(plan.rename.new)
    if answer.answer != "applied":
        why = {"collected": "objects were collected", "rewindowed": "its windows got another length"}
        raise drifted(plan, why.get(answer.answer, "the head has moved"))
    return replace(change, sequence=answer.sequence)


def drifted(plan: ChangePlan, why: str) -> PlanDrifted:
    return PlanDrifted(
        f"The plan was made for version {plan.base_sequence} of {plan.dataset_id}; since then {why}.",
        remedy="Look at the change again: the same command without --yes and --digest shows it.",
    )


def _request(
    kernel: Kernel,
    prepared: PreparedChange,
    change: DatasetChange,
    by: Justification,
    scopes: tuple[str, ...],
    approval: Approval | None,
) -> ApplyChange:
    plan, withdrawal = prepared.plan, prepared.withdrawal
    if withdrawal is not None:
        withdrawal = replace(withdrawal, change_id=change.change_id, reason=change.rationale)
    pause, entries = None, [_entry(kernel, prepared, change, by)]
    if plan.pauses is not None:
        why = f"Rolled back to version {plan.to_sequence} as version {plan.sequence}: {change.rationale}"
        pause = Switch(
            scope=plan.pauses,
            position="paused",
            rationale=why,
            actor=by.actor,
            set_at_ms=change.changed_at_ms,
        )
        paused_by = Justification(actor=by.actor, rationale=why, ticket=by.ticket)
        entries.append(
            governance_entry(
                "switch",
                plan.pauses,
                change.changed_at_ms,
                paused_by,
                position="paused",
                change_id=change.change_id,
            )
        )
    if plan.rename is not msgspec.UNSET:  # whatever takes the same name waits, and finds it taken
        scopes = tuple(sorted({*scopes, f"dataset:{plan.rename.new}"}))
    purging = plan.purge is not None
    places = tuple(f"target:{one.target}" for one in plan.targets) if purging else ()
    if purging and plan.target is None:
        places = (*places, OBJECTS)
    return ApplyChange(
        change=change,
        scopes=scopes,
        collections=prepared.collections,
        version_id=plan.version_id,
        version=prepared.version,
        withdrawal=withdrawal,
        lifts=plan.lifts,
        pause=pause,
        targets=tuple(one.target for one in plan.targets),
        places=places,
        approval=(approval.request_id, approval.digest) if approval is not None else None,
        entries=tuple(entries),
        new_name=plan.rename.new if plan.rename is not msgspec.UNSET else None,
        rewindow=prepared.rewindow,
    )


def _entry(kernel: Kernel, prepared: PreparedChange, change: DatasetChange, by: Justification) -> Any:
    """A change that makes a version is a promotion in the chain, as each run's is."""
    plan = prepared.plan
    facts: dict[str, Any] = {
        "dataset_id": plan.dataset_id,
        "change": plan.kind,
        "digest": plan.digest,
        "policies": kernel.policies.bundle_id,
        "removed": plan.tally.removed,
    }
    if plan.to_sequence is not None:
        facts["to_sequence"] = plan.to_sequence
    if plan.window_start_ms is not None:
        facts |= {"window_start_ms": plan.window_start_ms, "window_end_ms": plan.window_end_ms}
    if plan.target is not None:
        facts["target"] = plan.target
    if plan.source_id:
        facts["source_id"] = plan.source_id
    if plan.rename is not msgspec.UNSET:
        facts |= {"renamed_from": plan.rename.old, "renamed_to": plan.rename.new}
    if plan.purge is not None:
        facts["purge"] = {"versions": list(plan.purge.versions), "blobs": plan.purge.blobs}
    if plan.rewindow is not msgspec.UNSET:
        facts |= {"window_before": plan.rewindow.old or "", "window": plan.rewindow.new}
        return governance_entry("source-rewindowed", change.change_id, change.changed_at_ms, by, **facts)
    if plan.kind == "lift":
        facts["lifts"] = list(plan.lifts)
    facts["version_id"] = plan.version_id
    return governance_entry("promotion", change.change_id, change.changed_at_ms, by, **facts)
