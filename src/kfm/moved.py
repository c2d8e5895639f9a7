"""Deprecated import paths: a module's `__getattr__` that forwards to where its names are now, and warns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module


def forward(old: str, new: str, renamed: Mapping[str, str] | None = None) -> Callable[[str], object]:
    """Names of the module `old`, looked up in `new` when they are first used; `renamed` is old → new name."""

    def look_up(name: str) -> object:
        if name == "__all__":  # for `from … import *`
            now_there = [each for each in dir(import_module(new)) if not each.startswith("_")]
            return [*now_there, *(renamed or {})]
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        now = (renamed or {}).get(name, name)
        value: object = getattr(import_module(new), now)
        warnings.warn(f"{old}.{name} is now {new}.{now}.", DeprecationWarning, stacklevel=2)
        return value

    return look_up
