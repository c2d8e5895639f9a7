"""The log of a run's attempt, as a page shows it and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfm.model.errors import UsageError
from kfm.model.records import Record, Run
from kfm.model.times import parse_rfc3339
from kfm.reports.run_logs import LEVELS, read_log
from kfm.web.console.state_words import Word, word
from kfm.web.console.views.explanation import allowed
from kfm.web.console.visit import Filter, Link, NotHere, Visit, chosen

FILTERS = ("attempt", "level", "node", "offset", "lines")
LAST = "last"
LINES = 500
_WORDS = {"info": "on", "warning": "warning", "error": "error"}


class LogLine(Record, frozen=True):
    at_ms: int
    word: Word | None  # None: nothing of note
    node: str
    message: tuple[str, ...]  # an exception has several lines
    facts: str


class RunLog(Record, frozen=True):
    lines: tuple[LogLine, ...]
    is_there: bool
    attempt: int
    attempts: tuple[Link, ...]
    filters: tuple[Filter, ...]
    clear: str
    given: tuple[tuple[str, str], ...]  # what the form of filters keeps
    download: str
    first: str | None
    newer: str | None
    last: str | None
    is_tail: bool


def run_log(visit: Visit, run: Run) -> RunLog:
    """A page of lines, the oldest first. Of a run that goes on the last ones, which follow it."""
    attempt = _number(visit, "attempt") or run.attempts
    if attempt > run.attempts:
        raise NotHere(f"The run has {run.attempts} attempts.")
    level = visit.choice("level", LEVELS)
    node, offset = visit.query.get("node"), _number(visit, "offset")
    is_tail = visit.choice("lines", (LAST,)) is not None or (
        offset is None and run.status == "running" and attempt == run.attempts
    )
    every = read_log(visit.context.folder, run, attempt=attempt, limit=LINES * 10)
    names = list(dict.fromkeys(line["phase"] for line in every.lines)) if every else []
    found = read_log(
        visit.context.folder,
        run,
        attempt=attempt,
        offset=offset or 0,
        level=level or LEVELS[0],
        step=node,
        limit=LINES,
        tail=is_tail,
    )
    lines = found.lines if found else ()
    return RunLog(
        lines=tuple(
            LogLine(
                at_ms=parse_rfc3339(line["at"]),
                word=None if line["level"] == LEVELS[0] else word(_WORDS[line["level"]]),
                node=line["phase"],
                message=tuple(line["message"].rstrip("\n").split("\n")),
                facts=_facts(line["facts"]),
            )
            for line in lines
        ),
        is_there=found is not None,
        attempt=attempt,
        attempts=tuple(
            Link(text=f"attempt {number}", href=visit.with_query(attempt=number, offset=None, lines=None))
            for number in range(1, run.attempts + 1)
        ),
        filters=(chosen("level", "Level", LEVELS, level), chosen("node", "Step", names, node)),
        clear=visit.with_query(level=None, node=None, offset=None, lines=None),
        given=(("tab", "log"), ("attempt", str(attempt))),
        download=f"{visit.run(run.run_id)}/log.txt?attempt={attempt}",
        first=visit.with_query(offset=0, lines=None) if offset or is_tail else None,
        newer=visit.with_query(offset=found.next, lines=None) if found and found.is_more else None,
        last=visit.with_query(offset=None, lines=LAST) if found and found.is_more else None,
        is_tail=is_tail,
    )


def _facts(facts: Mapping[str, Any]) -> str:
    parts = []
    for name, value in facts.items():
        parts.append(_facts(value) if isinstance(value, dict) else f"{name} {value}")
    return ", ".join(parts)


def text(visit: Visit) -> str:
    """All of the log of one attempt, line by line."""
    run = visit.reader.run(visit.params["run_id"])
    if run is None:
        raise NotHere("No run of that id is on record.")
    allowed(visit, run.dataset_id)
    attempt, offset, parts = _number(visit, "attempt"), 0, []
    while True:
        found = read_log(visit.context.folder, run, attempt=attempt, offset=offset, limit=LINES)
        if found is None:
            raise NotHere("The log of this attempt is not on this machine, or was removed.")
        parts += [
            f"{line['at']} {line['level']:7} {line['phase']}: {visit.visibility.text(line['message'])}\n"
            for line in found.lines
        ]
        if not found.is_more or found.next == offset:
            return "".join(parts)
        offset = found.next


def _number(visit: Visit, name: str) -> int | None:
    value = visit.query.get(name)
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or len(value) > 12:
        raise UsageError(f"`{name}` is a whole number.")
    return int(value)
