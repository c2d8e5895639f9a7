"""Secret scan: staged bytes are searched for secrets before they are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kfm import ports
from kfm.model.errors import SecretInData
from kfm.model.redaction import Redactor, parts_of

NEEDLE_CHARS_MIN = 8  # shorter ones are found in any large file by chance


def needles(secrets: Iterable[str]) -> tuple[bytes, ...]:
    """The spellings that are looked for in data."""
    long = [part for secret in secrets for part in parts_of(secret) if len(part) >= NEEDLE_CHARS_MIN]
    cores = Redactor(long).cores
    return tuple(core.encode(errors="surrogatepass") for core in cores if len(core) >= NEEDLE_CHARS_MIN)


class WatchedObjects:
    """An object store that scans what is staged."""

    def __init__(self, inner: ports.Objects, wanted: tuple[bytes, ...]) -> None:
        self._inner = inner
        self._wanted = wanted

    def stage(self, resume_key: str | None = None) -> tuple[ports.Staging, int]:
        staging, offset = self._inner.stage(resume_key)
        return WatchedStaging(staging, self._wanted), offset

    def has(self, sha256: str) -> bool:
        return self._inner.has(sha256)

    def size_of(self, sha256: str) -> int | None:
        return self._inner.size_of(sha256)

    def open(self, sha256: str) -> ports.Reader:
        return self._inner.open(sha256)

    def local_path(self, sha256: str) -> str | None:
        return self._inner.local_path(sha256)

    def delete(self, sha256: str) -> None:
        self._inner.delete(sha256)

    def all(self) -> Iterator[str]:
        return self._inner.all()


class WatchedStaging:
    """Scans each chunk together with the end of the one before."""

    def __init__(self, inner: ports.Staging, wanted: tuple[bytes, ...]) -> None:
        self._inner = inner
        self._wanted = wanted
        self._overlap = max(map(len, wanted), default=1) - 1
        self._end = b""
        self._leaked = False

    def write(self, data: bytes) -> None:
        seen = self._end + data
        if any(needle in seen for needle in self._wanted):
            self._leaked = True
            raise SecretInData()
        self._end = seen[-self._overlap :] if self._overlap else b""
        self._inner.write(data)

    def commit(self) -> tuple[str, int]:
        return self._inner.commit()

    def keep_partial(self) -> None:
        if self._leaked:
            self._inner.abort()
        else:
            self._inner.keep_partial()

    def abort(self) -> None:
        self._inner.abort()
