"""Old import path of `kfm.integrations.langgraph`; it goes on working, with a DeprecationWarning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.moved import forward

if TYPE_CHECKING:
    from kfm.integrations.langgraph import *  # noqa: F403 - the names for type checkers

__getattr__ = forward(__name__, "kfm.integrations.langgraph")
