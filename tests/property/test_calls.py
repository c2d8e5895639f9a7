"""Whatever a provider does, a declared call keeps its promises."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kfm
from kfm.model.errors import GateDenied, UpstreamUnavailable
from kfm.model.times import parse_http_date
from kfm.testing.driven_time import START_MS, DrivenTime, driven_time

CAP_S = 30.0


def _http_date(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(START_MS / 1000 + seconds, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")


class Behaviour:
    """What one try does: how long it takes, and how it ends."""

    def __init__(self, took_s: float, ending: str, asked: int | None, as_date: bool) -> None:
        self.took_s, self.ending, self.asked, self.as_date = took_s, ending, asked, as_date

    def __repr__(self) -> str:
        return f"({self.took_s} s, {self.ending}, Retry-After {self.asked}{' as a date' * self.as_date})"

    def act(self, time: DrivenTime) -> str:
        time.advance(self.took_s)
        if self.ending == "good":
            return "good"
        raise self.error()

    def error(self) -> Exception:
        if self.ending == "refused":
            return GateDenied("no")
        if self.ending == "unknown":
            return ValueError("?")
        said = None if self.asked is None else (_http_date(self.asked) if self.as_date else str(self.asked))
        return UpstreamUnavailable("busy", status=503, **({} if said is None else {"retry_after": said}))


behaviours = st.builds(
    Behaviour,
    took_s=st.sampled_from([0.0, 0.001, 0.3, 2.0, 9.0, 40.0]),
    ending=st.sampled_from(["good", "busy", "busy", "busy", "busy", "refused", "unknown"]),
    asked=st.none() | st.integers(0, 45),
    as_date=st.booleans(),
)

scripts = st.lists(behaviours, min_size=8, max_size=8)
forms = st.sampled_from(["sync", "async", "loop", "async loop"])


def play(
    form: str, script: list[Behaviour], time: DrivenTime, options: Any
) -> tuple[list[Behaviour], list[float], BaseException | None]:
    """Make one call; returns what was tried, when each try began, and the error if there was one."""
    tried: list[Behaviour] = []
    began: list[float] = []

    def step() -> str:
        began.append(time.passed)
        tried.append(script[len(tried)])
        return tried[-1].act(time)

    async def step_async() -> str:
        return step()

    async def loop_async() -> None:
        async for attempt in kfm.call(**options):
            async with attempt:
                await step_async()

    try:
        if form == "sync":
            kfm.call(**options)(step)()
        elif form == "async":
            asyncio.run(kfm.call(**options)(step_async)())
        elif form == "async loop":
            asyncio.run(loop_async())
        else:
            for attempt in kfm.call(**options):
                with attempt:
                    step()
    except Exception as error:
        return tried, began, error
    return tried, began, None


@pytest.mark.req("RET-1", "RET-3", "RET-4", "RET-5")
@given(
    form=forms,
    script=scripts,
    jitter=st.floats(0, 1, exclude_max=True),
    attempts=st.integers(1, 5),
    base=st.sampled_from([0.5, 0.7, 1.0]),
    timeout=st.sampled_from([None, 0.2, 5.0, 30.0, 600.0]),
    provider=st.sampled_from([None, "usgs"]),
)
@settings(max_examples=400)
def test_every_promise(
    form: str,
    script: list[Behaviour],
    jitter: float,
    attempts: int,
    base: float,
    timeout: float | None,
    provider: str | None,
) -> None:
    """At most so many tries, each wait within its range and as long as was asked, none past the deadline."""
    with driven_time() as time:
        time.jitter = jitter
        options = {
            "idempotent": True,
            "attempts": attempts,
            "base": base,
            "timeout": timeout,
            "provider": provider,
        }
        tried, began, error = play(form, script, time, options)

        assert 1 <= len(tried) <= attempts
        *retried, last = tried
        # Three failures open the circuit; one that says when to come back is obeyed instead.
        blamed = [
            each
            for each, at in zip(tried, began, strict=True)
            if each.ending == "busy" and not _asked(each, at + each.took_s)
        ]
        assert provider is None or len(blamed) < 3 or blamed[2] is last
        assert all(each.ending == "busy" for each in retried)
        assert (error is None) == (last.ending == "good")

        assert len(time.delays) == len(retried)
        for index, (behaviour, delay) in enumerate(zip(retried, time.delays, strict=True)):
            at_most = min(CAP_S, base * 2**index)
            asked = _asked(behaviour, began[index] + behaviour.took_s)
            assert asked <= delay <= max(at_most, asked)
            assert asked <= CAP_S
            assert delay == max(asked, int(jitter * round(at_most * 1000)) / 1000)

        # Without timeout= a plain function is limited from its first failure, everything else from its start.
        counted_from = retried[0].took_s if timeout is None and form == "sync" and retried else 0.0
        limit = counted_from + (60.0 if timeout is None else timeout)
        assert all(at < limit for at in began[1:])


def _asked(behaviour: Behaviour, failed_at: float) -> float:
    if behaviour.asked is None:
        return 0.0
    if not behaviour.as_date:
        return float(behaviour.asked)
    at_ms = parse_http_date(_http_date(behaviour.asked), START_MS)
    assert at_ms is not None
    return max(0.0, round(at_ms - START_MS - failed_at * 1000) / 1000)


@pytest.mark.req("RET-5")
@given(form=forms, seconds=st.integers(0, 100), timeout=st.sampled_from([10.0, 25.0, 600.0]))
def test_retry_after_is_obeyed_or_handed_up(form: str, seconds: int, timeout: float) -> None:
    """The next try comes no earlier than asked; where that can't be, the error says when it may."""
    script = [Behaviour(0.0, "busy", seconds, False), Behaviour(0.0, "good", None, False)]
    with driven_time() as time:
        tried, began, error = play(form, script, time, {"idempotent": True, "timeout": timeout})
        if error is None:
            assert began[1] >= seconds
            assert seconds <= CAP_S
        else:
            assert len(tried) == 1
            handed = kfm.handed_up(error)
            assert handed is not None
            assert handed.not_before_ms == START_MS + seconds * 1000
            assert seconds > CAP_S or seconds >= timeout


@pytest.mark.req("RET-6")
@given(form=forms, script=scripts, provider=st.sampled_from([None, "usgs"]))
def test_undeclared_work_is_done_once(form: str, script: list[Behaviour], provider: str | None) -> None:
    """Without a declaration there is one try, whatever it meets."""
    with driven_time() as time:
        tried, _, _ = play(form, script, time, {"provider": provider})
        assert (len(tried), time.delays) == (1, [])


@pytest.mark.req("RET-4")
@given(
    outer=st.sampled_from([1.0, 5.0, 20.0]),
    inner=st.sampled_from([None, 0.5, 3.0, 100.0]),
    waits=st.lists(st.sampled_from([0.1, 1.0, 4.0]), min_size=5, max_size=5),
)
def test_an_inner_deadline_is_never_later_than_the_outer(
    outer: float, inner: float | None, waits: list[float]
) -> None:
    """At each try inside, what is left is at most what is left outside, and nothing begins after it."""
    with driven_time() as time:
        seen: list[tuple[float, float | None]] = []

        @kfm.call(timeout=inner, idempotent=True)
        def work() -> None:
            seen.append((outer - time.passed, kfm.deadline()))
            time.advance(waits[len(seen) - 1])
            raise TimeoutError

        with pytest.raises(TimeoutError), kfm.within(outer):
            work()
        for left, told in seen:
            assert left > 0
            assert told is not None
            assert told <= left + 1e-9
