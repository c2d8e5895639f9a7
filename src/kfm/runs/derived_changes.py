"""Dataset changes: derived windows whose inputs have moved become requests, each once.

A promotion tells nothing to others: whatever moves a head is found here, by comparing the heads with what was
looked at last. Nothing is lost with a process, and two processes do it once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from kfm.model.canonical import canonical_bytes
from kfm.model.derived import definition_of, derived_sources, wanted_windows
from kfm.model.quantities import counted
from kfm.model.windows import window_of

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.records import Window
    from kfm.model.settings import SourceSettings
    from kfm.model.versions import Version

ROUNDS_MAX = 10  # windows that are made while one source is looked at
logger = logging.getLogger(__name__)


def note_changes(app: App) -> int:
    """Gather the windows that changes of datasets affect; how many."""
    return sum(_note(app, source) for source in derived_sources(app.settings))


def _note(app: App, source: SourceSettings) -> int:
    noted = app.writer.derived()
    for _ in range(ROUNDS_MAX):
        before = noted.seen(source.id)
        if before == _seen(source, sequences_of(app.ledger, source)):
            return 0
        heads = {name: app.ledger.head(name) for name in source.datasets}
        sequences = {name: head[0].sequence if head else 0 for name, head in heads.items()}
        versions: dict[str, Version | None] = {
            name: head[1] if head else None for name, head in heads.items()
        }
        known = [one.span for one in noted.windows(source.id)]
        answer = noted.note(
            source.id,
            before=before,
            seen=_seen(source, sequences),
            wanted=wanted_windows(source, versions, known),
            moved=_moved(before, sequences),
        )
        if answer != "again":
            if answer:
                logger.info(
                    "%s: %s affected by changes of datasets",
                    source.id,
                    counted(answer, "window"),
                    extra={"source": source.id, "dataset": source.dataset},
                )
            return answer
    return 0  # the next pass looks again: nothing was noted


def sequences_of(ledger: LedgerReader, source: SourceSettings) -> dict[str, int]:
    """The heads of its inputs, without their manifests; 0: it has none."""
    found = {name: ledger.promotions(name, 1) for name in source.datasets}
    return {name: heads[0].sequence if heads else 0 for name, heads in found.items()}


def _seen(source: SourceSettings, sequences: dict[str, int]) -> str:
    return canonical_bytes({"definition": definition_of(source), "sequences": sequences}).decode()


def _moved(before: str | None, sequences: dict[str, int]) -> dict[str, int]:
    """The inputs whose heads have moved since; all of them where the definition has."""
    last = msgspec.json.decode(before)["sequences"] if before is not None else {}
    moved = {name: number for name, number in sequences.items() if last.get(name, 0) != number}
    return moved or sequences


def close_bursts(app: App) -> int:
    """Arrivals and changes that have been gathered long enough become requests; how many."""
    sources = {source.id: source for source in app.settings.sources}

    def period(source_id: str, at_ms: int) -> Window:
        source = sources.get(source_id)
        if source is None:  # it was taken out of the configuration: the request says so
            return window_of("P1D", "UTC", at_ms)
        return window_of(source.window, source.time_zone, at_ms)

    def dataset_of(source_id: str) -> str:
        return sources[source_id].dataset if source_id in sources else source_id

    window_ms = round(app.settings.ingest.coalesce_seconds * 1000)
    return app.writer.bursts().close_due(window_ms, period, dataset_of, app.actor)


def follow_changes(app: App) -> int:
    """Note what has changed and ask for what is due; how many requests that made."""
    if not derived_sources(app.settings):
        return 0
    note_changes(app)
    return close_bursts(app)
