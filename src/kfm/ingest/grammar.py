"""Old import path of `kfm.nodd.grammar`; it goes on working, with a DeprecationWarning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.moved import forward

if TYPE_CHECKING:
    from kfm.nodd.grammar import *  # noqa: F403 - the names for type checkers

__getattr__ = forward(__name__, "kfm.nodd.grammar")
