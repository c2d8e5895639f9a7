"""Rows of the evidence to records and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kfm.core.errors import StoreCorrupt
from kfm.core.evidence import Attempt, Energy, Letter, Retry
from kfm.core.records import Found, Run
from kfm.store import rows
from kfm.store.session import Row

_ATTEMPT_FIELDS = Attempt.__struct_fields__
_RETRY_FIELDS = Retry.__struct_fields__
_LETTER_FIELDS = Letter.__struct_fields__
_FOUND = msgspec.json.Decoder(tuple[Found, ...])
_ENERGY = msgspec.json.Decoder(Energy)
_TEXTS = msgspec.json.Decoder(dict[str, str])
_COMPACT = msgspec.json.Encoder(order="deterministic")


def attempt_parameters(attempt: Attempt) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(attempt)
    parameters["retryable"] = None if attempt.retryable is None else int(attempt.retryable)
    parameters["validation"] = _encoded(attempt.validation)
    parameters["energy"] = _encoded(attempt.energy)
    if attempt.error_message is not None:
        parameters["error_message"] = rows.storable(attempt.error_message)
    return parameters


def closing_parameters(attempt: Attempt) -> dict[str, Any]:
    """Without what was said when it began."""
    parameters = attempt_parameters(attempt)
    for name in ("lineage_id", "invocation_id", "started_at_ms", "delay_ms"):
        del parameters[name]
    return parameters


def attempt_from(row: Row) -> Attempt:
    values = dict(zip(_ATTEMPT_FIELDS, row, strict=True))
    if values["retryable"] is not None:
        values["retryable"] = bool(values["retryable"])
    if values["validation"] is not None:
        values["validation"] = rows.value_of(values["validation"])
    if values["energy"] is not None:
        values["energy"] = _decoded(_ENERGY, values["energy"])
    return Attempt(**values)


def attempt_and_run_from(row: Row) -> tuple[int, Attempt, Run]:
    split = 1 + len(_ATTEMPT_FIELDS)
    return row[0], attempt_from(row[1:split]), rows.run_from(row[split:])


def retry_parameters(retry: Retry) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(retry)
    parameters["call_number"] = parameters.pop("call")
    parameters["try_number"] = parameters.pop("number")
    parameters["retryable"] = int(retry.retryable)
    parameters["circuit_open"] = int(retry.circuit_open)
    return parameters


def retry_from(row: Row) -> Retry:
    values = dict(zip(_RETRY_FIELDS, row, strict=True))
    values["retryable"] = bool(values["retryable"])
    values["circuit_open"] = bool(values["circuit_open"])
    return Retry(**values)


def letter_from(row: Row) -> Letter:
    return Letter(**dict(zip(_LETTER_FIELDS, row, strict=True)))


def found_text(found: Sequence[Found]) -> str:
    return _COMPACT.encode(found).decode()


def found_from(text: str) -> tuple[Found, ...]:
    found: tuple[Found, ...] = _decoded(_FOUND, text)
    return found


def texts_from(text: str) -> dict[str, str]:
    texts: dict[str, str] = _decoded(_TEXTS, text)
    return texts


def _encoded(value: Any) -> str | None:
    return None if value is None else _COMPACT.encode(value).decode()


def _decoded(decoder: msgspec.json.Decoder[Any], text: str) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"A stored document can't be read: {error}.") from error
