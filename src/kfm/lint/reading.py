"""From bytes to a syntax tree, within limits; whatever is wrong with a file becomes a sentence."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from typing import NamedTuple

FILE_BYTES_MAX = 4 * 1024 * 1024  # nobody writes such a file by hand; generated code is not reviewed


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
            warnings.simplefilter("ignore")  # `"\d"` in somebody's file is not ours to warn about
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
