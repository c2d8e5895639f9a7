"""Folds of metrics: what one process has counted, another goes on from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.telemetry import ledger_metrics
from kfm.telemetry.exposition import exposition
from kfm.telemetry.ledger_metrics import FOLD, Chain, Folding, MetricFold, keep_fold, take_up
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import Desk
from tests.integration.telemetry.test_ledger_metrics import DATASET, Links, end
from tests.stand_ins import FakeClock

pytestmark = pytest.mark.req("GRO-3")


@pytest.fixture
def store() -> Iterator[Ledger]:
    opened = ledgers.memory_store(FakeClock(ledgers.START_MS))
    yield opened
    opened.close()


def told(folding: Folding, store: Ledger, public: Any = str) -> str:
    return exposition(folding.fold(store, public, [DATASET], "1"))


def happen(desk: Desk, key: str) -> None:
    run = desk.admitted(key)
    assert desk.promote(run, closes=(end(run, "complete", 1500),)).answer == "promoted"


def test_a_fold_and_the_rest_are_the_whole(store: Ledger) -> None:
    """Folded at any moment, also while a run is under way, the counts are those of one reading at the end."""
    desk = Desk(store)
    happen(desk, "one")
    assert keep_fold(store, rows_min=1)
    run = desk.admitted("two")
    assert keep_fold(store, rows_min=1)  # its attempt and its invocation are open
    assert desk.promote(run, closes=(end(run, "complete", 700),)).answer == "promoted"
    assert told(take_up(store), store) == told(Folding(), store)
    assert told(take_up(store), store) == told(Folding(), store)


def test_reading_on_from_a_fold_reads_no_row_twice(store: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the fold has counted is not asked for again."""
    desk = Desk(store)
    for key in ("one", "two", "three"):
        happen(desk, key)
    assert keep_fold(store, rows_min=1)
    asked: list[int] = []
    since = store.attempts_since
    monkeypatch.setattr(
        store, "attempts_since", lambda after, limit: asked.append(after) or since(after, limit)
    )
    told(take_up(store), store)
    assert asked == [3]


def test_two_processes_that_fold_at_once_do_not_add_up(store: Ledger) -> None:
    """Both begin from the same fold: one lands, the other is let go, and nothing counts twice."""
    desk = Desk(store)
    happen(desk, "one")
    seen = store.fold(FOLD, ledger_metrics._form())
    ours, theirs = Folding(), Folding()
    ours.read(store)
    happen(desk, "two")
    theirs.read(store)
    bodies = [msgspec.json.encode(each.folded()).decode() for each in (theirs, ours)]
    assert store.keep_fold(FOLD, ledger_metrics._form(), seen, bodies[0])
    assert not store.keep_fold(FOLD, ledger_metrics._form(), seen, bodies[1])
    assert told(take_up(store), store) == told(Folding(), store)


def test_a_fold_that_is_not_as_written_counts_as_none(store: Ledger) -> None:
    """Damaged, or of another form: everything is counted anew, and a sound fold takes its place."""
    happen(Desk(store), "one")
    assert keep_fold(store, rows_min=1)
    whole = told(Folding(), store)
    connection: Any = store._database._connection  # type: ignore[attr-defined]
    connection.execute("UPDATE folds SET body = replace(body, '1500', '9999')")
    assert store.fold(FOLD, ledger_metrics._form()).body is None
    assert told(take_up(store), store) == whole
    assert keep_fold(store, rows_min=1)
    assert told(take_up(store), store) == whole
    connection.execute("UPDATE folds SET form = 'another'")
    assert told(take_up(store), store) == whole


def test_a_long_history_is_folded_piece_by_piece(store: Ledger) -> None:
    """Each piece is bounded, and kept before the next one is begun."""
    desk = Desk(store)
    for key in "abcdefgh":
        happen(desk, key)
    pieces = []
    while count := keep_fold(store, rows_min=1, rows_max=3):
        pieces.append(count)
    assert len(pieces) >= 3
    assert told(take_up(store), store) == told(Folding(), store)


def test_names_are_masked_after_the_fold(store: Ledger) -> None:
    """A dataset that is masked since the fold was made is masked in what is told of it."""
    happen(Desk(store), "one")
    assert keep_fold(store, rows_min=1)
    text = told(take_up(store), store, lambda _name: "masked-1")
    assert DATASET not in text
    assert 'dataset="masked-1"' in text


def test_too_little_is_not_worth_a_commit(store: Ledger) -> None:
    """A quiet service writes no fold."""
    happen(Desk(store), "one")
    assert keep_fold(store) == 0
    assert store.fold(FOLD, ledger_metrics._form()).version == 0


def test_a_fold_is_read_as_it_was_written() -> None:
    """Every field survives the way through the ledger."""
    folding = Folding()
    fold = folding.folded()
    assert msgspec.json.decode(msgspec.json.encode(fold), type=MetricFold) == fold


@pytest.mark.req("GOV-2")
def test_an_entry_changed_before_the_fold_is_found() -> None:
    """The chain is followed from the fold on, and what lies before is gone over page by page."""
    links: Any = Links(2500)
    number, last_hash = links.links[1999].number, links.links[1999].hash
    links.links[1500] = replace(links.links[1500], entry=ledgers.entry("another"))
    chain = Chain(number, last_hash)
    assert chain.follow(links) == (2500, False)
    chain.patrol(links)
    assert not chain.is_broken
    chain.patrol(links)
    assert chain.is_broken
