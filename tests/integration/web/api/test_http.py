"""The API as HTTP: methods, forms, limits, names, and a real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from kfm.web.api.operation_table import OPERATIONS
from kfm.web.api.routes import BODY_BYTES_MAX
from kfm.web.openapi import statuses
from tests.catalogue_server import serving
from tests.integration.web.api.world import BASE, TOKENS, World

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("http") / "project").past()


def problem(answer: httpx.Response, status: int) -> Any:
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), answer.text
    document = answer.json()
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    return document


def test_methods(world: World) -> None:
    """HEAD is answered like GET, OPTIONS names what can be done, and everything else is refused with it."""
    got, head = world.ask("GET", "/breakers"), world.ask("HEAD", "/breakers")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]
    options = world.ask("OPTIONS", "/requests", None)
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, POST, OPTIONS")
    for method in ("PUT", "DELETE", "PATCH", "TRACE"):
        answer = world.ask(method, "/runs", None)
        problem(answer, 405)
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
    problem(world.ask("POST", "/runs"), 405)
    problem(world.ask("GET", "/switches/all"), 405)


def test_no_such_address(world: World) -> None:
    """What is not there is said to be not there, as a problem."""
    for path in ("/nothing", "/runs/", f"/runs/{world.run_id}/nothing", "/openapi.json/x"):
        problem(world.ask("GET", path), 404)
    problem(world.ask("GET", "/runs/unknown"), 404)
    problem(world.ask("GET", "/runs/%00"), 404)
    problem(world.ask("GET", "/runs/%F0%9F%8C%8A"), 404)
    assert "/api/v1/openapi.json describes the API" in problem(world.ask("GET", "/nowhere"), 404)["detail"]
    assert world.ask("GET", "/openapi.json").status_code == 200


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 200),
        ("*/*", 200),
        ("application/*;q=0.5", 200),
        ("text/html, application/json;q=0.1", 200),
        ("", 200),
        ("text/html", 406),
        ("application/json;q=0", 406),
        ("application/jsonx", 406),
    ],
)
def test_forms(world: World, accept: str, status: int) -> None:
    """A client that accepts JSON gets it; another one gets 406."""
    answer = world.ask("GET", "/whoami", headers={"Accept": accept})
    assert answer.status_code == status


def test_provenance_is_linked_data(world: World) -> None:
    """Provenance is JSON-LD, for clients that accept that or JSON."""
    path = f"/runs/{world.run_id}/provenance"
    for accept in ("application/ld+json", "application/json", "*/*"):
        answer = world.ask("GET", path, headers={"Accept": accept})
        assert answer.headers["content-type"] == "application/ld+json"


@pytest.mark.parametrize(
    "query",
    [
        "nothing=1",
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=x",
        "limit=1&limit=2",
        "limit=١",
        "status=done",
        "since=yesterday",
        "since=2026-02-30T00:00:00Z",
        "cursor=x",
        "cursor=1~",
        "dataset=",
        "dataset=%00",
        "dataset=" + "x" * 600,
        "source=a%0Ab",
    ],
)
def test_odd_parameters(world: World, query: str) -> None:
    """A parameter that is not understood is refused by its name, and never guessed at."""
    assert problem(world.ask("GET", f"/runs?{query}"), 400)["code"] == "KFM200"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"rationale": "a", "rationale": "b"}', 400),
        (b'{"rationale": NaN}', 400),
        (b'{"rationale": "\xff"}', 400),
        (b'{"rationale": "\\ud800"}', 400),
        (b"[" * 5000, 400),
        (b"[]", 422),
        (b"null", 422),
        (b'"text"', 422),
        (b'{"rationale": 1, "position": "paused"}', 422),
        (b'{"rationale": "a", "position": "paused", "more": 1}', 422),
        (b'{"rationale": "a"}', 422),
        (b'{"rationale": "' + b"x" * 4001 + b'", "position": "paused"}', 422),
        (b" " * (BODY_BYTES_MAX + 1), 413),
    ],
)
def test_odd_bodies(world: World, body: bytes, status: int) -> None:
    """A body that readers could disagree about, or that says too much, is refused and does nothing."""
    answer = world.ask("POST", "/switches/all", content=body, headers={"Content-Type": "application/json"})
    problem(answer, status)
    assert world.entries("switch") == []


def test_other_bodies(world: World) -> None:
    """Only JSON is read: a form of a page elsewhere changes nothing."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/xml"):
        answer = world.ask("POST", "/switches/all", content=b"{}", headers={"Content-Type": kind})
        problem(answer, 415)
    problem(world.ask("POST", "/switches/all", content=b""), 415)
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    body = b'{"rationale": "a", "position": "running"}'
    assert world.ask("POST", "/switches/replays:all", content=body, headers=headers).status_code == 200


def test_names(world: World) -> None:
    """A page elsewhere that makes a name of its own lead here learns nothing."""
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost:80:80"):
        problem(world.ask("GET", "/runs", headers={"Host": host}), 421)
    assert world.ask("GET", "/runs", headers={"Host": "localhost:8080"}).status_code == 200


def test_nothing_is_kept_on_the_way(world: World) -> None:
    """No answer, right or wrong, is stored or taken for something else."""
    for path in ("/runs", "/openapi.json", "/nothing", "/runs?limit=0"):
        headers = world.ask("GET", path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert headers["content-security-policy"].startswith("default-src 'none'")


def test_a_failure_tells_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect is answered as one, and what went wrong stays here."""

    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("secret-of-the-house")

    monkeypatch.setattr("kfm.web.request_context.WebContext.app", fails)
    answer = world.ask("GET", "/runs")
    assert problem(answer, 500)["type"] == "docs/reference/errors.md#kfm600"
    assert "secret-of-the-house" not in answer.text


def test_a_ledger_that_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the ledger can't be reached, a client gets 503 with Retry-After."""
    from kfm.model.errors import BackendUnavailable

    def away(*_: Any, **__: Any) -> None:
        raise BackendUnavailable("postgres://db.internal is gone")

    monkeypatch.setattr("kfm.app.App.__init__", away)
    answer = world.ask("GET", "/runs")
    assert problem(answer, 503)["code"] == "KFM400"
    assert answer.headers["retry-after"] == "5"
    assert "db.internal" not in answer.text


def test_every_operation_is_named_once() -> None:
    """Names, and pairs of method and address, are unique: clients are generated from them."""
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)
    for operation in OPERATIONS:
        assert {400, 401, 403, 500, 503} <= set(statuses(operation))


def test_over_a_socket(tmp_path: Path) -> None:
    """With a real server: a token, a list, a change, and many at once under one key are one change."""
    world = World(tmp_path / "p").past()
    with serving(world.app) as address:
        base = f"{address}{BASE.removeprefix('http://127.0.0.1')}"
        shown = {"Authorization": f"bearer {TOKENS['ann']}"}
        with httpx.Client(base_url=base, headers=shown, timeout=30) as client:
            assert len(client.get("/runs").json()["runs"]) == 2
            assert client.head("/runs").content == b""
            assert client.get("/runs", headers={"Authorization": "Bearer wrong"}).status_code == 401

            def change(_: int) -> int:
                return client.post(
                    "/switches/all",
                    json={"rationale": "all at once", "position": "paused"},
                    headers={"Idempotency-Key": "one"},
                ).status_code

            def request(_: int) -> str:
                answer = client.post(
                    "/requests",
                    json={"rationale": "all at once", "source": "river"},
                    headers={"Idempotency-Key": "two"},
                )
                return str(answer.json()["request"]["request_id"])

            with ThreadPoolExecutor(8) as pool:
                found = set(pool.map(change, range(8)))
                requests_made = set(pool.map(request, range(8)))
    assert found <= {200, 409}
    assert 200 in found
    assert len(requests_made) == 1
    assert len(world.entries("switch")) == 1
    assert len(world.entries("update-requested")) == 1
