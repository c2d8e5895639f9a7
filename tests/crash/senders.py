"""Senders of webhooks, as they are: each message signed once, and sent until a service has answered for it.

An answer that never came proves nothing, so the same message is sent again, to whichever process there is.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kfm.model.keys import request_id, webhook_key
from kfm.model.records import Trigger
from kfm.model.webhook_signatures import sign_kfm, sign_standard

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ANSWER_SECONDS_MAX = 40.0  # longer than a ledger that is held is waited for
Address = tuple[str, int]  # host and port
TWICE = 0.1  # of all messages: sent to two processes at once
STANDARD = 0.3  # signed as Standard Webhooks are
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Message:
    """One request of a sender, and all that it was told."""

    uuid: str
    source_id: str
    window: tuple[int, int] | None  # None: the source's own, which others share
    body: bytes
    headers: dict[str, str]
    answers: list[tuple[int, str | None]] = field(default_factory=list)  # status, which request
    unanswered: int = 0

    @property
    def request_id(self) -> str:
        return request_id(
            webhook_key(
                Trigger(type="webhook", source_id=self.source_id, dataset_id="-", request_uuid=self.uuid)
            )
        )

    @property
    def is_settled(self) -> bool:
        return any(status in (202, 409) for status, _ in self.answers)


class Senders:
    """Threads that send, each as fast as it is answered and not faster than its pace."""

    def __init__(
        self,
        services: Callable[[], list[Address]],
        sources: tuple[str, ...],
        seed: int,
        *,
        pace_seconds: float,
        crowded: Callable[[], bool],
        patience_seconds: float = ANSWER_SECONDS_MAX,
    ) -> None:
        self._patience = patience_seconds
        self._crowded = crowded
        self._services = services
        self._sources = sources
        self._pace = pace_seconds
        self._seed = seed
        self._over = threading.Event()  # no new messages
        self._given_up = threading.Event()
        self._lock = threading.Lock()
        self._count = 0
        self.messages: list[Message] = []
        self._threads: list[threading.Thread] = []

    def start(self, count: int) -> None:
        for number in range(count):
            rng = random.Random(f"sender {self._seed} {number}")
            self._threads.append(threading.Thread(target=self._send_all, args=(rng,), daemon=True))
        for thread in self._threads:
            thread.start()

    def finish(self, seconds: float) -> None:
        """No new messages; those that are under way are sent until they are answered."""
        self._over.set()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.1, until - time.monotonic()))
        self._given_up.set()

    def _send_all(self, rng: random.Random) -> None:
        while not self._over.is_set():
            if self._crowded():
                self._over.wait(0.2)
                continue
            message = self._made(rng)
            if rng.random() < TWICE:
                beside = threading.Thread(
                    target=self._deliver, args=(message, random.Random(rng.random())), daemon=True
                )
                beside.start()
                self._deliver(message, rng)
                beside.join()
            else:
                self._deliver(message, rng)
            if rng.random() < TWICE:  # a sender that is not sure sends again
                self._deliver(message, rng)
            self._over.wait(rng.uniform(0, 2 * self._pace))

    def _made(self, rng: random.Random) -> Message:
        with self._lock:
            self._count += 1
            number = self._count
        uuid, source_id = f"m-{self._seed}-{number}", rng.choice(self._sources)
        now = datetime.now(UTC)
        own = rng.random() < 0.7
        document: dict[str, Any] = {"source_id": source_id, "request_uuid": uuid}
        window: tuple[int, int] | None = None
        if own and rng.random() >= STANDARD:
            start = BEGIN + timedelta(seconds=number)
            window = (round(start.timestamp() * 1000), round(start.timestamp() * 1000) + 1000)
            document |= {
                "trigger": "webhook",
                "event_type": "file.changed",
                "sent_at": now.isoformat(timespec="seconds").replace("+00:00", "Z"),
                "metadata": {"window": f"{start:%Y-%m-%dT%H:%M:%SZ}/PT1S"},
            }
            body = json.dumps(document).encode()
            headers = {"X-KFM-Signature": sign_kfm(SECRET.encode(), body)}
        else:
            body = json.dumps(document | {"type": "file.changed"}).encode()
            at = int(now.timestamp())
            headers = {
                "webhook-id": uuid,
                "webhook-timestamp": str(at),
                "webhook-signature": sign_standard(SECRET, uuid, at, body),
            }
        message = Message(uuid, source_id, window, body, {"Content-Type": "application/json", **headers})
        with self._lock:
            self.messages.append(message)
        return message

    def _deliver(self, message: Message, rng: random.Random) -> None:
        while not self._given_up.is_set():
            services = self._services()
            if services:
                answer = post(rng.choice(services), message, self._patience)
                with self._lock:
                    if answer is None:
                        message.unanswered += 1
                    else:
                        message.answers.append(answer)
                if answer is not None and answer[0] < 500:
                    return
            time.sleep(0.05)


def post(
    service: Address, message: Message, patience_seconds: float = ANSWER_SECONDS_MAX
) -> tuple[int, str | None] | None:
    """What it was told; None if the answer did not come."""
    connection = http.client.HTTPConnection(*service, timeout=patience_seconds)
    try:
        connection.request("POST", f"/hooks/{message.source_id}", message.body, message.headers)
        response = connection.getresponse()
        text = response.read()
        try:
            told = json.loads(text)
        except ValueError:
            told = {}
        return response.status, told.get("request_id") if isinstance(told, dict) else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
