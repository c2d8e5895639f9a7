"""Decoders of every record that kfm reads, made in one thread.

msgspec builds what it knows of a type when that type is decoded for the first time, and publishes it before
it is complete. A second thread that decodes the same type meanwhile reads what is half built: a segmentation
fault. So each command that starts threads makes all decoders first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import msgspec

# By name: the list spans all features, a command without threads needs none of them, and a feature that calls
# this from below must not import those above it.
_RECORDS = (
    "kfm.config.loader:CachedConfig",
    "kfm.config.schedule_file:ScheduleFile",
    "kfm.config.schedules:CachedSchedules",
    "kfm.datasets.completeness:CachedLatency",
    "kfm.db.fact_pages:_Page",
    "kfm.db.retention:Mark",
    "kfm.model.runs:Energy",
    "kfm.model.audit:Anchor",
    "kfm.model.breaker:Breaker",
    "kfm.model.catalogue:AssetFacts",
    "kfm.model.contracts:Machine",
    "kfm.datasets.changes:ChangePlan",
    "kfm.db.dataset_changes:_RenamePlan",
    "kfm.model.dataset_changes:ChangeTime",
    "kfm.model.dataset_changes:DatasetChange",
    "kfm.model.dataset_changes:Purge",
    "kfm.model.dataset_changes:Withdrawal",
    "kfm.model.incidents:Incident",
    "kfm.model.incidents:IncidentSubject",
    "kfm.model.incidents:RoutedChange",
    "kfm.model.incidents:Silence",
    "kfm.model.quarantine:Approval",
    "kfm.model.quarantine:QuarantineEntry",
    "kfm.model.quarantine:RetryState",
    "kfm.model.records:Found",
    "kfm.model.records:GateResult",
    "kfm.model.records:Item",
    "kfm.model.records:Manifest",
    "kfm.model.records:Node",
    "kfm.model.records:Output",
    "kfm.model.records:Promotion",
    "kfm.model.records:Run",
    "kfm.model.records:Switch",
    "kfm.model.records:Unit",
    "kfm.model.replays:ReplayPlan",
    "kfm.model.replays:ReplaySpec",
    "kfm.model.replays:ReplaySummary",
    "kfm.model.requests:UpdateRequest",
    "kfm.model.retry:RetryRules",
    "kfm.model.run_state:RunStateDocument",
    "kfm.model.schedules:Instant",
    "kfm.model.schedules:ScheduleState",
    "kfm.model.settings:Settings",
    "kfm.model.units:Ended",
    "kfm.model.versions:VersionRoot",
    "kfm.model.webhooks:Payload",
    "kfm.nodd.messages.s3_fast:S3Event",
    "kfm.nodd.messages.s3_fast:SnsEnvelope",
    "kfm.publish.manifest:VersionChange",
    "kfm.publish.publisher:FileMetadata",
    "kfm.publish.targets.bucket_latest:LatestMarker",
    "kfm.publish.targets.s3:Pointer",
    "kfm.release.attestation:Statement",
    "kfm.runs.plan:Header",
    "kfm.telemetry.ledger_metrics:MetricFold",
    "kfm.telemetry.metric_catalogue:_Metrics",
    "kfm.telemetry.metric_catalogue:_Spans",
)
_lock = threading.Lock()
_prepared: set[Any] = set()


def prepare_decoders(more: Iterable[Any] = ()) -> frozenset[Any]:
    """Make the decoder of each record that kfm reads, and of `more`, before any thread starts.

    Returns all that were made. A test compares them with the calls of msgspec in the source.
    """
    with _lock:
        for kind in {*(_records() if not _prepared else ()), *more} - _prepared:
            msgspec.json.Decoder(kind)
            _prepared.add(kind)
        return frozenset(_prepared)


def _records() -> list[Any]:
    named = (name.split(":") for name in _RECORDS)
    return [getattr(import_module(module), record) for module, record in named]
