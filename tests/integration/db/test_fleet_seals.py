"""Seals of a fleet's history: however many transactions are under way, what they commit is sealed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, cast

import psycopg
import pytest

from kfm.audit.chain import links, verify_seals
from kfm.db import governance
from kfm.db.ledger import Ledger
from kfm.db.session import Session
from kfm.model.audit import UNITS, Seal, verify
from tests.conformance.db.ledgers import entry, postgres_store
from tests.conformance.units.scene import Scene, taken

pytestmark = pytest.mark.req("FLT-1", "GOV-2")

PAGE = (
    "INSERT INTO unit_pages (number, event, status, at_ms, worker_id, members, form) "
    "VALUES (%s, 'created', 'pending', 1, NULL, '[]', 44)"
)
WAITS = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


class OpenTransaction:
    """One that has drawn numbers of pages, and has not ended."""

    def __init__(self, dsn: str, numbers: int) -> None:
        self._connection = psycopg.connect(dsn)
        drawn = self._connection.execute(
            "SELECT nextval('unit_page_numbers') FROM generate_series(1, %s)", [numbers]
        )
        self.numbers = [number for (number,) in drawn]

    def commit(self) -> None:
        self._connection.cursor().executemany(PAGE, [(number,) for number in self.numbers])
        self._connection.commit()

    def roll_back(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def scene(postgres_database: str) -> Scene:
    return Scene(postgres_store(postgres_database))


def under_way(stack: ExitStack, dsn: str, numbers: Sequence[int]) -> list[OpenTransaction]:
    made = [OpenTransaction(dsn, each) for each in numbers]
    for one in made:
        stack.callback(one.close)
    return made


def unsealed(store: Ledger) -> int:
    assert verify(links(store)).sound
    verdict = verify_seals(store, links(store), UNITS)
    assert verdict.sound
    return verdict.unsealed


def test_numbers_in_flight_are_not_counted(postgres_database: str, scene: Scene) -> None:
    """Hundreds of pages that are committed after a seal, below its highest number, are sealed by the next."""
    with ExitStack() as stack:
        late = under_way(stack, postgres_database, [100] * 4)
        scene.take(taken("early"))
        assert scene.store.seal("ada", stream=UNITS) is not None
        late.pop().roll_back()  # rolled back: its numbers never come
        for one in late:
            one.commit()
        assert unsealed(scene.store) == 300
        made = scene.store.seal("ada", stream=UNITS)
    assert made is not None
    assert made.count == 300
    assert unsealed(scene.store) == 0


def test_a_page_that_is_committed_late_is_sealed(postgres_database: str, scene: Scene) -> None:
    """Through any number of seals, a transaction that goes on is waited for; one that ended is not."""
    with ExitStack() as stack:
        early, late = under_way(stack, postgres_database, [2, 3])
        for at in range(12):
            scene.take(taken(f"{at}"))
            assert scene.store.seal("ada", stream=UNITS) is not None
        early.roll_back()
        scene.take(taken("between"))
        scene.store.seal("ada", stream=UNITS)
        late.commit()
    made = scene.store.seal("ada", stream=UNITS)
    assert made is not None
    assert made.members == ((late.numbers[0], late.numbers[-1]),)
    assert unsealed(scene.store) == 0
    scene.take(taken("after"))
    made = scene.store.seal("ada", stream=UNITS)
    assert made is not None
    assert (made.holes, made.in_flight) == ((), ())


class Interrupted:
    """A session beside which something happens right after one of its statements."""

    def __init__(self, session: Session, after: str, happens: Callable[[], object]) -> None:
        self._session, self._after, self._happens = session, after, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def all(self, name: str, /, **parameters: Any) -> list[Any]:
        found = self._session.all(name, **parameters)
        if name == self._after:
            self._happens()
        return found


def test_what_begins_while_a_seal_is_made_is_not_left_out(postgres_database: str, scene: Scene) -> None:
    """A transaction that the seal has not seen under way may be passed by a later one: both wait for the
    next seal."""
    with ExitStack() as stack:
        begun: list[OpenTransaction] = []

        def happens() -> None:
            begun.extend(under_way(stack, postgres_database, [1]))
            scene.take(taken("faster"))

        scene.take(taken("early"))
        sealer = postgres_store(postgres_database)
        stack.callback(sealer.close)
        sealer._database.write(
            lambda session: governance.seal(
                cast(Session, Interrupted(session, "seals.in_flight", happens)), "ada", 1000, UNITS
            )
        )
        assert unsealed(scene.store) == 1
        begun[0].commit()
    assert scene.store.seal("ada", stream=UNITS) is not None
    assert unsealed(scene.store) == 0


def test_late_pages_are_sealed_by_limited_seals(postgres_database: str, scene: Scene) -> None:
    """Where more has come late than one seal takes, the following ones take the rest."""
    with ExitStack() as stack:
        late = under_way(stack, postgres_database, [4, 4])
        scene.take(taken("early"))
        scene.store.seal("ada", stream=UNITS)
        for one in late:
            one.commit()
    while scene.store.seal("ada", 3, stream=UNITS) is not None:
        pass
    assert unsealed(scene.store) == 0


def test_an_event_that_is_posted_late_is_sealed(postgres_database: str, scene: Scene) -> None:
    """The outbox's numbers are drawn by their rows: those of a transaction that goes on are waited for."""
    post = (
        "INSERT INTO outbox (event_id, topic, subject, body, recorded_at_ms, tries, not_before_ms) "
        "SELECT 'e' || i, 'openlineage', 's', '{}', 1, 0, 0 FROM generate_series(1, %s) i"
    )
    with psycopg.connect(postgres_database) as late, psycopg.connect(postgres_database) as early:
        late.execute(post, [150])
        early.execute(post, [1])
        early.commit()
        assert scene.store.seal("ada") is not None
        late.commit()
    made = scene.store.seal("ada")
    assert made is not None
    assert made.count == 150
    assert verify_seals(scene.store, links(scene.store)).unsealed == 0


def test_what_an_earlier_version_forgot_is_sealed(postgres_database: str, scene: Scene) -> None:
    """A seal that kept a hundred holes and no more is followed by one that covers all that none does."""
    with ExitStack() as stack:
        (late,) = under_way(stack, postgres_database, [300])
        scene.take(taken("early"))
        seal = scene.store.seal("ada", stream=UNITS)
        assert seal is not None
        details = {"members": [[301, 301]], "count": 1, "root": seal.root, "high": 301, "holes": [[201, 300]]}
        scene.store.append_governance([entry("seal", UNITS, details=details)])
        late.commit()
    made = scene.store.seal("ada", stream=UNITS)
    assert made is not None
    assert made.count == 300


def test_a_sealer_holds_up_no_refusal(postgres_database: str, scene: Scene) -> None:
    """Until its commit is sent, however long its process takes: others append, and another person who seals
    waits for it and seals what came later."""
    scene.take(taken("a"))
    scene.store.append_governance([entry("note", "first")])
    with ExitStack() as stack:
        beside = postgres_store(postgres_database)
        stack.callback(beside.close)
        waiting = postgres_store(postgres_database)
        stack.callback(waiting.close)
        threads = stack.enter_context(ThreadPoolExecutor(1))

        def change(session: Session) -> Future[Seal | None]:
            assert governance.seal(session, "ada", 1000, UNITS) is not None
            beside.append_governance([entry("refusal", "quick")])
            second = threads.submit(waiting.seal, "eve", stream=UNITS)
            with psycopg.connect(postgres_database) as looker:
                while not looker.execute(WAITS).fetchall():
                    assert not second.done()
            return second

        second = scene.store._database.write(change)
        assert second.result(20) is None
    assert unsealed(scene.store) == 0
    kinds = [one.entry.kind for one in links(scene.store)]
    assert kinds == ["note", "refusal", "seal"]
