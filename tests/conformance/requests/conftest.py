"""The ledgers of units hold requests, too: the same fixtures open them."""

from tests.conformance.units.conftest import kind, open_store

__all__ = ["kind", "open_store"]
