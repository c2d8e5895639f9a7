"""How the results of `run` and `diff` are told: lines for people, documents for programs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from kfm.cli.failures import annotate, error_lines
from kfm.cli.output import duration, instant, one_line, short_id
from kfm.cli.session import Session
from kfm.core.errors import CircuitOpen, KfmError
from kfm.core.wording import span

# With several sources the worst ending decides, in this order: something is wrong with us, with a
# backend, with permission, with the work; then only busy; then fine.
WORST_FIRST = (130, 2, 4, 3, 1, 5, 0)
CHECKS_SHOWN_MAX = 10
COLOURS = {
    "published": "green",
    "unchanged": "green",
    "planned": "cyan",
    "blocked": "yellow",
    "busy": "yellow",
    "failed": "red",
}
_WINDOW_CHARS, _VERSION_CHARS, _RUN_CHARS = 39, 12, 17


def exit_code(report: Any) -> int:
    if report.error is not None:
        return int(report.error.exit_code)
    if any(projection.error and not is_put_off(projection.error) for projection in report.projections):
        return 4
    return {"failed": 1, "refused": 3, "busy": 5}.get(report.outcome, 0)


def worst(codes: Sequence[int]) -> int:
    return min(codes, key=WORST_FIRST.index, default=0)


# --- for people ----------------------------------------------------------------------


class Lineup:
    """Result lines of one call. They are printed one by one, and still stand in columns."""

    def __init__(self, settings: Any, source_ids: Sequence[str]) -> None:
        datasets = {source_id: settings.source(source_id).dataset for source_id in source_ids}
        shared = Counter(datasets.values())
        self._names = {
            source_id: f"{dataset} from {source_id}" if shared[dataset] > 1 else dataset
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
        return "  ".join((report.word.ljust(9), name, window, version, run, duration(report.duration_ms)))


def _version(report: Any) -> str:
    if report.word == "planned":
        return f"on version {report.sequence}" if report.sequence is not None else "no version"
    return f"version {report.sequence}" if report.sequence is not None else "-"


def tell(session: Session, lineup: Lineup, report: Any) -> None:
    """One source's result, as soon as it is known; then, beside it, what there is to say about it."""
    if session.output == "jsonl":
        session.emit(None, (), rows=[report_document(report)])
    elif session.output == "text":
        line = click.style(lineup.line(report), fg=COLOURS.get(report.word))
        session.emit(None, [line, *plan_lines(report)])
    remark(session, report)


def remark(session: Session, report: Any) -> None:
    """Why it ended like this, and the way out: on stderr."""
    from kfm.telemetry.correlation import saying

    with saying(**_ids(report)):
        _remark(session, report)


def _ids(report: Any) -> dict[str, Any]:
    """What messages about this result can be found by."""
    ids = {"dataset": report.dataset_id, "source": report.source_id}
    if report.run is None:
        return ids
    from kfm.core.keys import attempt_id

    run_id, attempt = report.run.run_id, report.run.attempts
    try:
        trace_id = attempt_id(run_id, attempt).replace("-", "")
    except KfmError:  # not an id of ours
        trace_id = None
    return {**ids, "run_id": run_id, "attempt": attempt, "trace_id": trace_id}


def _remark(session: Session, report: Any) -> None:
    if report.error is not None:
        for line in failure_lines(report):
            session.note(line)
        annotate(report.error, title=f"{report.source_id}: {report.word}")
    elif says_more(report) or session.verbose:
        session.note(f"  {one_line(report.reason)}")
    for projection in report.projections:
        if projection.error and is_put_off(projection.error):
            said = one_line(projection.error["message"])
            session.note(f"put off: {projection.target} is shown later, with `kfm project`: {said}")
        elif projection.error:
            session.note(f"error {projection.error['code']}: {projection.error['message']}")
            session.note(f"fix: {projection.error['remedy']}")
    if session.verbose:
        for line in details(report):
            session.note(line)


def is_put_off(error: dict[str, Any]) -> bool:
    """Nobody was called, because the target's provider is left alone: nothing has failed now."""
    return bool(error["code"] == CircuitOpen.code)


def says_more(report: Any) -> bool:
    """Does the reason say more than the word does? Not for a first run, nor for a repeated one."""
    if report.outcome == "noop":
        return False
    again = report.run is not None and (report.run.attempts > 1 or report.run.revision > 0)
    return again or report.outcome in ("refused", "busy", "failed") or report.word == "unchanged"


def failure_lines(report: Any) -> list[str]:
    """The error, each failed check on a line of its own, the way out, and where to read on."""
    from kfm.core.gates import FIRST_CHECK, check_text

    told, fix = error_lines(report.error)
    checks = [check_text(check) for check in report.failed_checks]
    if len(checks) > 1 and FIRST_CHECK in told:
        more = len(checks) - CHECKS_SHOWN_MAX
        shown = [f"  {one_line(check)}" for check in checks[:CHECKS_SHOWN_MAX]]
        rest = [f"  … and {more} more in the event log"] if more > 0 else []
        lines = [f"{told.partition(FIRST_CHECK)[0]}:", *shown, *rest, fix]
    else:
        lines = [told, fix]
    if report.advice:
        lines.append(f"note: {one_line(report.advice)}")
    if report.artifacts_dir:
        lines.append(f"log: {event_log(report.artifacts_dir)}")
    return lines


def event_log(folder: str) -> str:
    """The path of a run's event log, as short as it can be said from here."""
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
        said = "overridden" if gate.overridden else "allowed" if gate.allowed else "refused"
        lines.append(f"  gate {gate.gate}: {said}: {one_line(gate.reason)}")
    for projection in report.projections:
        if not projection.error:
            lines.append(f"  target {projection.target} shows version {projection.sequence}")
    if report.run is not None:
        lines.append(f"  run {report.run.run_id}, revision {report.run.revision}")
    if report.artifacts_dir:
        lines.append(f"  artifacts in {report.artifacts_dir}")
    return lines


# --- for programs --------------------------------------------------------------------


def report_document(report: Any) -> dict[str, Any]:
    """The JSON shape of one result."""
    from kfm.documents.plans import plan_document

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
