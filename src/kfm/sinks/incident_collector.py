"""Any notifier as a collector: one change at a time, each in a bounded time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from kfm.model.attempts import OutboxMessage
from kfm.model.errors import BackendUnavailable, KfmError
from kfm.ports import Notifier

GRACE_MS = 1_000  # beyond its own time, for a notifier that keeps to it


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
