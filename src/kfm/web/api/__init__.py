"""The API under `/api/v1`: what the commands know and do, over HTTP."""

from __future__ import annotations

from kfm.web.api.routes import api_app, api_routes

__all__ = ["api_app", "api_routes"]
