"""`kfm run`: bring sources up to date."""

from __future__ import annotations

import os
import re
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click

from kfm.cli.errors import annotate, as_error, error_lines
from kfm.cli.options import session_options
from kfm.cli.output import duration, instant, message, one_line, short_id
from kfm.cli.progress import following, watched_steps
from kfm.cli.session import CommandSession
from kfm.model.completeness import ASKED_FOR
from kfm.model.errors import (
    Cancelled,
    CircuitOpen,
    ContractViolated,
    KfmError,
    PlanError,
    RationaleRequired,
    Refused,
    UsageError,
    WindowError,
)
from kfm.model.quantities import span
from kfm.model.rationales import require_rationale
from kfm.reports.state_words import of_report

SEAL_EVENTS_MIN = 500  # so many events are worth an entry in the chain
# With several sources the worst ending decides, in this order: something is wrong with us, with a
# backend, with permission, with the work; then only busy; then fine.
WORST_FIRST = (130, 2, 4, 3, 1, 5, 0)
CHECKS_SHOWN_MAX = 10
_WINDOW_CHARS, _VERSION_CHARS, _RUN_CHARS = 39, 12, 17
_SELECTION = (
    click.option(
        "--source", "sources", multiple=True, metavar="ID", help="Only this source; may be repeated."
    ),
    click.option(
        "--window", metavar="SPEC", help="P1D, PT6H, 2026-01-01/P1D or START/END; else the source's own."
    ),
    click.option(
        "--at", metavar="TIME", help="The window that was the last complete one at this time; else now."
    ),
    click.option(
        "--correction",
        metavar="ID",
        help="Redo the window as this correction: opens a revision; needs --rationale.",
    ),
    click.option("--artifacts", metavar="DIR", help="Where the run's artifacts go."),
    click.option(
        "--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this."
    ),
    click.option("--rationale", metavar="TEXT", help="Why; kept in the audit log."),
    click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
)


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `run` and `diff` that select work."""
    for option in reversed(_SELECTION):
        function = option(function)
    return function


now_option = click.option(
    "--now",
    is_flag=True,
    help="A person answers: earlier than planned, or where a machine may not; needs --rationale.",
)


def asks_in_person(session: CommandSession, now: bool, rationale: str | None) -> bool:
    """Does a person ask? At a terminal, or by saying so with a reason."""
    if now and not (rationale or "").strip():
        raise UsageError("--now needs --rationale: a person answers for it.")
    return now or session.by_person


@click.command()
@selection_options
@now_option
@click.option("--dry-run", is_flag=True, help="Decide and fetch, but change nothing; print the plan.")
@click.option(
    "--force", is_flag=True, help="Override a duplicate key, a spent budget or a freeze; needs reasons."
)
@click.option(
    "--plan", metavar="FILE", help="Apply a plan made with `kfm diff --plan`; refuse if it has drifted."
)
@click.argument("dataset", metavar="[DATASET]", required=False)
@click.option(
    "--missing", is_flag=True, help="Ask for all windows past their time that have no data; see above."
)
@click.option("--from", "start", metavar="TIME", help="With --missing: only windows that end after it.")
@click.option("--to", "end", metavar="TIME", help="With --missing: only windows that begin before it.")
@click.option(
    "--state",
    "states",
    type=click.Choice((*ASKED_FOR, "empty")),
    multiple=True,
    help="With --missing: only windows in this state; may be repeated.",
)
@click.option(
    "--cell", "cells", metavar="CELL", multiple=True,
    help="With --missing: only this window, window:SOURCE@START; may be repeated.",
)  # fmt: skip
@click.option("--digest", metavar="DIGEST", help="With --missing: ask for exactly this list, or nothing.")
@click.option(
    "--together", is_flag=True, help="With --missing, of one source: publish the windows as one version."
)
@click.option(
    "--leave-out-failed",
    is_flag=True,
    help="With --together: publish the others where a window is refused or fails.",
)
@session_options
def command(session: CommandSession, force: bool, missing: bool, **options: Any) -> int:
    """Bring sources up to date and publish what changed.

    Those that feed DATASET, or those of --source; without either every source that is not a member of a
    sync. One line is printed for each source: published, unchanged, planned, refused, waiting, busy or
    failed. With several, the exit code is that of the worst: 2, 4, 3, 1, 5, then 0.

    A failed run is tried again by itself. Asked for before that time, a person at a terminal starts it at
    once; a machine (cron, CI, no terminal) waits: exit 5, unless --now --rationale TEXT says that a person
    answers for it.

    With --missing the windows are chosen by what became of them: overdue, failed, quarantined, refused,
    missing, of all sources, of one DATASET or of --source. The list is shown with its digest, with what is
    skipped and why; --yes, or --digest DIGEST of the list that was shown, asks for all of it, as requests
    that are kept, and works them off. A list that has changed is refused (exit 3). What needs a second
    person is told for each window (exit 3).

    Each window is a version of its own. With --together they are one: readers see all of them or none, and
    --dry-run prints the one diff. It is for one source whose windows stand beside each other (`mode: merge`)
    and runs at once, in this process. If one window is refused or fails, none is published, and the same
    command tries all of them again; with --leave-out-failed the others are published without it.
    """
    if missing:
        from kfm.cli.run_missing import run_missing

        if options.pop("at"):
            raise UsageError("--missing chooses windows by their state, not by --at.")

        by_person = asks_in_person(session, options.pop("now"), options["rationale"])
        return run_missing(session, options, by_person=by_person)
    selecting = {
        name: options.pop(name)
        for name in ("start", "end", "states", "digest", "together", "leave_out_failed")
    }
    if any(selecting.values()):
        raise UsageError(
            "--from, --to, --state, --digest, --together and --leave-out-failed go with --missing.",
            remedy="Name sources with --source, and a window with --window.",
        )
    if force:
        require_reasons(options)
    if options["correction"] and not options["dry_run"]:
        require_correction_rationale(options)
    by_person = asks_in_person(session, options.pop("now"), options["rationale"])
    progress = watched_steps(session)
    with session.app(read_only=options["dry_run"], progress=progress) as app:
        requests = make_requests(app, force=force, by_person=by_person, **options)
        requests = without_retired(session, app, requests, options)
        lineup = Lineup(app.settings, [request.source_id for request in requests])
        reports, code = attempt_all(
            session, app, requests, progress, lambda report: show_report(session, lineup, report)
        )
        if session.output == "json":
            documents = [report_document(report) for report in reports]
            session.emit({"results": documents, "exit_code": code}, ())
        summarise(reports)
        if not options["dry_run"]:
            hand_over(session, app, reports)
    return code


def require_reasons(options: dict[str, Any]) -> None:
    missing = [f"--{name}" for name in ("rationale", "ticket") if not (options.get(name) or "").strip()]
    if missing:
        raise RationaleRequired(f"A force needs {' and '.join(missing)}.")


def require_correction_rationale(options: dict[str, Any]) -> None:
    """A correction changes what is published although nothing else did: its reason is a person's."""
    require_rationale(options.get("rationale"), "A correction needs --rationale.")


def attempt_all(
    session: CommandSession, app: Any, requests: Sequence[Any], progress: Any, show: Callable[[Any], None]
) -> tuple[list[Any], int]:
    """The reports, each shown as soon as it is known, and the exit code of them all.

    One source's failure does not keep the others from running. A signal does: it cancels the
    whole invocation.
    """
    reports: list[Any] = []
    codes: list[int] = []
    try:
        for request in requests:
            with following(progress) as over:
                reports.append(attempt(session, app, request))
                over()
            codes.append(exit_code(reports[-1]))
            show(reports[-1])
            if isinstance(reports[-1].error, Cancelled):
                break
    except KeyboardInterrupt:  # between two sources
        codes.append(Cancelled.exit_code)
    left = [request.source_id for request in requests[len(reports) :]]
    if left and Cancelled.exit_code in codes:
        session.note(f"cancelled; not run: {', '.join(left)}", "warning")
    return reports, worst(codes)


def attempt(session: CommandSession, app: Any, request: Any) -> Any:
    """One source's report, whatever happens."""
    from kfm.runs.kernel import RunReport

    try:
        return app.preview(request) if request.dry_run else run_or_ask(app, request)
    except (Exception, KeyboardInterrupt) as problem:  # noqa: BLE001 - reported as this source's failure
        error = as_error(problem)
        if session.verbose and not isinstance(problem, KfmError | KeyboardInterrupt):
            session.note("".join(traceback.format_exception(problem)).rstrip(), "error")
    outcomes = {3: ("refused", "blocked"), 5: ("busy", "busy")}
    outcome, word = outcomes.get(error.exit_code, ("failed", "failed"))
    return RunReport(
        outcome=outcome,  # type: ignore[arg-type]
        word=word,
        source_id=request.source_id,
        dataset_id=app.settings.source(request.source_id).dataset,
        window_start_ms=0,
        window_end_ms=0,
        invocation_id=None,
        reason=error.message,
        error=error,
    )


def run_or_ask(app: Any, request: Any) -> Any:
    """What was approved runs as it was approved; what needs an approval is asked for by its person."""
    report = app.run(request)
    if report.outcome != "refused":
        return report
    from kfm.service.approvals import ask_instead, run_approved

    return run_approved(app, request) or ask_instead(app, request, report)


def exit_code(report: Any) -> int:
    if report.error is not None:
        return int(report.error.exit_code)
    if any(projection.error and not is_put_off(projection.error) for projection in report.projections):
        return 4
    return {"failed": 1, "refused": 3, "busy": 5}.get(report.outcome, 0)


def worst(codes: Sequence[int]) -> int:
    return min(codes, key=WORST_FIRST.index, default=0)


# --- selection ---------------------------------------------------------------------


def make_requests(app: Any, **options: Any) -> list[Any]:
    """One request for each chosen source. What can't be asked of one of them is asked of none."""
    from kfm.runs.kernel import RunRequest

    settings, sources, window = app.settings, options["sources"], options["window"]
    if options.get("dataset"):
        from kfm.service.source_choice import sources_feeding

        sources = sources_feeding(settings, options["dataset"], sources)
    if options.get("plan"):
        sources, window = planned(options["plan"], sources, window or options["at"])
        options["at"] = None
    from kfm.service.source_choice import choose

    chosen = choose(settings, sources)
    specs = dict.fromkeys(chosen, window)
    if window is not None or options.get("at"):
        found = [settings.source(source_id) for source_id in chosen]
        specs = require_window(window, found, app.ledger.now_ms(), options.get("at"))
    folder = options["artifacts"]
    return [
        RunRequest(
            source_id=source_id,
            window_spec=specs[source_id],
            dry_run=options.get("dry_run", False),
            by_person=options.get("by_person", True),  # who only looks is a person
            force=options.get("force", False),
            correction=options["correction"],
            # Several sources must not write over each other's artifacts.
            artifacts_dir=f"{folder}/{source_id}" if folder and len(chosen) > 1 else folder,
            actor=app.actor,
            claimed_actor=options["actor"],
            rationale=options["rationale"],
            ticket=options["ticket"],
            plan_path=options.get("plan"),
        )
        for source_id in chosen
    ]


def without_retired(
    session: CommandSession, app: Any, requests: list[Any], options: dict[str, Any]
) -> list[Any]:
    """Who names no source means those that can run: a retired dataset is passed over, with a word."""
    if options["sources"] or options.get("dataset") or options.get("plan"):
        return requests
    from kfm.model.dataset_changes import active

    retired = {one.dataset_id for one in active(app.ledger.change_reader().withdrawals()) if one.retires}
    over = [one for one in requests if app.settings.source(one.source_id).dataset in retired]
    for one in over:
        name = app.settings.source(one.source_id).dataset
        session.note(
            f"source {one.source_id} is passed over: dataset {name} is retired; both can be taken out of the "
            "configuration"
        )
    return [one for one in requests if one not in over]


def planned(path: str, sources: Sequence[str], window: str | None) -> tuple[tuple[str, ...], str]:
    """What a plan file is about."""
    from kfm.model.times import rfc3339
    from kfm.runs import plan

    try:
        with open(path, "rb") as file:
            header = plan.read(file.read(plan.PLAN_BYTES_MAX + 1)).header
    except OSError as error:
        raise PlanError(f"{path} can't be read: {(error.strerror or str(error)).lower()}.") from None
    if window is not None or tuple(sources) not in ((), (header.source_id,)):
        raise UsageError(
            f"The plan is about source {header.source_id}; --source, --window and --at can't change that.",
            remedy="Leave them out, or make a new plan with `kfm diff --plan FILE`.",
        )
    spec = f"{rfc3339(header.window.start_ms)}/{rfc3339(header.window.end_ms)}"
    return (header.source_id,), spec


def require_window(
    spec: str | None, sources: Sequence[Any], now_ms: int, at: str | None = None
) -> dict[str, str | None]:
    """The window of each source as a run is asked for it. Refuse one that no source could be run for."""
    from kfm.cli.coverage import instant_in
    from kfm.model.next_steps import window_text
    from kfm.model.quantities import moment
    from kfm.model.windows import asked_window

    specs: dict[str, str | None] = {}
    for source in sources:
        at_ms = now_ms if at is None else instant_in(source.time_zone, "--at", at)
        try:
            window = asked_window(spec, source.window, source.time_zone, at_ms)
        except WindowError as error:
            # A window that is well written can't be what was meant to be written otherwise.
            known = spec is None or _is_window(spec, now_ms)
            remedy = error.own_remedy if known else _meant(spec or "", now_ms) or error.own_remedy
            raise WindowError(error.detail, remedy=remedy) from None
        if window.start_ms > now_ms:
            raise WindowError(
                f"{spec or at} begins in the future, at {moment(window.start_ms)}: nothing is there yet.",
                remedy="Choose a window that has begun; P1D is the last complete day.",
            )
        specs[source.id] = spec if at is None else window_text(window.start_ms, window.end_ms)
    return specs


LENGTHS = "Choose a length that is more than zero and, below a day, divides it: P1D, PT6H, PT15M."


def _meant(spec: str, now_ms: int) -> str | None:
    """The right form of a window that was written in another; None if it is not clear."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", spec):
        return f"For that day write --window {spec}/P1D."
    if re.fullmatch(r"\d{4}-\d\d", spec):
        return f"For that month write --window {spec}-01/P1M."
    if spec.lower() in ("yesterday", "today", "day"):
        return "P1D is the last complete day, so yesterday; a named day is written as 2026-01-31/P1D."
    span = re.fullmatch(r"(\d{4}-[^\s./,]+)\s*(?:\.\.+|,|-|to|\s)\s*(\d{4}-[^\s./,]+)", spec)
    if span:
        return f"A start and an end are written with a slash: --window {span[1]}/{span[2]}."
    length = re.fullmatch(r"(?i)p?t?(\d{1,4})\s*([dhmw])(?:[a-z]*)", spec)
    if length:
        time = "T" if length[2] in "hHmM" else ""
        written = f"P{time}{length[1]}{length[2].upper()}"
        return f"A length is written as --window {written}." if _is_window(written, now_ms) else LENGTHS
    return None


def _is_window(spec: str, now_ms: int) -> bool:
    from kfm.model.windows import resolve_window

    try:
        resolve_window(spec, "UTC", now_ms)
    except WindowError:
        return False
    return True


# --- after the runs: notifications, lineage, provenance, seals, GitHub -------------


def hand_over(session: CommandSession, app: Any, reports: Sequence[Any]) -> bool:
    """Send the events that wait, now that the work is done and shown. What can't go stays in the outbox.

    Nothing of this may change how the work ended: trouble is a line, and the next run tries again.
    False if it was cancelled meanwhile.
    """
    if not notify_hooks(session, app):
        return False
    from kfm.audit.chain import seal_all
    from kfm.lineage.collectors import deliver

    try:
        for report in reports:
            if report.artifacts_dir is not None:
                from kfm.runs.artifacts import leave_provenance

                leave_provenance(app, report)
        delivered = deliver(app)
        seal_all(app.kernel.store, "kfm", SEAL_EVENTS_MIN)
    except OSError as error:
        session.note(f"artifacts: {as_error(error).message}", "warning")
        return True
    except KfmError as error:
        session.note(
            f"evidence: {error.message} The work is done; the next run, or `kfm audit seal`, goes on.",
            "warning",
        )
        return True
    except KeyboardInterrupt:
        return False  # nothing is lost, and the work has its own exit code
    if delivered.trouble:
        session.note(f"lineage: {delivered.trouble}; `kfm lineage deliver` sends what waits", "warning")
    return True


def notify_hooks(session: CommandSession, app: Any) -> bool:
    """Notify the hooks of incidents that changed. A failing hook is a line, and never an exit code."""
    try:
        rounds = app.deliver_incidents()
    except KfmError as error:
        session.note(f"incidents: {error.message} `kfm incident deliver` sends what waits", "warning")
        return True
    except KeyboardInterrupt:
        return False
    for each in rounds:
        if each.delivered.trouble:
            session.note(
                f"incidents: hook {each.hook}: {each.delivered.trouble}; `kfm incident deliver` tries again",
                "warning",
            )
    return True


def summarise(reports: Sequence[Any]) -> None:
    """Write the step summary and outputs of a GitHub Actions job."""
    from kfm.config.loader import github

    job = github()
    if job is None:
        return
    if job.step_summary:
        rows = [
            f"| {of_report(one.word)} | {one.dataset_id} | {one.source_id} | {one.sequence or '-'} |"
            for one in reports
        ]
        text = "\n".join(("| result | dataset | source | version |", "|---|---|---|---|", *rows, "", ""))
        _append(job.step_summary, text)
    if job.output:
        changed = any(report.word == "published" for report in reports)
        ids = ",".join(report.run.run_id for report in reports if report.run)
        _append(job.output, f"changed={str(changed).lower()}\nrun_ids={ids}\n")


def _append(path: str, text: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        message(f"warning: {as_error(error).message}", "warning")


# --- lines -------------------------------------------------------------------------


class Lineup:
    """Result lines of one invocation, aligned although they are printed one by one."""

    def __init__(self, settings: Any, source_ids: Sequence[str]) -> None:
        datasets = {source_id: settings.source(source_id).dataset for source_id in source_ids}
        shared = Counter(datasets.values())
        self._names = {
            source_id: f"{dataset} from {settings.called(source_id)}" if shared[dataset] > 1 else dataset
            for source_id, dataset in datasets.items()
        }
        self._aligned = len(source_ids) > 1

    def line(self, report: Any) -> str:
        name = self._names[report.source_id]
        window = span(report.window_start_ms, report.window_end_ms) if report.window_end_ms else "-"
        run = f"run {short_id(report.run.run_id)}" if report.run else "no run"
        version = _version(report)
        if self._aligned:
            name = name.ljust(max(map(len, self._names.values())))
            window, version = window.ljust(_WINDOW_CHARS), version.ljust(_VERSION_CHARS)
            run = run.ljust(_RUN_CHARS)
        return "  ".join(
            (of_report(report.word).ljust(9), name, window, version, run, duration(report.duration_ms))
        )


def _version(report: Any) -> str:
    if report.word == "planned":
        return f"on version {report.sequence}" if report.sequence is not None else "no version"
    return f"version {report.sequence}" if report.sequence is not None else "-"


def show_report(session: CommandSession, lineup: Lineup, report: Any) -> None:
    """One source's result, as soon as it is known; then, beside it, what there is to say about it."""
    if session.output == "jsonl":
        session.emit(None, (), rows=[report_document(report)])
    elif session.output == "text":
        line = lineup.line(report)
        if session.colour:
            from kfm.cli.tables import coloured

            line = coloured(line, of_report(report.word))
        session.emit(None, [line, *plan_lines(report)])
    remark(session, report)


def remark(session: CommandSession, report: Any) -> None:
    """Why it ended like this, and the way out: on stderr."""
    from kfm.telemetry.log_records import correlated

    with correlated(**_ids(report)):
        _remark(session, report)


def _ids(report: Any) -> dict[str, Any]:
    """What messages about this result can be found by."""
    ids = {"dataset": report.dataset_id, "source": report.source_id}
    if report.run is None:
        return ids
    from kfm.model.keys import attempt_id

    run_id, attempt = report.run.run_id, report.run.attempts
    try:
        trace_id = attempt_id(run_id, attempt).replace("-", "")
    except KfmError:  # not an id of ours
        trace_id = None
    return {**ids, "run_id": run_id, "attempt": attempt, "trace_id": trace_id}


def _remark(session: CommandSession, report: Any) -> None:
    if report.error is not None:
        session.fail(*failure_lines(report))
        way = report.next_step.line if report.next_step else None
        annotate(report.error, title=f"{report.source_id}: {of_report(report.word)}", way=way)
    elif says_more(report) or session.verbose:
        session.note(f"  {one_line(report.reason)}")
    for projection in report.projections:
        if projection.error and is_put_off(projection.error):
            detail = one_line(projection.error["message"])
            shown = f"put off: {projection.target} is shown later, with `kfm project`: {detail}"
            session.note(shown, "warning")
        elif projection.error:
            error = projection.error
            session.fail(f"error {error['code']}: {error['message']}", f"fix: {error['remedy']}")
    if session.verbose:
        for line in details(report):
            session.note(line)


def is_put_off(error: dict[str, Any]) -> bool:
    """The circuit of the target's provider is open: nothing was called, so nothing has failed now."""
    return bool(error["code"] == CircuitOpen.code)


def says_more(report: Any) -> bool:
    """Does the reason say more than the word does? Not for a first run, nor for a repeated one."""
    if report.outcome == "noop":
        return False
    again = report.run is not None and (report.run.attempts > 1 or report.run.revision > 0)
    return again or report.outcome in ("refused", "busy", "failed") or report.word == "unchanged"


def failure_lines(report: Any) -> list[str]:
    """The error, each failed check on a line of its own, the next step or the way out, where to read on."""
    from kfm.model.gates import check_text, checks_failed

    error, fix = error_lines(report.error)
    ways = [fix]
    if report.next_step:
        ways = [f"next: {one_line(report.next_step.line)}"]
        if report.next_step.code == "correct" and report.error.own_remedy:
            ways.insert(0, fix)  # how this very cause is corrected
    checks = [check_text(check) for check in report.failed_checks]
    if len(checks) > 1 and isinstance(report.error, ContractViolated):
        more = len(checks) - CHECKS_SHOWN_MAX
        shown = [f"  {one_line(check)}" for check in checks[:CHECKS_SHOWN_MAX]]
        rest = [f"  … and {more} more in the event log"] if more > 0 else []
        many = checks_failed(len(checks), report.checks_made)
        lines = [f"error {report.error.code}: {report.error.headline} {many}:", *shown, *rest, *ways]
    else:
        lines = [error, *ways]
    lines += [f"also: {one_line(text)}" for text in further_refusals(report)]
    if report.advice:
        lines.append(f"note: {one_line(report.advice)}")
    if report.artifacts_dir:
        lines.append(f"log: {event_log(report.artifacts_dir)}")
    return lines


def further_refusals(report: Any) -> list[str]:
    """All gates that refused beside the one that is named first: lifting that one alone starts nothing."""
    if not isinstance(report.error, Refused):
        return []
    from kfm.model.gates import cause_and_remedy, gate_sentence
    from kfm.reports.explain.invocations import refused

    return [
        f"gate {gate.gate}: {gate_sentence(*cause_and_remedy(gate))}" for gate in refused(report.gates)[1:]
    ]


def event_log(folder: str) -> str:
    """The path of a run's event log, the shorter of absolute and relative."""
    path = os.path.join(folder, "event_log.jsonl")
    return min(path, os.path.relpath(path), key=len)


def plan_lines(report: Any) -> list[str]:
    if report.plan is None:
        return []
    from kfm.cli.diff import coloured_plan

    return coloured_plan(report.plan)


def details(report: Any) -> list[str]:
    lines = []
    for gate in report.gates:
        detail = "overridden" if gate.overridden else "allowed" if gate.allowed else "refused"
        lines.append(f"  gate {gate.gate}: {detail}: {one_line(gate.reason)}")
    for projection in report.projections:
        if not projection.error:
            lines.append(f"  target {projection.target} shows version {projection.sequence}")
    if report.run is not None:
        lines.append(f"  run {report.run.run_id}, revision {report.run.revision}")
    if report.artifacts_dir:
        lines.append(f"  artifacts in {report.artifacts_dir}")
    return lines


# --- documents ---------------------------------------------------------------------


def report_document(report: Any) -> dict[str, Any]:
    """The JSON shape of one result."""
    from kfm.reports.runs import plan_document

    return {
        "outcome": report.outcome,
        "word": report.word,
        "source_id": report.source_id,
        "dataset_id": report.dataset_id,
        "window_start": instant(report.window_start_ms) if report.window_end_ms else None,
        "window_end": instant(report.window_end_ms) if report.window_end_ms else None,
        "run_id": report.run.run_id if report.run else None,
        "invocation_id": report.invocation_id,
        "reason": report.reason,
        "error": report.error.as_document() if report.error else None,
        "next_step": report.next_step,
        "advice": report.advice,
        "gates": list(report.gates),
        "failed_checks": [
            {"name": check.name, "path": check.path, "detail": check.detail} for check in report.failed_checks
        ],
        "version": report.sequence,
        "version_id": report.version_id,
        "projections": list(report.projections),
        "artifacts": report.artifacts_dir,
        "plan": plan_document(report.plan) if report.plan is not None else None,
        "duration_ms": report.duration_ms,
    }
