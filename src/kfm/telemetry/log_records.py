"""Log records: redaction and correlation filters, context of the run at work."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from kfm.model.redaction import MASK, Discretion, is_secret_name


class Correlation(NamedTuple):
    run_id: str | None = None
    attempt: int | None = None
    trace_id: str | None = None
    dataset: str | None = None
    source: str | None = None
    phase: str | None = None


NOTHING = Correlation()
_current: ContextVar[Correlation] = ContextVar("kfm_correlation", default=NOTHING)


def current() -> Correlation:
    return _current.get()


def begin(about: Correlation) -> None:
    """From here on, until `end`."""
    _current.set(about)


def end() -> None:
    _current.set(NOTHING)


@contextmanager
def correlated(**more: str | int | None) -> Iterator[None]:
    """These ids beside those that are known, for what is logged inside."""
    token = _current.set(_current.get()._replace(**more))  # type: ignore[arg-type]
    try:
        yield
    finally:
        _current.reset(token)


ROOT = "kfm"
OUTAGE_SECONDS = 60.0
_NO_RECORD = logging.LogRecord("", 0, "", 0, "", None, None)
STANDARD = frozenset({*vars(_NO_RECORD), "message", "asctime", "taskName"})  # all others are `extra`
_TRACES = logging.Formatter()


def extra_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that were given as `extra`, or added by a filter."""
    return {name: value for name, value in vars(record).items() if name not in STANDARD}


NO_SECRETS = Discretion()  # what is masked by its shape alone


class RedactionFilter(logging.Filter):
    """Masks secrets in whatever a record can show: message, arguments, extra fields, exception, stack.

    Arguments and exception become text here: a handler that looks at the objects would show their secrets.
    """

    def __init__(self, clean: Callable[[str], str] = NO_SECRETS.logged) -> None:
        super().__init__()
        self._clean = clean

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self._clean(_message(record))
        record.args = None
        if record.exc_info:
            record.exc_text = record.exc_text or _TRACES.formatException(record.exc_info)
            record.exc_info = None
        if record.exc_text:
            record.exc_text = self._clean(record.exc_text)
        if record.stack_info:
            record.stack_info = self._clean(record.stack_info)
        for name, value in extra_of(record).items():
            setattr(record, name, MASK if _is_hidden(name, value) else self._value(value))
        return True

    def _value(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return {
                self._clean(str(name)): MASK if _is_hidden(str(name), each) else self._value(each)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self._value(each) for each in value]
        return self._clean(str(value))


class CorrelationFilter(logging.Filter):
    """Adds the ids of the run under way to a record, unless the record names its own."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in current()._asdict().items():
            if value is not None and getattr(record, name, None) is None:
                setattr(record, name, value)
        return True


class OutageFilter(logging.Filter):
    """One line for each outage, however many threads meet it and however often they try.

    Records tell with `extra=outage_of(error)` what is unavailable. An outage is over once a minute has passed
    without another of them; the next line says how many were left out."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._met: dict[str, tuple[float, int]] = {}  # when each was last met, and the lines left out

    def filter(self, record: logging.LogRecord) -> bool:
        outage = getattr(record, "outage", None)
        if outage is None:
            return True
        with self._lock:
            now = self._monotonic()
            last, left_out = self._met.get(outage, (None, 0))
            goes_on = last is not None and now - last < OUTAGE_SECONDS
            self._met[outage] = (now, left_out + 1 if goes_on else 0)
        if not goes_on and left_out:
            record.msg, record.args = f"{_message(record)} ({left_out} such lines were left out before)", None
        return not goes_on


class LibraryHandler(logging.NullHandler):
    """Writes nothing. Being the first that a record reaches, it masks secrets for all that come after it."""

    def __init__(self) -> None:
        super().__init__()
        self._known: tuple[weakref.ref[Discretion], ...] = ()
        self.addFilter(CorrelationFilter())
        self.addFilter(RedactionFilter(self._clean))

    def know(self, discretion: Discretion) -> None:
        """The secrets of one configuration, as long as it is in use."""
        alive = [each for each in self._known if each() is not None]
        if not any(each() is discretion for each in alive):
            self._known = (*alive, weakref.ref(discretion))

    def handle(self, record: logging.LogRecord) -> bool:
        return bool(self.filter(record))

    def _clean(self, text: str) -> str:
        for each in self._known:
            discretion = each()
            if discretion is not None:
                text = discretion.hide(text)
        return NO_SECRETS.logged(text)


def _is_hidden(name: str, value: Any) -> bool:
    return isinstance(value, str | bytes) and is_secret_name(name)


def _message(record: logging.LogRecord) -> str:
    """A record whose arguments do not fit is shown without them, rather than lost."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - whatever an argument's `__str__` raises
        return f"{record.msg} (its arguments do not fit)"


LIBRARY = LibraryHandler()


def install(discretion: Discretion | None = None) -> None:
    """Where kfm is opened, before anything is logged. Again and again is the same as once."""
    handlers = logging.getLogger(ROOT).handlers
    if LIBRARY not in handlers:
        handlers.insert(0, LIBRARY)  # before any that the application has added already
    if discretion is not None:
        LIBRARY.know(discretion)
