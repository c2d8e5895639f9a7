"""Classes of errors, and what Retry-After asks for."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.model.retry import Failure, classify, parse_retry_after
from kfm.model.times import parse_rfc3339
from tools.vector_cases.shape import Case, Family


def _classify(given: dict[str, Any]) -> Any:
    return msgspec.to_builtins(classify(msgspec.convert(given, Failure)))


def _kind(name: str, retryable: bool, error_class: str, **given: Any) -> Case:
    return Case(name, given, {"retryable": retryable, "error_class": error_class}, "by hand, from the rules")


CLASSIFY = Family(
    "classify",
    "What is known about an error, and whether it is worth another try. Unknown errors are not.",
    _classify,
    [
        *(_kind(f"HTTP {n}", True, f"HTTP_{n}", http_status=n) for n in (408, 429, 500, 501, 502, 503, 504)),
        *(
            _kind(f"HTTP {n}", False, f"HTTP_{n}", http_status=n)
            for n in (400, 401, 403, 404, 409, 410, 412, 422, 505, 507)
        ),
        *(
            _kind(code, True, "throttled", code=code)
            for code in ("SlowDown", "ThrottlingException", "TooManyRequests", "ServerBusy")
        ),
        *(
            _kind(f"{code} with status 400", True, "throttled", code=code, http_status=400)
            for code in ("Throttling",)
        ),
        _kind("access denied with status 503", False, "access", code="AccessDenied", http_status=503),
        _kind("unknown code, status decides", True, "HTTP_503", code="Whatever", http_status=503),
        _kind("RequestTimeout", True, "timeout", code="RequestTimeout", http_status=400),
        _kind("NoSuchKey", False, "missing", code="NoSuchKey", http_status=404),
        _kind(
            "Neo4j transient", True, "neo4j-transient", code="Neo.TransientError.Transaction.DeadlockDetected"
        ),
        _kind(
            "Neo4j transient, short", True, "neo4j-transient", code="TransientError.General.OutOfMemoryError"
        ),
        _kind(
            "Neo4j client", False, "neo4j-client", code="Neo.ClientError.Schema.ConstraintValidationFailed"
        ),
        *(_kind(name, True, "contention", errno=name) for name in ("EAGAIN", "EBUSY", "EINTR")),
        *(_kind(name, True, "network", errno=name) for name in ("ECONNRESET", "ECONNREFUSED")),
        _kind("ETIMEDOUT", True, "timeout", errno="ETIMEDOUT", exceptions=["TimeoutError", "OSError"]),
        _kind("disk full", False, "disk", errno="ENOSPC", exceptions=["OSError"]),
        _kind("timeout", True, "timeout", exceptions=["ReadTimeout", "TimeoutException", "TransportError"]),
        _kind("connection", True, "network", exceptions=["ConnectError", "NetworkError"]),
        _kind(
            "database locked",
            True,
            "contention",
            exceptions=["OperationalError", "Error"],
            message="database is locked",
        ),
        _kind(
            "database broken",
            False,
            "unknown",
            exceptions=["OperationalError", "Error"],
            message="no such table",
        ),
        _kind(
            "locked, but by another library",
            False,
            "unknown",
            exceptions=["MyError"],
            message="database is locked",
        ),
        _kind("apsw busy", True, "contention", exceptions=["BusyError", "Error"]),
        *(_kind(f"SQLSTATE {code}", True, "contention", code=code) for code in ("40001", "40P01", "55P03")),
        *(_kind(code, True, "unavailable", code=code) for code in ("KFM400", "KFM404", "KFM406")),
        *(_kind(code, True, "contention", code=code) for code in ("KFM403", "KFM501", "LEASE_EXPIRED")),
        *(
            _kind(code, False, "governance", code=code)
            for code in ("KFM300", "KFM301", "KFM302", "KFM307", "GOVERNANCE_BLOCKED")
        ),
        *(_kind(code, False, "schema", code=code) for code in ("KFM206", "KFM303", "KFM603")),
        *(_kind(code, False, "checksum", code=code) for code in ("KFM605", "REPLAY_MISMATCH")),
        _kind("path conflict", False, "immutability", code="KFM606"),
        _kind("rights", False, "rights", code="KFM308"),
        _kind("cancelled", False, "cancelled", code="KFM930"),
        _kind("lost lease", False, "superseded", code="KFM502"),
        _kind(
            "schema by exception",
            False,
            "schema",
            exceptions=["ValidationError", "DecodeError", "ValueError"],
        ),
        _kind("a plain ValueError", False, "unknown", exceptions=["ValueError"]),
        _kind("nothing known", False, "unknown"),
    ],
)


def _retry_after(given: dict[str, Any]) -> Any:
    return {"delay_ms": parse_retry_after(given["value"], parse_rfc3339(given["now"]))}


def _after(value: str, delay_ms: int | None, now: str = "1999-12-31T23:59:00Z") -> Case:
    name = value if now == "1999-12-31T23:59:00Z" else f"{value} at {now}"
    return Case(name or "empty", {"value": value, "now": now}, {"delay_ms": delay_ms}, "by hand, RFC 9110")


RETRY_AFTER = Family(
    "retry_after",
    "How long a Retry-After header asks us to wait; null for nonsense, about 30 years for more.",
    _retry_after,
    [
        _after("120", 120_000),
        _after("0", 0),
        _after("1", 1000),
        _after("007", 7000),
        _after(" 30 ", 30_000),
        _after("999999999", 999_999_999_000),
        _after("9999999999", 999_999_999_000),
        _after("00000000030", 30_000),
        _after("-1", None),
        _after("+1", None),
        _after("1.5", None),
        _after("1e3", None),
        _after("", None),
        _after("soon", None),
        _after("٣", None),
        _after("120, 120", None),
        _after("Fri, 31 Dec 1999 23:59:59 GMT", 59_000),
        _after("Friday, 31-Dec-99 23:59:59 GMT", 59_000),
        _after("Fri Dec 31 23:59:59 1999", 59_000),
        _after("Fri, 31 Dec 1999 23:59:60 GMT", 60_000),
        _after("Fri, 31 Dec 1999 23:58:00 GMT", 0),
        _after("Sun Nov  6 08:49:37 1994", 0),
        _after("Sun, 06 Nov 1994 08:49:37 GMT", 37_000, "1994-11-06T08:49:00Z"),
        _after("Sunday, 06-Nov-94 08:49:37 GMT", 37_000, "1994-11-06T08:49:00Z"),
        _after("Sunday, 01-Jan-00 00:00:30 GMT", 30_000, "2000-01-01T00:00:00Z"),
        _after("Monday, 01-Jan-77 00:00:00 GMT", 0, "2026-06-01T00:00:00Z"),
        _after("Wednesday, 01-Jan-76 00:00:00 GMT", 1_565_136_000_000, "2026-05-28T00:00:00Z"),
        _after("Thu, 29 Feb 2024 00:00:10 GMT", 10_000, "2024-02-29T00:00:00Z"),
        _after("Fri, 31 Dec 1999 23:59:59 UTC", None),
        _after("Fri, 31 Dec 1999 23:59:59 +0000", None),
        _after("Fri, 31 dec 1999 23:59:59 GMT", None),
        _after("Fri, 32 Dec 1999 23:59:59 GMT", None),
        _after("Wed, 29 Feb 2023 00:00:00 GMT", None),
        _after("Fri, 31 Dec 1999 24:00:00 GMT", None),
        _after("1999-12-31T23:59:59Z", None),
    ],
)

FAMILIES = [CLASSIFY, RETRY_AFTER]
