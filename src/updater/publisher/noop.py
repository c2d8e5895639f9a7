"""The publisher of a dry-run: it says what would be done and does nothing."""

from __future__ import annotations

from kfm.publish.publisher import NoopPublisher

__all__ = ["NoopPublisher"]
