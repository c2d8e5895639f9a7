"""One announced object: why it stands where it stands."""

from __future__ import annotations

from kfm.core.records import Record, Unit
from kfm.core.wording import span
from kfm.explain.units import account_of_unit
from kfm.serving.console import words
from kfm.serving.console.views import telling
from kfm.serving.console.views.facts import Fact, Next, allowed
from kfm.serving.console.visits import NotHere, Visit
from kfm.serving.console.words import Word


class UnitView(Record, frozen=True):
    title: str
    word: Word
    unit_dataset: str
    object_uri: str
    facts: tuple[Fact, ...]
    story: telling.Story
    commands: tuple[Next, ...]


def view(visit: Visit) -> UnitView:
    reader = visit.reader.unit_reader()
    stored = reader.stored(visit.params["wal_id"])
    if stored is None:
        raise NotHere("No unit of that id is on record. `kfm nodd units` lists them.")
    unit = stored.unit
    if visit.place.settings.declared(unit.dataset) is not None:
        allowed(visit, unit.dataset)
    domain = visit.place.settings.domain_of(unit.dataset)
    account = account_of_unit(
        stored, reader.history_of(unit.wal_id), visit.reader.switches(), domain, visit.now_ms
    )
    return UnitView(
        title=f"Unit {unit.wal_id}",
        word=words.of_unit(unit.status),
        unit_dataset=unit.dataset,
        object_uri=unit.object_uri,
        facts=tuple(_facts(visit, unit)),
        story=telling.story(visit, account),
        commands=(Next(command=f"kfm nodd show {unit.wal_id}", why="shows all that is on record of it"),),
    )


def _facts(visit: Visit, unit: Unit) -> list[Fact]:
    facts = [
        Fact(name="Dataset", text=unit.dataset, href=visit.href("units", dataset=unit.dataset)),
        Fact(name="Queue", text=unit.queue),
        Fact(name="Attempts", text=str(unit.attempts)),
        Fact(name="First heard (UTC)", text="", at_ms=unit.created_at_ms),
        Fact(name="Changed (UTC)", text="", at_ms=unit.updated_at_ms),
        Fact(name="Integrity", text=unit.integrity_status),
        Fact(name="Metadata", text=unit.metadata_status),
        Fact(name="Catalogue", text=unit.stac_status),
        Fact(name="Provenance", text=unit.provenance_status),
    ]
    if unit.time_range_start_ms is not None and unit.time_range_end_ms is not None:
        covers = span(unit.time_range_start_ms, unit.time_range_end_ms).removesuffix(" UTC")
        facts.insert(1, Fact(name="Covers (UTC)", text=covers))
    if unit.last_error_code:
        message = f": {unit.last_error_message}" if unit.last_error_message else ""
        facts.append(Fact(name="Last error", text=f"{unit.last_error_code}{message}"))
    return facts
