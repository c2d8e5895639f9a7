"""The composition root: settings → adapters → engine. The only importer of adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfm.wiring.app import App, open_app
    from kfm.wiring.stores import require_local_disk, system_clock

__all__ = ["App", "open_app", "require_local_disk", "system_clock"]

_HOMES = {
    "App": "kfm.wiring.app",
    "open_app": "kfm.wiring.app",
    "require_local_disk": "kfm.wiring.stores",
    "system_clock": "kfm.wiring.stores",
}


def __getattr__(name: str) -> object:
    """Looked up when first asked for: whoever runs a pipeline by itself needs no app."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
