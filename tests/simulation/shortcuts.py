"""What worlds would work out thousands of times with the same result is worked out once in a process.

Only pure functions of their arguments, whose results can't be changed: a world can't tell the difference.
A patch that breaks one of them on purpose would be hidden by what is remembered; there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import apsw
import orjson

from kfm.db.queries import migrate
from kfm.db.sqlite import MemoryDatabase
from kfm.publish import catalogue
from kfm.publish.contract.model import Contract, ContractLimits
from kfm.publish.contract.reader import load_contract
from kfm.runs import preparation

CONTRACTS_MAX = 1_000
DOCUMENTS_MAX = 2_000

_encode = catalogue.encode
_documents: dict[bytes, bytes] = {}


@lru_cache(CONTRACTS_MAX)
def _contract(text: bytes, name: str, limits: ContractLimits | None) -> Contract:
    return load_contract(text, name, limits)


def _contract_of(text: bytes, name: str, limits: ContractLimits | None = None) -> Contract:
    return _contract(bytes(text), name, limits)


def _encoded(plain: dict[str, Any]) -> bytes:
    """Both targets, and versions one after the other, show documents that were encoded before."""
    key = orjson.dumps(plain)
    found = _documents.get(key)
    if found is None:
        if len(_documents) >= DOCUMENTS_MAX:
            _documents.clear()
        found = _documents[key] = _encode(plain)
    return found


@cache
def _new_ledger() -> apsw.Connection:
    database = MemoryDatabase(None)  # type: ignore[arg-type] - no caller asks it for the time
    migrate(database, "sqlite", 0)
    return database._connection


def new_ledger(clock: Any) -> MemoryDatabase:
    """An empty ledger with today's schema."""
    return MemoryDatabase(clock, copy_of=_new_ledger())


@contextmanager
def taken() -> Iterator[None]:
    """While a world lives."""
    load, encode = preparation.load_contract, catalogue.encode  # type: ignore[attr-defined]
    preparation.load_contract, catalogue.encode = _contract_of, _encoded  # type: ignore[attr-defined]
    try:
        yield
    finally:
        preparation.load_contract, catalogue.encode = load, encode  # type: ignore[attr-defined]
