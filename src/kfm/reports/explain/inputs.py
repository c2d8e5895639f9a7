"""Explains changed inputs: field by field, and upstream then and now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kfm.model.canonical import FLOAT_TAG
from kfm.model.derived import missing_of
from kfm.model.quantities import counted, moment
from kfm.model.records import Found, Record, Run
from kfm.model.redaction import redacted_document
from kfm.reports.explain.sentences import Sentence, of_inputs, of_run

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

VALUE_CHARS_MAX = 80
SHOWN_MAX = 10
# The one that says most about the content comes first.
_FIELDS = ("checksum", "etag", "version", "size", "modified_ms", "uri", "media_type")
_NAMES = {"modified_ms": "modified", "media_type": "media type", "etag": "ETag", "uri": "address"}


class InputChange(Record, frozen=True):
    """One field that is not what it was; None: it was not there."""

    what: Literal["input", "parameter"]
    name: str
    field: str
    before: str | None
    after: str | None

    @property
    def text(self) -> str:
        if self.before is None:
            return f"{self.what} {self.name} is new{'' if self.what == 'input' else f': {self.after}'}"
        if self.after is None:
            return f"{self.what} {self.name} is gone"
        field = f"{self.field} of " if self.field else ""
        return f"{field}{self.what} {self.name} changed from {self.before} to {self.after}"


def changes(before: str, after: str) -> list[InputChange]:
    """In the order of names: inputs, then parameters."""
    old, new = _read(before), _read(after)
    found: list[InputChange] = []
    inputs = [{_name(row): row for row in document["inputs"]} for document in (old, new)]
    for name in sorted(inputs[0].keys() | inputs[1].keys()):
        found += _of_input(name, inputs[0].get(name), inputs[1].get(name))
    params = old["params"], new["params"]
    for name in sorted(params[0].keys() | params[1].keys()):
        values = [_value(each[name]) if name in each else None for each in params]
        if values[0] != values[1] or params[0].get(name) != params[1].get(name):
            found.append(
                InputChange(what="parameter", name=name, field="", before=values[0], after=values[1])
            )
    return found


def upstream(document: str) -> list[tuple[str, str]]:
    """The nodes that were read from, with what was seen of their outputs."""
    return [(row["id"], row.get("checksum", "")) for row in _read(document)["inputs"] if "id" in row]


def outside(document: str) -> list[str]:
    """What was read from elsewhere."""
    return [str(row["uri"]) for row in _read(document)["inputs"] if "uri" in row]


def _read(document: str) -> dict[str, Any]:
    read = msgspec.json.decode(redacted_document(document))
    return {"inputs": read.get("inputs") or [], "params": read.get("params") or {}}


def _name(row: dict[str, Any]) -> str:
    return str(row.get("uri") or row.get("id"))


def _of_input(name: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[InputChange]:
    if old is None or new is None:
        sign = "" if old is None else "there"
        return [
            InputChange(
                what="input", name=name, field="", before=sign or None, after=None if sign else "there"
            )
        ]
    return [
        InputChange(
            what="input", name=name, field=field, before=_value(old.get(field)), after=_value(new.get(field))
        )
        for field in sorted(old.keys() | new.keys())
        if old.get(field) != new.get(field)
    ]


def _value(value: Any) -> str:
    """As a person would write it: numbers with a fraction are tagged in what is hashed."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        text = value
    elif isinstance(value, dict) and set(value) == {FLOAT_TAG}:
        text = str(value[FLOAT_TAG])
    else:
        text = msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"


class Difference(Record, frozen=True):
    """One object that came, went, or is not what it was."""

    path: str
    kind: Literal["added", "removed", "changed"]
    fields: tuple[tuple[str, str, str], ...] = ()  # name, from, to

    @property
    def text(self) -> str:
        if self.kind != "changed":
            return f"{self.path} was {self.kind}"
        said = ", ".join(f"{name} from {before} to {after}" for name, before, after in self.fields)
        return f"{self.path} changed: {said}"


def differences(before: Sequence[Found], after: Sequence[Found]) -> list[Difference]:
    """In the order of paths."""
    old, new = ({each.path: each for each in found} for found in (before, after))
    found = []
    for path in sorted(old.keys() | new.keys()):
        if path not in new:
            found.append(Difference(path=path, kind="removed"))
        elif path not in old:
            found.append(Difference(path=path, kind="added"))
        elif old[path] != new[path]:
            found.append(Difference(path=path, kind="changed", fields=_changed(old[path], new[path])))
    return found


def _changed(old: Found, new: Found) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (
            _NAMES.get(name, name),
            _shown_value(name, getattr(old, name)),
            _shown_value(name, getattr(new, name)),
        )
        for name in _FIELDS
        if getattr(old, name) != getattr(new, name)
    )


def _shown_value(name: str, value: Any) -> str:
    if value is None:
        return "nothing"
    text = moment(value) if name == "modified_ms" else str(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"


def seen(ledger: LedgerReader, run: Run) -> str | None:
    """The fingerprint of what a run found upstream; one that failed has it with its attempts only."""
    if run.fingerprint is not None:
        return run.fingerprint
    hashes = [row.inputs_hash for row in ledger.attempts(run.run_id) if row.node == "" and row.inputs_hash]
    return hashes[-1] if hashes else None


def compared(ledger: LedgerReader, previous: Run, run: Run) -> tuple[str | None, list[Sentence]]:
    """What made the inputs of two runs differ, in half a sentence, and all of it; None: no evidence."""
    then, now = seen(ledger, previous), seen(ledger, run)
    if then is None or now is None:
        which = previous if then is None else run
        return None, [of_run("No evidence of which input changed: its fingerprint is not on record.", which)]
    if then == now:
        return None, [of_inputs(f"Its inputs equal those of run {previous.run_id}: both are {now}.", now)]
    sentences = [of_inputs(f"Its inputs are {now}; those of run {previous.run_id} were {then}.", now)]
    before, after = ledger.inputs(then), ledger.inputs(now)
    if before is None or after is None:
        lost = then if before is None else now
        return None, [
            *sentences,
            of_inputs("No evidence of which input changed: what was discovered then is not kept.", lost),
        ]
    found = differences(before, after)
    missing = missing_of(ledger.derived_reader().pins(run.run_id))
    if missing:  # all inputs or nothing: what is still there was not read, and has not changed
        gone = [each for each in found if each.path.partition("/")[0] in missing]
        held = " and ".join(f"dataset {name}" for name in missing)
        text = f"{held} held nothing for its window, so that nothing was read"
        return text, [
            *sentences,
            of_inputs(f"{text[0].upper()}{text[1:]}.", now),
            *(of_inputs(f"Input {each.text}.", now) for each in gone[:SHOWN_MAX]),
        ]
    if not found:
        return None, [*sentences, of_inputs("No evidence of which input changed: both lists are alike.", now)]
    sentences += [of_inputs(f"Input {each.text}.", now) for each in found[:SHOWN_MAX]]
    if len(found) > SHOWN_MAX:
        more = counted(len(found) - SHOWN_MAX, "more input")
        sentences.append(of_inputs(f"And {more}.", now))
    rest = f", and {counted(len(found) - 1, 'more input')} did too" if len(found) > 1 else ""
    return f"input {found[0].text}{rest}", sentences
