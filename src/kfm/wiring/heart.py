"""A heartbeat beside long work."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfm.ports import Store


class ThreadHeart:
    """Renews a lease from a thread with a connection of its own."""

    def __init__(self, open_own_store: Callable[[], Store], announce: Callable[[str], None]) -> None:
        self._open = open_own_store
        self._announce = announce

    def start(self, beat: Callable[[Store], None], interval_ms: int) -> Callable[[], None]:
        stop = threading.Event()

        def beating() -> None:
            store: Store | None = None
            while not stop.wait(interval_ms / 1000):
                # A heart does not stop at trouble: the next beat tries again, with a new connection.
                try:
                    store = store or self._open()
                    beat(store)
                except Exception as error:  # noqa: BLE001
                    self._announce(f"heartbeat: {error}")
                    store = None
            if store is not None:
                store.close()

        own = contextvars.copy_context()  # so that what it says names the run, too
        thread = threading.Thread(target=lambda: own.run(beating), name="kfm-heart", daemon=True)
        thread.start()

        def finish() -> None:
            stop.set()
            thread.join()

        return finish
