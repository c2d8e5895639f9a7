"""What a call was given, as plain values that can be hashed: fails closed, and names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from kfm.core.errors import UnhashableInput
from kfm.runs.declare import CONTEXT_NAMES
from kfm.runs.values import Files, StoredFile

DEPTH_MAX = 100
_PLAIN = (str, int, float, bool, type(None))
REMEDY = (
    "Say what identifies the call: params=lambda …: {…}, a function of the same arguments; "
    "or declare what it reads in inputs."
)


class Bound:
    """A callable with the arguments of one call."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None
        if self._signature is None:
            self.given: dict[str, Any] = {**{str(i): each for i, each in enumerate(args)}, **kwargs}
            self._args, self._kwargs = args, kwargs
        else:
            bound = self._signature.bind_partial(*args, **kwargs)
            self.given = dict(bound.arguments)
            self._args, self._kwargs = bound.args, bound.kwargs

    def hashed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What was declared and what was given, which wins."""
        return {**params, **{name: plain(value, name) for name, value in self.given.items()}}

    def call(self, context: Any, params: Mapping[str, Any], read: Mapping[str, Any]) -> Any:
        """With the results that it reads, parameters of its arguments' names, and a context if it has one."""
        if self._signature is None:
            return self.function(*self._args, **self._kwargs)
        extra = dict(read)
        known = self._signature.parameters
        extra |= {name: value for name, value in params.items() if name in known and name not in extra}
        extra |= {name: context for name in CONTEXT_NAMES if name in known}
        kwargs = {name: value for name, value in extra.items() if name not in self.given}
        return self.function(*self._args, **{**self._kwargs, **kwargs})


def plain(value: Any, where: str, depth: int = 0) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > DEPTH_MAX:
        raise UnhashableInput(f"{where} is nested too deeply.", field=where)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": len(value), "sha256": sha256(value).hexdigest()}
    if isinstance(value, StoredFile):
        return {"name": value.name, "checksum": value.checksum}
    if isinstance(value, Files):
        return {name: value[name].checksum for name in value}
    if hasattr(value, "__fspath__"):
        return str(value)
    if isinstance(value, msgspec.Struct) or (hasattr(value, "__dataclass_fields__") and kind is not type):
        try:
            return plain(msgspec.to_builtins(value), where, depth + 1)
        except TypeError as error:
            raise UnhashableInput(f"{where}: {error}.", field=where, remedy=REMEDY) from None
    if isinstance(value, Mapping):
        if not all(type(key) is str for key in value):
            raise UnhashableInput(f"{where} has a key that is not text.", field=where)
        return {key: plain(each, f"{where}.{key}", depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, f"{where}[{index}]", depth + 1) for index, each in enumerate(value)]
    raise UnhashableInput(
        f"{where} is a {kind.__module__}.{kind.__qualname__}, which tells nothing of its content.",
        field=where,
        remedy=REMEDY,
    )
