"""`kfm lineage`: the events that runs leave, and whether they have arrived."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import Any

import click

from kfm.cli.options import CommandGroup, directory_option, opened, session_options
from kfm.cli.output import instant, one_line, table
from kfm.cli.process import data
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.quantities import counted, moment, visible_json
from kfm.reports.lineage import event_document
from kfm.reports.lookup import (
    ACTIVITY,
    begins_wal_id,
    changes_in,
    find_run_or_call,
    find_unit,
    only,
    unit_of_activity,
)
from kfm.reports.pipeline_runs import find_pass

PASS_MS = 60_000
WAIT_STEP_MS = 1_000


@click.group(name="lineage", cls=CommandGroup)
def command() -> None:
    """Show, deliver and count OpenLineage events; print provenance."""


# --- show ----------------------------------------------------------------------------


@command.command(name="show")
@click.argument("run")
@click.option("--events", "raw", is_flag=True, help="Print the events themselves, byte for byte as stored.")
@directory_option
@session_options
def show(session: CommandSession, run: str, raw: bool, directory: str | None) -> None:
    """Show the OpenLineage events of one run: each attempt of it and of its nodes.

    RUN is the id of a run, of a pipeline run, of a refused invocation, or of a change of a dataset (a
    rollback, a withdrawal, a retirement, a lift), or the beginning of one; or the id of a unit (wal_id) or
    of an attempt at one, the latter whole. With --events the events themselves are printed, one on each line;
    with --json as one array.
    """
    unit = _unit(session, run, directory)
    if unit is not None:
        with session.app(read_only=True) as app:
            from kfm.nodd.unit_evidence import unit_messages

            unit = find_unit(app.ledger.unit_reader(), unit).unit.wal_id
            _show(session, unit, unit_messages(app, unit), app.ledger.now_ms(), raw)
        return
    with opened(session, directory) as place:
        ledger = place.store
        about = _find(place, run)
        own_id = getattr(about, "invocation_id", None) or getattr(about, "change_id", None)
        run_id = getattr(about, "run_id", None)
        messages = ledger.outbox_messages(own_id) if own_id else []
        if not messages and run_id is not None:  # an invocation that was answered with a run
            messages = ledger.outbox_messages(run_id)
        now_ms = ledger.now_ms()
    subject = messages[0].subject if messages else run_id or own_id
    _show(session, str(subject), messages, now_ms, raw)


def _show(session: CommandSession, subject: str, messages: list[Any], now_ms: int, raw: bool) -> None:
    if raw:
        _print_stored([message.body for message in messages], session.output)
        return
    documents = [event_document(message, now_ms) for message in messages]
    lines = _attempt_table(documents) if documents else ["no events: there was no lineage when it began"]
    session.emit({"subject": subject, "events": documents}, lines, rows=documents)


@command.command(name="prov")
@click.argument("run")
@click.option(
    "--internal", is_flag=True, help="Do not mask the names of a masked dataset. Not for passing on."
)
@directory_option
@session_options
def prov(session: CommandSession, run: str, internal: bool, directory: str | None) -> None:
    """Print the provenance of one run: PROV-O as JSON-LD, one document.

    RUN is the id of a run, of a pipeline run, of a refused invocation, or of a change of a dataset (a
    rollback, a withdrawal, a retirement, a lift), or the beginning of one; or the id of a unit (wal_id) or
    of an attempt at one, whole. The SHACL shapes that it
    keeps to are in kfm/contracts/shapes/prov.ttl.
    """
    unit = _unit(session, run, directory)
    if unit is not None:
        with session.app(read_only=True) as app:
            from kfm.nodd.unit_evidence import unit_provenance

            unit = find_unit(app.ledger.unit_reader(), unit).unit.wal_id
            data().write(visible_json(unit_provenance(app, unit, internal=internal).decode()))
        return
    with opened(session, directory) as place:
        about = _find(place, run)
        if hasattr(about, "graph"):
            from kfm.pipelines.evidence import pass_provenance

            made = pass_provenance(place, about.run_id, internal=internal)
            assert made is not None
            data().write(visible_json(made.decode()))
            return
    from kfm.runs.artifacts import provenance

    with session.app(read_only=True) as app:
        wanted = getattr(about, "invocation_id", None) or getattr(about, "change_id", None) or about.run_id
        document = provenance(app, wanted, internal=internal)
    data().write(visible_json(document.decode()))


def _unit(session: CommandSession, wanted: str, directory: str | None) -> str | None:
    """The unit that is meant, by its id or that of an attempt; None: a run, or something like it."""
    if begins_wal_id(wanted) or ACTIVITY.fullmatch(wanted) is None:
        return wanted if begins_wal_id(wanted) else None
    with opened(session, directory) as place:
        try:
            _find(place, wanted)
        except UsageError:
            return unit_of_activity(place.store.unit_reader(), wanted)
    return None


def _find(place: Any, wanted: str) -> Any:
    """A run, an invocation, a pipeline run outside of a run, or a change of a dataset."""
    try:
        return find_run_or_call(place.store, wanted)
    except UsageError as error:
        for find in (
            lambda: find_pass(place.tables, wanted),
            lambda: only(wanted, [changes_in(place.store)], "`kfm dataset show ID` names them."),
        ):
            with suppress(UsageError):
                return find()
        raise error from None


def _print_stored(bodies: list[str], output: str) -> None:
    if output == "json":
        data().write("[" + ",\n".join(bodies) + "]\n")
    else:
        data().write("".join(f"{body}\n" for body in bodies))


def _attempt_table(documents: list[dict[str, Any]]) -> list[str]:
    """One line for each OpenLineage run, in the order in which they began."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        runs.setdefault(document["lineage_id"], []).append(document)
    header = ("ATTEMPT", "WHAT", "START (UTC)", "END (UTC)", "HOW", "DELIVERED", "OPENLINEAGE RUN")
    return table(header, [_attempt_row(events) for events in runs.values()], spare=("HOW", "OPENLINEAGE RUN"))


def _attempt_row(events: list[dict[str, Any]]) -> tuple[str, ...]:
    first = events[0]
    end = next((event for event in events if event["event_type"] != "START"), None)
    waiting = sum(event["delivered_at"] is None for event in events)
    what = {"call": "refused invocation", "run": "run", "pass": "pipeline run", "unit": "unit"}.get(
        first["kind"], one_line(first["job"] if first["kind"] == "change" else first["node"])
    )
    return (
        str(first["attempt"]) if first["attempt"] else "-",
        f"  {what}" if first["kind"] in ("node", "pass-node") else what,
        _clock_time(first["event_time"]),
        _clock_time(end["event_time"]) if end else "-",
        end["event_type"] if end else "running",
        "yes" if not waiting else f"{waiting} of {len(events)} wait",
        first["lineage_id"],
    )


def _clock_time(event_time: str) -> str:
    return event_time.replace("T", " ").removesuffix("Z")


# --- deliver -------------------------------------------------------------------------


@command.command(name="deliver")
@click.option("--wait", is_flag=True, help="Keep trying until everything has arrived.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.IntRange(1, 86_400),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="With --wait: give up after so long.",
)
@session_options
def deliver(session: CommandSession, wait: bool, timeout_seconds: int) -> int:
    """Send the OpenLineage events that wait to their collector.

    Runs send their own events when they end. Use this after a collector was down, or from a schedule. Events
    that rest after a failure are tried at once. Exit code 4: the collector is down or refuses events; what
    did not arrive stays in the outbox.
    """
    with session.app() as app:
        from kfm.lineage.collectors import describe_collector

        where = describe_collector(app)
        if where is None:
            raise UsageError(
                "Lineage events go nowhere: lineage.export is none, or OPENLINEAGE_DISABLED is set.",
                remedy="Set lineage.export to file or http.",
            )
        watch = _Watch(sum(app.ledger.backlog(topic).waiting for topic in _topics()), session)
        sent, units_sent, last, units = _passes(app, session, watch, timeout_seconds * 1000 if wait else 0)
        watch.done()
    trouble, error = last.trouble or units.trouble, last.error or units.error
    waiting = last.waiting + units.waiting
    code = 0 if not waiting and trouble is None else 4
    document = {
        "to": where,
        "sent": sent,
        "waiting": last.waiting,
        "refused": last.refused,
        "units": {"sent": units_sent, "waiting": units.waiting, "refused": units.refused},
        "trouble": trouble,
        "exit_code": code,
    }
    session.emit(document, _summary(sent, last.waiting, units_sent, units.waiting, where))
    if trouble is not None:
        what = f"error{f' {error.code}' if error else ''}: {one_line(trouble)}"
        session.fail(what, *([f"fix: {error.way_out}"] if error is not None else []))
    elif waiting:
        why = (
            "time is up"
            if wait
            else "another process is sending the rest, or there was too much for one round"
        )
        session.note(f"{why}; nothing is lost: run the command again")
    return code


def _summary(sent: int, waiting: int, units_sent: int, units_waiting: int, where: str) -> list[str]:
    if not (sent or waiting or units_sent or units_waiting):
        return ["nothing was waiting"]
    lines = []
    if sent or waiting:
        done = f"{counted(sent, 'event')} sent to {where}" if sent else "nothing sent"
        lines.append(f"{done}; {counted(waiting, 'event')} waiting" if waiting else done)
    if units_sent or units_waiting:
        done = f"events of {_batches(units_sent)} sent to {where}" if units_sent else "nothing sent"
        lines.append(f"{done}; {_batches(units_waiting)} waiting" if units_waiting else done)
    return lines


def _batches(count: int) -> str:
    return f"{count} {'batch' if count == 1 else 'batches'} of units"


def _passes(app: Any, session: CommandSession, watch: _Watch, wait_ms: int) -> tuple[int, int, Any, Any]:
    from kfm.nodd.unit_evidence import deliver_events

    until_ms = app.clock.monotonic_ms() + wait_ms
    for topic in _topics():
        app.store.hasten_messages(topic)
    sent, units_sent, shown = 0, 0, None
    while True:
        progress = partial(watch.reached, sent + units_sent)
        runs, units = deliver_events(app, deadline_ms=PASS_MS, progress=progress)
        sent += runs.sent
        units_sent += units.sent
        left_ms = until_ms - app.clock.monotonic_ms()
        refused = runs.refused or units.refused
        if not (runs.waiting or units.waiting) or refused or left_ms <= 0:
            return sent, units_sent, runs, units
        trouble = runs.trouble or units.trouble
        if trouble is not None and trouble != shown:
            session.note(f"waiting: {one_line(trouble)}")
            shown = trouble
        app.clock.sleep_ms(min(WAIT_STEP_MS, left_ms))


class _Watch:
    """How far it is, for people at a terminal."""

    def __init__(self, total: int, session: CommandSession) -> None:
        self._reached = 0
        self._progress: Any = None
        if total and session.output == "text" and sys.stderr.isatty():
            from kfm.cli.progress import watcher

            self._progress = watcher(is_tty=True)
            self._progress.phase("send events", total)

    def reached(self, before: int, sent: int) -> None:
        if self._progress is not None:
            self._progress.advance(before + sent - self._reached)
        self._reached = before + sent

    def done(self) -> None:
        if self._progress is not None:
            self._progress.done()


# --- status --------------------------------------------------------------------------


@command.command(name="status")
@session_options
def status(session: CommandSession) -> None:
    """Where events go, how many wait, and since when."""
    with session.app(read_only=True) as app:
        from kfm.lineage.collectors import describe_collector, ignored_transport

        backlog, units = (app.ledger.backlog(topic) for topic in _topics())
        document = {
            "to": describe_collector(app),
            "waiting": backlog.waiting,
            "oldest": instant(backlog.oldest_ms),
            "units": {"waiting": units.waiting, "oldest": instant(units.oldest_ms)},
            "ignored": ignored_transport(),
        }
    lines = [f"events go to {document['to']}" if document["to"] else "events go nowhere"]
    for one, what in ((backlog, counted(backlog.waiting, "event")), (units, _batches(units.waiting))):
        if one.waiting:
            since = f", the oldest since {moment(one.oldest_ms)}" if one.oldest_ms is not None else ""
            lines.append(f"{what} waiting{since}")
    waiting = backlog.waiting + units.waiting
    if not waiting:
        lines.append("nothing is waiting")
    session.emit(document, lines)
    if document["ignored"]:
        session.note(f"OPENLINEAGE__TRANSPORT__TYPE={document['ignored']} is not for us: only http is")
    if waiting and session.output == "text":
        session.note("send them with `kfm lineage deliver`")


def _topics() -> tuple[str, str]:
    """Events of runs, and messages about units."""
    from kfm.lineage.emitter import TOPIC
    from kfm.model.units import TOPIC as UNIT_TOPIC

    return TOPIC, UNIT_TOPIC
