"""Requests behind a circuit: which of their ends say something about the provider."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kfm.calls.breakers import BreakerAccess, SharedBreakers, SharedCircuit
from kfm.calls.guarded_clients import RENEW_MS, CircuitGuard, GuardedBucket, GuardedHttp
from kfm.db.ledger import Ledger
from kfm.model import breaker as rules
from kfm.model.breaker import USUAL_LIMITS, Breaker, BreakerLimits
from kfm.model.errors import (
    BackendUnavailable,
    ChecksumMismatch,
    CircuitOpen,
    LostLease,
    UpstreamUnavailable,
)
from kfm.model.records import ObjectStat
from kfm.ports import NewObject
from tests.conformance.db.ledgers import START_MS, memory_store
from tests.stand_ins import FakeClock

pytestmark = pytest.mark.req("RET-7")


class Answer:
    def __init__(self, status: int, chunks: Iterator[bytes]) -> None:
        self.status = status
        self.headers: dict[str, str] = {}
        self.address = "http://127.0.0.1/"
        self._chunks = chunks

    def chunks(self) -> Iterator[bytes]:
        return self._chunks


class Wire:
    """An HTTP client and a bucket that do as they are told."""

    def __init__(self) -> None:
        self.requests = 0
        self.error: Exception | None = None
        self.body: Any = (b"a", b"b")

    def _go(self) -> None:
        self.requests += 1
        if self.error is not None:
            raise self.error

    @contextmanager
    def open(self, *_arguments: object, **_more: object) -> Iterator[Answer]:
        self._go()
        yield Answer(200, iter(self.body))

    def head(self, key: str) -> ObjectStat:
        self._go()
        return ObjectStat(key=key, size=1)

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        self._go()
        yield ObjectStat(key=prefix, size=1)

    @contextmanager
    def read(self, key: str, **_more: object) -> Iterator[tuple[ObjectStat, Iterator[bytes]]]:
        self._go()
        yield ObjectStat(key=key, size=1), iter(self.body)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START_MS)


@pytest.fixture
def store(clock: FakeClock) -> Iterator[Ledger]:
    made = memory_store(clock)
    yield made
    made.close()


@pytest.fixture
def circuit(store: Ledger, clock: FakeClock) -> SharedCircuit:
    return SharedBreakers(BreakerAccess(store, store, lambda: store), clock).circuit("p")


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def http(wire: Wire, circuit: SharedCircuit, clock: FakeClock) -> GuardedHttp:
    return GuardedHttp(wire, CircuitGuard(circuit, clock))  # type: ignore[arg-type]


@pytest.fixture
def bucket(wire: Wire, circuit: SharedCircuit, clock: FakeClock) -> GuardedBucket:
    return GuardedBucket(wire, CircuitGuard(circuit, clock))  # type: ignore[arg-type]


def get(http: GuardedHttp, inside: Exception | None = None) -> list[bytes]:
    with http.open("GET", "http://p/", {}, 1000) as response:
        chunks = list(response.chunks())
        if inside is not None:
            raise inside
        return chunks


# Facts, not errors: a guard writes into the error that it hands up, and each test has its own.
NETWORK = {"transient": True, "cause": "network"}
TROUBLE: list[dict[str, Any]] = [
    NETWORK,
    {"transient": True, "cause": "timeout"},
    {"transient": True, "cause": "truncated"},
    {"status": 503},
    {"status": 429},
]
ANSWERS = [{"status": 404}, {"status": 403}]
NEITHER: list[BaseException] = [
    OSError(28, "No space left on device"),
    LostLease("x"),
    ChecksumMismatch("x", transient=True),
    BackendUnavailable("our own object store", transient=True),
    UpstreamUnavailable("no address", transient=False),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("facts", TROUBLE, ids=str)
def test_trouble_counts(facts: dict[str, Any], http: GuardedHttp, store: Ledger) -> None:
    """Timeouts, lost connections, 5xx and throttling: the provider is to blame."""
    with pytest.raises(UpstreamUnavailable):
        get(http, UpstreamUnavailable("x", **facts))
    assert store.breaker("p").failures == 1


@pytest.mark.parametrize("facts", ANSWERS, ids=str)
def test_an_answer_that_we_do_not_like_is_an_answer(
    facts: dict[str, Any], http: GuardedHttp, wire: Wire, store: Ledger
) -> None:
    """It ends a row of failures."""
    wire.error = UpstreamUnavailable("x", **NETWORK)
    with pytest.raises(UpstreamUnavailable):
        get(http)
    wire.error = None
    with pytest.raises(UpstreamUnavailable):
        get(http, UpstreamUnavailable("x", **facts))
    assert store.breaker("p").failures == 0


@pytest.mark.parametrize("error", NEITHER, ids=lambda error: type(error).__name__)
def test_what_is_ours_says_nothing(error: Any, http: GuardedHttp, wire: Wire, store: Ledger) -> None:
    """A full disk, a lost lease, Ctrl-C: neither blame nor praise, and a probe is left to others."""
    with pytest.raises(type(error)):
        get(http, error)
    assert store.breakers() == []
    store.change_breaker("p", lambda b, now_ms: rules.on_failure(b, now_ms))
    with pytest.raises(type(error)):
        get(http, error)
    assert store.breaker("p").failures == 1


def open_it(store: Ledger, clock: FakeClock) -> Breaker:
    for _ in range(rules.FAILURES_MAX):
        store.change_breaker("p", lambda b, now_ms: rules.on_failure(b, now_ms))
    clock.sleep_ms(rules.COOLDOWN_MS)
    return store.breaker("p")


def test_a_probe_that_told_nothing_is_anybody_s(http: GuardedHttp, store: Ledger, clock: FakeClock) -> None:
    """Its lease ends at once."""
    open_it(store, clock)
    with pytest.raises(LostLease):
        get(http, LostLease("x"))
    breaker = store.breaker("p")
    assert breaker.state == "half-open"
    assert rules.may_call(breaker, clock.now_ms()) == "probe"
    assert get(http) == [b"a", b"b"]
    assert (store.breaker("p").state, store.breaker("p").fence) == ("closed", 2)


def test_a_slow_probe_stays_the_only_one(
    http: GuardedHttp, wire: Wire, store: Ledger, clock: FakeClock
) -> None:
    """While bytes come in its lease is renewed, however long the body is."""
    open_it(store, clock)

    def dripping() -> Iterator[bytes]:
        for _ in range(20):
            clock.sleep_ms(RENEW_MS)
            assert rules.may_call(store.breaker("p"), clock.now_ms()) == "refuse"
            yield b"x"

    wire.body = dripping()
    assert len(get(http)) == 20
    assert (store.breaker("p").state, store.breaker("p").fence) == ("closed", 1)


def test_the_failure_that_opens_it_is_handed_up(http: GuardedHttp, wire: Wire) -> None:
    """It carries how long the circuit stays open, so that no call waits for it; then nothing goes out."""
    wire.error = UpstreamUnavailable("x", transient=True, cause="network", retry_after="0")
    for _ in range(rules.FAILURES_MAX):
        with pytest.raises(UpstreamUnavailable) as raised:
            get(http)
    assert raised.value.facts["retry_after"] == "300"
    assert raised.value.facts["circuit_open"] is True
    with pytest.raises(CircuitOpen):
        get(http)
    assert wire.requests == rules.FAILURES_MAX


@pytest.mark.req("RET-5")
@pytest.mark.parametrize("status", [429, 503, 500])
def test_upstreams_own_time_spares_the_circuit(
    status: int, http: GuardedHttp, wire: Wire, store: Ledger
) -> None:
    """A provider that says when to come back is up: however often it says so, nothing is counted."""
    wire.error = UpstreamUnavailable("x", status=status, retry_after="5")
    for _ in range(2 * rules.FAILURES_MAX):
        with pytest.raises(UpstreamUnavailable) as raised:
            get(http)
    assert raised.value.facts["retry_after"] == "5"
    assert store.breakers() == []


@pytest.mark.req("RET-5")
@pytest.mark.parametrize("said", ["0", "soon", "Mon, 01 Jan 1990 00:00:00 GMT"])
def test_a_time_that_is_none_spares_nothing(said: str, http: GuardedHttp, wire: Wire, store: Ledger) -> None:
    """Now, nonsense and the past ask for no wait."""
    wire.error = UpstreamUnavailable("x", status=503, retry_after=said)
    with pytest.raises(UpstreamUnavailable):
        get(http)
    assert store.breaker("p").failures == 1


@pytest.mark.req("RET-5")
def test_a_probe_is_put_off_until_upstreams_time(
    http: GuardedHttp, wire: Wire, store: Ledger, clock: FakeClock
) -> None:
    """No other call goes out before; the refusal names the time that the provider asked for."""
    open_it(store, clock)
    wire.error = UpstreamUnavailable("x", status=503, retry_after="900")
    for _ in range(2):
        with pytest.raises((UpstreamUnavailable, CircuitOpen)) as raised:
            get(http)
    assert wire.requests == 1
    assert "p has asked not to be called before" in raised.value.message
    assert raised.value.facts["not_before_ms"] == clock.now_ms() + 900_000
    clock.sleep_ms(900_000)
    wire.error = None
    assert get(http) == [b"a", b"b"]
    assert store.breaker("p").state == "closed"


def test_a_probe_is_not_put_off_for_ever(
    http: GuardedHttp, wire: Wire, store: Ledger, clock: FakeClock
) -> None:
    """A provider that asks for years is probed once a day."""
    open_it(store, clock)
    wire.error = UpstreamUnavailable("x", status=503, retry_after="9" * 9)
    with pytest.raises(UpstreamUnavailable):
        get(http)
    assert rules.wait_ms(store.breaker("p"), clock.now_ms()) == rules.ASKED_MAX_MS


def test_the_configured_limits_decide(wire: Wire, store: Ledger, clock: FakeClock) -> None:
    """Two failures open it, and it stays open for ten seconds; another provider has the usual limits."""
    limits = {"p": BreakerLimits(failures_max=2, cool_down_ms=10_000)}
    breakers = SharedBreakers(
        BreakerAccess(store, store, lambda: store), clock, limits=lambda name: limits.get(name, USUAL_LIMITS)
    )
    mine, other = (
        GuardedHttp(wire, CircuitGuard(breakers.circuit(name), clock))  # type: ignore[arg-type]
        for name in "pq"
    )
    wire.error = UpstreamUnavailable("x", **NETWORK)
    for http in (mine, mine, other, other):
        with pytest.raises(UpstreamUnavailable):
            get(http)
    assert (store.breaker("p").state, store.breaker("q").state) == ("open", "closed")
    with pytest.raises(CircuitOpen) as refused:
        get(mine)
    assert refused.value.facts["not_before_ms"] == clock.now_ms() + 10_000
    assert breakers.released_ms(["p"], "work") == clock.now_ms() + 10_000
    clock.sleep_ms(10_000)
    wire.error = None
    assert get(mine) == [b"a", b"b"]
    assert store.breaker("p").state == "closed"


def test_a_bucket_is_guarded_alike(bucket: GuardedBucket, wire: Wire, store: Ledger) -> None:
    """Listing, looking and reading count, each as one call."""
    assert [stat.key for stat in bucket.list("k")] == ["k"]
    wire.error = BackendUnavailable("x", transient=True)
    with pytest.raises(BackendUnavailable):
        bucket.head("k")
    with pytest.raises(BackendUnavailable):
        list(bucket.list("k"))
    wire.error = None
    with bucket.read("k") as (stat, chunks):
        assert (stat.size, list(chunks)) == (1, [b"a", b"b"])
    assert store.breaker("p").failures == 0

    def breaking() -> Iterator[bytes]:
        yield b"a"
        raise BackendUnavailable("the stream broke", transient=True)

    for _ in range(rules.FAILURES_MAX):
        wire.body = breaking()
        with pytest.raises(BackendUnavailable), bucket.read("k") as (_, chunks):
            list(chunks)
    with pytest.raises(CircuitOpen), bucket.read("k"):
        pass


@pytest.mark.req("GRO-1")
def test_many_objects_at_once_are_one_call(circuit: SharedCircuit, clock: FakeClock, store: Ledger) -> None:
    """The circuit is asked once for a batch, from the thread that sends it, and counts it once; a bucket that
    takes one at a time gets them one by one."""

    class One(Wire):
        def put(self, key: str, data: bytes, **conditions: Any) -> bool:
            self._go()
            return True

    class Many(One):
        def put_many(self, objects: list[NewObject], *, if_none_match: bool = False) -> None:
            self._go()

    batch: list[NewObject] = [("a", b"1", None), ("b", b"2", None)]
    for wire, requests in ((One(), 2), (Many(), 1)):
        bucket = GuardedBucket(wire, CircuitGuard(circuit, clock))  # type: ignore[arg-type]
        bucket.put_many(batch)
        assert wire.requests == requests
    wire.error = BackendUnavailable("x", transient=True)
    with pytest.raises(BackendUnavailable):
        bucket.put_many(batch)
    assert store.breaker("p").failures == 1
