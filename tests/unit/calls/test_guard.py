"""The call tier: bounded, jittered, obedient to Retry-After."""

from __future__ import annotations

import errno

import pytest

from kfm.calls.guard import classify_call, guarded
from kfm.model.errors import ChecksumMismatch, UpstreamUnavailable
from kfm.model.times import parse_http_date
from tests.stand_ins import START_MS, FakeClock, FixedRng


def failing(times: int, error: Exception):
    calls = []

    def call(timeout_ms: int) -> str:
        calls.append(timeout_ms)
        if len(calls) <= times:
            raise error
        return "done"

    return call, calls


BUSY = UpstreamUnavailable("busy", status=503)


@pytest.mark.req("RET-3")
def test_passing_trouble_is_waited_out():
    """A call that fails four times for a passing reason succeeds at the fifth, with growing waits."""
    clock = FakeClock()
    call, calls = failing(4, BUSY)
    assert guarded(call, clock=clock, rng=FixedRng()) == "done"
    assert len(calls) == 5
    assert clock.slept == [250, 500, 1000, 2000]


@pytest.mark.req("RET-3")
def test_five_attempts_and_no_more():
    """The fifth failure is the last: the error itself is raised."""
    clock = FakeClock()
    call, calls = failing(99, BUSY)
    with pytest.raises(UpstreamUnavailable):
        guarded(call, clock=clock, rng=FixedRng())
    assert len(calls) == 5


@pytest.mark.parametrize(
    "error",
    [
        ValueError("unknown"),
        UpstreamUnavailable("gone", status=404),
        UpstreamUnavailable("bad certificate", transient=False),
        OSError(errno.ENOSPC, "full"),
    ],
)
def test_what_does_not_pass_is_not_retried(error):
    """Errors that are not known to pass are raised at once."""
    clock = FakeClock()
    call, calls = failing(1, error)
    with pytest.raises(type(error)):
        guarded(call, clock=clock, rng=FixedRng())
    assert (len(calls), clock.slept) == (1, [])


@pytest.mark.parametrize(
    "error",
    [
        *[UpstreamUnavailable("x", status=status) for status in (408, 429, 500, 501, 502, 503, 504)],
        UpstreamUnavailable("cut", transient=True),
        ChecksumMismatch("changed", transient=True),
        TimeoutError(),
        ConnectionResetError(),
        OSError(errno.EAGAIN, "again"),
        OSError(errno.EBUSY, "busy"),
    ],
)
def test_what_passes_is_retried(error):
    """Timeouts, throttling, server trouble and contention are tried again."""
    assert classify_call(error).retryable


@pytest.mark.req("RET-5")
@pytest.mark.parametrize("header", ["7", "Thu, 01 Jan 2026 00:00:07 GMT"])
def test_retry_after_is_obeyed(header):
    """Seconds or a date: we wait at least as long as upstream asks."""
    clock = FakeClock()
    call, _ = failing(1, UpstreamUnavailable("busy", status=429, retry_after=header))
    guarded(call, clock=clock, rng=FixedRng(0.0))
    assert clock.slept == [7000]


@pytest.mark.req("RET-5")
def test_long_retry_after_is_handed_up():
    """More than 30 s is not slept here: the run tier learns when to come back."""
    clock = FakeClock()
    call, calls = failing(1, UpstreamUnavailable("busy", status=503, retry_after="31"))
    with pytest.raises(UpstreamUnavailable) as caught:
        guarded(call, clock=clock, rng=FixedRng())
    assert caught.value.facts["not_before_ms"] == START_MS + 31_000
    assert "31 s" in caught.value.__notes__[0]
    assert (len(calls), clock.slept) == (1, [])


@pytest.mark.req("RET-5")
def test_retry_after_that_does_not_fit_ends_the_attempt():
    """A wait beyond the deadline is not begun, and the error says why."""
    clock = FakeClock()
    call, _ = failing(1, UpstreamUnavailable("busy", status=503, retry_after="20"))
    with pytest.raises(UpstreamUnavailable) as caught:
        guarded(call, clock=clock, rng=FixedRng(), deadline_ms=10_000)
    assert caught.value.facts["not_before_ms"] == START_MS + 20_000
    assert clock.slept == []


def test_deadline_shrinks_the_timeout():
    """No call gets more time than is left until the deadline."""
    clock = FakeClock()
    call, timeouts = failing(1, BUSY)
    guarded(call, clock=clock, rng=FixedRng(), timeout_ms=5000, deadline_ms=4000)
    assert timeouts == [4000, 3750]


def test_hook_hears_of_each_retry():
    """The hook that keeps the telemetry is told of each attempt, its delay and its error."""
    heard = []
    call, _ = failing(2, BUSY)
    guarded(call, clock=FakeClock(), rng=FixedRng(), on_retry=heard.append)
    assert [(one.attempt, one.delay_ms, one.error) for one in heard] == [(1, 250, BUSY), (2, 500, BUSY)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777_000),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777_000),
        ("Sun Nov  6 08:49:37 1994", 784_111_777_000),
        ("yesterday", None),
        ("Sun, 32 Nov 1994 08:49:37 GMT", None),
        ("", None),
        (None, None),
    ],
)
def test_http_dates(text, expected):
    """All three shapes of an HTTP date are read, and nothing else."""
    assert parse_http_date(text) == expected
