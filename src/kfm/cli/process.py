"""The process of a command: streams that may fail, with secrets redacted; every ending has its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from typing import TYPE_CHECKING, Any

from kfm.cli.signals import mask, unmask

if TYPE_CHECKING:
    from kfm.cli.logs import JsonLog
    from kfm.cli.output import Level
    from kfm.config.loader import Loaded


_loaded: Loaded | None = None
_named: str | None = None  # the configuration that was named on the command line
_colour = "auto"  # what --color says
# A command that a message names: in backticks, or behind a colon at the end of a line.
_COMMAND = r"(?<=`)kfm [a-z][^`\n]*(?=`)|(?<=: )kfm [a-z][^`\n]*$"
_WITHOUT_CONFIG = r"^kfm (?:init|completion|man|lint)\b| (?:-c|--config|--directory|--help)\b"


def begin(loaded: Loaded | None = None) -> None:
    """A command begins, or has read its configuration."""
    global _loaded  # noqa: PLW0603
    _loaded = loaded


def name_config(path: str | None) -> None:
    """The command was given this configuration; None: it looks for one itself."""
    global _named  # noqa: PLW0603
    _named = path


def choose_colour(choice: str) -> None:
    global _colour  # noqa: PLW0603
    _colour = choice


def colour_choice() -> str:
    return _colour


def with_config(text: str) -> str:
    """A text for people, in which every command names the configuration that this one was given."""
    if _named is None or "kfm " not in text:
        return text
    import re
    from shlex import quote

    option = f" -c {quote(_named)}"

    def named(found: re.Match[str]) -> str:
        return found[0] if re.search(_WITHOUT_CONFIG, found[0]) else f"{found[0]}{option}"

    return re.sub(_COMMAND, named, text, flags=re.MULTILINE)


def clean(text: str) -> str:
    return _loaded.discretion.hide(text) if _loaded is not None and _loaded.known_secrets() else text


def redacted(text: str) -> str:
    """A log record's text: also what only looks like a secret is masked, and the length is bounded."""
    from kfm.model.redaction import Discretion

    return (Discretion() if _loaded is None else _loaded.discretion).logged(text)


def cleaned(document: Any) -> Any:
    """A document for a program: plain values, every text in them clean."""
    if _loaded is None or not _loaded.known_secrets():
        return document
    import msgspec

    return _loaded.discretion.within(msgspec.to_builtins(document))


class Stream:
    """A stream to which writing always succeeds; `lost` says why nothing arrives any more."""

    def __init__(
        self, stream: Any, clean: Callable[[str], str] | None = None, *, json_log: JsonLog | None = None
    ) -> None:
        self._stream = stream
        self._clean = json_log or clean
        self._json = json_log
        self.is_json = json_log is not None  # then it is for programs: no bars, no colours, no questions
        self.lost: Exception | None = None
        self.before_write: Callable[[], None] | None = None  # takes away a line that is drawn again and again

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        return not self.is_json and bool(self._stream.isatty())

    def write(self, text: str) -> int:
        if self.before_write is not None:
            self.before_write()
        try:
            self._stream.write(self._clean(text) if self._clean else text)
        except (OSError, ValueError) as error:
            self._lose(error)
        return len(text)

    def write_line(self, line: str) -> None:
        """A whole line that has its form, and no secret in it."""
        if self.before_write is not None:
            self.before_write()
        self.draw(line)

    def draw(self, line: str) -> None:
        try:
            self._stream.write(line)
        except (OSError, ValueError) as error:
            self._lose(error)

    def write_message(self, text: str, level: Level) -> None:
        """A message of a command, which knows its level."""
        if self._json is not None:
            self.write_line(self._json.message(text, level))
        else:
            self.write(f"{text}\n")

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        if isinstance(error, ValueError) and not isinstance(error, OSError) and not self._stream.closed:
            raise error  # text that can't be written there: not the stream's fault
        self.lost = self.lost or error
        # What is left in the buffer goes nowhere; Python would complain again at exit.
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Write through a descriptor of our own; number 1 leads to standard error meanwhile."""
        self.flush()
        before = self._stream
        with open(os.dup(1), "w", encoding=before.encoding, errors=before.errors) as own:
            self._stream = own
            os.dup2(2, 1)
            try:
                yield
            finally:
                self.flush()
                os.dup2(own.fileno(), 1)
                self._stream = before


@contextmanager
def forgiving(log_format: str = "text") -> Iterator[Stream]:
    """Both standard streams, forgiving; yields the one for results."""
    before = (sys.stdout, sys.stderr)
    if None in (sys.stdin, *before):
        _fill_gaps()
    out, err = (open(os.devnull, "w") if each is None else each for each in before)  # noqa: SIM115
    out, plain = Stream(out), err
    if log_format == "json":
        from kfm.cli.logs import JsonLog
        from kfm.db.connection import system_clock

        log = JsonLog(system_clock().now_ms)
        err, rest = Stream(plain, json_log=log), log.rest
    else:
        err, rest = Stream(plain, clean), str
    sys.stdout, sys.stderr = out, err
    global _streams, _data
    outer, _streams, _data = (_streams, _data), ExitStack(), None
    try:
        yield out
    finally:
        _streams.close()
        _streams, _data = outer
        out.flush()
        Stream(plain).write(rest())
        err.flush()
        sys.stdout, sys.stderr = before


_streams: ExitStack | None = None  # of the command that runs; what it has on it is undone at the end
_data: Stream | None = None  # standard output, once it is kept apart


def data() -> Any:
    """The stream for results."""
    return _data or sys.stdout


def keep_data_apart() -> None:
    """To the end of the command only `data()` is standard output.

    What other code prints goes to standard error: functions of pipelines, plugins, the programs that they
    start, and threads that outlive their run.
    """
    global _data  # noqa: PLW0603
    out: Any = sys.stdout
    if _streams is None or _data is not None or not isinstance(out, Stream):
        return
    _data = out
    _streams.enter_context(redirect_stdout(sys.stderr))
    with suppress(OSError, ValueError):  # no descriptor behind it, as in some tests
        if out.fileno() == 1:
            _streams.enter_context(out.apart())


@contextmanager
def data_shared() -> Iterator[None]:
    """While it lasts, a program that we start writes to standard output: a pager."""
    with redirect_stdout(data()), os.fdopen(os.dup(1), "wb") as before:
        os.dup2(data().fileno(), 1)
        try:
            yield
        finally:
            os.dup2(before.fileno(), 1)


def _fill_gaps() -> None:
    """A stream that was closed leaves its number free, and the database must not be opened under it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def guarded(run: Callable[[], int], arguments: Sequence[str], *, logs: bool = True) -> int:
    """Run with streams, logging and errors set up. `logs=False` saves the import of `logging`."""
    begin()
    name_config(None)
    choose_colour("auto")
    log_format = _log_format(arguments)
    with forgiving(log_format) as out, _logging(log_format) if logs else nullcontext():
        code = _ended(run, arguments)
        out.flush()
        # A closed pipe is the reader's choice; a full disk has lost a result.
        if code == 0 and isinstance(out.lost, OSError) and not isinstance(out.lost, BrokenPipeError):
            code = _show(_unwritten(out.lost), ())
    return code


def _log_format(arguments: Sequence[str]) -> str:
    from kfm.config.loader import log_format

    configured = log_format()
    if configured is None and not any(argument.startswith("--log-format") for argument in arguments):
        return "text"  # the usual case imports nothing
    from kfm.cli.logs import wanted_log_format

    return wanted_log_format(arguments, configured)


def _logging(log_format: str) -> AbstractContextManager[None]:
    from kfm.cli.logs import stderr_logging

    return stderr_logging(log_format)


def _ended(run: Callable[[], int], arguments: Sequence[str]) -> int:
    try:
        unmask()
        _require_text(arguments)
        _require_log_format()
        return run()
    except (KeyboardInterrupt, Exception) as problem:  # noqa: BLE001 - the last place where it can be shown
        mask()
        try:
            return _show(problem, arguments)
        finally:
            with suppress(KeyboardInterrupt):  # asked to stop twice, and we are stopping
                unmask()


def _show(problem: BaseException, arguments: Sequence[str]) -> int:
    from kfm.cli.errors import as_error, show_error
    from kfm.cli.output import wanted_format

    verbose = any(argument in ("-v", "-vv", "--verbose") for argument in arguments)
    return show_error(as_error(problem), output=wanted_format(arguments), verbose=verbose, cause=problem)


def _require_text(arguments: Sequence[str]) -> None:
    """Everything that is kept or shown is UTF-8; other bytes could be neither."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            from kfm.model.errors import UsageError

            shown = argument.encode("utf-8", "surrogateescape")
            raise UsageError(
                f"An argument is not valid UTF-8: {ascii(shown)[1:]}.", remedy="Write it in UTF-8."
            ) from None


def _require_log_format() -> None:
    from kfm.config.loader import log_format

    if log_format() not in (None, "text", "json"):
        from kfm.model.errors import UsageError

        raise UsageError(
            "KFM_LOG_FORMAT is neither text nor json.", remedy="Set it to one of them, or unset it."
        )


def _unwritten(lost: OSError) -> Exception:
    from kfm.model.errors import BackendUnavailable

    return BackendUnavailable(
        f"The work is done, but its result could not be written: {(lost.strerror or str(lost)).lower()}.",
        remedy="Make room where standard output goes; `kfm runs` shows what was done.",
    )
