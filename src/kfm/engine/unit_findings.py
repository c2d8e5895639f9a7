"""What is known of a unit besides its key: from its announcement, and from looking at its object."""

from __future__ import annotations

import msgspec

from kfm.core.catalogue import Entry
from kfm.core.wal import Claimed, Done
from kfm.ingest.operators.chain import Looked


def dated(made: Entry, claimed: Claimed) -> Entry:
    """Where neither key nor header tell a time, the announcement's stands in for it."""
    if made.at_ms is not None or claimed.event_time_ms is None:
        return made
    return msgspec.structs.replace(made, at_ms=claimed.event_time_ms)


def declared(extra: str) -> dict[str, str] | None:
    """Checksums that the announcement brought along."""
    md5 = msgspec.json.decode(extra).get("md5") if '"md5"' in extra else None
    return {"md5": md5} if isinstance(md5, str) else None


def joined(extra: str, looked: Looked) -> str | None:
    """The unit's extra with what looking added to it; None: as it was."""
    added = {**looked.extra, **({"doubts": list(looked.doubts)} if looked.doubts else {})}
    if not added:
        return None
    return msgspec.json.encode({**msgspec.json.decode(extra), **added}, order="sorted").decode()


def gone(claimed: Claimed) -> Done:
    return Done(claimed, "unknown", "unknown", "ok", None)
