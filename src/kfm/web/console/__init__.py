"""Pages for people: what runs, is due, blocked, failed or held. They only read, and need no script."""

from __future__ import annotations

from kfm.web.console.pages import console_app, console_routes

__all__ = ["console_app", "console_routes"]
