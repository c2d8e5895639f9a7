"""Retry sequences: runs that were tried again, and external calls that were."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from kfm.model.energy import Energy
from kfm.model.errors import LimitExceeded
from kfm.model.records import Run
from kfm.model.retry_budgets import limits_of
from kfm.model.runs import Attempt, CallRetry
from kfm.model.settings import Settings
from kfm.telemetry.counts import CostTally
from kfm.telemetry.documents import Compliance, Sequence, SequenceTry, amount

TRIES_MAX = 200_000
WHOLE_RUN = "run"  # the stage of a sequence whose tries are whole runs
CIRCUIT_OPEN = "circuit-open"
_FATES: dict[str | None, Literal["success", "failure", "aborted", "in-progress"]] = {
    "complete": "success",
    "fail": "failure",
    "abort": "aborted",
    None: "in-progress",
}


class Sequences:
    """Collects tries, in the order in which their sequences began.

    This is the one part of a telemetry document that grows with what is in it, so it has a limit.
    """

    def __init__(self, telemetry_ref: str, settings: Settings | None = None) -> None:
        self._ref = telemetry_ref
        self._settings = settings
        self._found: dict[tuple[str, ...], list[Attempt] | list[CallRetry]] = {}
        self._runs: dict[str, Run] = {}
        self._tries = 0
        self._opened: set[tuple[str, int]] = set()  # attempts in which a circuit opened, or was open
        self.cost = CostTally()
        self._classes: Counter[str] = Counter()

    def add_attempt(self, attempt: Attempt, run: Run) -> None:
        """`run` with public names."""
        if run.attempts < 2:
            return
        tries: list[Attempt] = self._found.setdefault((run.run_id,), [])  # type: ignore[assignment]
        tries.append(attempt)
        self._count(run, attempt.error_class or attempt.error_code)
        if attempt.attempt > 1 and attempt.ending is not None:
            self.cost.add(attempt.energy)

    def add_retry(self, retry: CallRetry, run: Run) -> None:
        key = (run.run_id, str(retry.attempt), retry.node, str(retry.call))
        tries: list[CallRetry] = self._found.setdefault(key, [])  # type: ignore[assignment]
        tries.append(retry)
        if retry.circuit_open:
            self._opened.add((run.run_id, retry.attempt))
        self._count(run, retry.error_class)

    def _count(self, run: Run, error_class: str | None) -> None:
        self._runs[run.run_id] = run
        self._tries += 1
        if error_class:
            self._classes[error_class] += 1
        if self._tries > TRIES_MAX:
            raise LimitExceeded(
                f"More than {TRIES_MAX} tries within retry sequences.",
                remedy="Choose a shorter span with --since and --until.",
            )

    def error_classes(self) -> dict[str, int]:
        return dict(sorted(self._classes.items()))

    def documents(self) -> tuple[Sequence, ...]:
        made = []
        for key, tries in self._found.items():
            run = self._runs[key[0]]
            if isinstance(tries[0], Attempt):
                made.append(self._of_run(run, tries))
            else:
                made.append(self._of_call(run, tries))
        return tuple(made)

    def _of_run(self, run: Run, attempts: list[Attempt]) -> Sequence:
        attempts = sorted(attempts, key=lambda attempt: attempt.attempt)
        waits = [attempt.delay_ms for attempt in attempts[1:]] + [0]
        tries = tuple(
            SequenceTry(
                pipeline_id=run.pipeline_id,
                stage_name=WHOLE_RUN,
                attempt=attempt.attempt,
                delay_ms=wait_ms,
                error_class=attempt.error_class or attempt.error_code,
                retryable=attempt.retryable,
                outcome=_FATES[attempt.ending],
                circuit_open=attempt.error_class == CIRCUIT_OPEN
                or (run.run_id, attempt.attempt) in self._opened,
                **_cost(attempt.energy),
            )
            for attempt, wait_ms in zip(attempts, waits, strict=True)
        )
        added = CostTally()
        for attempt in attempts:
            if attempt.attempt > 1:
                added.add(attempt.energy)
        limits = limits_of(self._settings, run.source_id)
        ladder = run.trigger_type != "retry" and limits.of(run.trigger_type).ladder_ms
        compliance = Compliance(
            pipeline_id=run.pipeline_id,
            stage=WHOLE_RUN,
            attempts=attempts[-1].attempt,
            retry_policy="ladder_half_jitter" if ladder else "exp_half_jitter",
            errors=tuple(one.error_class for one in tries if one.error_class),
            final_status=tries[-1].outcome,
            circuit_open=any(one.circuit_open for one in tries),
            energy_wh=added.energy_wh,
            co2_g=added.co2_g,
            method=added.method,
            telemetry_ref=self._ref,
            assumptions=tuple(sorted(added.assumptions)),
        )
        return Sequence(
            run_id=run.run_id, dataset_id=run.dataset_id, tier="run", tries=tries, compliance=compliance
        )

    def _of_call(self, run: Run, retries: list[CallRetry]) -> Sequence:
        retries = sorted(retries, key=lambda retry: retry.number)
        tries = tuple(
            SequenceTry(
                pipeline_id=run.pipeline_id,
                stage_name=retry.node or WHOLE_RUN,
                attempt=retry.number,
                delay_ms=retry.delay_ms,
                error_class=retry.error_class,
                retryable=retry.retryable,
                outcome="failure",
                circuit_open=retry.circuit_open,
                **_cost(retry.energy),
            )
            for retry in retries
        )
        gave_up = retries[-1].outcome == "gave-up"
        # As many tries failed as were made beyond the one that was needed; of a call that gave up, one fewer.
        added = CostTally()
        for retry in retries[gave_up:]:
            added.add(retry.energy)
        refused = gave_up and retries[-1].error_class == CIRCUIT_OPEN  # that try was not made
        compliance = Compliance(
            pipeline_id=run.pipeline_id,
            stage=retries[0].node or WHOLE_RUN,
            # Only failed tries are recorded: a call that was not given up had one more, which was right.
            attempts=max(1, retries[-1].number + (0 if gave_up else 1) - refused),
            retry_policy="exp_full_jitter",
            errors=tuple(retry.error_class for retry in retries),
            final_status="failure" if gave_up else "success",
            circuit_open=any(retry.circuit_open for retry in retries),
            energy_wh=None if added.unmetered else added.energy_wh,
            co2_g=None if added.unmetered else added.co2_g,
            method="unmetered" if added.unmetered else "modelled",
            telemetry_ref=self._ref,
            assumptions=tuple(sorted(added.assumptions)),
        )
        return Sequence(
            run_id=run.run_id, dataset_id=run.dataset_id, tier="call", tries=tries, compliance=compliance
        )


def _cost(energy: Energy | None) -> dict[str, Any]:
    """Of one try; without a figure where it was not metered by itself."""
    if energy is None:
        return {"method": "unmetered"}
    return {
        "energy_wh": amount(energy.energy_uwh),
        "co2_g": amount(energy.co2_ug),
        "assumption": energy.assumption,
    }
