"""Plays the steps of many cases with injected clock, ids, chance and processor time: Python's half."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

import kfm.app
import kfm.config.loader
import kfm.config.state_folder
from kfm.cli.command_line import run_command_line
from updater.runner import runner

PROGRAM = "runner.mjs"  # so that what it says of itself is the same


class Clock:
    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def sleep_ms(self, delay_ms: int) -> None: ...


class Ids:
    def __init__(self, step: int) -> None:
        self._step, self._made = step, 0

    def new(self) -> str:
        self._made += 1
        return f"00000000-{self._step:04d}-7000-8000-{self._made - 1:012x}"


class Rng:
    def unit(self) -> float:
        return 0.5


class Meter:
    def __init__(self) -> None:
        self._spent = 0

    def cpu_us(self) -> int:
        self._spent += 1_000
        return self._spent

    def package_uj(self) -> int | None:
        return None


class Stdin(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@contextlib.contextmanager
def injected(step: dict[str, Any]) -> Iterator[None]:
    replaced: dict[tuple[Any, str], Any] = {
        (kfm.app, "SystemClock"): lambda: Clock(step["now_ms"]),
        (kfm.config.state_folder, "SystemClock"): lambda: Clock(step["now_ms"]),
        (kfm.config.state_folder, "SystemIds"): lambda: Ids(step["number"]),
        (kfm.config.state_folder, "SystemRng"): Rng,
        (kfm.app, "ProcessMeter"): Meter,
        (sys, "stdin"): Stdin(step.get("terminal", False)),
    }
    before = {where: getattr(*where) for where in replaced}
    actor, environ = kfm.config.loader.actor, dict(os.environ)
    try:
        for (module, name), fake in replaced.items():
            setattr(module, name, fake)
        kfm.config.loader.actor = lambda: "tester"
        os.environ.clear()
        os.environ.update(step.get("environ", {}))
        yield
    finally:
        for (module, name), real in before.items():
            setattr(module, name, real)
        kfm.config.loader.actor = actor
        os.environ.clear()
        os.environ.update(environ)


def play(step: dict[str, Any]) -> dict[str, Any] | None:
    for path, text in step.get("write", {}).items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8", newline="")
    for path in step.get("remove", ()):
        shutil.rmtree(path, ignore_errors=True)
        Path(path).unlink(missing_ok=True)
    if step.get("sql") and Path(".kfm/kfm.db").exists():
        with contextlib.closing(apsw.Connection(".kfm/kfm.db")) as database:
            for statement in step["sql"]:
                database.execute(statement)
    if "args" not in step:
        return None
    out, err = io.StringIO(), io.StringIO()
    with injected(step), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command_line(list(step["args"]), runner, PROGRAM)
    return {"code": code, "stdout": out.getvalue(), "stderr": err.getvalue()}


def play_case(case: dict[str, Any]) -> list[dict[str, Any] | None]:
    folder = Path(case["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    before = os.getcwd()
    os.chdir(folder)
    try:
        return [play({**step, "number": number}) for number, step in enumerate(case["steps"])]
    finally:
        os.chdir(before)
