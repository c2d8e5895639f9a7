"""The rules about circuits: what their rows may become, and who may call a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.calls.breakers import FRESH_MS
from kfm.db.ledger_reader import LedgerReader
from kfm.model.breaker import COOLDOWN_MS, FAILURES_MAX, PROBE_LEASE_MS, Breaker
from tests.simulation.judging import require
from tests.simulation.outages import ASKED_MAX_S

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World


class CircuitChecks:
    def __init__(self, world: World, ledger: LedgerReader) -> None:
        self._world = world
        self._ledger = ledger
        self._rows: dict[str, Breaker] = {}
        self._probers: dict[tuple[str, int], Process] = {}  # whose fence it is

    # --- what a row may become ---------------------------------------------------------

    def on_commit(self, process: Process, now_ms: int) -> None:
        for name, parameters, landed in process.facts.get("told", ()):
            if name == "breakers.change" and landed:
                provider = parameters["provider"]
                before = self._rows.get(provider, Breaker(provider=provider))
                after = self._ledger.breaker(provider)
                self._moved(before, after, process, now_ms)
                self._rows[provider] = after

    def _moved(self, before: Breaker, after: Breaker, process: Process, now_ms: int) -> None:
        counts, facts = self._world.scheduler.counts, {"before": before, "after": after, "now_ms": now_ms}
        if after.fence != before.fence and after.state == "half-open":
            counts["probe"] += 1
            require(before.state != "closed", "only an open circuit is probed", **facts)
            require(after.fence == before.fence + 1, "every probe has a fence of its own", **facts)
            if before.state == "open":
                due_ms = (before.opened_at_ms or 0) + COOLDOWN_MS
                require(now_ms >= due_ms, "no probe before the cool-down is over", **facts)
            else:
                require(now_ms >= (before.probe_until_ms or 0), "one probe at a time", **facts)
            self._probers[after.provider, after.fence] = process
        if after.state == "half-open":
            lease_ms = (after.probe_until_ms or 0) - now_ms
            asked = after.fence == before.fence and self._world.is_troubled  # a time to come back
            bound_ms = ASKED_MAX_S * 1000 if asked else PROBE_LEASE_MS
            require(lease_ms <= bound_ms, "a probe's lease is bounded", **facts)
        if before.state == "closed" and after.state == "closed":
            require(after.failures in (0, before.failures + 1), "failures are counted one by one", **facts)
            require(after.failures < FAILURES_MAX, "it opens after so many failures", **facts)
        if before.state == "closed" and after.state == "open":
            counts["circuit opened"] += 1
            require(before.failures + 1 == FAILURES_MAX, "it opens after so many failures", **facts)
        if before.state == "half-open" and after.state == "open":
            self._prober(after, process)
        if before.state == "open" and after.state == "closed":
            require(self._is_reset(process, after), "only a probe or a person closes a circuit", **facts)
        if before.state == "half-open" and after.state == "closed":
            counts["circuit closed"] += 1
            if not self._is_reset(process, after):
                self._prober(after, process)

    def _prober(self, breaker: Breaker, process: Process) -> None:
        prober = self._probers.get((breaker.provider, breaker.fence))
        require(prober is process, "only the probe's own result counts", breaker=breaker)

    def _is_reset(self, process: Process, breaker: Breaker) -> bool:
        return any(
            name == "governance.append"
            and parameters["kind"] == "breaker-reset"
            and parameters["subject"] == f"provider:{breaker.provider}"
            for name, parameters, _ in process.facts["told"]
        )

    # --- who may call --------------------------------------------------------------------

    def on_look(self, process: Process, provider: str, lost: bool | None) -> None:
        """The process was told how the circuit stands; after a lost answer it goes by what it thinks.
        `lost` is None when it hears later what it was told then."""
        seen: dict[str, Any] = process.facts.setdefault("seen", {})
        breaker = seen[provider][0] if lost is None else self._ledger.breaker(provider)
        seen[provider] = None if lost else (breaker, self._world.scheduler.now_ms)

    def on_call(self, provider: str, process: Process) -> None:
        """A request is about to go out. What is known of the circuit may be a second old, not more."""
        view = process.facts.get("seen", {}).get(provider, ())
        if view is None:
            return
        require(view != (), "no call before the circuit was looked at", provider=provider)
        breaker, at_ms = view
        facts = {"breaker": breaker, "at_ms": at_ms, "now_ms": self._world.scheduler.now_ms}
        mine = self.is_prober(breaker, process)
        if mine and breaker.state == "half-open":  # while the ledger is away, its lease is what it goes by
            until_ms = max(breaker.probe_until_ms or 0, at_ms + FRESH_MS)
            require(facts["now_ms"] <= until_ms, "a probe is made within its lease", **facts)
            return
        require(facts["now_ms"] - at_ms <= FRESH_MS, "what is known of a circuit is fresh", **facts)
        require(breaker.state == "closed", "no call but the probe while it is open", **facts)

    def is_prober(self, breaker: Breaker, process: Process) -> bool:
        return self._probers.get((breaker.provider, breaker.fence)) is process
