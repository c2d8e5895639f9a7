"""A unit's history as a story of attempts: what each looked at, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kfm.core.records import Record
from kfm.core.wal import Move


class Version(Record, frozen=True):
    """The bytes of an object, as they were announced."""

    number: int
    etag: str | None = None
    size: int | None = None


class Try(Record, frozen=True):
    """One attempt at a unit."""

    attempt: int
    started_at_ms: int
    looked_at: Version
    worker_id: str | None = None
    ended_at_ms: int | None = None  # None: under way
    error_code: str | None = None
    error_class: str | None = None
    stac_status: str | None = None


def catalogued(move: Move) -> str | None:
    """What became of the item. Most are new, so the history only says so where one is not."""
    return str(move.details.get("stac_status", "created")) if move.event == "succeeded" else None


def tries(history: Sequence[Move]) -> list[Try]:
    """In their order. One that was put back untried is no attempt: the next claim takes its number."""
    made: dict[int, Try] = {}
    version, under_way = Version(1), None
    for move, following in zip(history, [*history[1:], None], strict=True):
        version = _announced(version, move)
        if move.event == "claimed":
            under_way = Try(move.attempts, move.at_ms, version, move.worker_id)
            made[move.attempts] = under_way
        elif move.status in ("succeeded", "failed") and under_way is not None and move.event == move.status:
            if (
                following is not None
                and following.status == "pending"
                and following.attempts == move.attempts
            ):
                del made[under_way.attempt]
            else:
                made[under_way.attempt] = replace(
                    under_way,
                    ended_at_ms=max(move.at_ms, under_way.started_at_ms),
                    error_code=move.details.get("error_code"),
                    error_class=move.details.get("error_class"),
                    stac_status=catalogued(move),
                )
            under_way = None
    return [made[number] for number in sorted(made)]


def versions(history: Iterable[Move]) -> list[Version]:
    """The different bytes that were announced."""
    found: list[Version] = []
    version = Version(1)
    for move in history:
        seen = _announced(version, move)
        if seen != version or not found:
            found = [one for one in found if one.number != seen.number]
            found.append(seen)
        version = seen
    return found


def _announced(version: Version, move: Move) -> Version:
    details = move.details
    if move.event == "stale":
        return version
    number = details.get("content_version", version.number)
    if "etag" not in details:
        return replace(version, number=number)
    return Version(number, details["etag"], details.get("size"))
