"""What waited for a provider comes back in order, late enough, and never faster than it piled up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model import breaker as rules
from kfm.model.breaker import Breaker

pytestmark = pytest.mark.req("RET-7")

DAY_MS = 86_400_000
TIMES = st.integers(0, DAY_MS // 2)


def over(tripped_ms: int, closed_ms: int) -> Breaker:
    return Breaker(provider="p", tripped_at_ms=tripped_ms, closed_at_ms=closed_ms)


@settings(max_examples=300)
@given(TIMES, st.integers(1, DAY_MS // 2), st.lists(TIMES, min_size=2, max_size=50), TIMES)
def test_order_is_kept_and_nothing_comes_early(
    tripped_ms: int, outage_ms: int, offsets: list[int], since_ms: int
) -> None:
    """Work of the outage begins after its end, in the order in which it fell due, within the spread."""
    closed_ms = tripped_ms + outage_ms
    breaker = over(tripped_ms, closed_ms)
    due = sorted(tripped_ms + 1 + offset % outage_ms for offset in offsets)
    released = [rules.release_at_ms(breaker, each, 0.5, closed_ms + since_ms) for each in due]
    waited = [at_ms for each, at_ms in zip(due, released, strict=True) if each < closed_ms]
    assert waited == sorted(waited)
    for each, at_ms in zip(due, released, strict=True):
        if each >= closed_ms:
            assert at_ms == each, "what falls due afterwards does not wait"
        else:
            assert closed_ms <= at_ms <= rules.recovered_at_ms(breaker)


@settings(max_examples=200)
@given(TIMES, st.integers(600_000, DAY_MS // 2), st.integers(1_000, 60_000))
def test_the_peak_stays_under_twice_the_usual_rate(tripped_ms: int, outage_ms: int, pace_ms: int) -> None:
    """Whatever the usual rate is, and however long the outage was."""
    closed_ms = tripped_ms + outage_ms
    breaker = over(tripped_ms, closed_ms)
    span_ms = 20 * pace_ms
    waited = [
        rules.release_at_ms(breaker, due_ms, 0.5, closed_ms)
        for due_ms in range(tripped_ms + 1, min(closed_ms, tripped_ms + 400 * pace_ms), pace_ms)
    ]
    late = [at_ms for at_ms in waited if at_ms < closed_ms + span_ms]
    assert len(late) + span_ms // pace_ms < 2 * span_ms / pace_ms


@given(st.text(max_size=40))
def test_a_name_has_one_place(name: str) -> None:
    """The same each time, and always within the spread."""
    assert 0 <= rules.share_of(name) < 1
    assert rules.share_of(name) == rules.share_of(name)


def test_places_are_even() -> None:
    """A thousand names fill every tenth of the spread about equally."""
    places = [rules.share_of(f"unit-{number}") for number in range(1000)]
    tenths = [sum(tenth <= place * 10 < tenth + 1 for place in places) for tenth in range(10)]
    assert min(tenths) > 70
    assert max(tenths) < 130


def test_a_second_outage_while_work_waits_is_the_same_one() -> None:
    """The spread then covers everything that has piled up since the first failure."""
    breaker = Breaker(provider="p")
    for at_ms in (1, 2, 3):
        breaker = rules.on_failure(breaker, at_ms)
    breaker = rules.on_success(rules.probe_started(breaker, 600_000), 1, 600_001)
    assert (breaker.state, breaker.tripped_at_ms, breaker.closed_at_ms) == ("closed", 3, 600_001)
    again = breaker
    for at_ms in (700_000, 700_001, 700_002):
        again = rules.on_failure(again, at_ms)
    assert (again.state, again.tripped_at_ms, again.closed_at_ms) == ("open", 3, None)
    later = breaker
    for at_ms in (DAY_MS, DAY_MS + 1, DAY_MS + 2):
        later = rules.on_failure(later, at_ms)
    assert later.tripped_at_ms == DAY_MS + 2


def test_while_it_is_open_the_answer_is_when_to_look_again() -> None:
    """The end of the cool-down, or of the probe's lease."""
    breaker = Breaker(provider="p", state="open", failures=3, opened_at_ms=1_000, tripped_at_ms=1_000)
    assert rules.release_at_ms(breaker, 0, 0.5, 2_000) == 1_000 + rules.COOLDOWN_MS
    probing = rules.probe_started(breaker, 1_000 + rules.COOLDOWN_MS)
    at_ms = rules.release_at_ms(probing, 0, 0.5, 1_000 + rules.COOLDOWN_MS)
    assert at_ms == 1_000 + rules.COOLDOWN_MS + rules.PROBE_LEASE_MS


def test_a_probe_is_renewed_given_up_and_reset_by_its_fence() -> None:
    """A process that does not hold the probe changes nothing; a reset spends its fence."""
    opened = Breaker(provider="p", state="open", failures=3, opened_at_ms=0, tripped_at_ms=0)
    probing = rules.probe_started(opened, 300_000)
    assert rules.probe_renewed(probing, 310_000, 7) == probing
    assert rules.probe_renewed(probing, 310_000, 1).probe_until_ms == 310_000 + rules.PROBE_LEASE_MS
    assert rules.probe_given_up(probing, 310_000, 7) == probing
    assert rules.may_call(rules.probe_given_up(probing, 310_000, 1), 310_000) == "probe"
    closed = rules.reset(probing, 320_000)
    assert (closed.state, closed.fence, closed.failures) == ("closed", 2, 0)
    assert rules.on_success(closed, 1, 330_000) == closed
    assert rules.reset(Breaker(provider="p", failures=2), 1).failures == 0
    assert rules.reset(opened, 5).closed_at_ms == 5
