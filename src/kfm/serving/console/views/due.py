"""What comes next without anybody's doing: instants of schedules, requests that wait, retries."""

from __future__ import annotations

from collections.abc import Iterator

from kfm.core.records import Record
from kfm.core.schedules import due_ms, next_instant
from kfm.serving.console.views.schedules import pattern
from kfm.serving.console.visits import Visit, short
from kfm.serving.console.words import Word, word

AHEAD_MS = 7 * 86_400_000
SHOWN_MAX = 6  # of each kind


class Due(Record, frozen=True):
    at_ms: int | None  # None: as soon as a runner is free
    word: Word
    what: str
    why: str
    href: str | None
    link: str = ""


def due(visit: Visit) -> tuple[list[Due], bool]:
    """The earliest first: a few of each kind, of each schedule the next instant. Are there more?"""
    found, more = [], False
    for kind in (_requests(visit), _retries(visit), _instants(visit)):
        several = sorted(kind, key=lambda each: (each.at_ms or 0, each.what))
        found += several[:SHOWN_MAX]
        more = more or len(several) > SHOWN_MAX
    return sorted(found, key=lambda each: (each.at_ms or 0, each.what)), more


def _instants(visit: Visit) -> Iterator[Due]:
    paused = {
        name
        for name, state in visit.reader.schedule_reader().states().items()
        if state.paused_at_ms is not None
    }
    sources = {source.id: source for source in visit.place.settings.sources}
    for each in visit.place.schedules:
        at_ms = next_instant(each, visit.now_ms) if each.enabled and each.id not in paused else None
        if at_ms is None:
            continue
        dataset = sources[each.source].dataset if each.source in sources else ""
        yield Due(
            at_ms=due_ms(each, at_ms),
            word=word("ahead"),
            what=f"{dataset or each.source} from {each.source}",
            why=f"schedule, {pattern(each)}",
            href=visit.at("schedules", each.id),
            link=each.id,
        )


def _requests(visit: Visit) -> Iterator[Due]:
    for each in visit.reader.request_reader().requests(state="open", limit=SHOWN_MAX + 1):
        yield Due(
            at_ms=each.not_before_ms if each.not_before_ms > visit.now_ms else None,
            word=word("waiting"),
            what=f"{each.dataset_id} from {each.source_id}",
            why=each.reason or f"request by {each.kind}",
            href=visit.at("requests", each.request_id),
            link=short(each.request_id),
        )


def _retries(visit: Visit) -> Iterator[Due]:
    for each in visit.reader.waiting(visit.now_ms + AHEAD_MS, limit=SHOWN_MAX + 1):
        at_ms = each.state.not_before_ms
        yield Due(
            at_ms=at_ms if at_ms and at_ms > visit.now_ms else None,
            word=word("waiting"),
            what=f"{each.run.dataset_id} from {each.run.source_id}",
            why=f"retry after attempt {each.state.attempt}: {each.state.error_class}",
            href=visit.run(each.run.run_id),
            link=short(each.run.run_id),
        )
