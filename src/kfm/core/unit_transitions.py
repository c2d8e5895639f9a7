"""Every change that a unit of the write-ahead ledger can go through, by name.

Each raises `version` by one, which is what the store's compare-and-set tests.
`attempts` counts attempts opened: the first claim opens one, and after that
whatever sets the unit back to pending does.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kfm.core.errors import IllegalTransition, RationaleRequired
from kfm.core.records import Unit, UnitStatus
from kfm.core.states import check_transition

LEASE_EXPIRED = "LEASE_EXPIRED"
_FIELDS = frozenset(Unit.__struct_fields__)
CATALOGUED = ("created", "updated", "no-op")


def created(
    *,
    wal_id: str,
    dataset: str,
    object_uri: str,
    provider: str,
    queue: str,
    event_time_ms: int | None,
    time_range_start_ms: int | None,
    time_range_end_ms: int | None,
    now_ms: int,
    extra: dict[str, Any] | None = None,
    replay_reason: str | None = None,
) -> Unit:
    check_transition("unit", None, "pending", "created")
    extra = extra or {}
    if not _FIELDS.isdisjoint(extra):
        shadowed = sorted(_FIELDS.intersection(extra))
        raise IllegalTransition(
            f"unit {wal_id}: extra fields shadow the record's own: {', '.join(shadowed)}."
        )
    return Unit(
        wal_id=wal_id,
        dataset=dataset,
        object_uri=object_uri,
        provider=provider,
        queue=queue,
        event_time_ms=event_time_ms,
        time_range_start_ms=time_range_start_ms,
        time_range_end_ms=time_range_end_ms,
        status="pending",
        attempts=0,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        version=1,
        replay_reason=replay_reason,
        extra=extra,
    )


def claimed(unit: Unit, *, worker_id: str, ingest_run_id: str | None, now_ms: int) -> Unit:
    """The claim's fence is the version of the record that this returns."""
    return _moved(
        unit,
        "in_progress",
        "claimed",
        now_ms,
        attempts=max(unit.attempts, 1),
        worker_id=worker_id,
        ingest_run_id=ingest_run_id,
        last_attempt_at_ms=now_ms,
    )


def unit_succeeded(unit: Unit, *, now_ms: int, partial_provenance_allowed: bool = False) -> Unit:
    provenance = ("ok", "partial") if partial_provenance_allowed else ("ok",)
    if unit.stac_status not in CATALOGUED or unit.provenance_status not in provenance:
        raise IllegalTransition(
            f"unit {unit.wal_id}: stac is {unit.stac_status} and provenance {unit.provenance_status}, "
            "so it has not succeeded."
        )
    return _moved(unit, "succeeded", "succeeded", now_ms, last_error_code=None, last_error_message=None)


def unit_failed(unit: Unit, *, error_code: str, error_message: str, now_ms: int) -> Unit:
    """The message is stored as given: redact it first."""
    return _moved(
        unit, "failed", "failed", now_ms, last_error_code=error_code, last_error_message=error_message
    )


def lease_lapsed(unit: Unit, *, now_ms: int) -> Unit:
    return unit_failed(unit, error_code=LEASE_EXPIRED, error_message="The lease lapsed.", now_ms=now_ms)


def retry_scheduled(unit: Unit, *, now_ms: int) -> Unit:
    return _reopened(unit, "retry_scheduled", now_ms, replay_reason=unit.replay_reason)


def replayed(unit: Unit, *, reason: str, now_ms: int) -> Unit:
    if not reason:
        raise RationaleRequired(f"A replay of unit {unit.wal_id} needs a reason code.")
    return _reopened(unit, "replayed", now_ms, replay_reason=reason)


def migrated(unit: Unit, *, reason: str, approval: str, now_ms: int) -> Unit:
    """The one way back from succeeded and quarantined. `approval` names the recorded approval."""
    if not (reason and approval):
        raise RationaleRequired(f"A migration of unit {unit.wal_id} needs a reason and an approval.")
    return _reopened(unit, "migrated", now_ms, replay_reason=reason)


def quarantined(unit: Unit, *, error_code: str, error_message: str, now_ms: int) -> Unit:
    """From pending or failed. In progress, use `failed_then_quarantined`."""
    return _moved(
        unit,
        "quarantined",
        "quarantined",
        now_ms,
        last_error_code=error_code,
        last_error_message=error_message,
        worker_id=None,
    )


def failed_then_quarantined(
    unit: Unit, *, error_code: str, error_message: str, now_ms: int
) -> tuple[Unit, Unit]:
    """A decision taken in progress: both records, for one transaction."""
    first = unit_failed(unit, error_code=error_code, error_message=error_message, now_ms=now_ms)
    return first, quarantined(first, error_code=error_code, error_message=error_message, now_ms=now_ms)


def lease_until_ms(claimed_at_ms: int, visibility_ms: int, safety_ms: int) -> int:
    """When a claim lapses."""
    return claimed_at_ms + visibility_ms + safety_ms


def _reopened(unit: Unit, event: str, now_ms: int, *, replay_reason: str | None) -> Unit:
    return _moved(
        unit,
        "pending",
        event,
        now_ms,
        attempts=unit.attempts + 1,
        worker_id=None,
        replay_reason=replay_reason,
    )


def _moved(unit: Unit, status: UnitStatus, event: str, now_ms: int, **changes: Any) -> Unit:
    check_transition("unit", unit.status, status, event)
    return replace(unit, status=status, version=unit.version + 1, updated_at_ms=now_ms, **changes)
