"""A provider that fails repeatedly opens its circuit: the circuits of one process, and the port to others."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import kfm
from kfm.calls.breakers import LocalBreakers
from kfm.calls.runtime import HERE
from kfm.model.breaker import BreakerLimits
from kfm.model.errors import CircuitOpen, UpstreamUnavailable
from kfm.testing.driven_time import START_MS, DrivenTime
from tests.unit.calls.forms import KINDS, declared, failing


@pytest.mark.req("RET-7")
@pytest.mark.parametrize("kind", KINDS)
def test_three_failures_in_a_row_open_the_circuit(kind: str, kfm_time: DrivenTime) -> None:
    """The provider sees three calls; then everybody fails fast until 300 s are over."""
    fetch, calls = failing(3, ConnectionResetError)
    call = declared(kind, fetch, provider="usgs", idempotent=True)
    with pytest.raises(ConnectionResetError) as caught:
        call()
    handed = kfm.handed_up(caught.value)
    assert handed is not None
    opened_ms = START_MS + 750
    assert (len(calls), handed.reason, handed.not_before_ms) == (3, "circuit-open", opened_ms + 300_000)
    assert kfm_time.tried[-1].circuit_open
    kfm_time.advance(299)
    with pytest.raises(CircuitOpen, match="usgs is tried again in 1 s") as refused:
        call()
    assert refused.value.facts["not_before_ms"] == opened_ms + 300_000
    assert len(calls) == 3
    kfm_time.advance(1)
    assert call() == "done"
    assert call() == "done"
    assert len(calls) == 5


@pytest.mark.req("RET-7")
def test_a_probe_that_fails_opens_it_again_at_once(kfm_time: DrivenTime) -> None:
    """When half open there is one try, and its failure costs another 300 s."""
    fetch, calls = failing(99, ConnectionResetError)
    call = kfm.call(provider="usgs", idempotent=True)(fetch)
    for expected in (3, 4, 5):
        with pytest.raises(ConnectionResetError):
            call()
        assert len(calls) == expected
        with pytest.raises(CircuitOpen):
            call()
        kfm_time.advance(300)


@pytest.mark.req("RET-7")
def test_only_one_probes(kfm_time: DrivenTime) -> None:
    """While one call tries whether the provider is well again, the others are refused."""
    fetch, _ = failing(3, ConnectionResetError)
    call = kfm.call(provider="usgs", idempotent=True)(fetch)
    with pytest.raises(ConnectionResetError):
        call()
    kfm_time.advance(300)
    refused = []

    def probe() -> str:
        with pytest.raises(CircuitOpen) as caught:
            call()
        refused.append(caught.value)
        return "well"

    assert kfm.call(probe, provider="usgs") == "well"
    assert len(refused) == 1
    assert call() == "done"


@pytest.mark.parametrize("error", [ValueError, lambda: UpstreamUnavailable("no", status=404)])
def test_errors_that_are_not_the_providers_fault_do_not_count(error: Any, kfm_time: DrivenTime) -> None:
    """Neither our own defects nor answers that we don't like open a circuit."""
    fetch, _ = failing(9, error)
    call = kfm.call(provider="usgs", idempotent=True)(fetch)
    for _ in range(9):
        with pytest.raises((ValueError, UpstreamUnavailable)):
            call()
    assert call() == "done"


def test_an_answer_resets_the_count_and_a_defect_does_not(kfm_time: DrivenTime) -> None:
    """A 404 shows that the provider is up; a ValueError of ours shows nothing."""

    def fail(error: Exception) -> None:
        def fetch() -> None:
            raise error

        with pytest.raises(type(error)):
            kfm.call(fetch, provider="usgs")

    def state() -> int:
        return HERE.breakers.circuit("usgs")._state.failures  # type: ignore[attr-defined, no-any-return]

    fail(TimeoutError())
    fail(TimeoutError())
    fail(ValueError())
    assert state() == 2
    fail(UpstreamUnavailable("no", status=404))
    assert state() == 0


def test_success_in_flight_resets_what_another_thread_counted(kfm_time: DrivenTime) -> None:
    """Failures are in a row only if no call ended well between them."""
    circuit = HERE.breakers.circuit("usgs")

    def fetch() -> None:
        circuit.after(False)
        circuit.after(False)

    kfm.call(fetch, provider="usgs")
    assert circuit.quiet


def test_providers_have_circuits_of_their_own(kfm_time: DrivenTime) -> None:
    """One that is down does not stop the other; calls without a provider have none."""
    fetch, calls = failing(3, ConnectionResetError)
    with pytest.raises(ConnectionResetError):
        kfm.call(fetch, provider="usgs", idempotent=True)
    assert kfm.call(fetch, provider="noaa") == "done"
    fetch, calls = failing(4, ConnectionResetError)
    assert kfm.call(fetch, idempotent=True) == "done"
    assert len(calls) == 5


def test_a_refusal_inside_is_neither_retried_nor_blamed_on_the_outer_provider(kfm_time: DrivenTime) -> None:
    """A call around one that is refused hands the refusal up, with its time."""
    fetch, calls = failing(3, ConnectionResetError)
    inner = kfm.call(provider="usgs", idempotent=True)(fetch)
    with pytest.raises(ConnectionResetError):
        inner()
    outer = kfm.call(provider="outer", idempotent=True)(lambda: inner())
    for _ in range(4):
        with pytest.raises(CircuitOpen):
            outer()
    assert (len(calls), HERE.breakers.circuit("outer").quiet) == (3, True)
    assert kfm_time.tried[-1].reason == "retry-after-for-run-tier"


def test_a_circuit_that_opens_during_the_wait_ends_the_call(kfm_time: DrivenTime) -> None:
    """The refusal names the error that was being waited out, and the story has an end."""
    circuit = HERE.breakers.circuit("usgs")

    def meanwhile(_: object) -> None:
        circuit.after(False)
        circuit.after(False)

    fetch, calls = failing(9, ConnectionResetError)
    with pytest.raises(CircuitOpen) as caught:
        kfm.call(fetch, provider="usgs", idempotent=True, on_retry=meanwhile)
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert len(calls) == 1
    ending = kfm_time.tried[-1]
    assert (ending.outcome, ending.reason) == ("gave-up", "circuit-open")
    assert ending.not_before_ms == caught.value.facts["not_before_ms"]


def test_another_kind_of_breakers_can_take_over(kfm_time: DrivenTime) -> None:
    """Calls that were declared before ask the new ones, and the old ones again afterwards."""
    asked: list[str] = []

    class Shared:
        quiet = False

        def __init__(self, provider: str) -> None:
            self.provider = provider

        def before(self) -> int | None:
            asked.append(f"before {self.provider}")
            return 7

        def after(self, ok: bool, fence: int | None = None) -> None:
            asked.append(f"after {ok} {fence}")

        def wait_ms(self) -> int:
            return 0

    class Fleet:
        def circuit(self, provider: str) -> Shared:
            return Shared(provider)

    fetch, _ = failing(1, ConnectionResetError)
    call = kfm.call(provider="usgs", idempotent=True)(fetch)
    with HERE.replaced(breakers=Fleet()):
        assert call() == "done"
    assert asked == ["before usgs", "after False 7", "before usgs", "after True 7"]
    call()
    assert len(asked) == 4


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_applications_that_end_in_any_order_leave_the_process_its_own_circuits(
    kfm_time: DrivenTime, order: tuple[int, int]
) -> None:
    """An application that ends while a newer one works is not what calls pass once both have ended."""
    own = HERE.breakers
    shared = [LocalBreakers(kfm_time), LocalBreakers(kfm_time)]
    leaves = [HERE.share(one) for one in shared]
    assert HERE.breakers is shared[1]
    leaves[order[0]]()
    assert HERE.breakers is shared[order[1]]
    leaves[order[1]]()
    assert HERE.breakers is own


@pytest.mark.req("RET-7")
@pytest.mark.parametrize("kind", KINDS)
def test_failures_between_successes_open_nothing(kind: str, kfm_time: DrivenTime) -> None:
    """Three failures open the circuit only if they are in a row."""
    calls: list[int] = []

    def every_second() -> None:
        calls.append(1)
        if len(calls) % 2:
            raise ConnectionResetError

    call = declared(kind, every_second, provider="usgs")
    for _ in range(5):
        with pytest.raises(ConnectionResetError):
            call()
        call()
    assert len(calls) == 10


@pytest.mark.req("RET-5", "RET-7")
@pytest.mark.parametrize("kind", KINDS)
def test_upstreams_own_time_spares_the_circuit(kind: str, kfm_time: DrivenTime) -> None:
    """Retry-After is obeyed at each of the call's attempts, which are spent; the circuit counts none."""
    fetch, calls = failing(99, lambda: UpstreamUnavailable("busy", status=503, retry_after="6"))
    with pytest.raises(UpstreamUnavailable) as caught:
        declared(kind, fetch, provider="usgs", idempotent=True)()
    assert (len(calls), kfm_time.delays) == (5, [6.0] * 4)
    handed = kfm.handed_up(caught.value)
    assert handed is not None
    assert handed.reason == "attempts-spent"
    assert HERE.breakers.circuit("usgs").quiet


@pytest.mark.req("RET-5", "RET-7")
def test_a_probe_waits_for_upstreams_own_time(kfm_time: DrivenTime) -> None:
    """A trial call that is answered with a time is made again then, and by no other call before."""
    circuit = HERE.breakers.circuit("usgs")
    for _ in range(3):
        circuit.after(False)
    kfm_time.advance(300)
    fetch, calls = failing(2, lambda: UpstreamUnavailable("busy", status=503, retry_after="7"))
    with pytest.raises(UpstreamUnavailable):
        kfm.call(fetch, provider="usgs")
    assert circuit.wait_ms() == 7_000
    with pytest.raises(CircuitOpen):
        kfm.call(fetch, provider="usgs")
    kfm_time.advance(7)
    assert kfm.call(fetch, provider="usgs", idempotent=True) == "done"
    assert (len(calls), kfm_time.delays) == (3, [7.0])
    assert circuit.quiet


@pytest.mark.req("RET-7")
def test_a_circuit_has_the_limits_of_its_provider(kfm_time: DrivenTime) -> None:
    """The configured number of failures opens it, for the configured time."""
    limits = BreakerLimits(failures_max=1, cool_down_ms=5_000)
    with HERE.replaced(breakers=LocalBreakers(kfm_time, lambda _: limits)):
        fetch, calls = failing(1, ConnectionResetError)
        with pytest.raises(ConnectionResetError) as caught:
            kfm.call(fetch, provider="usgs", idempotent=True)
        assert "usgs failed repeatedly, and its circuit is open" in caught.value.__notes__[0]
        kfm_time.advance(5)
        assert kfm.call(fetch, provider="usgs") == "done"
    assert len(calls) == 2


@pytest.mark.req("RET-7")
def test_many_threads_count_right(kfm_time: DrivenTime) -> None:
    """Counting is not lost when threads fail at once."""
    circuit = HERE.breakers.circuit("usgs")
    barrier = threading.Barrier(3)

    def fail() -> None:
        barrier.wait()
        circuit.after(False)

    threads = [threading.Thread(target=fail) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert circuit.wait_ms() == 300_000


def test_async_calls_share_the_circuit_with_the_others(kfm_time: DrivenTime) -> None:
    """The circuit is the provider's, not the form's."""
    fetch, calls = failing(99, ConnectionResetError)
    with pytest.raises(ConnectionResetError):
        declared("async decorator", fetch, provider="usgs", idempotent=True)()
    with pytest.raises(CircuitOpen):
        kfm.call(fetch, provider="usgs")
    assert len(calls) == 3
    assert asyncio.run(_gather()) == ["CircuitOpen"] * 3


async def _gather() -> list[str]:
    @kfm.call(provider="usgs")
    async def fetch() -> None: ...

    answers = await asyncio.gather(*[fetch() for _ in range(3)], return_exceptions=True)
    return [type(answer).__name__ for answer in answers]
