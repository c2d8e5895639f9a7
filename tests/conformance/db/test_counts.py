"""What a process that counts everything reads: each row once, in order, from where it stopped."""

from __future__ import annotations

import pytest

from kfm.db.ledger import Ledger
from kfm.telemetry.exposition import exposition
from kfm.telemetry.ledger_metrics import Folding
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import Desk


def test_calls_are_read_in_order_from_where_one_stopped(store: Ledger) -> None:
    """Every call is there with a growing number; asked again after the last one, there is nothing new."""
    for number in range(1, 6):
        store.record_invocation(ledgers.invocation(number, None, outcome="noop"))
    first = store.invocations_since(0, 3)
    rest = store.invocations_since(first[-1][0])
    assert [call.invocation_id[:8] for _, call in first + rest] == [f"{number:08x}" for number in range(1, 6)]
    assert sorted(number for number, _ in first + rest) == [number for number, _ in first + rest]
    assert store.invocations_since(rest[-1][0]) == []


@pytest.mark.req("UPD-15")
def test_counting_on_is_counting_at_once(store: Ledger, desk: Desk) -> None:
    """On every store: a fold that read on after each step tells what one fold at the end tells."""
    often, rarely = Folding(), Folding()
    run = desk.admitted("one")
    often.fold(store, str, ["ks-streamflow"], "1")
    assert desk.fail(run)
    often.fold(store, str, ["ks-streamflow"], "1")
    again = desk.again(store.run(run.run_id) or run)
    assert again.run is not None
    often.fold(store, str, ["ks-streamflow"], "1")
    assert desk.promote(again.run).answer == "promoted"
    often.fold(store, str, ["ks-streamflow"], "1")
    kept = [
        {
            line
            for line in exposition(fold.fold(store, str, ["ks-streamflow"], "1")).splitlines()
            if "age" not in line
        }
        for fold in (often, rarely)
    ]
    assert kept[0] == kept[1]
    assert 'kfm_updater_runs_total{dataset="ks-streamflow",trigger="manual",outcome="fail"} 1' in kept[0]
