"""Patches that break retries and circuits: each must be caught, as those of the protocol."""

from __future__ import annotations

from tests.simulation.conditions import Patch
from tests.simulation.scheduler import Chances

TROUBLED = Chances(crash=0.0, stall=0.0, jump=0.0, fail_before=0.01, fail_after=0.0, trouble=1.0)
CROWDED = Chances(switch=0.5, crash=0.0, stall=0.0, jump=0.0, fail_before=0.01, fail_after=0.0, trouble=1.0)

RETRIES = (
    Patch(
        "the budget begins anew at every restart",
        "kfm.model.retry_budgets",
        (
            ("attempts=run.attempts, since_ms=run.start_time_ms", "attempts=1, since_ms=run.start_time_ms"),
            ("attempts=state.grant_attempts + run.attempts - state.attempt,", "attempts=1,"),
        ),
        chances=TROUBLED,
        rule="a delay is within its range",
    ),
    Patch(
        "two probe at once",
        "kfm.model.breaker",
        (("left_ms, longest_ms = (breaker.probe_until_ms or 0) - now_ms, ASKED_MAX_MS", "return 0"),),
        chances=CROWDED,
        rule="one probe at a time",
    ),
    Patch(
        "quarantined work is retried by itself",
        "kfm.model.retry_budgets",
        (
            (
                '    elif not kind.retryable:\n        fate = "quarantine"\n',
                '    elif not kind.retryable:\n        fate = "retry"\n',
            ),
            (
                "not_before_ms=decision.not_before_ms,\n        fate=fate,",
                "not_before_ms=decision.not_before_ms or now_ms + (30_000 << max(attempts - 1, 0)),\n"
                "        fate=fate,",
            ),
        ),
        chances=TROUBLED,
        rule="is not retried by itself",
    ),
    Patch(
        "a delay is outside its range",
        "kfm.model.retry",
        (
            (
                "return math.floor(nominal_ms * (0.5 + unit_random))",
                "return math.floor(nominal_ms * 2 * unit_random)",
            ),
        ),
        chances=TROUBLED,
        rule="a delay is within its",
    ),
    Patch(
        "one failure opens a circuit",
        "kfm.model.breaker",
        (("        if failures < limits.failures_max:\n", "        if failures < 1:\n"),),
        chances=TROUBLED,
        rule="it opens after so many failures",
    ),
    Patch(
        "a circuit is looked at once",
        "kfm.calls.breakers",
        (("0 <= self._clock.monotonic_ms() - self._seen_ms < FRESH_MS", "True"),),
        chances=TROUBLED,
        rule="circuit",
    ),
    Patch(
        "an open circuit refuses no call",
        "kfm.calls.breakers",
        (("            return self._probe()\n", "            return None\n"),),
        chances=TROUBLED,
        rule="is open",
    ),
    Patch(
        "a grant needs no person to answer for it",
        "kfm.runs.admission",
        (('*(["governed-retry"] if decision.grant == "governed" else []),', "*[],"),),
        chances=TROUBLED,
        rule="a person answers for every grant",
    ),
)
