"""The ledger in its place: SQLite in the state folder, or PostgreSQL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kfm.core.errors import BackendUnavailable, ConfigError
from kfm.system import SystemClock

if TYPE_CHECKING:
    from kfm.core.heralds import Herald
    from kfm.ports import Clock, LedgerReader, Store, Witness

POSTGRES = ("postgresql://", "postgres://")


def open_store(
    store: str | None,
    state: str,
    clock: Clock,
    witness: Witness | None = None,
    herald: Herald | None = None,
) -> Store:
    """The ledger, made or migrated as needed."""
    from kfm.store.ledger import SqlStore
    from kfm.store.migrations import migrate

    if store is not None and store.startswith(POSTGRES):
        from kfm.store.postgres import PostgresDatabase

        server = PostgresDatabase(store)
        migrate(server, "postgresql", clock.now_ms())
        return SqlStore(server, witness, herald)
    from kfm.store.sqlite import SqliteDatabase

    path = sqlite_path(store, state)
    make_folder(os.path.dirname(path))
    database = SqliteDatabase(path, clock)
    migrate(database, "sqlite", clock.now_ms())
    return SqlStore(database, witness, herald)


def open_ledger(store: str | None, state: str, clock: Clock) -> LedgerReader:
    """The ledger for reading only; leaves no trace, also where there is none yet."""
    from kfm.store.migrations import applied, check, is_current, migrate
    from kfm.store.reading import Ledger

    if store is not None and store.startswith(POSTGRES):
        from kfm.store.postgres import PostgresDatabase

        server = PostgresDatabase(store, read_only=True)
        if server.is_empty():
            server.close()
        elif is_current(server.session):
            return Ledger(server)
        else:  # a reader changes nothing, and has no copy that it could bring up to date, as of a file
            server.close()
            raise BackendUnavailable(
                "The database was made by an older kfm.",
                remedy="The next command that writes brings it up to date: `kfm run`, for one.",
            )
    else:
        from kfm.store.sqlite import SqliteReader

        path = sqlite_path(store, state)
        if _is_filled(path):
            reader = SqliteReader(path, clock)
            check(applied(reader.session))
            return Ledger(reader)
    from kfm.store.memory import MemoryDatabase

    nothing = MemoryDatabase(clock)
    migrate(nothing, "sqlite", clock.now_ms())
    return Ledger(nothing)


def _is_filled(path: str) -> bool:
    """Is there a ledger? One that can't be looked at is not an empty one."""
    try:
        return os.stat(path).st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise BackendUnavailable(
            f"{path} can't be looked at: {(error.strerror or str(error)).lower()}.",
            remedy="Let this user read the state folder and what is in it.",
        ) from None


def place_of(store: str | None, state: str) -> tuple[int, int] | None:
    """Which file the ledger is, so that another in its place is noticed; None: it is no file, or gone."""
    if store is not None and store.startswith(POSTGRES):
        return None
    try:
        found = os.stat(sqlite_path(store, state))
    except OSError:
        return None
    return found.st_dev, found.st_ino


def sqlite_path(store: str | None, state: str) -> str:
    if store is None:
        return os.path.join(state, "kfm.db")
    if not store.startswith("sqlite:"):
        raise ConfigError(
            f"The store {store.partition(':')[0]} is not known.", remedy="Write sqlite:PATH or postgresql://…"
        )
    return os.path.join(os.path.dirname(state), store.removeprefix("sqlite:"))


def make_folder(path: str) -> None:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise BackendUnavailable(
            f"The folder {path} for the state can't be made: {(error.strerror or str(error)).lower()}.",
            remedy="Name a folder that can be made and written, with `state:` or `store:`.",
        ) from None


def system_clock() -> Clock:
    return SystemClock()


def require_local_disk(path: str) -> str | None:
    """The type of the file system under a path; StoreUnsafe if SQLite can't live on it."""
    from kfm.store.safety import check_local_disk, file_system_type

    kind = file_system_type(path)
    check_local_disk(path, kind)
    return kind
