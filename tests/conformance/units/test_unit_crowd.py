"""Several at once on one ledger: the second process learns it, and nothing is done twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

import pytest

from kfm.db.ledger import Ledger
from tests.conformance.units.scene import Scene, done, entry, gone, id_of, taken, undone

pytestmark = [
    pytest.mark.req("WAL-11"),
    pytest.mark.parametrize("kind", ["sqlite", "postgresql"], indirect=True),
]


def together(open_store: Callable[[], Ledger], works: Sequence[Callable[[Scene], None]]) -> None:
    """Each in a thread and on a connection of its own; what one raises is raised."""
    start = threading.Barrier(len(works))
    raised: list[BaseException] = []

    def run(work: Callable[[Scene], None]) -> None:
        try:
            scene = Scene(open_store())
            start.wait()
            work(scene)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


@pytest.mark.req("WAL-2")
def test_two_intakes_of_the_same_objects(open_store: Callable[[], Ledger]) -> None:
    """Each object is one unit, and the second announcement is a duplicate."""
    scene = Scene(open_store())
    names = [f"n{number}" for number in range(60)]
    reports = []

    def take(order: list[str]) -> Callable[[Scene], None]:
        def work(mine: Scene) -> None:
            for at in range(0, len(order), 12):
                reports.append(mine.take(*(taken(name) for name in order[at : at + 12])))

        return work

    together(open_store, [take(names), take(names[::-1])])
    assert sum(report.created for report in reports) == 60
    assert sum(report.duplicate for report in reports) == 60
    assert (scene.count("pending"), scene.count("duplicates")) == (60, 60)
    scene.check()


@pytest.mark.req("WAL-10", "WAL-20")
def test_data_and_sidecars_at_once(open_store: Callable[[], Ledger]) -> None:
    """One item for each pair, whichever process makes it, with both of its files."""
    scene = Scene(open_store())
    names = [f"n{number}" for number in range(24)]
    scene.take(*(taken(name) for name in names), *(taken(f"{name}.idx") for name in names))
    held = {one.wal_id: one for one in scene.claim(limit=100)}

    def data(mine: Scene) -> None:
        for at in range(0, 24, 6):
            mine.end(*(done(held[id_of(name)]) for name in names[at : at + 6]))

    def sidecars(mine: Scene) -> None:
        for at in range(0, 24, 6):
            sides = [(name, held[id_of(f"{name}.idx")]) for name in names[at : at + 6]]
            mine.end(*(done(one, entry(one, name, "index")) for name, one in sides))

    together(open_store, [data, sidecars])
    assert scene.count("succeeded") == 48
    assert scene.items() == set(names)
    for name in names:
        item = scene.catalogue.item("hrrr", name)
        assert item is not None
        assert [asset.role for asset in item.assets] == ["data", "index"]
    scene.check()


@pytest.mark.req("WAL-5", "WAL-8", "WAL-18")
def test_workers_reapers_and_new_versions_at_once(open_store: Callable[[], Ledger]) -> None:
    """Leases lapse, objects are announced anew and removed while they are looked at: in the end each unit
    has its newest bytes, one item, and a history without a gap."""
    scene = Scene(open_store())
    names = [f"n{number}" for number in range(10)]
    scene.take(*(taken(name, "e01", "01") for name in names))

    def announce(mine: Scene) -> None:
        rng = random.Random(1)
        for version in range(2, 14):
            some = rng.sample(names, 5)
            removals = [gone(name, f"{version:02d}") for name in some[:1]]
            mine.take(*(taken(name, f"e{version:02d}", f"{version:02d}") for name in some[1:]), *removals)

    def work(seed: int) -> Callable[[Scene], None]:
        def work(mine: Scene) -> None:
            rng = random.Random(seed)
            for _ in range(15):
                batch = mine.claim(limit=4, lease_ms=rng.choice([0, 60_000])) or mine.claim(alone=1)
                mine.end(*(done(one) if rng.random() < 0.7 else undone(one) for one in batch))
                mine.units.reap_units(0.5)

        return work

    together(open_store, [announce, work(2), work(3)])
    scene.take(*(taken(name, "e99", "99") for name in names))
    for _ in range(40):
        scene.lapse()
        scene.due()
        batch = scene.claim() or scene.claim(alone=1)
        if not batch:
            break
        scene.end(*(done(one) for one in batch))
    for name in names:
        stored = scene.stored(name)
        assert (stored.unit.status, stored.etag) == ("succeeded", "e99")
        assert stored.done_version == stored.content_version
        item = scene.catalogue.item("hrrr", name)
        assert item is not None
        assert item.assets[0].etag == "e99"
    assert scene.items() == set(names)
    scene.check()
