"""Units of the write-ahead ledger: workers claim them, die, retry, replay; a small model keeps count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from kfm.model.errors import IllegalTransition, RationaleRequired, SchemaViolation
from kfm.model.records import Node, Unit
from kfm.model.retry import Classification, policy_for, unit_fate
from kfm.model.runs import recorded
from kfm.model.units import (
    LEASE_EXPIRED,
    claimed,
    created,
    failed_then_quarantined,
    lease_lapsed,
    lease_until_ms,
    migrated,
    quarantined,
    replayed,
    retry_scheduled,
    unit_failed,
    unit_succeeded,
    wal_id,
)
from tests.simulation.actors.scene import Scene, refused
from tests.simulation.judging import require

WORKERS = 2
STEPS = 14
VISIBILITY_MS, SAFETY_MS = 30_000, 5_000
# What leads where. Everything else is illegal.
PATHS = {
    ("pending", "claim"): "in_progress",
    ("in_progress", "succeed"): "succeeded",
    ("in_progress", "fail"): "failed",
    ("in_progress", "lapse"): "failed",
    ("in_progress", "give up"): "quarantined",
    ("failed", "retry"): "pending",
    ("failed", "replay"): "pending",
    ("failed", "quarantine"): "quarantined",
    ("pending", "quarantine"): "quarantined",
    ("succeeded", "migrate"): "pending",
    ("quarantined", "migrate"): "pending",
}
OPERATIONS = sorted({operation for _, operation in PATHS})


@dataclass
class Row:
    """The stored unit, with what an onlooker counted."""

    unit: Unit
    opened: int = 0  # attempts
    writes: int = 1
    lease_until_ms: int = 0
    grant_attempts: int = 0
    grants: int = 1


def work_through(scene: Scene) -> None:
    rows = [Row(_announced(scene, number)) for number in range(2)]
    for index in range(WORKERS):
        scene.beside(f"worker{index}", lambda each: _worker(each, rows))
    _worker(scene, rows)
    refused(
        IllegalTransition,
        lambda: _announced(scene, 9, extra={"status": "x"}),
        "an extra field does not shadow the record",
    )
    _journal(scene)


def _announced(scene: Scene, number: int, extra: dict[str, str] | None = None) -> Unit:
    uri = f"s3://bucket/tile-{number}.tif"
    start_ms = scene.now_ms - number * 1000
    return created(
        wal_id=wal_id("tiles", uri, start_ms),
        dataset="tiles",
        object_uri=uri,
        provider="p",
        queue="q",
        event_time_ms=start_ms,
        time_range_start_ms=start_ms,
        time_range_end_ms=start_ms + 1000,
        now_ms=scene.now_ms,
        extra=extra,
    )


def _worker(scene: Scene, rows: list[Row]) -> None:
    rng = scene.rng
    for _ in range(STEPS):
        row = rng.choice(rows)
        legal = [operation for state, operation in PATHS if state == row.unit.status]
        operation = rng.choice(legal) if rng.random() < 0.8 else rng.choice(OPERATIONS)
        seen = row.unit
        scene.pause("unit.read")
        _attempt(scene, row, seen, operation)
        scene.sleep(rng.choice((10, 1_000, VISIBILITY_MS)))


def _attempt(scene: Scene, row: Row, seen: Unit, operation: str) -> None:
    """One worker's try, on what it had read: the store takes it only if nobody was quicker."""
    now_ms = scene.now_ms
    if operation == "lapse" and now_ms < row.lease_until_ms:
        return  # not yet
    ready = seen.stac_status in ("created", "updated", "no-op") and seen.provenance_status == "ok"
    target = PATHS.get((seen.status, operation))
    step = _step(scene, seen, operation, now_ms)
    if target is None or (operation == "succeed" and not ready):
        refused(IllegalTransition, step, "only what the table allows", status=seen.status, asked=operation)
        if operation == "succeed" and seen.status == "in_progress" and row.unit is seen:
            done = replace(seen, stac_status=scene.rng.choice(("created", "no-op")), provenance_status="ok")
            row.unit = done  # the catalogue's part is written; the next try may succeed
        return
    after = step()
    steps = after if isinstance(after, tuple) else (after,)
    require(steps[-1].status == target, "a step leads where the table says", asked=operation)
    for index, each in enumerate(steps, 1):
        require(each.version == seen.version + index, "every step raises the version", asked=operation)
    if row.unit is not seen:
        return  # somebody was quicker
    _landed(scene, row, steps, operation)


def _landed(scene: Scene, row: Row, steps: tuple[Unit, ...], operation: str) -> None:
    last = row.unit = steps[-1]
    row.writes += len(steps)
    if operation == "claim":
        row.opened = max(row.opened, 1)
        row.lease_until_ms = lease_until_ms(scene.now_ms, VISIBILITY_MS, SAFETY_MS)
        require(row.lease_until_ms > scene.now_ms, "a claim has time")
    if operation in ("retry", "replay", "migrate"):
        row.opened += 1
        require(last.worker_id is None, "what is open again belongs to nobody")
    if operation in ("replay", "migrate"):
        require(bool(last.replay_reason), "a replay says why")
    if operation == "lapse":
        require(last.last_error_code == LEASE_EXPIRED, "a lapsed lease is told apart")
    if operation == "succeed":
        require(last.last_error_code is None, "a success carries no error")
        row.unit = replace(last, stac_status="unknown", provenance_status="unknown")
    if last.status == "failed":
        _fate(scene, row)
    require(last.attempts == row.opened, "attempts count what was opened", unit=last, opened=row.opened)
    require(last.version == row.writes, "the version counts the writes", unit=last, writes=row.writes)


def _fate(scene: Scene, row: Row) -> None:
    policy = policy_for("upstream-event")
    passing = scene.rng.random() < 0.8
    row.grant_attempts += 1
    fate = unit_fate(
        Classification(retryable=passing, error_class="x"), row.grant_attempts, row.grants, policy, 2
    )
    if not passing:
        require(fate == "quarantine", "what can't pass is put aside")
    elif row.grant_attempts < policy.attempts_max:
        require(fate == "retry", "within its grant a unit is tried again", attempts=row.grant_attempts)
    else:
        require(fate == ("dead-letter" if row.grants < 2 else "quarantine"), "grants are limited")
        row.grants, row.grant_attempts = row.grants + 1, 0


def _step(scene: Scene, unit: Unit, operation: str, now_ms: int) -> Callable[[], Unit | tuple[Unit, Unit]]:
    error = {"error_code": "E", "error_message": "it broke"}
    for empty in (
        lambda: replayed(unit, reason="", now_ms=now_ms),
        lambda: migrated(unit, reason="x", approval="", now_ms=now_ms),
    ):
        if scene.rng.random() < 0.1:
            refused(RationaleRequired, empty, "a person answers for it")
    steps: dict[str, Callable[[], Unit | tuple[Unit, Unit]]] = {
        "claim": lambda: claimed(unit, worker_id=scene.process.name, ingest_run_id=None, now_ms=now_ms),
        "succeed": lambda: unit_succeeded(unit, now_ms=now_ms),
        "fail": lambda: unit_failed(unit, now_ms=now_ms, **error),
        "lapse": lambda: lease_lapsed(unit, now_ms=now_ms),
        "give up": lambda: failed_then_quarantined(unit, now_ms=now_ms, **error),
        "retry": lambda: retry_scheduled(unit, now_ms=now_ms),
        "replay": lambda: replayed(unit, reason="LATE", now_ms=now_ms),
        "quarantine": lambda: quarantined(unit, now_ms=now_ms, **error),
        "migrate": lambda: migrated(unit, reason="M", approval="A-1", now_ms=now_ms),
    }
    return steps[operation]


def _journal(scene: Scene) -> None:
    """Steps of a run: what is written down must add up."""
    rng = scene.rng
    previous: Node | None = None
    for attempt in range(1, 5):
        passed, failed = rng.randrange(4), rng.randrange(2)
        checks = passed + failed + rng.choice((0, 0, 1))
        outcome = rng.choice(("success", "failed", "partial", "skipped"))
        because = "run-1" if rng.random() < 0.5 else None
        node = Node(
            dataset_id="tiles",
            run_id="r",
            lakefs_branch="main",
            inputs_hash="sha256:0",
            validation_summary={"checks": checks, "passed": passed, "failed": failed},
            outcome=outcome,
            recorded_at_ms=scene.now_ms,
            attempt=attempt,
            skipped_because=because,
        )
        adds_up = checks == passed + failed
        named = (outcome == "skipped") == (because is not None)
        backwards = previous is not None and (previous.outcome, outcome) == ("success", "skipped")
        try:
            stored = recorded(previous, node)
        except (SchemaViolation, IllegalTransition):
            require(not (adds_up and named) or backwards, "a step that adds up is recorded", node=node)
            continue
        require(adds_up and named and not backwards, "a step that does not add up is refused", node=node)
        previous = stored
    broken = {"checks": True, "passed": 1, "failed": 0}
    if previous is not None:
        refused(
            SchemaViolation,
            lambda: recorded(None, replace(previous, validation_summary=broken)),
            "counts are numbers",
        )
