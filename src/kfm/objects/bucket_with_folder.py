"""Objects in a bucket, beside those of before in a folder of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kfm.objects.local import CHUNK_BYTES

if TYPE_CHECKING:
    from kfm.objects.remote import RemoteObjects
    from kfm.ports import Objects, Reader, Staging


class BucketWithFolder:
    """Implements `ports.Objects`: new ones go to the bucket, those of before are in the folder."""

    def __init__(self, bucket: RemoteObjects, folder: Objects) -> None:
        self._bucket = bucket
        self._folder = folder

    def stage(self, resume_key: str | None = None) -> tuple[Staging, int]:
        return self._bucket.stage(resume_key)

    def has(self, sha256: str) -> bool:
        return self._folder.has(sha256) or self._bucket.has(sha256)

    def size_of(self, sha256: str) -> int | None:
        size = self._folder.size_of(sha256)
        return self._bucket.size_of(sha256) if size is None else size

    def sizes_of(self, names: Iterable[str]) -> dict[str, int | None]:
        """Of many, with far fewer requests."""
        found = {name: self._folder.size_of(name) for name in names}
        elsewhere = [name for name, size in found.items() if size is None]
        return found | self._bucket.sizes_of(elsewhere) if elsewhere else found

    def open(self, sha256: str) -> Reader:
        return (self._folder if self._folder.has(sha256) else self._bucket).open(sha256)

    def local_path(self, sha256: str) -> str | None:
        return self._folder.local_path(sha256)

    def delete(self, sha256: str) -> None:
        self._bucket.delete(sha256)
        self._folder.delete(sha256)

    def all(self) -> Iterator[str]:
        in_bucket = set(self._bucket.all())
        yield from in_bucket
        yield from (name for name in self._folder.all() if name not in in_bucket)

    def share(self, sha256: str) -> None:
        """Put it into the bucket if only the folder has it: other machines see the bucket alone."""
        if not self._folder.has(sha256) or self._bucket.has(sha256):
            return
        staging, _ = self._bucket.stage()
        reader = self._folder.open(sha256)
        try:
            while data := reader.read(CHUNK_BYTES):
                staging.write(data)
            staging.commit()
        except BaseException:
            staging.abort()
            raise
        finally:
            reader.close()
