"""Events to an OpenLineage collector over HTTP, by way of openlineage-python's transport.

Its configuration, authentication and session are used; its serialiser is not: it would drop members and
write other bytes than the ones that were stored. Its retries are off: the outbox tries again.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urljoin

from kfm.model.errors import BackendUnavailable, CollectorRefused, ConfigError, ExtraMissing
from kfm.model.redaction import redact, redact_url
from kfm.model.runs import OutboxMessage
from kfm.ports import Clock

ANSWER_BYTES_MAX = 4096
CALL_MS = 1_000  # after this long, what has arrived is reported before more is sent
NO_RETRIES = {"total": 0, "read": 0, "connect": 0, "status_forcelist": []}
# The event is at fault, not the way to the collector: sending it again changes nothing.
REFUSALS = frozenset({400, 406, 409, 410, 411, 412, 413, 415, 422, 431})
ONCE_BACK = "Nothing is lost: `kfm lineage deliver` sends what waits once it is back."
_TOKEN = "Nothing is lost: correct lineage.token or OPENLINEAGE_API_KEY, then `kfm lineage deliver`."
_ADDRESS = "Nothing is lost: correct lineage.url or OPENLINEAGE_URL, then `kfm lineage deliver`."
WAYS_OUT = {
    401: _TOKEN,
    403: _TOKEN,
    404: _ADDRESS,
    301: _ADDRESS,
    302: _ADDRESS,
    307: _ADDRESS,
    308: _ADDRESS,
}


class HttpCollector:
    """Posts each event, in order, and believes nothing but a 2xx."""

    def __init__(self, transport: Mapping[str, Any], clock: Clock, *, timeout_ms: int) -> None:
        """`transport` is what OpenLineage's clients are configured with: url, endpoint, auth, …"""
        self._clock = clock
        self._transport = _transport(transport, timeout_ms)
        self._url = urljoin(self._transport.url, self._transport.endpoint)
        self._shown = redact_url(self._url)
        self._trouble: tuple[int, BackendUnavailable] | None = None  # met after something had arrived

    def deliver(self, messages: Sequence[OutboxMessage]) -> int:
        trouble, self._trouble = self._trouble, None
        if trouble is not None and messages and messages[0].number == trouble[0]:
            raise trouble[1]
        until_ms = self._clock.monotonic_ms() + CALL_MS
        for number, message in enumerate(messages):
            if number and self._clock.monotonic_ms() >= until_ms:
                return number
            try:
                self._post(message)
            except BackendUnavailable as error:
                if not number:
                    raise
                self._trouble = (message.number, error)  # what has arrived is reported first
                return number
        return len(messages)

    def close(self) -> None:
        self._transport.close()

    def _post(self, message: OutboxMessage) -> None:
        status, answer = self._answer(message)
        if 200 <= status < 300:
            return
        words = redact(" ".join(answer.decode("utf-8", "replace").split())[:300])
        if status in REFUSALS:
            raise CollectorRefused(
                f"{self._shown} answered {status} to event {message.event_id}. {words}".strip()
            )
        if 300 <= status < 400:
            words = "Redirects are not followed: name the collector's final address."
        raise self._unavailable(f"answered {status}. {words}".strip(), WAYS_OUT.get(status, ONCE_BACK))

    def _answer(self, message: OutboxMessage) -> tuple[int, bytes]:
        """The status and the first words of what is answered, in a bounded time.

        The transport's timeout is for each read. A collector that answers a byte at a time would hold us for
        as long as it likes, so the whole has that time, too; a thread that is left behind ends with us.
        """
        outcome: list[tuple[int, bytes] | BackendUnavailable] = []

        def ask() -> None:
            try:
                outcome.append(self._exchange(message))
            except BackendUnavailable as error:
                outcome.append(error)

        asking = threading.Thread(target=ask, name="kfm-lineage-post", daemon=True)
        asking.start()
        asking.join(self._transport.timeout)
        if not outcome:
            raise self._unavailable("did not answer in time.")
        if isinstance(outcome[0], BackendUnavailable):
            raise outcome[0]
        return outcome[0]

    def _exchange(self, message: OutboxMessage) -> tuple[int, bytes]:
        import requests

        transport = self._transport
        body = message.body.encode("utf-8")
        headers = {"Content-Type": "application/json", **transport.config.custom_headers}
        if transport.compression is not None:
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(body, compresslevel=3, mtime=0)
        try:
            bearer = transport.config.auth.get_bearer()
            with transport.session.post(
                self._url,
                data=body,
                headers=headers,
                auth=_Bearer(bearer),
                timeout=transport.timeout,
                verify=transport.verify,
                cert=getattr(transport, "cert", None),
                allow_redirects=False,
                stream=True,
            ) as answer:
                received = answer.raw.read(ANSWER_BYTES_MAX, decode_content=True)
                return int(answer.status_code), bytes(received)
        except (requests.RequestException, OSError, RuntimeError, ValueError) as error:
            raise self._unavailable(_reason(error)) from None
        except Exception as error:  # noqa: BLE001 - urllib3 raises its own while an answer is read
            raise self._unavailable(f"broke off: {type(error).__name__}.") from None

    def _unavailable(self, reason: str, remedy: str = ONCE_BACK) -> BackendUnavailable:
        return BackendUnavailable(f"The lineage collector {self._shown} {reason}", remedy=remedy)


class _Bearer:
    """Sets the token, or nothing; also keeps requests from looking for passwords in ~/.netrc."""

    def __init__(self, bearer: str | None) -> None:
        self._bearer = bearer

    def __call__(self, request: Any) -> Any:
        if self._bearer:
            request.headers["Authorization"] = self._bearer
        return request


def _transport(given: Mapping[str, Any], timeout_ms: int) -> Any:
    try:
        from openlineage.client.transport.http import HttpConfig, HttpTransport
    except ImportError:
        raise ExtraMissing(
            "Sending lineage over HTTP needs openlineage-python: install kfm-kernel[lineage]."
        ) from None
    try:
        wanted = {"timeout": timeout_ms / 1000, **given, "retry": NO_RETRIES}
        wanted["timeout"] = float(wanted["timeout"])
        return HttpTransport(HttpConfig.from_dict(wanted))
    except (ValueError, TypeError, KeyError, RuntimeError, AttributeError, ImportError) as error:
        raise ConfigError(f"The lineage collector can't be used: {redact(str(error))}") from None


def _reason(error: Exception) -> str:
    """In few words: requests quotes addresses, and whatever stands in them."""
    import requests

    cause = getattr(error.args[0], "reason", None) if error.args else None
    if isinstance(error, requests.Timeout) or "Timeout" in type(cause).__name__:
        return "did not answer in time."
    if isinstance(error, requests.exceptions.SSLError):
        return "has a certificate that can't be verified."
    if isinstance(error, requests.ConnectionError):
        return "can't be reached."
    return f"can't be used: {type(error).__name__}."
