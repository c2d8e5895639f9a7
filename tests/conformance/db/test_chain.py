"""The audit log is a chain: numbered as it was committed, and every change to it is seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.audit.chain import newest
from kfm.db import governance, queries
from kfm.db.ledger import Ledger
from kfm.db.postgres import PostgresDatabase
from kfm.db.queries import migration_files
from kfm.db.session import Session
from kfm.db.sqlite import SqliteDatabase
from kfm.model import audit
from kfm.model.errors import StoreCorrupt
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import Desk, entry

pytestmark = pytest.mark.req("GOV-2")


def execute(store: Ledger, sql: str) -> None:
    """What a person with a database shell would do."""
    database: Any = store._database
    if isinstance(database, PostgresDatabase):
        database.execute(sql)
    else:
        database._connection.execute(sql)


def verdict(store: Ledger, *anchors: audit.Anchor) -> audit.ChainVerdict:
    head = store.chain_head()
    return audit.verify(store.chain(), anchors, head)


def anchor(store: Ledger) -> audit.Anchor:
    number, digest = store.chain_head()
    return audit.Anchor(number=number, hash=digest, environment="test", at="2026-01-01T00:00:00Z")


def test_an_empty_ledger_is_a_sound_chain(store: Ledger) -> None:
    """Nothing recorded, nothing wrong, and the head says so."""
    assert store.chain() == []
    assert store.chain_head() == (0, audit.ZEROS)
    assert verdict(store) == audit.ChainVerdict(
        rows=0, head_number=0, head_hash=audit.ZEROS, anchors=0, anchored_number=0
    )


def test_every_way_to_record_makes_a_link(desk: Desk) -> None:
    """Admission, promotion, failure, refusal, switch, collection: one chain, numbered from 1."""
    run = desk.admitted("a", entries=(entry("force"), entry("correction")))
    desk.promote(run, entries=(entry("promotion"),))
    failing = desk.admitted("b")
    desk.fail(failing, entries=(entry("review"), entry("postmortem")), pause=ledgers.switch())
    desk.store.record_invocation(ledgers.invocation(90, None), [entry("gate-refused")])
    desk.store.set_switch(ledgers.switch("running"), entry("switch"))
    fence = desk.store.begin_collection("worker-2", 1000, ledgers.alive)
    assert isinstance(fence, int)
    desk.store.end_collection(fence, entry("gc"))
    links = desk.store.chain()
    kinds = ["force", "correction", "promotion", "review", "postmortem", "gate-refused", "switch", "gc"]
    assert [(one.number, one.entry.kind) for one in links] == list(enumerate(kinds, 1))
    assert desk.store.chain_head() == (8, links[-1].hash)
    assert verdict(desk.store).sound
    assert list(audit.chained(one.entry for one in links)) == links


def test_the_chain_is_read_in_pages(store: Ledger) -> None:
    """However it is cut into pages, each link knows the one before it."""
    store.append_governance([entry(f"k{number}") for number in range(25)])
    whole = store.chain()
    paged, page = [], store.chain(limit=7)
    while page:
        paged += page
        page = store.chain(after=page[-1].number, limit=7)
    assert paged == whole
    assert [one.previous for one in whole] == [audit.ZEROS, *(one.hash for one in whole[:-1])]


def test_odd_text_is_hashed_as_it_is_kept(store: Ledger) -> None:
    """A NUL, half a surrogate pair, characters beyond the BMP: recorded, read back, and still sound."""
    odd = entry(
        "note",
        rationale="a\0b",
        actor="\ud800x",
        details={"text": "\0 \udc00 😀 \ue000", "😀": 1, "\ue000": 2},
    )
    store.append_governance([odd, entry("note", ticket="水")])
    assert verdict(store).sound


def test_a_transaction_that_is_rolled_back_leaves_no_gap(desk: Desk) -> None:
    """What did not happen has no number."""
    desk.store.append_governance([entry("first")])

    def fails(session: Session) -> None:
        governance.append(session, [entry("lost"), entry("lost, too")])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.store._database.write(fails)
    desk.store.append_governance([entry("second")])
    assert [(one.number, one.entry.kind) for one in desk.store.chain()] == [(1, "first"), (2, "second")]
    assert verdict(desk.store).sound


def test_nothing_to_record_touches_nothing(store: Ledger) -> None:
    """A transaction without an entry does not even look at the head."""
    asked: list[str] = []

    class Watched:
        def all(self, name: str, /, **_: Any) -> list[Any]:
            asked.append(name)
            return []

        one = all

        def now_ms(self) -> int:
            return 0

    governance.append(Watched(), iter(()))  # type: ignore[arg-type]
    assert asked == []


TAMPERING = {
    "an edited rationale": ("UPDATE governance SET rationale = 'other' WHERE number = 3", 3),
    "an edited time": ("UPDATE governance SET recorded_at_ms = recorded_at_ms + 1 WHERE number = 3", 3),
    "an emptied ticket": ("UPDATE governance SET ticket = NULL WHERE number = 3", 3),
    "details with another meaning": ("UPDATE governance SET details = '{\"n\":9}' WHERE number = 3", 3),
    "details with more spaces": ("UPDATE governance SET details = '{\"n\": 3}' WHERE number = 3", 3),
    "a key twice": ('UPDATE governance SET details = \'{"n":4,"n":3}\' WHERE number = 3', 3),
    "details that are no JSON": ("UPDATE governance SET details = 'oops' WHERE number = 3", 3),
    "a number that is none of ours": ("UPDATE governance SET details = '{\"n\":3.5}' WHERE number = 3", 3),
    "details that are a list": ("UPDATE governance SET details = '[]' WHERE number = 3", 3),
    "an edited hash": (f"UPDATE governance SET hash = '{'ab' * 32}' WHERE number = 3", 3),
    "a removed hash": ("UPDATE governance SET hash = '' WHERE number = 3", 3),
    "the first hash removed": ("UPDATE governance SET hash = '' WHERE number = 1", 1),
    "a deleted row": ("DELETE FROM governance WHERE number = 3", 3),
    "the first row deleted": ("DELETE FROM governance WHERE number = 1", 1),
    "a cut end": ("DELETE FROM governance WHERE number > 3", 4),
    "everything deleted": ("DELETE FROM governance", 1),
    "a row before the first": (
        "INSERT INTO governance (number, kind, subject, actor, recorded_at_ms, details, hash) "
        "VALUES (0, 'force', 's', 'a', 1, '{}', 'x')",
        1,
    ),
    "a row far below the first": (
        "INSERT INTO governance (number, kind, subject, actor, recorded_at_ms, details, hash) "
        "VALUES (-7, 'force', 's', 'a', 1, '{}', 'x')",
        1,
    ),
    "a row after the last": (
        "INSERT INTO governance (number, kind, subject, actor, recorded_at_ms, details, hash) "
        "VALUES (6, 'force', 's', 'a', 1, '{}', 'x')",
        6,
    ),
    "the first row pushed below": ("UPDATE governance SET number = -5 WHERE number = 1", 1),
    "a gap made": ("UPDATE governance SET number = number + 100 WHERE number = 5", 5),
    "a head with another hash": (f"UPDATE chain_heads SET hash = '{'cd' * 32}'", 5),
}


@pytest.mark.parametrize("case", TAMPERING)
def test_what_a_shell_does_to_it_is_found(store: Ledger, case: str) -> None:
    """Each change names the first row that is not as it was written, without any anchor."""
    store.append_governance([entry("k", ticket="T-1", details={"n": number}) for number in range(1, 6)])
    assert verdict(store).sound
    sql, row = TAMPERING[case]
    execute(store, sql)
    found = verdict(store).finding
    assert found is not None
    assert found.number == row, found


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("UPDATE governance SET recorded_at_ms = 'soon' WHERE number = 3", 3),
        ("UPDATE governance SET recorded_at_ms = 1.5 WHERE number = 3", 3),
        ("UPDATE governance SET subject = x'ff00' WHERE number = 3", 3),
        ("UPDATE governance SET details = x'ff00' WHERE number = 3", 3),
        ("UPDATE governance SET rationale = x'' WHERE number = 3", 3),
        ("UPDATE governance SET number = 3.5 WHERE number = 3", 3),
        ("UPDATE governance SET number = 'three' WHERE number = 3", 3),
        ("UPDATE governance SET number = -1e300 WHERE number = 1", 1),
        ("UPDATE governance SET hash = x'00' WHERE number = 3", 3),
    ],
)
def test_values_of_other_types_are_found(tmp_path: Path, sql: str, row: int) -> None:
    """SQLite takes any value in any column; the check names the row, and the list can still be shown."""
    store = ledgers.sqlite_store(str(tmp_path / "kfm.db"), SystemClock())
    store.append_governance([entry("k", details={"n": number}) for number in range(1, 6)])
    execute(store, sql)
    found = verdict(store).finding
    assert found is not None
    assert found.number == row, found
    assert len(newest(store, limit=2)) == 2
    store.close()


def test_two_rows_that_change_places_are_found(store: Ledger) -> None:
    """The first of the two is named."""
    store.append_governance([entry("k", details={"n": number}) for number in range(1, 6)])
    for old, new in ((2, 99), (4, 2), (99, 4)):
        execute(store, f"UPDATE governance SET number = {new} WHERE number = {old}")
    found = verdict(store).finding
    assert found is not None
    assert found.number == 2


def test_a_cut_end_with_its_head_is_seen_by_an_anchor_only(store: Ledger) -> None:
    """A person who also sets the head back leaves a sound chain, said to be unanchored; an anchor tells."""
    store.append_governance([entry("k", details={"n": number}) for number in range(1, 6)])
    kept = anchor(store)
    third = store.chain()[2]
    execute(store, "DELETE FROM governance WHERE number > 3")
    execute(store, f"UPDATE chain_heads SET number = 3, hash = '{third.hash}'")
    alone = verdict(store)
    assert alone.sound
    assert alone.unanchored_since == 1
    finding = verdict(store, kept).finding
    assert finding is not None
    assert (finding.number, finding.problem) == (4, "truncated")


def test_a_row_beyond_the_end_is_not_written_over(store: Ledger) -> None:
    """Recording stops rather than going on beside a row that is not ours."""
    store.append_governance([entry("k")])
    execute(
        store,
        "INSERT INTO governance (number, kind, subject, actor, recorded_at_ms, details, hash) "
        "VALUES (2, 'force', 's', 'a', 1, '{}', 'x')",
    )
    with pytest.raises(StoreCorrupt, match="a row 2 beyond its end"):
        store.append_governance([entry("k")])
    assert store.chain_head()[0] == 1


# --- from before the chain ---------------------------------------------------------------


class _Undo(Exception):
    pass


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A database as it was before the ledger was chained, with five entries, one of them gone."""
    database: Any
    if request.param == "sqlite":
        database, dialect = SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock()), "sqlite"
    else:
        database, dialect = PostgresDatabase(request.getfixturevalue("postgres_schema")()), "postgresql"
    queries.migrate(database, dialect, 1, migration_files()[:1])  # type: ignore[arg-type]
    store = Ledger(database)
    for number in range(5):
        execute(
            store,
            "INSERT INTO governance (kind, subject, actor, recorded_at_ms, rationale, details) "
            f"VALUES ('old', 's{number}', 'ada', {number}, 'why – 水', '{{\"n\":{number}}}')",
        )
    execute(store, "DELETE FROM governance WHERE subject = 's2'")
    queries.migrate(database, dialect, 2)  # type: ignore[arg-type]
    yield store
    store.close()


def test_old_rows_wait_to_be_chained(old: Ledger) -> None:
    """Rows from before the chain are there, in order, numbered anew, and said to be unchained."""
    assert [(one.number, one.entry.subject, one.hash) for one in old.chain()] == [
        (1, "s0", ""), (2, "s1", ""), (3, "s3", ""), (4, "s4", ""),
    ]  # fmt: skip
    found = verdict(old)
    assert (found.sound, found.rows, found.unchained, found.head_number) == (True, 4, 4, 0)


def test_old_rows_are_adopted_by_the_first_entry(old: Ledger) -> None:
    """From then on an edit of any of them is found."""
    before = [one.entry for one in old.chain()]
    old.append_governance([entry("new")])
    found = verdict(old)
    assert (found.sound, found.rows, found.unchained, found.head_number) == (True, 5, 0, 5)
    assert [one.entry for one in old.chain()][:4] == before
    execute(old, "UPDATE governance SET rationale = 'other' WHERE number = 2")
    finding = verdict(old).finding
    assert finding is not None
    assert finding.number == 2


def test_an_adoption_that_is_rolled_back_did_not_happen(old: Ledger) -> None:
    """Chaining the old rows is part of the transaction that asked for it."""

    def fails(session: Session) -> None:
        governance.append(session, [entry("lost")])
        raise _Undo

    with pytest.raises(_Undo):
        old._database.write(fails)
    assert verdict(old).unchained == 4
    assert old.chain_head() == (0, audit.ZEROS)
