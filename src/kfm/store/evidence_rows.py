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


def opening_parameters(attempt: Attempt) -> dict[str, Any]:
    """What is known when it begins."""
    return {
        "run_id": attempt.run_id,
        "attempt": attempt.attempt,
        "node": attempt.node,
        "lineage_id": attempt.lineage_id,
        "invocation_id": attempt.invocation_id,
        "started_at_ms": attempt.started_at_ms,
        "delay_ms": attempt.delay_ms,
        "inputs_hash": attempt.inputs_hash,
        "code_sha": attempt.code_sha,
    }


def closing_parameters(attempt: Attempt) -> dict[str, Any]:
    """What was learnt since."""
    message = attempt.error_message
    return {
        "run_id": attempt.run_id,
        "attempt": attempt.attempt,
        "node": attempt.node,
        "ended_at_ms": attempt.ended_at_ms,
        "ending": attempt.ending,
        "outcome": attempt.outcome,
        "error_code": attempt.error_code,
        "error_class": attempt.error_class,
        "error_message": None if message is None else rows.storable(message),
        "retryable": None if attempt.retryable is None else int(attempt.retryable),
        "inputs_hash": attempt.inputs_hash,
        "validation": _encoded(attempt.validation),
        "code_sha": attempt.code_sha,
        "energy": _encoded(attempt.energy),
    }


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
    parameters["energy"] = _encoded(retry.energy)
    return parameters


def retry_from(row: Row) -> Retry:
    values = dict(zip(_RETRY_FIELDS, row, strict=True))
    values["retryable"] = bool(values["retryable"])
    values["circuit_open"] = bool(values["circuit_open"])
    if values["energy"] is not None:
        values["energy"] = _decoded(_ENERGY, values["energy"])
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
