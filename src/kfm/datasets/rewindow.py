"""Another window length for a source: planned by reading, frozen by a digest, applied in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfm.datasets.changes import PreparedChange, collections_of, digested, head_of, plan_of
from kfm.model.completeness import rule_of
from kfm.model.dataset_changes import active
from kfm.model.errors import UsageError
from kfm.model.quantities import did_you_mean
from kfm.model.requests import RequestState
from kfm.model.window_rules import (
    WINDOWS_MAX,
    AcrossEdge,
    Rewindow,
    RewindowPreview,
    TooManyWindows,
    WindowSpan,
    is_window,
    merges_windows,
    never_expected,
    preview,
    spans_of,
)
from kfm.model.windows import DAY_MS, NO_WINDOW, window_of

if TYPE_CHECKING:
    from kfm.model.settings import SourceSettings
    from kfm.runs.kernel import Kernel

REQUESTS_MAX = 10_000
LENGTH_MS_MAX = 36_525 * DAY_MS  # a century
WAITING: tuple[RequestState, ...] = ("open", "awaiting-approval")


def plan_rewindow(kernel: Kernel, name: str, length: str) -> PreparedChange:
    """What the new length makes of the windows of a source: what stays, what is replaced, what is asked for
    again."""
    settings = kernel.settings_as_of_now()
    source = settings.source_named(name)
    if source is None:
        known = [each for one in settings.sources for each in one.names]
        raise UsageError(f"There is no source `{name[:80]}`{did_you_mean(name, known)}")
    recorded = kernel.ledger.change_reader().window_rule(source.id)
    old = recorded[0] if recorded is not None else None
    _require_windows(kernel, source, length, old)
    head, shown = head_of(kernel, source.dataset)
    published = spans_of(shown.items(), source)
    found = _previewed(kernel, source, length, old, published)
    found = replace(found, cancels=_waiting(kernel, source, length))
    plan = plan_of(kernel, "rewindow", head, shown, None, source_id=source.id)
    declared = settings.declared(source.dataset)
    assert declared is not None, "a source's dataset is declared"
    return PreparedChange(
        plan=digested(replace(plan, rewindow=found)),
        version=None,
        withdrawal=None,
        collections=collections_of(kernel),
        rights_of=declared,
        rewindow=_rewindow(source, found),
    )


def _require_windows(kernel: Kernel, source: SourceSettings, length: str, old: str | None) -> None:
    settings = kernel.settings_as_of_now()
    if length == NO_WINDOW or (source.window == NO_WINDOW and old is None):
        raise UsageError(
            "A source that has windows and one that has none are two sources.",
            remedy="Declare a source of another id and path, then withdraw what is there: "
            f"`kfm withdraw {settings.called_dataset(source.dataset)} --source {source.id}`.",
        )
    if "/" in length:
        raise UsageError(f"--window takes a length, such as P1D, not `{length[:40]}`.")
    window = window_of(length, source.time_zone, kernel.ledger.now_ms())  # an error says what is wrong
    if window.end_ms - window.start_ms > LENGTH_MS_MAX:
        raise UsageError(
            f"A window of {length[:40]} would last longer than a century.",
            remedy="Choose a shorter length: P1D, P1W, P1M, P1Y.",
        )
    if not merges_windows(source):
        raise UsageError(
            f"The windows of {source.id} replace each other, so it needs no plan.",
            remedy=f"Write `window: {length}` in the configuration.",
        )
    sync = settings.sync_of(source.id)
    if sync is not None:
        raise UsageError(f"{source.id} is published by the sync {sync}: its window is that one's.")
    if old == length:
        raise UsageError(
            f"Windows of {source.id} are {length} long already.",
            remedy=f"Write `window: {length}` in the configuration, where it has another one."
            if source.window != length
            else None,
        )


def _previewed(
    kernel: Kernel, source: SourceSettings, length: str, old: str | None, published: list[WindowSpan]
) -> RewindowPreview:
    try:
        return preview(
            old, length, source.time_zone, published, settled_spans(kernel, source), kernel.ledger.now_ms()
        )
    except AcrossEdge as edge:
        raise UsageError(
            f"The window {edge.window} could not be asked for: {edge.published} is published and lies across "
            "its edge, so readers would lose a part or see it twice.",
            remedy="Go by a length that fits into both, such as P1D: rewindow to that, and to "
            f"{length} once all of {edge.window} is published or dismissed. What lies before `expect.from` "
            "is not asked for.",
        ) from None
    except TooManyWindows:
        raise UsageError(f"The history has more than {WINDOWS_MAX} windows of {length}.") from None


def settled_spans(kernel: Kernel, source: SourceSettings) -> list[WindowSpan]:
    """What is dismissed or withdrawn of a source, or never was expected: nothing is asked for there."""
    settled = kernel.ledger.window_reader().settled(source.id)
    found = [WindowSpan(start_ms=one.start_ms, end_ms=one.end_ms) for one in settled]
    found += never_expected(source)
    for one in active(kernel.ledger.change_reader().withdrawals(source.dataset)):
        if one.source_id in ("", source.id) and one.start_ms is not None and one.end_ms is not None:
            found.append(WindowSpan(start_ms=one.start_ms, end_ms=one.end_ms))
    return found


def _waiting(kernel: Kernel, source: SourceSettings, length: str) -> tuple[str, ...]:
    """Requests for windows of another length that wait: nothing would come of them."""
    found = [
        one
        for state in WAITING
        for one in kernel.ledger.request_reader().requests(
            state=state, source_id=source.id, limit=REQUESTS_MAX
        )
    ]
    return tuple(
        sorted(
            one.request_id
            for one in found
            if not is_window(
                WindowSpan(start_ms=one.window_start_ms, end_ms=one.window_end_ms), length, source.time_zone
            )
        )
    )


def _rewindow(source: SourceSettings, found: RewindowPreview) -> Rewindow:
    before = replace(source, window=found.old or source.window)
    asked = [one.window.start_ms for one in found.asked_again]
    return Rewindow(
        source_id=source.id,
        old=found.old,
        new=found.new,
        time_zone=source.time_zone,
        expected_before=rule_of(before),
        expected_after=rule_of(replace(source, window=found.new)),
        look_from_ms=min(asked, default=None),
        cancels=found.cancels,
    )
