"""From the ledger's passes to tallies. An attempt is counted once it has ended."""

from __future__ import annotations

from collections.abc import Callable

from kfm.core.passes import PassFigures
from kfm.ports import LedgerReader
from kfm.telemetry.place import Place
from kfm.telemetry.tallies import Tallies

WRITTEN = ("success", "failed", "partial", "skipped")


class PassFolding:
    def __init__(self) -> None:
        self._named: Callable[[PassFigures], str] = lambda figures: figures.pipeline_id
        self._place = Place()
        self._open: set[tuple[str, int]] = set()
        self._ratios: dict[str, tuple[int, float]] = {}  # pipeline → when its newest pass began, its ratio

    def fold(
        self, ledger: LedgerReader, tallies: Tallies, named: Callable[[PassFigures], str], now_ms: int
    ) -> None:
        self._named = named
        for run_id in sorted({run_id for run_id, _ in self._open}):
            for figures in ledger.pass_attempts(run_id):
                if figures.ended_at_ms is not None and (run_id, figures.attempt) in self._open:
                    self._open.discard((run_id, figures.attempt))
                    self._count(figures, tallies)
        for _, figures in self._place.read(
            ledger.pass_attempts_since, lambda row: row[1].started_at_ms, now_ms
        ):
            if figures.ended_at_ms is None:
                self._open.add((figures.run_id, figures.attempt))
            else:
                self._count(figures, tallies)

    def _count(self, figures: PassFigures, tallies: Tallies) -> None:
        assert figures.ended_at_ms is not None
        pipeline = self._named(figures)
        tallies.add("kfm.pass.passes_total", pipeline=pipeline, outcome=figures.state)
        took_ms = max(0, figures.ended_at_ms - figures.started_at_ms)
        tallies.observe_ms("kfm.pass.duration_seconds", took_ms, pipeline=pipeline, outcome=figures.state)
        for outcome in WRITTEN:  # all at once: a rate needs a zero to rise from
            tallies.add("kfm.pass.nodes_total", getattr(figures, outcome), pipeline=pipeline, outcome=outcome)
        tallies.add("kfm.pass.node_seconds_total", figures.worked_ms, pipeline=pipeline)
        written = sum(getattr(figures, outcome) for outcome in WRITTEN)
        if written and figures.started_at_ms >= self._ratios.get(pipeline, (0, 0.0))[0]:
            self._ratios[pipeline] = (figures.started_at_ms, figures.skipped / written)

    def levels(self, tallies: Tallies) -> None:
        for pipeline, (_, ratio) in self._ratios.items():
            tallies.put("kfm.pass.skip_ratio", ratio, pipeline=pipeline)
