"""Long work, watched: a bar on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from kfm.cli.output import one_line
from kfm.model.quantities import counted, readable_size
from kfm.ports import Progress

if TYPE_CHECKING:
    from kfm.cli.session import CommandSession


class Silent:
    """For commands that print JSON to a terminal, and for tests."""

    def phase(self, name: str, total: int | None = None) -> None: ...
    def advance(self, amount: int, note: str = "") -> None: ...
    def done(self) -> None: ...


class ProgressLines:
    """One line when a phase is over: logs stay readable, however many objects there are."""

    def __init__(self, stream: Any = None, noun: str = "object") -> None:
        self._stream = stream or sys.stderr
        self._noun = noun
        self._begin("")

    def _begin(self, name: str) -> None:
        self._name, self._amount, self._noted, self._last = name, 0, 0, ""

    def phase(self, name: str, total: int | None = None) -> None:  # noqa: ARG002 - lines do not move
        self.done()
        self._begin(name)

    def advance(self, amount: int, note: str = "") -> None:
        self._amount += amount
        if note and note != self._last:
            self._noted += 1
            self._last = note

    def done(self) -> None:
        if self._noted:  # the amounts are bytes of named objects
            shown = f"{counted(self._noted, 'object')}, {readable_size(self._amount)}"
        else:
            shown = counted(self._amount, self._noun)
        if self._amount:
            self._stream.write(f"{one_line(self._name)}: {shown}\n")
            self._stream.flush()
        self._begin("")


class ProgressBar:
    """A bar drawn by rich. It is imported when the first phase begins, not before."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def phase(self, name: str, total: int | None = None) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(one_line(name), total=total)

    def advance(self, amount: int, note: str = "") -> None:  # noqa: ARG002 - the bar shows no notes
        if self._bar is not None:
            self._bar.advance(self._task, amount)

    def done(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None


def watched(session: CommandSession, noun: str = "object") -> Progress:
    """Progress for people: not with JSON output, unless with --verbose."""
    shown = not session.quiet and (session.output == "text" or session.verbose)
    return watcher(is_tty=sys.stderr.isatty(), noun=noun) if shown else Silent()


def watcher(*, is_tty: bool, noun: str = "object") -> Progress:
    """The right one for where stderr goes."""
    if is_tty:
        from importlib.util import find_spec

        if find_spec("rich") is not None:
            return ProgressBar()
    return ProgressLines(noun=noun)
