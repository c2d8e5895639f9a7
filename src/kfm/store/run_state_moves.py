"""Which store holds an environment's run-state: a mark in the ledger, moved in one step."""

from __future__ import annotations

from kfm.core.records import GovernanceEntry
from kfm.core.run_states import STORE_MARK
from kfm.store import governance, leases, node_branches
from kfm.store.session import Database, Session


def switch(database: Database, fence: int, seen: str, value: str, entry: GovernanceEntry) -> bool:
    """From one store to the other, and let everybody go on; False if the lock or the mark is not ours."""

    def change(session: Session) -> bool:
        lock = leases.lock_for_update(session, leases.COLLECTOR)
        if lock.fence != fence or lock.holder is None:
            return False
        session.all("marks.ensure", name=STORE_MARK, value=seen)
        if session.one("marks.move", name=STORE_MARK, seen=seen, value=value) is None:
            return False
        session.all("locks.release", scope=leases.COLLECTOR, fence=fence)
        governance.append(session, [entry])
        return True

    return database.write(change)


def let_go(database: Database, fence: int) -> None:
    database.write(lambda session: session.all("locks.release", scope=leases.COLLECTOR, fence=fence))


def heads(session: Session) -> dict[str, list[tuple[str, str]]]:
    """Branch → (run, node) of all that it knows."""
    found: dict[str, list[tuple[str, str]]] = {}
    for (branch,) in session.all("node_heads.branches"):
        pages = node_branches.heads_of(session, branch)
        found[branch] = [(run_id, dataset_id) for page in pages for dataset_id, run_id, *_ in page]
    return found
