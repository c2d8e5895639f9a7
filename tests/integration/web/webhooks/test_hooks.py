"""Webhooks over a real server, with a real ledger: what is answered, and what is left behind."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from kfm.db.connection import open_store
from kfm.db.ledger import Ledger
from kfm.db.requests import Requests
from kfm.model import keys
from kfm.model.errors import (
    BackendUnavailable,
    GateDenied,
    KfmError,
    LockHeld,
    PipelineFailed,
    UpstreamUnavailable,
    WindowError,
)
from kfm.model.records import Trigger
from kfm.model.requests import UpdateRequest
from kfm.model.settings import SourceSettings, Webhook
from kfm.model.times import rfc3339
from kfm.model.webhooks import WebhookEnvelope, as_request, read_webhook, receiver
from kfm.web.accept_queue import AcceptQueue
from kfm.web.problems import on_error, on_http
from kfm.web.webhooks import NAME, Failures, Webhooks, hook_routes
from tests.catalogue_server import serving
from tests.stand_ins import FakeClock
from tests.webhook_samples import NOW_MS, OLD_SECRET, SECRETS, encoded, github, kfm, payload, source, standard

pytestmark = pytest.mark.req("UPD-12")
BODY_MAX = 4096
JSON = {"content-type": "application/json"}


class Desk:
    """A service with one source that may be asked for, and one that may not."""

    def __init__(self, folder: Path, **bounds: Any) -> None:
        self.bounds = bounds
        self.folder = folder
        self.previews: list[UpdateRequest] = []
        self.trouble: KfmError | None = None
        self.body_seconds_max = 20.0
        self.previewing = threading.Semaphore(0)
        self.preview_gate = threading.Event()
        self.preview_gate.set()
        self.url = ""

    @contextmanager
    def store(self) -> Iterator[Ledger]:
        store = open_store(None, str(self.folder), FakeClock(NOW_MS))
        assert isinstance(store, Ledger)
        try:
            yield store
        finally:
            store.close()

    @contextmanager
    def requests(self) -> Iterator[Requests]:
        if self.trouble is not None:
            raise self.trouble
        with self.store() as store:
            yield store.requests()

    async def preview(self, request: UpdateRequest) -> dict[str, Any]:
        from starlette.concurrency import run_in_threadpool

        self.previews.append(request)
        self.previewing.release()
        if self.trouble is not None:
            raise self.trouble
        await run_in_threadpool(self.preview_gate.wait, 10)
        return {"dry_run": True, "plan": {"digest": "sha256:00"}}

    @contextmanager
    def open(self) -> Iterator[Desk]:
        intake = AcceptQueue(self.requests)
        intake.start()
        wells = SourceSettings(
            id="wells", dataset="w", kind="files", folder=".", webhook=Webhook(secrets=("env:W",))
        )
        self.sources = {"gauges": (source(), SECRETS), "wells": (wells, ("the secret of the wells",))}
        hooks = Webhooks(
            lambda: self.sources,
            now_ms=lambda: NOW_MS,
            accept=intake.accept,
            preview=self.preview,
            failures=Failures(str(self.folder), lambda: NOW_MS, burst=10_000),
            decoy="a secret of no source",
            redact=lambda text: text.replace("s3cr3t", "***"),
            body_max=BODY_MAX,
            body_seconds_max=self.body_seconds_max,
            **self.bounds,
        )
        handlers: Any = {HTTPException: on_http, KfmError: on_error, Exception: on_error}
        with serving(Starlette(routes=hook_routes(hooks), exception_handlers=handlers)) as self.url:
            yield self
        intake.close()

    def post(self, headers: dict[str, str], body: Any, to: str = "gauges") -> httpx.Response:
        return httpx.post(f"{self.url}/hooks/{to}", content=body, headers={**JSON, **headers}, timeout=20)

    def kept(self) -> list[UpdateRequest]:
        with self.store() as store:
            return store.requests().requests()

    def failures(self) -> list[dict[str, Any]]:
        path = self.folder / NAME
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with Desk(tmp_path).open() as opened:
        yield opened


def told(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert (document["status"], document["code"]) == (status, code)
    assert document["type"] == f"docs/reference/errors.md#{code.lower()}"
    return document


def test_accepted_when_it_is_durable(desk: Desk) -> None:
    """202 names the request and where to ask for it; it is in the ledger, and its payload is not."""
    body = encoded(payload(request_uuid="u-1", metadata={"rationale": "of s3cr3t gauges", "actor": "ana"}))
    answer = desk.post(kfm(body), body)
    assert answer.status_code == 202
    document = answer.json()
    assert document["status_url"] == f"/api/v1/requests/{document['request_id']}"
    assert answer.headers["location"] == document["status_url"]
    (kept,) = desk.kept()
    assert kept.request_id == document["request_id"]
    assert (kept.state, kept.actor, kept.claimed_actor) == ("open", "webhook:gauges", "ana")
    assert kept.rationale == "of *** gauges"
    assert desk.failures() == []


@pytest.mark.parametrize("sign", [github, standard])
def test_other_senders_are_accepted(desk: Desk, sign: Any) -> None:
    """GitHub's and Standard Webhooks' signatures count, each once for one delivery."""
    body = encoded({"type": "push", "deep": {"a": [1, 2]}})
    assert desk.post(sign(body), body).status_code == 202
    assert desk.post(sign(body), body).status_code == 409


@pytest.mark.req("TRG-2")
def test_a_second_use_is_refused_also_after_a_restart(desk: Desk, tmp_path: Path) -> None:
    """409 names the first request, and its run once there is one; so does another process later."""
    body = encoded(payload(request_uuid="u-1"))
    first = desk.post(kfm(body), body).json()["request_id"]
    other = encoded(payload(request_uuid="u-1", metadata={"window": "P1M"}))
    document = told(desk.post(kfm(other, OLD_SECRET), other), 409, "KFM321")
    assert (document["request_id"], document["run_id"]) == (first, None)
    with desk.store() as store:
        from kfm.model.requests import RequestOutcome

        claimed = store.requests().claim("worker", 60_000, lambda _worker: False)
        assert claimed is not None
        ending = RequestOutcome(state="done", outcome="success", reason="published", run_id="run-1")
        assert store.requests().settle(claimed, ending)
    with Desk(tmp_path).open() as again:
        document = told(again.post(kfm(body), body), 409, "KFM321")
        assert (document["request_id"], document["run_id"]) == (first, "run-1")
    assert [one["reason"] for one in desk.failures()] == ["reused", "reused"]


@pytest.mark.req("TRG-2")
def test_another_source_has_request_ids_of_its_own(desk: Desk) -> None:
    """One `request_uuid` at two sources is two requests; each of them is good for one use."""
    body, other = (
        encoded(payload(request_uuid="u-1")),
        encoded(payload(source_id="wells", request_uuid="u-1")),
    )
    signed = kfm(other, "the secret of the wells")
    first = desk.post(kfm(body), body).json()["request_id"]
    second = desk.post(signed, other, "wells").json()["request_id"]
    assert first != second
    assert told(desk.post(kfm(body), body), 409, "KFM321")["request_id"] == first
    assert told(desk.post(signed, other, "wells"), 409, "KFM321")["request_id"] == second


def accepted_formerly(desk: Desk, request_uuid: str) -> UpdateRequest:
    """A request for the gauges, under the key of earlier versions, which names no source."""
    body = encoded(payload(request_uuid=request_uuid))
    read = read_webhook(receiver(source(), SECRETS), kfm(body), body, NOW_MS)
    assert isinstance(read, WebhookEnvelope)
    request = as_request(read, source(), NOW_MS)
    key = keys.former_webhook_key(
        Trigger(type="webhook", source_id="gauges", dataset_id="rivers", request_uuid=request_uuid)
    )
    old = replace(request, key=key, request_id=keys.request_id(key))
    with desk.store() as store:
        assert store.requests().accept([old]) == [None]
    return old


@pytest.mark.req("TRG-2")
def test_what_an_earlier_version_accepted_is_not_accepted_again(desk: Desk) -> None:
    """A request under the former key counts for its own source, and for no other."""
    old = accepted_formerly(desk, "u-1")
    body, other = (
        encoded(payload(request_uuid="u-1")),
        encoded(payload(source_id="wells", request_uuid="u-1")),
    )
    assert told(desk.post(kfm(body), body), 409, "KFM321")["request_id"] == old.request_id
    accepted = desk.post(kfm(other, "the secret of the wells"), other, "wells")
    assert accepted.status_code == 202
    assert {one.request_id for one in desk.kept()} == {old.request_id, accepted.json()["request_id"]}


@pytest.mark.req("TRG-9")
def test_strangers_do_not_learn_which_sources_there_are(desk: Desk) -> None:
    """A wrong signature gets the same answer at a source, at one that is not there, and at none's."""
    body = encoded(payload())
    wrong = {"x-kfm-signature": "sha256=" + "0" * 64}
    answers = {
        (answer.status_code, answer.content)
        for to in ("gauges", "wells", "nowhere", "a%20b", "%00")
        for answer in [desk.post(wrong, body, to)]
    }
    assert len(answers) == 1
    assert answers.pop()[0] == 403
    unsigned = {
        (answer.status_code, answer.content)
        for to in ("gauges", "nowhere")
        for answer in [desk.post({}, body, to)]
    }
    assert len(unsigned) == 1
    assert unsigned.pop()[0] == 401
    assert desk.post(kfm(body), body, "wells").status_code == 403, "signed for another source"
    logged = (desk.folder / NAME).read_text()
    assert "nowhere" not in logged
    assert "upstream" not in logged
    assert {one["source_id"] for one in desk.failures()} == {"gauges", "wells", None}
    assert desk.kept() == []


def test_each_refusal_has_its_status(desk: Desk) -> None:
    """401 unsigned, 403 mismatched, stale or for another source, 400 not understood, 415, 413, 405."""
    body = encoded(payload())
    told(desk.post({}, body), 401, "KFM320")
    told(desk.post({**kfm(body), "content-type": "text/plain"}, body), 415, "KFM220")
    told(desk.post(kfm(body + b" "), body), 403, "KFM320")
    other = encoded(payload(source_id="wells"))
    told(desk.post(kfm(other), other), 403, "KFM320")
    stale = encoded(payload(sent_at="2020-01-01T00:00:00Z"))
    assert "too long ago" in told(desk.post(kfm(stale), stale), 403, "KFM320")["detail"]
    double = b'{"a": 1, "a": 2}'
    told(desk.post(kfm(double), double), 400, "KFM220")
    large = encoded(payload(metadata={"rationale": "x" * BODY_MAX}))
    told(desk.post(kfm(large), large), 413, "KFM220")
    assert httpx.get(f"{desk.url}/hooks/gauges").status_code == 405
    assert [(one["reason"], one["code"]) for one in desk.failures()] == [
        ("unsigned", "KFM320"),
        ("content-type", "KFM220"),
        ("mismatch", "KFM320"),
        ("other-source", "KFM320"),
        ("stale", "KFM320"),
        ("body", "KFM220"),
        ("too-large", "KFM220"),
    ]
    assert desk.kept() == []


def test_a_body_without_an_end_is_cut_off(desk: Desk) -> None:
    """Chunks are counted as they come: refused long before all of it was sent."""
    sent: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(2_000):
            sent.append(number)
            yield b"x" * 65_536

    with suppress(httpx.HTTPError):  # closed while it was still sending
        answer = desk.post({"x-kfm-signature": "sha256=" + "0" * 64}, chunks())
        assert answer.status_code == 413
    assert len(sent) < 1_500
    assert [one["reason"] for one in desk.failures()] == ["too-large"]


def test_a_length_that_lies_harms_no_other(desk: Desk) -> None:
    """More announced than sent: the caller leaves, and nothing happens. Far too much: refused unread."""
    host, port = desk.url.removeprefix("http://").split(":")
    head = (
        b"POST /hooks/gauges HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-KFM-Signature: s\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(head + b"Content-Length: 900\r\n\r\n{}")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(head + b"Content-Length: 99999999999999999\r\n\r\n{}")
        assert line.recv(100).startswith(b"HTTP/1.1 413")
    body = encoded(payload())
    assert desk.post(kfm(body), body).status_code == 202


def test_a_body_that_trickles_is_not_waited_for(tmp_path: Path) -> None:
    """Who does not send what he announced is told so, and his connection is closed."""
    slow = Desk(tmp_path)
    slow.body_seconds_max = 0.05
    with slow.open():
        host, port = slow.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as line:
            line.sendall(
                b"POST /hooks/gauges HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"X-KFM-Signature: s\r\nContent-Length: 90\r\n\r\n{"
            )
            assert line.makefile("rb").read().startswith(b"HTTP/1.1 408")
    assert [one["reason"] for one in slow.failures()] == ["too-slow"]


@pytest.mark.req("TRG-4")
def test_a_dry_run_is_answered_and_leaves_nothing(desk: Desk) -> None:
    """The preview comes back; the `request_uuid` stays unused."""
    body = encoded(payload(request_uuid="u-1", dry_run=True))
    for _ in range(2):
        answer = desk.post(kfm(body), body)
        assert answer.status_code == 200
        assert answer.json()["plan"] == {"digest": "sha256:00"}
    assert desk.kept() == []
    real = encoded(payload(request_uuid="u-1"))
    assert desk.post(kfm(real), real).status_code == 202
    assert len(desk.previews) == 2


@pytest.mark.req("TRG-4")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (WindowError, 400),
        (GateDenied, 403),
        (PipelineFailed, 422),
        (UpstreamUnavailable, 503),
        (LockHeld, 503),
    ],
)
def test_a_preview_that_fails_is_no_failure_of_ours(desk: Desk, error: type[KfmError], status: int) -> None:
    """Its code and headline are told, and nothing that may quote the data or name a place."""
    body = encoded(payload(dry_run=True))
    desk.trouble = error("a value s3cr3t of the data")
    answer = desk.post(kfm(body), body)
    document = told(answer, status, error.code)
    assert document["detail"] == error().message
    assert "s3cr3t" not in answer.text


@pytest.mark.req("TRG-4")
def test_one_source_does_not_starve_the_previews_of_others(desk: Desk) -> None:
    """A second preview of a source is told to come back; the first of another source is made meanwhile."""
    body = encoded(payload(dry_run=True))
    desk.preview_gate.clear()
    answers: list[int] = []
    first = threading.Thread(target=lambda: answers.append(desk.post(kfm(body), body).status_code))
    first.start()
    assert desk.previewing.acquire(timeout=10)
    for _ in range(2):
        answer = desk.post(kfm(body), body)
        told(answer, 503, "KFM500")
        assert answer.headers["retry-after"]
    other = encoded(payload(source_id="wells", dry_run=True))
    signed = kfm(other, "the secret of the wells")
    second = threading.Thread(target=lambda: answers.append(desk.post(signed, other, "wells").status_code))
    second.start()
    assert desk.previewing.acquire(timeout=10)
    desk.preview_gate.set()
    for thread in (first, second):
        thread.join(10)
    assert answers == [200, 200]


def test_previews_are_few_at_a_time(tmp_path: Path) -> None:
    """Beyond so many in all, one waits for a while and is then told to come back."""
    patient, hasty = Desk(tmp_path, previews_max=1), Desk(tmp_path, previews_max=1, preview_seconds_max=0.01)
    body, other = encoded(payload(dry_run=True)), encoded(payload(source_id="wells", dry_run=True))
    signed = kfm(other, "the secret of the wells")
    for desk, status in ((patient, 200), (hasty, 503)):
        with desk.open():
            desk.preview_gate.clear()
            made = threading.Thread(target=desk.post, args=(kfm(body), body))
            made.start()
            assert desk.previewing.acquire(timeout=10)
            answers: list[int] = []
            waits = threading.Thread(
                target=lambda: answers.append(desk.post(signed, other, "wells").status_code)  # noqa: B023
            )
            waits.start()
            if status == 503:
                waits.join(10)
            desk.preview_gate.set()
            for thread in (made, waits):
                thread.join(10)
            assert answers == [status]


@pytest.mark.req("UPD-12", "TRG-4")
def test_a_dry_run_in_githubs_way_is_answered_once(desk: Desk) -> None:
    """The same bytes again are refused; those that found us busy may come again, and other bytes anyway."""
    body = encoded({"dry_run": True, "sent_at": rfc3339(NOW_MS)})
    desk.trouble = LockHeld()
    assert desk.post(github(body), body).status_code == 503
    desk.trouble = None
    assert desk.post(github(body), body).status_code == 200
    for _ in range(3):
        told(desk.post(github(body), body), 409, "KFM321")
    assert desk.failures()[-1]["reason"] == "reused"
    other = encoded({"dry_run": True, "sent_at": rfc3339(NOW_MS + 1000)})
    assert desk.post(github(other), other).status_code == 200
    assert len(desk.previews) == 3


@pytest.mark.req("UPD-12")
def test_secrets_and_webhooks_may_change_while_it_serves(desk: Desk) -> None:
    """What is signed with a new secret is taken at once, what is signed with a removed one no more."""
    body = encoded(payload(request_uuid="u-1"))
    new = "another secret, long enough for it"
    told(desk.post(kfm(body, new), body), 403, "KFM320")
    desk.sources = {"gauges": (source(), (new,))}
    assert desk.post(kfm(body, new), body).status_code == 202
    told(desk.post(kfm(body), body), 403, "KFM320")


def test_a_ledger_that_is_away_is_no_acceptance(desk: Desk) -> None:
    """503 with a time to come back; once it is there again the same request is accepted."""
    body = encoded(payload(request_uuid="u-1"))
    desk.trouble = BackendUnavailable("postgresql://ada:s3cr3t@db")
    answer = desk.post(kfm(body), body)
    told(answer, 503, "KFM400")
    assert "s3cr3t" not in answer.text
    assert answer.headers["retry-after"]
    desk.trouble = None
    assert desk.post(kfm(body), body).status_code == 202


def test_a_ping_is_answered(desk: Desk) -> None:
    """GitHub's trial of a new hook starts nothing."""
    body = encoded({"zen": "z", "hook_id": 1, "hook": {"type": "Repository"}})
    assert desk.post(github(body), body).json() == {"status": "pong"}
    assert desk.kept() == []


def test_many_at_once_are_each_accepted_once(desk: Desk) -> None:
    """Of several deliveries of each request, sent at the same time, one is accepted."""
    answers: list[tuple[int, str]] = []
    bodies = [encoded(payload(request_uuid=f"u-{number}")) for number in range(12)]

    def sender() -> None:
        with ExitStack() as stack:
            client = stack.enter_context(httpx.Client(timeout=20))
            for body in bodies:
                answer = client.post(f"{desk.url}/hooks/gauges", content=body, headers={**JSON, **kfm(body)})
                answers.append((answer.status_code, answer.json()["request_id"]))

    threads = [threading.Thread(target=sender) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    accepted = [request_id for status, request_id in answers if status == 202]
    refused = [request_id for status, request_id in answers if status == 409]
    assert len(accepted) == len(set(accepted)) == 12
    assert len(refused) == 36
    assert {one.request_id for one in desk.kept()} == set(accepted) == set(refused)
