"""The demo's project folder: made anew for each demo, and the `kfm` commands that run in it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

from telling import DemoFailed, Teller

HERE = Path(__file__).resolve().parent
WORK = HERE / ".work"
PARTS = ("kfm.yml", "cron.yml", "contracts", "pipelines", "policies", "search.py")
MARK = ".made-by-demo"
COMMAND_SECONDS_MAX = 60
# Nothing from outside decides what the demo does or where it writes.
_FOREIGN = ("KFM_", "GITHUB_", "PYTHONPATH", "FORCE_COLOR", "NO_COLOR", "VIRTUAL_ENV")


def seen_from(path: str | Path) -> str:
    """The path relative to where the demo was started; a word stays a word."""
    return os.path.relpath(path) if os.path.isabs(path) else str(path)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two demos at once would pull the folder from under each other's feet."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailed(f"another demo is running in {seen_from(folder)}") from None
        yield


class Project:
    def __init__(self, folder: Path, address: str, teller: Teller) -> None:
        self.folder = folder
        self.published = folder / "published"
        self._teller = teller
        self._make(address)
        beside = Path(sys.executable).parent / "kfm"
        self.kfm = [str(beside)] if beside.exists() else [sys.executable, "-m", "kfm"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        self._environ = {
            **kept,
            "XDG_CACHE_HOME": str(folder / ".cache"),
            "TMPDIR": str(folder / ".tmp"),
            "NO_PROXY": "127.0.0.1",  # everything is on this machine
            **({"FORCE_COLOR": "1"} if teller.colour else {"NO_COLOR": "1"}),
        }

    def _make(self, address: str) -> None:
        if self.folder.exists():
            if not (self.folder / MARK).exists():
                raise DemoFailed(f"{self.folder} was not made by the demo; it is not touched")
            shutil.rmtree(self.folder)
        (self.folder / ".tmp").mkdir(parents=True)
        (self.folder / MARK).touch()
        for part in PARTS:
            copy = shutil.copytree if (HERE / part).is_dir() else shutil.copy2
            copy(HERE / part, self.folder / part)
        secret = self.folder / "webhook.secret"
        secret.touch(0o600)
        secret.write_text(token_urlsafe(32))
        config = self.folder / "kfm.yml"
        config.write_text(config.read_text().replace("http://127.0.0.1:8765", address))

    # --- commands --------------------------------------------------------------------

    def run(self, *arguments: str, expect: int = 0) -> None:
        """`kfm` as a person types it: shown with everything that it prints, as it prints it."""
        self._teller.typed(shlex.join(["kfm", *arguments]))
        self._shown([*self.kfm, *arguments], expect)

    def run_as(self, name: str, token: str, *arguments: str) -> None:
        """The same by another person, who is known by a token."""
        self._teller.typed(f"KFM_TOKEN=${name} {shlex.join(['kfm', *arguments])}")
        self._shown([*self.kfm, *arguments], 0, KFM_TOKEN=token)

    def shell(self, *words: str, expect: int = 0) -> None:
        """Any other command."""
        self._teller.typed(shlex.join(words))
        self._shown(list(words), expect)

    def python(self, *words: str, expect: int = 0) -> None:
        """A script, by the Python that runs this."""
        self._teller.typed(shlex.join(["python", *words]))
        self._shown([sys.executable, *words], expect)

    def python_as(self, name: str, token: str, *words: str) -> None:
        """The same by a person who is known by a token."""
        self._teller.typed(f"KFM_TOKEN=${name} {shlex.join(['python', *words])}")
        self._shown([sys.executable, *words], 0, KFM_TOKEN=token)

    def _shown(self, command: list[str], expect: int, **environ: str) -> None:
        with self._started(command, **environ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                self._teller.output(line.rstrip("\n"))
            code = process.wait(COMMAND_SECONDS_MAX)
        if code != expect:
            raise DemoFailed(f"the command should have ended with exit code {expect}, not {code}")

    @contextmanager
    def _started(self, command: list[str], **environ: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**self._environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        deadline = threading.Timer(COMMAND_SECONDS_MAX, process.kill)
        deadline.daemon = True  # an interrupted demo does not wait for it
        try:
            deadline.start()
            yield process
        finally:
            deadline.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    @contextmanager
    def in_background(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on while the block runs. It is killed at the block's end, if not before."""
        self._teller.typed(shlex.join(["kfm", *arguments]) + " &")
        with self._started([*self.kfm, *arguments]) as process:
            yield process

    def kill(self, process: subprocess.Popen[str]) -> int:
        """SIGKILL: no clean-up, no last words."""
        self._teller.typed(f"kill -9 {process.pid}")
        process.send_signal(signal.SIGKILL)
        return process.wait(COMMAND_SECONDS_MAX)

    def ask(self, *arguments: str) -> Any:
        """What a command answers as JSON; not shown, for verifying."""
        ended = subprocess.run(
            [*self.kfm, *arguments, "--json"],
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        try:
            return json.loads(ended.stdout)
        except ValueError:
            command = shlex.join(["kfm", *arguments, "--json"])
            raise DemoFailed(f"{command} printed no JSON: {ended.stdout}{ended.stderr}") from None

    # --- what is there ---------------------------------------------------------------

    def runs(self, source: str) -> list[Any]:
        """The runs of one source, newest first."""
        found: list[Any] = self.ask("runs", "--source", source)["runs"]
        return found

    def ran(self, pipeline: str) -> list[str]:
        """The nodes that the last pass over a pipeline executed."""
        last = self.ask("run-state", "list", "--pipeline", pipeline)["passes"][0]["run_id"]
        nodes = self.ask("run-state", "show", last)["nodes"]
        return sorted(each["dataset_id"] for each in nodes if each["outcome"] == "success")

    def current(self, dataset: str) -> Path:
        """The folder of the version that readers see."""
        return (self.published / dataset / "current").resolve()

    def version(self, dataset: str) -> int:
        """The version that readers see; its folder bears its number."""
        return int(self.current(dataset).name.partition("-")[0])

    def digest(self, *names: str) -> str:
        """One hash over every name, link and byte below these folders."""
        found = hashlib.sha256()
        for root in (self.folder / name for name in names):
            for path in sorted(root.rglob("*")):
                found.update(f"\0{path.relative_to(self.folder)}\0".encode())
                if path.is_symlink():
                    found.update(os.readlink(path).encode())
                elif path.is_file():
                    found.update(path.read_bytes())
        return found.hexdigest()
