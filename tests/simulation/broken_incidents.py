"""Patches that break incidents: each must be caught, as those of the protocol."""

from __future__ import annotations

from tests.simulation.broken_retries import TROUBLED
from tests.simulation.conditions import QUIET, Patch

INCIDENTS = (
    Patch(
        "every run is an incident of its own",
        "kfm.model.incidents",
        (("trouble.error_code, trouble.key)", "trouble.subject, trouble.key)"),),
        chances=TROUBLED,
    ),
    Patch(
        "a success resolves nothing",
        "kfm.db.promotion",
        (('    watch.succeeded(session, run, now_ms, is_there=request.outcome != "absent")\n', ""),),
    ),
    Patch(
        "an open circuit is no incident",
        "kfm.db.ledger",
        (("            self._journal.watch.circuit(session, *answer, session.now_ms())\n", ""),),
        chances=TROUBLED,
    ),
    Patch(
        "a change is told each time",
        "kfm.model.incidents",
        (('return met, "worse" if worse else None', 'return met, "worse"'),),
        chances=QUIET,
    ),
)
