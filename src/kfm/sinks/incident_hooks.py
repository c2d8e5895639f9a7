"""Hooks that get incidents: a program of the operator, a signed webhook, any notifier as a collector."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress

from kfm.model.errors import BackendUnavailable, CollectorRefused, ConfigError, KfmError, UpstreamUnavailable
from kfm.model.redaction import redact
from kfm.model.runs import OutboxMessage
from kfm.model.webhook_signatures import sign_standard
from kfm.ports import Clock, HttpSender, Notifier

GRACE_MS = 1_000  # beyond its own time, for a notifier that keeps to it
STDERR_BYTES_MAX = 4_096
STDERR_CHARS_MAX = 200
ANSWER_BYTES_MAX = 4_096
ANSWER_CHARS_MAX = 200
SECRETS_MAX = 4
# The change is at fault, or the endpoint is gone for good: sending the same again at once changes nothing.
REFUSALS = frozenset({400, 410, 411, 413, 415, 422})


class NotifierCollector:
    """Bounds the time of a notification, whatever the notifier does: a plugin may forget its timeout."""

    def __init__(self, notifier: Notifier, *, timeout_ms: int) -> None:
        self._notifier = notifier
        self._timeout_ms = timeout_ms

    def deliver(self, messages: Sequence[OutboxMessage]) -> int:
        """Deliver one, so that each is marked before the next is sent."""
        message = messages[0]
        outcome: list[BaseException | None] = []

        def notify() -> None:
            try:
                self._notifier.notify(message.event_id, message.body.encode("utf-8"))
                outcome.append(None)
            except BaseException as error:  # noqa: BLE001 - raised by the waiting thread
                outcome.append(error)

        thread = threading.Thread(target=notify, name="kfm-notify", daemon=True)
        thread.start()
        thread.join((self._timeout_ms + GRACE_MS) / 1000)
        if not outcome:
            raise BackendUnavailable("It did not answer in time.")
        error = outcome[0]
        if isinstance(error, KfmError):
            raise error
        if error is not None:
            raise BackendUnavailable(f"{type(error).__name__}: {error}") from None
        return 1

    def close(self) -> None:
        with suppress(Exception):
            self._notifier.close()


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


class WebhookNotifier:
    """Several secrets, separated by spaces or lines, sign each message, so that secrets can be rotated."""

    def __init__(
        self, url: str, secret: str, clock: Clock, client: HttpSender, *, shown: str, timeout_ms: int
    ) -> None:
        self._client = client
        self._url = url
        self._shown = shown
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._secrets = secret.split()[:SECRETS_MAX]
        if not self._secrets:
            raise ConfigError("The secret of a webhook is empty.")

    def notify(self, change_id: str, body: bytes) -> None:
        status, answer = self._answer(change_id, body)
        if 200 <= status < 300:
            return
        words = redact(" ".join(answer.decode("utf-8", "replace").split())[:ANSWER_CHARS_MAX])
        if 300 <= status < 400:
            words = "Redirects are not followed: name the final address."
        text = f"{self._shown} answered {status}. {words}".strip()
        raise CollectorRefused(text) if status in REFUSALS else BackendUnavailable(text)

    def close(self) -> None:
        self._client.close()

    def headers(self, change_id: str, body: bytes) -> dict[str, str]:
        at_s = self._clock.now_ms() // 1000
        return {
            "content-type": "application/json",
            "user-agent": "kfm",
            "webhook-id": change_id,
            "webhook-timestamp": str(at_s),
            "webhook-signature": " ".join(
                sign_standard(secret, change_id, at_s, body) for secret in self._secrets
            ),
        }

    def _answer(self, change_id: str, body: bytes) -> tuple[int, bytes]:
        received = b""
        try:
            with self._client.send(
                "POST",
                self._url,
                self.headers(change_id, body),
                body,
                self._timeout_ms,
                shown=self._shown,
                secrets=(self._url,),
            ) as answer:
                for chunk in answer.chunks():
                    received += chunk
                    if len(received) >= ANSWER_BYTES_MAX:
                        break
                return answer.status, received[:ANSWER_BYTES_MAX]
        except UpstreamUnavailable as error:
            raise BackendUnavailable(error.detail) from None
