"""PostgreSQL through psycopg, for fleets: connections, sessions, leases by the server's clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from msgspec import json

from kfm.db.queries import is_empty, parameters_of, queries
from kfm.db.session import Row, Session
from kfm.model.errors import (
    LEDGER,
    BackendUnavailable,
    ConfigError,
    ExtraMissing,
    KfmError,
    LedgerMoved,
    SchemaViolation,
    StoreBusy,
    StoreUnsafe,
)
from kfm.model.patterns import late
from kfm.model.redaction import redact

if TYPE_CHECKING:
    import psycopg


T = TypeVar("T")

RACES_MAX = 20
COMMIT = "COMMIT"
WAIT_MAX_MS = 30_000
MIGRATION_LOCK = 4_900_147  # any number that no other program on the server uses
_LOST_RACE = {"40001", "40P01"}  # serialization failure, deadlock
FENCED = "KFM01"  # the state of what the triggers of a ledger that moves raise
_NOT_IN_TIME = {"55P03", "57014"}  # lock not available, query cancelled
# What a DSN does not say: every wait has an end, also when the network swallows packets.
_CONNECTION = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": WAIT_MAX_MS,
    "client_encoding": "utf8",
    "application_name": "kfm",
}
_PORTS = late(r"[0-9,]*")
_SEARCH_PATH = late(r"search_path\s*=\s*(\S+)")
_WEAKER = {
    "fsync": ("off",),
    "synchronous_commit": ("off",),
    "full_page_writes": ("off",),
}


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ExtraMissing("PostgreSQL: install kfm-kernel[postgres].") from error
    return psycopg


def _parsed(dsn: str) -> dict[str, str]:
    """What libpq reads from an address."""
    psycopg = _driver()
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


class PostgresDatabase:
    """One connection, made again after it broke. Not shared between threads."""

    def __init__(
        self,
        dsn: str,
        *,
        read_only: bool = False,
        unsafe_for_tests: bool = False,
        wait_max_ms: int = WAIT_MAX_MS,
    ) -> None:
        self._psycopg = _driver()
        self._dsn = dsn
        self._where = place_of(dsn)
        self._read_only = read_only
        self._checked = not read_only and not unsafe_for_tests
        self._wait_max_ms = wait_max_ms
        self._changing = False
        self._outgoing: list[PendingStatement] = []
        self._journey = ExitStack()
        self._pipeline: psycopg.Pipeline | None = None
        self._session = PostgresSession(self)
        self._connection = self._connect()

    def _connect(self) -> psycopg.Connection[Row]:
        connection = None
        try:
            options = _CONNECTION | _parsed(self._dsn)
            connection = self._psycopg.connect(autocommit=True, **options)
            if self._checked:
                self._check_durability(connection)
            self._check_encoding(connection)
            for setting, value in self._settings().items():
                connection.execute("SELECT set_config(%s, %s, false)", [setting, value])
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, self._psycopg.Error):
                raise self._translated(error) from error
            raise
        return connection  # type: ignore[no-any-return]

    def _settings(self) -> dict[str, str]:
        return {
            "lock_timeout": f"{self._wait_max_ms}ms",
            # A process that is stopped inside a transaction must not hold its row locks for ever.
            "idle_in_transaction_session_timeout": f"{self._wait_max_ms}ms",
            # The guards re-read rows once they hold them: that needs READ COMMITTED.
            "default_transaction_isolation": "read committed",
            "default_transaction_read_only": "on" if self._read_only else "off",
        }

    @staticmethod
    def _check_durability(connection: psycopg.Connection[Row]) -> None:
        """Refuse a server that acknowledges what it may lose."""
        for setting, weak in _WEAKER.items():
            row = connection.execute("SELECT current_setting(%s)", [setting]).fetchone()
            if row is not None and row[0] in weak:
                raise StoreUnsafe(
                    f"PostgreSQL runs with {setting}={row[0]}, so a commit may be lost.",
                    remedy=f"Set {setting}=on on the server, the database and the role.",
                )

    @staticmethod
    def _check_encoding(connection: psycopg.Connection[Row]) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreUnsafe(
                f"The database is encoded as {encoding}; UTF8 is needed.",
                remedy="Create it with ENCODING 'UTF8'.",
            )

    def _translated(self, error: Exception) -> KfmError:
        # The headline: libpq explains on further lines what it can only guess.
        text = f"{self._where}: {redact(str(error)).strip().partition(chr(10))[0]}"
        if getattr(error, "sqlstate", None) == FENCED:
            return LedgerMoved(redact(str(error)).partition(chr(10))[0], backend=LEDGER)
        if getattr(error, "sqlstate", None) in _NOT_IN_TIME:
            busy = f"{self._where}: other processes have had it for {self._wait_max_ms} ms."
            return StoreBusy(busy, backend=LEDGER)
        if isinstance(error, self._psycopg.DataError | self._psycopg.IntegrityError | UnicodeEncodeError):
            return SchemaViolation(text)
        return BackendUnavailable(text, backend=LEDGER)

    @property
    def session(self) -> Session:
        return self._session

    def is_empty(self) -> bool:
        """No kfm has ever been here."""
        return is_empty(self._session)

    def execute(self, sql: str, parameters: dict[str, Any] | None = None) -> list[Row]:
        """One statement, of the transaction under way if there is one; errors in our words."""
        sent = self.send(PendingStatement(sql, parameters))
        self.flush()
        return sent.answers

    def send(self, sent: PendingStatement) -> PendingStatement:
        """Send without waiting: at once; in a transaction when an answer is needed, or at its end."""
        self._outgoing.append(sent)
        if not self._changing:
            self.flush()
        return sent

    def flush(self) -> None:
        """Send everything that is queued, in one round trip."""
        outgoing, self._outgoing = self._outgoing, []
        if not outgoing:
            return
        self._reconnect()
        try:
            if self._pipeline is None and (len(outgoing) == 1 or not self._psycopg.Pipeline.is_supported()):
                for sent in outgoing:
                    self._read(sent, self._start(sent))
                return
            # Open until the transaction ends: what psycopg sends when it leaves a pipeline would keep
            # the server's watch over idle transactions from starting.
            if self._pipeline is None:
                self._pipeline = self._journey.enter_context(self._connection.pipeline())
            cursors = [self._start(sent) for sent in outgoing]
            if outgoing[-1].sql == COMMIT:
                self._journey.close()
                self._pipeline = None
            else:
                self._pipeline.sync()
            for sent, cursor in zip(outgoing, cursors, strict=True):
                self._read(sent, cursor)
        except (self._psycopg.Error, UnicodeEncodeError) as error:
            raise self._translated(error) from error

    def _land(self) -> None:
        """Leave the pipeline, if there is one."""
        self._pipeline = None
        with suppress(self._psycopg.Error):
            self._journey.close()

    def _start(self, sent: PendingStatement) -> psycopg.Cursor[Row]:
        cursor = self._connection.cursor()
        if sent.lines is not None:
            names, rows = sent.lines
            text = json.encode([dict(zip(names, row, strict=True)) for row in rows]).decode()
            cursor.execute(sent.sql, {"lines": text})
        elif sent.rows is None:
            cursor.execute(sent.sql, sent.parameters)
        else:
            cursor.executemany(sent.sql, sent.rows, returning=sent.returning)
        return cursor

    @staticmethod
    def _read(sent: PendingStatement, cursor: psycopg.Cursor[Row]) -> None:
        sent.is_answered = True
        sent.changed, sent.status = max(0, cursor.rowcount), cursor.statusmessage
        while True:
            sent.answers += cursor.fetchall() if cursor.description else []
            if not sent.returning or not cursor.nextset():
                break
        cursor.close()

    def _reconnect(self) -> None:
        """After the server was restarted. Never in the middle of a transaction: that one is lost."""
        if self._connection.closed and not self._changing:
            self._connection = self._connect()

    def write(self, change: Callable[[Session], T]) -> T:
        for race in range(RACES_MAX):
            self._reconnect()
            self._changing = True
            try:
                return self._changed(change)
            except KfmError as error:
                if not _is_lost_race(error.__cause__) or race + 1 == RACES_MAX:
                    raise
            except self._psycopg.Error as error:
                if not _is_lost_race(error) or race + 1 == RACES_MAX:
                    raise self._translated(error) from error
            finally:
                self._changing = False
        raise AssertionError("unreachable")

    def _changed(self, change: Callable[[Session], T]) -> T:
        """One transaction. Its beginning travels with its first statement, its end with its last ones."""
        self._session.forget()
        self._outgoing = [PendingStatement("BEGIN")]
        try:
            result = change(self._session)
            end = self.send(PendingStatement(COMMIT))
            self.flush()
            if end.status != COMMIT:  # a failed statement that was overlooked
                raise BackendUnavailable(f"{self._where}: the transaction was not committed.", backend=LEDGER)
        except BaseException:
            self._roll_back()
            raise
        return result

    def _roll_back(self) -> None:
        self._outgoing.clear()
        self._land()
        states = self._psycopg.pq.TransactionStatus
        state = self._connection.info.transaction_status
        if state in (states.INTRANS, states.INERROR):
            with suppress(self._psycopg.Error):
                self._connection.execute("ROLLBACK")
        elif state == states.ACTIVE:  # interrupted while the server was busy: it ends with the connection
            self._connection.close()

    def script(self, sql: str) -> None:
        """A migration's statements; only inside `write`."""
        self.flush()
        self._land()  # many statements in one text can't travel with others
        self.execute(sql)

    def load(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Rows by COPY; only inside `write`."""
        self.flush()
        self._land()
        try:
            with self._connection.cursor() as cursor, cursor.copy(sql) as copy:
                for row in rows:
                    copy.write_row(row)
        except (self._psycopg.Error, UnicodeEncodeError) as error:
            raise self._translated(error) from error

    def exclude_others(self) -> None:
        """Two processes that create the same tables at once would both fail."""
        self.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")

    def close(self) -> None:
        self._changing = True  # no way back
        self._connection.close()


def _is_lost_race(error: BaseException | None) -> bool:
    """The server waited before it chose a victim, so trying again at once is no tight loop."""
    return getattr(error, "sqlstate", None) in _LOST_RACE


NOTHING = "SELECT 1"  # in place of a statement that an index makes needless here
WHOLE = "json_to_recordset(%(lines)s"  # in a statement that takes all of its rows at once
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


@dataclass(slots=True)
class PendingStatement:
    """One statement: on its way first, and then answered."""

    sql: str
    parameters: dict[str, Any] | None = None
    rows: list[dict[str, Any]] | None = None  # the statement is for each of them
    lines: tuple[tuple[str, ...], Sequence[tuple[Any, ...]]] | None = (
        None  # names; all rows for one statement
    )
    returning: bool = False
    is_answered: bool = False
    answers: list[Row] = field(default_factory=list)
    changed: int = 0
    status: str | None = None


class PostgresSession:
    """Named statements on a psycopg connection, pipelined."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._queries = queries("postgresql")
        self._expected: dict[str, deque[PendingStatement]] = {}

    def all(self, name: str, /, **parameters: Any) -> list[Row]:
        if self._expected.get(name):
            sent = self._expected[name].popleft()
            return self._answer(sent)
        return self._database.execute(self._queries[name], parameters)

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        rows = self.all(name, **parameters)
        return rows[0] if rows else None

    def many(self, name: str, rows: Iterable[dict[str, Any]], /) -> None:
        self._now(PendingStatement(self._queries[name], rows=list(rows)))

    def bulk(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> int:
        if self._queries[name] == NOTHING:
            return 0
        return self._now(self._prepared(name, rows)).changed

    def gather(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> list[Row] | None:
        sent = self._prepared(name, rows)
        sent.returning = True
        return self._now(sent).answers

    # --- what travels together ---------------------------------------------------------

    def expect(self, *names: str) -> None:
        for name in names:
            sent = self._database.send(PendingStatement(self._queries[name], {}))
            self._expected.setdefault(name, deque()).append(sent)

    def send(self, name: str, /, **parameters: Any) -> None:
        self._database.send(PendingStatement(self._queries[name], parameters))

    def send_all(self, name: str, rows: Sequence[tuple[Any, ...]], /) -> None:
        if self._queries[name] != NOTHING:
            self._database.send(self._prepared(name, rows))

    def forget(self) -> None:
        """What was expected of a transaction that is over."""
        self._expected.clear()

    def _prepared(self, name: str, rows: Sequence[tuple[Any, ...]]) -> PendingStatement:
        sql, names = self._queries[name], parameters_of(name)
        if WHOLE in sql:
            return PendingStatement(sql, lines=(names, rows))
        if len(rows) == 1:
            return PendingStatement(sql, dict(zip(names, rows[0], strict=True)))
        return PendingStatement(sql, rows=[dict(zip(names, row, strict=True)) for row in rows])

    def _now(self, sent: PendingStatement) -> PendingStatement:
        self._database.send(sent)
        self._database.flush()
        return sent

    def _answer(self, sent: PendingStatement) -> list[Row]:
        if not sent.is_answered:
            self._database.flush()
        return sent.answers

    def now_ms(self) -> int:
        return int(self._database.execute(_NOW)[0][0])
