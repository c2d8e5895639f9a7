"""Records of units from elsewhere, a line of JSON each: older ledgers, or another one of our own.

A record has the fields of a unit, with its times as RFC 3339 text. What older writers left out gets its
default, what we do not know goes under `extra`. A line that can't be read, or that contradicts itself, is
reported by its number and affects no other; a unit that is known already stays as it is, so the same file may
be read again. Texts are redacted, and host names become logical ones: older writers kept both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kfm.model.errors import KfmError, UsageError
from kfm.model.records import Record, Unit
from kfm.model.redaction import mask, redact, within
from kfm.model.times import parse_rfc3339
from kfm.model.units import canonical_object_uri, provider_of, wal_id
from kfm.nodd.dataset_registry import Registry
from kfm.nodd.intake import split
from kfm.nodd.messages.refusals import RecordRefusal

if TYPE_CHECKING:
    from kfm.db.units import Units

BATCH = 500  # records that become durable together
LINE_BYTES_MAX = 1024 * 1024
ERRORS_MAX = 100  # that are reported one by one
NUMBER_MAX = 2**53
MESSAGE_CHARS_MAX = 1_000
QUEUE = "imported"
FORMER_ID = "imported_wal_id"  # under extra: what the unit was called where it came from

TIMES = {
    "event_time": "event_time_ms",
    "time_range_start": "time_range_start_ms",
    "time_range_end": "time_range_end_ms",
    "last_attempt_at": "last_attempt_at_ms",
    "created_at": "created_at_ms",
    "updated_at": "updated_at_ms",
}
_PLAIN = frozenset(Unit.__struct_fields__) - set(TIMES.values()) - {"extra"}
_OWN = frozenset(Unit.__struct_fields__) | TIMES.keys()
_FREE = ("last_error_message",)
_STATUSES = ("integrity_status", "metadata_status", "stac_status", "provenance_status")
_HOSTS = ("host", "hostname", "worker_host")  # under extra: where older writers kept it beside the worker
# A worker's id here is a UUID; a number, or a name that was masked before, tells of no host either.
_LOGICAL = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|w(?:orker-)?\d{1,9}|masked(?:-[0-9a-f]+)?"
)


class Cleaning(NamedTuple):
    """What is done to texts of strangers on their way in."""

    hide: Callable[[str], str] = redact  # known secrets, and all that has their shape
    logical: Callable[[str], str] = lambda name: mask(name, None)  # for the name of a host


PLAIN = Cleaning()


class LineError(Record, frozen=True):
    """Why a line was not taken."""

    line: int
    error: str


class ImportReport(Record, frozen=True):
    """What became of the lines."""

    lines: int = 0
    created: int = 0
    known: int = 0  # were there already, and were left as they are
    refused: int = 0
    errors: tuple[LineError, ...] = ()  # the first of them


def import_units(
    lines: Iterable[str | bytes],
    wal: Units,
    registry: Registry,
    *,
    now_ms: int,
    actor: str,
    rationale: str,
    cleaning: Cleaning = PLAIN,
) -> ImportReport:
    """Import all lines; blank ones are skipped."""
    batch: dict[str, Unit] = {}
    errors: list[LineError] = []
    seen = created = known = refused = 0

    def flush() -> int:
        landed = wal.bring_in(tuple(batch.values()), actor, rationale) if batch else 0
        batch.clear()
        return landed

    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        seen += 1
        try:
            unit = read_line(line, registry, now_ms, cleaning)
        except KfmError as error:
            refused += 1
            if len(errors) < ERRORS_MAX:
                errors.append(LineError(line=number, error=error.detail))
            continue
        known += 1  # until it has landed
        batch.setdefault(unit.wal_id, unit)
        if len(batch) >= BATCH:
            created += flush()
    created += flush()
    return ImportReport(
        lines=seen, created=created, known=known - created, refused=refused, errors=tuple(errors)
    )


def read_line(line: str | bytes, registry: Registry, now_ms: int, cleaning: Cleaning = PLAIN) -> Unit:
    """The unit of a line. Raises UsageError."""
    if len(line) > LINE_BYTES_MAX:
        raise UsageError(f"The line has more than {LINE_BYTES_MAX} bytes.")
    try:
        document = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"Not JSON: {error}.") from None
    if not isinstance(document, dict):
        raise UsageError("Not a JSON object.")
    return unit_of(document, registry, now_ms, cleaning)


def unit_of(document: dict[str, Any], registry: Registry, now_ms: int, cleaning: Cleaning = PLAIN) -> Unit:
    for name in ("dataset", "object_uri", "status"):
        if not isinstance(document.get(name), str) or not document[name]:
            raise UsageError(f"`{name}` is missing or no text.")
    values: dict[str, Any] = {name: document[name] for name in _PLAIN if document.get(name) is not None}
    for name, field in TIMES.items():
        values[field] = _time(name, document.get(name))
    _check(values)
    values["extra"] = _extra(document)
    _identify(values, document, registry)
    values.setdefault("queue", QUEUE)
    values.setdefault("version", 1)
    values.setdefault("attempts", 0 if values["status"] == "pending" else 1)
    created_ms, updated_ms = values["created_at_ms"], values["updated_at_ms"]
    values["created_at_ms"] = next(at for at in (created_ms, updated_ms, now_ms) if at is not None)
    values["updated_at_ms"] = values["created_at_ms"] if updated_ms is None else updated_ms
    _clean(values, cleaning)
    try:
        return msgspec.convert(values, Unit)
    except msgspec.ValidationError as error:
        raise UsageError(f"{error}.") from None


def _clean(values: dict[str, Any], cleaning: Cleaning) -> None:
    """No secrets in free text; no host's name, neither as a worker nor where a text repeats it."""
    extra = values["extra"]
    hosts = {name for name in (values.get("worker_id"), *map(extra.get, _HOSTS)) if isinstance(name, str)}
    names = {name: cleaning.logical(name) for name in hosts if name and not _LOGICAL.fullmatch(name)}

    def clean(text: str) -> str:
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, names[name])
        return cleaning.hide(text)

    if "last_error_message" in values:
        values["last_error_message"] = clean(str(values["last_error_message"]))[:MESSAGE_CHARS_MAX]
    if "worker_id" in values:
        values["worker_id"] = names.get(values["worker_id"], values["worker_id"])
    if "stac_item_href" in values:
        values["stac_item_href"] = cleaning.hide(str(values["stac_item_href"]))
    values["extra"] = within(extra, clean)


def _time(name: str, text: Any) -> int | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise UsageError(f"`{name}` is not an RFC 3339 time.")
    try:
        return parse_rfc3339(text)
    except UsageError as error:
        raise UsageError(f"`{name}`: {error.detail}") from None


def _check(values: dict[str, Any]) -> None:
    """Texts that can be stored and shown, numbers that count something."""
    for name, value in values.items():
        if isinstance(value, str) and name not in _FREE and not value.isprintable():
            raise UsageError(f"`{name}` holds characters that can't be printed.")
    failed = [name for name in _STATUSES if values.get(name) == "failed"]
    if values["status"] == "succeeded" and failed:
        raise UsageError(f"`status` is succeeded, but {' and '.join(failed)} failed.")
    for name, least in (("version", 1), ("attempts", 0)):
        value = values.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < NUMBER_MAX:
            raise UsageError(f"`{name}` is not a number from {least} on.")


def _extra(document: dict[str, Any]) -> dict[str, Any]:
    """Its own extra, and every field that is not ours."""
    extra = document.get("extra", {})
    if extra is None:
        extra = {}
    if not isinstance(extra, dict):
        raise UsageError("`extra` is not an object.")
    unknown = {name: value for name, value in document.items() if name not in TIMES and name not in _PLAIN}
    unknown.pop("extra", None)
    if twice := sorted(extra.keys() & unknown.keys()):
        raise UsageError(f"Said twice, beside `extra` and in it: {', '.join(twice)}.")
    found = {**extra, **unknown}
    if shadowing := sorted(found.keys() & _OWN):
        raise UsageError(f"Extra fields shadow the record's own: {', '.join(shadowing)}.")
    return found


def _identify(values: dict[str, Any], document: dict[str, Any], registry: Registry) -> None:
    """The id that the object has here: the one that its next announcement will have, too."""
    uri = canonical_object_uri(values["object_uri"])
    provider = provider_of(uri.partition("://")[0])
    made = wal_id(values["dataset"], values["object_uri"], values["time_range_start_ms"])
    if provider is not None:
        try:
            reading = registry.read(*split(uri))
        except RecordRefusal:
            pass  # no dataset reads such keys any more; the record is used alone
        else:
            if reading.dataset != values["dataset"]:
                raise UsageError(f"The object belongs to the dataset {reading.dataset}.")
            made, uri = reading.wal_id, reading.object_uri
            for name in ("time_range_start_ms", "time_range_end_ms"):
                if values[name] is None:
                    values[name] = getattr(reading, name)
    former = document.get("wal_id")
    if isinstance(former, str) and former != made:
        values["extra"].setdefault(FORMER_ID, former)
    values["wal_id"], values["object_uri"] = made, uri
    if values.setdefault("provider", provider) is None:
        raise UsageError("`provider` is missing, and the address does not imply it.")
