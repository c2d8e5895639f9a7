"""Target updates: every target is made to show the head that the ledger names."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from kfm.model.dataset_changes import (
    TombstonedPromotion,
    Withdrawal,
    at_version,
    only_removes,
    tombstone,
)
from kfm.model.errors import ConfigError, KfmError, TargetUnavailable
from kfm.model.gates import refusal
from kfm.model.records import Manifest, Promotion
from kfm.model.settings import DatasetSettings, Settings
from kfm.model.targets import is_showable
from kfm.ports import Projection
from kfm.publish.manifest import version_id
from kfm.runs import admission, purges
from kfm.runs.kernel import Kernel, ProjectionReport
from kfm.system import os_trouble

NOT_TAKEN = ConfigError("The target does not take this dataset any more.")


def project(
    kernel: Kernel, dataset_id: str | None = None, *, everything: bool = False
) -> list[ProjectionReport]:
    """Bring targets up to date: those behind the head, or all of them.

    A target that fails is reported and left for the next call: the promotion stands. What may not be
    published now is not shown either: the gates are asked for each dataset that a target lacks. A target that
    does not take a dataset is not called.
    """
    shown = kernel.ledger.projected()
    reports = []
    for head in kernel.ledger.heads():
        if dataset_id is not None and head.dataset_id != dataset_id:
            continue
        # What is not configured any more stays where it was shown.
        looks = is_configured(kernel.settings, head.dataset_id)
        targets, dataset, problem = _taking(kernel, head.dataset_id)
        behind = [
            target
            for target in targets
            if shown.get((head.dataset_id, target.name), 0) < head.sequence
            or (looks and (everything or fell(target, head)))
        ]
        refused = problem or (_refusal(kernel, head, dataset) if behind else None)
        for target in kernel.projections if len(targets) < len(kernel.projections) else ():
            before = shown.get((head.dataset_id, target.name), 0)
            if target not in targets and _only_removes(kernel, head, target, before):
                # It took the dataset once. It gets nothing new, but what is taken down goes there, too.
                reports.append(_project_one(kernel, head.dataset_id, target, pinned=(head, NOT_TAKEN)))
        for target in behind:
            before = shown.get((head.dataset_id, target.name), 0)
            if refused is None:
                reports.append(_project_one(kernel, head.dataset_id, target))
            elif _only_removes(kernel, head, target, before):
                reports.append(_project_one(kernel, head.dataset_id, target, pinned=(head, refused)))
            else:
                reports.append(_failed(head.dataset_id, target, refused))
    purges.finish(kernel, dataset_id)
    return reports


def _taking(
    kernel: Kernel, dataset_id: str
) -> tuple[list[Projection], DatasetSettings | None, KfmError | None]:
    """The targets that take this dataset as it is declared now. All of them where none may: what is declared
    no more, can't be read, is blocked or has no rights is refused by name, not left out."""
    try:
        dataset = kernel.dataset_now(dataset_id)
        if dataset is None or not is_showable(dataset):
            return list(kernel.projections), dataset, None
        names = {target.name for target in kernel.reached(dataset)}
    except KfmError as error:
        return list(kernel.projections), None, error
    return [target for target in kernel.projections if target.name in names], dataset, None


def _only_removes(kernel: Kernel, head: Promotion, target: Projection, shown: int) -> bool:
    """What stops publishing does not stop removing. Where nothing was shown, or is there any more, there is
    nothing to remove: what the head still holds would be shown anew."""
    ledger = kernel.ledger
    before = ledger.promotion(head.dataset_id, shown) if 0 < shown < head.sequence else None
    manifest = ledger.manifest(head.version_id)
    if before is None or manifest is None or (manifest.items and fell(target, before)):
        return False
    return only_removes(ledger.manifest(before.version_id), manifest)


def fell(target: Projection, head: Promotion) -> bool:
    """Is what this target was known to show not there any more? Asked where looking is cheap."""
    stands: Callable[[str, Promotion], bool] | None = getattr(target, "stands", None)
    try:
        return stands is not None and not stands(head.dataset_id, head)
    except (KfmError, OSError):
        return True  # projecting it again names the trouble


def is_configured(settings: Settings, dataset_id: str) -> bool:
    return any(dataset.id == dataset_id for dataset in settings.datasets)


def _refusal(kernel: Kernel, head: Promotion, dataset: DatasetSettings | None) -> KfmError | None:
    """Why nothing of this dataset may be shown now; None if it may."""
    if dataset is None:
        return ConfigError(
            f"The dataset {head.dataset_id} is promoted but not configured any more, so it is not projected.",
            remedy="Configure the dataset again, and its targets are brought up to date.",
        )
    try:
        decision = admission.at_projection(kernel, dataset, head)
    except KfmError as error:
        return error  # a gate that can't be asked does not let anything pass
    if not decision.allowed:
        return refusal(decision)
    if not is_showable(dataset):
        return ConfigError(f"The dataset {dataset.id} has no rights that let a target show it.")
    return None


def _project_one(
    kernel: Kernel,
    dataset_id: str,
    target: Projection,
    pinned: tuple[Promotion, KfmError] | None = None,
) -> ProjectionReport:
    """`pinned`: the only version that may be shown, and what refuses any other."""
    changes, seen = kernel.ledger.change_reader(), []
    mine = [one for one in changes.target_withdrawals(dataset_id) if one.target == target.name]

    def known(sequence: int) -> str | None:
        found = kernel.ledger.promotion(dataset_id, sequence)
        manifest = kernel.ledger.manifest(found.version_id) if found and at_version(mine, sequence) else None
        if manifest is not None:
            return version_id(replace(manifest, items=()))
        return found.version_id if found else None

    def head() -> tuple[Promotion, Manifest] | None:
        found = _emptied(changes.shown_head(dataset_id), mine)
        if pinned is not None and (found is None or found[0].sequence != pinned[0].sequence):
            raise pinned[1]
        seen.append(found[0].sequence if found else 0)
        return found

    try:
        sequence = target.project(dataset_id, head, known)
        if seen and seen[-1] > seen[0]:
            # It was about to show an older version, whose bytes may have been purged since: not by its doing.
            purges.finish(kernel, dataset_id, again=True, target=target.name)
        if sequence is not None:
            kernel.store.raise_projected(dataset_id, target.name, sequence)
    except KfmError as error:
        return _failed(dataset_id, target, error)
    except OSError as error:
        trouble = os_trouble(error)
        problem = TargetUnavailable(f"{target.name}: {trouble.text}", remedy=trouble.remedy)
        return _failed(dataset_id, target, problem)
    return ProjectionReport(dataset_id=dataset_id, target=target.name, sequence=sequence)


def _emptied(
    found: tuple[Promotion, Manifest] | None, withdrawals: list[Withdrawal]
) -> tuple[Promotion, Manifest] | None:
    """The head as a target shows it from which the dataset was withdrawn: nothing but a tombstone."""
    known = at_version(withdrawals, found[0].sequence) if found is not None else ()
    if found is None or not known:
        return found
    promotion, manifest = found[0], replace(found[1], items=())
    stands = tombstone(promotion.dataset_id, promotion.sequence, known)
    facts = {name: getattr(promotion, name) for name in Promotion.__struct_fields__}
    assert stands is not None
    return (
        TombstonedPromotion(**{**facts, "version_id": version_id(manifest)}, tombstone=stands),
        manifest,
    )


def _failed(dataset_id: str, target: Projection, error: KfmError) -> ProjectionReport:
    return ProjectionReport(
        dataset_id=dataset_id, target=target.name, sequence=None, error=error.as_document()
    )
