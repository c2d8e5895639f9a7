"""One request of a page: identity, address, query and ledger; filters and paging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode

from kfm.model.errors import UsageError
from kfm.model.quantities import counted, short_id
from kfm.model.records import Record
from kfm.model.roles import Identity
from kfm.web.console.visible_text import visible
from kfm.web.query_params import read_parameters
from kfm.web.request_context import WebContext
from kfm.web.visibility import Visibility

if TYPE_CHECKING:
    from kfm.datasets.completeness import CompletenessReader
    from kfm.db.ledger_reader import LedgerReader

VALUE_CHARS_MAX = 200
ROWS = 50  # of one page
PAGES_MAX = 200
PLACE_DIGITS_MAX = 15
REFRESH_SECONDS = (10, 30, 60)
REFRESH = "refresh"
CELL, CELLS = "cell", "cells"  # of a coverage: one that a checkbox chose, and several between commas


class NotHere(Exception):
    """The page has no such subject."""


class NotForYou(Exception):
    """The subject needs a role that the caller does not have."""


class Visit(NamedTuple):
    context: WebContext
    reader: LedgerReader
    visibility: Visibility
    identity: Identity
    base: str  # where the console is, without a slash at its end
    path: str  # of this page below it
    now_ms: int
    query: Mapping[str, str] = {}
    params: Mapping[str, str] = {}  # parts of the path

    def href(self, page: str = "", /, **query: str | int | None) -> str:
        """The address of a page of the console, with masks for masked names; pages link to nothing else."""

        def masked(name: str, value: str | int | None) -> str | None:
            what = "" if page == "units" else name  # their datasets are announced, not declared
            return None if value is None else self.visibility.in_address(str(value), what)

        return self._address(page, {name: masked(name, value) for name, value in query.items()})

    def with_query(self, **changed: str | int | None) -> str:
        """This page with another query; what the caller typed stays as it was typed."""
        return self._address(self.path, {**self.query, **changed})

    def _address(self, page: str, query: Mapping[str, str | int | None]) -> str:
        text = urlencode([(name, value) for name, value in query.items() if value not in (None, "")])
        address = f"{self.base}/{page}"
        return f"{address}?{text}" if text else address

    def completeness(self) -> CompletenessReader:
        """How datasets are, by the schedules that are in force."""
        from kfm.config.state_folder import StateFolder
        from kfm.datasets.completeness import completeness_in
        from kfm.nodd.dataset_registry import shipped_feed

        loaded = self.context.loaded
        return completeness_in(
            loaded,
            self.reader,
            StateFolder.of(loaded).liveness.is_dead,
            schedules=lambda: self.context.schedules,
            now_ms=self.now_ms,
            shipped=shipped_feed,
            memory=self.context.verdicts,
        )

    def dataset(self) -> str | None:
        """The dataset that was chosen, by its own name."""
        settings = self.context.settings
        return settings.dataset_id(
            self._chosen("dataset", [name for one in settings.datasets for name in one.names])
        )

    def source(self) -> str | None:
        settings = self.context.settings
        return settings.source_id(
            self._chosen("source", [name for one in settings.sources for name in one.names])
        )

    def _chosen(self, name: str, among: Sequence[str]) -> str | None:
        shown = self.query.get(name)
        return self.visibility.known(shown, among) if shown else None

    def schedule(self, shown: str | None) -> str | None:
        """The schedule that an address means, by its own name."""
        return self.visibility.known(shown, [one.id for one in self.context.schedules]) if shown else None

    def page(self) -> int:
        text = self.query.get("page", "1")
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= PAGES_MAX:
            raise UsageError(f"`page` is a number from 1 to {PAGES_MAX}.")
        return int(text)

    def choice(self, name: str, among: Sequence[str]) -> str | None:
        """The value of a filter, which is one of a few words."""
        chosen = self.query.get(name)
        if chosen is not None and chosen not in among:
            raise UsageError(f"`{name}` is one of {', '.join(among)}.")
        return chosen

    def at(self, *parts: str) -> str:
        """The page of one thing."""
        masked = map(self.visibility.in_address, parts)
        return self._address("/".join(quote(part, safe="") for part in masked), {})

    def run(self, run_id: str) -> str:
        return self.at("runs", run_id)

    def dataset_page(self, dataset_id: str) -> str:
        """The page of a dataset; where the caller may not know it, its runs, by its mask."""
        if self.visibility.hides(dataset_id):
            return self.href("runs", dataset=dataset_id)
        return self.at("datasets", dataset_id)

    def clean(self) -> str:
        """This page without a query."""
        return self._address(self.path, {})


def read_query(pairs: Sequence[tuple[str, str]], known: Sequence[str]) -> dict[str, str]:
    """The filters of an address that have a value."""
    cells = [value for name, value in pairs if name in (CELL, CELLS)] if CELLS in known else []
    others = [(name, value) for name, value in pairs if not cells or name not in (CELL, CELLS)]
    read = read_parameters(others, (*known, REFRESH), VALUE_CHARS_MAX)
    found = {name: value for name, value in {**read, CELLS: ",".join(cells)}.items() if value}
    if found.get(REFRESH, "10") not in map(str, REFRESH_SECONDS):
        raise UsageError(f"`{REFRESH}` is one of {', '.join(map(str, REFRESH_SECONDS))} seconds.")
    return found


# --- parts that many pages have ----------------------------------------------------------


class Link(Record, frozen=True):
    text: str
    href: str


class Option(Record, frozen=True):
    value: str
    text: str
    chosen: bool


class Filter(Record, frozen=True):
    """A choice."""

    name: str
    label: str
    options: tuple[Option, ...]


class TypedFilter(Record, frozen=True):
    """A field to type in. It holds what was typed, also where that is a masked name: nothing is confirmed."""

    name: str
    label: str
    value: str
    options: tuple[Option, ...] = ()


class Paging(Record, frozen=True):
    newer: str | None
    older: str | None
    summary: str
    newest: bool = False  # does `newer` lead to the newest, not to the page before?
    first: bool = False  # the list is not by time: to its beginning, and on


def chosen(name: str, label: str, among: Sequence[str], now: str | None, words: Sequence[str] = ()) -> Filter:
    pairs = [("", "any"), *zip(among, words or among, strict=True)]
    options = tuple(Option(value=value, text=text, chosen=value == (now or "")) for value, text in pairs)
    return Filter(name=name, label=label, options=options)


def typed(name: str, label: str, value: str | None) -> TypedFilter:
    return TypedFilter(name=name, label=label, value=visible(value or ""))


def before_position(text: str | None) -> tuple[int, str] | None:
    """The last row of the page before, its time and its id, from the link to older ones."""
    if text is None:
        return None
    at_ms, _, name = text.partition(".")
    if not at_ms.isascii() or not at_ms.isdigit() or len(at_ms) > PLACE_DIGITS_MAX or not name:
        raise UsageError("`before` is not from a link to older ones.")
    return int(at_ms), name


def paged_before(visit: Visit, shown: int, last: tuple[int, str] | None, word: str) -> Paging:
    """`last`: the row that this page ends with, if there are more."""
    return Paging(
        newer=visit.with_query(before=None) if "before" in visit.query else None,
        older=visit.with_query(before=f"{last[0]}.{last[1]}") if last else None,
        summary=f"{counted(shown, word)}, newest first" if shown else f"no {word}s",
        newest=True,
    )


def before_number(visit: Visit) -> int | None:
    """The number of the last row of the page before, from the link to older ones."""
    text = visit.query.get("before")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > PLACE_DIGITS_MAX:
        raise UsageError("`before` is not from a link to older ones.")
    return int(text)


def paged_by_number(visit: Visit, shown: int, last: int | None, words: str) -> Paging:
    """`last`: the number of the row that this page ends with, if there are more; `words`: one and several."""
    one, several = words.split("/")
    return Paging(
        newer=visit.with_query(before=None) if "before" in visit.query else None,
        older=visit.with_query(before=last) if last is not None else None,
        summary=f"{shown} {one if shown == 1 else several}, newest first" if shown else f"no {several}",
        newest=True,
    )


def paged(visit: Visit, found: int, words: str, rows: int = ROWS) -> Paging:
    """`found`: how many there are from this page's first on, as far as was looked; `words`: of what."""
    number = visit.page()
    first = (number - 1) * rows + 1
    shown = min(found, rows)
    summary = f"no {words}" if not shown else f"{words} {first} to {first + shown - 1}"
    return Paging(
        newer=visit.with_query(page=number - 1 if number > 2 else None) if number > 1 else None,
        older=visit.with_query(page=number + 1) if found > rows and number < PAGES_MAX else None,
        summary=summary,
    )


def short(identifier: str) -> str:
    """The prefix of an id that is unique in practice; every command takes it."""
    return short_id(identifier)
