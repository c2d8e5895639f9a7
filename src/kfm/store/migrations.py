"""Bringing a database to the schema of this code, one migration and its record at a time."""

from __future__ import annotations

import hashlib
from typing import Protocol

from kfm.core.errors import StoreCorrupt, StoreTooNew
from kfm.store.queries import SERIAL_KEY, Dialect, migration_files
from kfm.store.session import Database, Session


class Migratable(Database, Protocol):
    def script(self, sql: str) -> None: ...
    def exclude_others(self) -> None: ...


def checksum(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def newest() -> int:
    return migration_files()[-1][0]


def applied(session: Session) -> dict[int, str]:
    """version → checksum of what the database says it has."""
    return {version: digest for version, _name, digest in session.all("migrations.list")}


def check(done: dict[int, str]) -> None:
    """Refuse a database that this code does not understand."""
    if done and max(done) > newest():
        raise StoreTooNew(f"It is at migration {max(done)}; this kfm knows up to {newest()}.")
    for version, name, text in migration_files():
        if version in done and done[version] != checksum(text):
            raise StoreCorrupt(f"Migration {version} ({name}) was applied with another text.")


def migrate(database: Migratable, dialect: Dialect, now_ms: int) -> list[int]:
    """Apply what is missing; returns the versions applied."""

    def apply(session: Session, version: int, name: str, text: str) -> bool:
        database.exclude_others()
        session.all("migrations.create")
        done = applied(session)
        check(done)
        if version in done:
            return False
        database.script(text.replace("SERIAL_KEY", SERIAL_KEY[dialect]))
        session.all(
            "migrations.insert", version=version, name=name, checksum=checksum(text), applied_at_ms=now_ms
        )
        return True

    return [
        version
        for version, name, text in migration_files()
        if database.write(lambda session, m=(version, name, text): apply(session, *m))  # type: ignore[misc]
    ]


def is_current(session: Session) -> bool:
    """Nothing to apply. A database without the table is not current; the caller migrates."""
    done = applied(session)
    check(done)
    return len(done) == len(migration_files())
