"""Bytes of a staged file as bounded text: lines, and the values of a JSON document one by one."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator
from typing import Any, NoReturn

from kfm.ports import Reader

CHUNK_BYTES = 256 * 1024
_BLANKS = " \t\r\n"
# Behind a cut token the decoder may complain this far before the end.
_CUT_CHARS = 16


class FileProblem(Exception):
    """The file can't be read on; the text completes «the file …»."""


class _Raw(io.RawIOBase):
    """The standard library wants more of a file than a Reader promises."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._reader.read(len(view))
        view[: len(data)] = data
        return len(data)


class TextLines:
    """Lines with their ends kept. `record()` marks what was read so far as done."""

    def __init__(self, reader: Reader, chars_max: int, encoding: str = "utf-8-sig") -> None:
        self._text = io.TextIOWrapper(
            io.BufferedReader(_Raw(reader), CHUNK_BYTES), encoding=encoding, errors="strict", newline=""
        )
        self._chars_max = chars_max
        self._held = 0
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            line = self._text.readline(self._chars_max + 1)
        except UnicodeDecodeError:
            raise FileProblem(f"is not UTF-8 text after line {self.number}") from None
        if not line:
            raise StopIteration
        self.number += 1
        self._held += len(line)
        if self._held > self._chars_max:
            raise FileProblem(f"has a record longer than {self._chars_max} characters at line {self.number}")
        if "\0" in line:
            raise FileProblem(f"holds a NUL character in line {self.number}")
        return line

    def record(self) -> None:
        self._held = 0


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice in one object")
    return members


DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_members)


def decode_line(line: str) -> Any:
    """One JSON text; FileProblem without the reason's details otherwise."""
    try:
        return DECODER.decode(line)
    except RecursionError:
        raise FileProblem("is nested too deeply") from None
    except ValueError as error:
        raise FileProblem(f"is not JSON ({_short(error)})") from None


def _short(error: ValueError) -> str:
    # JSONDecodeError has a position of the buffer, which means nothing to people.
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)[:120]


class JsonStream:
    """A JSON document read front to back, holding no more than one value of it."""

    def __init__(self, reader: Reader, chars_max: int) -> None:
        self._reader = reader
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._chars_max = chars_max
        self._buffer = ""
        self._position = 0
        self._read_chars = 0
        self._ended = False

    def peek(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            while self._position < len(self._buffer):
                char = self._buffer[self._position]
                if char not in _BLANKS:
                    return char
                self._position += 1
            if not self._more(CHUNK_BYTES):
                return ""

    def take(self, expected: str) -> None:
        found = self.peek()
        if found != expected:
            self._complain(f"{expected!r} is expected")
        self._position += 1

    def value(self) -> Any:
        """The next value, whole."""
        if not self.peek():
            self._complain("it ends too early")
        while True:
            try:
                value, end = DECODER.raw_decode(self._buffer, self._position)
            except RecursionError:
                raise FileProblem("is nested too deeply") from None
            except json.JSONDecodeError as error:
                if not self._may_be_cut(error):
                    self._complain(error.msg)
            except ValueError as error:
                raise FileProblem(f"is not JSON ({_short(error)})") from None
            else:
                if self._is_whole(value, end) or not self._more(CHUNK_BYTES):
                    self._position = end
                    return value

    def _is_whole(self, value: Any, end: int) -> bool:
        """A number at the very end of the buffer may go on: of `1.5` the decoder takes `1` from `1.`."""
        if not isinstance(value, (int, float)):
            return True
        tail = self._buffer[end : end + 3]
        return end + len(tail) < len(self._buffer) or bool(tail.strip("+-.eE"))

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        held = len(self._buffer) - self._position
        if error.pos < len(self._buffer) - _CUT_CHARS and not self._begins_text(error.pos):
            return False
        if held > self._chars_max:
            raise FileProblem(f"holds a value longer than {self._chars_max} characters")
        return self._more(max(CHUNK_BYTES, held))

    def _begins_text(self, at: int) -> bool:
        """A text that does not end is reported where it begins; another problem, never there."""
        before = at - 1
        while before >= self._position and self._buffer[before] in _BLANKS:
            before -= 1
        begins = before < self._position or self._buffer[before] in "[{,:"
        return begins and self._buffer[at : at + 1] == '"'

    def members(self) -> Iterator[str]:
        """Names of the next object; after each the caller takes the value."""
        self.take("{")
        if self.peek() == "}":
            self.take("}")
            return
        while True:
            if self.peek() != '"':
                self._complain("a member's name is expected")
            yield self.value()
            if self.peek() != "}":
                self.take(",")
                continue
            self.take("}")
            return

    def named(self) -> Iterator[str]:
        """As `members`, with the colon taken."""
        names: set[str] = set()
        for name in self.members():
            if name in names:
                raise FileProblem("is not JSON (a member stands twice in one object)")
            names.add(name)
            self.take(":")
            yield name

    def elements(self) -> Iterator[Any]:
        """The values of the next array."""
        self.take("[")
        if self.peek() == "]":
            self.take("]")
            return
        while True:
            yield self.value()
            if self.peek() != "]":
                self.take(",")
                continue
            self.take("]")
            return

    def end(self) -> None:
        if self.peek():
            self._complain("something follows the document")

    def _more(self, size: int) -> bool:
        if self._ended:
            return False
        data = self._reader.read(size)
        try:
            text = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError:
            raise FileProblem(f"is not UTF-8 text after about {self._read_chars} characters") from None
        if self._read_chars == 0 and text.startswith("\ufeff"):
            raise FileProblem("begins with a byte order mark, which JSON does not allow")
        self._ended = not data
        self._read_chars += len(text)
        self._buffer = self._buffer[self._position :] + text
        self._position = 0
        return not self._ended

    def _complain(self, problem: str) -> NoReturn:
        near = self._read_chars - len(self._buffer) + self._position
        raise FileProblem(f"is not JSON ({problem}, near character {near})")
