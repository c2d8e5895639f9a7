"""The next step about a run or an entry in quarantine, from what the ledger has of it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kfm.model.approvals import open_attempt
from kfm.model.errors import Refused, all_errors
from kfm.model.next_steps import NextStep, held_step, run_step
from kfm.model.quarantine import Approval, QuarantineEntry
from kfm.model.records import GateResult, Run
from kfm.model.retry_budgets import NEEDS_APPROVAL, limits_of, unit_policy
from kfm.model.settings import Settings
from kfm.reports.explain.invocations import refused

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

CALLS_MAX = 20


def step_of_run(
    ledger: LedgerReader, run: Run, now_ms: int, settings: Settings | None = None
) -> NextStep | None:
    """What a person does next about this run; None: nothing."""
    if run.status == "success":
        return None
    held = held_of_run(ledger, run)
    state = ledger.retry_state(run.run_id)
    return run_step(
        run,
        state=state,
        held=held,
        approval=waiting(ledger, held) if held else None,
        attempt=_attempt(ledger, run, now_ms) if state and state.reason == NEEDS_APPROVAL else None,
        blocker=_blocker(ledger, run),
        now_ms=now_ms,
        limits=limits_of(settings, run.source_id),
    )


def step_of_held(
    ledger: LedgerReader, held: QuarantineEntry, now_ms: int, settings: Settings | None = None
) -> NextStep | None:
    """What a person does next about an entry in quarantine: the step of its run, where it has one."""
    run = ledger.run(held.subject) if held.grain == "run" and held.state == "held" else None
    if run is not None and run.status == "failed":
        return step_of_run(ledger, run, now_ms, settings)
    unit = ledger.unit_reader().stored(held.subject) if held.grain == "unit" else None
    left = unit is None or unit.grants < unit_policy(settings, unit.unit.dataset).grants_max
    return held_step(held, waiting(ledger, held), grants_left=left)


def waiting(ledger: LedgerReader, held: QuarantineEntry) -> Approval | None:
    """The request for its release that waits for an approval."""
    asked = ledger.approvals(state="requested", subject=held.held_id, limit=1)
    return next(iter(asked), None)


def asked_about(ledger: LedgerReader, run: Run, now_ms: int) -> Approval | None:
    """The request about a run that waits for another person: for its release, or for another attempt."""
    held = held_of_run(ledger, run)
    asked = waiting(ledger, held) if held is not None else _attempt(ledger, run, now_ms)
    return asked if asked is not None and asked.state == "requested" else None


def held_of_run(ledger: LedgerReader, run: Run) -> QuarantineEntry | None:
    """Its entry in quarantine, if it is held."""
    return next(iter(ledger.held(state="held", subject=run.run_id, limit=1)), None)


def _attempt(ledger: LedgerReader, run: Run, now_ms: int) -> Approval | None:
    """The newest request for an attempt at its work that waits, or was approved and can still be used."""
    known = ledger.approvals(subject=run.work_base, limit=CALLS_MAX)
    return next((one for one in known if open_attempt(one, now_ms)), None)


def _blocker(ledger: LedgerReader, run: Run) -> GateResult | None:
    """The gate that refused its last attempt, if that is what ended it."""
    if run.error_code not in _refusing():
        return None
    calls = ledger.invocations(run_id=run.run_id, limit=CALLS_MAX)  # the newest first
    ended = next((call for call in calls if call.outcome in ("refused", "failed")), None)
    return next(iter(refused(ended.gates)), None) if ended else None


@cache
def _refusing() -> frozenset[str]:
    """Also that of a cancelled run: an emergency stop is a switch that can be lifted."""
    return frozenset(error.code for error in all_errors() if issubclass(error, Refused)) | {"CANCELLED"}
