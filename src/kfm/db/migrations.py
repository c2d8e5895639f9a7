"""Migrations: each and its record in one transaction, up to the schema of this code."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from kfm.db.queries import Dialect, in_dialect, migration_files
from kfm.db.session import Database, Session
from kfm.model.errors import StoreCorrupt, StoreTooNew

Migration = tuple[int, str, str]  # number, name, text


class Migratable(Database, Protocol):
    """A database that can run the statements of a migration."""

    def script(self, sql: str) -> None: ...
    def exclude_others(self) -> None: ...


def checksum(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def is_empty(session: Session) -> bool:
    """No kfm has ever been here."""
    return session.one("migrations.exists") is None


def applied(session: Session) -> dict[int, str]:
    """version → checksum of what the database says it has."""
    if is_empty(session):
        return {}
    return {version: digest for version, _name, digest in session.all("migrations.list")}


def check(done: dict[int, str], known: Sequence[Migration] | None = None) -> None:
    """Refuse a database that this code does not understand."""
    known = migration_files() if known is None else known
    newest = known[-1][0]
    if done and max(done) > newest:
        raise StoreTooNew(f"It is at migration {max(done)}; this kfm knows up to {newest}.")
    for version, name, text in known:
        if version in done and done[version] != checksum(text):
            raise StoreCorrupt(f"Migration {version} ({name}) was applied with another text.")


def is_current(session: Session) -> bool:
    """Nothing to apply. Refuses as `check` does."""
    done = applied(session)
    check(done)
    return len(done) == len(migration_files())


def migrate(
    database: Migratable, dialect: Dialect, now_ms: int, known: Sequence[Migration] | None = None
) -> list[int]:
    """Apply what is missing; returns the versions applied."""
    known = migration_files() if known is None else known
    done = applied(database.session)
    check(done, known)  # before anything is written
    return [one[0] for one in known if one[0] not in done and _apply(database, dialect, now_ms, known, one)]


def _apply(
    database: Migratable, dialect: Dialect, now_ms: int, known: Sequence[Migration], migration: Migration
) -> bool:
    """One migration and its record, together or not at all. False: another process was faster."""
    version, name, text = migration

    def change(session: Session) -> bool:
        database.exclude_others()
        session.all("migrations.create")
        done = applied(session)
        check(done, known)
        if version in done:
            return False
        database.script(in_dialect(text, dialect))
        session.all(
            "migrations.insert", version=version, name=name, checksum=checksum(text), applied_at_ms=now_ms
        )
        return True

    return database.write(change)
