"""Windows that will never have data: which are meant, and their dismissal in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kfm.datasets.completeness import completeness_of
from kfm.model.completeness import Dismissal, DismissAnswer, WindowVerdict
from kfm.model.errors import Busy, Halted, UsageError, WindowError
from kfm.model.feeds import feed_names
from kfm.model.quantities import NO_WINDOW_TEXT, counted, did_you_mean, moment
from kfm.model.records import Justification, Record, governance_entry
from kfm.model.times import is_all_time, rfc3339
from kfm.model.windows import NO_WINDOW, resolve_window
from kfm.runs.outcome import sweep

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.model.quarantine import QuarantineEntry


class WindowChoice(Record, frozen=True):
    """Windows of a dataset, as a person names them."""

    windows: tuple[str, ...]  # as `kfm run --window` takes them
    source: str | None = None
    product: str | None = None
    platform: str | None = None


class Dismissed(Record, frozen=True):
    """What was settled, or is expected again: each window as it was, and as it is now."""

    before: tuple[WindowVerdict, ...]
    after: tuple[WindowVerdict, ...]
    health: str  # of the dataset now


def dismiss_windows(
    app: App, dataset: str, choice: WindowChoice, by: Justification, *, undo: bool = False
) -> Dismissed:
    """All of the windows or none. With `undo` they are expected again."""
    sweep(app.writer, app.liveness)
    completeness = completeness_of(app)
    rows = rows_of(completeness, dataset, choice.product, choice.platform)
    meant = _meant(app, dataset, choice, rows, completeness.coverage(dataset).windows, undo=undo)
    entry = governance_entry(
        "window-expected-again" if undo else "window-dismissed",
        dataset,
        app.ledger.now_ms(),
        by,
        windows=[f"{one.source_id} {span_text(one)}" for one in meant],
    )
    store, wanted = app.writer.windows(), [_dismissal(one, dataset, by) for one in meant]
    _require_done(store.undismiss(wanted, entry) if undo else store.dismiss(wanted, entry))
    now = completeness_of(app).coverage(dataset)
    chosen = {(one.source_id, one.start_ms, one.end_ms) for one in meant}
    return Dismissed(
        before=tuple(meant),
        after=tuple(one for one in now.windows if (one.source_id, one.start_ms, one.end_ms) in chosen),
        health=now.health.state,
    )


def discard_held(app: App, held: QuarantineEntry, by: Justification) -> Dismissed:
    """Settle the window of a quarantined entry without data: its work is given up for good."""
    if held.state != "held":
        raise UsageError(f"The entry is {held.state}: there is nothing to discard.")
    if held.grain == "request":
        work: Any = app.ledger.request_reader().request(held.subject)
    else:
        work = app.ledger.run(held.subject) if held.grain == "run" else None
    if work is None:
        raise UsageError(
            f"A {held.grain} has no window that could be settled.",
            remedy="A unit comes back by a replay, or stays as it is.",
        )
    all_time = is_all_time(work.window_start_ms, work.window_end_ms)
    span = f"{rfc3339(work.window_start_ms)}/{rfc3339(work.window_end_ms)}"
    choice = WindowChoice(windows=(NO_WINDOW if all_time else span,), source=held.source_id)
    return dismiss_windows(app, require_dataset(app.settings, held.dataset_id), choice, by)


def span_text(one: Any) -> str:
    if is_all_time(one.start_ms, one.end_ms):
        return NO_WINDOW_TEXT
    return f"{moment(one.start_ms)[:16]} … {moment(one.end_ms)[:16]} UTC"


def _dismissal(one: WindowVerdict, dataset: str, by: Justification) -> Dismissal:
    return Dismissal(
        source_id=one.source_id,
        dataset_id=dataset,
        start_ms=one.start_ms,
        end_ms=one.end_ms,
        actor=by.actor,
        rationale=by.rationale or "",
        ticket=by.ticket,
    )


def _meant(
    app: App,
    dataset: str,
    choice: WindowChoice,
    rows: set[str],
    known: Sequence[WindowVerdict],
    *,
    undo: bool,
) -> list[WindowVerdict]:
    """The windows that were named, each once, in order; an error where one names none that can be settled."""
    source_id = choice.source
    sources = [one for one in sources_of(app.settings, dataset) if source_id in (None, *one.names)]
    zones = {one.id: one.time_zone for one in sources}
    if source_id is None:
        zones |= dict.fromkeys(rows, "UTC")
    if not zones:
        raise UsageError(
            f"The dataset {dataset} has no source {source_id or 'of its own'}.",
            remedy=f"`kfm coverage {dataset}` shows its sources.",
        )
    chosen: dict[tuple[str, int, int], WindowVerdict] = {}
    for spec in choice.windows:
        inside = []
        for name, zone in zones.items():
            window = resolve_window(spec, zone, app.ledger.now_ms())
            inside += [
                one
                for one in known
                if one.source_id == name and window.start_ms <= one.start_ms and one.end_ms <= window.end_ms
            ]
        fitting = [
            one for one in inside if (one.state == "dismissed") == undo and (undo or not one.is_settled)
        ]
        if not fitting:
            raise WindowError(
                _none(dataset, spec, inside, undo=undo), remedy=f"`kfm coverage {dataset}` lists them."
            )
        chosen |= {(one.source_id, one.start_ms, one.end_ms): one for one in fitting}
    return [chosen[key] for key in sorted(chosen, key=lambda key: (key[1], key[2], key[0]))]


def _none(dataset: str, spec: str, inside: Sequence[WindowVerdict], *, undo: bool) -> str:
    if not inside:
        return f"No window of {dataset} that is expected, or was asked for, lies in {spec[:64]}."
    states = ", ".join(sorted({one.state for one in inside}))
    wanted = "is dismissed" if undo else "is open"
    return f"Of {counted(len(inside), 'window')} in {spec[:64]} none {wanted}: {states}."


def _require_done(answer: DismissAnswer) -> None:
    if answer.answer in ("dismissed", "undone"):
        return
    assert answer.window is not None
    where = f"{answer.window.source_id} {span_text(answer.window)}"
    if answer.answer == "running":
        raise Busy(
            f"The window {where} is running; nothing was dismissed.", remedy="Try again when it has ended."
        )
    if answer.answer == "halted":
        raise Halted(
            f"The window {where} is halted for review; nothing was dismissed.",
            remedy="`kfm quarantine list` shows what two persons decide about first.",
        )
    raise UsageError(
        f"The window {where} has changed meanwhile; nothing was changed.", remedy="Look again, and repeat."
    )


# --- what a name means --------------------------------------------------------------------


def require_dataset(settings: Any, name: str) -> str:
    """The id of the dataset that goes or went by this name, or of a feed."""
    feeds = feed_names(settings)
    dataset = str(settings.dataset_id(name))
    if settings.declared(dataset) is None and dataset not in feeds:
        known = [*(each for one in settings.datasets for each in one.names), *feeds]
        raise UsageError(
            f"There is no dataset `{dataset[:80]}`{did_you_mean(dataset[:80], known)}",
            remedy="`kfm coverage` lists the datasets.",
        )
    return dataset


def sources_of(settings: Any, dataset: str) -> list[Any]:
    """The sources of a dataset, without those that a sync publishes."""
    members = {member for source in settings.sources for member in source.members}
    return [one for one in settings.sources if one.dataset == dataset and one.id not in members]


def rows_of(completeness: Any, dataset: str, product: str | None, platform: str | None = None) -> set[str]:
    """The rows of a feed that are meant; an error where a product or a platform is named that none has."""
    known = completeness.products(dataset)
    rows = {one.id for one in known if product in (None, one.product) and platform in (None, one.platform)}
    if (product is not None or platform is not None) and not rows:
        raise UsageError(
            _no_row(known, dataset, product, platform),
            remedy=f"`kfm coverage {dataset}` lists them; `ingest.feeds` names them.",
        )
    return rows


def _no_row(known: Sequence[Any], dataset: str, product: str | None, platform: str | None) -> str:
    """Which of the two is expected of nothing: a product, a platform, or both together."""
    products, platforms = {one.product for one in known}, {one.platform or "" for one in known}
    if product is not None and product not in products:
        hint = did_you_mean(product[:80], sorted(products))
        return f"No product `{product[:80]}` is expected of {dataset}{hint}"
    if platform is not None and platform not in platforms:
        hint = did_you_mean(platform[:80], sorted(platforms - {""}))
        return f"Nothing of a platform `{platform[:80]}` is expected of {dataset}{hint}"
    return f"No product `{product}` of `{platform}` is expected of {dataset}."
