"""Copy of objects from one store to another, by their hashes: what is there and sound is not copied again."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal

from kfm.config.state_folder import StateFolder, open_bucket
from kfm.model.errors import ChecksumMismatch, StoreCorrupt
from kfm.model.records import Record
from kfm.objects.local import CHUNK_BYTES, LocalObjects, verify_object
from kfm.objects.remote import RemoteObjects
from kfm.storage.backup_places import is_bucket

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.ports import CollectableObjects, Objects, Progress

Compare = Literal["bytes", "sizes"]
IN_FLIGHT = 16


class ObjectsCopy(Record, frozen=True):
    """What was copied, what was there already, and what the source itself could not give."""

    copied: int
    bytes: int
    there: int
    missing: tuple[str, ...] = ()  # gone since they were listed
    damaged: tuple[str, ...] = ()
    sound: frozenset[str] = frozenset()  # what the target has, by the comparison that was asked for

    @property
    def lost(self) -> frozenset[str]:
        return frozenset((*self.missing, *self.damaged))


def copy_objects(
    source: CollectableObjects,
    target: CollectableObjects,
    progress: Progress,
    names: Iterable[str] | None = None,
    *,
    compare: Compare = "bytes",
    known: frozenset[str] = frozenset(),
    dry_run: bool = False,
) -> ObjectsCopy:
    """Copy all objects, or those of these names; each is read back before it counts.

    What the target has is hashed (`compare="bytes"`), or only looked at where its size is another; what is
    damaged is replaced. `known` are those of which that was seen already. With `dry_run` it is only read.
    Killed and begun again it goes on: an object is there whole or not at all.
    """
    have = {one.sha256: one.size for one in target.stored()}
    if compare == "sizes":
        sizes = {one.sha256: one.size for one in source.stored()}
        known |= {sha256 for sha256, size in have.items() if sizes.get(sha256) == size}
        wanted = list(dict.fromkeys(sizes if names is None else names))
    else:
        wanted = list(dict.fromkeys(source.all() if names is None else names))
    sound = {sha256 for sha256 in wanted if sha256 in have and sha256 in known}
    there = len(sound)
    todo = [sha256 for sha256 in wanted if sha256 not in sound]
    missing: list[str] = []
    damaged: list[str] = []
    copied = size = 0
    progress.phase("objects", len(todo))
    bring = partial(_bring_one, source, target, have.keys(), dry_run)
    for sha256, found in _many(bring, todo):
        if isinstance(found, StoreCorrupt):
            (damaged if source.has(sha256) else missing).append(sha256)
        else:
            sound.add(sha256)
            there += found is None
            copied, size = copied + (found is not None), size + (found or 0)
        progress.advance(1)
    progress.done()
    return ObjectsCopy(
        copied=copied,
        bytes=size,
        there=there,
        missing=tuple(sorted(missing)),
        damaged=tuple(sorted(damaged)),
        sound=frozenset(sound),
    )


def sound_objects(objects: Objects, names: Iterable[str]) -> frozenset[str]:
    """Those of them that are there and hold their bytes."""
    found = _many(partial(verify_object, objects), list(names))
    return frozenset(sha256 for sha256, error in found if not isinstance(error, StoreCorrupt))


def _many(
    work: Callable[[str], int | None], todo: Sequence[str]
) -> Iterator[tuple[str, int | StoreCorrupt | None]]:
    """Many at once, never more than are in flight; the first error of the target ends it."""
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        flying: dict[Future[int | None], str] = {}
        left = iter(todo)
        try:
            while True:
                while len(flying) < 2 * IN_FLIGHT and (sha256 := next(left, None)) is not None:
                    flying[pool.submit(work, sha256)] = sha256
                if not flying:
                    return
                for done in wait(flying, return_when=FIRST_COMPLETED).done:
                    sha256 = flying.pop(done)
                    error = done.exception()
                    if error is not None and not isinstance(error, StoreCorrupt):
                        raise error
                    yield sha256, error if error is not None else done.result()
        finally:
            for one in flying:
                one.cancel()


def _bring_one(
    source: Objects, target: Objects, have: Container[str], dry_run: bool, sha256: str
) -> int | None:
    """The size of what was copied, or would be; None: the target has it. StoreCorrupt if neither does."""
    if sha256 in have:
        with suppress(StoreCorrupt):
            verify_object(target, sha256)
            return None
    return verify_object(source, sha256) if dry_run else _copy_one(source, target, sha256)


def _copy_one(source: Objects, target: Objects, sha256: str) -> int:
    """The size; StoreCorrupt if the source has not these bytes any more."""
    reader = source.open(sha256)
    staging, _ = target.stage()
    try:
        while data := reader.read(CHUNK_BYTES):
            staging.write(data)
    except BaseException:
        staging.abort()
        raise
    finally:
        reader.close()
    made, size = staging.commit()
    assert made == sha256, "the reader has checked it"
    try:
        verify_object(target, sha256)
    except StoreCorrupt as error:
        raise ChecksumMismatch(f"Object sha256:{sha256} did not arrive as it was sent.") from error
    return size


def copy_to(
    loaded: Loaded, to: str, options: Mapping[str, str], progress: Progress, *, dry_run: bool = False
) -> ObjectsCopy:
    """All objects of this configuration to another store: a bucket by its address, or a folder."""
    folder = StateFolder.of(loaded)
    target: CollectableObjects = (
        RemoteObjects(open_bucket(loaded, to, options))
        if is_bucket(to)
        else LocalObjects(folder.files, os.path.abspath(to), folder.ids)
    )
    return copy_objects(folder.objects(loaded), target, progress, compare="sizes", dry_run=dry_run)
