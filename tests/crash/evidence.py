"""What an interruption must not do to evidence: tear it, double it, or lose it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from kfm.db.ledger import Ledger
from kfm.db.sqlite import SqliteDatabase
from kfm.lineage.delivery import deliver_messages
from kfm.lineage.emitter import TOPIC
from kfm.model import audit
from kfm.sinks.event_file import FileCollector
from kfm.system import SystemClock
from tests.crash.project import Project

LATER_MS = 3 * 86_400_000  # by then every claim has lapsed
ROWS_MAX = 100_000


class LaterClock(SystemClock):
    """What claims live by, some days ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + LATER_MS


def problems(project: Project) -> list[str]:
    """Whatever is wrong with the evidence of a project in which everything has come to rest."""
    return [*records(project), *_chain(project), *_delivery(project)]


def records(project: Project) -> list[str]:
    """Whatever is wrong with rows of attempts, and with what the outbox tells of them."""
    return [*_attempts(project), *_events(project)]


def _attempts(project: Project) -> list[str]:
    under_way = project.rows("SELECT run_id, attempt, node FROM attempts WHERE ending IS NULL")
    found = [f"attempt {place} has no end" for place in under_way]
    counted = project.rows(
        "SELECT r.run_id, r.attempts, COUNT(a.number) FROM runs r"
        " LEFT JOIN attempts a ON a.run_id = r.run_id AND a.node = '' GROUP BY r.run_id, r.attempts"
    )
    found += [
        f"run {run_id}: {rows} rows of {said} attempts" for run_id, said, rows in counted if rows != said
    ]
    succeeded = project.rows(
        "SELECT r.run_id FROM runs r JOIN attempts a ON a.run_id = r.run_id AND a.attempt = r.attempts"
        " WHERE r.status = 'success' AND a.ending <> 'complete'"
    )
    found += [f"run {run_id} succeeded, but not all of it" for (run_id,) in succeeded]
    overlapping = project.rows(
        "SELECT a.run_id, a.attempt, a.ending FROM attempts a JOIN runs r ON r.run_id = a.run_id"
        " WHERE a.node = '' AND a.attempt < r.attempts AND a.ending = 'complete'"
    )
    return found + [f"attempt {place} ended well, and was followed by another" for place in overlapping]


def _events(project: Project) -> list[str]:
    """Each lineage run in the outbox: one start, then one end; and one for each attempt there was."""
    kinds: dict[str, list[str]] = {}
    passes: dict[str, list[str]] = {}  # over a pipeline's nodes, and those nodes
    ids: Counter[str] = Counter()
    attempts: dict[str, int] = {}  # run → the attempt that was told of last
    found = []
    told = "SELECT event_id, subject, body FROM outbox WHERE topic = 'openlineage' ORDER BY number"
    for event_id, subject, body in project.rows(told):
        event = json.loads(body)
        ids[event_id] += 1
        if event["run"]["facets"]["kfmRunState"]["kind"].startswith("pass"):
            passes.setdefault(event["run"]["runId"], []).append(event["eventType"])
            continue
        kinds.setdefault(event["run"]["runId"], []).append(event["eventType"])
        number = event["run"]["facets"]["kfmRunState"]["attempt"] or 0
        if number < attempts.get(subject, 0):
            found.append(f"attempt {number} of {subject} is told of after its successor began")
        attempts[subject] = max(number, attempts.get(subject, 0))
    found += [f"event {event_id} is there {count} times" for event_id, count in ids.items() if count > 1]
    for lineage_id, words in [*kinds.items(), *passes.items()]:
        if len(words) != 2 or words[0] != "START" or words[1] not in ("COMPLETE", "FAIL", "ABORT"):
            found.append(f"{lineage_id} is told as {words}")
    rows = {lineage_id for (lineage_id,) in project.rows("SELECT lineage_id FROM attempts")}
    found += [f"attempt {lineage_id} is not told of" for lineage_id in rows - kinds.keys()]
    calls = project.rows("SELECT COUNT(*) FROM invocations WHERE outcome IN ('refused', 'failed')")
    if len(kinds) - len(rows) > calls[0][0]:
        found.append(f"{len(kinds) - len(rows)} events are of nothing that happened")
    return found


def _chain(project: Project) -> list[str]:
    store = Ledger(SqliteDatabase(str(project.state / "kfm.db"), SystemClock()))
    try:
        verdict = audit.verify(store.chain(0, ROWS_MAX), head=store.chain_head())
    finally:
        store.close()
    promoted = project.rows("SELECT COUNT(*) FROM promotions")[0][0]
    return [] if verdict.sound and verdict.rows >= promoted else [f"the audit chain: {verdict}"]


def _delivery(project: Project) -> list[str]:
    """What was sent is in the file, line by line; what was not can still be sent, and then all is there."""
    path = project.state / "lineage" / "openlineage.jsonl"
    found = _lines(project, path, "delivered_at_ms IS NOT NULL", whole=False)
    clock = LaterClock()
    store = Ledger(SqliteDatabase(str(project.state / "kfm.db"), clock))
    try:
        told = deliver_messages(
            store, lambda: FileCollector(str(path), clock), clock, topic=TOPIC, batch=100, deadline_ms=30_000
        )
    finally:
        store.close()
    if told.trouble or told.waiting:
        found.append(f"what waited was not delivered: {told}")
    return found + _lines(project, path, "1 = 1", whole=True)


def _lines(project: Project, path: Path, condition: str, *, whole: bool) -> list[str]:
    data = path.read_bytes() if path.exists() else b""
    lines = data.split(b"\n")
    torn = lines.pop()
    found = [f"{path.name} ends in half a line"] if torn and whole else []
    # A line that was written by a process that died before it noted so comes twice, and the same.
    there = {line.decode() for line in lines}
    ours = f"SELECT body FROM outbox WHERE topic = '{TOPIC}'"
    bodies = project.rows(f"{ours} AND {condition}")
    posted = {body for (body,) in project.rows(ours)}
    found += [f"a delivered event is not in {path.name}" for (body,) in bodies if body not in there][:1]
    return found + [f"{path.name} holds what was never posted: {line[:80]}" for line in there - posted]
