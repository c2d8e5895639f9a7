"""Any order of admissions, heartbeats, deaths, switches and promotions agrees with a model on one page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from kfm.model.records import Lock, Run
from tests.conformance.db.ledgers import Desk, entry, memory_store, new_run, switch
from tests.stand_ins import FakeClock

LEASE_MS = 1_000
SCOPES = ("dataset:a", "dataset:b")
NAMES = st.sampled_from("pqrs")
WORKERS = st.sampled_from(["w1", "w2", "w3"])
scopes = st.sampled_from(SCOPES)


@dataclass
class Lease:
    fence: int = 0
    worker: str | None = None
    run: str = ""
    until_ms: int = 0


@dataclass
class Model:
    leases: dict[str, Lease] = field(default_factory=lambda: {scope: Lease() for scope in (*SCOPES, "gc")})
    runs: dict[str, Run] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    epoch: int = 1
    sequence: int = 0

    def gone(self, lease: Lease, now_ms: int) -> bool:
        return lease.worker is not None and (lease.until_ms <= now_ms or lease.worker in self.dead)

    def free(self, lease: Lease, now_ms: int, *, grow: bool = True) -> None:
        """The holder is evicted: its run fails, unless another process has taken it over."""
        run = self.runs.get(lease.run)
        if run is not None and run.status == "running" and run.fence == lease.fence:
            code = "LEASE_EXPIRED" if lease.until_ms <= now_ms else "WORKER_DIED"
            self.runs[lease.run] = replace(run, status="failed", error_code=code)
        lease.fence += grow
        lease.worker, lease.run, lease.until_ms = None, "", 0


class Ledger(RuleBasedStateMachine):
    """Every answer of the store is the model's answer; fences only grow."""

    @initialize()
    def begin(self) -> None:
        self.clock = FakeClock()
        self.desk = Desk(memory_store(self.clock))
        self.store = self.desk.store
        self.model = Model()
        self.fences = dict.fromkeys((*SCOPES, "gc"), 0)
        self.tokens: list[tuple[str, Run]] = []  # what was once admitted
        self.collections: list[int] = []

    def dead(self, worker_id: str) -> bool:
        return worker_id in self.model.dead

    @rule(name=NAMES, scope=scopes, worker=WORKERS, stale=st.booleans(), late=st.booleans())
    def admit(self, name: str, scope: str, worker: str, stale: bool, late: bool) -> None:
        model, now_ms = self.model, self.clock.now_ms()
        proposed = new_run(name)
        known = model.runs.get(proposed.run_id)
        seen: Run | None = None
        if known is not None and known.status != "success" and not stale:
            seen = self.store.run(proposed.run_id)
            assert seen is not None
            proposed = replace(
                seen,
                status="running",
                attempts=seen.attempts + 1,
                end_time_ms=None,
                error_code=None,
                error_message=None,
            )
        epoch = model.epoch - late
        answer = self.desk.admit(
            proposed,
            seen=seen,
            scope=scope,
            worker_id=worker,
            lease_ms=LEASE_MS,
            dead=self.dead,
            policy_epoch=epoch,
        )
        lease, collector = model.leases[scope], model.leases["gc"]
        if late:
            assert answer.answer == "epoch-moved"
            return
        blocking = [
            one for one in (lease, collector) if one.worker is not None and not model.gone(one, now_ms)
        ]
        if blocking:
            assert answer.answer == "locked"
            return
        if collector.worker is not None:
            model.free(collector, now_ms)
        if seen is None and known is not None:
            assert answer.answer == "moved"
            assert answer.run == self.store.run(proposed.run_id)
            return
        assert answer.answer == "admitted"
        stored = answer.run
        assert stored is not None
        fence = max(lease.fence, seen.fence if seen else 0) + 1
        assert stored.fence == fence
        model.runs[stored.run_id] = stored
        model.free(lease, now_ms, grow=False)
        lease.fence, lease.worker, lease.run, lease.until_ms = fence, worker, stored.run_id, now_ms + LEASE_MS
        self.tokens.append((scope, stored))

    def token(self, data: Any) -> tuple[str, Run] | None:
        return data.draw(st.sampled_from(self.tokens)) if self.tokens else None

    @rule(data=st.data(), late=st.booleans(), unchanged=st.booleans(), stale=st.booleans())
    def promote(self, data: Any, late: bool, unchanged: bool, stale: bool) -> None:
        token = self.token(data)
        if token is None:
            return
        (scope, run), model = token, self.model
        base = model.sequence - stale
        answer = self.desk.promote(
            run,
            None if unchanged else "text",
            scope=scope,
            policy_epoch=model.epoch - late,
            base_sequence=base,
        )
        lease, stored = model.leases[scope], model.runs[run.run_id]
        if lease.fence != run.fence or lease.run != run.run_id:
            assert answer.answer == "lost"
        elif late:
            assert answer.answer == "epoch-moved"
        elif stale:
            assert answer.answer == "head-moved"
        elif stored.status != "running" or stored.fence != run.fence:
            assert answer.answer == "lost"
        else:
            model.sequence += not unchanged
            assert (answer.answer, answer.sequence) == (
                "unchanged" if unchanged else "promoted",
                model.sequence,
            )
            model.runs[run.run_id] = replace(stored, status="success")
            model.free(lease, 0, grow=False)

    @rule(data=st.data())
    def fail(self, data: Any) -> None:
        token = self.token(data)
        if token is None:
            return
        (scope, run), model = token, self.model
        stored, lease = model.runs[run.run_id], model.leases[scope]
        lands = stored.status == "running" and stored.fence == run.fence
        assert self.desk.fail(run, scope=scope) is lands
        if lands:
            model.runs[run.run_id] = replace(stored, status="failed", error_code="KFM601")
            if lease.fence == run.fence:
                model.free(lease, 0, grow=False)

    @rule(data=st.data())
    def renew(self, data: Any) -> None:
        token = self.token(data)
        if token is None:
            return
        scope, run = token
        lease = self.model.leases[scope]
        ours = lease.fence == run.fence and lease.worker is not None
        assert self.store.renew(scope, run.fence, LEASE_MS) == ((self.model.epoch, None) if ours else None)
        if ours:
            lease.until_ms = self.clock.now_ms() + LEASE_MS

    @rule()
    def reap(self) -> None:
        now_ms = self.clock.now_ms()
        gone = {s: one for s, one in self.model.leases.items() if self.model.gone(one, now_ms)}
        reaped = self.store.reap(self.dead)
        assert sorted(one.scope for one in reaped) == sorted(gone.keys() - {"gc"})
        for lease in gone.values():
            self.model.free(lease, now_ms)

    @rule(worker=WORKERS)
    def await_collection(self, worker: str) -> None:
        """The collector's lock beside runs in progress: no other begins."""
        now_ms, collector = self.clock.now_ms(), self.model.leases["gc"]
        answer = self.store.await_collection(worker, LEASE_MS, self.dead)
        if collector.worker and not self.model.gone(collector, now_ms):
            assert answer is None
            return
        collector.fence, collector.worker, collector.until_ms = collector.fence + 1, worker, now_ms + LEASE_MS
        assert answer == collector.fence
        self.collections.append(collector.fence)

    @rule(data=st.data())
    def leave_collection(self, data: Any) -> None:
        if not self.collections:
            return
        fence = data.draw(st.sampled_from(self.collections))
        self.store.leave_collection(fence)
        collector = self.model.leases["gc"]
        if collector.fence == fence:
            self.model.free(collector, 0, grow=False)

    @rule(worker=WORKERS, data=st.data())
    def collect(self, worker: str, data: Any) -> None:
        model, now_ms = self.model, self.clock.now_ms()
        waiting = data.draw(st.sampled_from([None, *self.collections]))
        answer = self.store.begin_collection(worker, LEASE_MS, self.dead, waiting)
        for lease in model.leases.values():
            if model.gone(lease, now_ms):
                model.free(lease, now_ms)
        collector = model.leases["gc"]
        others = [lease for lease in model.leases.values() if lease is not collector]
        if any(lease.worker for lease in others) or (collector.worker and collector.fence != waiting):
            assert isinstance(answer, Lock)
            return
        collector.fence, collector.worker, collector.until_ms = collector.fence + 1, worker, now_ms + LEASE_MS
        assert answer == collector.fence
        self.collections.append(collector.fence)

    @rule(data=st.data())
    def end_collection(self, data: Any) -> None:
        if not self.collections:
            return
        fence = data.draw(st.sampled_from(self.collections))
        self.store.end_collection(fence, entry("gc"))
        collector = self.model.leases["gc"]
        if collector.fence == fence:
            self.model.free(collector, 0, grow=False)

    @rule(passed_ms=st.sampled_from([1, LEASE_MS // 2, LEASE_MS]))
    def wait(self, passed_ms: int) -> None:
        self.clock.sleep_ms(passed_ms)

    @rule(worker=WORKERS)
    def die(self, worker: str) -> None:
        self.model.dead = {worker}  # the others were restarted meanwhile

    @rule()
    def throw(self) -> None:
        self.model.epoch += 1
        assert self.store.set_switch(switch(), entry("switch")) == self.model.epoch

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "store"):
            return
        found = {lock.scope: lock for lock in self.store.locks()}
        for scope, lease in self.model.leases.items():
            lock = found.get(scope)
            fence, worker = (lock.fence, lock.holder and lock.holder.worker_id) if lock else (0, None)
            assert (fence, worker) == (lease.fence, lease.worker), scope
            assert fence >= self.fences[scope], "a fence went back"
            self.fences[scope] = fence
        states = {
            run.run_id: (run.status, run.fence, run.attempts, run.error_code) for run in self.store.runs()
        }
        assert states == {
            run.run_id: (run.status, run.fence, run.attempts, run.error_code)
            for run in self.model.runs.values()
        }
        promotions = self.store.promotions("ks-streamflow", limit=1_000)
        assert [one.sequence for one in promotions] == list(range(self.model.sequence, 0, -1))
        assert len({one.run_id for one in promotions}) == len(promotions)
        held = {lock.holder.run_id for lock in found.values() if lock.holder and lock.scope != "gc"}
        for run in self.store.runs(status="running"):
            assert run.run_id in held, "a run is running and no process holds it"


TestLedger = pytest.mark.req("UPD-5", "UPD-8")(Ledger.TestCase)
TestLedger.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
