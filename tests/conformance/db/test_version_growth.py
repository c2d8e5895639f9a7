"""What a promotion costs the ledger follows what changed, not how much is published."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from kfm.model.item_ids import item_id
from kfm.model.records import Item
from kfm.model.versions import Version, edited, version_of
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import Desk
from tests.conformance.db.test_versions import hourly, of_hours, window

SOURCES, HOURS_BEFORE, WINDOWS = 20, 20, 300


class Cost(NamedTuple):
    """What is on record so far."""

    size: int
    pages: int
    items: int


class Hourly:
    """A merged dataset of several sources, to which one window after the other is added."""

    def __init__(self) -> None:
        self.desk = Desk(ledgers.memory_store(SystemClock()))
        self.connection = self.desk.store.database._connection  # type: ignore[attr-defined]
        self.statements = 0
        self.connection.exec_trace = self._count
        every = (self.item(number) for number in range(SOURCES * HOURS_BEFORE))
        self.promote("before", version_of(of_hours(every)))

    def _count(self, *_: object) -> bool:
        self.statements += 1
        return True

    def item(self, number: int) -> Item:
        source_id, hour = f"gauge-{number % SOURCES}", number // SOURCES
        made = hourly(hour)
        asset = replace(made.assets[0], path=f"{source_id}/{hour}.csv")
        return replace(made, source_id=source_id, id=item_id(source_id, window(hour), None), assets=(asset,))

    def promote(self, name: str, made: Version) -> None:
        run = self.desk.admitted(name)
        assert self.desk.promote(run, version_id=made.version_id, version=made).answer == "promoted"

    def add(self, number: int) -> int:
        """One more window; returns how many statements that took."""
        before = self.statements
        head = self.desk.store.head("ks-streamflow")
        assert head is not None
        item = self.item(number)
        self.promote(str(number), edited(head[1], head[1].header, {item.id: item}))
        return self.statements - before

    def cost(self) -> Cost:
        def one(sql: str) -> int:
            return int(next(self.connection.execute(sql))[0])

        texts = (("version_pages", "body"), ("version_items", "document"), ("versions", "manifest"))
        size = sum(one(f"SELECT SUM(LENGTH({column})) FROM {table}") for table, column in texts)
        counts = (one(f"SELECT COUNT(*) FROM {table}") for table in ("version_pages", "version_items"))
        return Cost(size, *counts)


@pytest.mark.req("GRO-1")
def test_a_window_more_costs_what_every_window_costs() -> None:
    """300 more windows: bytes, pages and items grow by as much in the last third as in the first, and each
    promotion takes as many statements."""
    feed = Hourly()
    number, grown, statements = SOURCES * HOURS_BEFORE, [], []
    for _ in range(3):
        before = feed.cost()
        for _ in range(WINDOWS // 3):
            statements.append(feed.add(number))
            number += 1
        grown.append(Cost(*(now - was for now, was in zip(feed.cost(), before, strict=True))))
    first, _, last = grown
    assert [one.items for one in grown] == [WINDOWS // 3] * 3
    assert abs(last.size - first.size) <= first.size / 10
    assert abs(last.pages - first.pages) <= first.pages / 10
    assert last.size / (WINDOWS // 3) < 20_000, "a promotion's bytes"
    assert max(statements) - min(statements) <= 8, "it may split a page on each level of both trees"
