"""Telemetry of units: totals of the ledger, a span for each batch and for units that failed or came back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kfm.model.units import ClaimedUnit, ResultBatch, ResultReport
from kfm.ports import Telemetry
from kfm.telemetry.exposition import Tallies
from kfm.telemetry.ledger_metrics import Figure, fold_units

OPERATION = "process"
NAMED_MAX = 100  # of one batch, so many units have a span of their own


class UnitObserver:
    """Writes the spans of one worker. Names of datasets are the public ones."""

    def __init__(
        self,
        telemetry: Telemetry,
        worker_id: str,
        systems: Mapping[str, str],
        public: Callable[[str], str] = str,
    ) -> None:
        """`systems` has the messaging system of each queue, as OpenTelemetry names it."""
        self._telemetry = telemetry
        self._worker_id = worker_id
        self._systems = systems
        self._public = public

    def batch_ended(self, results: ResultBatch, recorded: ResultReport, lasted_ms: int) -> None:
        units: list[tuple[ClaimedUnit, str | None]] = [(one.claimed, None) for one in results.successes]
        units += [(one.claimed, one.error_code) for one in results.failures]
        if not units:
            return
        first = units[0][0]
        dataset = self._public(first.dataset)
        with self._telemetry.span(
            "kfm.units",
            lasted_ms=lasted_ms,
            dataset=dataset,
            worker=self._worker_id,
            units=len(units),
            succeeded=len(recorded.succeeded),
            failed=len(recorded.failed),
            lost=len(recorded.lost),
            messaging_operation_name=OPERATION,
            messaging_destination_name=first.queue,
        ) as span:
            system = self._systems.get(first.queue)
            if system is not None:
                span.note(messaging_system=system)
            self._name_units(units, recorded, dataset, hidden=dataset != first.dataset)

    def totals(self, figures: Iterable[Figure]) -> None:
        """What the ledger has counted of units: the same metrics as `kfm metrics` prints."""
        tallies = Tallies()
        fold_units(figures, tallies, self._public)
        self._telemetry.totals(tallies)

    def _name_units(
        self,
        units: list[tuple[ClaimedUnit, str | None]],
        recorded: ResultReport,
        dataset: str,
        *,
        hidden: bool,
    ) -> None:
        succeeded, lost = set(recorded.succeeded), set(recorded.lost)
        named = 0
        for claimed, error_code in units:
            usual = claimed.wal_id in succeeded and claimed.replay_reason is None
            if usual or hidden or named >= NAMED_MAX:
                continue
            named += 1
            outcome = "success" if claimed.wal_id in succeeded else "failed"
            outcome = "lost" if claimed.wal_id in lost else outcome
            with self._telemetry.span(
                "kfm.unit",
                wal_id=claimed.wal_id,
                dataset=dataset,
                attempt=claimed.attempts,
                outcome=outcome,
            ) as span:
                if claimed.replay_reason is not None:
                    span.note(replay_reason=claimed.replay_reason)
                if error_code is not None:
                    span.note(error_type=error_code)
