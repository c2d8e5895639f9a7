"""From the exceptions that libraries raise to a class of error."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from kfm.model.errors import (
    ChecksumMismatch,
    ContractViolated,
    GateDenied,
    KfmError,
    LockHeld,
    NodesFailed,
    PipelineFailed,
    UpstreamUnavailable,
    all_errors,
)
from kfm.model.retry import UNKNOWN, classify_exception, failure_of, retry_rules


class StatusError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("no")
        self.response = SimpleNamespace(status_code=status)


class ClientError(Exception):
    def __init__(self, code: Any) -> None:
        super().__init__("no")
        self.response = {"Error": {"Code": code}}


class SerializationFailure(Exception):
    sqlstate = "40001"


@pytest.mark.req("RET-1")
@pytest.mark.parametrize(
    ("error", "retryable", "error_class"),
    [
        (TimeoutError(), True, "timeout"),
        (OSError(errno.EBUSY, "busy"), True, "contention"),
        (OSError(errno.ENOSPC, "full"), False, "disk"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), True, "network"),
        (FileNotFoundError(errno.ENOENT, "gone"), False, "missing"),
        (StatusError(503), True, "HTTP_503"),
        (StatusError(404), False, "HTTP_404"),
        (ClientError("SlowDown"), True, "throttled"),
        (ClientError("AccessDenied"), False, "access"),
        (ClientError(7), False, "unknown"),
        (SerializationFailure(), True, "contention"),
        (UpstreamUnavailable(), True, "unavailable"),
        (LockHeld(), True, "contention"),
        (GateDenied(), False, "governance"),
        (ContractViolated(), False, "schema"),
        (ChecksumMismatch(), False, "checksum"),
        (ValueError("?"), False, "unknown"),
    ],
)
def test_exceptions_of_many_libraries(error: Exception, retryable: bool, error_class: str) -> None:
    """Exceptions are classified by what they carry, not by who raised them."""
    found = classify_exception(error)
    assert (found.retryable, found.error_class) == (retryable, error_class)


@pytest.mark.req("RET-1")
def test_cause_decides_where_the_error_says_nothing() -> None:
    """A pipeline that failed because of a timeout is as retryable as the timeout."""
    wrapped = PipelineFailed("x")
    wrapped.__cause__ = RuntimeError("y")
    wrapped.__cause__.__cause__ = TimeoutError()
    assert classify_exception(wrapped).retryable
    refused = UpstreamUnavailable("x")
    refused.__cause__ = GateDenied()
    assert classify_exception(refused).error_class == "unavailable"


def test_endless_causes_end() -> None:
    """A chain of causes is followed only so far."""
    first, second = RuntimeError(), RuntimeError()
    first.__cause__, second.__cause__ = second, first
    assert classify_exception(first) == UNKNOWN


def test_messages_are_bounded() -> None:
    """A huge message is cut before anything looks at it."""
    assert len(failure_of(ValueError("x" * 10_000)).message) == 1000


@pytest.mark.req("RET-1")
def test_every_error_of_ours_is_classified() -> None:
    """No error of kfm's own is forgotten in the table, and no name stands there twice."""
    rules = retry_rules()
    names = [name for family in rules.codes.values() for name in family.names]
    assert len(names) == len(set(names))
    silent = {KfmError.code, "KFM601", PipelineFailed.code, NodesFailed.code}
    assert {error.code for error in all_errors()} - set(names) == silent


@pytest.mark.req("RET-1")
def test_governance_is_never_retryable() -> None:
    """Nothing that governance, rights, schema or a checksum refused is tried again."""
    codes = retry_rules().codes
    for family in ("schema", "governance", "checksum", "immutability", "rights"):
        assert not codes[family].retryable
