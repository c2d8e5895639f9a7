"""Retention: pages of old rows, read and taken away in short transactions under one fenced lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from kfm.db import governance, leases, rows
from kfm.db.queries import parameters_of
from kfm.db.session import Database, Row, Session
from kfm.model.audit import UNITS, Seal, SealedPage, Span, from_details, spans
from kfm.model.audit import Row as SealedRow
from kfm.model.errors import LostLease, StoreBusy
from kfm.model.records import Justification, Lock, Record, governance_entry
from kfm.model.retention import (
    ARTIFACTS,
    ENTRY,
    Cuts,
    PageDecision,
    Partition,
    RetiredSpan,
    RowKind,
    SealDecision,
    SealedKind,
    Value,
    decide_page,
    outside,
    removal_of,
    retired_from,
    rows_details,
    sealed_details,
    subject_of,
)

ENTRIES_PAGE = 1000
SEAL_ROWS = 1000
MEMBERS_PAGE = 5000
PARTITION_ROWS = 100_000  # also in migration 43
CUT_LOCK = 4_900_153
# As its migration has it for the partitions that were there: a partitioned table itself has no such setting.
VACUUMED = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000"
# Who waits for a table keeps all that come after it waiting, too: a backup may read it for an hour.
TABLE_WAIT_MS = 200
# Kind → the statement that reads a page of it, and the one that takes a row away.
PAGES = {
    "invocations": "retention.invocations",
    "attempts": "retention.attempts",
    "call_retries": "retention.call_retries",
    "trigger_documents": "retention.trigger_documents",
    "inputs": "retention.inputs",
    "previews": "retention.previews",
    "request_members": "retention.request_members",
    "request_details": "retention.request_details",
    "run_states": "retention.run_states",
    "replay_units": "retention.replay_units",
    "dead_bodies": "retention.dead_bodies",
}
REMOVALS = {
    "outbox": "retention.removed_outbox",
    "hook_deliveries": "retention.removed_hook_deliveries",
    "unit_history": "retention.removed_unit_history",
    "invocations": "retention.removed_invocations",
    "attempts": "retention.removed_attempts",
    "call_retries": "retention.removed_call_retries",
    "trigger_documents": "retention.removed_trigger_documents",
    "inputs": "retention.removed_inputs",
    "previews": "retention.removed_previews",
    "request_members": "retention.removed_request_members",
    "request_details": "retention.slimmed_request_details",
    "run_states": "retention.removed_run_states",
    "replay_units": "retention.removed_replay_units",
    "dead_bodies": "retention.removed_dead_bodies",
}
Counts = Callable[[str, int], bool]
_ENCODE = msgspec.json.Encoder().encode
_MEMBERS = msgspec.json.Decoder(list[list[Any]])


class Mark(Record, frozen=True):
    """How far a kind was looked through: a place among rows, or a row of the chain and those passed over."""

    place: tuple[Value, ...] | None = None
    through: int = 0
    waiting: tuple[
        int, ...
    ] = ()  # seals before it that were passed over, because a message was not delivered


class Gone(Record, frozen=True):
    """What has gone of a kind, ever."""

    before_ms: int
    rows: int
    bytes: int


class RetentionReader:
    """What may go, and what has gone."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def mark(self, kind: str) -> Mark:
        return _mark(self._database.session, kind)

    def table_sizes(self) -> dict[str, int]:
        """Table → bytes, with its indexes."""
        return {row[0]: int(row[1]) for row in self._database.session.all("storage.tables")}

    def free_bytes(self) -> int:
        """Bytes of the database that rows have left, for the next rows to take."""
        row = self._database.session.one("storage.free")
        return int(row[0]) if row else 0

    def gone(self) -> dict[str, Gone]:
        """Kind → what has gone of it."""
        found = self._database.session.all("retention.marks")
        return {row[0]: Gone(before_ms=row[2], rows=row[3], bytes=row[4]) for row in found}

    def page(self, kind: RowKind, mark: Mark, before_ms: int, limit: int) -> list[Row]:
        return _page(self._database.session, kind, mark, before_ms, limit)

    def seals(self, stream: str, after: int, limit: int = 100) -> list[tuple[int, Seal]]:
        """Seals of a stream after a row of the chain, each with its own row."""
        found = self._database.session.all(
            "retention.seals", stream=stream, after_number=after, row_limit=limit
        )
        return [_seal(stream, row) for row in found]

    def seal(self, stream: str, number: int) -> tuple[int, Seal] | None:
        row = self._database.session.one("retention.seal", stream=stream, number=number)
        return None if row is None else _seal(stream, row)

    def sealed_rows(self, seal: Seal) -> list[SealedRow]:
        """What is there of the rows of a seal."""
        found: list[SealedRow] = []
        for first, last in seal.members:
            at = first
            while at <= last and (page := self._between(seal.stream, (at, last))):
                found += page
                at = page[-1].number + 1
        return found

    def rows_after(self, stream: str, number: int) -> Sequence[SealedRow]:
        """As many rows of a stream after that one as a seal takes."""
        return self._between(stream, (number + 1, 2**62))

    def _between(self, stream: str, span: Span) -> Sequence[SealedRow]:
        session = self._database.session
        if stream == UNITS:
            return governance.pages(session, span, SEAL_ROWS)
        return governance.between(session, span, SEAL_ROWS)

    def retired(self, kind: str) -> dict[int, list[RetiredSpan]]:
        """Row of a seal → what has gone of what it sealed, as the chain tells it."""
        found: dict[int, list[RetiredSpan]] = {}
        for subject, details in self._entries():
            if subject == subject_of(kind):
                one = retired_from(details)
                found.setdefault(one.seal, []).append(one)
        return found

    def _entries(self) -> Iterator[tuple[str, dict[str, Any]]]:
        after = 0
        while page := self._database.session.all(
            "retention.entries", after_number=after, row_limit=ENTRIES_PAGE
        ):
            yield from ((subject, rows.value_of(details)) for _, subject, details in page)
            after = page[-1][0]

    def cuts(self, kind: SealedKind, before_ms: int) -> Cuts:
        """The partitions of a kind that get no more rows, by whether all of them are old."""
        if kind.stream == UNITS:
            return Cuts()
        session, old, young = self._database.session, list[Partition](), list[Partition]()
        for name, low, high, given in session.all("retention.partitions"):
            if high <= given:
                row = session.one("retention.partition_end", low=low, high=high)
                is_empty = row is None or row[0] is None
                found = Partition(name=name, low=low, high=high, is_empty=is_empty)
                (old if row is None or is_empty or row[0] < before_ms else young).append(found)
        return Cuts(old=tuple(old), young=tuple(young))

    def needed_pages(self, pages: Sequence[SealedPage]) -> set[int]:
        """Those of these pages that tell of the last state of a unit, or of one that has not succeeded.

        What is not the last will never be it again, so this may be read long before it is used."""
        named = {page.number: [member[0] for member in _MEMBERS.decode(page.members)] for page in pages}
        wanted = sorted({wal_id for members in named.values() for wal_id in members})
        last: dict[str, int] = {}
        for at in range(0, len(wanted), MEMBERS_PAGE):
            part = _ENCODE(wanted[at : at + MEMBERS_PAGE]).decode()
            for wal_id, status, trail in self._database.session.all("retention.trails", wal_ids=part):
                if status == "succeeded" and trail.strip():
                    last[wal_id] = int(trail.split()[-1])
        return {
            number
            for number, members in named.items()
            if any(last.get(wal_id, number) == number for wal_id in members)
        }


class Retention(RetentionReader):
    """Takes away what was decided on: each method is one short transaction that looks at the fence first."""

    def begin(self, worker_id: str, lease_ms: int, dead: leases.Dead) -> int | Lock:
        """The fence of the lease, or the lock of the process that has it."""

        def change(session: Session) -> int | Lock:
            now_ms = session.now_ms()
            lock = leases.lock_for_update(session, leases.RETENTION)
            if lock.holder is not None and not leases.is_gone(lock, now_ms, dead):
                return lock
            leases.take(session, lock, lock.fence + 1, worker_id, "", now_ms, now_ms + lease_ms)
            return lock.fence + 1

        return self._database.write(change)

    def end(self, fence: int) -> None:
        self._database.write(
            lambda session: session.all("locks.release", scope=leases.RETENTION, fence=fence)
        )

    def renew(self, fence: int, lease_ms: int) -> None:
        """Raises LostLease once another process has it."""
        self._database.write(lambda session: _hold(session, fence, lease_ms))

    def retire_page(
        self,
        kind: RowKind,
        fence: int,
        mark: Mark,
        before_ms: int,
        by: Justification,
        *,
        lease_ms: int,
        limit: int,
        is_counted: Counts,
    ) -> PageDecision:
        """Decide on the next page of a kind and take away what goes; the chain keeps a root over it."""

        def change(session: Session) -> PageDecision:
            _hold(session, fence, lease_ms)
            found = _page(session, kind, mark, before_ms, limit)
            decision = decide_page(kind, found, before_ms, limit, is_counted)
            if decision.place is None:
                return decision
            keys = [removal_of(kind, stored) for stored in decision.going]
            _remove(session, kind.name, keys)
            details = rows_details(kind, decision, before_ms)
            _moved(session, kind.name, Mark(place=decision.place), before_ms, details)
            if keys:
                entry = governance_entry(ENTRY, subject_of(kind.name), session.now_ms(), by, **details)
                governance.append(session, [entry])
            return decision

        return self._database.write(change)

    def tell_artifacts(
        self, fence: int, details: dict[str, Any], by: Justification, *, lease_ms: int
    ) -> None:
        """Tell the chain of files that go now: before they do, so that none is gone that it does not tell."""

        def change(session: Session) -> None:
            _hold(session, fence, lease_ms)
            _moved(session, ARTIFACTS, Mark(), details["before_ms"], details)
            entry = governance_entry(ENTRY, subject_of(ARTIFACTS), session.now_ms(), by, **details)
            governance.append(session, [entry])

        self._database.write(change)

    def cut(self, kind: SealedKind) -> bool:
        """Make the next partition before its numbers are given. Where that was too late, rows are in the
        default one meanwhile, and the next begins some way above them. False: others have the table; later.
        """

        def next_low(session: Session) -> int | None:
            found = session.all("retention.partitions")
            top, given = max((row[2] for row in found), default=0), found[0][3] if found else 0
            if not found or top - given >= PARTITION_ROWS:
                return None
            return int(top) if given < top else int(given) + PARTITION_ROWS

        def change(session: Session) -> None:
            _briefly(self._database)
            # Two processes would make the same one.
            lock = f"{CUT_LOCK}, current_schema()::regnamespace::oid::int"
            _script(self._database, f"SELECT pg_advisory_xact_lock({lock})")
            if (low := next_low(session)) is None:
                return
            name, high = f"{kind.table}_{low}", (low // PARTITION_ROWS + 1) * PARTITION_ROWS
            # Made first and attached then: so no reader or writer of the others waits.
            _script(
                self._database,
                f"CREATE TABLE {name} (LIKE {kind.table} INCLUDING DEFAULTS) WITH ({VACUUMED})",
            )
            _script(
                self._database,
                f"ALTER TABLE {kind.table} ATTACH PARTITION {name} FOR VALUES FROM ({low}) TO ({high})",
            )

        if kind.stream == UNITS or next_low(self._database.session) is None:
            return True
        return self._if_free(change)

    def _if_free(self, change: Callable[[Session], None]) -> bool:
        """Did it get the table at once?"""
        try:
            self._database.write(change)
        except StoreBusy:
            return False
        return True

    def retire_partition(
        self,
        kind: SealedKind,
        fence: int,
        partition: Partition,
        decided: Sequence[tuple[int, SealDecision]],
        mark: Mark,
        before_ms: int,
        by: Justification,
        *,
        lease_ms: int,
    ) -> bool:
        """Drop a partition, after what stays of it was moved to the default one; tell the chain of each seal.

        No row is in two places, and none is lost: other transactions wait for this one or come before it.
        False: others have the table, so nothing was done; later."""
        going = [number for _, decision in decided for number in decision.going]
        is_going = " OR ".join(f"number BETWEEN {first} AND {last}" for first, last in spans(sorted(going)))
        details = [sealed_details(row, decision, before_ms) for row, decision in decided if decision.going]

        def change(session: Session) -> None:
            _hold(session, fence, lease_ms)
            before = _briefly(self._database)
            _script(self._database, f"LOCK TABLE {kind.table} IN ACCESS EXCLUSIVE MODE")
            _script(self._database, f"SET LOCAL lock_timeout = '{before}'")
            _script(self._database, f"ALTER TABLE {kind.table} DETACH PARTITION {partition.name}")
            stays = f"NOT ({is_going or 'false'}) OR delivered_at_ms IS NULL"
            _script(
                self._database,
                f"INSERT INTO {kind.table} ({_OUTBOX}) SELECT {_OUTBOX} FROM {partition.name} WHERE {stays}",
            )
            _script(self._database, f"DROP TABLE {partition.name}")
            _remove(session, kind.name, [(number,) for number in outside(going, partition)])
            _script(self._database, f"DELETE FROM hook_deliveries WHERE {is_going or 'false'}")
            gone = {name: sum(one[name] for one in details) for name in ("rows", "bytes")}
            _moved(session, kind.name, mark, before_ms, gone)
            now_ms, subject = session.now_ms(), subject_of(kind.name)
            governance.append(
                session, [governance_entry(ENTRY, subject, now_ms, by, **one) for one in details]
            )

        return self._if_free(change)

    def retire_seal(
        self,
        kind: SealedKind,
        fence: int,
        seal_row: int,
        decision: SealDecision,
        mark: Mark,
        before_ms: int,
        by: Justification,
        *,
        lease_ms: int,
    ) -> None:
        """Take away what was decided on of the rows of one seal, tell the chain, and move the mark."""

        def change(session: Session) -> None:
            _hold(session, fence, lease_ms)
            keys = [(number,) for number in decision.going]
            _remove(session, kind.name, keys)
            if kind.stream != UNITS:
                _remove(session, "hook_deliveries", keys)
            details = sealed_details(seal_row, decision, before_ms)
            _moved(session, kind.name, mark, before_ms, details)
            if keys:
                entry = governance_entry(ENTRY, subject_of(kind.name), session.now_ms(), by, **details)
                governance.append(session, [entry])

        self._database.write(change)


_OUTBOX = (
    "number, event_id, topic, subject, body, recorded_at_ms, tries, not_before_ms, delivered_at_ms, packed"
)


def _script(database: Any, sql: str) -> None:
    """Only inside `write`, and only where there are partitions."""
    database.script(sql)


def _briefly(database: Any) -> str:
    """From here on in this transaction no lock is waited for long; how long it was before."""
    before = str(database.execute("SELECT current_setting('lock_timeout')")[0][0])
    _script(database, f"SET LOCAL lock_timeout = '{TABLE_WAIT_MS}ms'")
    return before


def _hold(session: Session, fence: int, lease_ms: int) -> None:
    """The lease is ours, and stays so for a while."""
    until_ms = session.now_ms() + lease_ms
    if session.one("locks.renew", scope=leases.RETENTION, fence=fence, lease_until_ms=until_ms) is None:
        raise LostLease("Retention has passed to another process.", remedy="It goes on from where it was.")


def _mark(session: Session, kind: str) -> Mark:
    row = session.one("retention.mark", kind=kind)
    return Mark() if row is None else msgspec.json.decode(row[0], type=Mark)


def _moved(session: Session, kind: str, mark: Mark, before_ms: int, gone: dict[str, Any]) -> None:
    session.all(
        "retention.put_mark",
        kind=kind,
        mark=_ENCODE(mark).decode(),
        before_ms=before_ms if gone["rows"] else 0,
        gone_rows=gone["rows"],
        gone_bytes=gone["bytes"],
        at_ms=session.now_ms(),
    )


def _page(session: Session, kind: RowKind, mark: Mark, before_ms: int, limit: int) -> list[Row]:
    names = [name for name, _ in kind.place]
    values = mark.place or tuple(first for _, first in kind.place)
    more = {"before_ms": before_ms} if kind.is_aged_by_others else {}
    return session.all(PAGES[kind.name], **dict(zip(names, values, strict=True)), **more, row_limit=limit)


def _remove(session: Session, name: str, keys: Sequence[tuple[Any, ...]]) -> None:
    statement = REMOVALS[name]
    if keys:
        assert len(parameters_of(statement)) == len(keys[0])
        session.bulk(statement, keys)


def _seal(stream: str, row: Row) -> tuple[int, Seal]:
    return int(row[0]), from_details(stream, rows.value_of(row[1]))
