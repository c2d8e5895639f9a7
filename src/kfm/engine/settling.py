"""Is work that was done still what stands there? Reads only."""

from __future__ import annotations

from kfm.admission.subject import Subject
from kfm.core.records import Run
from kfm.ports import LedgerReader
from kfm.publish.manifest import merge_items


def unsettled(ledger: LedgerReader, subject: Subject, run: Run) -> str | None:
    """Why an unchanged upstream is not enough to leave things as they are; None if it is."""
    newest = ledger.latest_success(subject.work)
    if newest is not None and newest.run_id != run.run_id:
        return f"Pipeline version {newest.pipeline_version} has published this window since."
    head = ledger.head(subject.dataset.id)
    if head is None:
        return "Nothing of this dataset is published." if run.version_id else None
    described = merge_items(head[1], subject.dataset, (), "merge")
    if described != head[1]:
        return "The dataset's description or rights have changed."
    return None
