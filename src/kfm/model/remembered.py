"""Values that an object computes once, when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class remembered(Generic[T]):  # noqa: N801 - used as `property` is
    """As `functools.cached_property`, without its lock: on Python 3.11 there is one for all objects of a
    class, held while the value is computed, so who reads a database would keep all other threads waiting."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _owner: type | None = None) -> T:
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
