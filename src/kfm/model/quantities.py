"""How counts, sizes and spans of time are written for people: the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from kfm.model.times import is_all_time

SHORT_ID_CHARS = 13
UNIT_ID_CHARS, SHORT_UNIT_ID_CHARS = 34, 22  # the first 13 are a time, which other units have, too
SHORT_TIMED_ID_CHARS = 23  # of an id that begins with the millisecond in which it was made
SIMILAR_MIN = 0.6  # difflib's ratio from which a word counts as a slip of another
KNOWN_SHOWN_MAX = 8


def counted(count: int, word: str) -> str:
    """1 file, 2 files."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def suggest(word: str, words: Iterable[str], similar_min: float = SIMILAR_MIN) -> str | None:
    """The known word that this one is a misspelling of, if there is one."""
    from difflib import get_close_matches  # late: only mistakes need it

    close = get_close_matches(word, list(words), n=1, cutoff=similar_min)
    return close[0] if close else None


def meant(word: str, words: Iterable[str]) -> str | None:
    """The known word that was meant: a misspelling of it, or the same in other case."""
    known = list(words)
    return suggest(word, known) or next((one for one in known if one.casefold() == word.casefold()), None)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`; did you mean …?` where a word is near, else the words that would be right."""
    known = list(words)
    if close := meant(word, known):
        return f"; did you mean `{close}`?"
    shown = 0 < len(known) <= KNOWN_SHOWN_MAX
    return f"; known are {', '.join(f'`{one}`' for one in known)}" if shown else ""


def stopped(text: str) -> str:
    """As a sentence that ends, once."""
    text = text.rstrip()
    return text if text.endswith((".", "!", "?", "…", "`")) else f"{text}."


def readable_size(size: int) -> str:
    """1536 → 1.5 KiB."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if amount < 1023.95 or unit == "TiB":
            break
    return f"{amount:.1f} {unit}"


def moment(at_ms: int) -> str:
    """`2026-01-31 06:00:00 UTC`."""
    try:
        return f"{datetime.fromtimestamp(at_ms // 1000, UTC).isoformat(' ')[:19]} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms after 1970-01-01 00:00:00 UTC"


NO_WINDOW_TEXT = "the snapshot"


def span(start_ms: int, end_ms: int) -> str:
    """`2026-03-14 05:00 … 2026-03-15 05:00 UTC`; the seconds only where they matter."""
    if is_all_time(start_ms, end_ms):
        return NO_WINDOW_TEXT
    start, end = (moment(at_ms).removesuffix(" UTC") for at_ms in (start_ms, end_ms))
    if start.endswith(":00") and end.endswith(":00"):
        start, end = start[:-3], end[:-3]
    return f"{start} … {end} UTC"


def duration(ms: int) -> str:
    """1.5 s, 3 min 20 s, 2 h 5 min."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def instant(at_ms: int | None) -> str | None:
    """RFC 3339 in UTC, to the millisecond: what documents hold."""
    if at_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms after 1970-01-01T00:00:00Z"
    return f"{moment.isoformat()[:19]}.{at_ms % 1000:03d}Z"


def utc(text: str) -> str:
    """An instant of a document, for people: `2026-01-31 06:00:00 UTC`."""
    return f"{text[:19].replace('T', ' ')} UTC"


def between(start: str, end: str) -> str:
    """Two times of a document as a span; the seconds only where they matter."""
    if start.startswith("0001-01-01T00:00:00") and end.startswith("9999-12-31T23:59:59"):
        return NO_WINDOW_TEXT
    cut = 16 if start[16:19] == end[16:19] == ":00" else 19
    return f"{utc(start)[:cut]} … {utc(end)[:cut]} UTC"


def short_id(identifier: str) -> str:
    """Enough of an id to tell it from all others; every command takes it."""
    if len(identifier) == UNIT_ID_CHARS and identifier[13] == "-":
        return identifier[:SHORT_UNIT_ID_CHARS]
    return identifier[: SHORT_TIMED_ID_CHARS if identifier[14:15] == "7" else SHORT_ID_CHARS]


def one_line(text: str) -> str:
    """Text from outside may hold anything; a terminal must not obey it."""
    return "".join(char if char.isprintable() else " " for char in text)


# What a terminal or a page would obey, or not show: controls, turns of direction, joiners, marks, tags.
_UNSEEN = (
    r"[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e0fff]"
)


def visible_json(text: str) -> str:
    """JSON text in which everything that can't be seen is written as an escape; its meaning is the same."""
    if text.isascii() and "\x7f" not in text:
        return text
    import re

    return re.sub(_UNSEEN, lambda found: _escaped(found[0]), text)


def _escaped(char: str) -> str:
    halves = char.encode("utf-16-be").hex()
    return "".join(f"\\u{halves[at : at + 4]}" for at in range(0, len(halves), 4))
