"""Breakers of every store: compare and set, one probe among many, fences, lapsed leases."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.calls.breakers import BreakerAccess, SharedBreakers, SharedCircuit
from kfm.db.ledger import Ledger
from kfm.model import breaker as rules
from kfm.model.breaker import Breaker
from kfm.model.errors import BackendUnavailable, CircuitOpen
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import entry

pytestmark = pytest.mark.req("RET-7")

PROVIDER = "api.example.org"
THREADS = 12


class Hands:
    """A clock that is moved by hand; the ledger's own clock is not."""

    def __init__(self) -> None:
        self.real = SystemClock()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self.real.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        return self.real.monotonic_ms() + self.ahead_ms

    def sleep_ms(self, delay_ms: int) -> None:
        self.ahead_ms += delay_ms


def failed(breaker: Breaker, now_ms: int) -> Breaker:
    return rules.on_failure(breaker, now_ms)


def opened(store: Ledger, ago_ms: int = 0) -> Breaker:
    """Three failures, so long ago."""
    for _ in range(rules.FAILURES_MAX):
        store.change_breaker(PROVIDER, lambda b, now_ms: rules.on_failure(b, now_ms - ago_ms))
    return store.breaker(PROVIDER)


def claimed(breaker: Breaker, now_ms: int) -> Breaker:
    due = rules.may_call(breaker, now_ms) == "probe"
    return rules.probe_started(breaker, now_ms) if due else breaker


def test_of_a_provider_without_trouble_there_is_no_row(store: Ledger) -> None:
    """Its breaker is closed, and a success writes nothing."""
    assert store.breaker(PROVIDER) == Breaker(provider=PROVIDER)
    seen, kept = store.change_breaker(PROVIDER, lambda b, _now_ms: rules.on_success(b))
    assert seen == kept == Breaker(provider=PROVIDER)
    assert store.breakers() == []


def test_every_field_is_kept(store: Ledger) -> None:
    """What was decided is what is read; other providers are not touched."""
    wanted = Breaker(
        provider=PROVIDER,
        state="half-open",
        failures=7,
        opened_at_ms=2**40,
        probe_until_ms=2**40 + 1,
        fence=9,
        tripped_at_ms=2**40 - 5,
        closed_at_ms=3,
    )
    store.change_breaker("another", failed)
    before, kept = store.change_breaker(PROVIDER, lambda _b, _now_ms: wanted)
    assert (before, kept) == (Breaker(provider=PROVIDER), wanted)
    assert store.breaker(PROVIDER) == wanted
    assert [each.provider for each in store.breakers()] == ["another", PROVIDER]
    assert store.breaker("another").failures == 1


def test_three_failures_in_a_row_open_it(store: Ledger) -> None:
    """Two and a success do not; the third in a row does, at the ledger's own time."""
    store.change_breaker(PROVIDER, failed)
    store.change_breaker(PROVIDER, failed)
    store.change_breaker(PROVIDER, lambda b, _now_ms: rules.on_success(b))
    assert store.breaker(PROVIDER).failures == 0
    began_ms = store.now_ms()
    breaker = opened(store)
    assert breaker.state == "open"
    assert began_ms <= (breaker.opened_at_ms or 0) <= store.now_ms()
    assert breaker.tripped_at_ms == breaker.opened_at_ms


def test_a_row_that_has_moved_is_not_overwritten(store: Ledger) -> None:
    """The write compares every column that was read."""
    seen, _ = store.change_breaker(PROVIDER, failed)
    for moved in (
        {"failures": 2},
        {"fence": 1},
        {"state": "open", "opened_at_ms": 5},
        {"probe_until_ms": 6},
        {"tripped_at_ms": 7},
        {"closed_at_ms": 8},
    ):
        _, there = store.change_breaker(PROVIDER, lambda b, _now_ms, to=moved: replace(b, **to))  # type: ignore[misc]
        session = store._session
        stale = {f"seen_{name}": getattr(seen, name) for name in Breaker.__struct_fields__[1:]}
        wanted = {name: getattr(seen, name) for name in Breaker.__struct_fields__}
        assert session.one("breakers.change", **wanted, **stale) is None
        assert store.breaker(PROVIDER) == there


def test_a_probe_has_a_fence_and_a_lease(store: Ledger) -> None:
    """After the cool-down one claims it; no other does before its lease lapses, then with a higher fence."""
    opened(store, ago_ms=rules.COOLDOWN_MS)
    _, first = store.change_breaker(PROVIDER, claimed)
    assert (first.state, first.fence) == ("half-open", 1)
    assert store.change_breaker(PROVIDER, claimed) == (first, first)
    lapsed = replace(first, probe_until_ms=store.now_ms() - 1)
    store.change_breaker(PROVIDER, lambda _b, _now_ms: lapsed)
    _, second = store.change_breaker(PROVIDER, claimed)
    assert (second.state, second.fence) == ("half-open", 2)
    late, _ = store.change_breaker(PROVIDER, lambda b, now_ms: rules.on_success(b, 1, now_ms))
    assert store.breaker(PROVIDER) == late == second, "the one that was given up for lost is not heard"
    _, closed = store.change_breaker(PROVIDER, lambda b, now_ms: rules.on_success(b, 2, now_ms))
    assert (closed.state, closed.failures) == ("closed", 0)
    assert closed.closed_at_ms is not None


def test_a_reset_is_kept_in_the_governance_ledger(store: Ledger) -> None:
    """The circuit is closed, the fence of a probe under way is spent, and who did it is on record."""
    opened(store, ago_ms=rules.COOLDOWN_MS)
    _, probing = store.change_breaker(PROVIDER, claimed)
    _, closed = store.change_breaker(PROVIDER, rules.reset, [entry("breaker-reset", f"provider:{PROVIDER}")])
    assert (closed.state, closed.fence) == ("closed", probing.fence + 1)
    (kept,) = store.governance(kind="breaker-reset")
    assert kept.subject == f"provider:{PROVIDER}"
    store.change_breaker(PROVIDER, lambda b, now_ms: rules.on_failure(b, now_ms, probing.fence))
    assert store.breaker(PROVIDER).state == "closed", "the probe from before the reset trips nothing alone"


# --- many at once ----------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def another(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
    """Opens one more connection to the same ledger."""
    dsn = request.getfixturevalue("postgres_schema")() if request.param == "postgresql" else ""
    made: list[Ledger] = []

    def make() -> Ledger:
        store = (
            ledgers.postgres_store(dsn)
            if dsn
            else ledgers.sqlite_store(str(tmp_path / "kfm.db"), SystemClock())
        )
        made.append(store)
        return store

    make()
    yield make
    for store in made:
        store.close()


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """Run in many threads that begin together; what they return, or raise."""
    barrier, answers = threading.Barrier(THREADS), [None] * THREADS

    def run(number: int) -> None:
        barrier.wait()
        try:
            answers[number] = work(number)
        except Exception as error:
            answers[number] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def circuit_of(store: Ledger, another: Callable[[], Ledger] | None = None) -> SharedCircuit:
    access = BreakerAccess(store, store, another or (lambda: store))
    return SharedBreakers(access, SystemClock()).circuit(PROVIDER)


def test_one_probe_among_many_threads(another: Callable[[], Ledger]) -> None:
    """Each has a connection of its own, all come at the same moment: one may call, the others are refused."""
    opened(another(), ago_ms=rules.COOLDOWN_MS)
    stores = [another() for _ in range(THREADS)]

    def come(number: int) -> int | None:
        store = stores[number]
        return SharedCircuit(PROVIDER, BreakerAccess(store, store, lambda: store), SystemClock()).before()

    answers = at_once(come)
    assert [answer for answer in answers if not isinstance(answer, CircuitOpen)] == [1], answers
    assert stores[0].breaker(PROVIDER).fence == 1


def test_threads_of_one_process_share_one_probe(another: Callable[[], Ledger]) -> None:
    """They pass one circuit object; threads other than the first use a connection beside its own."""
    home = another()
    opened(home, ago_ms=rules.COOLDOWN_MS)
    circuit = circuit_of(home, another)
    answers = at_once(lambda _number: circuit.before())
    assert [answer for answer in answers if not isinstance(answer, CircuitOpen)] == [1], answers


def test_no_failure_is_lost(another: Callable[[], Ledger]) -> None:
    """Many failures at the same moment: each sees what the one before it left."""
    stores = [another() for _ in range(THREADS)]
    seen = at_once(lambda number: stores[number].change_breaker(PROVIDER, failed))
    counts = sorted(kept.failures for before, kept in seen if before != kept)
    assert counts == [1, 2, 3], seen
    assert stores[0].breaker(PROVIDER).state == "open"


# --- the circuit ------------------------------------------------------------------------


def test_what_happened_elsewhere_is_known_within_a_second(store: Ledger) -> None:
    """A fresh look is trusted for a second and no longer."""
    clock = Hands()
    circuit = SharedCircuit(PROVIDER, BreakerAccess(store, store, lambda: store), clock)
    assert circuit.before() is None
    assert circuit.quiet
    opened(store)
    assert circuit.before() is None, "not known yet"
    clock.sleep_ms(1_000)
    assert not circuit.quiet
    with pytest.raises(CircuitOpen, match="is tried again at") as refused:
        circuit.before()
    assert refused.value.facts["not_before_ms"] > store.now_ms() + 290_000
    assert refused.value.exit_code == 4


def test_a_reserved_probe_is_used_once_and_can_be_given_back(store: Ledger) -> None:
    """A probe is reserved at admission, made by the first request, or left to others."""
    opened(store, ago_ms=rules.COOLDOWN_MS)
    breakers = SharedBreakers(BreakerAccess(store, store, lambda: store), SystemClock())
    other = SharedBreakers(BreakerAccess(store, store, lambda: store), SystemClock())
    breakers.ask([PROVIDER])
    with pytest.raises(CircuitOpen):
        other.ask([PROVIDER])
    breakers.give_back()
    other = SharedBreakers(BreakerAccess(store, store, lambda: store), SystemClock())
    other.ask([PROVIDER])
    fence = other.circuit(PROVIDER).before()
    assert fence == 2
    other.give_back()
    other.circuit(PROVIDER).after(True, fence)
    assert store.breaker(PROVIDER).state == "closed"


@pytest.mark.parametrize(
    ("waited_ms", "made"), [(rules.PROBE_LEASE_MS // 2, True), (rules.PROBE_LEASE_MS, False)]
)
def test_a_reserved_probe_that_can_not_be_renewed_is_made_within_its_lease_only(
    waited_ms: int, made: bool
) -> None:
    """While the ledger is away, what was written last decides: after it another process may probe."""
    hands, store = Hands(), ledgers.memory_store(SystemClock())
    opened(store, ago_ms=rules.COOLDOWN_MS)
    circuit = SharedCircuit(PROVIDER, BreakerAccess(store, store, lambda: store), hands)
    circuit.reserve()
    store.change_breaker = store.breaker = gone  # type: ignore[method-assign]
    hands.ahead_ms += waited_ms
    if made:
        assert circuit.before() == 1
    else:
        with pytest.raises((CircuitOpen, BackendUnavailable)):
            circuit.before()


def gone(*_arguments: object) -> Any:
    raise BackendUnavailable("gone")


def test_one_who_may_not_write_never_probes(store: Ledger) -> None:
    """A dry-run is refused while the circuit is not closed, and tells nothing."""
    reader = SharedCircuit(PROVIDER, BreakerAccess(store, None, lambda: store), SystemClock())
    reader.after(False)
    assert store.breakers() == []
    before = opened(store, ago_ms=rules.COOLDOWN_MS)
    reader = SharedCircuit(PROVIDER, BreakerAccess(store, None, lambda: store), SystemClock())
    with pytest.raises(CircuitOpen):
        reader.before()
    assert store.breaker(PROVIDER) == before


def test_without_a_ledger_the_process_keeps_its_own_account() -> None:
    """Trouble with the ledger neither stops calls nor forgets their failures."""
    store = ledgers.memory_store(SystemClock())
    circuit = circuit_of(store)
    circuit.before()

    store.change_breaker = store.breaker = gone  # type: ignore[method-assign]
    for _ in range(rules.FAILURES_MAX):
        assert circuit.before() is None
        circuit.after(False)
    with pytest.raises(CircuitOpen):
        circuit.before()
