"""What was given up, and is held for whoever looks into it."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.core.holding import Held
from kfm.store import rows
from kfm.store.session import Row, Session

_HELD_FIELDS = Held.__struct_fields__
_FREE = ("error_message",)


def held_from(row: Row) -> Held:
    values = dict(zip(_HELD_FIELDS, row, strict=True))
    for name in ("source_ids", "error_classes"):
        values[name] = rows.value_of(values[name])
    return rows.converted(_HELD_FIELDS, tuple(values.values()), Held)


def held_parameters(held: Held) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(held)
    for name in ("source_ids", "error_classes"):
        parameters[name] = rows.prose_of(parameters[name])
    return rows.with_storable(parameters, _FREE)


def put(session: Session, held: Held | None) -> None:
    if held is not None:
        session.all("held.put", **held_parameters(held))
