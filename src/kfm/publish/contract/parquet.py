"""Rows of a Parquet file, batch by batch. Needs the extra `parquet`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

from kfm.model.errors import ExtraMissing
from kfm.ports import Reader
from kfm.publish.contract.columns import MISSING
from kfm.publish.contract.streams import CHUNK_BYTES, FileProblem

_MAGIC = b"PAR1"
_FRAME_BYTES = 12


def batches(reader: Reader, columns: Sequence[str]) -> Iterator[tuple[list[str], Iterator[list[Any]]]]:
    """The file's column names with an iterator of rows, per batch; at least one batch is yielded."""
    try:
        from arro3.io import read_parquet
    except ImportError:
        raise ExtraMissing(
            "Parquet files are checked with the extra `parquet`.", remedy="pip install 'kfm[parquet]'"
        ) from None
    # Parquet is read from its end, so it has to be seekable; the file vanishes with the process.
    with tempfile.TemporaryFile() as spool:
        while data := reader.read(CHUNK_BYTES):
            spool.write(data)
        _check_frame(spool)
        try:
            source = read_parquet(spool)
            names = [str(name) for name in source.schema.names]
            yield names, iter(())
            for batch in source:
                yield names, _rows(batch, names, columns)
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  (the library panics on a damaged file)
            raise FileProblem(f"is not Parquet ({' '.join(str(error).split())[:120]})") from None


def _check_frame(spool: IO[bytes]) -> None:
    """Most broken files are found here, before the library can panic about them."""
    size = spool.seek(0, os.SEEK_END)
    spool.seek(0)
    head = spool.read(4)
    spool.seek(max(0, size - 8))
    tail = spool.read(8)
    spool.seek(0)
    footer_bytes = int.from_bytes(tail[:4], "little")
    if head != _MAGIC or tail[4:] != _MAGIC or size < _FRAME_BYTES + footer_bytes or not footer_bytes:
        raise FileProblem("is not Parquet (it lacks the frame of such a file)")


def _rows(batch: Any, names: list[str], columns: Sequence[str]) -> Iterator[list[Any]]:
    picked = [batch.column(names.index(name)) if name in names else None for name in columns]
    for index in range(batch.num_rows):
        yield [MISSING if column is None else column[index].as_py() for column in picked]
