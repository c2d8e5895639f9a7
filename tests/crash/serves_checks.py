"""What a ledger must say after services were killed at any moment, whatever they had promised."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kfm.config.loader import load
from kfm.config.schedules import load_schedules
from kfm.model.keys import request_id, schedule_instant_key
from kfm.model.retry import policy_for
from kfm.model.scheduled_times import LEFT_TO
from kfm.model.schedules import instants
from tests.crash.fleet import Book
from tests.crash.project import Project
from tests.crash.senders import Message

Rows = list[dict[str, Any]]
KINDS = ("request", "skipped", "missed", "redefined")


@dataclass
class Found:
    """What there was to be checked."""

    requests: int = 0
    runs: int = 0
    again: int = 0  # requests that were claimed more than once
    interrupted: int = 0  # runs with more than one attempt
    cancelled: int = 0
    given_up: int = 0  # runs that were killed as often as their policy allows
    mended: int = 0  # runs that failed, and were tried again when it was time
    instants: int = 0
    fired: int = 0
    skipped: int = 0
    missed: int = 0


class Ledger:
    """The rows, read once."""

    def __init__(self, book: Book) -> None:
        def rows(name: str, *columns: str) -> Rows:
            found = book.rows(f"SELECT {', '.join(columns)} FROM {name}")
            return [dict(zip(columns, row, strict=True)) for row in found]

        self.requests = {
            row["request_id"]: row
            for row in rows(
                "requests", "request_id", "key", "kind", "state", "outcome", "reason", "run_id", "tries",
                "source_id", "window_start_ms", "schedule_id", "instant_ms", "claimed_by", "cancel",
                "details",
            )
        }  # fmt: skip
        self.runs = {
            row["run_id"]: row
            for row in rows(
                "runs", "run_id", "idempotency_key", "source_id", "window_start_ms", "revision", "status",
                "attempts", "trigger_type",
            )
        }  # fmt: skip
        self.promotions = Counter(row["run_id"] for row in rows("promotions", "run_id"))
        self.instants: dict[str, Rows] = defaultdict(list)
        for row in rows("instants", "schedule_id", "instant_ms", "last_ms", "became", "request_id"):
            self.instants[row["schedule_id"]].append(row)
        self.cursors = {
            row["schedule_id"]: row["cursor_ms"] for row in rows("schedules", "schedule_id", "cursor_ms")
        }


def check(project: Project, book: Book, messages: Sequence[Message], found: Found) -> list[str]:
    ledger = Ledger(book)
    verified = project.kfm("audit", "verify")
    return [
        *_messages(ledger, messages),
        *_requests(ledger, found),
        *_runs(ledger, messages, found),
        *_instants(project, ledger, found),
        *([f"audit verify: {verified.out}{verified.err}"] if verified.code else []),
    ]


def _messages(ledger: Ledger, messages: Sequence[Message]) -> Iterator[str]:
    """A sender that was told "accepted" was, and every sender was told the same."""
    for message in messages:
        statuses = [status for status, _ in message.answers]
        if not message.is_settled:
            yield f"{message.uuid} was never accepted: {statuses}"
        if statuses.count(202) > 1:
            yield f"{message.uuid} was accepted {statuses.count(202)} times"
        for status, named in message.answers:
            if status not in (202, 409) and status < 500:
                yield f"{message.uuid} was answered with {status}"
            if status in (500, 501, 502):
                yield f"{message.uuid} met a defect: {status}"
            if status in (202, 409) and named != message.request_id:
                yield f"{message.uuid} was told {named}, and is {message.request_id}"
        if message.is_settled and message.request_id not in ledger.requests:
            yield f"lost: {message.uuid}, of which a sender was told {statuses}"
    known = {message.request_id for message in messages}
    for row in ledger.requests.values():
        if row["kind"] == "webhook" and row["request_id"] not in known:
            yield f"no sender sent {row['request_id']}"


def _requests(ledger: Ledger, found: Found) -> Iterator[str]:
    """Each has an end, and a run that says how."""
    for row in ledger.requests.values():
        found.requests += 1
        found.again += row["tries"] > 1
        told = f"{row['kind']} request {row['request_id']} of {row['source_id']}"
        run = ledger.runs.get(row["run_id"])
        if row["state"] == "cancelled":
            found.cancelled += 1
            if row["schedule_id"] != "cancel-none":
                yield f"{told} was cancelled: {row['reason']}"
        elif row["state"] != "done" or row["claimed_by"] is not None:
            yield f"{told} is {row['state']} after {row['tries']} tries: {row['reason']}"
        elif run is None:
            yield f"{told} is {row['outcome']} without a run: {row['reason']}"
        elif run["status"] == "failed" and run["attempts"] >= policy_for(run["trigger_type"]).attempts_max:
            found.given_up += 1
        elif row["outcome"] == "failed" and run["status"] == "success":
            found.mended += 1
        elif row["outcome"] not in ("success", "noop") or run["status"] != "success":
            yield f"{told} is {row['outcome']}, its run {run['run_id']} {run['status']}: {row['reason']}"


def _runs(ledger: Ledger, messages: Sequence[Message], found: Found) -> Iterator[str]:
    """Nothing was done twice: neither under one key, nor for a window that one request alone asked for."""
    found.runs = len(ledger.runs)
    found.interrupted = sum(run["attempts"] > 1 for run in ledger.runs.values())
    keys = Counter(run["idempotency_key"] for run in ledger.runs.values())
    yield from (f"{count} runs have the key {key}" for key, count in keys.items() if count > 1)
    yield from (f"{run} was promoted {count} times" for run, count in ledger.promotions.items() if count > 1)
    of_window: dict[tuple[str, int], list[str]] = defaultdict(list)
    for run in ledger.runs.values():
        of_window[run["source_id"], run["window_start_ms"]].append(run["run_id"])
        if run["status"] == "running":
            yield f"{run['run_id']} of {run['source_id']} is still running"
    alone = {message.request_id for message in messages if message.window is not None}
    for row in ledger.requests.values():
        if row["kind"] == "cron" or row["request_id"] in alone:
            runs = of_window[row["source_id"], row["window_start_ms"]]
            if len(runs) != 1 and row["state"] != "cancelled":
                told = [(ledger.runs[one]["revision"], ledger.runs[one]["trigger_type"]) for one in runs]
                yield f"{row['kind']} request {row['request_id']} ({row['tries']} tries) has the runs {told}"


def _instants(project: Project, ledger: Ledger, found: Found) -> Iterator[str]:
    """Every instant from the first sight of its schedule has exactly one fate."""
    fired: Counter[str] = Counter()
    for schedule in load_schedules(load(str(project.folder / "kfm.yml"))):
        rows = sorted(ledger.instants[schedule.id], key=lambda row: row["instant_ms"])
        if not rows or rows[0]["became"] != "redefined":
            yield f"{schedule.id} was never seen first"
            continue
        since_ms, cursor_ms = rows[0]["last_ms"], ledger.cursors[schedule.id]
        for before, after in pairwise(rows):
            if after["instant_ms"] <= before["last_ms"]:
                yield f"{schedule.id}: {before} and {after} overlap"
        for instant_ms in instants(schedule, since_ms + 1, cursor_ms + 1):
            fates = _fates(rows, instant_ms)
            found.instants += 1
            if len(fates) != 1:
                yield f"{schedule.id}: the instant {instant_ms} has {len(fates)} fates"
                continue
            became = fates[0]["became"]
            found.fired += became == "request"
            found.skipped += became == "skipped"
            found.missed += became == "missed"
            if became == "request":
                wanted = request_id(schedule_instant_key(schedule.id, instant_ms))
                fired[wanted] += 1
                if fates[0]["request_id"] != wanted or wanted not in ledger.requests:
                    yield f"{schedule.id}: the instant {instant_ms} became {fates[0]['request_id']}"
            elif became not in KINDS or (became == "redefined" and instant_ms > since_ms):
                yield f"{schedule.id}: the instant {instant_ms} became {became}"
    for row in ledger.requests.values():
        if LEFT_TO in row["details"]:
            continue
        if row["kind"] == "cron" and fired[row["request_id"]] != 1:
            yield f"request {row['request_id']} of {row['schedule_id']} has no instant"


def _fates(rows: Rows, instant_ms: int) -> Rows:
    at = bisect_right(rows, instant_ms, key=lambda row: row["instant_ms"])
    return [row for row in rows[max(0, at - 2) : at] if row["instant_ms"] <= instant_ms <= row["last_ms"]]
