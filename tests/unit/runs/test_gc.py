"""Collecting: nothing goes that a kept version, a running run or a fresh stage needs."""

from __future__ import annotations

import contextlib
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.branches import Swept
from kfm.model.dataset_changes import Withdrawal
from kfm.model.errors import LostLease, StoreCorrupt
from kfm.model.records import Manifest, Promotion, Run
from kfm.objects.local import LocalObjects
from kfm.publish import manifest as m
from kfm.publish.targets.folder import LocalTree
from kfm.runs import gc
from kfm.runs.gc import CLOCK_MARGIN_MS, LEASE_MS, collect, plan_collection
from tests.power import PowerCutFiles, PowerLost
from tests.stand_ins import FakeClock
from tests.unit.publish.stand_ins import DATASET, CountedIds, SteppedFiles, asset, item, sha

HOUR_MS = 3_600_000
NOW_MS = 1000 * HOUR_MS


class TimedIds(CountedIds):
    """Ids that tell the time of their making, as real ones do."""

    now_ms = 0

    def new(self) -> str:
        digits = f"{self.now_ms:012x}"
        return f"{digits[:8]}-{digits[8:]}-{super().new()[-22:]}-{self.count:08d}"


class Ledger:
    def __init__(self) -> None:
        self.history: list[tuple[Promotion, Manifest]] = []
        self.running: list[Run] = []
        self.lost: set[str] = set()
        self.withdrawn: list[Withdrawal] = []

    def promote(self, *data: bytes) -> None:
        assets = [asset(f"{number}.bin", one) for number, one in enumerate(data)]
        manifest = m.merge(None, DATASET, item(1, *assets), "merge")
        promotion = Promotion(
            dataset_id=DATASET.id,
            sequence=len(self.history) + 1,
            version_id=m.version_id(manifest),
            run_id="r",
            fence=1,
            policy_epoch=1,
            promoted_at_ms=0,
        )
        self.history.append((promotion, manifest))

    def head(self) -> tuple[Promotion, Manifest] | None:
        return self.history[-1]

    def heads(self) -> list[Promotion]:
        return [self.history[-1][0]] if self.history else []

    def promotions(self, dataset_id: str, limit: int = 50) -> list[Promotion]:
        return [promotion for promotion, _ in reversed(self.history)][:limit]

    def manifest(self, version_id: str) -> Manifest | None:
        found = [manifest for promotion, manifest in self.history if promotion.version_id == version_id]
        return None if version_id in self.lost else found[0]

    def runs(self, *, status: str | None = None, limit: int = 50, **rest: Any) -> list[Run]:
        return self.running

    def change_reader(self) -> Any:
        return self

    def withdrawals(self, dataset_id: str) -> list[Withdrawal]:
        return [one for one in self.withdrawn if one.dataset_id == dataset_id]


class Place:
    def __init__(self, files: PowerCutFiles | None = None) -> None:
        self.files = files or PowerCutFiles(random.Random(0))
        self.ids = TimedIds()
        self.objects = LocalObjects(self.files, "/objects", self.ids)
        self.ledger = Ledger()

    def stage(self, data: bytes, at_ms: int = 0) -> str:
        self.files.now_ms = self.ids.now_ms = at_ms
        staging, _ = self.objects.stage()
        staging.write(data)
        return staging.commit()[0]

    def collection(self, keep: int = 1, **rest: Any) -> Any:
        return plan_collection(self.ledger, self.objects, NOW_MS, keep, 24 * HOUR_MS, **rest)


def read(objects: LocalObjects, sha256: str) -> bytes:
    reader = objects.open(sha256)
    parts = []
    while data := reader.read(1024):
        parts.append(data)
    return b"".join(parts)


def test_what_no_kept_version_needs_goes() -> None:
    """Objects of dropped versions and of no version go; those of the kept versions stay."""
    place = Place()
    for data in (b"one", b"two", b"three", b"orphan"):
        place.stage(data)
    for data in (b"one", b"two", b"three"):
        place.ledger.promote(data)
    collection = place.collection(keep=2)
    assert {one.sha256 for one in collection.objects} == {sha(b"one"), sha(b"orphan")}
    assert collection.size == len(b"one") + len(b"orphan")
    assert set(place.objects.all()) >= {sha(b"one")}, "planning removes nothing"
    done = collect(collection, place.objects)
    assert (done.objects, done.size, done.spared) == (2, 9, 0)
    assert set(place.objects.all()) == {sha(b"two"), sha(b"three")}
    assert place.collection(keep=2).objects == ()


@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=1), min_size=1, max_size=3), max_size=6),
    st.integers(-1, 7),
    st.sets(st.binary(min_size=1, max_size=1), max_size=4),
)
def test_kept_versions_stay_readable(versions: list[list[bytes]], keep: int, pins: set[bytes]) -> None:
    """Whatever the history, every file of the kept versions and every pin can be read afterwards."""
    place = Place()
    for data in {one for version in versions for one in version} | pins:
        place.stage(data)
    for version in versions:
        place.ledger.promote(*version)
    collect(place.collection(keep=keep, pins={sha(pin) for pin in pins}), place.objects)
    kept = versions[-max(1, keep) :] if versions else []
    needed = {one for version in kept for one in version} | pins
    assert set(place.objects.all()) == {sha(one) for one in needed}
    assert all(read(place.objects, sha(one)) == one for one in needed)


def test_fresh_objects_stay() -> None:
    """What was staged within the grace period stays, whether or not anybody needs it."""
    place = Place()
    place.stage(b"old", NOW_MS - 25 * HOUR_MS)
    place.stage(b"fresh", NOW_MS - 23 * HOUR_MS)
    assert [one.sha256 for one in place.collection().objects] == [sha(b"old")]


def run(start_ms: int) -> Any:
    return type("Run", (), {"start_time_ms": start_ms})()


def test_what_a_running_run_staged_stays() -> None:
    """A run that takes longer than the grace period keeps what it has staged."""
    place = Place()
    began = NOW_MS - 100 * HOUR_MS
    place.stage(b"before", began - CLOCK_MARGIN_MS - 1)
    place.stage(b"staged", began + 1)
    place.ledger.running = [run(began)]
    assert [one.sha256 for one in place.collection().objects] == [sha(b"before")]


def test_leftovers_are_listed_and_removed() -> None:
    """Temporary files of attempts that died long ago go; those of yesterday stay."""
    place = Place()
    for at_ms in (0, NOW_MS):
        place.ids.now_ms = at_ms
        staging, _ = place.objects.stage()
        staging.write(b"half")
    collection = place.collection()
    assert [one.size for one in collection.leftovers] == [4]
    assert collect(collection, place.objects).leftovers == 1
    assert len(place.files.listdir("/objects/tmp")) == 1


def test_half_the_knowledge_is_not_enough() -> None:
    """If the manifest of a kept version can't be read, nothing is collected."""
    place = Place()
    place.stage(b"one")
    place.ledger.promote(b"one")
    place.ledger.lost = {place.ledger.history[0][0].version_id}
    with pytest.raises(StoreCorrupt):
        place.collection()


def stage_at(at: int) -> bool:
    """The bytes are staged again before the collector's n-th file operation. False if it has fewer."""
    disk = PowerCutFiles(random.Random(0))
    place = Place(disk)
    place.stage(b"again")
    collection = place.collection()
    steps = 0

    def before() -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            place.stage(b"again", NOW_MS)

    collector = LocalObjects(SteppedFiles(disk.root, before), "/objects", place.ids)
    collect(collection, collector)
    if steps >= at:
        assert read(place.objects, sha(b"again")) == b"again"
    return steps >= at


def test_bytes_that_are_staged_again_meanwhile_stay() -> None:
    """Whenever a run stages the same bytes while they are being removed, the run finds them after."""
    reached = [at for at in range(1, 100) if stage_at(at)]
    assert len(reached) > 4


def test_a_collector_that_takes_without_looking_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: a plain delete loses bytes that were staged again."""
    monkeypatch.setattr(LocalObjects, "delete_if_older", lambda self, name, before: self.delete(name) or True)
    with pytest.raises(StoreCorrupt):
        [stage_at(at) for at in range(1, 100)]


def test_a_collector_that_dies_loses_nothing_that_is_needed() -> None:
    """Killed at any point, the power cut too, fresh bytes that it had taken away can still be read."""
    for calls in range(1, 60):
        disk = PowerCutFiles(random.Random(calls))
        place = Place(disk)
        place.stage(b"again")
        collection = place.collection()
        steps = 0
        process = SteppedFiles(disk.root)

        def before() -> None:
            nonlocal steps
            steps += 1
            if steps == 4:  # between its look and its taking
                place.stage(b"again", NOW_MS)  # noqa: B023
            if steps == calls:  # noqa: B023
                raise PowerLost

        process.before = before
        with contextlib.suppress(PowerLost):
            collect(collection, LocalObjects(process, "/objects", place.ids))
        if steps < 4:
            continue
        assert read(LocalObjects(SteppedFiles(disk.root), "/objects", TimedIds()), sha(b"again")) == b"again"
        after = disk.cut()
        assert read(LocalObjects(after, "/objects", TimedIds()), sha(b"again")) == b"again"


def test_old_versions_of_a_tree_go_with_their_objects() -> None:
    """A target's old version folders are listed and removed; what is shown stays whole."""
    place = Place()
    tree = LocalTree("tree", place.files, place.objects, place.ids, "/tree")
    for number in range(4):
        data = f"v{number}".encode()
        place.stage(data)
        place.ledger.promote(data)
        tree.project(DATASET.id, place.ledger.head)
    collection = place.collection(keep=2, projections=[tree, object()])
    assert [one.name[:8] for one in collection.versions] == ["00000001", "00000002"]
    assert collect(collection, place.objects, [tree, object()]).versions == 2
    assert [sequence for _, sequence in tree.versions(DATASET.id)] == [3, 4]
    assert tree.project(DATASET.id, place.ledger.head) == 4


def test_local_objects_can_be_collected() -> None:
    """The local store has what collecting asks for."""
    objects: LocalObjects = Place().objects
    assert objects.modified_ms("0" * 64) is None
    assert objects.delete_if_older("0" * 64, NOW_MS) is False


@pytest.mark.req("UPD-8")
def test_collecting_stops_where_its_lease_is_lost() -> None:
    """Before each removal it is asked whether the lease still holds; from a no on, nothing goes."""
    place = Place()
    for data in (b"one", b"two", b"three"):
        place.stage(data)
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise LostLease

    with pytest.raises(LostLease):
        collect(place.collection(), place.objects, check=check)
    assert len(list(place.objects.all())) == 2


class HeldStore:
    """A store whose collection lease is counted, and taken away when told."""

    def __init__(self) -> None:
        self.renewals = 0
        self.is_lost = False
        self.entries: list[Any] = []

    def begin_collection(self, *_: object) -> int:
        return 7

    def end_collection(self, fence: int, entry: Any) -> None:
        self.entries.append((fence, entry.details))

    def renew(self, scope: str, fence: int, lease_ms: int) -> tuple[int, None] | None:
        assert (scope, fence, lease_ms) == ("gc", 7, LEASE_MS)
        self.renewals += 1
        return None if self.is_lost else (1, None)

    def branch_store(self) -> Any:
        return self

    def sweep(self, _before_ms: int) -> Any:
        return Swept(commits=0, trees=0)

    def policy_epoch(self) -> int:
        return 1

    def now_ms(self) -> int:
        return NOW_MS


@pytest.mark.req("UPD-8")
def test_a_long_collection_renews_its_lease_and_ends_when_another_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each removal takes a minute: the lease is renewed on the way; once it has passed on, what is left
    stays, and the command says so."""
    place, store, clock = Place(), HeldStore(), FakeClock()
    for number in range(30):
        place.stage(b"%d" % number)
    collection = place.collection()
    monkeypatch.setattr(gc, "plan", lambda *_: collection)

    def advance(_amount: int) -> None:
        clock.sleep_ms(60_000)
        store.is_lost = store.renewals == 20

    progress = SimpleNamespace(phase=lambda *_: None, advance=advance, done=lambda: None)
    kernel: Any = SimpleNamespace(
        store=store,
        ledger=store,
        clock=clock,
        progress=progress,
        projections=(),
        liveness=SimpleNamespace(claim=lambda _: None, is_dead=lambda _: False),
        worker_id="w",
        settings=SimpleNamespace(environment="test"),
    )
    with pytest.raises(LostLease, match="nothing more was removed"):
        gc.carry_out(kernel, place.objects, actor="ann", rationale="room")
    assert len(list(place.objects.all())) == 9
    assert store.entries == [(7, {"interrupted": True})]
