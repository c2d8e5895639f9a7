"""Folds, and ids by their beginnings: the same on every database."""

from __future__ import annotations

import pytest

from kfm.db.folds import Fold
from kfm.db.ledger import Ledger
from tests.conformance.db.ledgers import Desk


@pytest.mark.req("GRO-3")
def test_a_fold_takes_the_place_of_the_one_that_was_read(store: Ledger) -> None:
    """Guarded by its version: a fold that was made from an older one does not land."""
    none = store.fold("metrics", "form/1")
    assert none == Fold(version=0, body=None)
    assert store.keep_fold("metrics", "form/1", none, '{"a": 1}')
    assert not store.keep_fold("metrics", "form/1", none, '{"a": 2}')
    first = store.fold("metrics", "form/1")
    assert first == Fold(version=1, body='{"a": 1}')
    assert store.keep_fold("metrics", "form/1", first, '{"a": 3}')
    assert not store.keep_fold("metrics", "form/1", first, '{"a": 4}')
    assert store.fold("metrics", "form/1") == Fold(version=2, body='{"a": 3}')
    assert store.fold("metrics", "form/2") == Fold(version=2, body=None)


@pytest.mark.req("GRO-3")
def test_ids_are_found_by_their_beginning(desk: Desk) -> None:
    """All that begin so, and no other, whatever the database's order of signs is."""
    runs = [desk.admitted(f"{number}", scope=f"scope-{number}") for number in range(5)]
    for run in runs:
        for chars in (4, 9, 36):
            start = run.run_id[:chars]
            expected = sorted(one.run_id for one in runs if one.run_id.startswith(start))
            assert [one.run_id for one in desk.store.find_runs(start, 10)] == expected
        call = desk.store.invocations(run_id=run.run_id)[0].invocation_id
        assert call in [one.invocation_id for one in desk.store.find_invocations(call[:6], 10)]
    assert desk.store.find_runs("ffffffff-ffff-ffff", 10) == []
