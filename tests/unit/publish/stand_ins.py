"""Objects in memory, a ledger with only a head, ids in order: what the publishing tests share."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator

from kfm.model.errors import StoreCorrupt
from kfm.model.records import Asset, Item, Promotion
from kfm.model.settings import Care, DatasetSettings, Rights
from kfm.model.versions import Version
from kfm.publish import manifest as manifests
from tests.power import FolderNode, PowerCutFiles

DAY_MS = 86_400_000
RIGHTS = Rights(license="CC0-1.0", care=Care(label="Public · Low-Risk"))
DATASET = DatasetSettings(id="ks-streamflow", title="Kansas streamflow", rights=RIGHTS)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def asset(path: str, data: bytes) -> Asset:
    return Asset(path=path, sha256=sha(data), size=len(data), media_type="text/plain")


def item(day: int, *assets: Asset, source: str = "usgs", partition: str | None = None) -> Item:
    return Item(
        id="",
        source_id=source,
        window_start_ms=day * DAY_MS,
        window_end_ms=(day + 1) * DAY_MS,
        partition=partition,
        assets=assets,
    )


class CountedIds:
    def __init__(self) -> None:
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"{self.count:08x}-0000-7000-8000-000000000000"


class MemoryReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def close(self) -> None:
        pass


class MemoryStaging:
    def __init__(self, objects: MemoryObjects) -> None:
        self._objects = objects
        self._data = b""

    def write(self, data: bytes) -> None:
        self._data += data

    def commit(self) -> tuple[str, int]:
        return self._objects.add(self._data), len(self._data)

    def keep_partial(self) -> None:
        pass

    def abort(self) -> None:
        self._objects.aborted += 1


class MemoryObjects:
    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.ages: dict[str, int] = {}
        self.aborted = 0

    def add(self, data: bytes, at_ms: int = 0) -> str:
        name = sha(data)
        self.stored[name] = data
        self.ages[name] = at_ms
        return name

    def stage(self, resume_key: str | None = None) -> tuple[MemoryStaging, int]:
        return MemoryStaging(self), 0

    def has(self, sha256: str) -> bool:
        return sha256 in self.stored

    def open(self, sha256: str) -> MemoryReader:
        if sha256 not in self.stored:
            raise StoreCorrupt(sha256)
        return MemoryReader(self.stored[sha256])

    def local_path(self, sha256: str) -> str | None:
        return None

    def delete(self, sha256: str) -> None:
        self.stored.pop(sha256, None)

    def all(self) -> Iterator[str]:
        yield from sorted(self.stored)


class Database:
    """The truth: a head that only grows. Each promotion has other bytes at the same path."""

    def __init__(self, objects: MemoryObjects, text: str = "version") -> None:
        self.objects = objects
        self.text = text  # another text is another past
        self.history: list[tuple[Promotion, Version]] = []

    def known(self, sequence: int) -> str | None:
        return self.history[sequence - 1][0].version_id if 0 < sequence <= len(self.history) else None

    def __call__(self, sequence: int, /) -> str | None:
        return self.known(sequence)

    def version(self, sequence: int) -> Version | None:
        return self.history[sequence - 1][1] if 0 < sequence <= len(self.history) else None

    def head(self) -> tuple[Promotion, Version] | None:
        return self.history[-1] if self.history else None

    def promote(self) -> int:
        data = f"{self.text} {len(self.history) + 1}".encode()
        self.objects.add(data)
        self.objects.add(b"always the same")
        files = (asset("now.txt", data), asset("a/same.txt", b"always the same"))
        return self.show(manifests.merge(None, DATASET, item(1, *files), "merge"))

    def show(self, version: Version) -> int:
        """Promote this version."""
        sequence = len(self.history) + 1
        promotion = Promotion(
            dataset_id=DATASET.id,
            sequence=sequence,
            version_id=version.version_id,
            run_id="r",
            fence=sequence,
            policy_epoch=1,
            promoted_at_ms=sequence,
        )
        self.history.append((promotion, version))
        return sequence


class SteppedFiles(PowerCutFiles):
    """Calls `before` ahead of each operation: there a test may let others run."""

    def __init__(self, root: FolderNode, before: Callable[[], None] | None = None) -> None:
        super().__init__(random.Random(0), root)
        self.before = before

    def _call(self) -> None:
        if self.before is not None:
            self.before()
        super()._call()
