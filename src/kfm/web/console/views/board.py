"""The board of circuits, switches and freezes: what can keep work from beginning, and how each stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kfm.model.breaker import Breaker, limits_of, providers_of, wait_ms
from kfm.model.gates import freeze_span_ms
from kfm.model.records import Record, Switch
from kfm.reports.blockers import halted
from kfm.web.console import state_words
from kfm.web.console.actions import Offer, offer
from kfm.web.console.state_words import Word, word
from kfm.web.console.visit import ROWS, Link, Paging, Visit, paged

FILTERS = ("page",)
POSITIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "running": (("Pause", "paused"), ("Stop", "stopped")),
    "paused": (("Resume", "running"), ("Stop", "stopped")),
    "stopped": (("Resume", "running"), ("Pause", "paused")),
}
_NAMED_MAX = 5  # datasets that a row names


class CircuitRow(Record, frozen=True):
    provider: str
    word: Word
    failures: int
    since_ms: int | None
    next_ms: int | None
    then: str
    serves: tuple[Link, ...]
    serves_more: int
    actions: tuple[Offer, ...]


class SwitchRow(Record, frozen=True):
    scope: str
    kind: str
    name: str
    href: str
    word: Word
    since_ms: int | None
    actor: str
    rationale: str
    actions: tuple[Offer, ...]


class FreezeRow(Record, frozen=True):
    word: Word
    start_ms: int
    end_ms: int
    holds: tuple[str, ...]
    reason: str


class HaltRow(Record, frozen=True):
    dataset_id: str
    why: str
    since_ms: int | None
    command: str


class Board(Record, frozen=True):
    circuits: tuple[CircuitRow, ...]
    switches: tuple[SwitchRow, ...]
    paging: Paging
    freezes: tuple[FreezeRow, ...]
    halts: tuple[HaltRow, ...]


def view(visit: Visit) -> Board:
    found = list(_switches(visit))
    first = (visit.page() - 1) * ROWS
    return Board(
        circuits=tuple(_circuits(visit)),
        switches=tuple(found[first : first + ROWS]),
        paging=paged(visit, max(len(found) - first, 0), "switches"),
        freezes=tuple(_freezes(visit)),
        halts=tuple(
            HaltRow(
                dataset_id=each.what.removeprefix("dataset "),
                why=each.why,
                since_ms=each.since_ms,
                command=each.command,
            )
            for each in halted(visit.context.settings, visit.reader, visit.now_ms)
        ),
    )


def summary(visit: Visit) -> str:
    """What of it is not as usual, in a line."""
    figures = {
        "open": sum(each.state != "closed" for each in visit.reader.breakers()),
        "thrown": sum(each.position != "running" for each in visit.reader.switches()),
        "frozen": sum(each.word.text == "frozen" for each in _freezes(visit)),
    }
    return ", ".join(f"{count} {name}" for name, count in figures.items() if count) or "all as usual"


# --- circuits ----------------------------------------------------------------------------


def _circuits(visit: Visit) -> Iterator[CircuitRow]:
    """Of every provider that is called, and of those that were; open ones first."""
    settings = visit.context.settings
    serves: dict[str, list[str]] = {}
    for source in settings.sources:
        for provider in providers_of(source, settings.source):
            serves.setdefault(provider, []).append(source.dataset)
    known = {each.provider: each for each in visit.reader.breakers()}
    found = [known.get(name) or Breaker(provider=name) for name in {**known, **serves}]
    for each in sorted(found, key=lambda one: (one.state == "closed", one.provider)):
        names = list(dict.fromkeys(serves.get(each.provider, ())))
        left_ms = wait_ms(each, visit.now_ms, limits_of(each.provider, settings.providers))
        yield CircuitRow(
            provider=each.provider,
            word=state_words.of_breaker(each.state),
            failures=each.failures,
            since_ms=each.tripped_at_ms if each.state != "closed" else None,
            next_ms=visit.now_ms + left_ms if left_ms > 0 else None,
            then=_then(each, left_ms),
            serves=tuple(Link(text=name, href=visit.dataset_page(name)) for name in names[:_NAMED_MAX]),
            serves_more=max(len(names) - _NAMED_MAX, 0),
            actions=tuple(_decisions(visit, each)),
        )


def _then(breaker: Breaker, left_ms: int) -> str:
    if breaker.state == "closed":
        return "calls are made"
    if breaker.state == "half-open":
        return "one call tries it now"
    return "no call before" if left_ms > 0 else "the next call tries it"


def _decisions(visit: Visit, breaker: Breaker) -> Iterator[Offer]:
    names = ("holdBreaker",) if breaker.state == "closed" else ("probeBreaker", "resetBreaker", "holdBreaker")
    for name in names:
        yield offer(visit, name, provider=breaker.provider)


# --- switches ----------------------------------------------------------------------------


def _switches(visit: Visit) -> Iterator[SwitchRow]:
    """Of everything, each domain and each dataset; thrown ones first."""
    settings = visit.context.settings
    known = {each.scope: each for each in visit.reader.switches()}
    domains = sorted({each.domain for each in settings.datasets if each.domain})
    scopes = [
        "all",
        *(f"domain:{name}" for name in domains),
        *(f"dataset:{each.id}" for each in settings.datasets),
    ]
    every = dict.fromkeys([*scopes, *(name for name, each in known.items() if each.position != "running")])
    rows = [_switch(visit, scope, known.get(scope)) for scope in every]
    yield from sorted(rows, key=lambda row: row.word.text == "on")


def _switch(visit: Visit, scope: str, found: Switch | None) -> SwitchRow:
    kind, _, name = scope.partition(":")
    position: Literal["running", "paused", "stopped"] = found.position if found is not None else "running"
    actions = [
        offer(visit, "setSwitch", text, scope=scope, position=wanted) for text, wanted in POSITIONS[position]
    ]
    return SwitchRow(
        scope=scope,
        kind=kind,
        name=name or "everything",
        href=visit.dataset_page(name) if kind == "dataset" else "",
        word=word("on") if position == "running" else word(position),
        since_ms=found.set_at_ms if found is not None else None,
        actor=found.actor if found is not None else "",
        rationale=found.rationale if found is not None else "",
        actions=tuple(actions),
    )


# --- freezes -----------------------------------------------------------------------------


def _freezes(visit: Visit) -> Iterator[FreezeRow]:
    """Those in force and to come, the earliest first."""
    spans = [(freeze_span_ms(each), each) for each in visit.context.settings.freezes]
    for (start_ms, end_ms), each in sorted(spans, key=lambda pair: pair[0]):
        if end_ms > visit.now_ms:
            names = [name for name in each.datasets if name != "*"]
            domains = [f"domain {name}" for name in each.domains if name != "*"]
            yield FreezeRow(
                word=word("frozen" if start_ms <= visit.now_ms else "upcoming"),
                start_ms=start_ms,
                end_ms=end_ms,
                holds=tuple([*names, *domains] or ["everything"]),
                reason=each.reason,
            )
