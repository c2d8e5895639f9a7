"""PostgreSQL through psycopg, for fleets: transactions on lent connections, leases by the server's clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import json

from kfm.db.postgres_pool import WAIT_MAX_MS, ConnectionPool, ServerConnection, driver
from kfm.db.queries import is_empty, parameters_of, queries, tell_newer, too_new
from kfm.db.session import Row, Session
from kfm.model.errors import (
    LEDGER,
    BackendUnavailable,
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
# Said each time: the guards re-read rows once they hold them, which needs READ COMMITTED, and what a session
# was told is gone behind a pooler.
WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
READING = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
MIGRATION_LOCK = 4_900_147  # any number that no other program on the server uses
_LOST_RACE = {"40001", "40P01"}  # serialization failure, deadlock
FLOOR = "kfm-level:"  # how the text begins that is no number
_REFUSED = late(rf'"{FLOOR}(\d+)"')
_LEVEL_SCHEMA = """SELECT quote_ident(nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE c.oid = 'schema_level'::regclass"""
FENCED = "KFM01"  # the state of what the triggers of a ledger that moves raise
_NOT_IN_TIME = {"55P03", "57014"}  # lock not available, query cancelled
_STANDBY = {"25006", "0A000"}  # a writer is told that this server is only read


class PostgresDatabase:
    """Named statements in transactions, each on a connection that is lent for as long as it lasts.

    Not shared between threads. Nothing is kept in a session of the server: what a transaction needs is said
    at its beginning, so a pooler may be between.
    """

    def __init__(
        self,
        dsn: str | ConnectionPool,
        *,
        read_only: bool = False,
        urgent: bool = False,
        unsafe_for_tests: bool = False,
        wait_max_ms: int = WAIT_MAX_MS,
        idle_max_ms: int | None = None,
    ) -> None:
        """With an address it has a connection of its own; with a pool, `urgent` ones are served first.
        `idle_max_ms`: how long a transaction may be idle before the server ends it; 0: for ever."""
        self._psycopg = driver()
        self._pool = ConnectionPool(dsn).opened() if isinstance(dsn, str) else dsn
        self._where = self._pool.where
        self._read_only = read_only
        self._urgent = urgent
        self._checked = not read_only and not unsafe_for_tests
        self._wait_max_ms = wait_max_ms
        self._settings = {
            "lock_timeout": f"{wait_max_ms}ms",
            # A process that is stopped inside a transaction must not hold its row locks for ever.
            "idle_in_transaction_session_timeout": f"{wait_max_ms if idle_max_ms is None else idle_max_ms}ms",
        }
        if self._pool.search_path is not None:
            self._settings["search_path"] = self._pool.search_path
        self._level: int | None = None  # the newest migration that this process knows
        self._relaxed = False
        self._preamble = self._said()
        self._lent: ServerConnection | None = None  # inside a transaction
        self._is_closed = False
        self._outgoing: list[PendingStatement] = []
        self._journey = ExitStack()
        self._pipeline: psycopg.Pipeline | None = None
        self._session = PostgresSession(self)
        try:
            with self._borrowed():
                pass
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _borrowed(self) -> Iterator[ServerConnection]:
        if self._is_closed:
            raise BackendUnavailable(f"{self._where}: it was closed by this process.", backend=LEDGER)
        try:
            lent = self._pool.lend(self._wait_max_ms, urgent=self._urgent)
        except self._psycopg.Error as error:
            raise self._translated(error) from error
        try:
            if self._checked and lent.weaker is not None:
                name = lent.weaker.partition("=")[0]
                raise StoreUnsafe(
                    f"PostgreSQL runs with {lent.weaker}, so a commit may be lost.",
                    remedy=f"Set {name}=on on the server, the database and the role.",
                )
            self._lent = lent
            yield lent
        finally:
            self._lent = None
            self._pool.take_back(lent)

    def relax(self, *, on: bool) -> None:
        """Commits need not wait for the disk, from the next transaction on."""
        self._relaxed = on
        self._preamble = self._said()

    def keep_to(self, level: int | None) -> None:
        self._level = None  # for the question where the table is
        self._preamble = self._said()
        if level is not None and self._pool.search_path is not None and self._pool.schema is None:
            self._pool.schema = str(self.execute(_LEVEL_SCHEMA)[0][0])
        self._level = level
        self._preamble = self._said()

    def _said(self) -> str:
        """The statement at the beginning of a transaction: its settings; and, once it is known that the
        ledger says which kfm may write, a look at that. Until the transaction ends the lock of that look
        keeps back what would refuse this kfm; and a statement that fails takes all that were sent with it
        along, the commit too."""
        settings = self._settings | ({"synchronous_commit": "off"} if self._relaxed else {})
        values = {name: value.replace("'", "''") for name, value in settings.items()}
        said = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in values.items())
        if self._level is None:
            return f"SELECT {said}"
        # Named with its schema: the path that is said here counts from the next statement on.
        table = f"{self._pool.schema}.schema_level" if self._pool.schema else "schema_level"
        refused = f"('{FLOOR}' || level)::bigint"  # no number: its text is the error's
        return (
            f"SELECT {said}, (SELECT CASE WHEN floor > {self._level} THEN {refused} ELSE level END "
            f"FROM {table} WHERE one = 1)"
        )

    def _translated(self, error: Exception) -> KfmError:
        # The headline: libpq explains on further lines what it can only guess.
        text = f"{self._where}: {redact(str(error)).strip().partition(chr(10))[0]}"
        if self._level is not None and (found := _REFUSED.search(str(error))):
            return too_new(int(found[1]), self._level)
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
        """Send without waiting: in a transaction when an answer is needed, or at its end; else at once, in
        one of its own."""
        if self._lent is not None:
            self._outgoing.append(sent)
            return sent
        with self.transaction():
            self._outgoing.append(sent)
        return sent

    def flush(self) -> None:
        """Send everything that is queued, in one round trip."""
        outgoing, self._outgoing = self._outgoing, []
        if not outgoing:
            return
        assert self._lent is not None
        try:
            if self._pipeline is None and (len(outgoing) == 1 or not self._psycopg.Pipeline.is_supported()):
                for sent in outgoing:
                    self._read(sent, self._start(sent))
                return
            # Open until the transaction ends: what psycopg sends when it leaves a pipeline would keep
            # the server's watch over idle transactions from starting.
            if self._pipeline is None:
                self._pipeline = self._journey.enter_context(self._lent.driver.pipeline())
            cursors = [self._start(sent) for sent in outgoing]
            if outgoing[-1].sql == COMMIT:
                self._journey.close()
                self._pipeline = None
            else:
                self._pipeline.sync()
            for sent, cursor in zip(outgoing, cursors, strict=True):
                self._read(sent, cursor)
        except (self._psycopg.Error, UnicodeEncodeError) as error:
            if not self._read_only and getattr(error, "sqlstate", None) in _STANDBY:
                self._lent.is_lost = True
            raise self._translated(error) from error

    def _land(self) -> None:
        """Leave the pipeline, if there is one."""
        self._pipeline = None
        with suppress(self._psycopg.Error):
            self._journey.close()

    @property
    def _connection(self) -> psycopg.Connection[Row]:
        assert self._lent is not None
        return self._lent.driver

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

    def write(self, change: Callable[[Session], T]) -> T:
        for race in range(RACES_MAX):
            try:
                with self.transaction():
                    return change(self._session)
            except KfmError as error:
                if not _is_lost_race(error.__cause__) or race + 1 == RACES_MAX:
                    raise
            except self._psycopg.Error as error:
                if not _is_lost_race(error) or race + 1 == RACES_MAX:
                    raise self._translated(error) from error
        raise AssertionError("unreachable")

    @contextmanager
    def transaction(self, begin: str | None = None) -> Iterator[None]:
        """What is executed inside is of one transaction. Its beginning travels with its first statement, its
        end with its last ones."""
        with self._borrowed():
            begin = begin or (READING if self._read_only else WRITING)
            preamble = PendingStatement(self._preamble)
            self._outgoing = [PendingStatement(begin), preamble]
            try:
                yield
                end = self.send(PendingStatement(COMMIT))
                self.flush()
                if end.status != COMMIT:  # a failed statement that was overlooked
                    raise BackendUnavailable(
                        f"{self._where}: the transaction was not committed.", backend=LEDGER
                    )
                if self._level is not None and (level := preamble.answers[0][-1] or 0) > self._level:
                    tell_newer(level, self._level)
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._session.forget()  # what was expected of it is no answer of the next one

    def moment(self) -> AbstractContextManager[None]:
        if not self._read_only or self._lent is not None:
            return nullcontext()
        return self.transaction(SNAPSHOT)

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

    def server(self) -> ServerFacts:
        """What the server says of itself, as far as this role may know."""
        with self.transaction():
            assert self._lent is not None
            pooled, row = self._lent.pooled, self.execute(_SERVER)[0]
        return ServerFacts._make((*row, pooled))

    def peers(self) -> list[Row]:
        """Name, address, number and beginning of the connections of kfm to this database, but for this one:
        of every ledger in it, as far as this role may see."""
        return self.execute(_PEERS)

    def sizes(self, tables: Sequence[str]) -> list[Row]:
        """Of those that are there: name, rows as the server believes, bytes with indexes."""
        return self.execute(_SIZES, {"tables": list(tables)})

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True  # no way back
            self._pool.closed()


class ServerFacts(NamedTuple):
    """How a server keeps what it acknowledges, and how full it is."""

    version: str
    synchronous_commit: str
    named_standbys: str  # `synchronous_standby_names`
    standbys: int
    synchronous: int  # of them
    hidden: int  # of them, whose state this role may not see
    connections: int  # of all its databases
    connections_max: int
    connections_ours: int  # of kfm to this database, as far as this role may see
    pooled: bool  # a pooler is between


def _is_lost_race(error: BaseException | None) -> bool:
    """The server waited before it chose a victim, so trying again at once is no tight loop."""
    return getattr(error, "sqlstate", None) in _LOST_RACE


NOTHING = "SELECT 1"  # in place of a statement that an index makes needless here
WHOLE = "json_to_recordset(%(lines)s"  # in a statement that takes all of its rows at once
_SERVER = """
SELECT current_setting('server_version'), current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'),
       COUNT(*), COUNT(*) FILTER (WHERE sync_state IN ('sync', 'quorum')),
       COUNT(*) FILTER (WHERE sync_state IS NULL),
       (SELECT SUM(numbackends) FROM pg_stat_database)::int, current_setting('max_connections')::int,
       (SELECT COUNT(*) FROM pg_stat_activity
        WHERE application_name ~ '^kfm( |$)' AND datname = current_database())
FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'"""
_PEERS = """
SELECT application_name, host(client_addr), count(*),
       (extract(epoch FROM min(backend_start)) * 1000)::bigint
FROM pg_stat_activity
WHERE application_name ~ '^kfm( |$)' AND datname = current_database() AND pid <> pg_backend_pid()
GROUP BY application_name, client_addr ORDER BY application_name, client_addr"""
_SIZES = """
SELECT relname, greatest(reltuples, 0)::bigint, pg_total_relation_size(oid)
FROM pg_class WHERE relname = ANY(%(tables)s) AND relkind IN ('r', 'p')
  AND relnamespace = current_schema()::regnamespace ORDER BY relname"""
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
