"""Find the run that a person means."""

from __future__ import annotations

from typing import Any

from kfm.core.errors import UsageError

PREFIX_CHARS_MIN = 4
SEARCHED_MAX = 10_000


def find_run(ledger: Any, wanted: str) -> Any:
    """A run by its id, or by the beginning of it if that is enough to tell."""
    run = ledger.run(wanted)
    if run is not None:
        return run
    if len(wanted) < PREFIX_CHARS_MIN:
        raise UsageError(
            f"`{wanted}` is too short for a run: give at least {PREFIX_CHARS_MIN} characters of its id.",
            remedy="`kfm runs` lists them.",
        )
    found = [run for run in ledger.runs(limit=SEARCHED_MAX) if run.run_id.startswith(wanted.lower())]
    if len(found) == 1:
        return found[0]
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        names = ", ".join(run.run_id for run in found[:3]) + more
        raise UsageError(f"Several runs begin with `{wanted}`: {names}.", remedy="Give more of the id.")
    raise UsageError(f"There is no run `{wanted}`.", remedy="`kfm runs` lists them.")
