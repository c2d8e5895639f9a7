"""Classes of errors."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.core.classify import Failure, classify
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

FAMILIES = [CLASSIFY]
