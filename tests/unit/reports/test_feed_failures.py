"""What becomes of units that one error holds up."""

from __future__ import annotations

from kfm.model.settings import Ingest, IngestPolicy
from kfm.model.units import UnitCause
from kfm.reports.feeds import feed_failures

HELD = UnitCause(
    dataset="mrms",
    standing="quarantined",
    error_code="SIZE_MISMATCH",
    count=36,
    first_ms=0,
    last_ms=1,
    due_ms=None,
    example="a-unit",
    message="another size",
)


def test_a_replay_is_printed_only_where_it_brings_something_back() -> None:
    """What no policy lets out of quarantine is told to stay, with what would change that; no command."""
    (stays,) = feed_failures([HELD], [], Ingest())
    assert stays.command == ""
    assert "names SIZE_MISMATCH under replay_quarantined" in stays.then
    policy = IngestPolicy(datasets=("mrms",), replay_quarantined=("SIZE_MISMATCH",))
    (comes_back,) = feed_failures([HELD], [], Ingest(policies=(policy,)))
    assert "--mode repair-and-replace" in comes_back.command
