"""Removal from one target: what a target shows and does not take is taken down there, and nowhere else."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.errors import KfmError, PlanDrifted, TargetUnavailable, UsageError
from kfm.model.input_hash import sha256_text
from kfm.model.records import Justification, Record, governance_entry
from kfm.model.targets import Taking, described, taking, target_name
from kfm.model.times import rfc3339
from kfm.ports import RemovingProjection
from kfm.runs.kernel import Kernel
from kfm.system import os_trouble


class TargetRemoval(Record, frozen=True):
    """What is removed, as it is shown before; the digest is of all of it."""

    dataset_id: str
    target: str
    kind: str
    place: str | None
    shows: int  # the version that readers lose there
    reason_code: Taking
    digest: str = ""


def plan_removal(kernel: Kernel, dataset_id: str, name: str) -> TargetRemoval:
    """The removal, or why there is none: a target that takes a dataset would show it again."""
    chosen = next((one for one in kernel.settings.publish if target_name(one) == name), None)
    if chosen is None:
        names = ", ".join(map(target_name, kernel.settings.publish)) or "none"
        raise UsageError(f"There is no target `{name}`.", remedy=f"The configuration has: {names}.")
    dataset = kernel.dataset_now(dataset_id)
    if dataset is None:
        raise UsageError(
            f"The dataset `{dataset_id}` is not in the configuration.",
            remedy=f"Take all of it down: kfm withdraw {dataset_id} --rationale TEXT",
        )
    why, shows = taking(chosen, dataset), kernel.ledger.projected().get((dataset_id, name), 0)
    if why == "taken":
        raise UsageError(
            f"The target {name} takes the dataset {dataset_id}, and would show it again.",
            remedy="Change `datasets` or `care` of the target first; or withdraw the dataset everywhere.",
        )
    if not shows:
        raise UsageError(f"The target {name} does not show the dataset {dataset_id}.")
    place = described(chosen)
    made = TargetRemoval(
        dataset_id=dataset_id, target=name, kind=place.kind, place=place.place, shows=shows, reason_code=why
    )
    return msgspec.structs.replace(made, digest=sha256_text(canonical_bytes(msgspec.to_builtins(made))))


def remove(
    kernel: Kernel, dataset_id: str, name: str, digest: str | None, by: Justification
) -> TargetRemoval:
    """Take it down: at the target first, then in the ledger and the audit log. Safe to repeat."""
    plan = plan_removal(kernel, dataset_id, name)
    if digest is not None and digest != plan.digest:
        raise PlanDrifted(
            f"The removal is another one by now: its digest is {plan.digest}.",
            remedy="Look at it again: the same command without --yes and --plan shows it.",
        )
    target = next(one for one in kernel.projections if one.name == name)
    if not isinstance(target, RemovingProjection):
        raise TargetUnavailable(
            f"{name}: a target of kind {plan.kind} can't remove what it shows.",
            remedy="Take it down there by hand. `kfm status` names it as long as `publish` has the target.",
        )
    at_ms = kernel.store.now_ms()
    try:
        removed = target.remove(dataset_id, _tombstone(plan, by, at_ms))
    except KfmError:
        raise
    except OSError as error:
        trouble = os_trouble(error)
        raise TargetUnavailable(f"{name}: {trouble.text}", remedy=trouble.remedy) from error
    facts = {"target": name, "shown": plan.shows, "removed": removed, "digest": plan.digest}
    entry = governance_entry("target-removal", dataset_id, at_ms, by, **facts)
    kernel.store.forget_projected(dataset_id, name, plan.shows, entry)
    return plan


def _tombstone(plan: TargetRemoval, by: Justification, at_ms: int) -> dict[str, Any]:
    told = {"reason": by.rationale or "", "at": rfc3339(at_ms), "since_sequence": plan.shows, "purged": True}
    return {
        "tombstone": 1,
        "dataset_id": plan.dataset_id,
        "sequence": plan.shows,
        "state": "withdrawn",
        "withdrawn": [told],
    }
