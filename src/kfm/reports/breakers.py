"""Circuit breakers, as documents and as one line."""

from __future__ import annotations

from shlex import quote
from typing import Any

from kfm.model.quantities import instant, one_line, utc


def breaker_document(breaker: Any, now_ms: int, settings: Any) -> dict[str, Any]:
    from kfm.model.breaker import limits_of, recovered_at_ms, wait_ms

    is_open = breaker.state != "closed"
    back_ms = recovered_at_ms(breaker)
    left_ms = wait_ms(breaker, now_ms, limits_of(breaker.provider, settings.providers))
    return {
        "provider": breaker.provider,
        "state": breaker.state,
        "failures": breaker.failures,
        "since": instant(breaker.tripped_at_ms) if is_open else None,
        "next_try": instant(now_ms + left_ms) if is_open else None,
        # Until then what waited for the last outage is released, bit by bit.
        "recovered_at": instant(back_ms) if not is_open and back_ms > now_ms else None,
    }


def breaker_text(document: dict[str, Any]) -> str:
    provider = one_line(document["provider"])
    if document["state"] == "closed":
        until = f"; what waited comes back until {utc(document['recovered_at'])}"
        return f"{provider} is called as usual{until if document['recovered_at'] else ''}"
    failures = f"{document['failures']} failures in a row, down since {utc(document['since'])}"
    if document["state"] == "half-open":
        return f"circuit of {provider} is half-open: {failures}"
    return f"circuit of {provider} is open: {failures}; probed at {utc(document['next_try'])}"


def breaker_headline(document: dict[str, Any]) -> tuple[str, str]:
    """It ends by itself; an operator may know better."""
    command = f"kfm breaker reset {quote(one_line(document['provider']))} --rationale TEXT"
    return f"blocked by a provider: {breaker_text(document)}", command
