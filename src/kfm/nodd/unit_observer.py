"""What telemetry is told about units: a span for each batch, and one for each unit that is not as usual."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kfm.model.units import Claimed, Finish, Finished
from kfm.ports import Telemetry

OPERATION = "process"
NAMED_MAX = 100  # of one batch, so many units have a span of their own


class UnitObserver:
    """Watches one worker. Names of datasets are public ones."""

    def __init__(
        self,
        telemetry: Telemetry,
        worker_id: str,
        systems: Mapping[str, str],
        public: Callable[[str], str] = str,
    ) -> None:
        """`systems` tells of queues what they are, in OpenTelemetry's words."""
        self._telemetry = telemetry
        self._worker_id = worker_id
        self._systems = systems
        self._public = public

    def ended(self, finish: Finish, finished: Finished, lasted_ms: int) -> None:
        """A batch has ended."""
        units: list[tuple[Claimed, str | None]] = [(one.claimed, None) for one in finish.done]
        units += [(one.claimed, one.error_code) for one in finish.undone]
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
            succeeded=len(finished.succeeded),
            failed=len(finished.failed),
            lost=len(finished.lost),
            messaging_operation_name=OPERATION,
            messaging_destination_name=first.queue,
        ) as span:
            system = self._systems.get(first.queue)
            if system is not None:
                span.note(messaging_system=system)
            self._named(units, finished, dataset, hidden=dataset != first.dataset)

    def _named(
        self, units: list[tuple[Claimed, str | None]], finished: Finished, dataset: str, *, hidden: bool
    ) -> None:
        succeeded, lost = set(finished.succeeded), set(finished.lost)
        told = 0
        for claimed, error_code in units:
            usual = claimed.wal_id in succeeded and claimed.replay_reason is None
            if usual or hidden or told >= NAMED_MAX:
                continue
            told += 1
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
