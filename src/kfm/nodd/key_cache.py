"""Readings of keys, remembered between intake and work: in one process a key is read once."""

from __future__ import annotations

from kfm.model.units import PROVIDERS
from kfm.nodd.dataset_registry import Registry
from kfm.nodd.grammar import Reading

REMEMBERED_MAX = 20_000


class KeyCache:
    """Bounded: what is forgotten is read from the key again, with the same result."""

    def __init__(self, registry: Registry, limit: int = REMEMBERED_MAX) -> None:
        self._registry = registry
        self._limit = limit
        self._readings: dict[str, Reading] = {}

    def keep(self, reading: Reading) -> None:
        if len(self._readings) >= self._limit:
            self._readings.clear()
        self._readings[reading.wal_id] = reading

    def take(self, wal_id: str, object_uri: str) -> Reading:
        """Raises Refusal where the dataset that the unit was taken in by is not known any more."""
        known = self._readings.pop(wal_id, None)
        return known if known is not None else self._registry.read(*split(object_uri))


def split(object_uri: str) -> tuple[str, str, str]:
    """(provider, bucket, key)."""
    scheme, _, rest = object_uri.partition("://")
    provider = PROVIDERS[scheme]
    bucket, _, key = rest.partition("/")
    if provider == "azure":  # account/container
        container, _, key = key.partition("/")
        bucket = f"{bucket}/{container}"
    return provider, bucket, key
