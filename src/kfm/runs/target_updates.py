"""Target updates: every target is made to show the head that the ledger names."""

from __future__ import annotations

from collections.abc import Callable

from kfm.model.errors import ConfigError, KfmError, TargetUnavailable
from kfm.model.gates import refusal
from kfm.model.records import Promotion
from kfm.model.settings import DatasetSettings, Settings
from kfm.model.targets import is_showable
from kfm.ports import Projection
from kfm.runs import admission
from kfm.runs.kernel import Kernel, ProjectionReport
from kfm.system import os_trouble


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
        for target in behind:
            if refused is not None:
                reports.append(_failed(head.dataset_id, target, refused))
            else:
                reports.append(_project_one(kernel, head.dataset_id, target))
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


def _project_one(kernel: Kernel, dataset_id: str, target: Projection) -> ProjectionReport:
    def known(sequence: int) -> str | None:
        found = kernel.ledger.promotion(dataset_id, sequence)
        return found.version_id if found else None

    try:
        sequence = target.project(dataset_id, lambda: kernel.ledger.head(dataset_id), known)
        if sequence is not None:
            kernel.store.raise_projected(dataset_id, target.name, sequence)
    except KfmError as error:
        return _failed(dataset_id, target, error)
    except OSError as error:
        trouble = os_trouble(error)
        problem = TargetUnavailable(f"{target.name}: {trouble.text}", remedy=trouble.remedy)
        return _failed(dataset_id, target, problem)
    return ProjectionReport(dataset_id=dataset_id, target=target.name, sequence=sequence)


def _failed(dataset_id: str, target: Projection, error: KfmError) -> ProjectionReport:
    return ProjectionReport(
        dataset_id=dataset_id, target=target.name, sequence=None, error=error.as_document()
    )
