"""Which work a call of `run` or `diff` is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from kfm.core.errors import PlanError, UsageError, WindowError

_SELECTION = (
    click.option(
        "--source", "sources", multiple=True, metavar="ID", help="Only this source; may be repeated."
    ),
    click.option(
        "--window", metavar="SPEC", help="P1D, PT6H, 2026-01-01/P1D or START/END; else the source's own."
    ),
    click.option("--correction", metavar="ID", help="Redo the window as this correction: opens a revision."),
    click.option("--artifacts", metavar="DIR", help="Where the run's artifacts go."),
    click.option(
        "--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this."
    ),
    click.option("--rationale", metavar="TEXT", help="Why; kept in the governance ledger."),
    click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
)


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What `run` and `diff` are about, said in the same words."""
    for option in reversed(_SELECTION):
        function = option(function)
    return function


def make_requests(app: Any, **wish: Any) -> list[Any]:
    """One request for each chosen source. What can't be asked of one of them is asked of none."""
    from kfm.engine.requests import RunRequest

    settings, sources, window = app.settings, wish["sources"], wish["window"]
    if wish.get("plan"):
        sources, window = planned(wish["plan"], sources, window)
    chosen = choose(settings, sources)
    if window is not None:
        require_window(window, [settings.source(source_id) for source_id in chosen], app.clock.now_ms())
    folder = wish["artifacts"]
    return [
        RunRequest(
            source_id=source_id,
            window_spec=window,
            dry_run=wish.get("dry_run", False),
            force=wish.get("force", False),
            correction=wish["correction"],
            # Several sources must not write over each other's artifacts.
            artifacts_dir=f"{folder}/{source_id}" if folder and len(chosen) > 1 else folder,
            actor=app.actor,
            claimed_actor=wish["actor"],
            rationale=wish["rationale"],
            ticket=wish["ticket"],
            plan_path=wish.get("plan"),
        )
        for source_id in chosen
    ]


def choose(settings: Any, wanted: Sequence[str]) -> list[str]:
    """The sources to run. Members of a sync run through it, unless they are named."""
    known = [source.id for source in settings.sources]
    if not known:
        raise UsageError("The configuration has no sources.", remedy="Add one under `sources:`.")
    for source_id in wanted:
        if source_id not in known:
            from kfm.configuration.shape import nearest

            raise UsageError(
                f"There is no source `{source_id}`{nearest(source_id, known)}",
                remedy=f"The configuration has: {', '.join(known[:10])}{', …' if len(known) > 10 else ''}.",
            )
    members = {member for source in settings.sources for member in source.members}
    return list(dict.fromkeys(wanted)) or [source_id for source_id in known if source_id not in members]


def planned(path: str, sources: Sequence[str], window: str | None) -> tuple[tuple[str, ...], str]:
    """What a plan file is about."""
    from kfm.core.times import rfc3339
    from kfm.publish import plan

    try:
        with open(path, "rb") as file:
            header = plan.read(file.read(plan.PLAN_BYTES_MAX + 1)).header
    except OSError as error:
        raise PlanError(f"{path} can't be read: {(error.strerror or str(error)).lower()}.") from None
    if window is not None or tuple(sources) not in ((), (header.source_id,)):
        raise UsageError(
            f"The plan is about source {header.source_id}; --source and --window can't change that.",
            remedy="Leave them out, or make a new plan with `kfm diff --plan FILE`.",
        )
    spec = f"{rfc3339(header.window.start_ms)}/{rfc3339(header.window.end_ms)}"
    return (header.source_id,), spec


# --- windows -------------------------------------------------------------------------


def require_window(spec: str, sources: Sequence[Any], now_ms: int) -> None:
    """Refuse a window that no source could be run for, before any is."""
    from kfm.core.windows import resolve_window
    from kfm.core.wording import moment

    for source in sources:
        try:
            window = resolve_window(spec, source.time_zone, now_ms)
        except WindowError as error:
            raise WindowError(error.detail, remedy=_meant(spec)) from None
        if window.start_ms > now_ms:
            raise WindowError(
                f"{spec} begins in the future, at {moment(window.start_ms)}: nothing is there yet.",
                remedy="Choose a window that has begun; P1D is the last complete day.",
            )


def _meant(spec: str) -> str | None:
    """The right form of a window that was written in another; None if there is no telling."""
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
        return f"A length is written as --window P{time}{length[1]}{length[2].upper()}."
    return None
