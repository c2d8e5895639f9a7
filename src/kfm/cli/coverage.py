"""`kfm coverage` and `kfm dismiss`: the state of every window; windows that will never have data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import clipped, duration, short_id, table
from kfm.cli.session import CommandSession
from kfm.model.completeness import WINDOW_STATES, WindowVerdict
from kfm.model.errors import UsageError, WindowError
from kfm.model.quantities import moment
from kfm.model.rationales import require_rationale
from kfm.service.dismissals import (
    WindowChoice,
    dismiss_windows,
    require_dataset,
    rows_of,
    sources_of,
    span_text,
)

LINES_MAX = 200  # windows that are listed one by one, the newest; JSON has all


@click.command()
@click.argument("dataset", metavar="[DATASET]", required=False)
@click.option("--from", "start", metavar="TIME", help="Only windows that end after this date or time.")
@click.option("--to", "end", metavar="TIME", help="Only windows that begin before this date or time.")
@click.option(
    "--at", metavar="TIME", help="Only the window of each source that was the last complete one at this time."
)
@click.option(
    "--state",
    "states",
    type=click.Choice(WINDOW_STATES),
    multiple=True,
    help="Only windows in this state; may be repeated.",
)
@click.option("--product", metavar="NAME", help="Of a feed, only this product.")
@session_options
def command(
    session: CommandSession,
    dataset: str | None,
    start: str | None,
    end: str | None,
    at: str | None,
    states: tuple[str, ...],
    product: str | None,
) -> None:
    """Show the state of every expected window of a dataset; without DATASET, how each dataset is.

    Windows are expected by the enabled schedules of a source, or by its `expect`; what was asked for is
    expected, too. Each is published, unchanged, empty (upstream says that there is nothing), running,
    waiting, overdue (past its time, and still asked for), failed, quarantined, refused, missing (past its
    time, and no longer asked for), withdrawn or dismissed.

    The dataset is failing, late, incomplete (older windows are missing under newer data), paused, never
    (nothing is published) or fresh, by all its windows, whatever --from, --to and --state choose. The
    watermark is the end of the last window up to which none is open.

    DATASET may be an announced dataset that `ingest.feeds` names: then each hour of each product is a window,
    published once as many objects are there as are expected. The last 48 hours are shown, and older ones that
    are open; --from and --to show others. Beside them the newest data of each product, how old it is, and how
    long objects took to get here.
    """
    if dataset is None:
        if start or end or at or states or product:
            raise UsageError("--from, --to, --at, --state and --product are about one dataset: name it.")
        _summary(session)
        return
    from kfm.datasets.completeness import completeness_of
    from kfm.reports.coverage import coverage_document

    with session.app(read_only=True) as app:
        dataset = require_dataset(app.settings, dataset)
        now_ms = app.ledger.now_ms()
        start_ms, end_ms = span_of(app, dataset, start, end)
        completeness = completeness_of(app, now_ms)
        rows = rows_of(completeness, dataset, product)
        found = completeness.coverage(dataset, start_ms, end_ms)
        meant: Sequence[WindowVerdict] = found.windows
        if at is not None:
            meant = completeness.windows_at(dataset, instant_of(app, dataset, "--at", at))
    windows = [
        one
        for one in meant
        if (start_ms is None or one.end_ms > start_ms)
        and (end_ms is None or one.start_ms < end_ms)
        and (not states or one.state in states)
        and (product is None or one.source_id in rows)
    ]
    document = coverage_document(found, windows, now_ms, product)
    shown = windows if states else [one for one in windows if one.objects is None or one.state != "published"]
    session.emit(document, _lines(found, windows, shown, product), rows=document["windows"])
    if len(shown) > LINES_MAX and session.output == "text":
        session.note(f"the last {LINES_MAX} windows are listed; --from, --to, --state and --json show others")


def _summary(session: CommandSession) -> None:
    from kfm.datasets.completeness import completeness_of
    from kfm.reports.coverage import cause_text, health_document

    with session.app(read_only=True) as app:
        completeness = completeness_of(app)
        found = [completeness.health(name) for name in completeness.names()]
        called = app.settings.called_dataset
    documents = [{"dataset_id": one.dataset_id, **health_document(one)} for one in found]
    rows = [
        (
            called(one.dataset_id),
            one.state,
            str(one.expected),
            moment(one.watermark_ms)[:16] if one.watermark_ms is not None else "-",
            duration(one.lag_ms) if one.lag_ms else "-",
            clipped("; ".join(map(cause_text, one.causes)), 100),
        )
        for one in found
    ]
    header = ("DATASET", "HEALTH", "WINDOWS", "WATERMARK (UTC)", "LAG", "WHY")
    lines = table(header, rows, spare=("WINDOWS", "LAG")) if rows else ["the configuration has no datasets"]
    session.emit({"datasets": documents}, lines, rows=documents)


def _lines(
    found: Any, windows: Sequence[WindowVerdict], shown: Sequence[WindowVerdict], product: str | None
) -> list[str]:
    from kfm.reports.coverage import calendar, cause_text, feed_picture, objectives_of, why

    health = found.health
    counts = ", ".join(f"{health.counts[state]} {state}" for state in WINDOW_STATES if state in health.counts)
    lines = [f"{health.dataset_id} is {health.state}"]
    lines += [f"  {cause_text(cause)}" for cause in health.causes]
    lines += [f"windows    {counts}" if counts else "windows    none is expected, and none was asked for"]
    if health.watermark_ms is not None:
        lines.append(f"watermark  {moment(health.watermark_ms)}: no window before it is open")
    if health.lag_ms:
        lines.append(f"lag        {duration(health.lag_ms)} past its time")
    lines += [f"due        {name}: {text}" for name, text in objectives_of(found, product).items()]
    lines += _product_lines([one for one in found.products if product in (None, one.product)])
    hours = [one for one in windows if one.objects is not None]
    if hours:
        lines += ["", *feed_picture(hours, health.dataset_id)]
    for source_id in dict.fromkeys(one.source_id for one in windows if one.objects is None):
        lines += ["", f"{source_id}:", *calendar([one for one in windows if one.source_id == source_id])]
    if shown:
        header = ("WINDOW (UTC)", "STATE", "DUE (UTC)", "SOURCE", "RUN OR REQUEST", "WHY")
        rows = [
            (
                span_text(one).removesuffix(" UTC"),
                one.state,
                moment(one.due_ms)[:16],
                one.source_id,
                short_id(one.run_id or one.request_id or "-"),
                clipped(why(one)),
            )
            for one in shown[-LINES_MAX:]
        ]
        lines += ["", *table(header, rows, spare=("DUE (UTC)", "SOURCE"))]
    if found.reconcile:
        lines += ["", "what was not announced may be there; a listing shows it, and --open takes it in:"]
        lines += [f"  {one.command}" for one in found.reconcile]
    return lines


def _product_lines(products: Sequence[Any]) -> list[str]:
    if not products:
        return []
    rows = [
        (
            one.product,
            one.platform or "-",
            moment(one.newest_ms)[:16] if one.newest_ms is not None else "none within a day",
            duration(one.lag_ms) if one.lag_ms is not None else "-",
            duration(one.latency_ms) if one.latency_ms is not None else "-",
        )
        for one in products
    ]
    return ["", *table(("PRODUCT", "PLATFORM", "NEWEST (UTC)", "LAG", "ARRIVES AFTER"), rows)]


# --- selection -------------------------------------------------------------------------


def span_of(
    app: Any, dataset: str | None, start: str | None, end: str | None
) -> tuple[int | None, int | None]:
    """--from and --to in the zone of the dataset's sources, where they have one; else in UTC."""
    start_ms = None if start is None else instant_of(app, dataset, "--from", start)
    end_ms = None if end is None else instant_of(app, dataset, "--to", end)
    if start_ms is not None and end_ms is not None and end_ms <= start_ms:
        raise WindowError("--to is not after --from.")
    return start_ms, end_ms


def instant_of(app: Any, dataset: str | None, option: str, text: str) -> int:
    sources = app.settings.sources if dataset is None else sources_of(app.settings, dataset)
    zones = {source.time_zone for source in sources}
    return instant_in(zones.pop() if len(zones) == 1 else "UTC", option, text)


def instant_in(zone: str, option: str, text: str) -> int:
    """A date or a time that an option was given."""
    from kfm.model.windows import parse_instant

    try:
        return parse_instant(text, zone)
    except WindowError as error:
        raise UsageError(
            f"{option} takes a date or a time: {error.detail}",
            remedy=f"Write it as {option} 2026-01-31 or {option} 2026-01-31T06:00Z.",
        ) from None


# --- dismiss ---------------------------------------------------------------------------


@click.command()
@click.argument("dataset", metavar="DATASET")
@click.argument("windows", metavar="WINDOW...", nargs=-1, required=True)
@click.option("--source", metavar="ID", help="Only of this source, where the dataset has several.")
@click.option("--product", metavar="NAME", help="Of a feed: only this product.")
@click.option("--platform", metavar="NAME", help="Of a feed: only this satellite, site or region.")
@click.option("--undo", is_flag=True, help="Expect these windows again.")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why no data will come. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def dismiss_command(
    session: CommandSession, dataset: str, windows: tuple[str, ...], undo: bool, **options: Any
) -> None:
    """Settle windows that will never have data.

    WINDOW is written as for `kfm run --window`: P1D, 2026-01-01/P1D, START/END. One that spans several
    windows means each of them that has no data. What is quarantined of them is resolved, what waits for them
    is cancelled, and the reason is entered in the audit log; all in one transaction. Should data come after
    all, it counts.

    A window that is running, halted for review, or has data is not dismissed: then nothing is.

    DATASET may be a feed: its windows are the hours of its products, all of them unless --product or
    --platform is given. Units in quarantine stay there.

    Exit code 5: one of them is running. 3: one of them is halted.
    """
    require_rationale(options["rationale"], "A window is dismissed with --rationale TEXT.")
    from kfm.cli.run import notify_hooks
    from kfm.model.records import justified
    from kfm.reports.coverage import window_document

    with session.app() as app:
        said = app.loaded.discretion.said
        by = justified(said, app.actor, options["rationale"], options["ticket"], options["actor"])
        meant = WindowChoice(
            windows=windows,
            source=options["source"],
            product=options["product"],
            platform=options["platform"],
        )
        dataset = require_dataset(app.settings, dataset)
        done = dismiss_windows(app, dataset, meant, by, undo=undo)
        notify_hooks(session, app)
    word = "expected again" if undo else "dismissed"
    documents = [window_document(one) for one in done.after]
    session.emit(
        {"dataset_id": dataset, "undone": undo, "windows": documents},
        [f"{word}  {one.source_id}  {span_text(one)}, {one.state} before" for one in done.before],
        rows=documents,
    )
    session.note(f"{dataset} is {done.health}")
