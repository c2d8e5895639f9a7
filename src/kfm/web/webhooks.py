"""`POST /hooks/{source_id}`: a signed webhook becomes a durable request; failures are logged by hash."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kfm.config.live import WebhookSecrets
from kfm.model.errors import BackendUnavailable, Busy, KfmError, Refused, UsageError, WebhookReused
from kfm.model.requests import UpdateRequest
from kfm.model.settings import SourceSettings, Webhook
from kfm.model.times import rfc3339
from kfm.model.webhooks import (
    HEADERS,
    Receiver,
    WebhookEnvelope,
    WebhookRefusal,
    as_request,
    missing_signature,
    not_json,
    read_webhook,
    receiver,
    too_large,
    too_slow,
)
from kfm.web.accept_queue import Accepted
from kfm.web.problems import JSON, RETRY_AFTER, answer, log_error, problem

PREVIEWS_MAX = 2  # a preview is a whole run without its commit: more at a time would starve accepted requests
PREVIEW_SECONDS_MAX = 20.0  # that one waits for those of other sources
BODY_SECONDS_MAX = 30.0  # against slow senders that hold connections
_STATUS = "/api/v1/requests/"
_WANTED = frozenset({*(name.encode() for name in HEADERS), b"content-type", b"content-length"})

_ACCEPTED_HEADERS = (
    (b"content-type", JSON.encode()),
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
)

Accept = Callable[[UpdateRequest], Awaitable[Accepted]]
Preview = Callable[[UpdateRequest], Awaitable[dict[str, Any]]]
NAME = "webhook_failures.jsonl"
BYTES_MAX = 4 * 1024 * 1024  # then it becomes NAME.1, which is replaced
LINES_PER_SECOND = 50
BURST = 200


class SenderGone(Exception):
    """The sender disconnected before the end of its request."""


class Webhooks:
    """The receiver of webhooks."""

    def __init__(
        self,
        sources: Callable[[], WebhookSecrets],
        *,
        now_ms: Callable[[], int],
        accept: Accept,
        preview: Preview,
        failures: Failures,
        decoy: str,
        redact: Callable[[str], str] = str,
        body_max: int,
        body_seconds_max: float = BODY_SECONDS_MAX,
        previews_max: int = PREVIEWS_MAX,
        preview_seconds_max: float = PREVIEW_SECONDS_MAX,
    ) -> None:
        """`sources` are those that have a `webhook` now, with their secrets: another object if they changed.

        `decoy` is a random secret: signatures for unknown sources are compared with it, in the same time.

        `redact` takes secrets out of what a sender gives as a reason.
        """
        self._sources = sources
        self._known: WebhookSecrets = {}
        self._receivers: dict[str, Receiver] = {}
        nowhere = SourceSettings(id="", dataset="", kind="", webhook=Webhook(secrets=("",)))
        self._nowhere = receiver(nowhere, (decoy,))
        self._now_ms = now_ms
        self._accept = accept
        self._preview = preview
        self._previewed: set[str] = set()  # sources of which one is being made, or waits
        self._preview_slots = asyncio.Semaphore(previews_max)
        self._preview_seconds_max = preview_seconds_max
        self._answered: dict[str, int] = {}  # dry-runs in GitHub's way → until when they are fresh
        self._failures = failures
        self._redact = redact
        self._body_max = body_max
        self._body_seconds_max = body_seconds_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(scope, receive)
        except SenderGone:
            return
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        source_id = scope["path_params"]["source_id"]
        known = self._receiver(source_id)
        headers = _headers(scope)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON and not kind.endswith("+json"):
            return self._refuse(known, None, not_json())
        if headers.keys().isdisjoint(HEADERS):
            return self._refuse(known, None, missing_signature())
        try:
            async with asyncio.timeout(self._body_seconds_max):
                body = await _body(receive, headers.get("content-length"), self._body_max)
        except TimeoutError:
            return self._refuse(known, None, too_slow())
        if body is None:
            return self._refuse(known, None, too_large(self._body_max))
        now_ms = self._now_ms()
        read = read_webhook(known or self._nowhere, headers, body, now_ms, self._body_max)
        if isinstance(read, WebhookRefusal) or known is None:
            assert isinstance(read, WebhookRefusal), "the decoy is a random secret"
            return self._refuse(known, body, read)
        return await self._take(scope, known, read, now_ms)

    def _receiver(self, source_id: str) -> Receiver | None:
        sources = self._sources()
        if sources is not self._known:
            made = [(one[0].names, receiver(*one)) for one in sources.values()]
            self._receivers = {name: one for names, one in made for name in names}
            self._known = sources
        return self._receivers.get(source_id)

    async def _take(self, scope: Scope, to: Receiver, envelope: WebhookEnvelope, now_ms: int) -> Response:
        if envelope.is_ping:
            return answer({"status": "pong"}, JSON)
        request = as_request(self._redacted(envelope), to.source, now_ms)
        try:
            if envelope.dry_run:
                return await self._dry_run(request, to, envelope)
            accepted = await self._accept(request)
        except KfmError as error:
            return _failure(error, preview=envelope.dry_run)
        first = accepted.first
        if first is not None:
            self._failures.note(to.source.id, envelope.envelope_hash, "reused", WebhookReused.code)
            return _reused(first)
        address = f"{scope.get('root_path', '')}{_STATUS}{request.request_id}"
        document = {"request_id": request.request_id, "status": "accepted", "status_url": address}
        return _AcceptedResponse(msgspec.json.encode(document), address)

    def _redacted(self, envelope: WebhookEnvelope) -> WebhookEnvelope:
        redacted = {
            name: self._redact(text)
            for name in ("rationale", "ticket", "correction", "claimed_actor")
            if (text := getattr(envelope, name)) is not None
        }
        return msgspec.structs.replace(envelope, **redacted) if redacted else envelope

    async def _dry_run(self, request: UpdateRequest, to: Receiver, envelope: WebhookEnvelope) -> Response:
        if envelope.scheme != "github":
            return await self._previewed_once(request)
        # Its time is in the body: the same body again is a copy, not another question.
        now_ms = self._now_ms()
        self._answered = {key: until for key, until in self._answered.items() if until >= now_ms}
        key = f"{request.source_id}/{envelope.envelope_hash}"
        if key in self._answered:
            self._failures.note(request.source_id, envelope.envelope_hash, "reused", WebhookReused.code)
            return problem(409, "This dry-run was sent before.", WebhookReused.code)
        self._answered[key] = (envelope.sent_at_ms or now_ms) + to.tolerance_ms
        try:
            return await self._previewed_once(request)
        except Busy:
            self._answered.pop(key, None)  # the sender is told to come back with it
            raise

    async def _previewed_once(self, request: UpdateRequest) -> Response:
        """One at a time for each source: a source that asks and asks waits for itself, not others for it."""
        if request.source_id in self._previewed:
            raise Busy("Another preview of this source is being made.")
        self._previewed.add(request.source_id)
        try:
            await self._preview_slot()
            try:
                return answer(await self._preview(request), JSON)
            finally:
                self._preview_slots.release()
        finally:
            self._previewed.discard(request.source_id)

    async def _preview_slot(self) -> None:
        try:
            async with asyncio.timeout(self._preview_seconds_max):
                await self._preview_slots.acquire()
        except TimeoutError:
            raise Busy("Other previews are being made.") from None

    def _refuse(self, known: Receiver | None, body: bytes | None, refusal: WebhookRefusal) -> Response:
        hashed = None if body is None else "sha256:" + sha256(body).hexdigest()
        source_id = known.source.id if known is not None else None
        reason = refusal.reason if known is not None else f"unknown-source:{refusal.reason}"
        self._failures.note(source_id, hashed, reason, refusal.code)
        headers = {"WWW-Authenticate": "Signature"} if refusal.status == 401 else {}
        if refusal.status in (408, 413):
            headers["Connection"] = "close"  # the rest is not read
        return problem(refusal.status, refusal.detail, refusal.code, headers)


class _AcceptedResponse(Response):
    """The response to most requests, without the overhead of a general response."""

    def __init__(self, body: bytes, address: str) -> None:
        self.status_code = 202
        self.background = None
        self.body = body
        self.raw_headers = [
            *_ACCEPTED_HEADERS,
            (b"location", address.encode("latin-1", "replace")),
            (b"content-length", b"%d" % len(body)),
        ]


def hook_routes(hooks: Webhooks) -> list[Route]:
    return [Route("/hooks/{source_id}", hooks, methods=["POST"])]


def _headers(scope: Scope) -> dict[str, str]:
    """The headers that are read. Repeated ones are joined with a comma, which no signature holds."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        if name in _WANTED:
            key, text = name.decode("ascii"), value.decode("latin-1")
            found[key] = f"{found[key]}, {text}" if key in found else text
    return found


async def _body(receive: Receive, length: str | None, body_max: int) -> bytes | None:
    """None if it is too large, by its content length or by its bytes so far."""
    if length is not None and length.isascii() and length.isdigit() and int(length[:20]) > body_max:
        return None
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise SenderGone
        part = message.get("body", b"")
        size += len(part)
        if size > body_max:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _reused(first: UpdateRequest) -> Response:
    return problem(
        409,
        f"It was accepted as request {first.request_id}"
        + (f", which became run {first.run_id}." if first.run_id else ", which has no run yet."),
        WebhookReused.code,
        request_id=first.request_id,
        run_id=first.run_id,
    )


def _failure(error: KfmError, *, preview: bool) -> Response:
    """The problem of a request that was not accepted, or of a preview that failed.

    Only the headline of the error: its detail may name files or quote data.
    """
    headline = type(error)().message
    if isinstance(error, BackendUnavailable | Busy):
        if isinstance(error, BackendUnavailable):
            log_error(error)
        detail = headline if preview or isinstance(error, Busy) else "The ledger can't be written at present."
        return problem(503, detail, error.code, RETRY_AFTER)
    if preview:
        status = 400 if isinstance(error, UsageError) else 403 if isinstance(error, Refused) else 422
        return problem(status, headline, error.code)
    log_error(error)
    return problem(500, "Something went wrong; it was not accepted.", KfmError.code)


class Failures:
    """The log of refused webhooks, `folder`/webhook_failures.jsonl. Errors of the file change no answer."""

    def __init__(
        self,
        folder: str,
        now_ms: Callable[[], int],
        *,
        bytes_max: int = BYTES_MAX,
        per_second: int = LINES_PER_SECOND,
        burst: int = BURST,
    ) -> None:
        self._path = f"{folder}/{NAME}"
        self._now_ms = now_ms
        self._bytes_max = bytes_max
        self._per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._last_ms = now_ms()
        self._unwritten = 0

    def note(self, source_id: str | None, envelope_hash: str | None, reason: str, code: str) -> None:
        """`source_id` is None for an unknown source: its name comes from an unauthenticated sender."""
        now_ms = self._now_ms()
        self._left = min(self._burst, self._left + max(0, now_ms - self._last_ms) * self._per_second / 1000)
        self._last_ms = now_ms
        if self._left < 1:
            self._unwritten += 1
            return
        self._left -= 1
        line = {
            "time": rfc3339(now_ms),
            "source_id": source_id,
            "envelope_hash": envelope_hash,
            "reason": reason,
            "code": code,
        }
        if self._unwritten:
            line["unwritten_before"] = self._unwritten  # type: ignore[assignment]
        with suppress(OSError):
            self._append(msgspec.json.encode(line) + b"\n")
            self._unwritten = 0

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size + len(line) > self._bytes_max:
                self._rotate(descriptor)
                os.close(descriptor)
                descriptor = -1
                descriptor = os.open(self._path, flags, 0o600)
            os.write(descriptor, line)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _rotate(self, descriptor: int) -> None:
        """Of several processes that see a full file, one moves it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        full, there = os.fstat(descriptor), os.stat(self._path)
        if (full.st_dev, full.st_ino) == (there.st_dev, there.st_ino):
            os.replace(self._path, f"{self._path}.1")
