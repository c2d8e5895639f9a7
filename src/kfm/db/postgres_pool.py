"""Connections to PostgreSQL: the address as libpq reads it, and a bounded pool of them for each process."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kfm import __version__
from kfm.db.queries import newest
from kfm.model.errors import LEDGER, ConfigError, ExtraMissing, StoreBusy, StoreUnsafe
from kfm.model.patterns import late

if TYPE_CHECKING:
    import psycopg

    from kfm.db.session import Row

WAIT_MAX_MS = 30_000
CONNECTIONS = 3  # of a process, where the settings name no number
SERVICE_CONNECTIONS = 6  # of `kfm serve`
# What a DSN does not say: every wait has an end, also when the network swallows packets.
_CONNECTION = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": WAIT_MAX_MS,
    "client_encoding": "utf8",
}
_PORTS = late(r"[0-9,]*")
_SEARCH_PATH = late(r"(?:-c\s*|--)search[_-]path\s*=\s*(\S+)")
_WEAKER = {
    "fsync": ("off",),
    "synchronous_commit": ("off",),
    "full_page_writes": ("off",),
}


def driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ExtraMissing("PostgreSQL: install kfm-kernel[postgres].") from error
    return psycopg


def _parsed(dsn: str) -> dict[str, str]:
    """What libpq reads from an address."""
    psycopg = driver()
    try:
        found = {name: str(value) for name, value in psycopg.conninfo.conninfo_to_dict(dsn).items()}
    except psycopg.Error:  # it quotes what it can't read, which may be the password
        found = None
    # A slash or an @ that the password has unescaped: the rest of it is read as a host, a port or a name.
    is_cut = found is not None and (
        "@" in found.get("host", "")
        or not _PORTS.fullmatch(found.get("port", ""))
        or ("@" in found.get("dbname", "") and "%40" not in dsn)
    )
    if found is None or is_cut:
        raise ConfigError(
            "The address of the PostgreSQL database can't be read.",
            remedy="Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, and in the password %2F for a "
            "slash, %40 for an @, %25 for a %, %20 for a blank.",
        ) from None
    return found


def place_of(dsn: str) -> str:
    """Where a database is, for people and for the records: host, port, name and schema as libpq reads them.

    Never from the text: what of it is the password, libpq and other readers of addresses judge differently.
    """
    found = _parsed(dsn)
    host, name = quote(found.get("host", ""), safe=",:[]"), quote(found.get("dbname", ""), safe="")
    port = f":{found['port']}" if found.get("port") else ""
    path = _SEARCH_PATH.search(found.get("options", ""))
    schema = f"?options=-csearch_path%3D{quote(path[1], safe=',')}" if path else ""
    return f"postgresql://{host}{port}/{name}{schema}"


@dataclass(eq=False, slots=True)
class ServerConnection:
    """One connection, and what its server said of itself when it was made."""

    driver: psycopg.Connection[Row]
    weaker: str | None  # a setting by which a commit may be lost, with its value
    pooled: bool  # a pooler is between: each transaction may be on another connection of its own
    is_lost: bool = False  # nothing more is to be done with it


@dataclass(eq=False, slots=True)
class _Turn:
    """A thread that waits for a connection."""

    thread: int
    urgent: bool
    given: threading.Event = field(default_factory=threading.Event)


class ConnectionPool:
    """At most `size` connections of this process to one database, each lent to one thread at a time.

    They are lent in the order of asking. The last free one is for what is urgent, the renewal of leases: a
    crowd of readers makes none lapse. They keep nothing from one loan to the next.
    """

    def __init__(self, dsn: str, size: int = 1) -> None:
        self._psycopg = driver()
        options = _parsed(dsn)
        path = _SEARCH_PATH.search(options.get("options", ""))
        self.dsn = dsn
        self.size = size
        self.where = place_of(dsn)
        self.search_path = path[1] if path else None  # said in each transaction: poolers refuse it here
        self.schema: str | None = None  # where its tables are, once someone had to know
        if path and not (rest := _SEARCH_PATH.sub("", options["options"]).strip()):
            del options["options"]
        elif path:
            options["options"] = rest
        if "," in options.get("host", "") + options.get("hostaddr", ""):
            options.setdefault("target_session_attrs", "primary")  # the others can't be written to
        # Read by `kfm migrate`: who is at work, and what it knows.
        name = f"kfm {__version__} (level {newest()})"
        self._options = {**_CONNECTION, "application_name": name, **options}
        self.users = 0  # databases that are open with it
        self._lock = threading.Lock()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._idle: list[ServerConnection] = []
        self._holders: set[int] = set()
        self._waiting: deque[_Turn] = deque()

    def lend(self, wait_max_ms: int = WAIT_MAX_MS, *, urgent: bool = False) -> ServerConnection:
        """A connection for this thread, which gives it back; StoreBusy if none gets free in time."""
        if self._process != os.getpid():  # a fork: those connections are the parent's
            self._lock = threading.Lock()
            self._begin_anew()
        self._take_turn(wait_max_ms, urgent=urgent)
        try:
            return self._sound_one() or self._connect()
        except BaseException:
            self._leave()
            raise

    def take_back(self, lent: ServerConnection) -> None:
        """From the thread that it was lent to. One that broke takes the idle ones with it: they would fail
        one after the other."""
        broken: list[ServerConnection] = []
        with self._lock:
            if lent.is_lost or lent.driver.closed:
                broken, self._idle = [lent, *self._idle], []
            elif not self.users:
                broken = [lent]
            else:
                self._idle.append(lent)
        for one in broken:
            one.driver.close()
        self._leave()

    def _take_turn(self, wait_max_ms: int, *, urgent: bool) -> None:
        me = threading.get_ident()
        with self._lock:
            assert me not in self._holders, "a thread that has a connection asked for another"
            if self._has_room(urgent=urgent):
                self._holders.add(me)
                return
            turn = _Turn(me, urgent)
            self._waiting.append(turn)
        try:
            in_time = turn.given.wait(wait_max_ms / 1000)
        except BaseException:
            if not self._give_up(turn):
                self._leave()
            raise
        if not in_time and self._give_up(turn):
            raise StoreBusy(
                f"{self.where}: the {self.size} connections of this process have been in use for "
                f"{wait_max_ms} ms.",
                remedy="Raise `limits.store_connections`, or find out what takes so long.",
                backend=LEDGER,
            )

    def _has_room(self, *, urgent: bool) -> bool:
        kept = 0 if urgent or self.size == 1 else 1
        return len(self._holders) < self.size - kept

    def _give_up(self, turn: _Turn) -> bool:
        """False: its turn had just come."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
        return False

    def _leave(self) -> None:
        with self._lock:
            self._holders.discard(threading.get_ident())
            for turn in sorted(self._waiting, key=lambda turn: not turn.urgent):
                if not self._has_room(urgent=turn.urgent):
                    break
                self._waiting.remove(turn)
                self._holders.add(turn.thread)
                turn.given.set()

    def _sound_one(self) -> ServerConnection | None:
        """An idle connection of which the server has said nothing meanwhile: its only news is the end."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                found = self._idle.pop()
            if not found.driver.closed:
                news = select.poll()
                news.register(found.driver.fileno(), select.POLLIN)
                if not news.poll(0):
                    return found
            found.driver.close()

    def _connect(self) -> ServerConnection:
        connection = self._psycopg.connect(autocommit=True, **self._options)
        try:
            settings = ("server_encoding", *_WEAKER)
            asked = ", ".join(f"current_setting('{name}')" for name in settings)
            row = connection.execute(f"SELECT {asked}, pg_backend_pid()", prepare=False).fetchone()
            said = dict(zip(settings, row, strict=False))
            if said["server_encoding"] != "UTF8":
                raise StoreUnsafe(
                    f"The database is encoded as {said['server_encoding']}; UTF8 is needed.",
                    remedy="Create it with ENCODING 'UTF8'.",
                )
            pooled = row[-1] != connection.info.backend_pid
            if pooled:
                connection.prepare_threshold = None
        except BaseException:
            connection.close()
            raise
        return ServerConnection(connection, weaker_setting(said), pooled)

    def opened(self) -> ConnectionPool:
        self.users += 1
        return self

    def closed(self) -> None:
        """One database fewer; with the last one its connections are closed."""
        with _registry:
            self.users -= 1
            if self.users:
                return
            if _pools.get(self.dsn) is self:
                del _pools[self.dsn]
        if self._process != os.getpid():
            return
        with self._lock:
            idle, self._idle = self._idle, []
        for one in idle:
            one.driver.close()


def weaker_setting(said: dict[str, str]) -> str | None:
    """The first of a server's settings by which it acknowledges what it may lose."""
    return next((f"{name}={said[name]}" for name, weak in _WEAKER.items() if said[name] in weak), None)


_registry = threading.Lock()
_pools: dict[str, ConnectionPool] = {}
_usual = [CONNECTIONS]  # where no size is named; the last counts


def shared_pool(dsn: str, size: int | None = None) -> ConnectionPool:
    """The pool of this process for an address: one for all that open it; `closed` ends a use of it."""
    with _registry:
        pool = _pools.get(dsn)
        if pool is None:
            pool = _pools[dsn] = ConnectionPool(dsn, size or _usual[-1])
        return pool.opened()


@contextmanager
def kept_pool(dsn: str, size: int | None = None) -> Iterator[None]:
    """This process is a service: it keeps its connections between requests, and may have more of them, also
    where a new password makes the address another."""
    _usual.append(SERVICE_CONNECTIONS)
    pool = shared_pool(dsn, size)
    try:
        yield
    finally:
        pool.closed()
        _usual.pop()
