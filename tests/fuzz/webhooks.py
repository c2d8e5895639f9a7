"""Forged webhooks: genuine ones that were changed on the way, and signed ones with hostile bodies.

Of the forged none may be accepted, whatever was changed: `accepted` means that every signed byte is the
sender's. Of the signed ones some are; but each is answered, and none with a failure of ours.
"""

from __future__ import annotations

import asyncio
import random
import socket
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kfm.model.requests import UpdateRequest
from kfm.model.webhooks import WebhookRefusal, as_request, read_webhook
from kfm.web.accept_queue import Accepted
from kfm.web.webhooks import Failures, Webhooks, hook_routes
from tests.fuzz.mutate import mutated
from tests.webhook_samples import NOW_MS, SECRETS, encoded, github, kfm, payload, source, standard, to

STATUSES = {400, 401, 403, 413, 415}
TO = {name: to(signature=name) for name in ("hmac", "legacy-concat")}
SOURCE = TO["hmac"].source
BODIES = (
    encoded(payload(request_uuid="u-1", dry_run=False, metadata={"window": "P1D", "rationale": "why"})),
    encoded(payload()),
    encoded({"ref": "main", "n": [1, 2.5, None], "source_id": "gauges"}),
    encoded({"type": "a.b", "data": {}}),
)
SIGN = {"kfm": kfm, "github": github, "standard": standard}


class Message(NamedTuple):
    headers: dict[str, str]
    body: bytes


def genuine(rng: random.Random) -> Message:
    scheme = rng.choice(("kfm", "github", "standard"))
    body = BODIES[rng.randrange(2)] if scheme == "kfm" else BODIES[2 + rng.randrange(2)]
    return Message(_GENUINE[scheme, body], body)


_GENUINE = {
    (scheme, body): sign(body)
    for scheme, sign in SIGN.items()
    for body in (BODIES[:2] if scheme == "kfm" else BODIES[2:])
}


def forged(message: Message, rng: random.Random) -> Message:
    """Something was changed: the body, a header, which scheme it claims, or where it came from."""
    headers, body = dict(message.headers), message.body
    throw = rng.random()
    if throw < 0.45:
        body = mutated(body, rng)
    elif throw < 0.85:
        name = rng.choice(sorted(headers))
        headers[name] = mutated(headers[name].encode("latin-1"), rng).decode("latin-1")
    elif throw < 0.9:
        del headers[rng.choice(sorted(headers))]
    elif throw < 0.95:
        _, other = rng.choice(sorted(_GENUINE.items(), key=lambda item: item[0]))
        headers = {**headers, **other} if rng.random() < 0.5 else dict(other)
    else:
        renamed = rng.choice(("x-kfm-signature", "x-hub-signature-256", "webhook-signature"))
        headers[renamed] = headers.pop(rng.choice(sorted(headers)))
    return Message(headers, body)


def is_whole(message: Message) -> bool:
    """Is every signed byte the sender's after all, and the signature the one that he made?"""
    for (scheme, body), headers in _GENUINE.items():
        if body != message.body:
            continue
        said, (name, true) = message.headers, next(reversed(headers.items()))
        if scheme != "standard" and said.get(name, "").lower() == true.lower():
            return True  # hex has two cases
        names = ("webhook-id", "webhook-timestamp")
        if scheme == "standard" and all(headers[each] == said.get(each) for each in names):
            return true[3:] in map(_spelt, said.get(name, "").split(" "))
    return False


def _spelt(one: str) -> str:
    """One of several signatures as everybody would write it: the last character of base64 has idle bits."""
    try:
        return b64encode(b64decode(one.removeprefix("v1,"), validate=True)).decode()
    except ValueError:
        return ""


def judge(message: Message, way: str = "hmac") -> str:
    """What became of it, in a word; anything but a refusal of a forged one is a defect."""
    found = read_webhook(TO[way], message.headers, message.body, NOW_MS, 8192)
    assert isinstance(found, WebhookRefusal), f"accepted: {message!r}"
    assert found.status in STATUSES, found
    return found.reason


def _altered(rng: random.Random) -> Message:
    """A forged one that is not, by chance, what the sender has signed."""
    while is_whole(message := forged(genuine(rng), rng)):
        pass
    return message


def forge(count: int, seed: str) -> Counter[str]:
    rng = random.Random(f"forged/{seed}")
    words: Counter[str] = Counter()
    for number in range(count):
        message = _altered(rng)
        words[judge(message, "legacy-concat" if number % 8 == 0 else "hmac")] += 1
    return words


def signed(count: int, seed: str) -> Counter[str]:
    """A sender who has the secret may send anything: it is answered, too."""
    rng = random.Random(f"signed/{seed}")
    words: Counter[str] = Counter()
    for _ in range(count):
        scheme = rng.choice(sorted(SIGN))
        body = mutated(rng.choice(BODIES), rng)
        found = read_webhook(TO["hmac"], SIGN[scheme](body), body, NOW_MS, 8192)
        if isinstance(found, WebhookRefusal):
            assert found.status in STATUSES
            words[found.reason] += 1
            continue
        request = as_request(found, SOURCE, NOW_MS)
        assert request.window_start_ms < request.window_end_ms
        words["accepted"] += 1
    return words


# --- through the route, and over sockets ----------------------------------------------------------------


def app(folder: str) -> Any:
    """The service's route, with a ledger that takes everything."""
    from starlette.applications import Starlette

    async def accept(request: UpdateRequest) -> Accepted:
        return Accepted(request, None)

    async def preview(_request: UpdateRequest) -> dict[str, Any]:
        return {}

    sources = {"gauges": (source(), SECRETS)}
    hooks = Webhooks(
        lambda: sources,
        now_ms=lambda: NOW_MS,
        accept=accept,
        preview=preview,
        failures=Failures(folder, lambda: NOW_MS),
        decoy="no source has this as a secret",
        body_max=8192,
    )
    return Starlette(routes=hook_routes(hooks))


def route(count: int, seed: str, folder: str) -> Counter[int]:
    """Forged messages through the route: its statuses."""
    rng, served = random.Random(f"route/{seed}"), app(folder)

    async def ask(message: Message) -> int:
        scope = {
            "type": "http",
            "method": "POST",
            "path": f"/hooks/{rng.choice(('gauges', 'gauges', 'nowhere'))}",
            "root_path": "",
            "query_string": b"",
            "headers": [
                (b"content-type", b"application/json"),
                *((name.encode(), value.encode("latin-1")) for name, value in message.headers.items()),
            ],
        }
        at = rng.randrange(len(message.body) + 1)
        parts = [(message.body[:at], True), (message.body[at:], False)]
        told: list[int] = []

        async def receive() -> dict[str, Any]:
            part, more = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": more}

        async def send(event: dict[str, Any]) -> None:
            if event["type"] == "http.response.start":
                told.append(event["status"])

        await served(scope, receive, send)
        return told[0]

    async def all_of_them() -> Counter[int]:
        statuses: Counter[int] = Counter()
        for _ in range(count):
            message = _altered(rng)
            status = await ask(message)
            assert status in STATUSES, (status, message)
            statuses[status] += 1
        return statuses

    return asyncio.run(all_of_them())


def sockets(count: int, seed: str, folder: str) -> Counter[str]:
    """Whole requests in which any byte may be changed, to a real server: what its answers begin with."""
    rng = random.Random(f"sockets/{seed}")
    answers: Counter[str] = Counter()
    with _served(folder) as address:
        for _ in range(count):
            message = genuine(rng)
            head = "".join(f"{name}: {value}\r\n" for name, value in message.headers.items())
            raw = (
                "POST /hooks/gauges HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\n{head}Content-Length: {len(message.body)}\r\n\r\n"
            ).encode() + message.body
            sent = mutated(raw, rng)
            with socket.create_connection(address, timeout=20) as line:
                line.sendall(sent)
                line.shutdown(socket.SHUT_WR)
                told = line.recv(4096)
            status = told.split(b" ", 2)[1].decode() if told.startswith(b"HTTP/1.1 ") else "closed"
            assert not status.startswith("5"), (status, sent)
            assert status != "202" or message.body in sent, sent
            answers[status] += 1
    return answers


@contextmanager
def _served(folder: str) -> Iterator[tuple[str, int]]:
    from tests.catalogue_server import serving

    with serving(app(folder)) as url:
        host, port = url.removeprefix("http://").split(":")
        yield host, int(port)


def campaign(count: int, seed: str, folder: Path) -> Iterator[str]:
    """All of it, in lines that can be read."""
    yield f"webhook_forged: {count} messages, {dict(forge(count, seed).most_common())}"
    yield f"webhook_signed: {count // 10} messages, {dict(signed(count // 10, seed).most_common())}"
    yield f"webhook_route: {count // 50} messages, {dict(route(count // 50, seed, str(folder)))}"
    yield f"webhook_sockets: {count // 500} requests, {dict(sockets(count // 500, seed, str(folder)))}"
