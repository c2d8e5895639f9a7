"""A file of schedules: as written, checked line by line, and as records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kfm.config.document import (
    ID,
    NAME_RULE,
    SOME_TIME_MS,
    Document,
    Problem,
    clause,
    gathered,
    read_document,
    shaped,
)
from kfm.model.errors import ConfigError, WindowError
from kfm.model.quantities import did_you_mean
from kfm.model.schedules import MissedPolicy, Overlap, Paused, Schedule, Which, expression_problem
from kfm.model.settings import Settings, SourceSettings, Strict
from kfm.model.windows import DAY_MS, asked_window, parse_duration, parse_instant

SCHEDULES_MAX = 1000
CAP_MAX = 1000
REASON_CHARS_MAX = 1_000


class MissedEntry(Strict, frozen=True):
    """What becomes of scheduled times at which no service was running."""

    run: Which = "last"
    within: str = "P7D"
    cap: int = 10


class ScheduleEntry(Strict, frozen=True):
    """One schedule, as it is written."""

    id: str
    source: str
    cron: str | None = None
    every: str | None = None
    anchor: str | None = None  # every: a time to count from; None: 1970-01-01T00:00:00Z
    time_zone: str | None = None  # None: the source's
    window: str | None = None  # None: the source's
    jitter: str | None = None
    overlap: Overlap = "skip"
    missed: MissedEntry = MissedEntry()
    while_paused: Paused = "hold"
    enabled: bool = True
    rationale: str | None = None  # of each request, for policies that ask for a rationale
    ticket: str | None = None  # and for a ticket


class ScheduleFile(Strict, frozen=True):
    """A file of schedules."""

    version: Literal[1] = 1
    schedules: tuple[ScheduleEntry, ...] = ()


def read_schedules(name: str, data: bytes, settings: Settings) -> tuple[Schedule, ...]:
    """ConfigError with every problem, in the order of the file's lines; else the schedules in theirs."""
    document = read_document(name, data)
    entries = shaped(document, ScheduleFile).schedules
    problems = [*_names(entries), *_entries(entries, settings)]
    if problems:
        raise _all_of(document, problems)
    return tuple(_schedule(entry, settings.source(entry.source)) for entry in entries)


def _all_of(document: Document, problems: list[Problem]) -> ConfigError:
    ordered = sorted(problems, key=lambda problem: document.line(problem[0]))
    return gathered([document.error(path, sentence) for path, sentence in ordered])


def _names(entries: tuple[ScheduleEntry, ...]) -> Iterator[Problem]:
    if len(entries) > SCHEDULES_MAX:
        yield "schedules", f"there are more than {SCHEDULES_MAX:,} schedules"
    seen: dict[str, str] = {}
    for index, entry in enumerate(entries):
        path = f"schedules[{index}].id"
        if not ID.fullmatch(entry.id):
            yield path, f"the schedule id `{entry.id[:40]}` has characters that are not allowed: {NAME_RULE}"
        earlier = seen.get(entry.id.casefold())
        seen.setdefault(entry.id.casefold(), entry.id)
        if earlier == entry.id:
            yield path, f"two schedules have the id `{entry.id}`"
        elif earlier is not None:
            yield path, f"the schedule ids `{earlier}` and `{entry.id}` differ in case only"


def _entries(entries: tuple[ScheduleEntry, ...], settings: Settings) -> Iterator[Problem]:
    sources = {name: source for source in settings.sources for name in source.names}
    for index, entry in enumerate(entries):
        path = f"schedules[{index}]"
        source = sources.get(entry.source)
        if source is None:
            hint = did_you_mean(entry.source, list(sources))
            yield (
                f"{path}.source",
                f"schedule `{entry.id}` names the source `{entry.source[:40]}`, which is not there{hint}",
            )
        elif (sync := settings.sync_of(source.id)) is not None:
            yield (
                f"{path}.source",
                f"schedule `{entry.id}` names `{source.id}`, a member of the sync `{sync}`, which publishes "
                "its data; name the sync",
            )
        yield from _pattern(entry, path)
        yield from _zone(entry, path)
        yield from _durations(entry, path)
        yield from _reasons(entry, path)
        if entry.window is not None and source is not None:
            try:
                if "/" in entry.window:
                    raise WindowError("a schedule needs a length, such as P1D, not a span")
                asked_window(entry.window, source.window, source.time_zone, SOME_TIME_MS)
            except WindowError as error:
                yield f"{path}.window", f"`window` can't be used: {clause(error.detail)}"


def _pattern(entry: ScheduleEntry, path: str) -> Iterator[Problem]:
    if (entry.cron is None) == (entry.every is None):
        yield path, f"schedule `{entry.id}` needs `cron` or `every`, one of the two"
    if entry.cron is not None:
        problem = expression_problem(entry.cron)
        if problem:
            yield f"{path}.cron", f"`cron` can't be used: {problem}"
        if entry.anchor is not None:
            yield f"{path}.anchor", "`anchor` only applies to `every`"
    elif entry.anchor is not None:
        try:
            parse_instant(entry.anchor, "UTC")
        except WindowError as error:
            yield f"{path}.anchor", f"`anchor` can't be used: {clause(error.detail)}"


def _zone(entry: ScheduleEntry, path: str) -> Iterator[Problem]:
    if entry.time_zone is None:
        return
    from zoneinfo import available_timezones

    zones = available_timezones()
    if entry.time_zone not in zones:
        hint = did_you_mean(entry.time_zone, sorted(zones))
        yield f"{path}.time_zone", f"there is no time zone `{entry.time_zone[:40]}`{hint}"


def _durations(entry: ScheduleEntry, path: str) -> Iterator[Problem]:
    for field, text in (
        ("every", entry.every),
        ("jitter", entry.jitter),
        ("missed.within", entry.missed.within),
    ):
        if text is None:
            continue
        try:
            length_ms = _exact_ms(text, days=field != "every")
        except WindowError as error:
            yield f"{path}.{field}", f"`{field.rpartition('.')[2]}` can't be used: {clause(error.detail)}"
            continue
        if field == "jitter" and entry.every is not None and length_ms >= _length_ms(entry.every):
            yield f"{path}.jitter", "`jitter` must be shorter than `every`"
    if not 1 <= entry.missed.cap <= CAP_MAX:
        yield f"{path}.missed.cap", f"`cap` must be from 1 to {CAP_MAX:,}"


def _reasons(entry: ScheduleEntry, path: str) -> Iterator[Problem]:
    for field, text in (("rationale", entry.rationale), ("ticket", entry.ticket)):
        if text is None:
            continue
        if not text.strip():
            yield f"{path}.{field}", f"`{field}` must not be empty"
        elif len(text) > REASON_CHARS_MAX:
            yield f"{path}.{field}", f"`{field}` has more than {REASON_CHARS_MAX:,} characters"


def _length_ms(text: str) -> float:
    try:
        return _exact_ms(text, days=False)
    except WindowError:  # reported already
        return float("inf")


def _exact_ms(text: str, *, days: bool) -> int:
    """A duration that is always equally long; a day of a calendar is not, but one of waiting is 24 hours."""
    duration = parse_duration(text)
    if duration.years or duration.months:
        raise WindowError(f"{text!r} is not always equally long: use days or hours.")
    if not days and (duration.weeks or duration.days):
        raise WindowError(
            f"{text!r} could mean days by the clock or by the hour: write PT24H for 24 hours of real time, "
            "or a `cron` line for a time of day."
        )
    return (duration.weeks * 7 + duration.days) * DAY_MS + duration.time_ms


def _schedule(entry: ScheduleEntry, source: SourceSettings) -> Schedule:
    return Schedule(
        id=entry.id,
        source=source.id,
        cron=" ".join(entry.cron.split()) if entry.cron is not None else None,
        every_ms=_exact_ms(entry.every, days=False) if entry.every is not None else None,
        anchor_ms=parse_instant(entry.anchor, "UTC") if entry.anchor is not None else 0,
        time_zone=entry.time_zone or source.time_zone,
        window=entry.window,
        jitter_ms=_exact_ms(entry.jitter, days=True) if entry.jitter is not None else 0,
        overlap=entry.overlap,
        missed=MissedPolicy(
            run=entry.missed.run, within_ms=_exact_ms(entry.missed.within, days=True), cap=entry.missed.cap
        ),
        while_paused=entry.while_paused,
        enabled=entry.enabled,
        rationale=entry.rationale and entry.rationale.strip(),
        ticket=entry.ticket and entry.ticket.strip(),
    )
