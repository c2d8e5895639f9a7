"""Old import path of `kfm.model.records`; it goes on working, with a DeprecationWarning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.moved import forward

if TYPE_CHECKING:
    from kfm.model.records import *  # noqa: F403 - the names for type checkers
    from kfm.model.records import PublishedRun

    RunState = PublishedRun

__getattr__ = forward(__name__, "kfm.model.records", {"RunState": "PublishedRun"})
