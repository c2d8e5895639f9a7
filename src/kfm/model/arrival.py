"""Arrival: answers that mean that the data has not come yet, and how long it is asked for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kfm.model.errors import DataNotYet, DataOverdue, KfmError
from kfm.model.quantities import moment
from kfm.model.records import Found, Window
from kfm.model.settings import NotYet, SourceSettings
from kfm.model.windows import next_window, parse_duration, shifted, time_of_day

AGAIN_MS_MIN = 5 * 60_000
AGAIN_MS_MAX = 60 * 60_000
AGAIN_SHARE = 4  # asked again after this share of the time that it has been waited for
WORDS: dict[NotYet, str] = {
    "empty": "Upstream has nothing for this window",
    "unchanged": "Upstream still has what the newest published window holds",
}


def not_yet_answer(
    rules: Sequence[NotYet], *, status: int | None, found: Sequence[Found] | None, is_unchanged: bool
) -> NotYet | None:
    """The rule that upstream's answer falls under; None: it is data, or an error.

    `status` is of an answer that was an error; `found`, what was discovered otherwise.
    """
    if found is None:
        return status if status is not None and status in rules else None
    if "empty" in rules and not any(one.size is None or one.size > 0 for one in found):
        return "empty"
    return "unchanged" if "unchanged" in rules and is_unchanged else None


def asked_until_ms(source: SourceSettings, window: Window, latency_ms: int | None) -> int:
    """Until when a window that has not come is asked for: as declared, else until the next one is over or
    its contract wants it (`latency_ms`), whichever is later."""
    rule, zone = source.expect, source.time_zone
    declared = []
    if rule is not None and rule.within is not None:
        declared.append(shifted(window.end_ms, parse_duration(rule.within), zone))
    if rule is not None and rule.by is not None:
        declared.append(time_of_day(rule.by, zone, window.end_ms))
    return (
        max(declared)
        if declared
        else max(next_window(window, zone).end_ms, window.end_ms + (latency_ms or 0))
    )


def asked_again_ms(since_ms: int, now_ms: int, until_ms: int, unit_random: float) -> int:
    """When it is asked for again: the longer it has been waited for, the more slowly; the last time when its
    time is over."""
    waited_ms = max(0, now_ms - since_ms)
    delay_ms = min(max(waited_ms // AGAIN_SHARE, AGAIN_MS_MIN), AGAIN_MS_MAX)
    return min(now_ms + round(delay_ms * (0.75 + unit_random / 2)), until_ms)


def not_yet_error(answer: NotYet, since_ms: int, now_ms: int, until_ms: int, unit_random: float) -> KfmError:
    """What is told of such an answer: it is asked for again, or its time is over."""
    what = WORDS.get(answer, f"Upstream answers {answer}")
    if now_ms >= until_ms:
        return DataOverdue(f"{what}; it was asked for until {moment(until_ms)}.", answer=answer)
    at_ms = asked_again_ms(since_ms, now_ms, until_ms, unit_random)
    return DataNotYet(
        f"{what}; asked again at {moment(at_ms)}, until {moment(until_ms)}.",
        answer=answer,
        not_before_ms=at_ms,
        until_ms=until_ms,
    )
