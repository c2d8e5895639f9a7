"""Opens the ledger that the settings name, and refuses file systems and SQLite builds that are not safe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kfm.model.errors import BackendUnavailable, ConfigError, StoreUnsafe, UsageError
from kfm.model.patterns import late
from kfm.system import SystemClock

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader
    from kfm.db.moves import Side
    from kfm.db.postgres import PostgresDatabase
    from kfm.db.queries import Upgrading
    from kfm.db.sqlite import SqliteDatabase
    from kfm.model.incidents import IncidentRenderer
    from kfm.ports import Clock, Emitter


class SupportsClose(Protocol):
    def close(self) -> None: ...


_NETWORK_FILE_SYSTEMS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "glusterfs", "lustre", "beegfs",
    "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.blobfuse",
}  # fmt: skip

_OCTAL = late(r"\\([0-7]{3})")  # how the kernel writes blanks and backslashes in mount points


def check_sqlite_library(version: str) -> None:
    """Refuse libraries with the WAL-reset bug: two processes that write and checkpoint lose commits."""
    number = tuple(int(part) for part in version.split(".")[:3])
    patched = (3, 44, 6) <= number < (3, 45) or (3, 50, 7) <= number < (3, 51)
    if number < (3, 51, 3) and not patched:
        raise StoreUnsafe(
            f"SQLite {version} can lose commits when two processes write (fixed in 3.51.3).",
            remedy="Install the apsw wheel that the requirements pin: it carries its own SQLite.",
        )


def file_system_type(path: str, mounts: str = "/proc/self/mountinfo") -> str | None:
    """The type of the file system that holds a path; None where the machine does not tell."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            table = [line.split() for line in lines]
    except OSError:
        return None
    real = os.path.realpath(path)
    best, kind = "", None
    for fields in table:
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[fields.index("-") + 1]
    return kind


def check_local_disk(path: str, kind: str | None) -> None:
    """SQLite's locks and shared memory do not work over a network."""
    if kind in _NETWORK_FILE_SYSTEMS:
        raise StoreUnsafe(
            f"{path} lies on a network file system ({kind}).",
            remedy="Set `state` to a folder on a local disk, or `store` to a postgresql:// address.",
        )


POSTGRES = ("postgresql://", "postgres://")


def open_store(
    store: str | None,
    state: str,
    clock: Clock,
    emitter: Emitter | None = None,
    renderer: IncidentRenderer | None = None,
    upgrading: Upgrading | None = None,
    *,
    connections: int | None = None,
    urgent: bool = False,
) -> Ledger:
    """The ledger, made or migrated as needed; `upgrading` shows how far that is. On a server it shares the
    connections of this process, as many as were named; what is `urgent` does not wait for the rest."""
    from kfm.db.ledger import Ledger
    from kfm.db.queries import migrate

    if store is not None and store.startswith(POSTGRES):
        from kfm.db.postgres import PostgresDatabase
        from kfm.db.postgres_pool import shared_pool

        server = PostgresDatabase(shared_pool(store, connections), urgent=urgent)
        with closed_if_it_fails(server):
            migrate(server, "postgresql", clock.now_ms(), upgrading=upgrading, rolling=True)
        return Ledger(server, emitter, renderer)
    from kfm.db.sqlite import SqliteDatabase

    path = sqlite_path(store, state)
    make_folder(os.path.dirname(path))
    database = SqliteDatabase(path, clock)
    with closed_if_it_fails(database):
        migrate(database, "sqlite", clock.now_ms(), upgrading=upgrading)
    return Ledger(database, emitter, renderer)


@contextmanager
def closed_if_it_fails(opened: SupportsClose) -> Iterator[None]:
    """What was opened for something that can't be done: who tries again opens it anew."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


def open_ledger(
    store: str | None, state: str, clock: Clock, *, connections: int | None = None
) -> LedgerReader:
    """The ledger for reading only; leaves no trace, also where there is none yet."""
    from kfm.db.ledger_reader import LedgerReader
    from kfm.db.queries import is_usable, migrate, newest

    if store is not None and store.startswith(POSTGRES):
        from kfm.db.postgres import PostgresDatabase
        from kfm.db.postgres_pool import shared_pool

        server = PostgresDatabase(shared_pool(store, connections), read_only=True)
        with closed_if_it_fails(server):
            if server.is_empty():
                server.close()
            elif is_usable(server.session):
                server.keep_to(newest())
                return LedgerReader(server)
            else:  # a reader changes nothing, and has no copy that it could bring up to date, as of a file
                raise earlier_kfm("The database")
    else:
        from kfm.db.sqlite import SqliteReader

        path = sqlite_path(store, state)
        if _is_filled(path):
            return LedgerReader(SqliteReader(path, clock))
    from kfm.db.sqlite import MemoryDatabase

    nothing = MemoryDatabase(clock)
    migrate(nothing, "sqlite", clock.now_ms())
    return LedgerReader(nothing)


@contextmanager
def kept_connections(store: str | None, connections: int | None) -> Iterator[None]:
    """So many connections for this process, kept as long as this lasts: as many as a service needs, where no
    number is named."""
    if store is None or not store.startswith(POSTGRES):
        yield
        return
    from kfm.db.postgres_pool import kept_pool

    with kept_pool(store, connections):
        yield


def earlier_kfm(what: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"{what} was made by an older kfm, or is being upgraded.",
        remedy="The next command that writes brings it up to date: `kfm run`, for one; on "
        "PostgreSQL it may take `kfm migrate`. Killed, it goes on.",
    )


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

    kind = file_system_type(path)
    check_local_disk(path, kind)
    return kind


def open_database(store: str | None, state: str, clock: Clock) -> PostgresDatabase | SqliteDatabase:
    """The database that is there, whatever its schema: nothing is made or migrated."""
    if store is not None and store.startswith(POSTGRES):
        from kfm.db.postgres import PostgresDatabase

        return PostgresDatabase(store)
    from kfm.db.sqlite import SqliteDatabase

    path = sqlite_path(store, state)
    if not _is_filled(path):
        raise _no_ledger(path)
    return SqliteDatabase(path, clock)


def _no_ledger(path: str) -> UsageError:
    return UsageError(f"There is no ledger at {path}.", remedy="`kfm run` makes one.")


def open_side(store: str | None, state: str, clock: Clock, *, fill: bool = False) -> Side:
    """A ledger as one end of a copy; one that is to be filled is made where there is none."""
    if store is not None and store.startswith(POSTGRES):
        from kfm.db.postgres_side import PostgresSide

        return PostgresSide(store)
    from kfm.db.sqlite_side import SqliteSide

    path = sqlite_path(store, state)
    if not fill and not _is_filled(path):
        raise _no_ledger(path)
    return SqliteSide(path, clock, fill=fill)
