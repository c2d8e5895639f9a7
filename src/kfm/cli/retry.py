"""`kfm retry`: one more attempt at a failed run, or every automatic attempt that is due."""

from __future__ import annotations

import sys
from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import instant, one_line, short_id, table
from kfm.cli.process import data
from kfm.cli.progress import following, watched_steps
from kfm.cli.run import (
    Lineup,
    asks_in_person,
    exit_code,
    hand_over,
    now_option,
    report_document,
    show_report,
    summarise,
    worst,
)
from kfm.cli.session import CommandSession
from kfm.model.errors import BackendUnavailable, Cancelled, StoreCorrupt, StoreUnsafe, UsageError
from kfm.model.quantities import counted, moment
from kfm.reports.lookup import find_run
from kfm.reports.state_words import of_report

PAUSE_MAX_MS = 30_000  # how long a new failure of another process may go unseen
PAUSE_MIN_MS = 1_000


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--due", is_flag=True, help="Make every automatic attempt whose time has come.")
@click.option("--watch", is_flag=True, help="With --due: go on, waiting for the next ones, until stopped.")
@click.option("--list", "only_list", is_flag=True, help="Show which attempts are ahead; make none.")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@now_option
@click.option("--rationale", metavar="TEXT", help="Why: with --now, and once the budget of RUN is used up.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to; needed with --rationale.")
@session_options
def command(
    session: CommandSession, run_id: str | None, due: bool, watch: bool, only_list: bool, **options: Any
) -> int:
    """Retry a failed run.

    RUN is tried at once: freely within its budget, past it with --rationale and --ticket, which grants it
    a new budget. With --due, every failed run is tried whose next attempt is due: run it from a timer, or
    let it --watch. Several processes may do so; each attempt is made once. Nothing is retried that can't
    get better by it, or whose source is declared `idempotent: false`: `kfm quarantine list` shows that.

    Exit codes: 0 nothing due, or all succeeded · 1 the work failed · 3 it needs reasons or an approval ·
    4 upstream or another backend is unavailable. With --watch: 0 once it is stopped (Ctrl-C, SIGTERM); an
    attempt that is under way ends with it, and is due again later.
    """
    _require_one(run_id, due, watch, only_list, session.output)
    _require_no_person(run_id, options)
    if only_list:
        return _list(session)
    progress = watched_steps(session)
    with session.app(progress=progress) as app:
        if run_id is not None:
            return _one(session, app, run_id, progress, options)
        return _watch(session, app, progress) if watch else _due(session, app, progress)


def _require_one(run_id: str | None, due: bool, watch: bool, only_list: bool, output: str) -> None:
    if watch and not due:
        raise UsageError("--watch goes with --due.")
    wanted = sum((run_id is not None, due, only_list))
    if wanted > 1:
        raise UsageError("A RUN, --due and --list exclude each other.", remedy="Give one of them.")
    if not wanted:
        raise UsageError(
            "Say what to retry: a RUN, or --due for all whose time has come.",
            remedy="`kfm retry --list` shows what is ahead; `kfm runs --status failed` what failed.",
        )
    if watch and output == "json":
        raise UsageError(
            "--watch has no end, so there is no one document for --json.",
            remedy="`-o jsonl` prints a line for each attempt.",
        )


def _require_no_person(run_id: str | None, options: dict[str, Any]) -> None:
    """What would be dropped without a word is refused."""
    given = [f"--{name}" for name, value in options.items() if value not in (None, False)]
    if run_id is None and given:
        raise UsageError(
            f"{', '.join(given)} would be kept nowhere: automatic attempts have no person.",
            remedy="Give the RUN that it is about.",
        )


def _one(session: CommandSession, app: Any, wanted: str, progress: Any, options: dict[str, Any]) -> int:
    from kfm.runs.retry import retry_run

    run = find_run(app.ledger, wanted)
    if run.status == "success":
        session.note(f"run {short_id(run.run_id)} has succeeded: there is nothing to retry")
        session.emit({"results": [], "passed": [], "waiting": [], "exit_code": 0}, ())
        return 0
    state = app.ledger.retry_state(run.run_id)
    if state is not None and state.fate == "retry" and (state.not_before_ms or 0) > app.ledger.now_ms():
        session.note(
            f"  earlier than planned: its next automatic attempt is due at {moment(state.not_before_ms)}"
        )
    by_person = asks_in_person(session, options["now"], options["rationale"])
    with following(progress) as over:
        report = retry_run(
            app,
            run,
            actor=app.actor,
            by_person=by_person,
            claimed_actor=options["actor"],
            rationale=options["rationale"],
            ticket=options["ticket"],
        )
        over()
    show_report(session, Lineup(app.settings, [run.source_id]), report)
    return _finish(session, app, [report], [])


def _due(session: CommandSession, app: Any, progress: Any) -> int:
    """One round: retry every run that is due."""
    reports, passed = _pass(session, app, progress)
    if not reports and not passed:
        _say_next(session, app)
    return _finish(session, app, reports, passed)


def _watch(session: CommandSession, app: Any, progress: Any) -> int:
    """Round after round, until a signal: that is its usual end, so it is no failure."""
    try:
        for turn in range(sys.maxsize):
            app.clock.sleep_ms(_turn(session, app, progress, is_first=turn == 0))
    except KeyboardInterrupt:
        session.note("stopped watching")
    return 0


def _turn(session: CommandSession, app: Any, progress: Any, *, is_first: bool) -> int:
    """One round, and how long to wait for the next. A ledger that is unavailable is waited for."""
    try:
        reports, passed = _pass(session, app, progress)
        if not hand_over(session, app, reports):
            raise KeyboardInterrupt
        if is_first and not reports and not passed:
            _say_next(session, app)
        data().flush()  # nothing else does, as long as it goes on
        return _pause_ms(app)
    except BackendUnavailable as error:
        if isinstance(error, StoreCorrupt | StoreUnsafe):  # waiting does not help
            raise
        session.note(f"{error.message} Watching goes on in {PAUSE_MAX_MS // 1000} s", "warning")
        return PAUSE_MAX_MS


def _pass(session: CommandSession, app: Any, progress: Any) -> tuple[list[Any], list[Any]]:
    """Work off every promised attempt that is due: the reports of those that were made, and the others."""
    reports: list[Any] = []
    passed: list[Any] = []

    def report(request: Any, one: Any) -> None:
        over()
        if one.decision is None and one.outcome != "busy":
            reports.append(one)
            show_report(session, Lineup(app.settings, [one.source_id]), one)
            if isinstance(one.error, Cancelled):
                raise KeyboardInterrupt
        else:
            passed.append(passed_document(request, one))
            session.note(
                f"{of_report(one.word)}: run {short_id(request.run_id or '')} of {one.dataset_id}: "
                f"{one_line(one.reason)}"
            )

    with following(progress) as over:
        app.dispatch_due("retries", on_report=report)
    return reports, passed


def passed_document(request: Any, report: Any) -> dict[str, Any]:
    """A promised attempt that was not made now."""
    return {
        "run_id": request.run_id,
        "request_id": request.request_id,
        "source_id": report.source_id,
        "dataset_id": report.dataset_id,
        "word": report.word,
        "reason": report.reason,
    }


def _pause_ms(app: Any) -> int:
    from kfm.runs.retry import waiting

    ahead = waiting(app, 1)
    left_ms = (ahead[0].state.not_before_ms or 0) - app.ledger.now_ms() if ahead else PAUSE_MAX_MS
    return min(max(left_ms, PAUSE_MIN_MS), PAUSE_MAX_MS)


def _say_next(session: CommandSession, app: Any) -> None:
    from kfm.runs.retry import waiting

    ahead = waiting(app)
    if not ahead:
        session.note("nothing is due, and nothing is ahead")
        return
    first = moment(ahead[0].state.not_before_ms or 0)
    session.note(f"nothing is due; {counted(len(ahead), 'run')} ahead, the first at {first}")


def _finish(session: CommandSession, app: Any, reports: list[Any], passed: list[Any]) -> int:
    code = worst([exit_code(report) for report in reports])
    if session.output == "json":
        from kfm.runs.retry import waiting

        document = {
            "results": [report_document(report) for report in reports],
            "passed": list(passed),
            "waiting": [waiting_document(one) for one in waiting(app)],
            "exit_code": code,
        }
        session.emit(document, ())
    summarise(reports)
    hand_over(session, app, reports)
    return code


# --- what is ahead -----------------------------------------------------------------------


def _list(session: CommandSession) -> int:
    from kfm.runs.retry import waiting

    with session.app(read_only=True) as app:
        ahead = waiting(app)
    documents = [waiting_document(one) for one in ahead]
    rows = [
        (
            moment(one.state.not_before_ms or 0).removesuffix(" UTC"),
            one.run.dataset_id,
            one.run.source_id,
            str(one.run.attempts),
            one.state.error_class,
            short_id(one.run.run_id),
        )
        for one in ahead
    ]
    header = ("DUE (UTC)", "DATASET", "SOURCE", "TRIED", "ERROR CLASS", "RUN ID")
    lines = table(header, rows) if rows else ["no automatic attempt is ahead"]
    session.emit({"results": [], "passed": [], "waiting": documents, "exit_code": 0}, lines, rows=documents)
    return 0


def waiting_document(waiting: Any) -> dict[str, Any]:
    state, run = waiting.state, waiting.run
    return {
        "run_id": run.run_id,
        "source_id": run.source_id,
        "dataset_id": run.dataset_id,
        "attempts": run.attempts,
        "grants": state.grants,
        "grant_attempts": state.grant_attempts,
        "not_before": instant(state.not_before_ms),
        "error_class": state.error_class,
        "reason": state.reason,
    }
