"""Long work, watched: a bar on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kfm.cli.output import one_line
from kfm.model.quantities import counted, duration, readable_size

if TYPE_CHECKING:
    from kfm.cli.session import CommandSession
    from kfm.ports import Clock, Progress

DRAWN_SECONDS = 0.2  # between two looks at a clock
_CLEAR = "\r\x1b[2K"


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


class LiveLine:
    """A line at the end of stderr, on a terminal, that is drawn again and again; whatever else is written
    there takes its place, and it leaves no trace."""

    def __init__(self, text: Callable[[], str], stream: Any = None) -> None:
        self._text = text
        self._stream: Any = stream or sys.stderr
        self._turn = threading.RLock()
        self._drawn = False

    def draw(self) -> None:
        import shutil

        with self._turn:
            text = self._text()[: max(shutil.get_terminal_size().columns - 1, 1)]
            if text:
                self._write(_CLEAR + text)
                self._drawn = True

    def clear(self) -> None:
        with self._turn:
            if self._drawn:
                self._write(_CLEAR)
                self._drawn = False

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """While something is written to the other stream of the terminal."""
        with self._turn:
            self.clear()
            yield

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Meanwhile, several times a second."""
        over = threading.Event()

        def draw() -> None:
            while not over.wait(DRAWN_SECONDS):
                self.draw()

        self._stream.before_write = self.clear
        thread = threading.Thread(target=draw, name="kfm-live", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.clear()
            self._stream.before_write = None

    def _write(self, text: str) -> None:
        getattr(self._stream, "draw", self._stream.write)(text)
        self._stream.flush()


class StepLines:
    """The steps of a run and what each took, on a terminal: `fetch 1.2 s · transform 40.1 s …`."""

    def __init__(self, clock: Clock, stream: Any = None) -> None:
        self._clock = clock
        self._stream = stream or sys.stderr
        self._line = LiveLine(lambda: f"{told} …" if (told := self._told()) else "", self._stream)
        self._name, self._began_ms, self._amount, self._of_objects = "", 0, 0, False
        self._steps: list[tuple[str, int]] = []

    @contextmanager
    def drawn(self) -> Iterator[None]:
        with self._line.drawn():
            yield

    def over(self) -> None:
        """A run has ended: its line stays."""
        self.done()
        told, self._steps = self._told(), []
        if told:
            self._stream.write(f"{told}\n")

    def phase(self, name: str, total: int | None = None) -> None:  # noqa: ARG002 - time tells, not a share
        if name != self._name:
            self.done()
            self._name, self._began_ms, self._amount = name, self._clock.monotonic_ms(), 0

    def advance(self, amount: int, note: str = "") -> None:
        self._amount += amount
        self._of_objects = bool(note)

    def done(self) -> None:
        if self._name:
            self._steps.append((self._name, self._took_ms()))
        self._name = ""

    def _took_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms

    def _told(self) -> str:
        steps = [f"{name} {duration(took_ms)}" for name, took_ms in self._steps]
        if self._name:
            size = f", {readable_size(self._amount)}" if self._amount and self._of_objects else ""
            steps.append(f"{self._name} {duration(self._took_ms())}{size}")
        return f"  {' · '.join(map(one_line, steps))}" if steps else ""


@contextmanager
def following(progress: Progress) -> Iterator[Callable[[], None]]:
    """While runs work; what is yielded is called whenever one has ended."""
    if isinstance(progress, StepLines):
        with progress.drawn():
            yield progress.over
    else:
        yield progress.done


def watched_steps(session: CommandSession) -> Progress:
    """Progress of runs: on a terminal with their steps, elsewhere a line for what was fetched."""
    if session.output == "text" and not session.quiet and sys.stderr.isatty():
        from kfm.system import SystemClock

        return StepLines(SystemClock())
    return watched(session)


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
