"""A merged dataset of hourly windows and a bucket that shows it: what the tests of buckets share."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kfm.model.dataset_changes import TombstonedPromotion
from kfm.model.records import Asset, Item, ObjectStat, Promotion
from kfm.model.settings import DatasetSettings
from kfm.model.versions import Version, edited, emptied, version_of
from kfm.ports import NewObject, ObjectAttributes
from kfm.publish import manifest as manifests
from tests.unit.publish.stand_ins import DATASET, MemoryObjects, sha

HOUR_MS = 3_600_000
YEAR_2026_MS = 1_767_225_600_000
ROOT = f"pub/{DATASET.id}/"
STANDS = {"tombstone": 1, "dataset_id": DATASET.id, "state": "withdrawn", "withdrawn": []}


def hour(number: int, data: bytes, source: str = "usgs", media_type: str = "text/csv") -> Item:
    """The item of one hourly window, with one file."""
    start_ms = YEAR_2026_MS + number * HOUR_MS
    day, rest = divmod(number, 24)
    path = f"{source}/{day:04d}/{rest:02d}.csv"
    made = Asset(path=path, sha256=sha(data), size=len(data), media_type=media_type)
    return Item(
        id="",
        source_id=source,
        window_start_ms=start_ms,
        window_end_ms=start_ms + HOUR_MS,
        partition=None,
        assets=(made,),
    )


class MergedDataset:
    """A ledger of one dataset; also `ports.PublishedVersions`."""

    def __init__(self, objects: MemoryObjects, dataset: DatasetSettings = DATASET) -> None:
        self.objects = objects
        self.dataset = dataset
        self.history: list[tuple[Promotion, Version]] = []
        self.lock = threading.Lock()

    @property
    def newest(self) -> Version | None:
        return self.history[-1][1] if self.history else None

    def head(self) -> tuple[Promotion, Version] | None:
        return self.history[-1] if self.history else None

    def __call__(self, sequence: int, /) -> str | None:
        return self.history[sequence - 1][0].version_id if 0 < sequence <= len(self.history) else None

    def version(self, sequence: int) -> Version | None:
        return self.history[sequence - 1][1] if 0 < sequence <= len(self.history) else None

    def put(self, *hours: int, text: str = "", source: str = "usgs", media_type: str = "text/csv") -> int:
        """Promote the head with these hours in it."""
        items = []
        for number in hours:
            data = f"{text or 'hour'} {source} {number}\n".encode()
            self.objects.add(data)
            items.append(hour(number, data, source, media_type))
        return self.promote(manifests.merge_items(self.newest, self.dataset, items, "merge"))

    def drop(self, *hours: int) -> int:
        """Promote the head without the items of these hours."""
        newest = self.newest
        assert newest is not None
        starts = {YEAR_2026_MS + number * HOUR_MS for number in hours}
        gone = [one.id for one in newest.items() if one.window_start_ms in starts]
        return self.promote(edited(newest, newest.header, dict.fromkeys(gone)))

    def withdraw(self) -> int:
        """All of it: an empty version with a tombstone."""
        newest = self.newest
        assert newest is not None
        return self.promote(emptied(newest, self.dataset.id), STANDS)

    def promote(self, version: Version, tombstone: dict[str, Any] | None = None) -> int:
        facts = {
            "dataset_id": version.dataset_id,
            "sequence": len(self.history) + 1,
            "version_id": version.version_id,
            "run_id": "r",
            "fence": 1,
            "policy_epoch": 1,
            "promoted_at_ms": 0,
        }
        made = TombstonedPromotion(**facts, tombstone=tombstone) if tombstone else Promotion(**facts)
        self.history.append((made, version))
        return made.sequence

    def whole_form(self) -> int:
        """Promote the head's contents as a version of before: its id is the hash of all of it."""
        newest = self.newest
        assert newest is not None
        return self.promote(version_of(newest.manifest(), form=1))


class Stopped(Exception):
    """The process is gone."""


class MemoryBucket:
    """A bucket with conditional puts and attributes, whose clock moves with each put.

    `before` is called ahead of each request.
    """

    def __init__(
        self, stored: dict[str, bytes] | None = None, before: Callable[[str], None] | None = None
    ) -> None:
        self.stored: dict[str, bytes] = {} if stored is None else stored
        self.before = before or (lambda request: None)
        self.requests: list[str] = []
        self.told: dict[str, ObjectAttributes | None] = {}
        self.ages: dict[str, int] = {}
        self.now_ms = 0

    def _request(self, name: str, key: str) -> None:
        self.requests.append(f"{name} {key}")
        self.before(f"{name} {key}")

    @property
    def puts(self) -> list[str]:
        return [one.partition(" ")[2] for one in self.requests if one.startswith("put")]

    def get(self, key: str) -> tuple[bytes, str] | None:
        self._request("get", key)
        data = self.stored.get(key)
        return None if data is None else (data, _etag(data))

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
        attributes: ObjectAttributes | None = None,
    ) -> bool:
        self._request("put", key)
        there = self.stored.get(key)
        if if_none_match and there is not None:
            return False
        if if_match is not None and (there is None or _etag(there) != if_match):
            return False
        self._store(key, data, attributes)
        return True

    def put_stream(
        self, key: str, chunks: Iterable[bytes], *, attributes: ObjectAttributes | None = None
    ) -> None:
        self._request("put_stream", key)
        self._store(key, b"".join(chunks), attributes)

    def _store(self, key: str, data: bytes, attributes: ObjectAttributes | None) -> None:
        self.now_ms += 1
        self.stored[key], self.told[key], self.ages[key] = data, attributes, self.now_ms

    def head(self, key: str) -> ObjectStat | None:
        self._request("head", key)
        return self._stat(key) if key in self.stored else None

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        self._request("list", prefix)
        yield from [self._stat(key) for key in sorted(self.stored) if key.startswith(prefix)]

    def _stat(self, key: str) -> ObjectStat:
        data = self.stored[key]
        return ObjectStat(key=key, size=len(data), modified_ms=self.ages.get(key, 0), etag=_etag(data))

    def delete(self, key: str) -> None:
        self._request("delete", key)
        self.stored.pop(key, None)

    def read(self, key: str, *, offset: int = 0, if_match: str | None = None) -> Any:
        raise NotImplementedError


class ManyBucket(MemoryBucket):
    """One that takes many at once."""

    def __init__(self, stored: dict[str, bytes] | None = None) -> None:
        super().__init__(stored)
        self.batches: list[int] = []

    def put_many(self, objects: Sequence[NewObject], *, if_none_match: bool = False) -> None:
        self.batches.append(len(objects))
        for key, data, attributes in objects:
            self.put(key, data, if_none_match=if_none_match, attributes=attributes)


def _etag(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


# --- readers -----------------------------------------------------------------------------


class BucketReader:
    """Reads as a stranger does: from the pointer, by addresses alone. What is not there is a KeyError."""

    def __init__(self, get: Callable[[str], bytes], root: str = ROOT) -> None:
        self._get = get
        self._root = root

    @classmethod
    def of(cls, stored: dict[str, bytes]) -> BucketReader:
        return cls(lambda key: stored[key])

    def pointer(self) -> dict[str, Any]:
        return dict(json.loads(self._get(f"{self._root}current.json")))

    def files(self, collection: str | None = None) -> dict[str, bytes]:
        """Every file that a collection leads to, by path; each has the bytes that its item promises."""
        found: dict[str, bytes] = {}
        for key, item in self.items(collection or self.pointer()["collection"]):
            for path, asset in item["assets"].items():
                at = _resolved(asset["href"], key)
                data = self._get(self._root + at)
                assert at == f"files/{sha(data)}/{path.rpartition('/')[2]}"
                assert asset["file:checksum"] == f"1220{sha(data)}"
                found[path] = data
        return found

    def items(self, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
        document = json.loads(self._get(self._root + key))
        for link in document["links"]:
            at = _resolved(link["href"], key)
            if link["rel"] == "child":
                assert at == f"catalogue/{sha(self._get(self._root + at))}.json"
                yield from self.items(at)
            elif link["rel"] == "item":
                data = self._get(self._root + at)
                assert at.startswith(f"items/{sha(data)}/")
                yield at, json.loads(data)

    def tree(self, manifest: str | None = None) -> dict[str, str]:
        """Path → SHA-256, by the pages of the tree of files."""
        root = json.loads(self._get(self._root + (manifest or self.pointer()["manifest"])))
        found: dict[str, str] = {}
        waiting = [root["files"]["tree"]]
        while waiting:
            page = waiting.pop()
            data = self._get(f"{self._root}pages/{page}.json")
            assert sha(data) == page
            level, rows = json.loads(data)
            if level:
                waiting += [row[1] for row in rows]
            else:
                found |= {row[0]: row[1] for row in rows}
        assert len(found) == root["files"]["count"]
        return found

    def shown(self) -> int:
        """The sequence of the pointer, 0 if there is none; fails unless all that it leads to is there."""
        try:
            pointer = self.pointer()
        except KeyError:
            return 0
        manifest = self._get(self._root + pointer["manifest"])
        assert pointer["version_id"] == f"sha256:{sha(manifest)}"
        files = self.files(pointer["collection"])
        if "manifest" in json.loads(manifest):  # form 2
            assert self.tree(pointer["manifest"]) == {path: sha(data) for path, data in files.items()}
        if "withdrawn" in pointer:
            self._get(self._root + pointer["withdrawn"])
        return int(pointer["sequence"])


def _resolved(href: str, key: str) -> str:
    from urllib.parse import unquote, urljoin

    return unquote(urljoin(f"http://x/{key}", href)[len("http://x/") :])


def expected_files(version: Version, objects: MemoryObjects) -> dict[str, bytes]:
    return {path: objects.stored[digest] for path, digest, _ in version.files()}


def plain(attributes: ObjectAttributes | None) -> dict[str, Any]:
    return dict(msgspec.structs.asdict(attributes)) if attributes is not None else {}
