"""Source files: which are checked, and from bytes to a syntax tree within limits."""

from __future__ import annotations

import ast
import io
import os
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from typing import NamedTuple

# --- reading --------------------------------------------------------------------------

FILE_BYTES_MAX = 4 * 1024 * 1024  # not written by hand; generated code is not reviewed


class Source(NamedTuple):
    """One file, parsed once."""

    path: str
    text: str
    lines: list[str]
    tree: ast.Module


class Unreadable(Exception):
    """This file can't be checked."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = max(line, 1)
        self.column = max(column, 1)


def parse(data: bytes, path: str) -> Source:
    if len(data) > FILE_BYTES_MAX:
        raise Unreadable(f"larger than {FILE_BYTES_MAX} bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `"\d"` in a checked file is not ours to warn about
            tree = ast.parse(data)
    except SyntaxError as error:
        raise Unreadable(str(error.msg), error.lineno or 1, error.offset or 1) from None
    except (ValueError, LookupError, OverflowError) as error:
        raise Unreadable(str(error)) from None
    except (RecursionError, MemoryError):
        raise Unreadable("nested too deeply") from None
    text = decode(data)
    return Source(path, text, lines_of(text), tree)


def decode(data: bytes) -> str:
    """As Python itself decodes it; the parser has already accepted the encoding."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding)
    except (SyntaxError, LookupError, ValueError):
        return data.decode("latin-1")


def lines_of(text: str) -> list[str]:
    """Lines as the parser counts them: a form feed or U+2028 ends none."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


# --- files ----------------------------------------------------------------------------

SKIPPED = tuple(
    ".venv venv .env node_modules build dist site-packages __pycache__ .git .hg .svn .tox .nox .eggs "
    "*.egg-info .mypy_cache .ruff_cache .pytest_cache __pypackages__".split()
)
SUFFIXES = (".py", ".pyi", ".pyw")
FILES_MAX = 100_000


def python_files(paths: Sequence[str], exclude: Sequence[str] = ()) -> Iterator[str]:
    """Each file once, folders in order. A file that is named is checked whatever it is called."""
    seen: set[str] = set()
    for path in paths:
        for found in [path] if os.path.isfile(path) else _below(path, exclude):
            key = os.path.normpath(found)
            if key not in seen and not _is_excluded(found, exclude):
                seen.add(key)
                yield key
                if len(seen) >= FILES_MAX:
                    return


def read_bounded(path: str) -> bytes:
    """At most one byte more than is checked: enough to see that it is too much."""
    with open(path, "rb") as file:
        return file.read(FILE_BYTES_MAX + 1)


def _below(folder: str, exclude: Sequence[str]) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not any(fnmatch(name, pattern) for pattern in SKIPPED)
            and not _is_excluded(os.path.join(where, name), exclude)
        )
        for name in sorted(names):
            path = os.path.join(where, name)
            if name.endswith(SUFFIXES) and not _never_ends(path):
                yield path


def _never_ends(path: str) -> bool:
    """A pipe or a device of such a name is read for ever. A broken link is reported as unreadable."""
    return os.path.exists(path) and not os.path.isfile(path)


def _is_excluded(path: str, exclude: Sequence[str]) -> bool:
    """A pattern speaks about a name, or about the path as it was given."""
    normal = os.path.normpath(path).replace(os.sep, "/")
    name = normal.rpartition("/")[2]
    return any(fnmatch(name, pattern) or fnmatch(normal, pattern.rstrip("/")) for pattern in exclude)
