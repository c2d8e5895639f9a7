"""`kfm schedule`: when sources are brought up to date."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import between, instant, one_line, table, utc
from kfm.cli.schedule_states import (
    backfill,
    find_schedule,
    history,
    load_schedules,
    pause,
    recent_documents,
    resume,
    run_due,
)
from kfm.cli.session import Session
from kfm.core.errors import UsageError

COUNT_MAX = 10_000
RECENT = 3
DRIFT_CHARS_MAX = 10_000_000
TARGETS = ("github", "airflow", "langgraph")


@click.group(name="schedule")
def command() -> None:
    """See when sources are brought up to date, pause that, make up for it, or hand it to others.

    Schedules are written in cron.yml, beside the configuration (`schedules:` names another file), and kept
    by `kfm serve`.
    """


for each_command in (pause, resume, backfill, history, run_due):
    command.add_command(each_command)


@command.command(name="list")
@session_options
def list_schedules(session: Session) -> None:
    """List the schedules, when each fires next, and what became of its last instant.

    A time of day (`15 7 * * *`) is that of the schedule's time zone and fires once a day, also on days on
    which the clocks change. What fires in every hour (`*/15 * * * *`) and intervals (`every: PT90M`) go by
    real time.
    """
    from kfm.cli.schedule_lines import when
    from kfm.configuration.schedules import FILE
    from kfm.documents.schedules import schedule_document, state_document

    loaded, known = load_schedules(session)
    with session.app(read_only=True) as app:
        states, now_ms = app.ledger.schedule_reader().states(), app.ledger.now_ms()
        documents = [
            {
                **schedule_document(each, loaded.settings.source(each.source), now_ms),
                **state_document(states.get(each.id)),
                "recent": recent_documents(app, each, RECENT) if each.id in states else [],
            }
            for each in sorted(known.values(), key=lambda each: each.id)
        ]
    rows = [
        (
            each["schedule_id"],
            each["source_id"],
            when(each),
            each["time_zone"],
            _next(each),
            _last(each["recent"]),
            each["overlap"],
            each["missed"]["run"],
        )
        for each in documents
    ]
    header = ("SCHEDULE", "SOURCE", "WHEN", "TIME ZONE", "NEXT (UTC)", "LAST", "OVERLAP", "MISSED")
    session.emit(
        {"file": loaded.settings.schedules or FILE, "schedules": documents},
        table(header, rows) if rows else ["no schedules"],
        rows=documents,
    )
    if not rows:
        session.note(f"write them into {loaded.settings.schedules or FILE}, beside {loaded.name}")
    for each in documents:
        if each["paused"] is not None:
            paused = each["paused"]
            session.note(
                f"{each['schedule_id']} is paused by {paused['by']} since {utc(paused['at'])}: "
                f"{one_line(paused['rationale'] or '-')}"
            )


def _last(recent: list[dict[str, Any]]) -> str:
    """What became of the last instant that the schedule was to see to."""
    from kfm.cli.schedule_lines import fate_word

    decided = [each for each in recent if each["fate"] not in ("redefined", "pending")]
    return fate_word(decided[-1]) if decided else "-"


def _next(document: dict[str, Any]) -> str:
    if document["paused"] is not None:
        return "paused"
    return utc(document["next"]).removesuffix(" UTC") if document["next"] else "off"


@command.command(name="next")
@click.argument("wanted", metavar="[SCHEDULE]...", nargs=-1)
@click.option(
    "--count",
    type=click.IntRange(1, COUNT_MAX),
    default=5,
    show_default=True,
    metavar="N",
    help="Show so many, of all schedules together.",
)
@click.option(
    "--from", "start", metavar="TIME", help="Begin here, as 2026-03-08 or 2026-03-08T06:00:00Z; else now."
)
@session_options
def next_instants(session: Session, wanted: tuple[str, ...], count: int, start: str | None) -> None:
    """Show the next instants of all schedules, or of those that are named.

    For each: the instant in UTC, the local time in the schedule's zone with its offset, when the run begins
    (later by the jitter, if there is any), and the window that it covers. Use --from to look at a day on
    which the clocks change before it comes:

    \b
    kfm schedule next streamflow-daily --from 2027-03-13 --count 3
    """
    from heapq import merge
    from itertools import islice, repeat

    from kfm.core.schedules import instants
    from kfm.core.windows import parse_instant
    from kfm.documents.schedules import instant_document

    loaded, known = load_schedules(session)
    chosen = _chosen(known, wanted)
    start_ms = _now_ms() if start is None else parse_instant(start, "UTC")
    for each in chosen:
        if not each.enabled and wanted:
            session.note(f"note: {each.id} is not enabled; this is when it would fire")
    firing = (zip(instants(each, start_ms), repeat(each)) for each in chosen if each.enabled or wanted)
    found = islice(merge(*firing, key=lambda pair: (pair[0], pair[1].id)), count)
    documents = [instant_document(each, loaded.settings.source(each.source), at_ms) for at_ms, each in found]
    rows = [
        (
            utc(each["instant"]).removesuffix(" UTC"),
            each["local"].replace("T", " "),
            each["schedule_id"],
            utc(each["due"])[11:-4] if each["due"] != each["instant"] else "-",
            between(each["window_start"], each["window_end"]),
        )
        for each in documents
    ]
    header = ("UTC", "LOCAL", "SCHEDULE", "BEGINS (UTC)", "COVERS")
    session.emit(
        {"from": instant(start_ms), "instants": documents},
        table(header, rows) if rows else ["nothing is scheduled"],
        rows=documents,
    )


@command.command(name="export")
@click.argument("target", type=click.Choice(TARGETS))
@click.option("--check", "checked", metavar="FILE", help="Write nothing; exit 1 if FILE says something else.")
@session_options
def export_schedules(session: Session, target: str, checked: str | None) -> int:
    """Print the schedules as a file for somebody else's scheduler.

    \b
    github     a workflow with `on.schedule`: one job for each schedule, which may only read
    airflow    a file of DAGs for Airflow 3: one for each schedule
    langgraph  a graph, and a function that registers its crons with a LangGraph server

    What the other scheduler can't keep is refused; what it does differently is told on stderr and stands at
    the top of the file. Keep the file equal to cron.yml by a check in continuous integration:

    \b
    kfm schedule export github > .github/workflows/kfm.yml
    kfm schedule export github --check .github/workflows/kfm.yml
    """
    from os.path import basename

    from kfm.configuration.schedules import FILE
    from kfm.triggers.schedule_exports import export

    loaded, known = load_schedules(session)
    made = export(target, tuple(known.values()), basename(loaded.path), loaded.settings.schedules or FILE)
    document = {"target": target, "text": made.text, "notes": list(made.notes), "drift": None}
    if checked is not None:
        drift = _drift(checked, made.text)
        document["drift"] = "\n".join(drift)
        session.emit(document, drift or [f"unchanged  {checked}"])
        if drift:
            session.note(f"error: {checked} and {loaded.settings.schedules or FILE} differ")
            session.note(f"fix: kfm schedule export {target} > {checked}")
        return 1 if drift else 0
    session.emit(document, made.text.splitlines())
    for note in made.notes:
        session.note(f"note: {note}")
    return 0


def _drift(path: str, text: str) -> list[str]:
    """What would have to change in a file, as a unified diff; nothing if it is equal."""
    from difflib import unified_diff

    try:
        with open(path, encoding="utf-8") as file:
            there = file.read(DRIFT_CHARS_MAX)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}.") from None
    wanted = text.splitlines()
    return list(unified_diff(there.splitlines(), wanted, path, "cron.yml", lineterm=""))


def _now_ms() -> int:
    from kfm.wiring import system_clock

    return system_clock().now_ms()


def _chosen(known: dict[str, Any], wanted: tuple[str, ...]) -> list[Any]:
    """The named schedules, or all."""
    found = [find_schedule(known, name) for name in dict.fromkeys(wanted)]
    return found if wanted else list(known.values())
