"""Purges: withdrawn bytes are removed at each target and from the object store, again until it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfm.db.leases import COLLECTOR
from kfm.model.dataset_changes import OBJECTS, Purge, PurgeState, Withdrawal, purgeable, purged
from kfm.model.dataset_names import earlier_names, present_name
from kfm.model.errors import KfmError, LockHeld
from kfm.model.quantities import counted
from kfm.model.records import Justification, Lock, Promotion, Record, governance_entry
from kfm.ports import PurgingProjection
from kfm.runs.admission import held_by
from kfm.runs.kernel import Kernel
from kfm.runs.lease import hold_scope
from kfm.system import os_trouble

if TYPE_CHECKING:
    from kfm.model.versions import Version

PROMOTIONS_MAX = 1_000_000
TARGET = "target:"


class PurgedVersions(Record, frozen=True):
    """The versions of a dataset, by what a purge does with them."""

    gone: tuple[tuple[Promotion, Version], ...]
    kept: tuple[Version, ...]


def finish(
    kernel: Kernel, dataset_id: str | None = None, *, again: bool = False, target: str | None = None
) -> list[Purge]:
    """Do what is outstanding; `again`: also what was done once, in case that a stalled process undid it.

    What can't be done now stays outstanding, and says why.
    """
    reader = kernel.ledger.change_reader()
    waiting = [
        one
        for one in (reader.purges() if again else reader.unfinished_purges())
        if (again or one.state == "outstanding")
        and one.state != "out-of-reach"
        and dataset_id in (None, one.dataset_id)
        and (target is None or one.place == f"{TARGET}{target}")
    ]
    if not waiting:
        return []
    kernel.liveness.claim(kernel.worker_id)
    known = {one.change_id: one for one in (*reader.withdrawals(), *reader.target_withdrawals())}
    reports = [_finished(kernel, one, known[one.change_id]) for one in waiting]
    return [one for one in reports if one is not None]


def _finished(kernel: Kernel, purge: Purge, withdrawal: Withdrawal) -> Purge | None:
    try:
        if purge.place == OBJECTS:
            state, removed, detail = _purge_objects(kernel, withdrawal)
        else:
            state, removed, detail = _purge_target(kernel, purge, withdrawal)
    except KfmError as error:
        state, removed, detail = "outstanding", 0, str(error)
    except OSError as error:
        state, removed, detail = "outstanding", 0, os_trouble(error).text
    made = Purge(
        change_id=purge.change_id,
        dataset_id=purge.dataset_id,
        place=purge.place,
        state=state,
        removed=removed,
        detail=kernel.redact.said(detail) if detail else "",
    )
    if (made.state, made.detail, removed) == (purge.state, purge.detail, 0):
        return purge  # nothing is new, so nothing is written
    by = Justification(actor="kfm", rationale=withdrawal.reason)
    facts = {"dataset_id": purge.dataset_id, "place": purge.place, "removed": removed}
    entry = governance_entry("purge", purge.change_id, kernel.store.now_ms(), by, **facts)
    kernel.store.dataset_changes().purge_done(made, (entry,) if state == "done" else ())
    return made


def versions_of(kernel: Kernel, withdrawal: Withdrawal) -> PurgedVersions:
    """The versions of the withdrawn dataset that hold what is withdrawn, and all others."""
    ledger, gone, kept = kernel.ledger, [], []
    for promotion in ledger.promotions(withdrawal.dataset_id, limit=PROMOTIONS_MAX):
        version = ledger.version(promotion.version_id)
        if version is None:
            continue
        if purged(promotion.sequence, version, (withdrawal,)):
            gone.append((promotion, version))
        else:
            kept.append(version)
    return PurgedVersions(gone=tuple(gone), kept=tuple(kept))


# --- targets -----------------------------------------------------------------------------


def _purge_target(kernel: Kernel, purge: Purge, withdrawal: Withdrawal) -> tuple[PurgeState, int, str]:
    name = purge.place.removeprefix(TARGET)
    target = next((one for one in kernel.projections if one.name == name), None)
    if target is None:
        return "outstanding", 0, f"No target {name} is configured here."
    if not isinstance(target, PurgingProjection):
        return "out-of-reach", 0, "This kind of target keeps its history."
    if kernel.ledger.projected().get((purge.dataset_id, name), 0) < withdrawal.since_sequence:
        return "outstanding", 0, f"It does not show version {withdrawal.since_sequence} yet."
    with _held(kernel, withdrawal) as check:
        # Read under the lock: what is promoted from here on waits, and needs none of these.
        found = versions_of(kernel, withdrawal)
        gone = [promotion for promotion, _ in found.gone]
        kept = found.kept if not withdrawal.target else ()  # there only the tombstone is left
        blobs = purgeable((version for _, version in found.gone), kept)
        renames = kernel.ledger.change_reader().renames(purge.dataset_id)
        names = (*earlier_names(purge.dataset_id, renames), present_name(purge.dataset_id, renames))
        removed = sum(target.purge(name, gone, blobs, check) for name in names)
    return "done", removed, ""


@contextmanager
def _held(kernel: Kernel, withdrawal: Withdrawal) -> Iterator[Callable[[], None]]:
    """The dataset's locks, so that no run of it is promoted meanwhile; gives what is called between steps."""
    changes, held = kernel.store.dataset_changes(), []
    try:
        for scope in scopes_of(kernel, withdrawal.dataset_id):
            fence = changes.hold(
                scope, withdrawal.change_id, kernel.worker_id, kernel.lease_ms, kernel.liveness.is_dead
            )
            if isinstance(fence, Lock):
                raise LockHeld(held_by(fence))
            held.append((scope, fence, hold_scope(kernel, scope, fence)))

        def check() -> None:
            for _, _, lease in held:
                lease.check()

        yield check
    finally:
        for scope, fence, _ in held:
            changes.free(scope, fence)


def scopes_of(kernel: Kernel, dataset_id: str) -> tuple[str, ...]:
    """The locks that a run of this dataset may hold, in the order in which they are taken."""
    declared = kernel.dataset_now(dataset_id)
    domain = (f"domain:{declared.domain}",) if declared is not None and declared.lock == "domain" else ()
    return tuple(sorted((f"dataset:{dataset_id}", *domain)))


# --- the object store --------------------------------------------------------------------


def _purge_objects(kernel: Kernel, withdrawal: Withdrawal) -> tuple[PurgeState, int, str]:
    """As garbage collection does it: while nothing runs, and never what anything kept needs."""
    from kfm.runs.gc import needed_objects  # it lists versions as here

    store = kernel.store
    fence = store.begin_collection(kernel.worker_id, kernel.lease_ms, kernel.liveness.is_dead)
    if isinstance(fence, Lock):
        raise LockHeld(held_by(fence))
    lease, removed = hold_scope(kernel, COLLECTOR, fence), 0
    try:
        blobs = purgeable((version for _, version in versions_of(kernel, withdrawal).gone), ())
        shared = blobs & needed_objects(kernel.ledger, kernel.settings.limits.versions_kept)
        pinned = (blobs - shared) & frozenset(kernel.ledger.branch_reader().objects_kept(0))
        for sha256 in sorted(blobs - shared - pinned):
            lease.check()
            if kernel.objects.has(sha256):
                kernel.objects.delete(sha256)
                removed += 1
    finally:
        by = Justification(actor="kfm", rationale=withdrawal.reason)
        facts = {"objects": removed, "change_id": withdrawal.change_id}
        entry = governance_entry("gc", kernel.settings.environment, store.now_ms(), by, **facts)
        store.end_collection(fence, entry)
    return ("out-of-reach" if pinned else "done"), removed, _stayed(shared, pinned)


def _stayed(shared: frozenset[str], pinned: frozenset[str]) -> str:
    parts: Sequence[str] = (
        f"{counted(len(shared), 'object')} stayed: another kept version needs it." if shared else "",
        f"{counted(len(pinned), 'object')} stayed in the history of a branch." if pinned else "",
    )
    return " ".join(part for part in parts if part)
