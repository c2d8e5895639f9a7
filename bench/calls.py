"""What `kfm.call` adds to a call that succeeds at once.

The function does nothing, so all that is measured is the wrapper. The declared call has a provider
(so a breaker) and may be retried; the `timeout` ones also hand a limit inward.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import kfm
from bench.harness import Benchmark

LOOPS = 2_000


def _nothing(value: int) -> int:
    return value


def _nothing_with_timeout(value: int, timeout: float | None = None) -> int:
    return value


async def _nothing_async(value: int) -> int:
    return value


def _bare(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The least that anybody writes by hand."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except OSError as error:
            raise RuntimeError("it failed") from error

    return wrapper


def _tenacity_pybreaker(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same policy, as their manuals show it: a breaker inside a retry with jitter."""
    import pybreaker
    import tenacity

    breaker = pybreaker.CircuitBreaker(fail_max=3, reset_timeout=300)
    retry = tenacity.retry(
        stop=tenacity.stop_after_attempt(5),
        wait=tenacity.wait_random_exponential(multiplier=0.5, max=30),
        retry=tenacity.retry_if_exception_type(OSError),
        reraise=True,
    )
    return retry(breaker(fn))


def _hyx(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same policy: retry around timeout around breaker."""
    from hyx.circuitbreaker import consecutive_breaker
    from hyx.retry import retry
    from hyx.retry.backoffs import expo
    from hyx.timeout import timeout

    breaker = consecutive_breaker(exceptions=OSError, failure_threshold=3, recovery_time_secs=300)
    waits = expo(min_delay_secs=0.5, max_delay_secs=30)
    return retry(on=OSError, attempts=5, backoff=waits)(timeout(10)(breaker(fn)))


def _seconds_each(fn: Callable[[int], Any]) -> float:
    started_s = time.perf_counter()
    for _ in range(LOOPS):
        fn(1)
    return (time.perf_counter() - started_s) / LOOPS


def _sync(fn: Callable[..., Any], reference: Callable[[Any], Any]) -> dict[str, Any]:
    ours = kfm.call(provider="bench", idempotent=True)(fn)
    theirs = reference(fn)
    return {"ours": lambda _: _seconds_each(ours), "reference": lambda _: _seconds_each(theirs)}


def _timed(reference: Callable[[Any], Any], **options: Any) -> dict[str, Any]:
    ours = kfm.call(provider="bench", idempotent=True, timeout=10, **options)(_nothing_with_timeout)
    theirs = reference(_nothing_with_timeout)
    return {"ours": lambda _: _seconds_each(ours), "reference": lambda _: _seconds_each(theirs)}


async def _seconds_each_async(fn: Callable[[int], Coroutine[Any, Any, Any]]) -> float:
    started_s = time.perf_counter()
    for _ in range(LOOPS):
        await fn(1)
    return (time.perf_counter() - started_s) / LOOPS


def _async_pair(stack: ExitStack) -> dict[str, Callable[[], float]]:
    runner = stack.enter_context(asyncio.Runner())

    async def declare() -> Callable[..., Any]:
        return _hyx(_nothing_async)  # its timeout wants a running loop

    theirs = runner.run(declare())
    ours = kfm.call(provider="bench", idempotent=True, timeout=10)(_nothing_async)
    return {
        "ours": lambda: runner.run(_seconds_each_async(ours)),
        "reference": lambda: runner.run(_seconds_each_async(theirs)),
    }


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(name="call_sync_vs_try", kind="cost", goal=1.5, rounds=101, **_sync(_nothing, _bare)),
        Benchmark(
            name="call_sync_vs_tenacity_pybreaker",
            kind="speedup",
            goal=60.0,
            rounds=25,
            **_sync(_nothing, _tenacity_pybreaker),
        ),
        Benchmark(
            name="call_async_vs_hyx",
            kind="cost",
            goal=0.7,
            rounds=25,
            setup=_async_pair,
            ours=lambda pair: pair["ours"](),
            reference=lambda pair: pair["reference"](),
        ),
        # No goal was set for these; they say what a limit costs, so that the ones above hide nothing.
        Benchmark(
            name="call_sync_timeout_vs_try",
            kind="cost",
            goal=6.0,
            rounds=25,
            **_timed(_bare, pass_timeout=False),
        ),
        Benchmark(name="call_sync_handed_vs_try", kind="cost", goal=9.0, rounds=25, **_timed(_bare)),
    ]
