"""The beginning of an id in the place of the whole, wherever a path names a record.

Commands and the console print the first characters of ids, and so does this take them. Where several records
begin so, nothing is guessed: the answer names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kfm.reports import lookup
from kfm.reports.quarantine import held_in
from kfm.web.api.operations import Operation
from kfm.web.problems import Problem

CANDIDATES_MAX = lookup.NAMED_MAX
FULL_CHARS = 32  # of the shortest whole id, a replay's
# By the first word of a path: the records that its first parameter names.
_SOUGHT: dict[str, Callable[[Any], lookup.Sought]] = {
    "runs": lookup.runs_in,
    "units": lambda ledger: lookup.units_in(ledger.unit_reader()),
    "requests": lambda ledger: lookup.requests_in(ledger.request_reader()),
    "approvals": lookup.approvals_in,
    "quarantine": held_in,
    "incidents": lookup.incidents_in,
    "replays": lambda ledger: lookup.replays_in(ledger.replay_reader()),
    "plans": lambda ledger: lookup.plans_in(ledger.window_plan_reader()),
    "dataset-changes": lookup.changes_in,
}


def takes_short_ids(operation: Operation) -> bool:
    return bool(operation.fields) and _first(operation) in _SOUGHT


def _first(operation: Operation) -> str:
    return operation.path.split("/")[1]


def with_whole_ids(ledger: Any, operation: Operation, path: Mapping[str, str]) -> Mapping[str, str]:
    """The path with the id that is meant. One that is whole, or of nothing, stays as it is."""
    if not takes_short_ids(operation):
        return path
    name = operation.fields[0]
    start = path[name].strip().lower()
    if not lookup.PREFIX_CHARS_MIN <= len(start) < FULL_CHARS:
        return path
    sought = _SOUGHT[_first(operation)](ledger)
    found = sorted({one for each in sought.find(start) if (one := sought.id_of(each)).startswith(start)})
    if start in found or not found:
        return path
    if len(found) == 1:
        return {**path, name: found[0]}
    shown = found[:CANDIDATES_MAX]
    raise Problem(
        409,
        f"Several {sought.words} begin with `{start}`: {', '.join(shown)}"
        f"{' and others' if len(found) > len(shown) else ''}.",
        members={"candidates": shown, "remedy": "Give more of the id."},
    )
