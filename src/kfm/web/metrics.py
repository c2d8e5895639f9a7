"""Scrapes for Prometheus: metrics of the ledger, for `GET /metrics` and `kfm metrics`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from kfm import __version__
from kfm.datasets.completeness import completeness_of
from kfm.model.redaction import MASK_KEY
from kfm.telemetry.exporter import PublicNames
from kfm.telemetry.exposition import Tallies, exposition
from kfm.telemetry.ledger_metrics import Folding, take_up

if TYPE_CHECKING:
    from kfm.app import App


class Scrape:
    """Incremental scrapes: each reads on from the position of the one before, the first from the kept fold.

    `open_app` opens the application for one scrape: a ledger may be made, moved or restarted between two.
    """

    def __init__(self, open_app: Callable[[], AbstractContextManager[App]]) -> None:
        self._open_app = open_app
        self._lock = threading.Lock()
        self._folding = Folding()
        self._source: Any = None  # the settings, mask key and names that the counts were made with

    def text(self) -> str:
        """In Prometheus' text format."""
        return exposition(self.tallies())

    def tallies(self) -> Tallies:
        with self._lock, self._open_app() as app, app.ledger.moment():
            source = (app.settings, app.ledger.mark(MASK_KEY), app.ledger.remembered_names())
            if source != self._source:
                self._folding, self._source = take_up(app.ledger), None  # it may be another ledger
            datasets = [dataset.id for dataset in app.settings.datasets]
            names = PublicNames(app.settings, app.ledger)
            completeness = completeness_of(app)
            found = self._folding.fold(
                app.ledger,
                names,
                datasets,
                __version__,
                names.provider,
                names.pipeline,
                names.of_units,
                [completeness.health(each) for each in completeness.names()],
            )
            self._source = source  # only now: an interrupted scrape starts anew
            return found
