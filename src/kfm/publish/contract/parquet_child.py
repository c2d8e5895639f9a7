"""Decodes a Parquet file in a process of its own: `python -P parquet_child.py MEMORY FRAME`.

The library that decodes is native and allocates what a file declares; where memory ends it aborts the
process. So it is this process, which holds nothing else. The file is its standard input, its rows are
its standard output: frames of a length and MessagePack. Nothing of kfm is imported here, so that it
begins at once.
"""

from __future__ import annotations

import datetime
import decimal
import os
import resource
import sys
from typing import Any

import msgspec

TIMESTAMP, DATE, TIME, DECIMAL, OTHER = range(1, 6)
_TEXT_MAX = 200
_PLAIN = (type(None), bool, float, str, bytes)


def main(arguments: list[str]) -> None:
    memory, frame = int(arguments[0]), int(arguments[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _decode(frame)
        _send(["end"])
    except MemoryError:
        os._exit(1)
    except BrokenPipeError:
        return  # the reader has seen enough
    except BaseException as error:  # noqa: BLE001  (the library panics on a damaged file)
        _send(["problem", " ".join(str(error).split())[:_TEXT_MAX]])


def _decode(frame: int) -> None:
    """Every column that the footer names, in its order."""
    from arro3.io import read_parquet

    with open(0, "rb", closefd=False) as file:
        for batch in read_parquet(file):
            columns = [batch.column(at) for at in range(batch.num_columns)]
            _send_rows(
                [[_plain(each[at].as_py()) for each in columns] for at in range(batch.num_rows)], frame
            )


def _send_rows(rows: list[list[Any]], frame: int) -> None:
    data = msgspec.msgpack.encode(["rows", rows])
    if len(data) <= frame:
        _write(data)
    elif len(rows) == 1:
        raise ValueError(f"a row is larger than {frame} bytes")
    else:
        half = len(rows) // 2
        _send_rows(rows[:half], frame)
        _send_rows(rows[half:], frame)


def _plain(value: Any) -> Any:
    """A value as MessagePack knows it; times and decimals by a mark of their own."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else _marked(OTHER, str(value))
    if isinstance(value, datetime.datetime):
        return _marked(TIMESTAMP, value.isoformat())
    if isinstance(value, datetime.date):
        return _marked(DATE, value.isoformat())
    if isinstance(value, datetime.time):
        return _marked(TIME, value.isoformat())
    if isinstance(value, decimal.Decimal):
        return _marked(DECIMAL, str(value))
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return _marked(OTHER, str(value))


def _marked(mark: int, text: str) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(mark, text.encode())


def _send(message: list[Any]) -> None:
    _write(msgspec.msgpack.encode(message))


def _write(data: bytes) -> None:
    view = memoryview(len(data).to_bytes(4, "big") + data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    main(sys.argv[1:])
