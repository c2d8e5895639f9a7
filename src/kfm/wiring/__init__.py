"""The composition root: settings → adapters → engine. The only importer of adapters."""

from kfm.wiring.app import App, open_app
from kfm.wiring.stores import require_local_disk, system_clock

__all__ = ["App", "open_app", "require_local_disk", "system_clock"]
