"""What failed work has ahead of it, and who was tried again, on every store."""

from __future__ import annotations

import pytest

from kfm.db.ledger_reader import every_from
from kfm.model.energy import energy_of
from kfm.model.quarantine import Ahead
from kfm.model.runs import CallRetry
from kfm.model.settings import EnergyModel
from tests.conformance.db.ledgers import START_MS, Desk
from tests.conformance.db.test_quarantine import DUE_MS, failed, held_of, state_of


@pytest.mark.req("TRG-1", "TRG-7")
def test_what_is_ahead_is_counted_in_one_look(desk: Desk) -> None:
    """Held ones with the oldest, waiting ones with the next; nothing where nothing failed."""
    assert desk.store.ahead() == Ahead(held=0, held_since_ms=None, waiting=0)
    late, soon, given_up, older = (
        desk.admitted(name, scope=f"dataset:{name}") for name in ("a", "b", "c", "d")
    )
    desk.fail(late, scope="dataset:a", retry=state_of(late, not_before_ms=DUE_MS + 1))
    desk.fail(soon, scope="dataset:b", retry=state_of(soon))
    for run, at_ms in ((given_up, START_MS + 5), (older, START_MS + 3)):
        state = state_of(run, fate="spent", reason="attempts-spent")
        desk.fail(
            run,
            scope=f"dataset:{'c' if run is given_up else 'd'}",
            retry=state,
            held=held_of(run, held_at_ms=at_ms),
        )
    assert desk.store.ahead() == Ahead(
        held=2,
        held_since_ms=START_MS + 3,
        waiting=2,
        next_run_id=soon.run_id,
        next_dataset_id=soon.dataset_id,
        next_at_ms=DUE_MS,
    )


@pytest.mark.req("RET-11")
def test_runs_that_were_tried_again_are_found_page_by_page(desk: Desk) -> None:
    """By attempts or by calls, each once, also where many began at the same time."""
    twice = failed(desk, "twice")
    assert desk.again(twice).answer == "admitted"
    desk.fail(desk.store.run(twice.run_id))
    called = desk.admitted("called")
    retry = CallRetry(
        run_id=called.run_id, attempt=1, node="fetch", call=1, number=1, delay_ms=5, error_class="timeout",
        retryable=True, outcome="retried", circuit_open=False, at_ms=START_MS,
        energy=energy_of(1000, EnergyModel(), None),
    )  # fmt: skip
    desk.fail(called, retries=(retry,))
    failed(desk, "once")
    assert desk.store.retries(called.run_id) == [retry], "with what it cost"
    assert desk.store.count_runs() == 3
    assert desk.store.count_runs(2**52) == 0
    found = every_from(
        (0, ""),
        lambda after, _limit: desk.store.troubled_runs(after, 1),
        lambda run: (run.start_time_ms, run.run_id),
    )
    assert {run.run_id for run in found} == {twice.run_id, called.run_id}
