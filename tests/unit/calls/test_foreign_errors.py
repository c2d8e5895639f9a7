"""Real exception objects of the libraries that pipelines call, as the libraries raise them."""

from __future__ import annotations

import http.server
import json
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import kfm
from kfm.calls.foreign_errors import classify_error, retry_after_ms
from kfm.testing.driven_time import START_MS, DrivenTime


def verdict(error: Exception) -> tuple[bool, str]:
    kind = classify_error(error)
    return kind.retryable, kind.error_class


def caught(fn: Any, *args: Any, **kwargs: Any) -> Exception:
    with pytest.raises(Exception) as found:  # noqa: PT011 (which one is what is asked)
        fn(*args, **kwargs)
    return found.value


class _Server(http.server.BaseHTTPRequestHandler):
    """Answers with the status that the address ends in; 1 hangs, 2 closes without an answer."""

    def do_GET(self) -> None:
        status = int(self.path.rpartition("/")[2].partition("?")[0])
        if status == 1:
            self.server.release.wait(20)  # type: ignore[attr-defined]
        if status in (1, 2):
            self.close_connection = True
            return
        body = b"<Error><Code>SlowDown</Code></Error>" if status == 400 else b"<Error/>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "7")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_GET  # noqa: N815 (the standard library's names)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        server.daemon_threads = True
        server.block_on_close = False
        server.release = threading.Event()  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.release.set()  # type: ignore[attr-defined]
        server.shutdown()


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


# --- the standard library ------------------------------------------------------------


@pytest.mark.req("RET-1")
def test_sqlite_locked(tmp_path: Any) -> None:
    """A locked database passes; a table that is not there does not."""
    one, two = (sqlite3.connect(tmp_path / "x.db", timeout=0, isolation_level=None) for _ in range(2))
    one.execute("BEGIN IMMEDIATE")
    assert verdict(caught(two.execute, "BEGIN IMMEDIATE")) == (True, "contention")
    assert verdict(caught(one.execute, "SELECT * FROM nothing")) == (False, "unknown")
    one.close()
    two.close()


@pytest.mark.req("RET-1")
def test_urllib(address: str, closed_port: int) -> None:
    """Status, refusal and a name that can't be resolved for the moment."""
    busy = caught(urllib.request.urlopen, f"{address}/503", timeout=5)
    assert isinstance(busy, urllib.error.HTTPError)
    assert (verdict(busy), retry_after_ms(busy, START_MS)) == ((True, "HTTP_503"), 7000)
    busy.close()
    gone = caught(urllib.request.urlopen, f"{address}/404", timeout=5)
    assert verdict(gone) == (False, "HTTP_404")
    gone.close()  # type: ignore[attr-defined]
    refused = caught(urllib.request.urlopen, f"http://127.0.0.1:{closed_port}/", timeout=5)
    assert verdict(refused) == (True, "network")
    assert verdict(socket.gaierror(socket.EAI_AGAIN, "for the moment")) == (True, "network")
    assert verdict(socket.gaierror(socket.EAI_NONAME, "no such name")) == (False, "unknown")
    assert not verdict(ssl.SSLCertVerificationError(1, "expired"))[0]
    assert verdict(ssl.SSLEOFError(8, "cut")) == (True, "network")


def test_a_group_passes_only_as_a_whole() -> None:
    """Of several errors at once, one that does not pass decides."""
    assert verdict(ExceptionGroup("two", [TimeoutError(), ConnectionResetError()])) == (True, "timeout")
    assert verdict(ExceptionGroup("two", [TimeoutError(), ValueError()])) == (False, "unknown")


# --- httpx ---------------------------------------------------------------------------


@pytest.mark.req("RET-1")
def test_httpx(address: str, closed_port: int) -> None:
    """Statuses, timeouts, refused and cut connections; never what was wrong with the request."""
    import httpx

    def get(url: str, **options: Any) -> None:
        httpx.get(url, **{"timeout": 5, "trust_env": False, **options}).raise_for_status()

    for status, passes in ((429, True), (500, True), (503, True), (403, False), (404, False)):
        assert verdict(caught(get, f"{address}/{status}")) == (passes, f"HTTP_{status}")
    assert retry_after_ms(caught(get, f"{address}/503"), START_MS) == 7000
    hung = caught(get, f"{address}/1", timeout=0.05)
    assert (type(hung), verdict(hung)) == (httpx.ReadTimeout, (True, "timeout"))
    assert verdict(caught(get, f"http://127.0.0.1:{closed_port}/")) == (True, "network")
    cut = caught(get, f"{address}/2")
    assert (type(cut), verdict(cut)) == (httpx.RemoteProtocolError, (True, "network"))
    assert verdict(caught(get, "gopher://127.0.0.1/")) == (False, "unknown")
    request = httpx.Request("GET", address)
    for kind in (httpx.ConnectTimeout, httpx.WriteTimeout, httpx.PoolTimeout):
        assert verdict(kind("x", request=request)) == (True, "timeout")
    for cut_kind in (httpx.ReadError, httpx.WriteError, httpx.CloseError):
        assert verdict(cut_kind("x", request=request)) == (True, "network")
    for other in (httpx.TooManyRedirects, httpx.DecodingError, httpx.LocalProtocolError):
        assert not verdict(other("x", request=request))[0]


@pytest.mark.req("RET-1")
def test_httpx_refused_certificate() -> None:
    """A certificate that is refused now is refused in a second, too, though it is a ConnectError."""
    import httpx

    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = ConnectionError()
    error.__cause__.__cause__ = ssl.SSLCertVerificationError(1, "self-signed certificate")
    assert verdict(error) == (False, "tls")


def test_httpx_with_a_limit_of_ours(address: str, kfm_time: DrivenTime) -> None:
    """`httpx.get` takes the limit by itself; the wait that the server asks for is made."""
    import httpx

    with pytest.raises(httpx.ReadTimeout):
        kfm.call(httpx.get, f"{address}/1", provider="slow", timeout=0.05, trust_env=False)
    with pytest.raises(httpx.HTTPStatusError):
        kfm.call(
            httpx.get,
            f"{address}/503",
            provider="busy",
            idempotent=True,
            attempts=2,
            check=httpx.Response.raise_for_status,
            trust_env=False,
        )
    assert kfm_time.delays == [7.0]


# --- botocore ------------------------------------------------------------------------


@pytest.mark.req("RET-1")
def test_botocore(address: str, closed_port: int) -> None:
    """Codes first, then status; connections and timeouts; never credentials or parameters."""
    boto3 = pytest.importorskip("boto3")
    from botocore.config import Config
    from botocore.exceptions import ClientError, NoCredentialsError, ParamValidationError, SSLError

    def get(endpoint: str, key: str, **options: Any) -> None:
        config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, **options)
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="x",
            aws_secret_access_key="x",
            config=config,
        )
        client.get_object(Bucket="bucket", Key=key)

    slow = caught(get, address, "400")
    assert (verdict(slow), retry_after_ms(slow, START_MS)) == ((True, "throttled"), 7000)
    assert verdict(caught(get, address, "503")) == (True, "HTTP_503")
    assert verdict(caught(get, address, "409")) == (False, "HTTP_409")
    assert verdict(caught(get, f"http://127.0.0.1:{closed_port}", "x")) == (True, "network")
    assert verdict(caught(get, address, "1", read_timeout=0.05)) == (True, "timeout")
    assert verdict(caught(get, address, "2")) == (True, "network")
    for code, passes in (
        ("ThrottlingException", True),
        ("SlowDown", True),
        ("AccessDenied", False),
        ("NoSuchKey", False),
    ):
        answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}
        assert verdict(ClientError(answer, "GetObject"))[0] is passes
    assert not verdict(NoCredentialsError())[0]
    assert not verdict(ParamValidationError(report="x"))[0]
    assert verdict(SSLError(endpoint_url="x", error="certificate")) == (False, "tls")


# --- obstore -------------------------------------------------------------------------


@pytest.mark.req("RET-1")
def test_obstore(address: str, closed_port: int) -> None:
    """It tells status, code and kind in words only."""
    obstore = pytest.importorskip("obstore")
    from datetime import timedelta

    from obstore.store import S3Store

    def get(endpoint: str, key: str, timeout_s: float = 5) -> None:
        store = S3Store(
            "bucket",
            endpoint=endpoint,
            access_key_id="x",
            secret_access_key="x",
            client_options={"allow_http": True, "timeout": timedelta(seconds=timeout_s)},
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
        )
        obstore.get(store, key)

    assert verdict(caught(get, address, "503")) == (True, "HTTP_503")
    assert verdict(caught(get, address, "400")) == (True, "throttled")
    assert verdict(caught(get, address, "403")) == (False, "HTTP_403")
    assert verdict(caught(get, address, "404")) == (False, "missing")
    assert verdict(caught(get, address, "412")) == (False, "HTTP_412")
    assert verdict(caught(get, f"http://127.0.0.1:{closed_port}", "x")) == (True, "network")
    assert verdict(caught(get, address, "1", 0.1)) == (True, "timeout")
    assert verdict(caught(get, address, "2")) == (True, "network")


# --- psycopg -------------------------------------------------------------------------


@pytest.mark.req("RET-1")
def test_psycopg_states() -> None:
    """SQLSTATEs that pass, and those that don't."""
    errors = pytest.importorskip("psycopg.errors")
    for name, passes in (
        ("SerializationFailure", True),
        ("DeadlockDetected", True),
        ("LockNotAvailable", True),
        ("TooManyConnections", True),
        ("AdminShutdown", True),
        ("CannotConnectNow", True),
        ("ConnectionFailure", True),
        ("ConnectionTimeout", True),
        ("UniqueViolation", False),
        ("UndefinedTable", False),
        ("SyntaxError", False),
        ("InvalidPassword", False),
        ("DiskFull", False),
    ):
        assert verdict(getattr(errors, name)("x"))[0] is passes, name
    assert verdict(errors.QueryCanceled("canceling statement due to statement timeout")) == (True, "timeout")
    assert not verdict(errors.QueryCanceled("canceling statement due to user request"))[0]


@pytest.mark.req("RET-1")
def test_psycopg_connections(postgres_database: str, closed_port: int) -> None:
    """A server that is not there or cuts us off passes; a wrong password does not."""
    import psycopg

    refused = caught(psycopg.connect, f"host=127.0.0.1 port={closed_port} user=x connect_timeout=5")
    assert verdict(refused) == (True, "network")
    head, tail = postgres_database.split("@")
    wrong = caught(psycopg.connect, head.rsplit(":", 1)[0] + ":wrong@" + tail)
    assert verdict(wrong) == (False, "access")
    one, two = (psycopg.connect(postgres_database, autocommit=True) for _ in range(2))
    two.execute("SELECT pg_terminate_backend(%s)", (one.info.backend_pid,))
    cut = caught(one.execute, "SELECT 1")
    two.execute("SET statement_timeout = 20")
    late = caught(two.execute, "SELECT pg_sleep(5)")
    one.close()
    two.close()
    assert verdict(cut)[0]
    assert verdict(late) == (True, "timeout")


# --- neo4j ---------------------------------------------------------------------------


@pytest.mark.req("RET-1")
def test_neo4j(closed_port: int) -> None:
    """TransientError.*, lost servers and changed leaders pass; what the query did wrong does not."""
    neo4j = pytest.importorskip("neo4j")
    from neo4j.exceptions import IncompleteCommit, Neo4jError, ServiceUnavailable, SessionExpired

    hydrate = getattr(Neo4jError, "_hydrate_neo4j", None) or Neo4jError.hydrate
    for code, passes in (
        ("Neo.TransientError.Transaction.DeadlockDetected", True),
        ("Neo.TransientError.General.DatabaseUnavailable", True),
        ("Neo.ClientError.Cluster.NotALeader", True),
        ("Neo.TransientError.Transaction.Terminated", False),  # a person ended it on purpose
        ("Neo.ClientError.Statement.SyntaxError", False),
        ("Neo.ClientError.Schema.ConstraintValidationFailed", False),
        ("Neo.ClientError.Security.Unauthorized", False),
    ):
        assert verdict(hydrate(code=code, message="x"))[0] is passes, code
    assert verdict(ServiceUnavailable("x"))[0]
    assert verdict(SessionExpired("x"))[0]
    assert not verdict(IncompleteCommit("x"))[0]
    driver = neo4j.GraphDatabase.driver(
        f"bolt://127.0.0.1:{closed_port}", connection_timeout=2, max_transaction_retry_time=0
    )
    with driver:
        assert verdict(caught(driver.verify_connectivity)) == (True, "neo4j-transient")


# --- at no cost ----------------------------------------------------------------------


def test_nothing_foreign_is_imported() -> None:
    """Using kfm.call, errors included, loads none of the libraries whose errors it knows."""
    code = """
import json, sys, kfm
@kfm.call(provider="usgs")
def fetch(): raise TimeoutError
try: fetch()
except TimeoutError: pass
names = "httpx botocore boto3 obstore psycopg neo4j asyncio multiprocessing pytest ssl".split()
print(json.dumps(sorted(set(names) & sys.modules.keys())))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert json.loads(ran.stdout) == [], ran.stderr
