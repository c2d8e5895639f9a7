"""Making every target show the head that the database names."""

from __future__ import annotations

from kfm.core.errors import KfmError, TargetUnavailable
from kfm.engine.kernel import Kernel
from kfm.engine.requests import ProjectionReport
from kfm.ports import Projection


def project(
    kernel: Kernel, dataset_id: str | None = None, *, everything: bool = False
) -> list[ProjectionReport]:
    """Bring targets up to date: those behind the head, or all of them.

    A target that fails is reported and left for the next call: the promotion stands.
    """
    known = {} if everything else kernel.ledger.projected()
    reports = []
    for head in kernel.ledger.heads():
        if dataset_id is not None and head.dataset_id != dataset_id:
            continue
        for target in kernel.projections:
            if known.get((head.dataset_id, target.name), 0) < head.sequence:
                reports.append(_project_one(kernel, head.dataset_id, target))
    return reports


def _project_one(kernel: Kernel, dataset_id: str, target: Projection) -> ProjectionReport:
    try:
        sequence = target.project(dataset_id, lambda: kernel.ledger.head(dataset_id))
        if sequence is not None:
            kernel.store.raise_projected(dataset_id, target.name, sequence)
    except KfmError as error:
        return ProjectionReport(
            dataset_id=dataset_id, target=target.name, sequence=None, error=error.as_document()
        )
    except OSError as error:
        problem = TargetUnavailable(f"{target.name}: {error.strerror or error}")
        return ProjectionReport(
            dataset_id=dataset_id, target=target.name, sequence=None, error=problem.as_document()
        )
    return ProjectionReport(dataset_id=dataset_id, target=target.name, sequence=sequence)
