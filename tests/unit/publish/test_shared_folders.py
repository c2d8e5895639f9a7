"""Folders that versions share: a version costs the folders on the way to what changed, and is whole."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kfm.model.item_ids import item_id
from kfm.model.records import Item, Window
from kfm.model.versions import Version, edited, version_of
from kfm.publish.catalogue import documents
from kfm.publish.catalogue import pages as catalogue_pages
from kfm.publish.catalogue.addresses import item_name
from kfm.publish.manifest import header, merge_items
from kfm.publish.targets import folder_plan
from kfm.publish.targets.folder import LocalTree, crowded
from kfm.publish.targets.folder_builder import remove_tree
from tests.power import FolderNode, LinkNode, PowerCutFiles, PowerCutReader, PowerCutWriter, PowerLost
from tests.unit.publish.stand_ins import (
    DATASET,
    CountedIds,
    Database,
    MemoryObjects,
    SteppedFiles,
    asset,
)
from tests.unit.publish.test_folder_target import Scheduler, overwrite, read_below

pytestmark = [pytest.mark.req("TRG-4"), pytest.mark.req("GRO-1")]

HOUR_MS = 3_600_000
FOLDER = f"/tree/{DATASET.id}"
SHARED = f"{FOLDER}/.versions/.shared"


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions count as large from their twentieth entry on, and have pages from their fifth item on."""
    monkeypatch.setattr(folder_plan, "ENTRIES_MAX", 20)
    monkeypatch.setattr(catalogue_pages, "LINKED_MAX", 5)


class TimedFiles(SteppedFiles):
    """Each file is a little later than the one before."""

    def create(self, path: str) -> PowerCutWriter:
        self.now_ms += 1
        return super().create(path)


class World:
    """One disk, one database; windows are merged into its head."""

    def __init__(self) -> None:
        self.root = FolderNode()
        self.objects = MemoryObjects()
        self.database = Database(self.objects)
        self.ids = CountedIds()
        self.now_ms = 0
        self.kind = LocalTree

    def projector(self, before: Callable[[], None] | None = None) -> LocalTree:
        return self.on(TimedFiles(self.root, before))

    def on(self, files: PowerCutFiles) -> LocalTree:
        self.now_ms += 1000
        files.now_ms = self.now_ms
        return self.kind("tree", files, self.objects, self.ids, "/tree")

    def project(self, before: Callable[[], None] | None = None) -> int | None:
        return self.projector(before).project(DATASET.id, self.database.head, self.database)

    def window(self, hour: int, text: str = "") -> Item:
        data = f"{hour} {text}".encode()
        self.objects.add(data)
        window = Window(start_ms=hour * HOUR_MS, end_ms=(hour + 1) * HOUR_MS, spec="")
        return Item(
            id=item_id("usgs", window, None),
            source_id="usgs",
            window_start_ms=window.start_ms,
            window_end_ms=window.end_ms,
            partition=None,
            assets=(asset(f"{hour // 24:03}/{hour % 24:02}.txt", data),),
        )

    def merge(self, *hours: int, text: str = "") -> Version:
        head = self.database.head()
        items = [self.window(hour, text) for hour in hours]
        version = merge_items(head[1] if head else None, DATASET, items, "merge")
        self.database.show(version)
        return version

    def tree(self) -> dict[str, bytes]:
        """What a reader finds in `current`."""
        files = SteppedFiles(self.root)
        return dict(read_below(files, f"{FOLDER}/{files.readlink(f'{FOLDER}/current')}"))

    def require_whole(self, sequence: int | None = None) -> None:
        require_whole(SteppedFiles(self.root), self, sequence or len(self.database.history))

    def shared(self) -> set[str]:
        """The names of shared folders. Beside them there is one file for each that made some."""
        files = SteppedFiles(self.root)
        names = files.listdir(SHARED) if files.exists(SHARED) else []
        found = {name for name in names if isinstance(files._get(f"{SHARED}/{name}"), FolderNode)}
        assert {name.rpartition("-")[0] for name in found} == set(names) - found
        return found


def expected(world: World, version: Version) -> dict[str, bytes]:
    files = {f"data/{path}": world.objects.stored[sha256] for path, sha256, _ in version.files()}
    return files | dict(documents(version))


def require_whole(files: PowerCutFiles, world: World, sequence: int) -> None:
    promotion, version = world.database.history[sequence - 1]
    name = f"{sequence:08d}-{promotion.version_id.removeprefix('sha256:')[:12]}"
    assert dict(read_below(files, f"{FOLDER}/.versions/{name}")) == expected(world, version)


def shown(files: PowerCutFiles) -> int:
    return int(files.readlink(f"{FOLDER}/current").removeprefix(".versions/")[:8])


def grown(days: int = 3) -> World:
    world = World()
    world.merge(*range(24 * days))
    world.project()
    return world


def test_one_more_window_makes_the_folders_on_its_way() -> None:
    """Of a large version, the next one has its own folders of a day, its month and what is above; the rest is
    the same."""
    world = grown()
    before = world.shared()
    world.merge(72)
    world.project()
    world.require_whole()
    world.require_whole(1)
    # data, its day; items, their source, year, month, day; the catalogue, its source, year, month.
    assert len(world.shared() - before) == 2 + 5 + 4
    assert before < world.shared()


def test_a_window_done_again_leaves_the_catalogue_as_it_is() -> None:
    """Pages list names: other bytes under the same name make no new page."""
    world = grown()
    before = world.shared()
    world.merge(5, text="revised")
    world.project()
    world.require_whole()
    assert len(world.shared() - before) == 2 + 5


def test_folders_follow_any_history() -> None:
    """Windows come, change and go, across both limits of size; rights change; old versions go. Every version
    that is kept is whole, and nothing is shared that no version has."""
    for seed in range(4):
        dice = random.Random(seed)
        world = World()
        for _ in range(12):
            head = world.database.head()
            there = head[1].items() if head else []
            gone = dice.sample(there, dice.choice((0, 1, len(there))) if there else 0)
            changes: dict[str, Item | None] = dict.fromkeys(one.id for one in gone)
            for _ in range(dice.choice((1, 2, 30))):
                one = world.window(dice.randrange(24 * 80), dice.choice(("", "again")))
                changes[one.id] = one
            described = header(DATASET, DATASET.id)
            base = head[1] if head else merge_items(None, DATASET, [], "merge")
            world.database.show(edited(base, described, changes))
            world.project()
            world.require_whole()
            assert world.tree() == expected(world, world.database.history[-1][1])
            if dice.random() < 0.4:
                names = [name for name, _ in world.projector().versions(DATASET.id)]
                world.projector().discard(DATASET.id, names[: dice.randrange(3)])
                require_no_litter(world)
            for _, sequence in world.projector().versions(DATASET.id):
                world.require_whole(sequence)


def require_no_litter(world: World) -> None:
    """Each shared folder is linked by a version, or by one that is."""
    reached: set[str] = set()

    def walk(node: object) -> None:
        assert isinstance(node, FolderNode)
        for child in node.names.values():
            if isinstance(child, FolderNode):
                walk(child)
            elif isinstance(child, LinkNode):
                name = child.target.rpartition("/")[2]
                if name not in reached:
                    reached.add(name)
                    walk(SteppedFiles(world.root)._get(f"{SHARED}/{name}"))

    for name, _ in world.projector().versions(DATASET.id):
        walk(SteppedFiles(world.root)._get(f"{FOLDER}/.versions/{name}"))
    assert world.shared() == reached


@pytest.mark.parametrize("edit", ["written", "removed"])
def test_an_edit_beside_what_changes_is_not_carried_on(edit: str) -> None:
    """In a folder that is made anew, what was touched is compared, and made again."""
    world = grown()
    files = SteppedFiles(world.root)
    files.now_ms = world.now_ms + 500
    for path in ("data/001/03.txt", item_name(world.window(30))):
        place = f"{FOLDER}/current/{path}"
        if edit == "written":
            overwrite(files, place, b"edited by hand")
            files.touch(place)
        else:
            files.unlink(place)
    world.merge(47, text="again")
    world.project()
    world.require_whole()


def test_files_that_were_not_touched_are_not_read() -> None:
    """A folder that is made anew is links; only what is new is written, and nothing is hashed."""
    world = grown()
    opened: list[str] = []

    class Counting(TimedFiles):
        def open(self, path: str) -> PowerCutReader:
            opened.append(path.rpartition("/")[2])
            return super().open(path)

    world.merge(72, 40, text="again")
    world.on(Counting(world.root)).project(DATASET.id, world.database.head, world.database)
    world.require_whole()
    assert set(opened) <= {"manifest.json", "collection.json"}


@pytest.mark.parametrize("link", ["/etc", "../../../../elsewhere", "../.shared/../../x", "../.shared/none"])
def test_a_link_that_is_not_ours_is_not_followed(link: str) -> None:
    """In the place of a shared folder: what it stood for is made anew, and nothing behind it is touched."""
    world = grown()
    files = SteppedFiles(world.root)
    files.make_dirs("/elsewhere/kept")
    version = f"{FOLDER}/{files.readlink(f'{FOLDER}/current')}"
    data = files.readlink(f"{version}/data").rpartition("/")[2]
    files.unlink(f"{SHARED}/{data}/001")
    files.symlink(link, f"{SHARED}/{data}/001")
    world.merge(0, text="again")
    world.project()
    world.require_whole()
    world.projector().discard(DATASET.id, [name for name, _ in world.projector().versions(DATASET.id)])
    world.require_whole()
    assert files.listdir("/elsewhere") == ["kept"]


@pytest.mark.parametrize("gone", ["data", "items", "catalogue", ".shared"])
def test_a_shared_folder_that_is_gone_is_made_again(gone: str) -> None:
    """What `current` shows is built and shown again, if what it links at its top is not there."""
    world = grown()
    files = SteppedFiles(world.root)
    version = f"{FOLDER}/{files.readlink(f'{FOLDER}/current')}"
    if gone == ".shared":
        files.rename(SHARED, "/moved-away")
    else:
        files.rename(f"{SHARED}/{files.readlink(f'{version}/{gone}').rpartition('/')[2]}", "/moved-away")
    assert world.project() == 1
    world.require_whole()


def test_a_version_of_before_is_the_base_of_the_next() -> None:
    """What lies in `versions/` goes on answering; the next one is made beside it, with links to its files."""
    world = World()
    world.merge(*range(48))
    world.project()
    files = SteppedFiles(world.root)
    name = files.readlink(f"{FOLDER}/current").removeprefix(".versions/")
    files.unlink(f"{FOLDER}/current")
    files.make_dirs(f"{FOLDER}/versions/{name}/data")
    for path, data in expected(world, world.database.history[0][1]).items():  # as it was: real folders
        place = f"{FOLDER}/versions/{name}/{path}"
        files.make_dirs(place.rpartition("/")[0])
        if not path.startswith(("items/", "catalogue/")):
            writer = files.create(place)
            writer.write(data)
            writer.close()
    remove_tree(files, f"{FOLDER}/.versions")
    files.symlink(f"versions/{name}", f"{FOLDER}/current")
    tree = world.projector()
    assert tree.project(DATASET.id, world.database.head, world.database) == 1
    assert files.readlink(f"{FOLDER}/current") == f"versions/{name}"
    assert tree.stands(DATASET.id, world.database.history[0][0])
    assert tree.datasets() == [DATASET.id]
    world.merge(48)
    assert world.project() == 2
    world.require_whole(2)
    old, new = (f"{FOLDER}/{one}/data/000/05.txt" for one in (f"versions/{name}", "current"))
    assert files._get(old) is files._get(new)
    assert [sequence for _, sequence in tree.versions(DATASET.id)] == [1, 2]
    assert tree.discard(DATASET.id, [name]) == [name]
    assert not files.exists(f"{FOLDER}/versions")
    world.require_whole(2)


def test_a_version_of_before_is_shown_in_its_form() -> None:
    """A rollback to a version whose id is the hash of its whole manifest publishes that manifest."""
    world = grown()
    old = version_of(world.database.history[0][1].manifest(), form=1)
    world.merge(72)
    world.project()
    world.database.show(old)
    assert world.project() == 3
    world.require_whole(3)


def test_a_rollback_shares_what_is_still_the_same() -> None:
    """An older version again, and then none: each is whole, and shares with what was shown before it."""
    world = grown()
    first = world.database.history[0][1]
    world.merge(72)
    world.project()
    before = world.shared()
    world.database.show(first)
    world.project()
    world.require_whole()
    assert len(world.shared() - before) == 1 + 4 + 4  # above what goes
    world.database.show(merge_items(None, DATASET, [], "merge"))
    world.project()
    assert world.tree().keys() == {"manifest.json", "collection.json", "dcat.jsonld"}
    names = [name for name, _ in world.projector().versions(DATASET.id)]
    world.projector().discard(DATASET.id, names)
    assert world.shared() == set()


# --- crashes and races ---------------------------------------------------------------


def cut_at(calls: int, seed: int, *, discarding: bool) -> bool:
    """Power goes in the middle of the third version, or of the collection after it. True if it went."""
    world = World()
    files = PowerCutFiles(random.Random(seed))
    world.root = files.root
    died, returned = False, 0
    try:
        for number in range(3):
            world.merge(*range(12 * number, 12 * number + 12))
            process = files.another()
            if number == 2 and not discarding:
                process.die_after(calls)
            tree = world.on(process)
            returned = tree.project(DATASET.id, world.database.head, world.database) or 0
        if discarding:
            process = files.another()
            process.die_after(calls)
            names = [name for name, _ in world.on(files.another()).versions(DATASET.id)]
            world.on(process).discard(DATASET.id, names)
    except PowerLost:
        died = True
    after = files.cut()
    assert shown(after) >= returned
    require_whole(after, world, shown(after))
    world.merge(100)
    assert world.on(after).project(DATASET.id, world.database.head, world.database) == 4
    require_whole(after.cut(), world, 4)
    return died


@pytest.mark.parametrize("discarding", [False, True])
def test_a_power_cut_leaves_a_whole_version(discarding: bool) -> None:
    """After a cut at any call of a projection or a collection, what is shown is whole, and so is the next."""
    for calls in range(1, 1000, 5 if discarding else 13):
        went = [cut_at(calls, seed, discarding=discarding) for seed in range(2)]
        if not any(went):
            break
    assert calls > 40


def stopped_at(at: int, work: Callable[[World], None]) -> bool:
    """Others do this before a projector's n-th operation. False if it has fewer."""
    world = grown(1)
    world.merge(24)
    world.project()
    world.merge(25)
    steps = 0

    def before() -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            work(world)

    world.project(before)
    assert shown(SteppedFiles(world.root)) == len(world.database.history)
    for _, sequence in world.projector().versions(DATASET.id):
        world.require_whole(sequence)
    return steps >= at


def another_projects(world: World) -> None:
    world.merge(26)
    world.project()


def another_repeats(world: World) -> None:
    world.project()


def another_collects(world: World) -> None:
    names = [name for name, _ in world.projector().versions(DATASET.id)]
    world.projector().discard(DATASET.id, names)


def another_projects_and_collects(world: World) -> None:
    another_projects(world)
    another_collects(world)


@pytest.mark.parametrize(
    "work", [another_projects, another_repeats, another_collects, another_projects_and_collects]
)
def test_every_version_is_whole_whatever_others_do(work: Callable[[World], None]) -> None:
    """Wherever a projector is while others project or collect, no version is left without a folder."""
    reached = [at for at in range(1, 400, 5) if stopped_at(at, work)]
    assert len(reached) > 20


def test_collecting_between_a_ticket_and_its_version() -> None:
    """Wherever a collection is when a projector shows a newer version, what is shown keeps its folders."""
    for at in range(1, 400):
        world = grown(1)
        world.merge(24)
        world.project()
        names = [name for name, _ in world.projector().versions(DATASET.id)]
        steps = 0

        def before(world: World = world, at: int = at) -> None:
            nonlocal steps
            steps += 1
            if steps == at:
                another_projects(world)

        world.projector(before).discard(DATASET.id, names)
        for _, sequence in world.projector().versions(DATASET.id):
            world.require_whole(sequence)
        if steps < at:
            return
    raise AssertionError("a collection has no end")


class Turns:
    """Who does how many operations, one after the other; then those that are left."""

    def __init__(self, *turns: tuple[int, int]) -> None:
        self._turns = [who for who, steps in turns for _ in range(steps)]

    def choice(self, waiting: list[int]) -> int:
        while self._turns:
            if (who := self._turns.pop(0)) in waiting:
                return who
        return waiting[-1]


def overtaken(first: int, second: int, third: int) -> None:
    """A projector begins; another one shows a newer version and old ones are collected; in the middle of that
    the first goes on."""
    world = grown(1)
    world.merge(24)
    world.project()
    world.merge(25)
    scheduler = Scheduler(0)
    scheduler._rng = Turns((0, first), (1, second), (0, third))  # type: ignore[assignment]

    def projecting(me: int) -> None:
        world.project(lambda: scheduler.step(me))

    def collecting(me: int) -> None:
        another_projects(world)
        names = [name for name, _ in world.projector().versions(DATASET.id)]
        world.projector(lambda: scheduler.step(me)).discard(DATASET.id, names)

    scheduler.run([projecting, collecting])
    world.project()
    for _, sequence in world.projector().versions(DATASET.id):
        world.require_whole(sequence)


@pytest.mark.parametrize("first", range(30, 56, 8))
def test_versions_are_whole_whose_base_is_collected_meanwhile(first: int) -> None:
    """A projector builds on a version that goes in the middle of its work: every version that stands is
    whole."""
    for second in range(6, 30, 6):
        for third in (60, 130, 400):
            overtaken(first, second, third)


def test_folders_that_are_crowded_are_named() -> None:
    """A folder with more entries than others are made for, with their number."""
    world = World()
    version = world.merge(*range(72))
    assert crowded(version, 24) == []
    assert crowded(version, 23) == [("000", 24), ("001", 24), ("002", 24)]
    assert crowded(version, 2) == [("", 3), ("000", 24), ("001", 24), ("002", 24)]
