"""What it means for a run that a person stopped the process."""

from __future__ import annotations

import pytest

from kfm.model.errors import Cancelled, SwitchThrown
from kfm.model.quarantine import RetryState
from kfm.runs.outcome import judged
from tests.conformance.db.ledgers import START_MS, new_run

LATER_MS = START_MS + 60_000


def ended(error: Cancelled | SwitchThrown, *, automatic: bool, attempts: int = 2) -> RetryState:
    run = new_run("levels", attempts=attempts)
    return judged(run, error, None, idempotent=True, automatic=automatic, now_ms=LATER_MS, unit_random=0.5)


@pytest.mark.req("TRG-1", "RET-3")
def test_who_stops_a_process_that_makes_what_is_due_means_no_run_of_it() -> None:
    """The attempt counts, as if the process had been killed, and the next one is due in its time."""
    state = ended(Cancelled(), automatic=True)
    assert (state.fate, state.grant_attempts, state.error_class) == ("retry", 2, "lease")
    assert state.not_before_ms == LATER_MS + 60_000


@pytest.mark.req("TRG-1")
def test_who_stops_what_he_began_is_believed() -> None:
    """Only a person goes on with it; no process does by itself."""
    state = ended(Cancelled(), automatic=False)
    assert (state.fate, state.reason) == ("spent", "stopped")


@pytest.mark.req("TRG-1")
def test_a_kill_switch_stops_automatic_attempts_too() -> None:
    """That was thrown because of the work, not because of the process."""
    state = ended(SwitchThrown("The dataset is stopped."), automatic=True)
    assert (state.fate, state.reason) == ("spent", "stopped")


@pytest.mark.req("TRG-1")
def test_stopping_gives_no_attempt_back() -> None:
    """The last one that was granted is the last one, however it ended."""
    assert ended(Cancelled(), automatic=True, attempts=6).fate == "spent"
