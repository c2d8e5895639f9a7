"""Rules about evidence: one start and one end for everything that was tried, in the commit that tells it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import kfm
from kfm.db.ledger_reader import LedgerReader
from kfm.lineage.facets import instant
from kfm.model import keys
from kfm.model.contracts import require_valid
from kfm.model.records import Run
from kfm.model.redaction import is_masked
from kfm.model.runs import Attempt
from tests.simulation.judging import require
from tests.simulation.pipelines import SECRET

if TYPE_CHECKING:
    from tests.simulation.world import World

ENDINGS = {"complete": "COMPLETE", "fail": "FAIL", "abort": "ABORT"}
NOT_ADMITTED = {"refused": "ABORT", "failed": "FAIL"}
NODES = {"fetch", "transform", "validate", "publish"}
SCHEMA = "openlineage-event"
VALIDATED = 25  # events of each world
EVERYTHING = 100_000


class _RunOf(msgspec.Struct):
    runId: str  # noqa: N815 - OpenLineage's name


class _Parent(msgspec.Struct):
    run: _RunOf


class _Facets(msgspec.Struct):
    parent: _Parent | None = None


class _Told(msgspec.Struct):
    runId: str  # noqa: N815
    facets: _Facets


class _Event(msgspec.Struct):
    eventType: str  # noqa: N815
    eventTime: str  # noqa: N815
    run: _Told


_EVENT = msgspec.json.Decoder(_Event)


class EvidenceChecks:
    def __init__(self, world: World, ledger: LedgerReader) -> None:
        self._world = world
        self._ledger = ledger
        self._number = 0  # of the last message looked at
        self._ids: set[str] = set()
        self._open: dict[str, str] = {}  # lineage run → when it started
        self._over: dict[str, tuple[str, str, str]] = {}  # lineage run → its end, when it started and ended
        self._private = [
            word
            for dataset in world.settings.datasets
            if is_masked(dataset)
            for word in (f'"{dataset.id}"', f"{dataset.id}/", str(dataset.title or dataset.id))
        ]
        self._is_sampled = (Path(kfm.__path__[0]) / f"contracts/schemas/{SCHEMA}.schema.json").exists()

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        return list(self._world.database._connection.execute(sql, values))

    # --- at every commit -------------------------------------------------------------------

    def on_commit(self) -> None:
        fresh = self._rows(
            "SELECT number, event_id, subject, body FROM outbox"
            " WHERE number > ? AND topic = 'openlineage' ORDER BY number",
            self._number,
        )
        for number, event_id, subject, body in fresh:
            self._number = number
            require(event_id not in self._ids, "every event has an id of its own", event=event_id)
            self._ids.add(event_id)
            self._on_event(event_id, subject, body)
        if fresh:
            self._agree()
        self._belong()

    def _on_event(self, event_id: str, subject: str, body: str) -> None:
        event = _EVENT.decode(body)
        kind, lineage_id = event.eventType, event.run.runId
        require(event_id == keys.uuid5(lineage_id, kind), "an event's id follows from what it says")
        parent = event.run.facets.parent
        mother = parent.run.runId if parent is not None else None
        if mother is not None and mother != subject:
            require(
                mother in self._open, "what a node does lies within its attempt", node=lineage_id, kind=kind
            )
        if kind == "START":
            unknown = lineage_id not in self._open and lineage_id not in self._over
            require(unknown, "everything starts once", lineage_id=lineage_id)
            self._open[lineage_id] = event.eventTime
        else:
            require(lineage_id in self._open, "what ends was under way", lineage_id=lineage_id, kind=kind)
            started = self._open.pop(lineage_id)
            require(started <= event.eventTime, "nothing ends before it starts", kind=kind, started=started)
            self._over[lineage_id] = (kind, started, event.eventTime)
        require(SECRET not in body, "no secret is in an event", event=event_id)
        shown = [word for word in self._private if word in body]
        require(not shown, "an event does not name what is masked", shown=shown, event=event_id)
        if self._is_sampled and len(self._ids) <= VALIDATED:
            require_valid(SCHEMA, msgspec.json.decode(body))

    def _agree(self) -> None:
        """Events and rows come and go together: what is under way is under way in both."""
        under_way = {row[0] for row in self._rows("SELECT lineage_id FROM attempts WHERE ending IS NULL")}
        require(
            under_way == set(self._open),
            "a row and its event are written together",
            rows=under_way - set(self._open),
            events=set(self._open) - under_way,
        )

    def _belong(self) -> None:
        """What is under way belongs to the present attempt of a run that is running."""
        strays = self._rows(
            "SELECT a.run_id, a.attempt, a.node FROM attempts a JOIN runs r ON r.run_id = a.run_id"
            " WHERE a.ending IS NULL AND (r.status <> 'running' OR a.attempt <> r.attempts)"
        )
        require(not strays, "nothing is under way in a run that is over", strays=strays)

    # --- when everything is at rest ------------------------------------------------------------

    def at_the_end(self) -> None:
        require(not self._open, "everything that was started has an end", left=self._open)
        rows = self._ledger.attempts_since(0, EVERYTHING)
        calls = [call for _, call in self._ledger.invocations_since(0, EVERYTHING)]
        expected = {attempt.lineage_id for _, attempt, _ in rows}
        require(len(expected) == len(rows), "every attempt has a lineage of its own")
        tries: Counter[str] = Counter()
        for _, attempt, run in rows:
            self._as_told(attempt, run)
            tries[run.run_id] += not attempt.node
        for run in self._world.checks.runs():
            require(tries[run.run_id] == run.attempts, "every attempt is on record", run=run.run_id)
            self._last_one(run)
        tried = {attempt.invocation_id for _, attempt, _ in rows}
        for call in calls:
            lineage_id = keys.refused_call_id(call.invocation_id)
            end = NOT_ADMITTED.get(str(call.outcome)) if call.invocation_id not in tried else None
            told = self._over.get(lineage_id, (None,))[0]
            require(told == end, "a call that was refused says so", call=call, told=told)
            if end is not None:
                expected.add(lineage_id)
        require(set(self._over) == expected, "nothing is told of what did not happen")
        self._kept()

    def _as_told(self, attempt: Attempt, run: Run) -> None:
        require(attempt.ending is not None, "every attempt is closed at rest", attempt=attempt)
        assert attempt.ending is not None
        kind, started, _ = self._over.get(attempt.lineage_id, ("", "", ""))
        require(kind == ENDINGS[attempt.ending], "a row agrees with its event", attempt=attempt, kind=kind)
        require(started == instant(attempt.started_at_ms), "they agree on the time", started=started)
        made = keys.attempt_id(run.run_id, attempt.attempt)
        if attempt.node:
            made = keys.node_attempt_id(run.run_id, attempt.attempt, attempt.node)
        require(attempt.lineage_id == made, "a lineage follows from its run", attempt=attempt)
        if attempt.ending != "complete":
            require(attempt.error_code is not None, "what did not go well says why", attempt=attempt)
        elif attempt.node:
            require(attempt.outcome == "success", "a node that is complete has succeeded", attempt=attempt)

    def _last_one(self, run: Run) -> None:
        attempts = [one for one in self._ledger.attempts(run.run_id) if one.attempt == run.attempts]
        whole = next(one for one in attempts if not one.node)
        succeeded = run.status == "success"
        require((whole.ending == "complete") == succeeded, "a run ends as its last attempt did", run=run)
        endings = {one.node: one.ending for one in attempts if one.node}
        if succeeded:
            every = set(endings.values()) <= {"complete"} and set(endings) == NODES
            require(every, "a success went through every node", endings=endings)
            kept = run.fingerprint is not None and self._ledger.inputs(run.fingerprint) is not None
            require(kept, "what a success was made of is kept", run=run.run_id)
        require(self._ledger.policy_texts("sha256:simulated") is not None, "the policies in force are kept")

    def _kept(self) -> None:
        """Retries name attempts that there were."""
        known = set(self._rows("SELECT run_id, attempt, node FROM attempts"))
        for _, retry in self._ledger.retries_since(0, EVERYTHING):
            place = (retry.run_id, retry.attempt, retry.node)
            require(place in known, "a retry belongs to an attempt", retry=retry)
            gave_up = retry.outcome == "gave-up"
            require(
                gave_up == (retry.delay_ms == 0) or not gave_up, "who gives up waits no more", retry=retry
            )
