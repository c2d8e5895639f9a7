"""Which files to check: those named, and the Python files below the folders named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch

from kfm.lint.reading import FILE_BYTES_MAX

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
    """A pipe or a device of such a name is read for ever. A broken link is told, as other trouble is."""
    return os.path.exists(path) and not os.path.isfile(path)


def _is_excluded(path: str, exclude: Sequence[str]) -> bool:
    """A pattern speaks about a name, or about the path as it was given."""
    normal = os.path.normpath(path).replace(os.sep, "/")
    name = normal.rpartition("/")[2]
    return any(fnmatch(name, pattern) or fnmatch(normal, pattern.rstrip("/")) for pattern in exclude)
