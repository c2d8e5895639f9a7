"""What upstream had then and now, compared object by object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from kfm.core.records import Found, Record, Run
from kfm.core.wording import counted, moment
from kfm.explain.sentences import Sentence, of_inputs, of_run
from kfm.ports import LedgerReader

SHOWN_MAX = 10
VALUE_CHARS_MAX = 80
# The one that says most about the content comes first.
_FIELDS = ("checksum", "etag", "version", "size", "modified_ms", "uri", "media_type")
_NAMES = {"modified_ms": "modified", "media_type": "media type", "etag": "ETag", "uri": "address"}


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
        (_NAMES.get(name, name), _value(name, getattr(old, name)), _value(name, getattr(new, name)))
        for name in _FIELDS
        if getattr(old, name) != getattr(new, name)
    )


def _value(name: str, value: Any) -> str:
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
    told = [of_inputs(f"Its inputs are {now}; those of run {previous.run_id} were {then}.", now)]
    before, after = ledger.inputs(then), ledger.inputs(now)
    if before is None or after is None:
        lost = then if before is None else now
        return None, [
            *told,
            of_inputs("No evidence of which input changed: what was discovered then is not kept.", lost),
        ]
    found = differences(before, after)
    if not found:
        return None, [*told, of_inputs("No evidence of which input changed: both lists are alike.", now)]
    told += [of_inputs(f"Input {each.text}.", now) for each in found[:SHOWN_MAX]]
    if len(found) > SHOWN_MAX:
        more = counted(len(found) - SHOWN_MAX, "more input")
        told.append(of_inputs(f"And {more}.", now))
    rest = f", and {counted(len(found) - 1, 'more input')} did too" if len(found) > 1 else ""
    return f"input {found[0].text}{rest}", told
