"""The hash of a node's code: its own text, and that of what it uses from the same file.

A change to another node of the file leaves it as it is; a change to a function that it calls does
not. What lives in other files counts only by a version that the node declares.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from hashlib import sha256
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from kfm.core.canonical import canonical_bytes, tag_floats
from kfm.core.errors import UnhashableInput

if TYPE_CHECKING:
    from kfm.runs.declare import NodeSpec

_PLAIN = (str, int, float, bool, type(None), list, dict, tuple)


class CodeHashes:
    """Remembers: many nodes are made by the same few functions."""

    def __init__(self) -> None:
        self._texts: dict[CodeType, str] = {}
        self._digests: dict[CodeType, str] = {}

    def of(self, function: Callable[..., Any]) -> str:
        """`code:<16 hex digits>`; of anything that is no plain function, of its type's name only."""
        plain = getattr(function, "__func__", function)
        if not isinstance(plain, FunctionType):
            kind = type(function)
            return "code:" + sha256(f"{kind.__module__}.{kind.__qualname__}".encode()).hexdigest()[:16]
        code = plain.__code__
        bare = not (plain.__defaults__ or plain.__kwdefaults__ or plain.__closure__)
        if bare and code in self._digests:
            return self._digests[code]
        digest = "code:" + sha256("\n".join(self._parts(plain, set())).encode()).hexdigest()[:16]
        if bare:
            self._digests[code] = digest
        return digest

    def of_spec(self, spec: NodeSpec) -> str:
        return f"version:{spec.version}" if spec.version is not None else self.of(spec.function)

    def _parts(self, function: FunctionType, seen: set[CodeType]) -> list[str]:
        code = function.__code__
        if code in seen:
            return []
        seen.add(code)
        parts = [self._text(code), _said(function.__defaults__), _said(function.__kwdefaults__)]
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                value = cell.cell_contents
            except ValueError:  # not bound yet
                continue
            parts += self._used(name, value, code, seen)
        for name in sorted(_names(code)):
            if name in function.__globals__:
                parts += self._used(name, function.__globals__[name], code, seen)
        return parts

    def _used(self, name: str, value: Any, user: CodeType, seen: set[CodeType]) -> list[str]:
        if isinstance(value, FunctionType):
            same_file = value.__code__.co_filename == user.co_filename
            return [name, *self._parts(value, seen)] if same_file else [name]
        return [f"{name}={_said(value)}"]

    def _text(self, code: CodeType) -> str:
        if code not in self._texts:
            lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : _last_line(code)]
            self._texts[code] = "".join(_undecorated(lines)) or _bytecode(code)
        return self._texts[code]


def enclosing_code(depth: int) -> str:
    """The hash of the whole function, or file, in which a block stands: `depth` frames out from here."""
    code = sys._getframe(depth).f_code
    lines = linecache.getlines(code.co_filename)[max(0, code.co_firstlineno - 1) : _last_line(code)]
    return "code:" + sha256(("".join(lines) or _bytecode(code)).encode()).hexdigest()[:16]


def _undecorated(lines: list[str]) -> list[str]:
    """From the `def` on: what a decorator says of inputs and parameters is hashed as such."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith(("def ", "async def ")):
            indent = len(line) - len(line.lstrip())
            return [each[indent:] if each[:indent].isspace() else each for each in lines[number:]]
    return lines


def _last_line(code: CodeType) -> int:
    last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
    return max([last, *(_last_line(each) for each in code.co_consts if isinstance(each, CodeType))])


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found |= _names(each)
    return found


def _bytecode(code: CodeType) -> str:
    """Without a file, as at a prompt."""
    inner = [_bytecode(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {inner}"


def _said(value: Any) -> str:
    """A plain value as it is; of anything else only what kind of thing it is."""
    if value is None:
        return ""
    if isinstance(value, _PLAIN):
        try:
            return canonical_bytes(tag_floats(list(value) if isinstance(value, tuple) else value)).decode()
        except (UnhashableInput, TypeError, ValueError):
            pass
    return f"<{type(value).__qualname__}>"
