"""Circuit breakers as rows: read, and changed by compare and set. The rules are in `model.breaker`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kfm.db.rows import converted
from kfm.db.session import Row, Session
from kfm.model.breaker import Breaker

Change = Callable[[Breaker, int], Breaker]  # (breaker, now_ms) → breaker; pure, and may be asked again
_FIELDS = Breaker.__struct_fields__


def breaker_from(row: Row) -> Breaker:
    return converted(_FIELDS, row, Breaker)


def read(session: Session, provider: str) -> Breaker:
    """The provider's breaker; a provider that has never failed has no row."""
    row = session.one("breakers.get", provider=provider)
    return breaker_from(row) if row else Breaker(provider=provider)


def change(session: Session, provider: str, decide: Change) -> tuple[Breaker, Breaker]:
    """The breaker as found, and as it is now."""
    session.all("breakers.ensure", provider=provider)
    row = session.one("breakers.get_for_update", provider=provider)
    assert row is not None
    seen = breaker_from(row)
    kept = decide(seen, session.now_ms())
    if kept == seen:
        return seen, seen
    assert kept.provider == provider, "a breaker does not change its provider"
    before = {f"seen_{name}": value for name, value in msgspec.structs.asdict(seen).items()}
    del before["seen_provider"]
    landed = session.one("breakers.change", **msgspec.structs.asdict(kept), **before)
    assert landed is not None, "the breaker's row is ours inside this transaction"
    return seen, kept
