"""How long a person waits for the shortest commands, against the bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Benchmark

KFM = Path(sys.executable).with_name("kfm")


@dataclass(frozen=True)
class Project:
    folder: Path
    environment: dict[str, str]

    def call(self, *command: str) -> None:
        subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            check=True,
        )


def _empty(stack: ExitStack) -> Project:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kfm-bench-")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "PYTHON"))}
    return Project(folder, kept)


def _initialised(stack: ExitStack) -> Project:
    """A project as `kfm init` makes it, with one run behind it."""
    project = _empty(stack)
    project.call(str(KFM), "init", "--no-input")
    project.call(str(KFM), "run", "--no-input")
    return project


def _interpreter(project: Project) -> None:
    project.call(sys.executable, "-c", "pass")


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(
            name="startup_version",
            kind="cost",
            goal=1.2,
            setup=_empty,
            ours=lambda project: project.call(str(KFM), "--version"),
            reference=_interpreter,
            rounds=25,
        ),
        Benchmark(
            name="startup_status",
            kind="cost",
            goal=5.0,
            setup=_initialised,
            ours=lambda project: project.call(str(KFM), "status"),
            reference=_interpreter,
            rounds=25,
        ),
    ]
