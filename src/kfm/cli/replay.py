"""`kfm replay`: replay units by a frozen plan; inspect a replay; drain a dead-letter queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import table
from kfm.cli.replay_options import (
    names_units,
    pace_options,
    read_plan,
    read_spec,
    selection_options,
    spec_of,
    write_record,
)
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.next_steps import approve_command
from kfm.model.quantities import counted, moment
from kfm.model.rationales import require_rationale
from kfm.reports.lookup import Sought, only

REFUSED = 3
FINDINGS = 1
SELECTED_MAX = 100
RECEIPTS_SHOWN = 50


@click.group(name="replay", cls=CommandGroup)
def command() -> None:
    """Replay units that failed, were quarantined, or have to be made anew.

    \b
    The way to go:
      kfm replay select  --dataset hrrr --error-code HTTP_503        look
      kfm replay dry-run --dataset hrrr --error-code HTTP_503 --selection-file plan.json
      kfm replay run     --selection-file plan.json --confirm --rationale "the bucket is back"
      kfm worker --until-idle                                        process them
      kfm replay inspect REPLAY                                      see the receipts
    """


# --- select and dry-run ------------------------------------------------------------


@command.command(name="select")
@selection_options
@session_options
def select(session: CommandSession, save_spec: str | None, **options: Any) -> None:
    """List the units that are meant, and whether each would come back. Changes nothing."""
    from kfm.cli.replay_options import unit_table
    from kfm.nodd.replay import selected
    from kfm.reports.replays import unit_document

    with session.app(read_only=True) as app:
        spec = spec_of(options, app)
        limit = spec.limit or SELECTED_MAX
        found = selected(app, spec, limit + 1)
    shown, more = found[:limit], len(found) > limit
    _save(session, save_spec, spec)
    documents = [{**unit_document(unit), "left_out": why} for unit, why in shown]
    lines = unit_table(shown, verdicts=True) if shown else ["no units are selected"]
    session.emit({"units": documents, "more": more}, lines, rows=documents)
    if more and session.output == "text":
        session.note(f"more units are selected than are shown: use --limit (now {limit})")


@command.command(name="dry-run")
@click.option("--selection-file", metavar="FILE", help="Write the frozen plan here, for `kfm replay run`.")
@selection_options
@session_options
def dry_run(
    session: CommandSession, selection_file: str | None, save_spec: str | None, **options: Any
) -> None:
    """Freeze a plan: exactly the units that would come back, each as it is now. Changes nothing.

    --selection-file keeps the plan itself: ids, versions and a digest; `kfm replay run --selection-file`
    carries out that and nothing else, and refuses it once a unit has changed. --save-spec keeps only the
    selection, of which `kfm replay from-spec` makes a new plan each time.
    """
    from kfm.nodd.replay import plan_of

    with session.app(read_only=True) as app:
        spec = spec_of(options, app)
        plan = plan_of(app, spec)
    _save(session, save_spec, spec)
    _show_plan(session, plan, selection_file)


def _show_plan(session: CommandSession, plan: Any, selection_file: str | None) -> None:
    from kfm.cli.replay_options import plan_lines
    from kfm.reports.replays import plan_document

    if selection_file is not None:
        write_record(selection_file, plan)
    document = {**plan_document(plan), "selection_file": selection_file}
    session.emit(document, plan_lines(plan), rows=document["units"])
    if selection_file is not None and plan.units:
        session.note(
            f"carry it out: kfm replay run --selection-file {selection_file} --confirm --rationale TEXT"
        )


def _save(session: CommandSession, path: str | None, spec: Any) -> None:
    if path is not None:
        write_record(path, spec)
        session.note(f"the selection is kept: kfm replay from-spec {path}")


# --- run ---------------------------------------------------------------------------


@command.command(name="run")
@click.argument("replay_id", metavar="[REPLAY]", required=False)
@click.option("--selection-file", metavar="FILE", help="A frozen plan of `kfm replay dry-run`.")
@selection_options
@pace_options
@session_options
def run(
    session: CommandSession,
    replay_id: str | None,
    selection_file: str | None,
    save_spec: str | None,
    **options: Any,
) -> int:
    """Carry out a plan: its units are due again, each with a new grant of attempts and a receipt.

    The plan is one of a file, or made here and now of the options; with REPLAY, the id of a replay that was
    begun or asked for before, it goes on. If a unit has changed since the plan, nothing is done. Killed at
    any point, it goes on when the same plan is run again; two at once share the work. Switches are asked
    between batches: kfm switch set paused --replays DATASET|all.

    Units that had succeeded or are in quarantine, and everything in the mode repair-and-replace, need a
    second person: the request is recorded, and `kfm approvals approve` agrees to exactly this plan.

    Exit codes: 0 done, or paused by --max-batches · 1 units changed meanwhile, or were named with --unit and
    left out · 2 usage · 3 the plan has drifted, an approval is needed, a switch blocks it, too many units, or
    no unit that was named with --unit may come back.
    """
    _require_rationale(options)
    if sum((replay_id is not None, selection_file is not None, names_units(options))) > 1:
        raise UsageError(
            "A replay has one plan: REPLAY, --selection-file, or options that select units.",
            remedy="Leave out all but one. A file's plan is frozen, so nothing narrows it.",
        )
    with session.app() as app:
        if replay_id is not None:
            plan = find_replay(app.ledger.replay_reader(), replay_id).plan
        elif selection_file is not None:
            plan = read_plan(selection_file)
        else:
            from kfm.nodd.replay import plan_of

            spec = spec_of(options, app)
            plan = plan_of(app, spec)
            _save(session, save_spec, spec)
        return _run(session, app, plan, options)


@command.command(name="from-spec")
@click.argument("spec_file", metavar="SPEC")
@click.option("--selection-file", metavar="FILE", help="Write the frozen plan here.")
@pace_options
@session_options
def from_spec(session: CommandSession, spec_file: str, selection_file: str | None, **options: Any) -> int:
    """Make a new plan of a selection that was kept with --save-spec; with --confirm carry it out at once.

    Without --confirm it shows the plan, as `kfm replay dry-run` does, and changes nothing.
    """
    from kfm.nodd.replay import plan_of

    spec = read_spec(spec_file)
    if not options["confirm"]:
        with session.app(read_only=True) as app:
            plan = plan_of(app, spec)
        _show_plan(session, plan, selection_file)
        return 0
    _require_rationale(options)
    with session.app() as app:
        plan = plan_of(app, spec)
        if selection_file is not None:
            write_record(selection_file, plan)
        return _run(session, app, plan, options)


def _run(session: CommandSession, app: Any, plan: Any, options: dict[str, Any]) -> int:
    from kfm.nodd.replay import ReplayPace, has_approval, person, run_plan
    from kfm.service.approvals import request_replay

    named = bool(plan.selection.wal_ids) and bool(plan.left_out)
    if not plan.units:
        code = REFUSED if named else 0
        _emit_run(session, app, plan, None, None, code)
        return code
    if not _confirmed(session, plan, options):
        session.note("nothing was replayed")
        return 0
    by = person(app, options["rationale"], options["ticket"], options["actor"])
    if plan.needs_approval and not has_approval(app, plan):
        request = request_replay(app, plan, by)
        _emit_run(session, app, plan, None, request, REFUSED)
        session.note(f"another person has to agree: {approve_command(request.request_id)}")
        session.note(f"what it is about: kfm replay inspect {plan.replay_id}")
        session.note(f"then: kfm replay run {plan.replay_id} --confirm --rationale TEXT")
        return REFUSED
    pace = ReplayPace(
        batch_size=options["batch_size"], max_batches=options["max_batches"], rate=options["rate"]
    )
    with _progress(session, "replaying", len(plan.units)) as advance:
        carried = run_plan(app, plan, pace, by, advance)
    code = (
        REFUSED
        if carried.stopped and carried.waiting
        else FINDINGS
        if named or "drifted" in carried.receipts
        else 0
    )
    _emit_run(session, app, plan, carried, None, code)
    if carried.waiting:
        for dataset, reason in carried.stopped.items():
            session.note(f"{dataset} waits: {reason}")
        session.note(f"go on with: kfm replay run {plan.replay_id} --confirm --rationale TEXT")
    return code


def _emit_run(session: CommandSession, app: Any, plan: Any, carried: Any, request: Any, code: int) -> None:
    from kfm.cli.replay_options import plan_lines, replay_line
    from kfm.reports.quarantine import approval_document
    from kfm.reports.replays import receipt_document, replay_document

    reader = app.ledger.replay_reader()
    replay = reader.replay(plan.replay_id)
    shown = replay_document(replay, reader.tally(plan.replay_id)) if replay is not None else None
    receipts = []
    if carried is not None and session.output != "text":
        receipts = [receipt_document(one) for one in all_receipts(reader, plan.replay_id)]
    document = {
        "replay": shown,
        "left_out": plan.left_out,
        "batches": carried.batches if carried is not None else 0,
        "stopped": carried.stopped if carried is not None else {},
        "receipts": receipts,
        "request": approval_document(request) if request is not None else None,
        "exit_code": code,
    }
    if request is not None:
        lines = [*plan_lines(plan, units_shown=0), f"requested  {request.request_id}  {request.about}"]
    elif shown is not None:
        lines = [replay_line(shown)]
    else:
        lines = ["nothing to replay", *(f"left out: {many} {why}" for why, many in plan.left_out.items())]
    session.emit(document, lines, rows=receipts)


def _require_rationale(options: dict[str, Any]) -> None:
    require_rationale(options["rationale"], "A replay is run with --rationale TEXT.")


def _confirmed(session: CommandSession, plan: Any, options: dict[str, Any]) -> bool:
    if options["confirm"] or session.yes:
        return True
    from kfm.cli.replay_options import amounts

    question = f"Replay {counted(len(plan.units), 'unit')} ({amounts(plan.by_dataset)})?"
    try:
        return session.confirm(question)
    except UsageError:
        raise UsageError(
            f"{question} There is no terminal to ask, so nothing was replayed.", remedy="Give --confirm."
        ) from None


@contextmanager
def _progress(session: CommandSession, what: str, total: int | None) -> Iterator[Any]:
    from kfm.cli.progress import watched

    shown = watched(session)
    shown.phase(what, total)
    try:
        yield shown.advance
    finally:
        shown.done()


def all_receipts(reader: Any, replay_id: str) -> Iterator[Any]:
    after = ""
    while page := reader.receipts(replay_id, after):
        yield from page
        after = page[-1].wal_id


# --- keep, stop ------------------------------------------------------------------------


@command.command(name="plan")
@selection_options
@click.option("--name", metavar="TEXT", help="What people call it.")
@click.option("--rationale", metavar="TEXT", help="Why. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@session_options
def keep(session: CommandSession, save_spec: str | None, **options: Any) -> None:
    """Keep a plan in the ledger: exactly these units, for `kfm replay run REPLAY`. Nothing comes back yet.

    Everybody who may read sees it, under `kfm replay inspect` and in the console. Once a unit has changed,
    the plan is refused.
    """
    _require_rationale(options)
    from kfm.nodd.replay import freeze, person, plan_of
    from kfm.reports.replays import replay_document

    with session.app() as app:
        spec = spec_of(options, app)
        plan = plan_of(app, spec)
        _save(session, save_spec, spec)
        by = person(app, options["rationale"], options["ticket"], options["actor"])
        name = options["name"]
        replay = freeze(app, plan, by, name and app.loaded.discretion.said(name)) if plan.units else None
        tally = app.ledger.replay_reader().tally(plan.replay_id)
    document = {
        "replay": replay_document(replay, tally) if replay is not None else None,
        "left_out": plan.left_out,
        "request": None,
    }
    from kfm.cli.replay_options import plan_lines

    session.emit(document, plan_lines(plan, units_shown=0))
    if replay is not None:
        session.note(f"carry it out: kfm replay run {plan.replay_id} --confirm --rationale TEXT")


@command.command(name="stop")
@click.argument("replay_id", metavar="REPLAY")
@click.option("--rationale", metavar="TEXT", help="Why. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@session_options
def stop(session: CommandSession, replay_id: str, **options: Any) -> None:
    """Stop a replay that a service carries out, after the batch under way.

    What has come back stays. `kfm replay run REPLAY` goes on with it here, with --server there.
    """
    _require_rationale(options)
    from kfm.cli.replay_options import replay_line
    from kfm.nodd.replay import person
    from kfm.nodd.replay import stop as leave_alone
    from kfm.reports.replays import replay_document

    with session.app() as app:
        reader = app.ledger.replay_reader()
        by = person(app, options["rationale"], options["ticket"], options["actor"])
        stopped = leave_alone(app, find_replay(reader, replay_id), by)
        if stopped is None:
            raise UsageError("The replay is not under way: there is nothing to stop.")
        document = replay_document(stopped, reader.tally(stopped.replay_id))
    session.emit(
        {"replay": document, "left_out": stopped.plan.left_out, "request": None}, [replay_line(document)]
    )


# --- inspect -----------------------------------------------------------------------


@command.command(name="inspect")
@click.argument("replay_id", metavar="[REPLAY]", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=RECEIPTS_SHOWN, show_default=True, metavar="N",
    help="At most N units, or N replays.",
)  # fmt: skip
@session_options
def inspect(session: CommandSession, replay_id: str | None, limit: int) -> None:
    """Show a replay: its state, the receipt of each unit, and the unit's state now.

    Where a replay would have made another item of the same bytes, nothing was published: each field is
    shown with its value as it is and as it would have been. Without REPLAY: list replays, newest first.
    """
    from kfm.cli import replay_options as lines_of
    from kfm.reports.replays import shown_replay
    from kfm.reports.state_words import UNITS, by_word

    with session.app(read_only=True) as app:
        reader = app.ledger.replay_reader()
        if replay_id is None:
            _list(session, reader, limit)
            return
        replay = find_replay(reader, replay_id)
        requests = app.ledger.approvals(subject=replay.replay_id)
        document = shown_replay(app.ledger, replay, limit=limit)
    receipts = document["receipts"]
    lines = [
        lines_of.replay_line(document["replay"]),
        f"plan       {replay.digest}, made {moment(replay.plan.made_at_ms)}",
        f"mode       {replay.mode}, reason {replay.reason}",
        f"by         {replay.requested_by}, {moment(replay.created_at_ms)}: {replay.rationale}",
        *(f"request    {one.request_id}: {_agreement(one)}" for one in requests),
        f"since      {lines_of.amounts(by_word(document['since'], UNITS))}",
        "",
        *lines_of.receipt_table(receipts),
        *lines_of.difference_lines(receipts),
    ]
    session.emit(document, lines, rows=receipts)
    if document["more"] and session.output == "text":
        session.note(f"more units are not shown: use --limit (now {limit})")


def _agreement(request: Any) -> str:
    if request.status == "rejected":
        return f"rejected by {request.rejected_by}: {request.rejection_rationale}"
    if request.status == "requested":
        way = approve_command(request.request_id)
        return f"waiting for approval, asked for by {request.requested_by}; another person runs {way}"
    return f"approved by {request.approved_by}: {request.approval_rationale}"


def _list(session: CommandSession, reader: Any, limit: int) -> None:
    from kfm.reports.replays import replay_document

    found = reader.replays(limit)
    documents = [replay_document(one, reader.tally(one.replay_id)) for one in found]
    rows = [
        (
            moment(one.created_at_ms).removesuffix(" UTC"),
            document["state"],
            one.mode,
            one.reason,
            f"{document['replayed']}/{document['units']}",
            one.requested_by,
            one.replay_id,
        )
        for one, document in zip(found, documents, strict=True)
    ]
    header = ("BEGUN (UTC)", "STATE", "MODE", "REASON", "REPLAYED", "BY", "REPLAY")
    session.emit(
        {"replays": documents},
        table(header, rows, spare=("BY", "REASON")) if rows else ["no replays"],
        rows=documents,
    )


def find_replay(reader: Any, wanted: str) -> Any:
    """By its id, or by a beginning of it that is unique."""
    sought = Sought("replay", "replays", reader.find, str)
    return reader.replay(only(wanted, [sought], "`kfm replay inspect` lists them."))


# --- drain -------------------------------------------------------------------------


@command.command(name="drain")
@click.argument("queue", metavar="QUEUE")
@click.option("--url", metavar="URL", help="Of its dead-letter queue; a folder's path for a folder.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, metavar="N",
    help="At most N messages.",
)  # fmt: skip
@click.option("--rationale", metavar="TEXT", help="Why. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@session_options
def drain(session: CommandSession, queue: str, url: str | None, limit: int, **options: Any) -> int:
    """Empty the dead-letter queue of QUEUE, as it is configured, into the ledger.

    Each message is taken in as if it had come by its queue, and leaves the dead-letter queue once it is
    durable. Units of it that had run out of attempts get another grant (reason dlq-drain). Who did it, and
    why, is in the audit log.
    """
    _require_rationale(options)
    import msgspec

    from kfm.nodd.replay import drain_queue, person

    with session.app() as app, _progress(session, "draining", None) as advance:
        by = person(app, options["rationale"], options["ticket"], options["actor"])
        report = drain_queue(app, queue, url, limit, by, advance)
    drained, taken = report.drained, report.report
    code = FINDINGS if drained.left else 0
    document = {**msgspec.to_builtins(report), "exit_code": code}
    lines = [
        f"drained  {queue}: {counted(drained.received, 'message')}, {drained.durable} durable, "
        f"{drained.left} left in the queue",
        f"taken in: {counted(taken.created, 'new unit')}, {taken.duplicate} known, "
        f"{taken.reissued} re-issued, {counted(taken.dead, 'dead letter')}",
        f"replayed: {counted(report.replayed, 'failed unit')}; {report.left_failed} left as they are",
    ]
    session.emit(document, lines)
    return code
