"""Retries inside HTTP clients and SDKs: urllib3, requests, botocore, aiohttp_retry."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kfm.lint.answers import numbers_in
from kfm.lint.decorators import AT_ONCE, FOREVER, SAME, permanent, permanent_statuses
from kfm.lint.findings import Mark
from kfm.lint.libraries import Check, Declared, is_endless, literal

ROOTS = frozenset(("urllib3", "requests", "botocore", "boto3", "aiobotocore", "aiohttp_retry"))
_COUNTS = ("total", "connect", "read", "redirect", "status", "other")


def _urllib3(said: Declared) -> Iterator[Mark]:
    counts = {name: said.value(name) for name in _COUNTS if name in said.given}
    total = counts.get("total", ...)
    if total in (0, False):
        return  # no retries at all
    if not said.given:
        return  # a default to read from, or a type to compare with
    if counts and not any(value not in (0, False) for name, value in counts.items() if name != "redirect"):
        return  # redirects only
    parts = [value for value in counts.values() if value is not None]
    if is_endless(total) and (total is not None or not (parts or said.is_open)):
        yield Mark("KFM101", said.call, FOREVER)
    if said.lacks("backoff_factor") or said.value("backoff_factor") == 0:
        # Where only 413, 429 and 503 are repeated, urllib3 waits as long as the answer says.
        told = numbers_in([said.given["status_forcelist"]]) if "status_forcelist" in said.given else {500}
        yield Mark(
            "KFM102",
            said.call,
            "backoff_factor is 0 here: urllib3 retries without any wait.",
            not told <= {413, 429, 503},
        )
    if said.value("respect_retry_after_header") is False:
        yield Mark(
            "KFM105",
            said.given["respect_retry_after_header"],
            "The Retry-After of the other side is switched off.",
        )
    for name in ("allowed_methods", "method_whitelist"):
        for mark in _methods(said, name):
            yield mark._replace(sure=not _only_refusals(said))
    if "status_forcelist" in said.given:
        yield from _statuses(said, "status_forcelist")


def _only_refusals(said: Declared) -> bool:
    """Is it repeated after 429 alone? That answer says that nothing was done."""
    asked = numbers_in([said.given["status_forcelist"]]) if "status_forcelist" in said.given else set()
    return asked == {429} and all(said.value(name) in (0, False) for name in ("connect", "read"))


def _methods(said: Declared, name: str) -> Iterator[Mark]:
    node = said.given.get(name)
    if node is None:
        return
    if literal(node) in (None, False) and literal(node) is not ...:
        yield Mark(
            "KFM104",
            node,
            "Every method is retried, POST and PATCH too, and nothing says that this is harmless.",
        )
        return
    verbs = {
        leaf.value
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
    }
    risky = sorted(verb.upper() for verb in verbs if verb.upper() in ("POST", "PATCH"))
    if risky:
        yield Mark(
            "KFM104",
            node,
            f"{' and '.join(risky)} is retried, and nothing says that doing it twice is harmless.",
        )


def _statuses(said: Declared, name: str) -> Iterator[Mark]:
    refused = permanent_statuses(said.given[name])
    if refused:
        told = ", ".join(map(str, refused))
        yield Mark(
            "KFM106", said.given[name], f"Answer {told} is retried: the same request gets the same answer."
        )


def _adapter(said: Declared) -> Iterator[Mark]:
    """A bare number becomes a Retry whose backoff_factor is 0."""
    name = "max_retries" if "max_retries" in said.given else "retries"
    value = said.value(name)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        yield Mark("KFM102", said.given[name], "A bare number of retries means no wait between them.")
        if is_endless(value):
            yield Mark("KFM101", said.given[name], FOREVER)


def _botocore(said: Declared) -> Iterator[Mark]:
    node = said.given.get("retries")
    if not isinstance(node, ast.Dict):
        return
    for key, value in zip(node.keys, node.values, strict=True):
        named = literal(key) if key is not None else ...
        number = literal(value)
        if named in ("max_attempts", "total_max_attempts") and isinstance(number, int) and is_endless(number):
            yield Mark("KFM101", value, f"{number} attempts are no limit.")


def _aiohttp(said: Declared) -> Iterator[Mark]:
    if is_endless(said.value("attempts")) and "attempts" in said.given:
        yield Mark("KFM101", said.call, FOREVER)
    if said.name.endswith("ExponentialRetry"):
        if said.value("start_timeout") == 0:
            yield Mark("KFM102", said.call, AT_ONCE)
        elif said.value("factor") == 1:
            yield Mark("KFM103", said.call, SAME)
    yield from _methods(said, "methods")
    if "statuses" in said.given:
        yield from _statuses(said, "statuses")
    if "exceptions" in said.given:
        yield from permanent(said.names, said.given["exceptions"])


_RETRY = ("total", "connect", "read", "redirect", "status", "other")
CALLS: dict[tuple[str, str], tuple[tuple[str, ...], Check]] = {
    ("urllib3", "Retry"): (_RETRY, _urllib3),
    ("requests", "HTTPAdapter"): ((), _adapter),
    ("urllib3", "PoolManager"): ((), _adapter),
    ("urllib3", "HTTPConnectionPool"): ((), _adapter),
    ("urllib3", "HTTPSConnectionPool"): ((), _adapter),
    ("botocore", "Config"): ((), _botocore),
    ("aiobotocore", "AioConfig"): ((), _botocore),
    ("aiohttp_retry", "ExponentialRetry"): (("attempts", "start_timeout", "max_timeout", "factor"), _aiohttp),
    ("aiohttp_retry", "JitterRetry"): (("attempts",), _aiohttp),
    ("aiohttp_retry", "RandomRetry"): (("attempts",), _aiohttp),
    ("aiohttp_retry", "FibonacciRetry"): (("attempts",), _aiohttp),
}
