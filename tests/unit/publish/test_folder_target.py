"""The published tree: whole versions only, and never an older one after a newer one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfm.model.errors import StoreCorrupt, TargetUnavailable
from kfm.model.records import Promotion
from kfm.model.versions import Version
from kfm.publish.catalogue.addresses import item_name
from kfm.publish.targets import folder_plan
from kfm.publish.targets.folder import LocalTree, sequence_of
from kfm.publish.targets.folder_builder import remove_tree
from tests.power import FileNode, FolderNode, PowerCutFiles, PowerLost
from tests.unit.publish.stand_ins import DATASET, CountedIds, Database, MemoryObjects, SteppedFiles

Head = Callable[[], "tuple[Promotion, Version] | None"]
History = Callable[[int], "str | None"]
pytestmark = pytest.mark.req("TRG-4")

CURRENT = f"/tree/{DATASET.id}/current"


@pytest.fixture(params=[False, True], ids=["own", "shared"], autouse=True)
def sharing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """All of this holds for versions of either size, with folders of their own or shared ones."""
    is_shared = bool(request.param)
    monkeypatch.setattr(folder_plan, "ENTRIES_MAX", 0 if is_shared else 1000)
    return is_shared


own_folders = pytest.mark.parametrize("sharing", [False], indirect=True, ids=["own"])


class World:
    """One disk, one database, any number of projectors."""

    def __init__(self, kind: type[LocalTree] = LocalTree) -> None:
        self.kind = kind
        self.root = FolderNode()
        self.objects = MemoryObjects()
        self.database = Database(self.objects)
        self.ids = CountedIds()

    def projector(self, before: Callable[[], None] | None = None) -> LocalTree:
        return self.on(SteppedFiles(self.root, before))

    def on(self, files: PowerCutFiles) -> LocalTree:
        return self.kind("tree", files, self.objects, self.ids, "/tree")

    def shown(self) -> int:
        return shown(SteppedFiles(self.root), self.database)


def shown(files: PowerCutFiles, database: Database) -> int:
    """The sequence that a reader sees, 0 if none; fails unless that version is whole."""
    try:
        target = files.readlink(CURRENT)
    except FileNotFoundError:
        return 0
    sequence = sequence_of(target.removeprefix(".versions/"))
    promotion, version = database.history[sequence - 1]
    assert promotion.version_id.removeprefix("sha256:")[:12] in target
    tree = dict(read_below(files, f"/tree/{DATASET.id}/{target}"))
    assert tree.keys() == {
        "manifest.json",
        "collection.json",
        "dcat.jsonld",
        item_name(version.items()[0]),
        "data/now.txt",
        "data/a/same.txt",
    }
    assert tree["data/now.txt"] == f"{database.text} {sequence}".encode()
    assert tree["data/a/same.txt"] == b"always the same"
    assert all(tree.values()), "an empty file"
    return sequence


def read_below(files: PowerCutFiles, place: str, name: str = "") -> Iterator[tuple[str, bytes]]:
    """What a reader finds there who follows links, by path; none of this counts as a call."""
    node = files._get(f"{place}/{name}")
    if isinstance(node, FileNode):
        yield name, node.data
        return
    assert isinstance(node, FolderNode)
    for below in node.names:
        yield from read_below(files, place, f"{name}/{below}" if name else below)


def unfinished(files: PowerCutFiles) -> list[str]:
    """What is there beside versions and what they share."""
    names = files.listdir(f"/tree/{DATASET.id}/.versions")
    return [name for name in names if name.startswith(".") and name != ".shared"]


class WithoutKilling(LocalTree):
    """The broken variant: it does not remove the tickets of others."""

    def _kill_others(self, folder: str, mine: str) -> None:
        pass


class HeadBeforeTicket(LocalTree):
    """The broken variant: it shows what was the head before its ticket was there."""

    def project(self, dataset_id: str, head: Head, known: History | None = None) -> int | None:
        early = head()
        return super().project(dataset_id, lambda: early, known)

    def _require_same_history(self, shown: str, head: Head) -> None:
        pass


def test_projecting_shows_the_head_and_again_changes_nothing(sharing: bool) -> None:
    """Projecting is idempotent: the second time nothing is written."""
    world = World()
    assert world.projector().project(DATASET.id, world.database.head, world.database) is None
    world.database.promote()
    assert world.projector().project(DATASET.id, world.database.head, world.database) == 1
    before = SteppedFiles(world.root).tree()
    again = SteppedFiles(world.root)
    assert world.on(again).project(DATASET.id, world.database.head, world.database) == 1
    assert again.calls <= (11 if sharing else 7)
    assert SteppedFiles(world.root).tree() == before
    assert world.shown() == 1


def test_old_versions_stay_readable_and_nothing_temporary_is_left() -> None:
    """A reader of an old version is not disturbed by a new one."""
    world = World()
    for _ in range(3):
        world.database.promote()
        world.projector().project(DATASET.id, world.database.head, world.database)
    files = SteppedFiles(world.root)
    assert [sequence for _, sequence in world.projector().versions(DATASET.id)] == [1, 2, 3]
    assert files.listdir(f"/tree/{DATASET.id}/.tickets") == []
    assert unfinished(files) == []


def stopped_once(kind: type[LocalTree], at: int, *, promote_again: bool = True) -> tuple[World, bool]:
    """A projector is stopped before its n-th operation while another promotes and projects."""
    world = World(kind)
    world.database.promote()
    steps = 0
    ran = False

    def before() -> None:
        nonlocal steps, ran
        steps += 1
        if steps == at:
            ran = True
            if promote_again:
                world.database.promote()
            world.projector().project(DATASET.id, world.database.head, world.database)

    world.projector(before).project(DATASET.id, world.database.head, world.database)
    return world, ran


def every_stop(kind: type[LocalTree]) -> list[int]:
    """What is shown at the end, for each place where the first projector may be stopped."""
    results = []
    for at in range(1, 1000):
        world, ran = stopped_once(kind, at)
        if not ran:
            return results
        results.append(world.shown())
    raise AssertionError("a projection has no end")


def test_a_stalled_projector_never_wins() -> None:
    """Wherever a projector is stopped while a newer version is shown, the newer version stays."""
    results = every_stop(LocalTree)
    assert len(results) > 40
    assert set(results) == {2}


def test_the_broken_variant_is_caught() -> None:
    """The test above can fail: where tickets are not removed an older version is shown in the end."""
    assert 1 in every_stop(WithoutKilling)


def test_two_stops_of_two_projectors() -> None:
    """Three projectors, each stopped in the middle of the other: the newest version stays."""
    rng = random.Random(7)
    for _ in range(150):
        world = World()
        world.database.promote()
        stops = [rng.randrange(1, 75), rng.randrange(1, 75)]

        def nested(depth: int, world: World = world, stops: list[int] = stops) -> None:
            steps = 0

            def before() -> None:
                nonlocal steps
                steps += 1
                if depth < len(stops) and steps == stops[depth]:
                    world.database.promote()
                    nested(depth + 1)

            world.projector(before).project(DATASET.id, world.database.head, world.database)

        nested(0)
        assert world.shown() == len(world.database.history)


class Scheduler:
    """Runs threads one file operation at a time, in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._turn = threading.Condition()
        self._waiting: dict[int, bool] = {}
        self._running: int | None = None
        self.on_step: Callable[[], None] = lambda: None

    def step(self, me: int) -> None:
        with self._turn:
            self._waiting[me] = True
            self._hand_over()
            while self._running != me:
                self._turn.wait()
            self._waiting.pop(me)

    def _hand_over(self) -> None:
        if len(self._waiting) == self._alive:
            self.on_step()
            self._running = self._rng.choice(sorted(self._waiting)) if self._waiting else None
            self._turn.notify_all()

    def run(self, bodies: list[Callable[[int], None]]) -> None:
        self._alive = len(bodies)
        failures: list[BaseException] = []

        def main(me: int) -> None:
            try:
                self.step(me)
                bodies[me](me)
            except BaseException as error:
                failures.append(error)
            finally:
                with self._turn:
                    self._alive -= 1
                    self._running = None
                    self._hand_over()

        threads = [threading.Thread(target=main, args=(me,)) for me in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]


def interleaved(seed: int, kind: type[LocalTree]) -> list[int]:
    """What a reader sees after each operation of three projectors that take turns at random."""
    world = World(kind)
    scheduler = Scheduler(seed)
    seen = [0]

    def watch() -> None:
        sequence = world.shown()
        if sequence != seen[-1]:
            seen.append(sequence)

    def body(me: int) -> None:
        for _ in range(2):
            promoted = world.database.promote()
            projector = world.projector(lambda: scheduler.step(me))
            now = projector.project(DATASET.id, world.database.head, world.database)
            assert kind is not LocalTree or (now or 0) >= promoted

    scheduler.on_step = watch
    scheduler.run([body, body, body])
    watch()
    return seen


@pytest.mark.parametrize("seed", range(25))
def test_any_interleaving_shows_whole_versions_in_order(seed: int) -> None:
    """Three projectors that take turns at each file operation: what is seen is whole and only grows."""
    seen = interleaved(seed, LocalTree)
    assert seen == sorted(seen)
    assert seen[-1] == 6


@pytest.mark.parametrize("broken", [WithoutKilling, HeadBeforeTicket])
def test_the_interleavings_catch_broken_variants(broken: type[LocalTree]) -> None:
    """Without either half of the ticket rule, some interleavings show an older version after a newer."""
    assert any((seen := interleaved(seed, broken)) != sorted(seen) for seed in range(200))


def cut_at(calls: int, seed: int) -> bool:
    """Two versions are shown, then power goes in the middle of the third. True if it went."""
    world = World()
    files = PowerCutFiles(random.Random(seed))
    returned = 0
    died = False
    try:
        for number in range(3):
            world.database.promote()
            process = files.another()
            if number == 2:
                process.die_after(calls)
            returned = world.on(process).project(DATASET.id, world.database.head, world.database) or 0
    except PowerLost:
        died = True
    after = files.cut()
    assert shown(after, world.database) >= returned
    # What a cut leaves is no obstacle, and no litter that the next projection would trip over.
    world.database.promote()
    last = len(world.database.history)
    assert world.on(after).project(DATASET.id, world.database.head, world.database) == last
    assert shown(after.cut(), world.database) == len(world.database.history)
    return died


def test_a_power_cut_leaves_a_whole_version_and_none_that_was_superseded() -> None:
    """After a cut at any call `current` shows a whole version, not older than any that was reported."""
    for calls in range(1, 1000):
        went = [cut_at(calls, seed) for seed in range(6)]
        if not any(went):
            break
    assert calls > 40


def test_a_kill_of_a_projector_leaves_the_work_to_the_next() -> None:
    """Killed at any call, without losing power, the next projection shows the head."""
    for calls in range(1, 1000):
        world = World()
        world.database.promote()
        files = PowerCutFiles(random.Random(1))
        files.die_after(calls)
        try:
            world.on(files).project(DATASET.id, world.database.head, world.database)
            break
        except PowerLost:
            pass
        assert world.on(files.another()).project(DATASET.id, world.database.head, world.database) == 1
        assert shown(files.another(), world.database) == 1


def test_a_target_ahead_of_its_database_is_refused() -> None:
    """A tree that belongs to another state folder is not overwritten, and the message says so."""
    world = World()
    for _ in range(3):
        world.database.promote()
    world.projector().project(DATASET.id, world.database.head, world.database)
    other = Database(world.objects)
    other.promote()
    with pytest.raises(TargetUnavailable, match="the database is at 1"):
        world.projector().project(DATASET.id, other.head)
    assert world.shown() == 3


def test_a_past_that_is_not_ours_is_never_replaced() -> None:
    """After a lost state the new one's promotions don't take the tree over, however many there are."""
    world = World()
    for _ in range(2):
        world.database.promote()
    world.projector().project(DATASET.id, world.database.head, world.database)
    other = Database(world.objects, "another past")
    for _ in range(5):
        other.promote()
        with pytest.raises(TargetUnavailable, match="not of this database") as refused:
            world.projector().project(DATASET.id, other.head, other.known)
        assert "remove its `current`" in refused.value.way_out
        assert world.shown() == 2
    SteppedFiles(world.root).unlink(CURRENT)  # the remedy
    assert world.projector().project(DATASET.id, other.head, other.known) == 5
    assert shown(SteppedFiles(world.root), other) == 5


def test_an_older_version_of_our_own_past_is_replaced() -> None:
    """A tree that missed some promotions is brought up to date: what it shows is known."""
    world = World()
    for count in (1, 3):
        for _ in range(count):
            world.database.promote()
        shown_now = world.projector().project(DATASET.id, world.database.head, world.database)
        assert shown_now == len(world.database.history) == world.shown()


def overwrite(files: PowerCutFiles, path: str, data: bytes) -> None:
    """As an editor does that writes in place: every link to the file shows it."""
    node = files._get(path)
    assert isinstance(node, FileNode)
    node.synced, node.pending = data, []


@own_folders
def test_bytes_edited_in_place_are_not_carried_on() -> None:
    """A published file that a person edited is copied anew from the store, not linked into new versions."""
    world = World()
    world.database.promote()
    world.projector().project(DATASET.id, world.database.head, world.database)
    overwrite(SteppedFiles(world.root), f"{CURRENT}/data/a/same.txt", b"edited by hand.")
    world.database.promote()
    world.projector().project(DATASET.id, world.database.head, world.database)
    assert world.shown() == 2


class ReadFiles(SteppedFiles):
    """Counts which files were read, at a time that goes on."""

    def __init__(self, root: FolderNode, now_ms: int) -> None:
        super().__init__(root)
        self.now_ms = now_ms
        self.opened: list[str] = []

    def create(self, path: str) -> Any:
        self.now_ms += 1
        return super().create(path)

    def open(self, path: str) -> Any:
        self.opened.append(path)
        return super().open(path)


@own_folders
@pytest.mark.req("GRO-1")
@pytest.mark.parametrize("how", ["nothing", "written", "linked", "cut"])
def test_a_file_that_was_not_touched_is_linked_without_being_read(how: str) -> None:
    """Only what was written or linked since its version was whole is hashed again; what was edited, to as
    many bytes or fewer, is not carried on."""
    world = World()
    world.database.promote()
    world.on(ReadFiles(world.root, 1000)).project(DATASET.id, world.database.head, world.database)
    files, path = ReadFiles(world.root, 2000), f"{CURRENT}/data/a/same.txt"
    if how in ("written", "cut"):
        overwrite(files, path, b"edited by hand." if how == "written" else b"edited")
        files.touch(path)
    elif how == "linked":
        files.link(path, f"/tree/{DATASET.id}/kept-by-a-reader.txt")
    world.database.promote()
    assert world.on(files).project(DATASET.id, world.database.head, world.database) == 2
    assert world.shown() == 2
    read = [one for one in files.opened if one.endswith("/data/a/same.txt")]
    assert bool(read) == (how != "nothing")


def broken_world(how: str) -> World:
    """Two versions are shown, then what `current` names is damaged."""
    world = World()
    for _ in range(2):
        world.database.promote()
        world.projector().project(DATASET.id, world.database.head, world.database)
    files = SteppedFiles(world.root)
    version = f"/tree/{DATASET.id}/{files.readlink(CURRENT)}"
    if how == "gone":
        remove_tree(files, version)
    elif how == "empty":
        remove_tree(files, version)
        files.mkdir(version)
    else:
        overwrite(files, f"{version}/manifest.json", b"{}")
    return world


@pytest.mark.parametrize("how", ["gone", "empty", "altered"])
def test_a_version_that_fell_is_built_again(how: str) -> None:
    """A `current` that leads nowhere, or to another manifest, is repaired, wherever the repair is killed."""
    for calls in range(1, 1000):
        world = broken_world(how)
        promotion = world.database.history[-1][0]
        assert not world.projector().stands(DATASET.id, promotion)
        files = PowerCutFiles(random.Random(1), world.root)
        files.die_after(calls)
        try:
            assert world.on(files).project(DATASET.id, world.database.head, world.database) == 2
        except PowerLost:
            world.projector().project(DATASET.id, world.database.head, world.database)
            assert world.shown() == 2
            continue
        assert world.shown() == 2
        assert world.projector().stands(DATASET.id, promotion)
        assert [sequence for _, sequence in world.projector().versions(DATASET.id)] == [1, 2]
        assert unfinished(SteppedFiles(world.root)) == []
        return
    raise AssertionError("a repair has no end")


def test_two_repair_at_once() -> None:
    """Wherever one repairer is stopped while another does all of it, the version stands in the end."""
    for at in range(1, 1000):
        world = broken_world("altered")
        steps = 0

        def before(world: World = world, at: int = at) -> None:
            nonlocal steps
            steps += 1
            if steps == at:
                world.projector().project(DATASET.id, world.database.head, world.database)

        world.projector(before).project(DATASET.id, world.database.head, world.database)
        assert world.shown() == 2
        if steps < at:
            return
    raise AssertionError("a repair has no end")


@pytest.mark.parametrize("damaged", [False, True])
def test_a_lost_object_is_named_with_its_way_back(damaged: bool) -> None:
    """The error names the dataset and the command that brings the bytes back."""
    world = World()
    world.database.promote()
    for name in world.objects.stored:
        world.objects.stored[name] = b"other bytes"
    if not damaged:
        world.objects.stored.clear()
    with pytest.raises(StoreCorrupt, match=DATASET.id) as raised:
        world.projector().project(DATASET.id, world.database.head, world.database)
    window = "1970-01-02T00:00:00Z/1970-01-03T00:00:00Z"
    assert f"kfm run --source usgs --window {window} --force" in raised.value.way_out


def test_a_foreign_current_is_not_touched() -> None:
    """A `current` that kfm did not make is an error, not something to replace."""
    world = World()
    world.database.promote()
    files = SteppedFiles(world.root)
    files.make_dirs(CURRENT)
    with pytest.raises(TargetUnavailable, match="not ours"):
        world.projector().project(DATASET.id, world.database.head, world.database)


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", ""])
def test_a_dataset_id_that_is_no_folder_name_is_refused(name: str) -> None:
    """No dataset id leads out of the target's folder."""
    world = World()
    with pytest.raises(Exception, match=r"."):
        world.projector().project(name, world.database.head, world.database)
    assert SteppedFiles(world.root).tree() == {}


def test_unchanged_files_share_their_bytes_with_the_earlier_version() -> None:
    """A new version costs what has changed: files of the same bytes are links to one file."""
    world = World()
    for _ in range(2):
        world.database.promote()
        world.projector().project(DATASET.id, world.database.head, world.database)
    files = SteppedFiles(world.root)
    first, second = (f"/tree/{DATASET.id}/.versions/{n}" for n, _ in world.projector().versions(DATASET.id))
    assert files._get(f"{first}/data/a/same.txt") is files._get(f"{second}/data/a/same.txt")
    assert files._get(f"{first}/data/now.txt") is not files._get(f"{second}/data/now.txt")


def discarding_at(at: int, *, cut: bool) -> bool:
    """Old versions are removed before a projector's n-th operation. False if it has fewer."""
    world = World()
    for _ in range(2):
        world.database.promote()
        world.projector().project(DATASET.id, world.database.head, world.database)
    world.database.promote()
    steps = 0
    names = [name for name, _ in world.projector().versions(DATASET.id)]

    def before() -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            assert world.projector().discard(DATASET.id, names) in (names[:1], names)
            if cut:
                raise PowerLost

    try:
        world.projector(before).project(DATASET.id, world.database.head, world.database)
        assert world.shown() == 3
    except PowerLost:
        for _ in range(5):
            assert shown(SteppedFiles(world.root).cut(), world.database) >= 2
    return steps >= at


@pytest.mark.parametrize("cut", [False, True])
def test_discarding_stops_projectors_and_keeps_what_is_shown(cut: bool) -> None:
    """Wherever a projector is while old versions are removed, `current` shows a whole version after."""
    reached = [at for at in range(1, 200) if discarding_at(at, cut=cut)]
    assert len(reached) > 40
