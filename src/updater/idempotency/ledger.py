"""The idempotency ledger, for reading. Only a run writes to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kfm.db.ledger_reader import LedgerReader
from kfm.model.records import Invocation, Run

__all__ = ["Invocation", "LedgerReader", "Run", "open_ledger"]


@contextmanager
def open_ledger(config: str | None = None) -> Iterator[LedgerReader]:
    """The ledger of a configuration. It leaves no trace, also where nothing has run yet."""
    from kfm.app import open_app
    from kfm.config.loader import load

    with open_app(load(config), read_only=True) as app:
        yield app.ledger
