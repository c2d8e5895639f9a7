"""A ledger made of lists, and rows to fill it with."""

from __future__ import annotations

from typing import Any

from kfm.model.energy import energy_of
from kfm.model.records import Invocation, Run
from kfm.model.run_state import PassFigures
from kfm.model.runs import Attempt, CallRetry, ChainLink
from kfm.model.settings import EnergyModel
from kfm.telemetry.aggregates import Aggregates, DatasetNames, TimeBounds, visit

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SECRET = "burial-mounds"
OPEN = DatasetNames(hidden=lambda _: False, mask=lambda name: name)
MASKED = DatasetNames(hidden=lambda dataset: dataset == SECRET, mask=lambda name: f"masked-{len(name):012x}")


class ListLedger:
    """As much of a ledger as is counted from. Pages are small, so that there are several."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.attempts: list[Attempt] = []
        self.retries: list[CallRetry] = []
        self.calls: list[Invocation] = []
        self.links: list[ChainLink] = []
        self.passes: list[PassFigures] = []

    def run(self, run_id: str) -> Run | None:
        return self.runs.get(run_id)

    def attempts_since(self, after: int, limit: int) -> list[tuple[int, Attempt, Run]]:
        return [(n, row, self.runs[row.run_id]) for n, row in self._page(self.attempts, after, limit)]

    def retries_since(self, after: int, limit: int) -> list[tuple[int, CallRetry]]:
        return self._page(self.retries, after, limit)

    def invocations_since(self, after: int, limit: int) -> list[tuple[int, Invocation]]:
        return self._page(self.calls, after, limit)

    def pass_attempts_since(self, after: int, limit: int) -> list[tuple[int, PassFigures]]:
        return self._page(self.passes, after, limit)

    def chain_head(self) -> tuple[int, str]:
        return (self.links[-1].number, self.links[-1].hash) if self.links else (0, "0" * 64)

    def chain(self, after: int = 0, limit: int = 1000) -> list[ChainLink]:
        return [link for link in self.links if link.number > after][:limit]

    @staticmethod
    def _page(rows: list[Any], after: int, limit: int) -> list[tuple[int, Any]]:
        return list(enumerate(rows, 1))[after : after + min(limit, 3)]

    # --- filling -----------------------------------------------------------------------

    def add_run(self, run_id: str, **changes: Any) -> Run:
        values: dict[str, Any] = {
            "run_id": run_id,
            "source_id": "daily",
            "dataset_id": "levels",
            "pipeline_id": "daily",
            "idempotency_key": f"key-{run_id}",
            "work_key": f"work-{run_id}",
            "work_base": f"base-{run_id}",
            "revision": 0,
            "trigger_type": "manual",
            "window_spec": "P1D",
            "window_start_ms": START_MS,
            "window_end_ms": START_MS + 86_400_000,
            "partition": None,
            "pipeline_version": "sha256:" + "ab" * 32,
            "status": "success",
            "attempts": 1,
            "fence": 1,
            "start_time_ms": START_MS,
        }
        self.runs[run_id] = Run(**{**values, **changes})
        return self.runs[run_id]

    def add_attempt(
        self, run_id: str, number: int = 1, node: str = "", *, took_ms: int | None = 10, **changes: Any
    ) -> Attempt:
        started_at_ms = changes.pop("started_at_ms", START_MS)
        cpu_us = changes.pop("cpu_us", 360_000)
        values: dict[str, Any] = {
            "run_id": run_id,
            "attempt": number,
            "node": node,
            "lineage_id": f"{run_id}-{number}-{node}",
            "invocation_id": "call",
            "started_at_ms": started_at_ms,
        }
        if took_ms is not None:
            values |= {"ended_at_ms": started_at_ms + took_ms, "ending": "complete"}
            values["energy"] = energy_of(cpu_us, EnergyModel())
        attempt = Attempt(**{**values, **changes})
        self.attempts.append(attempt)
        return attempt

    def add_retry(self, run_id: str, number: int, outcome: Any = "retried", **changes: Any) -> None:
        values: dict[str, Any] = {
            "run_id": run_id,
            "attempt": 1,
            "node": "fetch",
            "call": 1,
            "number": number,
            "delay_ms": 100 * number if outcome == "retried" else 0,
            "error_class": "HTTP_503",
            "retryable": True,
            "outcome": outcome,
            "circuit_open": False,
            "at_ms": START_MS + number,
        }
        self.retries.append(CallRetry(**{**values, **changes}))

    def add_call(self, outcome: Any, dataset_id: str = "levels", at_ms: int = START_MS) -> None:
        self.calls.append(
            Invocation(
                invocation_id=f"call-{len(self.calls)}",
                run_id=None,
                source_id="daily",
                dataset_id=dataset_id,
                trigger_type="manual",
                idempotency_key="key",
                outcome=outcome,
                actor="a person",
                requested_at_ms=at_ms,
            )
        )


def counted(ledger: ListLedger, names: DatasetNames = OPEN, bounds: TimeBounds | None = None) -> Aggregates:
    within = bounds or TimeBounds()
    aggregates = Aggregates("v1.0.0", "test", within)
    visit(ledger, within, names, aggregates)  # type: ignore[arg-type]
    return aggregates
