"""Before anything new: what earlier processes left behind."""

from __future__ import annotations

from collections.abc import Callable

from kfm.core.commits import Reaped
from kfm.ports import Liveness, Store


def sweep(store: Store, liveness: Liveness, announce: Callable[[str], None]) -> list[Reaped]:
    """End the runs whose process is gone, so that their locks are free and their work can be resumed."""
    reaped = store.reap(liveness.is_dead)
    for each in reaped:
        why = "its lease has lapsed" if each.lapsed else "its process is gone"
        announce(f"recover: run {each.run_id} was interrupted ({why}); {each.scope} is free again")
    return reaped
