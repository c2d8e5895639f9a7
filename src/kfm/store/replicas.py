"""Which items external catalogues still have to be told of. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Iterable

from kfm.core.catalogue import Owed
from kfm.store.session import Database, Session


class Replicas:
    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, replica: str, limit: int, claim_ms: int) -> list[Owed]:
        """The longest due; nobody else has them before the claim ends: one delivery in flight per item."""
        session = self._database.session
        if session.one("replica_items.due", replica=replica, now_ms=session.now_ms()) is None:
            return []

        def change(session: Session) -> list[Owed]:
            now_ms = session.now_ms()
            found = session.all(
                "replica_items.claim",
                replica=replica,
                now_ms=now_ms,
                until_ms=now_ms + claim_ms,
                row_limit=limit,
            )
            return [Owed(*row) for row in found]

        return self._database.write(change)

    def delivered(self, replica: str, done: Iterable[tuple[Owed, int]]) -> None:
        """With the revision that was sent; what is wanted since then is due again.

        Where the claim was over, a later one may have sent something newer before us: once more, then.
        """
        kept = list(done)

        def change(session: Session) -> None:
            for owed, revision in kept:
                which = {"replica": replica, "collection_id": owed.collection_id, "item_id": owed.item_id}
                sent = max(revision, owed.wanted)
                if not session.all("replica_items.delivered", sent=sent, until_ms=owed.until_ms, **which):
                    session.all("replica_items.outrun", **which)

        if kept:
            self._database.write(change)

    def put_back(
        self, replica: str, owed: Iterable[Owed], not_before_ms: int, *, charged: bool = True
    ) -> None:
        """For later, unless somebody else has it by now. What was not tried is not charged.

        What was tried may have landed for all that: where the claim was over, once more, then.
        """
        kept = list(owed)

        def change(session: Session) -> None:
            for one in kept:
                which = {"replica": replica, "collection_id": one.collection_id, "item_id": one.item_id}
                found = session.all(
                    "replica_items.put_back",
                    not_before_ms=not_before_ms,
                    untried=0 if charged else 1,
                    until_ms=one.until_ms,
                    **which,
                )
                if charged and not found:
                    session.all("replica_items.outrun", **which)

        if kept:
            self._database.write(change)

    def again(self, replica: str, items: Iterable[tuple[str, str, int]]) -> None:
        """Deliver these once more, at once, whatever was sent before."""
        lines = [(replica, *item) for item in items]
        if lines:
            self._database.write(lambda session: session.bulk("replica_items.again", lines))

    def backlog(self, replica: str) -> int:
        row = self._database.session.one("replica_items.backlog", replica=replica)
        assert row is not None
        return int(row[0])

    def now_ms(self) -> int:
        return self._database.session.now_ms()
