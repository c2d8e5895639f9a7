"""Decoders of every record that kfm reads, made in one thread.

msgspec builds what it knows of a type when that type is decoded for the first time, and publishes it before
it is complete. A second thread that decodes the same type meanwhile reads what is half built: a segmentation
fault. So each command that starts threads makes all decoders first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import msgspec

_lock = threading.Lock()
_prepared: set[Any] = set()


def prepare_decoders(more: Iterable[Any] = ()) -> frozenset[Any]:
    """Make the decoder of each record that kfm reads, and of `more`, before any thread starts.

    All that are made. A test compares them with the calls of msgspec in the source.
    """
    with _lock:
        for kind in {*(_kinds() if not _prepared else ()), *more} - _prepared:
            msgspec.json.Decoder(kind)
            _prepared.add(kind)
        return frozenset(_prepared)


def _kinds() -> tuple[Any, ...]:
    """Imported late: a command without threads needs none of it."""
    from kfm.config.cache import CachedConfig
    from kfm.config.schedules import ScheduleFile
    from kfm.model.attempts import Energy
    from kfm.model.audit import Anchor
    from kfm.model.breaker import Breaker
    from kfm.model.catalogue import AssetFacts
    from kfm.model.contracts import Machine
    from kfm.model.incidents import Incident
    from kfm.model.quarantine import Approval, QuarantineEntry, RetryState
    from kfm.model.records import Found, GateResult, Manifest, Node, Output, Promotion, Run, Switch, Unit
    from kfm.model.replays import ReplayPlan, ReplaySpec
    from kfm.model.requests import UpdateRequest
    from kfm.model.retry import RetryRules
    from kfm.model.run_state import RunStateDocument
    from kfm.model.schedules import Instant, ScheduleState
    from kfm.model.settings import Settings
    from kfm.model.units import Ended
    from kfm.model.webhooks import Payload
    from kfm.nodd.messages.s3_fast import S3Event, SnsEnvelope
    from kfm.publish.manifest import VersionChange
    from kfm.publish.publisher import FileMetadata
    from kfm.publish.targets.s3 import Pointer
    from kfm.release.attestation import Statement
    from kfm.runs.plan import Header
    from kfm.telemetry.metric_catalogue import _Metrics, _Spans

    return (
        _Metrics,
        _Spans,
        Anchor,
        Approval,
        AssetFacts,
        Breaker,
        VersionChange,
        Ended,
        Energy,
        CachedConfig,
        SnsEnvelope,
        S3Event,
        FileMetadata,
        Found,
        GateResult,
        Header,
        QuarantineEntry,
        Incident,
        Instant,
        Machine,
        Manifest,
        Node,
        Output,
        Payload,
        Pointer,
        Promotion,
        ReplayPlan,
        ReplaySpec,
        RetryRules,
        RetryState,
        Run,
        RunStateDocument,
        ScheduleFile,
        ScheduleState,
        Settings,
        Statement,
        Switch,
        Unit,
        UpdateRequest,
    )
