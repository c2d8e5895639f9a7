"""What `kfm webhook` needs of the world: the time, new ids, randomness, and one request."""

from __future__ import annotations

import os
from typing import NamedTuple

from kfm.model.errors import BackendUnavailable
from kfm.model.webhooks import SECRET_BYTES, secret_text
from kfm.system import SystemClock, SystemIds

ANSWER_BYTES_MAX = 4 * 1024 * 1024
TIMEOUT_SECONDS = 120.0  # a dry-run does all the work of a run


class SentWebhook(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def now_ms() -> int:
    return SystemClock().now_ms()


def new_id() -> str:
    return SystemIds().new()


def new_secret() -> str:
    return secret_text(os.urandom(SECRET_BYTES))


def post(url: str, headers: dict[str, str], body: bytes, *, local: bool) -> SentWebhook:
    """One request, sent once. Redirects are not followed: a signature is for one address."""
    import httpx

    try:
        with (
            httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=not local, follow_redirects=False) as client,
            client.stream("POST", url, content=body, headers={**headers, "User-Agent": "kfm"}) as answer,
        ):
            received = b""
            for chunk in answer.iter_bytes():
                received += chunk
                if len(received) > ANSWER_BYTES_MAX:
                    break
            return SentWebhook(answer.status_code, dict(answer.headers), received[:ANSWER_BYTES_MAX])
    except httpx.TimeoutException:
        raise BackendUnavailable("The service did not answer in time.") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise BackendUnavailable(
            f"The service can't be reached: {type(error).__name__}.",
            remedy="Is `kfm serve` running? Name its address with --url.",
        ) from None
