"""Messages as JSON: one object a line, whatever a message holds, with the ids of the run under way."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from kfm.cli.output import instant
from kfm.cli.streams import clean
from kfm.model.records import Record
from kfm.telemetry import correlation

FORMATS = ("text", "json")
MESSAGE_CHARS_MAX = 16_384
PENDING_CHARS_MAX = 4 * MESSAGE_CHARS_MAX


class LogLine(Record, frozen=True, omit_defaults=True):
    """One line of stderr with `--log-format json`."""

    time: str  # RFC 3339, UTC
    level: Literal["info", "warning", "error"]
    message: str
    run_id: str | None = None
    attempt: int | None = None
    trace_id: str | None = None
    dataset: str | None = None
    source: str | None = None
    phase: str | None = None


def wanted_log_format(arguments: Sequence[str], environment: str | None) -> str:
    """Read before the arguments are parsed: an error in them has a form, too."""
    found = environment or "text"
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == "--log-format" and index + 1 < len(arguments):
            found = arguments[index + 1]
        elif argument.startswith("--log-format="):
            found = argument.partition("=")[2]
    return found if found in FORMATS else "text"


class JsonLog:
    """Turns what is written to a stream into lines. A message ends where a write ends with a line feed."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._pending: dict[int, str] = {}  # of each thread: they may write at the same time

    def __call__(self, text: str) -> str:
        with self._lock:
            me = threading.get_ident()
            whole = self._pending.pop(me, "") + text
            if not whole.endswith("\n") and len(whole) < PENDING_CHARS_MAX:
                self._pending[me] = whole
                return ""
        return self._line(whole)

    def rest(self) -> str:
        """What was begun and never ended."""
        with self._lock:
            left = list(self._pending.values())
            self._pending.clear()
        return "".join(self._line(text) for text in left)

    def _line(self, text: str) -> str:
        message = _bounded(clean(text)).strip()
        if not message:
            return ""
        about = correlation.current()
        level = about.level if about.level in ("info", "warning", "error") else level_of(message)
        line = LogLine(
            time=instant(self._now_ms()) or "",
            level=level,  # type: ignore[arg-type]
            message=message,
            run_id=about.run_id,
            attempt=about.attempt,
            trace_id=about.trace_id,
            dataset=_text(about.dataset),
            source=_text(about.source),
            phase=about.phase,
        )
        # ASCII: no terminal's encoding can fail it, and no reader sees a line break that is none.
        return json.dumps(msgspec.to_builtins(line)) + "\n"


def level_of(message: str) -> str:
    """By the words with which our messages begin."""
    first = message.partition(" ")[0].rstrip(":").lower()
    return first if first in ("error", "warning") else "error" if first == "traceback" else "info"


def _bounded(text: str) -> str:
    text = _text(text) or ""
    left = len(text) - MESSAGE_CHARS_MAX
    return f"{text[:MESSAGE_CHARS_MAX]}… and {left} characters more" if left > 0 else text


def _text(text: str | None) -> str | None:
    """Half a surrogate pair is no text, and no strict reader would take it."""
    return None if text is None else text.encode("utf-8", "replace").decode()
