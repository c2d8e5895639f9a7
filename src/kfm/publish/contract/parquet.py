"""Rows of a Parquet file: its footer is judged here, its columns are decoded in a child process.

Needs the extra `parquet`.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from importlib.util import find_spec
from typing import Any

import msgspec

from kfm.model.errors import ExtraMissing
from kfm.ports import Reader
from kfm.publish.contract import parquet_child
from kfm.publish.contract.columns import MISSING
from kfm.publish.contract.model import ContractLimits
from kfm.publish.contract.parquet_footer import read_footer
from kfm.publish.contract.streams import CHUNK_BYTES, FileProblem

_PROBLEM_CHARS_MAX = 120
_NONSENSE = "can't be decoded (its decoder gave no sensible answer)"


class ParquetRows:
    """A file's column names and its rows, of the contract's columns alone."""

    def __init__(self, reader: Reader, columns: Sequence[str], limits: ContractLimits) -> None:
        if not _has_library():
            raise ExtraMissing(
                "Parquet files are checked with the extra `parquet`.",
                remedy="pip install 'kfm-kernel[parquet]'",
            )
        self._columns = columns
        self._limits = limits
        # Parquet is read from its end, so it has to be seekable; the file vanishes with the process.
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        try:
            while data := reader.read(CHUNK_BYTES):
                self._spool.write(data)
            self._footer = read_footer(self._spool, columns, limits)
        except BaseException:
            self._spool.close()
            raise
        self.names = self._footer.names

    def __enter__(self) -> ParquetRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    def rows(self) -> Iterator[list[Any]]:
        """Values in the order of the columns. FileProblem where it can't be decoded within the bounds."""
        wanted = self._footer.wanted
        if not wanted:
            for _ in range(self._footer.rows):
                yield [MISSING for _ in self._columns]
            return
        # The decoder finds the last footer, which names the wanted columns only.
        self._spool.seek(0, os.SEEK_END)
        self._spool.write(self._footer.data)
        self._spool.flush()
        places = [wanted.index(name) if name in wanted else None for name in self._columns]
        count = 0
        for row in _decoded(self._spool.fileno(), self._limits):
            count += 1
            if len(row) != len(wanted):
                raise FileProblem(_NONSENSE)
            yield [MISSING if at is None else row[at] for at in places]
        if count != self._footer.rows:
            raise FileProblem(f"declares {self._footer.rows} rows and holds {count}")


def _has_library() -> bool:
    try:
        return find_spec("arro3.io") is not None
    except (ImportError, ValueError):
        return False


def _decoded(file: int, limits: ContractLimits) -> Iterator[list[Any]]:
    os.lseek(file, 0, os.SEEK_SET)
    command = [sys.executable, "-P", parquet_child.__file__]
    bounds = [str(limits.decoder_bytes_max), str(limits.element_chars_max)]
    with subprocess.Popen(
        [*command, *bounds], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
    ) as child:
        assert child.stdout is not None
        try:
            yield from _rows(child.stdout.fileno(), limits)
        except EOFError:
            child.wait()
            raise FileProblem(_ended(child.returncode, limits)) from None
        finally:
            child.kill()


def _rows(pipe: int, limits: ContractLimits) -> Iterator[list[Any]]:
    while True:
        size = int.from_bytes(_taken(pipe, 4, limits), "big")
        if size > limits.element_chars_max:
            raise FileProblem(_NONSENSE)
        kind, *what = _message(_taken(pipe, size, limits))
        if kind == "rows":
            yield from what[0]
        elif kind == "end":
            return
        else:
            problem = str(what[0])[:_PROBLEM_CHARS_MAX]
            raise FileProblem(f"can't be decoded as Parquet ({problem})")


def _message(data: bytes) -> list[Any]:
    try:
        found: list[Any] = msgspec.msgpack.decode(data, type=list[Any], ext_hook=_value)
    except (ValueError, ArithmeticError, RecursionError):
        raise FileProblem(_NONSENSE) from None
    if not found or (found[0] == "rows" and not (isinstance(found[-1], list) and len(found) == 2)):
        raise FileProblem(_NONSENSE)
    return found if found[0] in ("rows", "end") else [*found, ""]


def _taken(pipe: int, size: int, limits: ContractLimits) -> bytes:
    """Exactly so many bytes. The child's time counts, not ours."""
    ready = select.poll()  # `select` knows no descriptor beyond 1023, and a service has many
    ready.register(pipe, select.POLLIN | select.POLLHUP)
    parts = []
    while size:
        if not ready.poll(limits.decoder_seconds_max * 1000):
            raise FileProblem(f"can't be decoded within {limits.decoder_seconds_max} seconds")
        data = os.read(pipe, min(size, CHUNK_BYTES))
        if not data:
            raise EOFError
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _ended(returncode: int, limits: ContractLimits) -> str:
    if returncode in (1, -signal.SIGABRT, -signal.SIGKILL):
        return f"needs more than {limits.decoder_bytes_max} bytes of memory to be decoded"
    return f"can't be decoded (the decoder ended with {returncode})"


def _value(mark: int, data: memoryview) -> Any:
    text = bytes(data).decode()
    if mark == parquet_child.TIMESTAMP:
        return datetime.fromisoformat(text)
    if mark == parquet_child.DATE:
        return date.fromisoformat(text)
    if mark == parquet_child.TIME:
        return time.fromisoformat(text)
    return Decimal(text) if mark == parquet_child.DECIMAL else text
