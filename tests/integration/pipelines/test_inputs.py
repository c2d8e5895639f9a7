"""Remote inputs are identified by their servers' validators, without being fetched."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from kfm.calls.breakers import BreakerAccess, SharedBreakers
from kfm.db.ledger import Ledger
from kfm.model.branches import Commit, NewCommit, TreeEntry
from kfm.model.errors import CircuitOpen, UnhashableInput, UpstreamUnavailable
from kfm.model.input_hash import inputs_hash
from kfm.pipelines.inputs import RemoteInputVersions, unconfigured_input_versions
from tests.conformance.db.ledgers import memory_store
from tests.stand_ins import FakeClock
from tests.workshop import Workshop


class Answers(BaseHTTPRequestHandler):
    headers_by_path: dict[str, dict[str, str]] = {}
    asked: list[str] = []

    def do_HEAD(self) -> None:
        self.asked.append(self.command + " " + self.path)
        headers = self.headers_by_path.get(self.path, {})
        answer = self.send_response_only if "Date" in headers else self.send_response
        answer(503 if self.path == "/down" else 200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    Answers.asked, Answers.headers_by_path = [], {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


@pytest.fixture
def store() -> Iterator[Ledger]:
    made = memory_store(FakeClock())
    yield made
    made.close()


@pytest.fixture
def versions(shop: Workshop, store: Ledger) -> RemoteInputVersions:
    clock = FakeClock()
    breakers = SharedBreakers(BreakerAccess(store, store, lambda: store), clock)
    return unconfigured_input_versions(clock, lambda: shop.branches, breakers)


@pytest.mark.req("RS-6")
def test_an_address_is_identified_by_its_validators(versions: RemoteInputVersions, url: str) -> None:
    """ETag and Last-Modified enter; it is asked once, and with HEAD only."""
    Answers.headers_by_path = {"/a": {"ETag": '"1"', "Last-Modified": "Mon, 16 Nov 2026 00:00:00 GMT"}}
    found = versions.of(f"{url}/a")
    assert found == {"uri": f"{url}/a", "etag": '"1"', "last_modified": "Mon, 16 Nov 2026 00:00:00 GMT"}
    assert versions.of(f"{url}/a") is found
    assert Answers.asked == ["HEAD /a"]


@pytest.mark.req("RS-6")
def test_an_address_without_validators_fails_closed(versions: RemoteInputVersions, url: str) -> None:
    """An input without validators is an error, not a guess; trouble upstream stays what it is."""
    with pytest.raises(UnhashableInput, match="without an ETag"):
        versions.of(f"{url}/plain")
    with pytest.raises(UpstreamUnavailable):
        versions.of(f"{url}/down")


@pytest.mark.req("RET-3", "RET-7")
def test_an_address_in_trouble_is_asked_once(versions: RemoteInputVersions, url: str, store: Ledger) -> None:
    """Its provider's circuit opens as a source's does, and no second round is made in the same run."""
    for _ in range(2):
        with pytest.raises(UpstreamUnavailable):
            versions.of(f"{url}/down")
    assert Answers.asked == ["HEAD /down"] * 3
    (breaker,) = store.breakers()
    assert (breaker.provider, breaker.state) == (url.removeprefix("http://"), "open")
    with pytest.raises(CircuitOpen):
        versions.of(f"{url}/other")
    assert len(Answers.asked) == 3


@pytest.mark.req("RET-3", "RET-5")
def test_upstreams_own_time_is_waited_for_within_the_calls_attempts(
    versions: RemoteInputVersions, url: str, store: Ledger
) -> None:
    """Five tries at most, and the circuit is spared."""
    Answers.headers_by_path = {"/down": {"Retry-After": "1"}}
    for _ in range(2):
        with pytest.raises(UpstreamUnavailable):
            versions.of(f"{url}/down")
    assert Answers.asked == ["HEAD /down"] * 5
    assert store.breakers() == []


@pytest.mark.req("RS-6")
def test_a_branch_is_identified_by_its_commit_and_a_path_by_its_bytes(
    shop: Workshop, versions: RemoteInputVersions
) -> None:
    """A commit elsewhere on the branch does not change what a path holds."""
    shop.branches.create("main")
    entry = TreeEntry(sha256="a" * 64, size=1)
    commit = shop.branches.commit(NewCommit("main", {"x/y": entry}, message="m", author="a"))
    assert isinstance(commit, Commit)
    assert versions.of("branch:main") == {"uri": "branch:main", "commit": commit.commit_id}
    assert versions.of("branch:main:x/y") == {"uri": "branch:main:x/y", "checksum": "sha256:" + "a" * 64}
    with pytest.raises(UnhashableInput, match="has no z"):
        versions.of("branch:main:z")
    with pytest.raises(UnhashableInput):
        versions.of("branch:nowhere")


@pytest.mark.req("RS-6")
def test_a_bucket_alone_is_no_object(versions: RemoteInputVersions) -> None:
    """An address that names no object is refused before anybody is asked."""
    with pytest.raises(UnhashableInput):
        versions.of("s3://only-a-bucket")


@pytest.mark.req("RS-6")
def test_a_date_within_its_second_does_not_hold_for_the_next_run(
    shop: Workshop, store: Ledger, url: str
) -> None:
    """An address that has only Last-Modified, of the second of the answer, is another at the next look."""
    date = "Mon, 16 Nov 2026 00:00:00 GMT"
    hashes = set()
    for second in ("00", "00", "01", "02"):
        Answers.headers_by_path = {
            "/a": {"Last-Modified": date, "Date": date.replace(":00 GMT", f":{second} GMT")}
        }
        clock = FakeClock()
        breakers = SharedBreakers(BreakerAccess(store, store, lambda: store), clock)
        versions = unconfigured_input_versions(clock, lambda: shop.branches, breakers)
        hashes.add(inputs_hash([versions.of(f"{url}/a")]))
    assert len(hashes) == 2  # within the second, and after it
