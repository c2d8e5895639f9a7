"""Rows to records and back. Column order in the queries is field order in the records."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kfm.db.packing import joined
from kfm.db.session import Row
from kfm.model.energy import Energy
from kfm.model.errors import StoreCorrupt, UnhashableInput
from kfm.model.records import (
    Found,
    GateResult,
    GovernanceEntry,
    Holder,
    Invocation,
    Lock,
    Manifest,
    Promotion,
    Run,
    Switch,
)
from kfm.model.runs import Attempt, CallRetry, ChainLink, OutboxMessage

if TYPE_CHECKING:
    from kfm.model.versions import Form

T = TypeVar("T")
NEVER = 2**62  # ms, or the number of a row: later than any
CATALOGUE = "catalogue:"  # how the names of its figures begin, among the counters of units

_RUN_FIELDS = Run.__struct_fields__
_PROMOTION_FIELDS = Promotion.__struct_fields__
_SWITCH_FIELDS = Switch.__struct_fields__
_ATTEMPT_FIELDS = Attempt.__struct_fields__
_RETRY_FIELDS = CallRetry.__struct_fields__
_MESSAGE_FIELDS = OutboxMessage.__struct_fields__
_GATES = msgspec.json.Decoder(tuple[GateResult, ...])
_MANIFEST = msgspec.json.Decoder(Manifest)
_FOUND = msgspec.json.Decoder(tuple[Found, ...])
_ENERGY = msgspec.json.Decoder(Energy)
_TEXTS = msgspec.json.Decoder(dict[str, str])
_ANY = msgspec.json.Decoder()
_SORTED = msgspec.json.Encoder(order="sorted")
_COMPACT = msgspec.json.Encoder(order="deterministic")
_BEFORE_THE_FIRST = "0" * 64


def headless() -> StoreCorrupt:
    """The row that says where the chain ends, which a migration makes, is gone."""
    return StoreCorrupt(
        "The audit log does not say where it ends: its head is gone.",
        remedy="`kfm audit verify` says more. Stop, and copy the database before anything else.",
    )


def storable(text: str) -> str:
    """Free text that every database takes: PostgreSQL knows no NUL, and UTF-8 no half surrogate pairs.

    A message comes from anywhere, and a failure must not fail to be recorded because of it.
    """
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{SYMBOL FOR NULL}")


def with_storable(parameters: dict[str, Any], free: tuple[str, ...]) -> dict[str, Any]:
    for name in free:
        text = parameters[name]
        if text is not None and (not text.isascii() or "\0" in text):
            parameters[name] = storable(text)
    return parameters


def text_of(value: Any) -> str:
    """Canonical JSON text of a record or a plain document."""
    from kfm.model.canonical import canonical_bytes  # late: readers do not need it

    return canonical_bytes(msgspec.to_builtins(value)).decode()


def prose_of(value: Any) -> str:
    """The same for documents that carry messages: text that has no canonical form is made storable."""
    try:
        return text_of(value)
    except UnhashableInput:
        return text_of(_all_storable(msgspec.to_builtins(value)))


def payload_of(value: Any) -> str:
    """As `prose_of`, for foreign values that are stored and never hashed: fractions are allowed."""
    return msgspec.json.encode(_all_storable(msgspec.to_builtins(value)), order="sorted").decode()


def _all_storable(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(key): _all_storable(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_all_storable(child) for child in value]
    return value


def value_of(text: str) -> Any:
    return _decoded(_ANY, text)


def _decoded(decoder: msgspec.json.Decoder[T], text: str) -> T:
    try:
        return decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"A stored document can't be read: {error}.") from error


def converted(fields: tuple[str, ...], row: Row, kind: type[T]) -> T:
    """A record, its values checked on the way: that costs less than keyword arguments do."""
    try:
        return msgspec.convert(dict(zip(fields, row, strict=True)), kind)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"A stored {kind.__name__.lower()} can't be read: {error}.") from error


# --- runs and invocations ------------------------------------------------------------


def run_from(row: Row) -> Run:
    return converted(_RUN_FIELDS, row, Run)


def run_parameters(run: Run) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(run)
    parameters["partition_key"] = parameters.pop("partition")
    return parameters


def invocation_from(row: Row) -> Invocation:
    (invocation_id, run_id, source_id, dataset_id, trigger_type, key, outcome, actor, requested_at_ms,
     claimed_actor, rationale, ticket, reason, gates, reason_code,
     window_start_ms, window_end_ms) = row  # fmt: skip
    return Invocation(
        invocation_id=invocation_id,
        run_id=run_id,
        source_id=source_id,
        dataset_id=dataset_id,
        trigger_type=trigger_type,
        idempotency_key=key,
        outcome=outcome,
        actor=actor,
        requested_at_ms=requested_at_ms,
        claimed_actor=claimed_actor,
        rationale=rationale,
        ticket=ticket,
        reason=reason,
        gates=_decoded(_GATES, gates),
        reason_code=reason_code,
        window_start_ms=window_start_ms,
        window_end_ms=window_end_ms,
    )


def invocation_parameters(invocation: Invocation) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(invocation)
    parameters["gates"] = gates_text(invocation.gates)
    return with_storable(parameters, ("actor", "claimed_actor", "rationale", "ticket", "reason"))


def gates_from(text: str) -> tuple[GateResult, ...]:
    return _decoded(_GATES, text)


def gates_text(gates: tuple[GateResult, ...]) -> str:
    with contextlib.suppress(UnicodeEncodeError):
        encoded = _SORTED.encode(gates)
        if encoded.isascii() and b"\\" not in encoded:
            return encoded.decode()  # of such text there is only one JSON form
    return prose_of(gates)


# --- locks, promotions, governance ---------------------------------------------------


def lock_from(row: Row) -> Lock:
    scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms = row
    holder = Holder(worker_id=worker_id, run_id=run_id) if worker_id is not None else None
    return Lock(
        scope=scope, fence=fence, holder=holder, acquired_at_ms=acquired_at_ms, lease_until_ms=lease_until_ms
    )


def promotion_from(row: Row) -> Promotion:
    return converted(_PROMOTION_FIELDS, row, Promotion)


def manifest_from(text: str) -> Manifest:
    return _decoded(_MANIFEST, text)


def header_from(text: str) -> tuple[Manifest, Form]:
    """What a stored version says beside its items, and the form in which it was named."""
    from kfm.model import versions  # late: not every command looks at one

    plain = _decoded(_ANY, text)
    if not isinstance(plain, dict) or plain.get("manifest") != 2:
        return manifest_from(text), 1
    return versions.header_from(plain), 2


def switch_from(row: Row) -> Switch:
    return converted(_SWITCH_FIELDS, row, Switch)


def switch_parameters(switch: Switch) -> dict[str, Any]:
    return with_storable(msgspec.structs.asdict(switch), ("rationale", "actor"))


def entry_from(row: Row) -> GovernanceEntry:
    kind, subject, actor, recorded_at_ms, rationale, ticket, details = row
    return GovernanceEntry(
        kind=kind,
        subject=subject,
        actor=actor,
        recorded_at_ms=recorded_at_ms,
        rationale=rationale,
        ticket=ticket,
        details=value_of(details),
    )


def entry_parameters(entry: GovernanceEntry) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(entry)
    parameters["details"] = prose_of(entry.details)
    return with_storable(parameters, ("actor", "rationale", "ticket"))


def stored_entry(parameters: dict[str, Any]) -> GovernanceEntry:
    """The entry as it will be read back."""
    return GovernanceEntry(**{**parameters, "details": value_of(parameters["details"])})


def entry_of_link(row: Row) -> GovernanceEntry:
    """An entry whose every byte counts: what none of us wrote like this must not pass for what it means.

    More spaces, one key twice, text where a number belongs: it is kept beside a mark that no entry has.
    """
    kind, subject, actor, recorded_at_ms, rationale, ticket, text = row
    details = _as_written(text)
    words = [kind, subject, actor, rationale or "", ticket or ""]
    if details is None or type(recorded_at_ms) is not int or not all(type(word) is str for word in words):
        details = {"$unreadable": repr(row)}
        kind, subject, actor = str(kind), str(subject), str(actor)
        recorded_at_ms, rationale, ticket = 0, None, None
    return GovernanceEntry(
        kind=kind,
        subject=subject,
        actor=actor,
        recorded_at_ms=recorded_at_ms,
        rationale=rationale,
        ticket=ticket,
        details=details,
    )


def _as_written(text: Any) -> dict[str, Any] | None:
    """The details, if this is exactly how they are written."""
    try:
        details = value_of(text)
        return details if type(details) is dict and text_of(details) == text else None
    except (StoreCorrupt, UnhashableInput, TypeError):
        return None


def link_from(row: Row) -> ChainLink:
    number, *entry, previous, digest = row
    return ChainLink(
        number=number, entry=entry_of_link(tuple(entry)), previous=previous or _BEFORE_THE_FIRST, hash=digest
    )


# --- attempts, retries, the outbox ----------------------------------------------------


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
        "error_message": None if message is None else storable(message),
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
        values["validation"] = value_of(values["validation"])
    if values["energy"] is not None:
        values["energy"] = _decoded(_ENERGY, values["energy"])
    return Attempt(**values)


def attempt_and_run_from(row: Row) -> tuple[int, Attempt, Run]:
    split = 1 + len(_ATTEMPT_FIELDS)
    return row[0], attempt_from(row[1:split]), run_from(row[split:])


def retry_parameters(retry: CallRetry) -> dict[str, Any]:
    parameters = msgspec.structs.asdict(retry)
    parameters["call_number"] = parameters.pop("call")
    parameters["try_number"] = parameters.pop("number")
    parameters["retryable"] = int(retry.retryable)
    parameters["circuit_open"] = int(retry.circuit_open)
    parameters["energy"] = _encoded(retry.energy)
    return parameters


def retry_from(row: Row) -> CallRetry:
    values = dict(zip(_RETRY_FIELDS, row, strict=True))
    values["retryable"] = bool(values["retryable"])
    values["circuit_open"] = bool(values["circuit_open"])
    if values["energy"] is not None:
        values["energy"] = _decoded(_ENERGY, values["energy"])
    return CallRetry(**values)


def message_from(row: Row) -> OutboxMessage:
    """Of the columns of a message; and, where units may be what it is about, of its packed body."""
    values = dict(zip(_MESSAGE_FIELDS, row, strict=False))
    if len(row) > len(_MESSAGE_FIELDS):
        values["body"] = joined(values["body"], row[-1])
    return OutboxMessage(**values)


def found_text(found: Sequence[Found]) -> str:
    return _COMPACT.encode(found).decode()


def found_from(text: str) -> tuple[Found, ...]:
    return _decoded(_FOUND, text)


def texts_from(text: str) -> dict[str, str]:
    return _decoded(_TEXTS, text)


def _encoded(value: Any) -> str | None:
    return None if value is None else _COMPACT.encode(value).decode()


def beginning(start: str) -> dict[str, str]:
    """The span of all ids that begin so. Ids are hexadecimal: no collation sorts their signs after `z`."""
    return {"low": start, "high": f"{start}zz"}
