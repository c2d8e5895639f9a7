"""The check before a store is opened: who asks, may he, and the record of a refusal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kfm.core.errors import KfmError, RoleMissing
from kfm.core.roles import Identity, Role, decide, refusal_entry, who_could

if TYPE_CHECKING:
    from kfm.config import Loaded
    from kfm.wiring.app import App


def require(loaded: Loaded, role: Role, what: str, opened: Callable[[], App]) -> None:
    """RoleMissing, unless whoever asks may do this. Who only wanted to read leaves no trace."""
    people, identity = loaded.people(), loaded.identity()
    access = decide(identity, role, people, what=f"`{what}`")
    if access.allowed:
        return
    if role != "read":
        with suppress(KfmError, OSError):  # a ledger that can't be written lets nobody in
            _record(opened(), identity, role, what, access.reason)
    raise RoleMissing(access.reason, remedy=who_could(access.others))


def _record(app: App, identity: Identity, role: Role, what: str, reason: str) -> None:
    """In the ledger, where the action would have been."""
    try:
        assert app.store is not None
        entry = refusal_entry(identity, role, what, reason, app.store.now_ms())
        app.store.append_governance([entry])
    finally:
        app.close()
