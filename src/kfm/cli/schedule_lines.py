"""How schedules and what became of their instants are told to people."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from kfm.cli.output import between, clipped, short_id, utc
from kfm.core.wording import duration

TOGETHER_MIN = 10  # instants of the same fate that are told in one row


def when(document: dict[str, Any]) -> str:
    """The pattern."""
    if document["cron"] is not None:
        return str(document["cron"])
    return f"every {duration(document['every_seconds'] * 1000)}"


def fate_word(document: dict[str, Any]) -> str:
    """What became of an instant, in one word: how its request ended, where it had one."""
    from kfm.core.scheduling import FIRST_SEEN

    if document["fate"] == "redefined" and document["reason"] == FIRST_SEEN:
        return "not known yet"
    return str(document["outcome"] or document["state"] or document["fate"])


def history_rows(documents: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A row for each instant; many in a row that became the same without a request share one."""
    rows = []
    for _, same in groupby(documents, key=lambda each: (fate_word(each), each["reason"], each["request_id"])):
        many = list(same)
        together = many[0]["request_id"] is None and len(many) >= TOGETHER_MIN
        rows += [_row(many)] if together else [_row([each]) for each in many]
    return rows


def _row(many: list[dict[str, Any]]) -> tuple[str, ...]:
    first, last = many[0], many[-1]
    at = utc(first["instant"]).removesuffix(" UTC")
    why = first["reason"] or ""
    if len(many) > 1:
        at = f"{at} … {utc(last['instant']).removesuffix(' UTC')}"
        why = f"{len(many)} instants{f': {why}' if why else ''}"
    return (
        at,
        fate_word(first),
        between(first["window_start"], last["window_end"]),
        short_id(first["run_id"]) if first["run_id"] else "-",
        clipped(why),
    )
