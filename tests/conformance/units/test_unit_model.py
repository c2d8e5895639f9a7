"""Any order of announcements, claims, ends, lapses and removals agrees with a model on one page."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kfm.model.units import ClaimedUnit
from tests.conformance.db import ledgers
from tests.conformance.units.scene import Scene, done, gone, id_of, taken, undone
from tests.conformance.units.unit_model import Oracle
from tests.stand_ins import FakeClock

LEASE_MS = 1_000
NAMES = st.sampled_from("abcd")
ETAGS = st.sampled_from(["e1", "e2", "e3"])
SEQUENCERS = st.one_of(st.none(), st.sampled_from("123456789"))
IDS = {id_of(name): name for name in "abcd"}


class Units(RuleBasedStateMachine):
    """Every answer of the ledger is the model's answer, and what it keeps is what the model keeps."""

    @initialize()
    def begin(self) -> None:
        self.clock = FakeClock()
        self.scene = Scene(ledgers.memory_store(self.clock))
        self.oracle = Oracle()
        self.tokens: list[ClaimedUnit] = []  # what was once claimed
        self.versions: dict[str, int] = {}

    @rule(
        name=NAMES, etag=ETAGS, sequencer=SEQUENCERS, policy=st.sampled_from(["update", "update", "ignore"])
    )
    def announce(self, name: str, etag: str, sequencer: str | None, policy: str) -> None:
        report = self.scene.take(taken(name, etag, sequencer, reissue=policy))
        expected = self.oracle.announce(name, etag, sequencer, policy, self.clock.now_ms())
        assert getattr(report, expected) == 1, (report, expected)

    @rule(said=st.lists(st.tuples(NAMES, ETAGS, SEQUENCERS), min_size=2, max_size=6))
    def announce_many(self, said: list[tuple[str, str, str | None]]) -> None:
        """One intake: the same as one after the other."""
        report = self.scene.take(*(taken(*one) for one in said))
        found = [self.oracle.announce(*one, "update", self.clock.now_ms()) for one in said]
        for kind in ("created", "duplicate", "reissued", "stale"):
            assert getattr(report, kind) == found.count(kind), (kind, report)

    @rule(name=NAMES, sequencer=SEQUENCERS, policy=st.sampled_from(["keep", "remove"]))
    def remove(self, name: str, sequencer: str | None, policy: str) -> None:
        report = self.scene.take(gone(name, sequencer, policy))
        assert report.removed == self.oracle.remove(name, sequencer, policy, self.clock.now_ms())

    @rule(limit=st.integers(1, 4), alone=st.sampled_from([0, 0, 1]))
    def claim(self, limit: int, alone: int) -> None:
        now_ms = self.clock.now_ms()
        due = self.oracle.due(alone, now_ms)
        batch = self.scene.claim(limit=limit, alone=alone, lease_ms=LEASE_MS)
        names = [IDS[one.wal_id] for one in batch]
        assert len(names) == len(set(names)) == min(1 if alone else limit, len(due))
        left = [due[name] for name in due.keys() - set(names)]
        assert all(due[name] <= min(left, default=now_ms) for name in names), "not the longest waiting"
        for name in names:
            self.oracle.claim(name, now_ms, LEASE_MS)
        self.tokens += batch

    @rule(
        data=st.data(),
        outcome=st.sampled_from(["success", "success", "retry", "uncharged", "spent", "quarantine"]),
        wait_ms=st.sampled_from([0, 500]),
    )
    def end(self, data: Any, outcome: Any, wait_ms: int) -> None:
        if not self.tokens:
            return
        # The newest most of the time: old ones only ever lose.
        held = data.draw(st.sampled_from(self.tokens[-3:] + self.tokens))
        now_ms, name = self.clock.now_ms(), IDS[held.wal_id]
        if outcome == "success":
            told = done(held, entry=None) if held.removed == 2 else done(held)
            finished = self.scene.end(told)
        else:
            fate = "retry" if outcome == "uncharged" else outcome
            finished = self.scene.end(
                undone(held, fate, not_before_ms=now_ms + wait_ms, charged=outcome != "uncharged")
            )
        expected = self.oracle.end(name, held, outcome, now_ms + wait_ms, now_ms)
        answered = {
            kind: list(getattr(finished, kind))
            for kind in ("succeeded", "failed", "lost")
            if getattr(finished, kind)
        }
        assert answered == {expected: [held.wal_id]}

    @rule()
    def reap(self) -> None:
        assert self.scene.units.reap_units(0.5) == self.oracle.reap(self.clock.now_ms())

    @rule(passed_ms=st.sampled_from([1, LEASE_MS // 2, LEASE_MS, 10 * 60_000]))
    def wait(self, passed_ms: int) -> None:
        self.clock.sleep_ms(passed_ms)

    @rule(limit=st.integers(1, 5))
    def fold(self, limit: int) -> None:
        self.scene.units.fold_counts(limit)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "scene"):
            return
        for name, one in self.oracle.units.items():
            stored = self.scene.stored(name)
            unit = stored.unit
            assert (
                unit.status,
                unit.version,
                unit.attempts,
                stored.etag,
                stored.sequencer,
                stored.content_version,
                stored.done_version,
                stored.grant_attempts,
                stored.alone,
                stored.removed,
                stored.removal_sequencer,
            ) == one.facts(), name
            assert unit.version >= self.versions.get(name, 0), "a version went back"
            self.versions[name] = unit.version
        assert self.scene.items() == {name for name, one in self.oracle.units.items() if one.shown}
        self.scene.check()


TestUnits = pytest.mark.req("WAL-2", "WAL-3", "WAL-5", "WAL-6", "WAL-10", "WAL-14")(Units.TestCase)
TestUnits.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
