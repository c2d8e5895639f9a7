"""One chain for all writers: threads, processes, runs that end while switches are set."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.db import governance
from kfm.db.ledger import Ledger
from kfm.db.session import Session
from kfm.model import audit
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.db.ledgers import Desk, entry

pytestmark = pytest.mark.req("GOV-2")

ROOT = Path(__file__).resolve().parents[3]


def verdict(store: Ledger) -> audit.ChainVerdict:
    head = store.chain_head()
    return audit.verify(store.chain(limit=10_000), (), head)


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
    """Opens one and the same database again and again."""
    stores: list[Ledger] = []
    dsn = request.getfixturevalue("postgres_schema")() if request.param == "postgresql" else ""

    def make() -> Ledger:
        if dsn:
            stores.append(ledgers.postgres_store(dsn))
        else:
            stores.append(ledgers.sqlite_store(str(tmp_path / "kfm.db"), SystemClock()))
        return stores[-1]

    make()
    yield make
    for one in stores:
        one.close()


class _Undo(Exception):
    pass


def test_numbers_follow_commits_of_all_writers(opened: Callable[[], Ledger]) -> None:
    """Writers side by side, some of which roll back: no gap, no number twice, each one's order kept."""
    writers, rounds = 6, 15
    troubles: list[BaseException] = []
    stores = [opened() for _ in range(writers)]

    def write(number: int, store: Ledger) -> None:
        def fails(session: Session) -> None:
            governance.append(session, [entry("never")])
            raise _Undo

        try:
            for turn in range(rounds):
                store.append_governance(
                    [entry("k", f"w{number}", details={"turn": turn, "part": part}) for part in (1, 2)]
                )
                if turn % 3 == number % 3:
                    with pytest.raises(_Undo):
                        store._database.write(fails)
        except BaseException as trouble:
            troubles.append(trouble)

    threads = [threading.Thread(target=write, args=one) for one in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert troubles == []
    links = stores[0].chain(limit=10_000)
    assert [one.number for one in links] == list(range(1, writers * rounds * 2 + 1))
    for number in range(writers):
        own = [one for one in links if one.entry.subject == f"w{number}"]
        assert [(one.entry.details["turn"], one.entry.details["part"]) for one in own] == [
            (turn, part) for turn in range(rounds) for part in (1, 2)
        ]
        # What one transaction recorded stands together.
        assert all(
            second.number == first.number + 1 for first, second in zip(own[::2], own[1::2], strict=True)
        )
    assert verdict(stores[0]).rows == 180


def test_processes_side_by_side(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Not only threads: processes that know nothing of each other number one chain."""
    for where in (str(tmp_path / "kfm.db"), request.getfixturevalue("postgres_schema")()):
        postgres = where.startswith("postgresql://")
        store = ledgers.postgres_store(where) if postgres else ledgers.sqlite_store(where, SystemClock())
        opening = "ledgers.postgres_store(w)" if postgres else "ledgers.sqlite_store(w, SystemClock())"
        code = (
            "import sys; from kfm.system import SystemClock; from tests.conformance.db import ledgers\n"
            f"w = sys.argv[1]; s = {opening}\n"
            "for n in range(20): s.append_governance([ledgers.entry('k', sys.argv[2], details={'n': n})])\n"
        )
        writers = [
            subprocess.Popen([sys.executable, "-c", code, where, f"p{number}"], cwd=ROOT)
            for number in range(3)
        ]
        assert [writer.wait(60) for writer in writers] == [0, 0, 0]
        links = store.chain()
        assert [one.number for one in links] == list(range(1, 61))
        for number in range(3):
            own = [one.entry.details["n"] for one in links if one.entry.subject == f"p{number}"]
            assert own == list(range(20))
        assert verdict(store).sound
        store.close()


def test_the_holder_of_the_head_waits_for_no_other(
    postgres_schema: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that promote, fail and pause their dataset, switches and notes at once: no deadlock, one chain."""
    from kfm.db import postgres

    races: list[str] = []
    is_lost_race = postgres._is_lost_race

    def counted(error: BaseException | None) -> bool:
        lost = is_lost_race(error)
        if lost:
            races.append(str(error))
        return lost

    monkeypatch.setattr(postgres, "_is_lost_race", counted)
    dsn, troubles = postgres_schema(), list[BaseException]()
    ledgers.postgres_store(dsn).close()

    def runs(store: Ledger, name: str) -> None:
        desk = Desk(store)
        desk.calls = abs(hash(name)) % 10_000_000
        for turn in range(12):
            scope = f"dataset:{name}"
            for _ in range(10_000):  # while a switch is quicker
                answer = desk.admit(
                    ledgers.new_run(f"{name} {turn}", dataset_id=name),
                    scope=scope,
                    entries=(entry("force", name),),
                )
                if answer.answer == "admitted":
                    break
            assert answer.run is not None
            if turn % 2:
                desk.fail(answer.run, scope=scope, entries=(entry("review", name),), pause=ledgers.switch())
            elif desk.promote(
                answer.run,
                f"{name} {turn}",
                scope=scope,
                entries=(entry("promotion", name),),
                states=(("k", turn),),
            ).answer in ("epoch-moved", "head-moved"):
                desk.fail(answer.run, scope=scope, entries=(entry("gate-refused", name),))

    def notes(store: Ledger, name: str) -> None:
        for _ in range(20):
            store.set_switch(ledgers.switch("running"), entry("switch", name))
            store.append_governance([entry("note", name)])

    def guarded(work: Any, name: str) -> None:
        store = ledgers.postgres_store(dsn)
        try:
            work(store, name)
        except BaseException as trouble:
            troubles.append(trouble)
        finally:
            store.close()

    work = [(runs, "a"), (runs, "b"), (runs, "c"), (notes, "d"), (notes, "e")]
    threads = [threading.Thread(target=guarded, args=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (troubles, races) == ([], [])
    store = ledgers.postgres_store(dsn)
    assert verdict(store).sound
    assert verdict(store).rows > 80
    store.close()


def test_a_reader_beside_writers_sees_a_sound_chain(opened: Callable[[], Ledger]) -> None:
    """A chain that grows while it is read is not broken."""
    reader, writer, over = opened(), opened(), threading.Event()

    def write() -> None:
        for _ in range(60):
            writer.append_governance([entry("k"), entry("k")])
        over.set()

    thread = threading.Thread(target=write)
    thread.start()
    looks = 0
    while not over.is_set() or looks == 0:
        head = reader.chain_head()

        def pages() -> Iterator[Any]:
            page = reader.chain(limit=5)
            while page:
                yield from page
                page = reader.chain(after=page[-1].number, limit=5)

        found = audit.verify(pages(), (), head)
        assert found.sound, found
        looks += 1
    thread.join()
    assert verdict(reader).rows == 120
