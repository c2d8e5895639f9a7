"""The production command in a process that ends or stops itself at a chosen operation.

    python child.py NOTE PHASE NUMBER SIGNAL run --json …

Only operations on files, on the database and on the network change anything outside a process, so a
process that dies just before or just after one of them leaves every state that a death can leave.
Each such moment is a tick. At the NUMBER-th tick of PHASE (or at the first tick after that phase, should
it have fewer) the process writes down where it is and sends itself SIGNAL. With SIGNAL 0 it only counts.

Production code is not changed by this: its operating system calls, SQLite's file layer and the steps of
a run are watched from outside.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

PHASES = (
    "start",
    "admit",
    "discover",
    "fetch",
    "pipeline",
    "validate",
    "promote",
    "project",
    "deliver",
    "end",
)

# Those that change something are watched on both sides, the others before.
CHANGING = ("write", "fsync", "rename", "link", "symlink", "mkdir", "unlink", "rmdir", "utime")
READING = ("open", "read", "listdir", "readlink", "scandir")


class Meter:
    """Counts ticks by phase, and strikes once."""

    def __init__(self, note: str, phase: str, number: int, signal: int) -> None:
        self._note = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._target = PHASES.index(phase)
        self._number = number
        self._signal = signal
        self._thread = threading.get_ident()
        self._write = os.write  # before it is watched
        self._phase = 0
        self.kept: Any = None
        self.writing = False  # others can't write while this is so
        self._since = time.monotonic()
        self.counts: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()

    def enter(self, phase: str) -> None:
        now = time.monotonic()
        self.seconds[PHASES[self._phase]] += now - self._since
        self._since = now
        self._phase = PHASES.index(phase)

    def tick(self, operation: str) -> None:
        if threading.get_ident() != self._thread:
            return  # heartbeats come when they come; what they do is not ours to count
        phase = PHASES[self._phase]
        self.counts[phase] += 1
        here = self._phase == self._target and self.counts[phase] >= self._number
        if self._signal and (here or self._phase > self._target):
            signal, self._signal = self._signal, 0
            self.say(
                {
                    "phase": phase,
                    "operation": operation,
                    "tick": self.counts[phase],
                    "writing": self.writing,
                }
            )
            os.kill(os.getpid(), signal)

    def say(self, document: dict[str, Any]) -> None:
        self._write(self._note, json.dumps(document).encode() + b"\n")


def watch_system_calls(meter: Meter) -> None:
    for name in (*CHANGING, *READING):
        setattr(os, name, _watched(meter, name, getattr(os, name), both=name in CHANGING))


def _watched(meter: Meter, name: str, call: Callable[..., Any], *, both: bool) -> Callable[..., Any]:
    def watched(*args: Any, **options: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if not caller.startswith(("kfm", "os")):
            return call(*args, **options)
        meter.tick(f"before {name}")
        result = call(*args, **options)
        if both:
            meter.tick(f"after {name}")
        return result

    return watched


def watch_sqlite(meter: Meter) -> None:
    import apsw

    real = apsw.vfs_names()[0]

    class WatchedFile(apsw.VFSFile):
        def __init__(self, name: Any, flags: Any) -> None:
            super().__init__(real, name, flags)

        def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
            meter.tick("before a page is written")
            super().xWrite(data, offset)
            meter.tick("after a page is written")

        def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
            meter.tick("before the database is synced")
            super().xSync(flags)
            meter.tick("after the database is synced")

    class Watching(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("watching", real, makedefault=True)

        def xOpen(self, name: Any, flags: Any) -> WatchedFile:  # noqa: N802 - SQLite's name
            return WatchedFile(name, flags)

    meter.kept = Watching()  # it must outlive every connection

    from kfm.db.sqlite import SqliteDatabase, WriteLock

    write, come, go = SqliteDatabase.write, WriteLock.__enter__, WriteLock.__exit__

    def coming(self: WriteLock) -> None:
        come(self)
        meter.writing = True

    def going(self: WriteLock, *error: object) -> None:
        go(self, *error)
        meter.writing = False

    def watched(self: SqliteDatabase, change: Callable[..., Any]) -> Any:
        def inside(session: Any) -> Any:
            meter.writing = True  # the gate is open again, the write lock is ours
            meter.tick("transaction begun")
            result = change(session)
            meter.tick("before commit")
            return result

        meter.tick("before the turnstile")
        try:
            result = write(self, inside)
        finally:
            meter.writing = False
        meter.tick("after commit")
        return result

    SqliteDatabase.write = watched  # type: ignore[method-assign,assignment]
    WriteLock.__enter__ = coming  # type: ignore[method-assign]
    WriteLock.__exit__ = going  # type: ignore[method-assign,assignment]


def watch_network(meter: Meter) -> None:
    from kfm.objects.http_client import HttpxClient

    send = HttpxClient._send

    def watched(self: HttpxClient, *args: Any, **options: Any) -> Any:
        meter.tick("before a request")
        response = send(self, *args, **options)
        meter.tick("after the answer's head")
        return response

    HttpxClient._send = watched  # type: ignore[method-assign]


def watch_phases(meter: Meter) -> None:
    from kfm.lineage import collectors
    from kfm.runs import artifacts, executor, preparation

    update, step, validate = executor.RunExecutor.run, artifacts.RunLog.step, preparation._validate
    deliver = collectors.deliver

    def updating(self: executor.RunExecutor) -> Any:
        meter.enter("admit")
        try:
            return update(self)
        finally:
            meter.enter("end")

    def stepping(self: artifacts.RunLog, phase: str, *args: Any, **options: Any) -> None:
        meter.enter(phase)
        step(self, phase, *args, **options)

    def validating(*args: Any, **options: Any) -> Any:
        meter.enter("validate")  # its line in the event log is written when it is done
        return validate(*args, **options)

    def delivering(app: Any) -> Any:
        meter.enter("deliver")
        try:
            return deliver(app)
        finally:
            meter.enter("end")

    collectors.deliver = delivering
    executor.RunExecutor.run = updating  # type: ignore[method-assign]
    artifacts.RunLog.step = stepping  # type: ignore[method-assign]
    preparation._validate = validating


def main() -> int:
    note, phase, number, signal, *arguments = sys.argv[1:]
    del sys.path[0]  # this folder: a command started in the usual way does not have it
    meter = Meter(note, phase, int(number), int(signal))
    watch_sqlite(meter)
    watch_network(meter)
    watch_phases(meter)
    watch_system_calls(meter)
    from kfm.cli import main as kfm

    sys.argv = ["kfm", *arguments]
    try:
        kfm()
    except SystemExit as ended:
        code = ended.code
    meter.enter("end")
    if not int(signal):
        meter.say({"counts": meter.counts, "seconds": meter.seconds})
    return int(code or 0)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
