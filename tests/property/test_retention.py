"""Over any history, with retention between any two steps, everything goes on as without it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.db.requests import accept
from kfm.model.completeness import asked_window, verdict
from kfm.model.requests import RequestOutcome
from kfm.storage.retention import carry_out
from tests.conformance.db.ledgers import START_MS, Desk, alive, digest, invocation, memory_store, new_run
from tests.conformance.db.test_windows import facts, request
from tests.conformance.units.test_retention import a_pass, deliver
from tests.stand_ins import FakeClock

DAY_MS = 86_400_000
DAYS, NAMES = st.integers(0, 2), st.integers(0, 4)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["published", "unchanged", "empty", "absent", "failed"]), NAMES, DAYS),
        st.tuples(st.sampled_from(["noop", "refused", "busy", "asked", "done", "cancelled"]), NAMES, DAYS),
        st.tuples(st.just("retention"), st.integers(1, 4), DAYS),
    ),
    max_size=14,
)


class World:
    """One ledger. What each step answers is what a process would act on."""

    def __init__(self, *, retires: bool) -> None:
        self.clock = FakeClock(START_MS + 5 * DAY_MS)
        self.store: Ledger = memory_store(self.clock)
        self.desk = Desk(self.store)
        self.retires = retires
        self.calls = 100

    def step(self, what: str, number: int, day: int) -> Any:
        self.clock.sleep_ms(1000)
        span = {
            "window_start_ms": START_MS + day * DAY_MS,
            "window_end_ms": START_MS + (day + 1) * DAY_MS,
        }
        if what == "retention":
            deliver(self.store)
            if self.retires:
                carry_out(a_pass(self.store, batch_rows=number))
            return None
        if what in ("noop", "refused", "busy"):
            self.calls += 1
            done = self.store.run(new_run(f"{number}").run_id) if what == "noop" else None
            told = invocation(self.calls, done, outcome=what, requested_at_ms=self.clock.now_ms(), **span)
            return self.store.record_invocation(told)
        if what in ("asked", "done", "cancelled"):
            return self._request(what, number, span)
        run = new_run(f"{number}", start_time_ms=self.clock.now_ms(), **span)
        seen = self.store.run(run.run_id)
        answer = self.desk.admit(run, seen=None, dead=alive)
        if seen is not None or answer.run is None:
            return answer.answer
        if what == "failed":
            return self.desk.fail(answer.run)
        text = f"bytes {number}" if what == "published" else None
        found: Any = what if what in ("empty", "absent") else "data"
        return self.desk.promote(answer.run, text, found=found).answer

    def _request(self, what: str, number: int, span: dict[str, int]) -> Any:
        wanted = replace(
            request(number),
            kind="webhook",
            key=digest(f"webhook {number}"),
            request_uuid=f"hook-{number}",
            envelope_hash=digest(f"envelope {number}"),
            rationale="The sender says so.",
            details={"scheme": "kfm", "checks": ["signature"], "integrity_hash": digest(f"body {number}")},
            **span,
        )
        if what == "asked":
            return self.store.database.write(lambda session: sorted(accept(session, [wanted])))
        requests = self.store.requests()
        claimed = requests.claim("w1", 60_000, alive)
        if claimed is None:
            return None
        outcome = RequestOutcome(
            state="done" if what == "done" else "cancelled", outcome="refused", reason="A gate said no."
        )
        requests.settle(claimed, outcome)
        return claimed.request_id

    def known(self) -> Any:
        """What coverage and health are made of, and each request but for what its message told."""
        now_ms = self.clock.now_ms()
        windows = {
            span: (each, verdict(asked_window("usgs-daily", *span, now_ms), each, now_ms))
            for span, each in facts(self.store).items()
        }
        requests = [
            replace(one, rationale=None, details={"integrity_hash": one.details["integrity_hash"]})
            for one in self.store.requests().requests(limit=50)
        ]
        return windows, requests


@pytest.mark.req("GRO-2")
@settings(max_examples=25, deadline=None)
@given(before=steps, after=steps)
def test_retention_changes_nothing_that_anything_acts_on(before: Any, after: Any) -> None:
    """The same work, webhooks and windows with and without retention: the same answers, verdicts, rows."""
    kept, retired = World(retires=False), World(retires=True)
    for what, number, day in (*before, ("retention", 2, 0), *after):
        assert retired.step(what, number, day) == kept.step(what, number, day)
        assert retired.known() == kept.known()
