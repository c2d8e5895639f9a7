"""Copy of objects from one store to another, by their hashes: what is there is not copied again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from kfm.config.state_folder import StateFolder, open_bucket
from kfm.model.errors import ChecksumMismatch, StoreCorrupt
from kfm.model.records import Record
from kfm.objects.local import CHUNK_BYTES, LocalObjects, verify_object
from kfm.objects.remote import RemoteObjects

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.ports import Objects, Progress

IN_FLIGHT = 16


class ObjectsCopy(Record, frozen=True):
    """What was copied, what was there already, and what the source itself could not give."""

    copied: int
    bytes: int
    there: int
    missing: tuple[str, ...] = ()  # gone since they were listed
    damaged: tuple[str, ...] = ()

    @property
    def lost(self) -> frozenset[str]:
        return frozenset((*self.missing, *self.damaged))


def copy_objects(
    source: Objects,
    target: Objects,
    progress: Progress,
    names: Iterable[str] | None = None,
    *,
    dry_run: bool = False,
) -> ObjectsCopy:
    """Copy all objects, or those of these names; each is read back before it counts.

    Killed and begun again it goes on: an object is there whole or not at all.
    """
    have = {bytes.fromhex(sha256) for sha256 in target.all()}
    wanted = list(dict.fromkeys(source.all() if names is None else names))
    todo = [sha256 for sha256 in wanted if bytes.fromhex(sha256) not in have]
    if dry_run:
        return ObjectsCopy(copied=len(todo), bytes=0, there=len(wanted) - len(todo))
    missing: list[str] = []
    damaged: list[str] = []
    copied = size = 0
    progress.phase("objects", len(todo))
    for sha256, found in _many(source, target, todo):
        if isinstance(found, int):
            copied, size = copied + 1, size + found
        else:
            (damaged if source.has(sha256) else missing).append(sha256)
        progress.advance(1)
    progress.done()
    return ObjectsCopy(
        copied=copied,
        bytes=size,
        there=len(wanted) - len(todo),
        missing=tuple(sorted(missing)),
        damaged=tuple(sorted(damaged)),
    )


def _many(source: Objects, target: Objects, todo: list[str]) -> Iterator[tuple[str, int | StoreCorrupt]]:
    """Many at once, never more than are in flight; the first error of the target ends it."""
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        flying: dict[Future[int], str] = {}
        left = iter(todo)
        try:
            while True:
                while len(flying) < 2 * IN_FLIGHT and (sha256 := next(left, None)) is not None:
                    flying[pool.submit(_copy_one, source, target, sha256)] = sha256
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
    target: Objects = (
        RemoteObjects(open_bucket(loaded, to, options))
        if "://" in to
        else LocalObjects(folder.files, os.path.abspath(to), folder.ids)
    )
    return copy_objects(folder.objects(loaded), target, progress, dry_run=dry_run)
