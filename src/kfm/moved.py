"""Documented import paths that moved: the old module forwards to the new one and warns once per place."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module


def forward(old: str, new: str, renamed: Mapping[str, str] | None = None) -> Callable[[str], object]:
    """A module's `__getattr__`: names are looked up in the new module when they are first used."""

    def look_up(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        value: object = getattr(import_module(new), (renamed or {}).get(name, name))
        warnings.warn(f"{old} has moved to {new}.", DeprecationWarning, stacklevel=2)
        return value

    return look_up
