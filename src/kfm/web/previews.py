"""The answer to a dry run over HTTP: outcome and plan."""

from __future__ import annotations

from typing import Any

from kfm.model.redaction import is_masked
from kfm.model.settings import DatasetSettings
from kfm.model.times import rfc3339
from kfm.runs.kernel import RunReport

CHANGES_MAX = 1000


def preview_document(report: RunReport, dataset: DatasetSettings) -> dict[str, Any]:
    """The outcome and the plan. The changes of data that is not public are counted, not named.

    Of a masked dataset the outcome alone: the secret of a source is no right to know what it feeds.
    """
    if is_masked(dataset):
        code = report.error.code if report.error is not None else None
        return {
            "dry_run": True,
            "outcome": report.outcome,
            "source_id": report.source_id,
            "error": code and {"code": code},
        }
    public = dataset.rights is not None and dataset.rights.care.level == "public"
    document: dict[str, Any] = {
        "dry_run": True,
        "outcome": report.outcome,
        "word": report.word,
        "reason": report.reason,
        "source_id": report.source_id,
        "dataset_id": report.dataset_id,
        "window_start": rfc3339(report.window_start_ms),
        "window_end": rfc3339(report.window_end_ms),
        "plan": None,
    }
    if report.plan is not None:
        header = report.plan.header
        document["plan"] = {
            "digest": header.digest,
            "base_version": header.base_sequence,
            "version_id": header.version_id,
            "unchanged": report.plan.unchanged,
            "tally": header.tally,
            "changes": list(report.plan.changes[:CHANGES_MAX]) if public else [],
            "changes_left_out": max(0, len(report.plan.changes) - CHANGES_MAX)
            if public
            else len(report.plan.changes),
        }
    if report.error is not None:
        document["error"] = report.error.as_document()
    return document
