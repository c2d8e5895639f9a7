"""Options that name a time in the past: as such, or by how long ago it was."""

from __future__ import annotations

from kfm.core.errors import UsageError

_SPANS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN_CHARS_MAX = 9


def past_ms(text: str, option: str, now_ms: int) -> int:
    """2026-11-01T00:00:00Z, or 30m, 2h, 3d ago."""
    from kfm.core.times import parse_rfc3339

    count, unit = text[:-1], text[-1:]
    if count.isascii() and count.isdigit() and unit in _SPANS_MS and len(text) <= _SPAN_CHARS_MAX:
        return now_ms - int(count) * _SPANS_MS[unit]
    try:
        return parse_rfc3339(text)
    except UsageError:
        raise UsageError(
            f"{option} takes a time such as 2026-11-01T00:00:00Z, or 30m, 2h, 3d ago, not `{text[:40]}`."
        ) from None
