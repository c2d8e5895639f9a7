"""One letter for all units that a transaction ended: events are made of it when it is delivered."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from kfm.core.evidence import Letter
from kfm.core.unit_lineage import TOPIC, Ended
from kfm.core.wal import Claimed, Done, Undone
from kfm.store import evidence_rows, rows
from kfm.store.session import Session

_ENCODE = msgspec.json.Encoder().encode

__all__ = ["Ended", "of_failure", "of_success", "of_trail", "post"]


def of_success(one: Done, stac_status: str) -> Ended:
    claimed, entry = one.claimed, one.entry
    content = one.content
    # By position, in the order of the record's fields: this is done for every unit.
    return Ended(
        claimed.wal_id,
        claimed.attempts,
        claimed.dataset,
        claimed.object_uri,
        claimed.etag if content is None else content.etag,
        claimed.size if content is None else content.size,
        claimed.version_id,
        claimed.sequencer,
        claimed.content_version,
        claimed.event_time_ms,
        entry.collection_id if entry else None,
        entry.item_id if entry else None,
        stac_status,
        claimed.replay_reason,
        started_at_ms=claimed.claimed_at_ms,
    )


def of_failure(one: Undone) -> Ended:
    return failed(one.claimed, one.error_code, one.error_message)


def failed(claimed: Claimed, code: str, message: str) -> Ended:
    return Ended(
        wal_id=claimed.wal_id,
        attempt=claimed.attempts,
        dataset=claimed.dataset,
        object_uri=claimed.object_uri,
        etag=claimed.etag,
        size=claimed.size,
        version_id=claimed.version_id,
        sequencer=claimed.sequencer,
        content_version=claimed.content_version,
        event_time_ms=claimed.event_time_ms,
        replay_reason=claimed.replay_reason,
        error_code=code,
        error_message=rows.storable(message),
        started_at_ms=claimed.claimed_at_ms,
    )


def post(session: Session, ended: Sequence[Ended], now_ms: int) -> None:
    body = _ENCODE(ended).decode()
    digest = sha256(body.encode()).hexdigest()
    session.tell(
        "outbox.post",
        event_id=f"{TOPIC}/{now_ms}/{digest[:32]}",
        topic=TOPIC,
        subject=f"units/{now_ms}",  # by which a unit's history knows it again
        body=body,
        recorded_at_ms=now_ms,
    )


def of_trail(session: Session, trail: str) -> list[Letter]:
    """The letters that were posted with these pages of history."""
    numbers = [int(text) for text in trail.split()]
    found = session.all("outbox.of_pages", numbers=_ENCODE(numbers).decode())
    return [evidence_rows.letter_from(row) for row in found]
