"""The rules of retrying as data: `contracts/retry.json`, which every implementation loads."""

from __future__ import annotations

from functools import cache

import msgspec

from kfm.core.shipped import contract


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often, how long and how far apart a whole run or unit is tried."""

    attempts_max: int
    budget_ms: int
    base_ms: int
    cap_ms: int
    ladder_ms: tuple[int, ...] = ()
    dead_letter: bool = False


class CallPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often and how far apart one external call inside a step is tried."""

    attempts_max: int = 5
    base_ms: int = 500
    cap_ms: int = 30_000


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    retryable: bool
    names: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    error_class: str
    retryable: bool


class MessageRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    exception: str
    contains: str
    error_class: str
    retryable: bool


class RetryRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    matrix: dict[str, RetryPolicy]
    call: CallPolicy
    grants_max: int
    http_retryable: tuple[int, ...]
    codes: dict[str, Family]
    code_prefixes: dict[str, Verdict]
    errnos: dict[str, Family]
    exceptions: dict[str, Family]
    messages: tuple[MessageRule, ...]


@cache
def retry_rules() -> RetryRules:
    """The shipped rules; read once."""
    return msgspec.json.decode(contract("retry.json"), type=RetryRules)
