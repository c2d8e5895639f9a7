"""Units of the ledger: workers claim them, die, retry; the store's answers are those of a small model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from kfm.model.errors import IllegalTransition, RationaleRequired, SchemaViolation
from kfm.model.records import Node, Unit
from kfm.model.retry import Classification, retry_rules
from kfm.model.runs import recorded
from kfm.model.units import ClaimedUnit, created, migrated, replayed
from kfm.nodd.worker import failure_of_unit
from tests.conformance.db.ledgers import memory_store
from tests.conformance.units.scene import Scene as Ledger
from tests.conformance.units.scene import done, gone, id_of, taken
from tests.conformance.units.unit_model import Oracle
from tests.simulation.actors.scene import Scene, refused
from tests.simulation.judging import require

WORKERS = 2
STEPS = 14
LEASE_MS = 30_000
NAMES = "ab"
IDS = {id_of(name): name for name in NAMES}
PASSING = Classification(retryable=True, error_class="x")
LASTING = Classification(retryable=False, error_class="x")


class Now:
    """The world's clock, as the store reads it."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def now_ms(self) -> int:
        return self._scene.now_ms

    def monotonic_ms(self) -> int:
        return self._scene.now_ms

    def sleep_ms(self, delay_ms: int) -> None:
        self._scene.sleep(delay_ms)


@dataclass
class Play:
    """The store as production has it, and what it should say."""

    ledger: Ledger
    oracle: Oracle = field(default_factory=Oracle)
    versions: dict[str, int] = field(default_factory=dict)


def work_through(scene: Scene) -> None:
    play = Play(Ledger(memory_store(Now(scene))))
    for name in NAMES:
        _announce(scene, play, name, "e1", "1")
    for index in range(WORKERS):
        scene.beside(f"worker{index}", lambda each: _worker(each, play))
    _worker(scene, play)
    refused(
        IllegalTransition,
        lambda: created(**_facts(scene), extra={"status": "x"}),
        "an extra field does not shadow the record",
    )
    _journal(scene)


def _facts(scene: Scene) -> dict[str, Any]:
    named = ("wal_id", "dataset", "object_uri", "provider", "queue")
    timed = ("event_time_ms", "time_range_start_ms", "time_range_end_ms", "now_ms")
    return {**dict.fromkeys(named, "x"), **dict.fromkeys(timed, scene.now_ms)}


def _worker(scene: Scene, play: Play) -> None:
    """Claims, and ends what it claimed; now and then too late, or not at all."""
    rng, held = scene.rng, list[ClaimedUnit]()
    for _ in range(STEPS):
        operation = rng.choice(("claim", "claim", "end", "end", "end", "reap", "announce", "remove"))
        scene.pause("unit.read")
        if operation == "claim":
            held += _claim(scene, play)
        elif operation == "end" and held:
            _end(scene, play, rng.choice(held))
        elif operation == "reap":
            dead = {each.name for each in scene.scheduler.processes if each.dead}
            found = play.ledger.units.reap_units(0.5, dead, lineage=True)
            expected = play.oracle.reap(scene.now_ms, dead)
            require(found == expected, "what lapsed is taken back, and nothing else")
        elif operation == "announce":
            name, etag = rng.choice(NAMES), rng.choice(("e1", "e2"))
            _announce(scene, play, name, etag, rng.choice((None, "1", "2", "3")))
        elif operation == "remove" and rng.random() < 0.3:
            name, policy = rng.choice(NAMES), rng.choice(("keep", "remove"))
            report = play.ledger.take(gone(name, None, policy))
            expected_removals = play.oracle.remove(name, None, policy, scene.now_ms)
            require(report.removed == expected_removals, "a removal is told once")
        _agree(play)
        scene.sleep(rng.choice((10, 1_000, LEASE_MS)))


def _announce(scene: Scene, play: Play, name: str, etag: str, sequencer: str | None) -> None:
    report = play.ledger.take(taken(name, etag, sequencer))
    expected = play.oracle.announce(name, etag, sequencer, "update", scene.now_ms)
    require(getattr(report, expected) == 1, "an announcement is what the model says", said=expected)


def _claim(scene: Scene, play: Play) -> list[ClaimedUnit]:
    alone = scene.rng.choice((0, 0, 1))
    due = play.oracle.due(alone, scene.now_ms)
    worker = scene.process.name
    batch = play.ledger.claim(limit=2, alone=alone, worker=worker, lease_ms=LEASE_MS)
    require(len(batch) == min(1 if alone else 2, len(due)), "what is due is claimed, once", due=sorted(due))
    for one in batch:
        require(IDS[one.wal_id] in due, "only what is due is claimed", unit=one.wal_id)
        play.oracle.claim(IDS[one.wal_id], scene.now_ms, LEASE_MS, worker)
    return batch


def _end(scene: Scene, play: Play, held: ClaimedUnit) -> None:
    """As the worker of production does: success, or the fate that the failure has."""
    now_ms, name = scene.now_ms, IDS[held.wal_id]
    outcome: Any = "success"
    at_ms = now_ms
    if scene.rng.random() < 0.5:
        told = play.ledger.end(done(held, entry=None) if held.removed == 2 else done(held))
    else:
        kind = PASSING if scene.rng.random() < 0.8 else LASTING
        unit_random = scene.rng.random()
        failed = failure_of_unit(held, kind, "HTTP_503", "", now_ms=now_ms, unit_random=unit_random)
        outcome, at_ms = failed.fate, failed.not_before_ms or now_ms
        if kind is LASTING:
            require(outcome == "quarantine", "what can't pass is put aside")
        elif held.grants >= retry_rules().grants_max:
            require(outcome != "spent", "grants are limited")
        else:
            require(outcome != "quarantine", "within its grants a unit is not put aside")
        told = play.ledger.end(failed)
    expected = play.oracle.end(name, held, outcome, at_ms, now_ms)
    require(getattr(told, expected) == (held.wal_id,), "an end lands where the model says", said=expected)


def _agree(play: Play) -> None:
    """What is stored is what the model keeps."""
    for name, known in play.oracle.units.items():
        stored = play.ledger.stored(name)
        one = stored.unit
        facts = (
            one.status,
            one.version,
            one.attempts,
            stored.etag,
            stored.sequencer,
            stored.content_version,
            stored.done_version,
            stored.grant_attempts,
            stored.alone,
            stored.removed,
            stored.removal_sequencer,
        )
        require(facts == known.facts(), "a unit is as the model has it", stored=facts, model=known.facts())
        require(one.version >= play.versions.get(name, 0), "a version never goes back", unit=name)
        play.versions[name] = one.version
        _answered_for(one)


def _answered_for(one: Unit) -> None:
    for empty in (
        lambda: replayed(one, reason="", now_ms=0),
        lambda: migrated(one, reason="x", approval="", now_ms=0),
    ):
        refused(RationaleRequired, empty, "a person answers for it")


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
