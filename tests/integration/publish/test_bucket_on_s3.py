"""The tree in a real S3 emulator: its conditional put holds what ours is built on, and readers find all."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pystac
import pytest
from msgspec.structs import replace

from kfm.model.errors import TargetUnavailable
from kfm.model.records import Asset
from kfm.objects.bucket_client import ObstoreBucket, open_bucket
from kfm.ports import ObjectAttributes
from kfm.publish import manifest as manifests
from kfm.publish.targets.bucket_layout import file_attributes
from kfm.publish.targets.s3 import BucketTree
from kfm.runs.gc import KeptVersions
from tests import services
from tests.published_bucket import ROOT, BucketReader, MergedDataset, Stopped, expected_files, hour
from tests.recording_s3 import recording
from tests.stac_checks import public_problems
from tests.unit.publish.stand_ins import DATASET, MemoryObjects

pytestmark = pytest.mark.req("TRG-4")


def bucket(endpoint: str, name: str) -> ObstoreBucket:
    return open_bucket(
        f"s3://{name}",
        {
            "endpoint": endpoint,
            "region": services.S3_REGION,
            "access_key_id": services.S3_ACCESS_KEY,
            "secret_access_key": services.S3_SECRET_KEY,
        },
    )


class Scene:
    """A dataset, a bucket of the emulator, and a projector."""

    def __init__(self, endpoint: str, name: str, **rest: Any) -> None:
        self.endpoint, self.name, self.rest = endpoint, name, rest
        self.client = services.s3_client(endpoint)
        self.objects = MemoryObjects()
        self.database = MergedDataset(self.objects)
        self.target = self.projector()

    def projector(self, endpoint: str | None = None) -> BucketTree:
        made = bucket(endpoint or self.endpoint, self.name)
        return BucketTree("s3", made, self.objects, "pub", **self.rest)

    def show(self) -> None:
        self.target.project(DATASET.id, self.database.head, self.database)

    def get(self, key: str) -> bytes:
        try:
            data: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        except self.client.exceptions.NoSuchKey:
            raise KeyError(key) from None
        return data

    @property
    def reader(self) -> BucketReader:
        return BucketReader(self.get)

    def listed(self, prefix: str = "") -> Iterator[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=ROOT + prefix)
        for page in pages:
            yield from (one["Key"].removeprefix(ROOT) for one in page.get("Contents", ()))

    def assert_shows_head(self) -> None:
        assert self.reader.shown() == len(self.database.history)
        assert self.database.newest is not None
        assert self.reader.files() == expected_files(self.database.newest, self.objects)


@pytest.fixture
def scene(s3_endpoint: str, s3_bucket: str) -> Scene:
    return Scene(s3_endpoint, s3_bucket)


def test_two_projectors_only_move_the_pointer_forward(s3_endpoint: str, s3_bucket: str) -> None:
    """Two projectors and a reader on one bucket: the pointer only grows, leads to whole versions, and ends at
    the head, as does what is found by name."""
    scene = Scene(s3_endpoint, s3_bucket, latest="files")
    guard = threading.Lock()
    failures: list[BaseException] = []
    done = threading.Event()
    seen = [0]

    def project(mine: int) -> None:
        try:
            tree = scene.projector()
            for number in range(6):
                with guard:
                    promoted = scene.database.put(number, text=f"of {mine}")
                assert (tree.project(DATASET.id, scene.database.head, scene.database) or 0) >= promoted
        except BaseException as error:
            failures.append(error)

    def read() -> None:
        try:
            while not done.is_set():
                seen.append(scene.reader.shown())
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    threads = [threading.Thread(target=project, args=(mine,)) for mine in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert failures == [], failures
    assert seen == sorted(seen)
    assert scene.reader.pointer()["sequence"] == 12
    scene.show()
    scene.assert_shows_head()
    named = {key.removeprefix("latest/data/"): scene.get(ROOT + key) for key in scene.listed("latest/data/")}
    assert named == scene.reader.files() == scene.reader.files("latest/collection.json")


@pytest.mark.parametrize("unknown", ["if-match", "if-none-match"])
def test_a_server_that_does_not_know_conditions_is_refused(
    scene: Scene, s3_endpoint: str, unknown: str
) -> None:
    """It takes every put: seen before the first version is sent, by each process, and nothing is shown."""
    scene.database.put(0)
    with recording(s3_endpoint, without=(unknown,)) as record:
        for _ in range(2):
            target = scene.projector(record.address)
            with pytest.raises(TargetUnavailable, match="ignores conditions"):
                target.project(DATASET.id, scene.database.head, scene.database)
    assert list(scene.listed()) == []
    scene.show()
    scene.assert_shows_head()


@pytest.mark.req("GRO-1")
def test_growth_by_hours(scene: Scene, s3_endpoint: str) -> None:
    """A dataset that grows hour by hour, as the server sees it: each version costs a bounded number of puts,
    and no object is put twice but those that are found by name."""
    sent: list[str] = []
    scene.database.put(*range(95))
    with recording(s3_endpoint) as record:
        target = scene.projector(record.address)
        target.project(DATASET.id, scene.database.head, scene.database)
        for number in range(95, 105):
            before = len(record.passed)
            scene.database.put(number)
            target.project(DATASET.id, scene.database.head, scene.database)
            new = [one.path for one in record.passed[before:] if one.method == "PUT"]
            assert len(new) <= 25, "also when the pages begin"
            sent += new
    scene.assert_shows_head()
    once = [path for path in sent if "/latest/" not in path and not path.endswith("/current.json")]
    assert len(once) == len(set(once))


@pytest.mark.req("GRO-1")
def test_types_and_caches_of_a_real_bucket(s3_endpoint: str, s3_bucket: str) -> None:
    """Another client is told what each object is, for how long it may be kept, and a file's own name."""
    scene = Scene(s3_endpoint, s3_bucket, latest="files")
    big = b"0123456789abcdef" * (9 * 65536)  # goes in parts
    scene.objects.add(big)
    item = hour(0, big)
    odd = Asset(
        path="möbel & more/größe #1.parquet",
        sha256=hashlib.sha256(b"x").hexdigest(),
        size=1,
        media_type="application/vnd.apache.parquet",
    )
    scene.objects.add(b"x")
    both = replace(item, assets=(*item.assets, odd))
    scene.database.promote(manifests.merge(None, DATASET, both, "merge"))
    scene.show()
    scene.assert_shows_head()

    def told(key: str) -> tuple[str, str, str | None]:
        head = scene.client.head_object(Bucket=scene.name, Key=ROOT + key)
        return head["ContentType"], head["CacheControl"], head.get("ContentDisposition")

    ever, look = "public, max-age=31536000, immutable", "no-cache"
    found = {key: told(key) for key in scene.listed()}
    kinds: dict[str, tuple[str, str, str | None]] = {}
    for key, facts in found.items():
        parts = key.split("/")
        kinds[parts[0] if parts[0] in ("items", "pages") else f"{parts[0]}/{parts[-1]}"] = facts
    name = "inline; filename*=UTF-8''gr%C3%B6%C3%9Fe%20%231.parquet"
    assert kinds == {
        "current.json/current.json": ("application/json", look, None),
        "files/00.csv": ("text/csv", ever, 'inline; filename="00.csv"'),
        "files/größe #1.parquet": ("application/vnd.apache.parquet", ever, name),
        "items": ("application/geo+json", ever, None),
        "pages": ("application/json", ever, None),
        "versions/manifest.json": ("application/json", ever, None),
        "versions/collection.json": ("application/json", ever, None),
        "versions/dcat.jsonld": ("application/ld+json", ever, None),
        "latest/collection.json": ("application/json", look, None),
        "latest/dcat.jsonld": ("application/ld+json", look, None),
        "latest/README.txt": ("text/plain; charset=utf-8", look, None),
        "latest/version.json": ("application/json", look, None),
        "latest/00.csv": ("text/csv", look, 'inline; filename="00.csv"'),
        "latest/größe #1.parquet": ("application/vnd.apache.parquet", look, name),
    }


@pytest.mark.parametrize("media_type", ["", "text", "text/cs\nv", "täxt/plain", "a/b; c\r\nX-Evil: 1"])
def test_a_type_that_no_header_can_hold_is_not_told(scene: Scene, media_type: str) -> None:
    """Whatever a pipeline says of a file, the object is put, and tells no such type."""
    asset = Asset(path='a/q"uo\\te.txt', sha256="0" * 64, size=1, media_type=media_type)
    attributes = file_attributes(asset)
    made = bucket(scene.endpoint, scene.name)
    assert made.put("x", b"1", attributes=attributes)
    head = scene.client.head_object(Bucket=scene.name, Key="x")
    assert head["ContentType"] == "binary/octet-stream"
    assert head["ContentDisposition"] == "inline; filename*=UTF-8''q%22uo%5Cte.txt"


def test_a_folder_takes_objects_without_what_is_told(tmp_path: Any) -> None:
    """A stand-in on the disk has no place for types, and is used as before."""
    made = open_bucket(f"file://{tmp_path}")
    assert made.put("a", b"1", attributes=ObjectAttributes(content_type="text/plain"))
    made.put_stream("b", [b"2"], attributes=ObjectAttributes(content_type="text/plain"))
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"1", b"2"]


@pytest.mark.req("GRO-1")
@pytest.mark.parametrize("hours", [20, 150])
def test_pystac_walks_from_a_collection_to_every_file(scene: Scene, hours: int) -> None:
    """A catalogue client that knows nothing of kfm finds each item and its file's bytes, from the version's
    collection and from the one that is found by name; all documents are valid."""
    scene.client.put_bucket_acl(Bucket=scene.name, ACL="public-read")
    scene.database.put(*range(hours))
    scene.database.put(3, text="again", source="noaa")
    scene.show()
    base = f"{scene.endpoint}/{scene.name}/{ROOT}"

    class Io(pystac.StacIO):
        def read_text(self, source: Any, *args: Any, **rest: Any) -> str:
            return scene.get(str(source).removeprefix(f"{scene.endpoint}/{scene.name}/")).decode()

        def write_text(self, *args: Any, **rest: Any) -> None:
            raise NotImplementedError

    assert scene.database.newest is not None
    for start in (scene.reader.pointer()["collection"], "latest/collection.json"):
        collection = pystac.Collection.from_file(base + start, stac_io=Io())
        files = {}
        for item in collection.get_items(recursive=True):
            for path, asset in item.assets.items():
                address = asset.get_absolute_href()
                assert address is not None
                files[path] = scene.get(address.removeprefix(f"{scene.endpoint}/{scene.name}/"))
            link = item.get_single_link("collection")
            assert link is not None
            assert link.get_absolute_href() == f"{base}latest/collection.json"
        assert files == expected_files(scene.database.newest, scene.objects)
    for key in scene.listed():
        if key.startswith(("items/", "catalogue/")) or key.endswith("collection.json"):
            assert public_problems(json.loads(scene.get(ROOT + key))) == []


class Dying:
    """A bucket whose process dies ahead of its n-th write."""

    def __init__(self, made: ObstoreBucket, at: int) -> None:
        self._made, self.left = made, at

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._made, name)
        return self._counted(method) if name in ("put", "put_stream", "delete") else method

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **rest: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise Stopped
            return method(*args, **rest)

        return call

    put_many = None  # one by one, so that each can be the last


@pytest.mark.req("GRO-1")
def test_a_crash_between_any_two_puts(s3_endpoint: str, s3_bucket: str) -> None:
    """Killed between any two writes: a reader sees the version before or the new one, whole, and the next
    projector completes it."""
    for at in range(1, 60):
        scene = Scene(s3_endpoint, s3_bucket, latest="files")
        root = f"at-{at}"
        scene.database.put(*range(3))

        def tree(made: Any, root: str = root, scene: Scene = scene) -> BucketTree:
            return BucketTree("s3", made, scene.objects, root, latest="files")

        reader = BucketReader(scene.get, f"{root}/{DATASET.id}/")
        whole = bucket(s3_endpoint, s3_bucket)
        tree(whole).project(DATASET.id, scene.database.head, scene.database)
        scene.database.put(1, text="again")
        scene.database.drop(2)
        dying = Dying(whole, at)
        try:
            tree(dying).project(DATASET.id, scene.database.head, scene.database)
        except Stopped:
            assert reader.shown() in (1, 3)
            tree(whole).project(DATASET.id, scene.database.head, scene.database)
        assert reader.shown() == 3
        named = {
            stat.key.partition("/latest/data/")[2]: scene.get(stat.key)
            for stat in whole.list(f"{root}/{DATASET.id}/latest/data/")
        }
        assert named == reader.files() == reader.files("latest/collection.json")
        if dying.left > 0:
            assert at > 12
            return
    raise AssertionError("a projection has no end")


def _kept(scene: Scene, count: int) -> KeptVersions:
    some = scene.database.history[-count:]
    return KeptVersions(
        sequences=frozenset(promotion.sequence for promotion, _ in some),
        blobs=frozenset(digest for _, version in some for _, digest, _ in version.files()),
    )


@pytest.mark.req("GRO-2")
def test_old_versions_go_from_a_real_bucket(scene: Scene) -> None:
    """Listed, with the ages that the server gives, and removed: what the head needs is there afterwards."""
    scene.database.put(*range(110))
    scene.show()
    for number in range(3):
        scene.database.put(0, text=str(number))
        scene.show()
    kept = _kept(scene, 1)
    assert list(scene.target.unneeded(DATASET.id, kept, before_ms=0)) == [], "all of it is young"
    planned = [one.key for one in scene.target.unneeded(DATASET.id, kept, before_ms=2**50)]
    assert {key.partition("/")[0] for key in planned} == {"files", "items", "pages", "catalogue"}
    names = [name for name, sequence in scene.target.versions(DATASET.id) if sequence < 4]
    assert scene.target.discard(DATASET.id, [*names, "00000004-000000000000"]) == names
    swept = [one.key for one in scene.target.sweep(DATASET.id, kept, before_ms=2**50)]
    assert swept == planned
    scene.assert_shows_head()
    assert not set(planned) & set(scene.listed())
    assert [sequence for _, sequence in scene.target.versions(DATASET.id)] == [4]


@pytest.mark.req("GRO-2")
def test_collecting_beside_a_projector(scene: Scene) -> None:
    """A collector that sweeps while versions are shown never takes what a shown version needs."""
    scene.database.put(*range(105))
    scene.show()
    failures: list[BaseException] = []
    done = threading.Event()
    guard = threading.Lock()  # no version is promoted while a collection is under way

    def collect() -> None:
        try:
            target = scene.projector()
            while not done.is_set():
                with guard:
                    kept = _kept(scene, 2)
                    old = [
                        name
                        for name, sequence in target.versions(DATASET.id)
                        if sequence < min(kept.sequences)
                    ]
                    target.discard(DATASET.id, old)
                    for _ in target.sweep(DATASET.id, kept, before_ms=2**50):
                        pass
        except BaseException as error:
            failures.append(error)

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        for number in range(5):
            with guard:
                scene.database.put(number % 2, text=str(number // 2 % 2))
            scene.show()
    finally:
        done.set()
        collector.join()
    assert failures == [], failures
    scene.assert_shows_head()


@pytest.mark.req("DAT-5")
def test_a_purge_leaves_nothing_in_a_real_bucket(s3_endpoint: str, s3_bucket: str) -> None:
    """No object tells of what was purged, by its key or its bytes; what is kept is whole."""
    scene = Scene(s3_endpoint, s3_bucket, latest="files")
    scene.database.put(*range(105))
    scene.show()
    scene.database.put(200, text="secret")
    scene.show()
    scene.database.drop(200)
    scene.show()
    gone = [scene.database.history[1][0]]
    blobs = {hashlib.sha256(b"secret usgs 200\n").hexdigest()}
    assert scene.target.purge(DATASET.id, gone, blobs) > 8
    for key in scene.listed():
        assert "20260109" not in key
        data = scene.get(ROOT + key)
        assert b"secret" not in data
        assert b"0008/08.csv" not in data
    scene.assert_shows_head()
    assert scene.target.purge(DATASET.id, gone, blobs) == 0
