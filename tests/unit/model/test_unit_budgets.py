"""The retry budget of units: the shipped line of upstream events, as a project or a policy changes it."""

from __future__ import annotations

from typing import Any

import pytest

from kfm.model.retry import Classification
from kfm.model.retry_budgets import fate_of, lapse_fate, unit_policy
from kfm.model.settings import Ingest, IngestPolicy, RetrySettings, Settings, TriggerRetrySettings

pytestmark = pytest.mark.req("WAL-14", "TRG-1")

AWAY = Classification(retryable=True, error_class="HTTP_503")
OWN = IngestPolicy(
    datasets=("hrrr",),
    retry=RetrySettings(grants=2, upstream_event=TriggerRetrySettings(attempts=3)),
)
SETTINGS = Settings(retry=RetrySettings(attempts=5), ingest=Ingest(policies=(OWN,)))


def fate(dataset: str, *, grants: int, attempts: int, **more: Any) -> str:
    policy = unit_policy(SETTINGS, dataset)
    given = {
        "grants": grants,
        "grant_attempts": attempts,
        "granted_at_ms": 0,
        "now_ms": 0,
        "unit_random": 0.5,
    }
    return fate_of(AWAY, **given, policy=policy, **more).fate


def test_the_nearest_setting_wins() -> None:
    """The policy of the dataset, then the project, then what ships."""
    assert (unit_policy(SETTINGS, "hrrr").attempts_max, unit_policy(SETTINGS, "hrrr").grants_max) == (3, 2)
    assert (unit_policy(SETTINGS, "gfs").attempts_max, unit_policy(SETTINGS, "gfs").grants_max) == (5, 5)
    assert (unit_policy(None, "gfs").attempts_max, unit_policy(None, "gfs").grants_max) == (8, 5)


def test_a_failure_is_judged_by_it() -> None:
    """So many attempts, then a dead letter; after so many grants a quarantine."""
    assert fate("hrrr", grants=1, attempts=2) == "retry"
    assert fate("hrrr", grants=1, attempts=3) == "spent"
    assert fate("hrrr", grants=2, attempts=3) == "quarantine"
    assert fate("gfs", grants=2, attempts=3) == "retry"


def test_a_lapse_is_judged_by_it() -> None:
    """Also where the worker is gone."""
    given = {"grant_attempts": 3, "granted_at_ms": 0, "now_ms": 0, "unit_random": 0.5, "alone": True}
    assert lapse_fate(grants=2, **given, policy=unit_policy(SETTINGS, "hrrr")).fate == "quarantine"  # type: ignore[arg-type]
    assert lapse_fate(grants=2, **given).fate == "retry"  # type: ignore[arg-type]
