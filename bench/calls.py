"""What `kfm.call` adds to a call that succeeds at once.

The function does nothing, so all that is measured is the wrapper. The declared call has a provider
(so a breaker) and may be retried; the `timeout` ones also hand a limit inward.
"""

from __future__ import annotations

import asyncio
import functools
import statistics
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import kfm
from bench.harness import Benchmark

# Under load a long measurement is interrupted and a short one is not, which would favour the one that is
# quicker. So each side is measured in windows of about the same short time, and the median window counts.
WINDOW_S = 0.0003
WINDOWS = 25


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
    """The same policy, as its manual shows it: three decorators."""
    from hyx.timeout import timeout

    breaker, retry = _hyx_parts()
    return retry(timeout(10)(breaker(fn)))


def _hyx_inline(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Its cheapest form: the timeout as a context, which starts no task."""
    from hyx.timeout import timeout

    breaker, retry = _hyx_parts()
    inner = breaker(fn)

    async def limited(value: int) -> Any:
        async with timeout(10):
            return await inner(value)

    return retry(limited)


def _hyx_parts() -> tuple[Any, Any]:
    from hyx.circuitbreaker import consecutive_breaker
    from hyx.retry import retry
    from hyx.retry.backoffs import expo

    breaker = consecutive_breaker(exceptions=OSError, failure_threshold=3, recovery_time_secs=300)
    return breaker, retry(on=OSError, attempts=5, backoff=expo(min_delay_secs=0.5, max_delay_secs=30))


def _seconds_each(fn: Callable[[int], Any]) -> float:
    loops, seconds = 8, []
    while len(seconds) < WINDOWS:
        started_s = time.perf_counter()
        for _ in range(loops):
            fn(1)
        took_s = time.perf_counter() - started_s
        if took_s < WINDOW_S and not seconds:
            loops *= 2
        else:
            seconds.append(took_s / loops)
    return statistics.median(seconds)


def _sync(fn: Callable[..., Any], reference: Callable[[Any], Any], **options: Any) -> dict[str, Any]:
    declared = kfm.call(provider="bench", idempotent=True, **options)(fn)
    return {
        "setup": lambda _: reference(fn),
        "ours": lambda _: _seconds_each(declared),
        "reference": lambda theirs: _seconds_each(theirs),
    }


async def _seconds_each_async(fn: Callable[[int], Coroutine[Any, Any, Any]]) -> float:
    loops, seconds = 8, []
    while len(seconds) < WINDOWS:
        started_s = time.perf_counter()
        for _ in range(loops):
            await fn(1)
        took_s = time.perf_counter() - started_s
        if took_s < WINDOW_S and not seconds:
            loops *= 2
        else:
            seconds.append(took_s / loops)
    return statistics.median(seconds)


def _async(reference: Callable[[Any], Any]) -> dict[str, Any]:
    def setup(stack: ExitStack) -> tuple[asyncio.Runner, Any]:
        runner = stack.enter_context(asyncio.Runner())

        async def declare() -> Any:
            return reference(_nothing_async)  # hyx's timeout wants a running loop

        return runner, runner.run(declare())

    declared = kfm.call(provider="bench", idempotent=True, timeout=10)(_nothing_async)
    return {
        "setup": setup,
        "ours": lambda pair: pair[0].run(_seconds_each_async(declared)),
        "reference": lambda pair: pair[0].run(_seconds_each_async(pair[1])),
    }


def benchmarks() -> list[Benchmark]:
    limited = {"timeout": 10, "pass_timeout": False}
    return [
        Benchmark(name="call_sync_vs_try", kind="cost", goal=1.4, rounds=51, **_sync(_nothing, _bare)),
        Benchmark(
            name="call_sync_vs_tenacity_pybreaker",
            kind="speedup",
            goal=60.0,
            rounds=25,
            **_sync(_nothing, _tenacity_pybreaker),
        ),
        Benchmark(name="call_async_vs_hyx", kind="cost", goal=0.7, rounds=25, **_async(_hyx)),
        # Beside the goals: hyx at its cheapest, and what a limit costs, so that the ones above hide nothing.
        Benchmark(name="call_async_vs_hyx_inline", kind="cost", goal=1.5, rounds=25, **_async(_hyx_inline)),
        Benchmark(
            name="call_sync_timeout_vs_try",
            kind="cost",
            goal=8.0,
            rounds=51,
            **_sync(_nothing, _bare, **limited),
        ),
        Benchmark(
            name="call_sync_handed_vs_try",
            kind="cost",
            goal=10.0,
            rounds=51,
            **_sync(_nothing_with_timeout, _bare, timeout=10),
        ),
    ]
