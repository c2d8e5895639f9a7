"""Claims: lane by lane, in their time, and never one unit for two."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from kfm.db.ledger import Ledger
from kfm.model.units import ClaimedUnit, Lane, ResultBatch
from tests.conformance.units.scene import MINUTE_MS, Scene, done, id_of, taken, undone

pytestmark = pytest.mark.req("WAL-11")
ROOT = Path(__file__).parents[3]


def _keys(lanes: list[Lane]) -> list[tuple[str, str, int]]:
    return [(lane.dataset, lane.provider, lane.alone) for lane in lanes]


@pytest.mark.req("WAL-5", "WAL-6")
def test_a_claim_is_a_lease_with_a_fence(scene: Scene) -> None:
    """It opens the first attempt, names the worker, and its version is what the end must show."""
    claimed = scene.claimed("a", worker="w7", lease_ms=MINUTE_MS)
    stored = scene.stored("a")
    assert (stored.unit.status, stored.unit.version, stored.unit.attempts) == ("in_progress", 2, 1)
    assert (stored.unit.worker_id, stored.unit.ingest_run_id) == ("w7", "run-1")
    assert stored.unit.last_attempt_at_ms is not None
    assert stored.lease_until_ms == stored.unit.last_attempt_at_ms + MINUTE_MS
    assert (claimed.version, claimed.attempts, claimed.grant_attempts) == (2, 1, 1)
    assert claimed.granted_at_ms == stored.unit.last_attempt_at_ms
    assert claimed.extra == '{"product":"sfc"}'
    assert scene.history("a")[-1].worker_id == "w7"
    assert scene.claim() == []
    scene.check()


@pytest.mark.req("WAL-5", "FLT-1")
def test_a_renewal_begins_the_lease_anew_and_is_no_transition(scene: Scene) -> None:
    """It holds a full length from now on, under the same fence; the reaper finds nothing, the end lands."""
    scene.failed("a", "retry", not_before_ms=0)
    scene.take(taken("b"))
    held = scene.claim(lease_ms=MINUTE_MS)
    assert len({one.version for one in held}) == 2
    scene.sql("UPDATE units SET lease_until_ms = lease_until_ms - 50000")
    told = [scene.history(name) for name in "ab"]
    before_ms = scene.store.now_ms()
    assert scene.units.renew_units(held, MINUTE_MS) == {id_of("a"), id_of("b")}
    for name, history in zip("ab", told, strict=True):
        stored = scene.stored(name)
        assert before_ms + MINUTE_MS <= stored.lease_until_ms <= scene.store.now_ms() + MINUTE_MS
        assert scene.history(name) == history
    assert scene.units.reap_units(0.5) == 0
    assert scene.end(*map(done, held)).lost == ()
    scene.check()


@pytest.mark.req("WAL-5", "FLT-1")
def test_a_lease_that_is_renewed_while_a_reaper_looks_is_not_taken(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the reaper has read before counts for nothing: it looks again in the transaction that takes."""
    held = scene.claimed("a", worker="w1", lease_ms=MINUTE_MS)
    scene.sql("UPDATE units SET lease_until_ms = lease_until_ms - 60001")

    units, look = scene.units, scene.units._lapsed

    def looked(now_ms: int, gone: Collection[str]) -> set[str]:
        found = look(now_ms, gone)
        assert found == {held.wal_id}
        assert units.renew_units([held], MINUTE_MS) == found
        return found

    monkeypatch.setattr(units, "_lapsed", looked)
    assert units.reap_units(0.5) == 0
    assert scene.end(done(held)).succeeded == (held.wal_id,)


@pytest.mark.req("WAL-5", "FLT-1")
def test_what_others_have_is_not_renewed_and_counts_as_lost(scene: Scene) -> None:
    """Neither a unit that ended nor one of a later claim gets a longer lease; both are counted, once."""
    scene.take(taken("ended"), taken("taken"), taken("kept"))
    held = {one.wal_id: one for one in scene.claim()}
    scene.end(done(held[id_of("ended")]))
    scene.sql(f"UPDATE units SET lease_until_ms = 1 WHERE wal_id = '{id_of('taken')}'")
    assert scene.units.reap_units(0.5) == 1
    scene.due()
    (theirs,) = scene.claim(alone=1, worker="w2", lease_ms=MINUTE_MS)
    until_ms = scene.stored("taken").lease_until_ms
    assert scene.units.renew_units(tuple(held.values()), 10 * MINUTE_MS) == {id_of("kept")}
    assert scene.stored("taken").lease_until_ms == until_ms
    assert scene.stored("ended").lease_until_ms == 0
    assert scene.count("lost") == 2
    assert scene.end(done(held[id_of("taken")])).lost == (theirs.wal_id,)
    assert scene.count("lost") == 3
    scene.check()


def test_lanes_are_claimed_by_themselves(scene: Scene) -> None:
    """Datasets and providers do not mix, and what waits in each is told with its time."""
    scene.take(taken("a"), taken("b", dataset="gfs"), taken("c", provider="gcp"), taken("d"))
    assert _keys(scene.units.lanes()) == [("gfs", "aws", 0), ("hrrr", "aws", 0), ("hrrr", "gcp", 0)]
    assert {one.wal_id for one in scene.claim()} == {id_of("a"), id_of("d")}
    assert [one.wal_id for one in scene.claim(provider="gcp")] == [id_of("c")]
    assert _keys(scene.units.lanes()) == [("gfs", "aws", 0)]
    assert scene.claim("nothing") == []
    scene.check()


def test_what_waits_for_its_time_is_not_claimed(scene: Scene) -> None:
    """A retry is due at its not-before, those that waited longest come first, and no more than asked for."""
    claimed = scene.claimed("later")
    now_ms = scene.store.now_ms()
    scene.end(undone(claimed, not_before_ms=now_ms + 60 * MINUTE_MS))
    assert [lane.due_ms for lane in scene.units.lanes()] == [now_ms + 60 * MINUTE_MS]
    assert scene.claim() == []
    scene.take(taken("x"), taken("y"), taken("z"))
    for age, name in enumerate("zxy", 1):
        scene.sql(f"UPDATE units SET not_before_ms = {age} WHERE wal_id = '{id_of(name)}'")
    assert [lane.due_ms for lane in scene.units.lanes()] == [1]
    assert {one.wal_id for one in scene.claim(limit=2)} == {id_of("z"), id_of("x")}
    assert [one.wal_id for one in scene.claim(limit=2)] == [id_of("y")]
    assert scene.claim() == []
    scene.check()


def test_one_batch_ends_and_the_next_is_claimed_in_one_transaction(scene: Scene) -> None:
    """Results and the next claim share one commit."""
    scene.take(*(taken(f"n{number}") for number in range(4)))
    first = scene.claim(limit=2)
    finish = ResultBatch(successes=tuple(done(one) for one in first))
    exchanged = scene.units.exchange(finish, scene.claim_request(limit=2))
    finished, second = exchanged.results, exchanged.claimed
    assert set(finished.succeeded) == {one.wal_id for one in first}
    assert len(second) == 2
    assert not {one.wal_id for one in second} & set(finished.succeeded)
    scene.check()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"], indirect=True)
def test_two_claimants_never_share_a_unit(open_store: Callable[[], Ledger]) -> None:
    """Two connections that claim as fast as they can: each unit is had once, and all of them are had."""
    scene = Scene(open_store())
    scene.take(*(taken(f"n{number}") for number in range(120)))
    had: dict[str, list[ClaimedUnit]] = {"w1": [], "w2": []}
    start = threading.Barrier(2)

    def work(worker: str) -> None:
        mine = Scene(open_store())
        start.wait()
        while batch := mine.claim(limit=7, worker=worker):
            had[worker] += batch

    threads = [threading.Thread(target=work, args=(worker,)) for worker in had]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [one.wal_id for batch in had.values() for one in batch]
    assert len(ids) == len(set(ids)) == 120
    for worker, batch in had.items():
        for one in batch:
            stored = scene.units.stored(one.wal_id)
            assert stored is not None
            assert (stored.unit.worker_id, stored.unit.version) == (worker, one.version)
    scene.check()


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_what_another_process_is_claiming_is_passed_over(open_store: Callable[[], Ledger]) -> None:
    """A transaction that is still open holds its units; the next claim takes others and waits for nothing."""
    first, second = Scene(open_store()), Scene(open_store())
    first.take(*(taken(f"n{number}") for number in range(6)))

    def change(session: object) -> tuple[list[ClaimedUnit], list[ClaimedUnit]]:
        from kfm.db import units
        from kfm.db.unit_rows import CountChanges

        request = first.claim_request(limit=2)
        mine, *_ = units.claim_units(session, request, "#1", first.store.now_ms(), CountChanges())  # type: ignore[arg-type]
        return mine, second.claim(limit=6)

    mine, others = first.store._database.write(change)
    assert (len(mine), len(others)) == (2, 4)
    assert not {one.wal_id for one in mine} & {one.wal_id for one in others}


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_a_claim_takes_no_more_than_it_asked_for(open_store: Callable[[], Ledger]) -> None:
    """Also where the planner would rather read the whole table."""
    scene = Scene(open_store())
    scene.take(*(taken(f"n{number}") for number in range(40)))
    database = scene.store._database
    for setting in ("enable_indexscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"):
        database.execute(f"SET {setting} = off")  # type: ignore[attr-defined]
    for setting in ("enable_hashagg", "enable_sort", "enable_material"):
        database.execute(f"SET {setting} = off")  # type: ignore[attr-defined]
    assert len(scene.claim(limit=3)) == 3
    assert scene.units.fold_counts(limit=1) == 1
    scene.check()


_CLAIMANT = """
import sys
from kfm.system import SystemClock
from tests.conformance.db import ledgers
from tests.conformance.units.scene import Scene

scene = Scene(ledgers.sqlite_store(sys.argv[1], SystemClock()))
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
while batch := scene.claim(limit=5, worker=sys.argv[2]):
    sys.stdout.write("".join(one.wal_id + "\\n" for one in batch))
"""


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_two_processes_never_share_a_unit(scene: Scene, tmp_path: Path) -> None:
    """The same between processes on one file."""
    scene.take(*(taken(f"n{number}") for number in range(60)))
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _CLAIMANT, str(tmp_path / "kfm.db"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for name in ("w1", "w2")
    ]
    for one in workers:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in workers:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    ids = [line for one in workers for line in one.communicate(timeout=60)[0].split()]
    assert [one.returncode for one in workers] == [0, 0]
    assert len(ids) == len(set(ids)) == 60
    scene.check()
