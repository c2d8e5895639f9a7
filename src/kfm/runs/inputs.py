"""What a node reads from outside, as rows that can be hashed.

A file's checksum is remembered with its size, its time of modification and its inode; as long as
those are the same it is not read again, unless somebody wants to be sure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kfm.core.errors import UnhashableInput

if TYPE_CHECKING:
    from kfm.ports import Passes, ProjectFiles, Signs

INPUTS_PER_NODE_MAX = 1_000_000
_RECENT_NS = 2_000_000_000  # a file changed that recently may change again without its time showing it

Remembered = tuple[int, int, int, str]


class FileChecksums:
    """Checksums of files, for one pass; what was learnt is kept at its end."""

    def __init__(
        self, files: ProjectFiles, kept: Passes, now_ms: Callable[[], int], *, verify: bool = False
    ) -> None:
        self._files = files
        self._kept = kept
        self._now_ms = now_ms
        self._verify = verify
        self._known: dict[str, Remembered] | None = None
        self._seen: dict[str, str | None] = {}
        self._learnt: dict[str, Remembered] = {}

    def of(self, path: str) -> str | None:
        """The file's checksum; None if it is not there. Asked once for each pass, unless forgotten."""
        if path not in self._seen:
            self._seen[path] = self._look(path)
        return self._seen[path]

    def forget(self, path: str) -> None:
        """It was, or may have been, written since."""
        self._seen.pop(path, None)

    def _look(self, path: str) -> str | None:
        told = self._files.stat(path)
        if told is None:
            return None
        if self._known is None:
            self._known = self._kept.checksums("", "\U0010ffff")
        kept = self._learnt.get(path) or self._known.get(path)
        if kept is not None and kept[:3] == told and not self._verify:
            return kept[3]
        try:
            checksum = self._files.checksum(path)
        except FileNotFoundError:
            return None
        after = self._files.stat(path)
        # Only what stood still while it was read, and for a while before, can be told by its time.
        if after == told and self._now_ms() * 1_000_000 - told[1] > _RECENT_NS:
            self._learnt[path] = (*told, checksum)
        return checksum

    def keep(self) -> None:
        if self._learnt:
            self._kept.keep_checksums(self._learnt)
            self._learnt = {}


class Inputs:
    """Turns what a node declares into rows for its hash."""

    def __init__(self, files: ProjectFiles, checksums: FileChecksums, signs: Signs) -> None:
        self._files = files
        self._checksums = checksums
        self._signs = signs

    def rows(self, node: str, declared: Any, params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for index, entry in enumerate(_entries(declared, params)):
            found += self._rows(entry, f"{node}: inputs[{index}]")
            if len(found) > INPUTS_PER_NODE_MAX:
                raise UnhashableInput(f"{node} has more than {INPUTS_PER_NODE_MAX} inputs.", field="inputs")
        return found

    def _rows(self, entry: Any, here: str) -> Iterable[Mapping[str, Any]]:
        if isinstance(entry, Mapping):
            return [entry]
        if hasattr(entry, "__fspath__"):
            entry = entry.__fspath__()
        if not isinstance(entry, str):
            raise UnhashableInput(
                f"{here} is a {type(entry).__name__}: write a path, an address, or a mapping with a uri.",
                field=here,
            )
        if "://" in entry or entry.startswith("branch:"):
            return [self._signs.of(entry)]
        return self._file_rows(entry, here)

    def _file_rows(self, pattern: str, here: str) -> list[Mapping[str, Any]]:
        paths = self._files.match(pattern)
        if not paths:
            raise UnhashableInput(
                f"{here}: no file is called {pattern}, or matches it.",
                field=here,
                remedy="Put the file there, or correct the path: it is seen from the project's folder.",
            )
        rows: list[Mapping[str, Any]] = []
        for path in paths:
            try:
                checksum = self._checksums.of(path)
            except IsADirectoryError:
                raise UnhashableInput(
                    f"{here}: {path} is a folder.",
                    field=here,
                    remedy=f"Name its files: {path}/* or, with all that is below, {path}/**.",
                ) from None
            except OSError as error:
                raise UnhashableInput(
                    f"{here}: {path} can't be read: {error.strerror or error}.",
                    field=here,
                    remedy="Make it a file that can be read, or leave it out of `inputs`.",
                ) from None
            if checksum is None:
                raise UnhashableInput(f"{here}: {path} went away while it was looked at.", field=here)
            rows.append({"uri": f"file:{path}", "checksum": checksum})
        return rows


def _entries(declared: Any, params: Mapping[str, Any]) -> Iterable[Any]:
    if callable(declared):
        declared = declared(params) if _takes_one(declared) else declared()
    if isinstance(declared, str | Mapping) or hasattr(declared, "__fspath__"):
        return [declared]
    return declared  # type: ignore[no-any-return]


def _takes_one(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_argcount > 0
