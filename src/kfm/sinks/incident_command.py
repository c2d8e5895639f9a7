"""A program of the operator that gets incidents: the change on its standard input, no shell."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress

from kfm.model.errors import BackendUnavailable
from kfm.model.redaction import redact

STDERR_BYTES_MAX = 4_096
STDERR_CHARS_MAX = 200


class CommandNotifier:
    """Exit code 0 means that the change has arrived. Standard output is discarded."""

    def __init__(self, command: Sequence[str], folder: str, *, timeout_ms: int) -> None:
        self._command = list(command)
        self._folder = folder
        self._timeout_ms = timeout_ms
        self._process: subprocess.Popen[bytes] | None = None

    def notify(self, change_id: str, body: bytes) -> None:  # noqa: ARG002 - the id is in the body
        with tempfile.TemporaryFile() as stderr:
            process = self._started(stderr.fileno())
            try:
                process.communicate(body, timeout=self._timeout_ms / 1000)
            except subprocess.TimeoutExpired:
                raise BackendUnavailable(
                    f"{self._command[0]} did not end within {self._timeout_ms / 1000:g} s and was stopped."
                ) from None
            finally:
                self.close()
            if process.returncode != 0:
                raise BackendUnavailable(
                    f"{self._command[0]} ended with {_ending(process.returncode)}{_words(stderr.fileno())}."
                )

    def close(self) -> None:
        """Stop what is still under way, with all that it has started."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)

    def _started(self, stderr: int) -> subprocess.Popen[bytes]:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=self._folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BackendUnavailable(f"{self._command[0]} can't be started: {reason.lower()}.") from None
        return self._process


def _ending(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def _words(stderr: int) -> str:
    """The end of what it wrote to standard error."""
    size = os.fstat(stderr).st_size
    text = os.pread(stderr, STDERR_BYTES_MAX, max(0, size - STDERR_BYTES_MAX)).decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {redact(lines[-1])[:STDERR_CHARS_MAX].rstrip('.')}" if lines else ""
