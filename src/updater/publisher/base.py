"""The publisher that every pipeline is given."""

from __future__ import annotations

from kfm.publish.publisher import FileMetadata, Publisher

__all__ = ["FileMetadata", "Publisher"]
