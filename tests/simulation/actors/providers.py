"""Callers that share one breaker of a provider with outages. A shared cell stands for its row in a store."""

from __future__ import annotations

from dataclasses import dataclass, field

from kfm.model.breaker import (
    COOLDOWN_MS,
    FAILURES_MAX,
    PROBE_LEASE_MS,
    Breaker,
    may_call,
    on_failure,
    on_success,
    probe_started,
    wait_ms,
)
from kfm.model.errors import IllegalTransition
from tests.simulation.actors.scene import Scene, refused
from tests.simulation.judging import require

CALLERS = 3
CALLS = 9


@dataclass
class Row:
    """The stored breaker, and what an onlooker knows about it."""

    breaker: Breaker
    outages: list[tuple[int, int]]
    failures: int = 0  # in a row, as they were stored
    opened_at_ms: int | None = None
    probe_until_ms: int = 0
    probes: list[int] = field(default_factory=list)

    def is_down(self, now_ms: int) -> bool:
        return any(start <= now_ms < end for start, end in self.outages)

    def swap(self, seen: Breaker, new: Breaker, now_ms: int) -> bool:
        """Compare and set; True if it landed."""
        if self.breaker is not seen:
            return False
        self._observe(seen, new, now_ms)
        self.breaker = new
        return True

    def _observe(self, seen: Breaker, new: Breaker, now_ms: int) -> None:
        if new.state == "half-open" and new.fence != seen.fence:
            require(self.opened_at_ms is not None, "only an open breaker is probed")
            opened_at_ms = self.opened_at_ms or 0
            require(now_ms >= opened_at_ms + COOLDOWN_MS, "no probe before the cool-down is over")
            require(now_ms >= self.probe_until_ms, "one probe at a time", probes=self.probes)
            self.probe_until_ms = now_ms + PROBE_LEASE_MS
            self.probes.append(now_ms)
        if seen.state == "half-open" and new.state == "open":
            self.probe_until_ms, self.opened_at_ms = 0, now_ms
        if new.state == "closed":
            self.failures = new.failures if new.failures > self.failures else 0
            require(self.failures == new.failures, "failures are counted in a row", breaker=new)
            self.opened_at_ms, self.probe_until_ms = None, 0
        if seen.state == "closed" and new.state == "open":
            require(self.failures + 1 == FAILURES_MAX, "it opens after so many failures", breaker=new)
            self.failures, self.opened_at_ms = FAILURES_MAX, now_ms


def call(scene: Scene) -> None:
    rng = scene.rng
    start = scene.now_ms
    outages = []
    for _ in range(rng.randrange(1, 3)):
        start += rng.randrange(0, 60_000)
        outages.append((start, start + rng.randrange(10_000, 2 * COOLDOWN_MS)))
        start = outages[-1][1]
    row = Row(Breaker(provider="p"), outages)
    for index in range(CALLERS):
        scene.beside(f"caller{index}", lambda each: _caller(each, row))
    scene.sleep(30 * 60_000)
    scene.sleep(max(0, start - scene.now_ms))
    for _ in range(3):  # in the end the provider is well, and one caller finds out
        _one_call(scene, row)
        if row.breaker.state == "closed":
            return
        scene.sleep(wait_ms(row.breaker, scene.now_ms))
    require(row.breaker.state == "closed", "a provider that is well again is used again", row=row)


def _caller(scene: Scene, row: Row) -> None:
    for _ in range(CALLS):
        scene.pause("breaker.call")
        _one_call(scene, row)
        scene.sleep(scene.rng.randrange(1_000, 40_000))


def _one_call(scene: Scene, row: Row) -> None:
    seen, now_ms = row.breaker, scene.now_ms
    answer = may_call(seen, now_ms)
    cooling = row.opened_at_ms is not None and now_ms < row.opened_at_ms + COOLDOWN_MS
    require(not (cooling and answer != "refuse"), "no call while it is open", breaker=seen)
    require((answer == "refuse") == (wait_ms(seen, now_ms) > 0), "a refusal says how long", breaker=seen)
    if answer == "refuse":
        refused(IllegalTransition, lambda: probe_started(seen, now_ms), "no probe before its time")
        return
    fence: int | None = None
    if answer == "probe":
        claimed = probe_started(seen, now_ms)
        if not row.swap(seen, claimed, now_ms):
            return
        fence = claimed.fence
    scene.pause("breaker.answer")  # a prober may die here: its lease lapses
    if scene.rng.random() < 0.1:
        scene.sleep(PROBE_LEASE_MS + 1)
    failed = row.is_down(scene.now_ms)
    while True:
        seen = row.breaker
        new = on_failure(seen, scene.now_ms, fence) if failed else on_success(seen, fence)
        if seen.state != "closed" and fence != seen.fence:
            require(new is seen, "only the probe's own answer counts while it is open", breaker=seen)
        if new is seen or row.swap(seen, new, scene.now_ms):
            return
