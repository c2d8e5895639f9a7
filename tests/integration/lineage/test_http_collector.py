"""An OpenLineage collector over real HTTP: down, failing, slow, and back."""

from __future__ import annotations

import contextlib
import gzip
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kfm.lineage.delivery import PARKED_MS
from kfm.model.errors import BackendUnavailable, CollectorRefused, ConfigError, ExtraMissing
from tests.stand_ins import FakeClock
from tests.unit.lineage.outbox import bodies, deliver, make_store, post

pytest.importorskip("openlineage.client", reason="openlineage-python is not installed (extra `lineage`)")

from kfm.sinks.openlineage_http import HttpCollector

Answer = Callable[[int], int]  # number of the request → status; 0 hangs up without an answer, after reading


class Collector:
    """Keeps what arrives, and answers as it is told."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _number: 201
        self.seen: list[bytes] = []
        self.accepted: list[str] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.release = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                status = collector.answer(len(collector.seen))
                collector.seen.append(body)
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if status == -1:
                    collector.release.wait(20)
                if status == -2:
                    collector.trickle(self.wfile)
                if status <= 0:
                    if status == 0:
                        collector.accepted.append(body.decode())
                    self.close_connection = True
                    return
                if status < 300:
                    collector.accepted.append(body.decode())
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()
                self.wfile.write(b"no")

            def do_GET(self) -> None:
                raise AssertionError("a redirect was followed")

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def trickle(self, file: Any) -> None:
        """A header that never ends, a byte at a time: no single read takes long."""
        with contextlib.suppress(OSError):
            file.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(1000):
                if self.release.wait(0.02):
                    return
                file.write(b"y")

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def there() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def client(url: str, clock: FakeClock, *, timeout_ms: int = 2000, **more: Any) -> HttpCollector:
    return HttpCollector({"url": url, **more}, clock, timeout_ms=timeout_ms)


@pytest.mark.req("UPD-15")
def test_events_arrive_as_they_were_stored(there: Collector, clock: FakeClock) -> None:
    """Every event arrives once, in order, byte for byte, at the documented address with the token."""
    store = make_store(clock)
    ids = post(store, 20)
    collector = client(there.url, clock, auth={"type": "api_key", "apiKey": "t0ken"})
    assert deliver(store, collector, clock).sent == 40
    assert there.accepted == bodies(store, ids)
    path, headers = there.requests[0]
    assert path == "/api/v1/lineage"
    assert headers["authorization"] == "Bearer t0ken"
    assert headers["content-type"] == "application/json"


def test_the_settings_of_openlineages_own_clients_count(there: Collector, clock: FakeClock) -> None:
    """Endpoint, headers and compression are taken from the transport's configuration."""
    store = make_store(clock)
    ids = post(store, 2)
    more = {"endpoint": "in", "custom_headers": {"X-Team": "water"}, "compression": "gzip"}
    assert deliver(store, client(there.url, clock, **more), clock).sent == 4
    assert (there.requests[0][0], there.requests[0][1]["x-team"]) == ("/in", "water")
    assert there.accepted == bodies(store, ids)
    assert there.seen[0] != bodies(store, ids)[0].encode()


@pytest.mark.req("UPD-15")
def test_a_collector_that_answers_a_byte_at_a_time_delays_no_run(there: Collector, clock: FakeClock) -> None:
    """The time for a request is for all of it: an answer that trickles in counts as none."""
    store = make_store(clock)
    post(store, 1)
    there.answer = lambda _number: -2
    asked = threading.Thread(target=there.release.wait, args=(20,), daemon=True)
    asked.start()
    told = deliver(store, client(there.url, clock, timeout_ms=200), clock)
    assert asked.is_alive(), "the collector was still at it"
    assert (told.sent, told.waiting) == (0, 2)
    assert told.error is not None
    assert "did not answer in time" in told.error.message


@pytest.mark.req("UPD-15")
def test_a_collector_that_was_down_gets_everything(clock: FakeClock) -> None:
    """Nothing listens, then something does: all events arrive in order, none twice."""
    store = make_store(clock)
    ids = post(store, 3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        told = deliver(store, client(f"http://127.0.0.1:{taken.getsockname()[1]}", clock), clock)
    assert (told.sent, told.waiting) == (0, 6)
    assert isinstance(told.error, BackendUnavailable)
    assert "can't be reached" in told.error.message
    ids += post(store, 2, first=3)
    back = Collector()
    try:
        clock.passed_ms += 1000
        assert deliver(store, client(back.url, clock), clock).sent == 10
        assert back.accepted == bodies(store, ids)
    finally:
        back.close()


@pytest.mark.parametrize("status", [500, 503, 429, 408, 401, 403, 404, 302, 307])
def test_trouble_on_the_way_is_tried_again(there: Collector, clock: FakeClock, status: int) -> None:
    """Errors of the way or the service stop the pass at once, and nothing is lost or doubled."""
    store = make_store(clock)
    ids = post(store, 3)
    there.answer = lambda number: status if number == 2 else 201
    told = deliver(store, client(there.url, clock), clock)
    assert (told.sent, told.waiting, told.refused) == (2, 4, 0)
    assert str(status) in (told.trouble or "")
    ways = {401: "lineage.token", 403: "lineage.token", 404: "lineage.url", 302: "lineage.url"}
    assert ways.get(status, "Nothing is lost") in (told.error.way_out if told.error else "")
    assert len(there.seen) == 3
    clock.passed_ms += 1000
    assert deliver(store, client(there.url, clock), clock).sent == 4
    assert there.accepted == bodies(store, ids)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_event_that_is_refused_is_kept_and_told(there: Collector, clock: FakeClock, status: int) -> None:
    """An event that the collector will not have waits for a day; events of other runs go on."""
    store = make_store(clock)
    ids = post(store, 3)
    there.answer = lambda number: status if number == 2 else 201
    told = deliver(store, client(there.url, clock), clock)
    assert (told.sent, told.waiting, told.refused) == (4, 2, 1)
    assert isinstance(told.error, CollectorRefused)
    assert there.accepted == bodies(store, [ids[0], ids[2]])
    clock.passed_ms += PARKED_MS
    assert deliver(store, client(there.url, clock), clock).sent == 2


def test_a_slow_collector_is_not_waited_for(there: Collector, clock: FakeClock) -> None:
    """A collector that does not answer in time is trouble; later everything arrives."""
    store = make_store(clock)
    ids = post(store, 1)
    there.answer = lambda number: -1 if number == 0 else 201
    told = deliver(store, client(there.url, clock, timeout_ms=50), clock)
    assert (told.sent, told.waiting) == (0, 2)
    assert "in time" in (told.trouble or "")
    there.release.set()
    clock.passed_ms += 1000
    assert deliver(store, client(there.url, clock), clock).sent == 2
    assert there.accepted == bodies(store, ids)


@pytest.mark.req("UPD-15")
def test_only_a_lost_answer_makes_a_duplicate(there: Collector, clock: FakeClock) -> None:
    """If the answer is lost the event is sent again: twice the same bytes, and only then."""
    store = make_store(clock)
    ids = post(store, 2)
    expected = bodies(store, ids)
    there.answer = lambda number: 0 if number == 1 else 201
    for _ in range(3):
        deliver(store, client(there.url, clock), clock)
        clock.passed_ms += 10_000
    assert there.accepted == [expected[0], expected[1], *expected[1:]]


def test_no_answer_shows_a_secret(clock: FakeClock) -> None:
    """Trouble is told without the password in the address."""
    store = make_store(clock)
    post(store, 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://me:hunter22@127.0.0.1:{taken.getsockname()[1]}"
        told = deliver(store, client(url, clock), clock)
    assert told.trouble is not None
    assert "hunter22" not in told.trouble


@pytest.mark.parametrize("url", ["no address", "", "http://"])
def test_an_address_that_is_none_is_a_mistake_in_the_configuration(url: str, clock: FakeClock) -> None:
    """What can never work is told as an error of the configuration."""
    with pytest.raises(ConfigError):
        client(url, clock)


def test_without_the_extra_it_says_what_to_install(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where openlineage-python is missing, the way out names the extra."""
    for name in list(sys.modules):
        if name.startswith("openlineage"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "openlineage", None)
    with pytest.raises(ExtraMissing, match=r"kfm-kernel\[lineage\]"):
        client("http://127.0.0.1:9", clock)


def test_passwords_of_other_hosts_files_are_not_sent(
    there: Collector, clock: FakeClock, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ~/.netrc for the collector's host does not replace the token."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hunter22\n")
    monkeypatch.setenv("NETRC", str(netrc))
    store = make_store(clock)
    post(store, 1)
    with contextlib.closing(client(there.url, clock)) as collector:
        deliver(store, collector, clock)
    assert "authorization" not in there.requests[0][1]
