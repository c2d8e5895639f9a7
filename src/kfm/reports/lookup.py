"""Find the run, or the call, that a person means."""

from __future__ import annotations

import re
from typing import Any

from kfm.model.errors import UsageError

PREFIX_CHARS_MIN = 4
WAL_ID = re.compile(r"[0-9a-f]{13}-[0-9a-f]{20}")
SEARCHED_MAX = 10_000
NAMED_MAX = 3


def is_wal_id(text: str) -> bool:
    """Is it the id of a unit? No id of anything else looks like one."""
    return WAL_ID.fullmatch(text) is not None


def find_unit(reader: Any, wanted: str) -> Any:
    """A unit with what the ledger keeps beside it, by its id."""
    found = reader.stored(wanted) if is_wal_id(wanted) else None
    if found is None:
        raise UsageError(f"There is no unit `{wanted[:80]}`.", remedy="`kfm nodd units` lists them.")
    return found


def find_run(ledger: Any, wanted: str) -> Any:
    """A run by its id, or by the beginning of it if that is enough to tell."""
    run = ledger.run(wanted)
    if run is not None:
        return run
    _require_telling(wanted)
    found = [run for run in ledger.runs(limit=SEARCHED_MAX) if run.run_id.startswith(wanted.lower())]
    if found:
        return _only(wanted, "runs", found, [run.run_id for run in found])
    raise UsageError(f"There is no run `{wanted}`.", remedy="`kfm runs` lists them.")


def find_run_or_call(ledger: Any, wanted: str) -> Any:
    """A run or a call, by its id or by the beginning of it: a call that was turned away became no run."""
    known = ledger.run(wanted) or ledger.invocation(wanted)
    if known is not None:
        return known
    _require_telling(wanted)
    start = wanted.lower()
    runs = [run for run in ledger.runs(limit=SEARCHED_MAX) if run.run_id.startswith(start)]
    calls = [call for call in ledger.invocations(limit=SEARCHED_MAX) if call.invocation_id.startswith(start)]
    if runs or calls:
        what = "runs" if not calls else "calls" if not runs else "runs and calls"
        ids = [run.run_id for run in runs] + [call.invocation_id for call in calls]
        return _only(wanted, what, [*runs, *calls], ids)
    raise UsageError(
        f"There is no run and no call `{wanted}`.",
        remedy="`kfm runs` lists runs; `kfm explain DATASET` names its newest call.",
    )


def _require_telling(wanted: str) -> None:
    if len(wanted) < PREFIX_CHARS_MIN:
        raise UsageError(
            f"`{wanted}` is too short for a run: give at least {PREFIX_CHARS_MIN} characters of its id.",
            remedy="`kfm runs` lists them.",
        )


def _only(wanted: str, what: str, found: list[Any], ids: list[str]) -> Any:
    if len(found) == 1:
        return found[0]
    more = f" and {len(ids) - NAMED_MAX} more" if len(ids) > NAMED_MAX else ""
    names = ", ".join(ids[:NAMED_MAX]) + more
    raise UsageError(f"Several {what} begin with `{wanted}`: {names}.", remedy="Give more of the id.")
