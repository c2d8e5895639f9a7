"""`kfm run --missing`: the frozen list of windows without data, then requests for all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kfm.cli.coverage import span_of
from kfm.cli.output import clipped, table
from kfm.cli.session import CommandSession
from kfm.model.approvals import GATE as APPROVAL
from kfm.model.completeness import ASKED_FOR
from kfm.model.errors import NotPublishedTogether, UsageError
from kfm.model.quantities import counted, span
from kfm.reports.runs import plan_document, word_of_request
from kfm.reports.state_words import of_report

STATES = (*ASKED_FOR, "empty")
LISTED_MAX = 200
Slot = tuple[str, int, int]  # a window of a source


def run_missing(session: CommandSession, options: dict[str, Any], *, by_person: bool) -> int:
    """Show the list; with --yes, --digest or a person's yes, ask for all of it and work it off."""
    for name, option in (("window", "--window"), ("plan", "--plan"), ("correction", "--correction")):
        if options.get(name):
            raise UsageError(f"--missing chooses windows by itself: leave {option} out.")
    if options["leave_out_failed"] and not options["together"]:
        raise UsageError("--leave-out-failed goes with --together.")
    from kfm.service.missing_windows import ask_for_missing, plan_missing, require_same, take_up

    with session.app(read_only=bool(options["dry_run"])) as app:
        named = _named(app, options)
        sources = tuple({source_id: None for source_id, _ in named}) if named else options["sources"]
        chosen = _chosen(app, options["dataset"], sources)
        if options["together"]:
            _require_one(app, chosen)
        bounds = span_of(app, options["dataset"], options["start"], options["end"])
        states = options["states"] or ASKED_FOR
        plan = plan_missing(app, chosen, states, *bounds, named)
        if options["digest"]:
            require_same(plan, options["digest"])
        _show(session, plan, states)
        if options["together"] and options["dry_run"] and plan.windows:
            return _previewed(session, app, plan, options)
        if options["dry_run"] or not plan.windows or not _wanted(session, plan, options["digest"]):
            return _ended(session, plan, [], [], 0)
        require_same(plan_missing(app, chosen, states, *bounds, named), plan.digest)
        said = {
            "rationale": options["rationale"],
            "ticket": options["ticket"],
            "claimed_actor": options["actor"],
        }
        if options["together"]:
            return _run_together(session, app, plan, options, by_person=by_person or session.yes)
        asked = ask_for_missing(app, plan, **said, by_person=by_person or session.yes)
        if asked:
            session.note(
                f"{counted(len(asked), 'window')} asked for; the requests are kept: `kfm requests list`"
            )
        taken = take_up(app, plan)
        if taken:
            session.note(f"{counted(len(taken), 'request')} that waited taken up")
        return _worked_off(session, app, plan, [*asked, *taken], said)


def _named(app: Any, options: dict[str, Any]) -> set[tuple[str, int]] | None:
    """The windows of --cell."""
    if not options["cells"]:
        return None
    if options["dataset"] or options["sources"]:
        raise UsageError("Cells name their sources: leave DATASET and --source out.")
    from kfm.model.plan_cells import WindowCell, parse_cells

    cells = parse_cells(",".join(options["cells"]))
    if not all(isinstance(one, WindowCell) for one in cells):
        raise UsageError("--cell takes window:SOURCE@START here.")
    found = [one for one in cells if isinstance(one, WindowCell)]
    return {(app.settings.source_id(one.source_id) or one.source_id, one.start_ms) for one in found}


def _chosen(app: Any, dataset: str | None, sources: Sequence[str]) -> list[str]:
    from kfm.service.source_choice import choose, sources_feeding

    if dataset is None:
        return choose(app.settings, sources)
    return list(sources_feeding(app.settings, dataset, sources))


def _require_one(app: Any, chosen: Sequence[str]) -> None:
    """UsageError unless the windows are of one source, and can be published together."""
    from kfm.runs.together import require_fit

    if len(chosen) != 1:
        raise UsageError(
            f"--together is for the windows of one source, and these are {len(chosen)}: "
            f"{', '.join(chosen[:5])}{', …' if len(chosen) > 5 else ''}.",
            remedy="Name one: `kfm run --missing --together --source ID`.",
        )
    require_fit(app.settings.source(chosen[0]))


def _together(app: Any, plan: Any, options: dict[str, Any], *, by_person: bool) -> tuple[list[Any], Any]:
    """What the windows of a list are about, and how they are asked for."""
    from kfm.model.times import rfc3339
    from kfm.runs.kernel import RunRequest
    from kfm.runs.subjects import Start

    subjects = [
        app.subject(
            RunRequest(
                source_id=one.source_id,
                window_spec=f"{rfc3339(one.start_ms)}/{rfc3339(one.end_ms)}",
                actor=app.actor,
                claimed_actor=options["actor"],
                rationale=options["rationale"],
                ticket=options["ticket"],
            )
        )
        for one in plan.windows
    ]
    folder, leaves_out = options["artifacts"], options["leave_out_failed"]
    return subjects, Start(by_person=by_person, artifacts_dir=folder, leaves_out=leaves_out)


def _previewed(session: CommandSession, app: Any, plan: Any, options: dict[str, Any]) -> int:
    """One diff for all windows."""
    from kfm.cli.diff import coloured_plan
    from kfm.cli.run import exit_code, remark, worst
    from kfm.runs.together import preview_together

    subjects, start = _together(app, plan, options, by_person=True)
    reports, diff = preview_together(app.kernel, subjects, start)
    for report in reports:
        if report.error is not None:
            session.note(_line(report))
            remark(session, report)
    if session.output == "text":
        session.emit(None, coloured_plan(diff) if diff is not None else ["nothing would be published"])
    _tell_approvals(session, reports)
    code = worst([exit_code(report) for report in reports])
    return _ended(session, plan, [], [], code, reports=reports, diff=diff)


def _run_together(
    session: CommandSession, app: Any, plan: Any, options: dict[str, Any], *, by_person: bool
) -> int:
    """Publish the windows of a list in one promotion."""
    from kfm.cli.run import exit_code, hand_over, remark, summarise, worst
    from kfm.runs.together import TogetherExecutor
    from kfm.service.missing_windows import tell_together
    from kfm.service.overdue import mark_overdue

    told: list[Any] = []
    remarked: set[str] = set()

    def tell(report: Any) -> None:
        told.append(report)
        session.note(f"{len(told)}/{len(subjects)}  {_line(report)}")
        error = report.error
        if error is None or isinstance(error, NotPublishedTogether) or error.message in remarked:
            return  # once for what has ended all of them
        remarked.add(error.message)
        remark(session, report)

    subjects, start = _together(app, plan, options, by_person=by_person)
    tell_together(
        app,
        plan,
        rationale=options["rationale"],
        ticket=options["ticket"],
        claimed_actor=options["actor"],
    )
    reports = TogetherExecutor(app.kernel, subjects, start, tell).run()
    if left := len(subjects) - len(reports):
        session.note(f"{counted(left, 'other window')} not begun: all are published together, or none is")
    _tell_approvals(session, reports)
    published = [one for one in reports if one.word == "published"]
    if published:
        number = published[0].sequence
        session.note(f"{counted(len(published), 'window')} published together, as version {number}")
    _tell_states(session, app, {(one.source_id, one.start_ms, one.end_ms) for one in plan.windows})
    code = _ended(session, plan, [], [], worst([exit_code(one) for one in reports]), reports=reports)
    mark_overdue(app)
    summarise(reports)
    hand_over(session, app, reports)
    return code


def _tell_approvals(session: CommandSession, reports: Sequence[Any]) -> None:
    """There is no approval of all windows as one."""
    waiting = [
        one for one in reports if any(not each.allowed and each.gate == APPROVAL for each in one.gates)
    ]
    if waiting:
        source_id = waiting[0].source_id
        session.note(
            "each window needs an approval of its own, also with --together, or the source a standing one: "
            f"`kfm approvals stand {source_id} --until DATE --rationale TEXT`"
        )


def _line(report: Any) -> str:
    window = span(report.window_start_ms, report.window_end_ms)
    return f"{of_report(report.word)}  {report.source_id}  {window}  {clipped(report.reason)}".rstrip()


def _wanted(session: CommandSession, plan: Any, digest: str | None) -> bool:
    if digest or session.yes:
        return True
    if not session.at_terminal:
        session.note(f"nothing was asked for: repeat it with --yes, or with --digest {plan.digest}")
        return False
    return session.confirm(f"Ask for {counted(len(plan.windows), 'window')}?")


def _show(session: CommandSession, plan: Any, states: Sequence[str]) -> None:
    """The list on stderr where the result is JSON, else on stdout."""
    if session.output != "text":
        return
    rows = [
        (
            span(one.start_ms, one.end_ms).removesuffix(" UTC"),
            one.source_id,
            one.state,
            clipped(one.reason or one.why),
        )
        for one in plan.windows[:LISTED_MAX]
    ]
    lines = table(("WINDOW (UTC)", "SOURCE", "STATE", "WHY"), rows) if rows else [_none(plan, states)]
    if len(plan.windows) > LISTED_MAX:
        lines.append(f"… and {len(plan.windows) - LISTED_MAX} more")
    lines += [
        f"skipped  {one.source_id}  {span(one.start_ms, one.end_ms)}: {one.reason}"
        for one in plan.skipped[:LISTED_MAX]
    ]
    lines += [f"blocked  {one.sentence}: `{one.command}`" for one in plan.blockers]
    if plan.windows:
        held = sum(one.held_id is not None for one in plan.windows)
        needs = f", {held} of them with a second person unless upstream has changed" if held else ""
        lines += ["", f"{counted(len(plan.windows), 'window')}{needs}; list {plan.digest}"]
    session.emit(None, lines)


def _none(plan: Any, states: Sequence[str]) -> str:
    if tuple(states) != ASKED_FOR:
        return f"no window is {' or '.join(states)}"
    return "no window is missing" if not plan.skipped else "nothing to ask for: what is open is under way"


def _worked_off(
    session: CommandSession, app: Any, plan: Any, asked: Sequence[Any], said: dict[str, Any]
) -> int:
    from kfm.cli.run import hand_over, worst
    from kfm.service.overdue import mark_overdue
    from kfm.service.scheduler import work_off

    codes: list[int] = []
    ended: dict[str, Any] = {}

    def told(request: Any, in_vain: bool) -> None:
        ended[request.request_id] = request
        codes.append(1 if in_vain else {"failed": 1, "refused": 3}.get(request.outcome or "", 0))
        word = word_of_request(app.ledger, request)
        window = span(request.window_start_ms, request.window_end_ms)
        place = f"{len(ended)}/{len(asked)}"
        session.note(
            f"{place}  {word}  {request.source_id}  {window}  {clipped(request.reason or '')}".rstrip()
        )

    if asked:
        work_off(app, list(asked), told)
    approvals = _released(session, app, plan, ended.values(), said)
    now = [ended.get(one.request_id, one) for one in asked]
    _tell_states(session, app, {_slot(one) for one in asked})
    code = _ended(session, plan, now, approvals, worst(codes))
    mark_overdue(app)
    hand_over(session, app, ())
    return code


def _released(
    session: CommandSession, app: Any, plan: Any, ended: Iterable[Any], said: dict[str, Any]
) -> list[Any]:
    """Ask a second person about what is still quarantined: upstream was found unchanged."""
    from kfm.service.missing_windows import ask_for_releases

    refused = {
        (one.source_id, one.window_start_ms, one.window_end_ms) for one in ended if one.outcome == "refused"
    }
    held = [
        one
        for one in plan.windows
        if one.held_id is not None and (one.source_id, one.start_ms, one.end_ms) in refused
    ]
    for one in held:
        window = span(one.start_ms, one.end_ms)
        session.note(f"needs a second person  {one.source_id}  {window}: {one.reason}")
    approvals = ask_for_releases(app, held, **said)
    for one in approvals:
        session.note(f"requested  {one.request_id}: another person has to approve it")
    if held and not said["rationale"]:
        session.note("with --rationale TEXT their releases are requested")
    return approvals


def _tell_states(session: CommandSession, app: Any, wanted: Collection[Slot]) -> None:
    """What became of the windows: a run that found nothing has filled none."""
    from kfm.datasets.completeness import completeness_of

    completeness = completeness_of(app)
    counts: dict[str, int] = {}
    for source_id in dict.fromkeys(source_id for source_id, _, _ in wanted):
        for one in completeness.verdicts(app.settings.source(source_id)):
            if (one.source_id, one.start_ms, one.end_ms) in wanted:
                counts[one.state] = counts.get(one.state, 0) + 1
    if counts:
        session.note("now " + ", ".join(f"{count} {state}" for state, count in counts.items()))


def _slot(one: Any) -> Slot:
    return (one.source_id, one.window_start_ms, one.window_end_ms)


def _ended(
    session: CommandSession,
    plan: Any,
    asked: Sequence[Any],
    approvals: Sequence[Any],
    code: int,
    *,
    reports: Sequence[Any] = (),
    diff: Any = None,
) -> int:
    """The document of all of it. `reports`, `diff`: of windows that are published together."""
    if session.output != "text":
        from kfm.reports.window_plans import missing_document

        document = missing_document(plan, asked, reports, diff=diff)
        document["approvals"] = [one.request_id for one in approvals]
        document["exit_code"] = code
        if diff is not None:
            document["plan"] = plan_document(diff)
        session.emit(document, (), rows=document["windows"])
    return code
