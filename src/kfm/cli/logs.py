"""Log records on stderr: their levels, and their two forms. JSON is one object a line, whatever it holds."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any, Literal

import msgspec

from kfm.cli import process
from kfm.cli.output import Level, instant
from kfm.model.records import Record
from kfm.telemetry import log_records
from kfm.telemetry.log_records import ROOT, CorrelationFilter, OutageFilter, RedactionFilter, extra_of

FORMATS = ("text", "json")
MESSAGE_CHARS_MAX = 16_384
PENDING_CHARS_MAX = 4 * MESSAGE_CHARS_MAX
STEPS = "kfm.runs.artifacts.steps"  # of every run; its artifacts have them in any case
NEVER = logging.CRITICAL + 1


class LogLine(Record, frozen=True, omit_defaults=True):
    """One line of stderr with `--log-format json`."""

    time: str  # RFC 3339, UTC
    level: Literal["debug", "info", "warning", "error"]
    message: str
    run_id: str | None = None
    attempt: int | None = None
    trace_id: str | None = None
    dataset: str | None = None
    source: str | None = None
    phase: str | None = None
    node: str | None = None
    provider: str | None = None
    request_id: str | None = None
    schedule: str | None = None
    code: str | None = None  # of the error that it is about
    logger: str | None = None  # the module that logged it; none: a message of the command itself
    fields: dict[str, Any] = {}  # whatever else is known


_NAMED = frozenset(LogLine.__struct_fields__) - {"time", "level", "message", "logger", "fields"}


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


# --- levels ----------------------------------------------------------------------------


def choose_levels(*, verbose: int, quiet: bool, service: bool = False) -> None:
    """Warnings; with -v information, with -vv everything. Services inform without being asked."""
    level = logging.INFO if verbose or service else logging.WARNING
    level = logging.WARNING if quiet else logging.DEBUG if verbose > 1 else level
    logging.getLogger(ROOT).setLevel(level)
    logging.getLogger(STEPS).setLevel(logging.NOTSET if verbose and not quiet else NEVER)


@contextmanager
def stderr_logging(log_format: str) -> Iterator[None]:
    """While a command runs, one handler on `kfm` writes to stderr. The root logger is not touched."""
    loggers = [logging.getLogger(name) for name in (ROOT, STEPS)]
    before = [each.level for each in loggers]
    handler = StderrHandler()
    if log_format == "json":
        from kfm.db.connection import system_clock

        handler.setFormatter(JsonFormatter(system_clock().now_ms))
    else:
        handler.setFormatter(TextFormatter())
    loggers[0].addHandler(handler)
    choose_levels(verbose=0, quiet=False)
    try:
        yield
    finally:
        loggers[0].removeHandler(handler)
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)


# --- handler and formatters --------------------------------------------------------------


class StderrHandler(logging.Handler):
    """Writes to what is stderr now, after what went to stdout. A closed stderr ends no work."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(OutageFilter())
        self.addFilter(CorrelationFilter())
        self.addFilter(RedactionFilter(process.redacted))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n"
            process.data().flush()
            getattr(sys.stderr, "write_line", sys.stderr.write)(line)
            sys.stderr.flush()
        except (OSError, ValueError):  # closed, or full
            pass
        except Exception:  # noqa: BLE001 - a defect of ours, and no reason to stop
            self.handleError(record)


class TextFormatter(logging.Formatter):
    """The message as it is, for people; below it a traceback, where there is one."""

    def __init__(self) -> None:
        super().__init__("%(message)s")


class JsonFormatter(logging.Formatter):
    """One object: level, message, time by the clock that is given, ids and other fields."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__("%(message)s")
        self._now_ms = now_ms

    def format(self, record: logging.LogRecord) -> str:
        names = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}
        level = names.get(record.levelno, "error")
        return line_of(self._now_ms(), level, super().format(record), extra_of(record), record.name)


def line_of(
    now_ms: int, level: str, message: str, about: Mapping[str, Any], logger: str | None = None
) -> str:
    known = {name: value for name, value in about.items() if value is not None}
    line = LogLine(
        time=instant(now_ms) or "",
        level=level,  # type: ignore[arg-type]
        message=_bounded(message).strip(),
        logger=logger,
        fields={_text(name): _plain(value) for name, value in known.items() if name not in _NAMED},
        **{name: _plain(known[name]) for name in _NAMED & known.keys()},
    )
    # ASCII: no terminal's encoding can fail it, and no reader sees a line break that is none.
    return json.dumps(msgspec.to_builtins(line))


class JsonLog:
    """Makes lines of what is written to stderr beside logging: by commands, nodes and libraries.

    A message ends where a write ends with a line feed.
    """

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
        return self.message(whole)

    def rest(self) -> str:
        """What was begun and never ended."""
        with self._lock:
            left = list(self._pending.values())
            self._pending.clear()
        return "".join(self.message(text) for text in left)

    def message(self, text: str, level: Level = "info") -> str:
        message = _bounded(process.clean(text)).strip()
        if not message:
            return ""
        return line_of(self._now_ms(), level, message, log_records.current()._asdict()) + "\n"


def _bounded(text: str) -> str:
    text = _text(text)
    left = len(text) - MESSAGE_CHARS_MAX
    return f"{text[:MESSAGE_CHARS_MAX]}… and {left} characters more" if left > 0 else text


def _plain(value: Any) -> Any:
    """A value of JSON. Records hold what they were given; redaction has made text of all but these."""
    if isinstance(value, dict):
        return {_text(str(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    return _bounded(str(value))


def _text(text: str) -> str:
    """Half a surrogate pair is no text, and no strict reader would take it."""
    return text.encode("utf-8", "replace").decode()
