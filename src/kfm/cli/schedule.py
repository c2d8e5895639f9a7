"""`kfm schedule`: list, preview, pause, resume, backfill, history, export."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

import click

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import between, clipped, instant, one_line, short_id, table, utc
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.patterns import late
from kfm.model.quantities import counted, duration, moment
from kfm.model.rationales import require_rationale
from kfm.reports.state_words import of_scheduled_time

DAY_MS = 86_400_000
HISTORY_MAX = 1_000
HISTORY_RECENT = 20
TOGETHER_MIN = 10  # scheduled times with the same outcome that share one row
COUNT_MAX = 10_000
RECENT = 3
FILE_CHARS_MAX = 10_000_000  # of an exported file, or of requirements
CONNECTION = late(r"[A-Za-z0-9_.-]{1,200}\Z")
TARGETS = ("github", "airflow", "langgraph")
_EXIT = {"failed": 1, "refused": 3}
_WHO = (
    click.option(
        "--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this."
    ),
    click.option("--rationale", metavar="TEXT", help="Why. Required to change anything."),
    click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
)


def _who(function: Any) -> Any:
    for option in reversed(_WHO):
        function = option(function)
    return function


@click.group(name="schedule", cls=CommandGroup)
def command() -> None:
    """Show, pause and backfill schedules; export them for other schedulers.

    Schedules are written in cron.yml, beside the configuration (`schedules:` names another file), and kept
    by `kfm serve`.
    """


# --- list --------------------------------------------------------------------------


@command.command(name="list")
@session_options
def list_schedules(session: CommandSession) -> None:
    """List the schedules, when each fires next, and the outcome of its last scheduled time.

    A time of day (`15 7 * * *`) is that of the schedule's time zone and fires once a day, also on days on
    which the clocks change. What fires in every hour (`*/15 * * * *`) and intervals (`every: PT90M`) go by
    real time.
    """
    from kfm.config.schedules import FILE
    from kfm.reports.schedules import schedule_document, state_document

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
        table(header, rows, spare=("OVERLAP", "MISSED", "TIME ZONE", "SOURCE")) if rows else ["no schedules"],
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
    """The outcome of the last scheduled time."""

    decided = [each for each in recent if each["fate"] not in ("redefined", "pending")]
    return fate_word(decided[-1]) if decided else "-"


def _next(document: dict[str, Any]) -> str:
    if document["paused"] is not None:
        return "paused"
    return utc(document["next"]).removesuffix(" UTC") if document["next"] else "off"


# --- next --------------------------------------------------------------------------


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
def next_instants(session: CommandSession, wanted: tuple[str, ...], count: int, start: str | None) -> None:
    """Show the next scheduled times of all schedules, or of those that are named.

    For each: the time in UTC, the local time in the schedule's zone with its offset, when the run begins
    (later by the jitter, if there is any), and the window that it covers. Use --from to look at a day on
    which the clocks change before it comes:

    \b
    kfm schedule next streamflow-daily --from 2027-03-13 --count 3
    """
    from heapq import merge
    from itertools import islice, repeat

    from kfm.model.schedules import instants
    from kfm.model.windows import parse_instant
    from kfm.reports.schedules import instant_document

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
        table(header, rows, spare=("LOCAL", "BEGINS (UTC)")) if rows else ["nothing is scheduled"],
        rows=documents,
    )


def _chosen(known: dict[str, Any], wanted: tuple[str, ...]) -> list[Any]:
    """The named schedules, or all."""
    found = [find_schedule(known, name) for name in dict.fromkeys(wanted)]
    return found if wanted else list(known.values())


# --- pause and resume --------------------------------------------------------------


@command.command(name="pause")
@click.argument("name", metavar="SCHEDULE")
@_who
@session_options
def pause(session: CommandSession, name: str, **why: Any) -> None:
    """Pause a schedule: it starts nothing until it is resumed.

    What happens to its scheduled times meanwhile is decided by `while_paused` in cron.yml: with `hold` they
    wait, and count as missed when it is resumed; with `drop` they are dropped. Requests that it has made
    before go on. The pause holds for every process that uses the ledger, and is kept in the audit
    log.
    """
    _set_paused(session, name, True, why)


@command.command(name="resume")
@click.argument("name", metavar="SCHEDULE")
@_who
@session_options
def resume(session: CommandSession, name: str, **why: Any) -> None:
    """Resume a schedule.

    Scheduled times that waited count as missed now: `missed` in cron.yml says which are caught up. What was
    dropped, or is left out, can be requested with `kfm schedule backfill --missed`.
    """
    _set_paused(session, name, False, why)


def _set_paused(session: CommandSession, name: str, paused: bool, why: dict[str, Any]) -> None:
    from kfm.reports.schedules import state_document

    _, known = load_schedules(session)
    schedule = find_schedule(known, name)
    require_rationale(
        why["rationale"], f"A schedule is {'paused' if paused else 'resumed'} with --rationale TEXT."
    )
    from kfm.service.schedule_changes import set_paused

    with session.app() as app:
        state, changed = set_paused(
            app,
            schedule,
            paused,
            rationale=why["rationale"],
            claimed_actor=why["actor"],
            ticket=why["ticket"],
        )
    meaning = _meaning(schedule, paused)
    document = {
        "schedule_id": schedule.id,
        "changed": changed,
        "while_paused": schedule.while_paused,
        **state_document(state),
        "meaning": meaning,
    }
    word = "paused" if paused else "resumed"
    if not changed:
        was = f"paused already, by {state.paused_by} since {moment(state.paused_at_ms or 0)}"
        session.emit(document, [f"unchanged: {name} is {was if paused else 'not paused'}"])
        return
    session.emit(document, [f"{name} is {word}: {meaning}"])
    if not schedule.enabled:
        session.note(f"note: {name} is not enabled in its file, and has no scheduled times anyway")


def _meaning(schedule: Any, paused: bool) -> str:
    policy = schedule.missed
    days, rest_ms = divmod(policy.within_ms, DAY_MS)
    within = counted(days, "day") if days and not rest_ms else duration(policy.within_ms)
    windows = f"the windows of the last {within} are caught up, {policy.cap} at once, the oldest first"
    caught_up = "none of them is caught up" if policy.run == "none" else windows
    if schedule.while_paused == "drop":
        return (
            "its scheduled times are dropped meanwhile"
            if paused
            else "it goes on with its next scheduled time"
        )
    if paused:
        return f"its scheduled times wait; when it is resumed they count as missed, and {caught_up}"
    return f"what waited counts as missed, and {caught_up}"


# --- backfill ----------------------------------------------------------------------


@command.command(name="backfill")
@click.argument("name", metavar="SCHEDULE")
@click.option("--from", "start", metavar="TIME", required=True, help="From this time on.")
@click.option("--to", "end", metavar="TIME", help="Scheduled times before this; else all until now.")
@click.option(
    "--missed", is_flag=True, help="Only those that became no request, or whose request was refused."
)
@click.option(
    "--cell", "cells", multiple=True, metavar="CELL",
    help="Only this one, instant:SCHEDULE@TIME. Repeatable.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show them, also with --yes.")
@_who
@session_options
def backfill(
    session: CommandSession,
    name: str,
    start: str,
    end: str | None,
    missed: bool,
    cells: tuple[str, ...],
    dry_run: bool,
    **why: Any,
) -> None:
    """Request runs of past scheduled times.

    Shows each scheduled time that is meant, its outcome and the window that it covers. With --yes and
    --rationale a request is made for each that has none: a scheduled time has one request for good, so
    nothing is requested twice, unless a gate refused it and its window is still open. `kfm serve` runs
    them, after what is on time; without a service, `kfm schedule run-due` does.

    \b
    kfm schedule backfill streamflow-daily --from 2026-03-01 --missed
    kfm schedule backfill streamflow-daily --from 2026-03-01 --missed \\
        --yes --rationale "the sensor was back on the 9th"

    What was skipped, missed, dropped or came before the schedule was known became no request. Those that
    are not accounted for yet are left to the schedule. A window whose upstream has not changed is unchanged
    again; `kfm run --window` takes any other window.
    """
    from kfm.model.scheduled_times import BACKFILL_MAX
    from kfm.model.windows import parse_instant
    from kfm.reports.schedules import backfill_document

    _, known = load_schedules(session)
    schedule = find_schedule(known, name)
    start_ms = parse_instant(start, "UTC")
    makes = session.yes and not dry_run
    if makes:
        require_rationale(why["rationale"], "A backfill is asked for with --rationale TEXT.")
    from kfm.service.schedule_changes import backfill_digest, make_backfill, plan_backfill

    made: list[Any] = []
    with session.app(read_only=not makes) as app:
        end_ms = app.ledger.now_ms() + 1 if end is None else parse_instant(end, "UTC")
        planned = plan_backfill(app, schedule, start_ms, end_ms, only_missed=missed)
        if cells:
            from kfm.model.plan_cells import InstantCell, parse_cells

            wanted = set(parse_cells(",".join(cells)))
            planned = [
                one
                for one in planned
                if InstantCell(schedule_id=schedule.id, instant_ms=one.instant_ms) in wanted
            ]
        if makes:
            why["claimed_actor"] = why.pop("actor")
            made = make_backfill(app, schedule, planned, **why)
    fresh = {one.request_id for one in made}
    documents = [{**backfill_document(one), "made": one.request_id in fresh} for one in planned]
    document = {
        "schedule_id": schedule.id,
        "from": instant(start_ms),
        "to": instant(end_ms),
        "missed_only": missed,
        "dry_run": not makes,
        "made": len(made),
        "instants": documents,
        "digest": backfill_digest(schedule, planned),
    }
    words = [
        "refused"
        if one.repeats is not None
        else of_scheduled_time(one.fate, before_first_seen=one.before_first_seen)
        for one in planned
    ]
    session.emit(document, _backfill_lines(documents, words), rows=documents)
    if len(planned) >= BACKFILL_MAX:
        session.note(f"note: these are the first {BACKFILL_MAX:,}; ask again from the last one on")
    _say_next(session, makes, len(made), sum(not each["has_request"] for each in documents))


def _backfill_lines(documents: list[dict[str, Any]], words: list[str]) -> list[str]:
    rows = [
        (
            utc(each["instant"]).removesuffix(" UTC"),
            word,
            between(each["window_start"], each["window_end"]),
            "made" if each["made"] else "has one" if each["has_request"] else "-",
        )
        for each, word in zip(documents, words, strict=True)
    ]
    header = ("SCHEDULED (UTC)", "OUTCOME", "COVERS", "REQUEST")
    return table(header, rows) if rows else ["nothing to catch up"]


def _say_next(session: CommandSession, makes: bool, made: int, open_: int) -> None:
    if made:
        session.note(f"{counted(made, 'request')} made; `kfm serve`, or `kfm schedule run-due`, runs them")
    elif open_ and not makes:
        session.note(f"nothing was asked for: --yes --rationale TEXT makes {counted(open_, 'request')}")


# --- history -----------------------------------------------------------------------


@command.command(name="history")
@click.argument("name", metavar="SCHEDULE")
@click.option("--since", metavar="TIME", help="From here on; else the last scheduled times.")
@click.option(
    "--limit",
    type=click.IntRange(1, HISTORY_MAX),
    default=HISTORY_RECENT,
    show_default=True,
    metavar="N",
    help="At most so many.",
)
@session_options
def history(session: CommandSession, name: str, since: str | None, limit: int) -> None:
    """Show the scheduled times of a schedule and their outcomes.

    Computed from the schedule, not from what was recorded: a scheduled time without a record is shown as
    `unaccounted`.

    \b
    published, unchanged,
    failed, refused        its request has ended like this
    running, waiting       its request has no end yet, or it is due just now
    waiting for approval   another person has to approve its preview
    cancelled              its request was cancelled
    skipped                an earlier one had no end (`overlap`)
    missed                 no service ran in time (`missed`)
    dropped, paused        the schedule was, or is, paused (`while_paused`)
    not seen yet           no service had seen the schedule (`redefined` in JSON)
    redefined              the schedule was off or another

    JSON output has the stored values.
    """
    from kfm.model.windows import parse_instant

    _, known = load_schedules(session)
    schedule = find_schedule(known, name)
    with session.app(read_only=True) as app:
        since_ms = None if since is None else parse_instant(since, "UTC")
        documents = recent_documents(app, schedule, limit, since_ms)
    rows = history_rows(documents)
    header = ("SCHEDULED (UTC)", "OUTCOME", "COVERS", "RUN", "WHY")
    session.emit(
        {"schedule_id": schedule.id, "since": since and instant(since_ms), "instants": documents},
        table(header, rows) if rows else ["no scheduled time has come"],
        rows=documents,
    )
    words = Counter(fate_word(each) for each in documents)
    if len(documents) > 1:
        session.note(", ".join(f"{count} {word}" for word, count in words.most_common()))


def recent_documents(
    app: Any, schedule: Any, limit: int, since_ms: int | None = None
) -> list[dict[str, Any]]:
    """The outcomes of scheduled times since a moment, or of the last ones."""
    from kfm.model.schedules import latest_instants
    from kfm.model.times import MS_MIN
    from kfm.reports.schedules import expected_document
    from kfm.service.schedule_changes import history as covered

    end_ms = app.ledger.now_ms() + 1
    if since_ms is None:
        since_ms = next(iter(latest_instants(schedule, MS_MIN, end_ms, limit)), end_ms)
    requests = app.ledger.request_reader()
    found = covered(app, schedule, since_ms, end_ms, limit)
    return [
        {**expected_document(one), **_ending(requests.request(one.request_id) if one.request_id else None)}
        for one in found
    ]


def _ending(request: Any) -> dict[str, Any]:
    """The state of the request of a scheduled time."""
    return {name: getattr(request, name, None) for name in ("state", "outcome", "blocked_by", "run_id")}


def history_rows(documents: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A row for each scheduled time; many with the same outcome and no request share one."""
    rows = []
    for _, same in groupby(documents, key=lambda each: (fate_word(each), each["reason"], each["request_id"])):
        many = list(same)
        together = many[0]["request_id"] is None and len(many) >= TOGETHER_MIN
        rows += [_row(many)] if together else [_row([each]) for each in many]
    return rows


def _row(many: list[dict[str, Any]]) -> tuple[str, ...]:
    first, last = many[0], many[-1]
    at = utc(first["instant"]).removesuffix(" UTC")
    why = first["reason"] or ""
    if len(many) > 1:
        at = f"{at} … {utc(last['instant']).removesuffix(' UTC')}"
        why = f"{len(many)} scheduled times{f': {why}' if why else ''}"
    return (
        at,
        fate_word(first),
        between(first["window_start"], last["window_end"]),
        short_id(first["run_id"]) if first["run_id"] else "-",
        clipped(why),
    )


def fate_word(document: dict[str, Any]) -> str:
    """The outcome of a scheduled time, in one word: of its request, where it had one."""
    return of_scheduled_time(
        document["fate"],
        before_first_seen=document["before_first_seen"],
        state=document["state"],
        outcome=document["outcome"],
        blocked_by=document["blocked_by"],
    )


def when(document: dict[str, Any]) -> str:
    """The pattern of a schedule, for people: its cron expression, or its interval."""
    if document["cron"] is not None:
        return str(document["cron"])
    return f"every {duration(document['every_seconds'] * 1000)}"


# --- run-due -----------------------------------------------------------------------


@command.command(name="run-due")
@session_options
def run_due(session: CommandSession) -> int:
    """Do once what `kfm serve` does all the time, and end.

    Accounts for the scheduled times of all schedules until now and works off every request that is due: of
    schedules and their backfills, webhooks, announced objects and people, and the next attempts of runs that
    failed. Ends when each of them has ended or waits for later, and notifications and lineage that wait were
    sent. Where no service can stay, let the system start it every minute:

    \b
    * * * * * cd /srv/project && kfm schedule run-due

    Scheduled times that are older than `serve.late_seconds` when it comes were missed. Several at once, and a
    service beside it, do no harm.

    Exit codes: 0 all went well, or nothing was due · 1 an attempt failed, also if another one is promised ·
    3 one was refused.
    """
    from kfm.cli.run import hand_over, worst
    from kfm.reports.requests import request_document
    from kfm.reports.runs import word_of_request
    from kfm.service.scheduler import run_due as work_off

    documents: list[dict[str, Any]] = []
    codes: list[int] = []

    def told(request: Any, in_vain: bool) -> None:
        documents.append(request_document(request))
        codes.append(1 if in_vain else _EXIT.get(request.outcome, 0))
        word = word_of_request(app.ledger, request)
        covers = between(documents[-1]["window_start"], documents[-1]["window_end"])
        line = f"{word.ljust(9)}  {request.source_id}  {covers}  {clipped(request.reason or '')}".rstrip()
        if session.output != "json":
            session.emit(None, [line], rows=[documents[-1]])

    _, known = load_schedules(session)
    with session.app() as app:
        session.inform()
        work_off(app, list(known.values()), told)
        hand_over(session, app, ())
    if session.output == "json":
        session.emit({"requests": documents}, ())
    elif not documents:
        session.note("nothing is due")
    return worst(codes)


# --- export ------------------------------------------------------------------------


@command.command(name="export")
@click.argument("target", type=click.Choice(TARGETS))
@click.option("--check", "checked", metavar="FILE", help="Write nothing; exit 1 if FILE says something else.")
@click.option(
    "--requirements",
    metavar="FILE",
    help="github: install what this file of the repository pins, by its hashes where it has them.",
)
@click.option(
    "--connection",
    metavar="ID",
    help="airflow: ask the service of this connection; else `kfm run` on the worker, by KFM_CONFIG.",
)
@session_options
def export_schedules(
    session: CommandSession,
    target: str,
    checked: str | None,
    requirements: str | None,
    connection: str | None,
) -> int:
    """Print the schedules as a file for another scheduler.

    \b
    github     a workflow with `on.schedule`: one job for each schedule, which may only read
    airflow    a file of DAGs for Airflow 3: one for each schedule, and one for each dataset made from these
    langgraph  a graph, and a function that registers its crons with a LangGraph server

    What the other scheduler can't keep is refused; what it does differently is logged on stderr and listed at
    the top of the file. Keep the file equal to cron.yml by a check in continuous integration:

    \b
    kfm schedule export github --requirements requirements.txt > .github/workflows/kfm.yml
    kfm schedule export github --requirements requirements.txt --check .github/workflows/kfm.yml
    """
    from os.path import basename

    from kfm.config.schedules import FILE
    from kfm.service.schedule_export import ExportOptions, export, export_command, requirements_file

    loaded, known = load_schedules(session)
    if connection is not None and not CONNECTION.match(connection):
        raise UsageError(f"`{connection[:100]}` can't be the id of a connection of Airflow.")
    options = ExportOptions(
        settings=loaded.settings,
        config=basename(loaded.path),
        file=loaded.settings.schedules or FILE,
        requirements=requirements_file(requirements, _text_of(requirements)) if requirements else None,
        connection=connection,
    )
    made = export(target, tuple(known.values()), options)
    document = {"target": target, "text": made.text, "notes": list(made.notes), "drift": None}
    if checked is not None:
        drift = _drift(checked, made.text)
        document["drift"] = "\n".join(drift)
        session.emit(document, drift or [f"unchanged  {checked}"])
        if drift:
            session.fail(
                f"error: {checked} and {loaded.settings.schedules or FILE} differ",
                f"fix: {export_command(target, options)} > {checked}",
            )
        return 1 if drift else 0
    session.emit(document, made.text.splitlines())
    for note in made.notes:
        session.note(f"note: {note}")
    return 0


def _drift(path: str, text: str) -> list[str]:
    """What would have to change in a file, as a unified diff; nothing if it is equal."""
    from difflib import unified_diff

    wanted = text.splitlines()
    return list(unified_diff(_text_of(path).splitlines(), wanted, path, "cron.yml", lineterm=""))


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(FILE_CHARS_MAX)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}.") from None


def _now_ms() -> int:
    from kfm.db.connection import system_clock

    return system_clock().now_ms()


# --- lookup ------------------------------------------------------------------------


def load_schedules(session: CommandSession) -> tuple[Any, dict[str, Any]]:
    from kfm.config.schedules import load_schedules as load

    loaded = session.load()
    return loaded, {each.id: each for each in load(loaded)}


def find_schedule(known: dict[str, Any], name: str) -> Any:
    """The schedule of this name."""
    if name in known:
        return known[name]
    from kfm.model.quantities import did_you_mean

    raise UsageError(
        f"There is no schedule `{name[:100]}`{did_you_mean(name, sorted(known))}",
        remedy="`kfm schedule list` has them.",
    )
