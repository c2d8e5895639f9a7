"""Moved to `kfm.model.errors`; this name goes on working, with a warning."""

from __future__ import annotations

from kfm.moved import forward

__getattr__ = forward(__name__, "kfm.model.errors")
