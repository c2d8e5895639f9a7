"""Incidents as signed webhooks, by the Standard Webhooks scheme. Any 2xx is a receipt; nothing else is."""

from __future__ import annotations

from kfm.model.errors import BackendUnavailable, CollectorRefused, ConfigError
from kfm.model.redaction import redact
from kfm.model.webhook_signatures import sign_standard
from kfm.ports import Clock

ANSWER_BYTES_MAX = 4_096
ANSWER_CHARS_MAX = 200
SECRETS_MAX = 4
# The change is at fault, or the endpoint is gone for good: sending the same again at once changes nothing.
REFUSALS = frozenset({400, 410, 411, 413, 415, 422})


class WebhookNotifier:
    """Several secrets, separated by spaces or lines, sign each message, so that secrets can be rotated."""

    def __init__(self, url: str, secret: str, clock: Clock, *, shown: str, timeout_ms: int) -> None:
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
        return None

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
        import httpx  # late: needed for webhooks only

        try:
            with httpx.stream(
                "POST",
                self._url,
                content=body,
                headers=self.headers(change_id, body),
                timeout=self._timeout_ms / 1000,
                follow_redirects=False,
            ) as answer:
                received = b""
                for chunk in answer.iter_raw(ANSWER_BYTES_MAX):
                    received += chunk
                    if len(received) >= ANSWER_BYTES_MAX:
                        break
                return answer.status_code, received
        except httpx.TimeoutException:
            raise BackendUnavailable(f"{self._shown} did not answer in time.") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            # Not its words: they may quote the address.
            raise BackendUnavailable(f"{self._shown} can't be reached: {type(error).__name__}.") from None
