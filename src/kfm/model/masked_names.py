"""Masked names: which names would give a masked dataset away, and what is shown in their place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from kfm.model.breaker import Breaker, provider_of_target, providers_of
from kfm.model.patterns import late
from kfm.model.records import Promotion
from kfm.model.redaction import MASK_KEY, PREFIX, is_masked, mask
from kfm.model.settings import DatasetSettings, Settings

if TYPE_CHECKING:
    from kfm.model.versions import Version

NOTHING = "-"  # no dataset, source or schedule has this name
_GENERAL = DatasetSettings(id="").domain  # of datasets that name none: it gives nothing away
# As scopes, actors and sentences name a thing: `dataset:NAME`, `replays of NAME`.
_OF_KIND = late(
    r"((?:dataset|domain|replays(?: of)?|schedule|source|webhook|circuit|provider)[: ])(\S+)", re.ASCII
)
_NEVER = late(r"(?!)")
_SEPARATORS = late(r"[\W_]+")


class Scheduled(Protocol):
    """As much of a schedule as this needs."""

    @property
    def id(self) -> str: ...
    @property
    def source(self) -> str: ...


def names_by_dataset(
    settings: Settings, schedules: Sequence[Scheduled] = (), *, masked: bool = True
) -> dict[str, set[str]]:
    """The names that would give each masked dataset away; or with `masked=False`, those of the others.

    Its id and title, its sources and their schedules, its domain, and the providers that it calls.
    """
    found: dict[str, set[str]] = {}
    for dataset in settings.datasets:
        if is_masked(dataset) == masked:
            found[dataset.id] = {*dataset.names, dataset.title or "", dataset.domain} - {"", _GENERAL}
    for source in settings.sources:
        if source.dataset in found:
            found[source.dataset] |= {*source.names, *providers_of(source, settings.source)}
            found[source.dataset] |= {one.id for one in schedules if one.source == source.id}
    return found


class KnownNames(Protocol):
    """As much of the ledger as this needs."""

    def mark(self, name: str) -> str | None: ...
    def remembered_names(self) -> Mapping[str, Collection[str]]: ...
    def head(self, dataset_id: str) -> tuple[Promotion, Version] | None: ...
    def heads(self) -> Sequence[Promotion]: ...
    def breakers(self) -> Sequence[Breaker]: ...
    def unit_figures(self) -> Sequence[tuple[str, str, int, int | None]]: ...


class MaskedNames:
    """Decides for one configuration and its ledger which datasets are masked, and which texts name one.

    A dataset that is declared goes by its rights. One that is declared no more is masked if it ever was, or
    if nothing is known of its rights: it does not come to light by leaving the configuration.
    """

    def __init__(self, settings: Settings, ledger: KnownNames, schedules: Sequence[Scheduled] = ()) -> None:
        self._settings = settings
        self._ledger = ledger
        self._schedules = schedules
        self._declared = {dataset.id: dataset for dataset in settings.datasets}
        # What is announced publicly is no secret.
        self._feeds = {one.dataset for one in settings.ingest.feeds}
        self._known: dict[str, bool] = {}

    @cached_property
    def _announced(self) -> frozenset[str]:
        """Datasets of which objects were announced."""
        return frozenset(dataset for dataset, *_ in self._ledger.unit_figures())

    @cached_property
    def _key(self) -> str | None:
        return self._ledger.mark(MASK_KEY)

    @cached_property
    def _remembered(self) -> Mapping[str, Collection[str]]:
        return self._ledger.remembered_names()

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that would give a masked dataset away."""
        settings, schedules = self._settings, self._schedules
        named = {head.dataset_id for head in self._ledger.heads() if self.hides(head.dataset_id)}
        named.update(*names_by_dataset(settings, schedules).values())
        named.update(*(names for dataset_id, names in self._remembered.items() if self.hides(dataset_id)))
        if named:  # also those that a pipeline's own code calls, of which the owner is not known
            named.update(breaker.provider for breaker in self._ledger.breakers())
        named.difference_update(map(provider_of_target, settings.publish))
        return frozenset(named - self._visible)  # what both have gives nothing away

    @cached_property
    def _visible(self) -> frozenset[str]:
        """Names of datasets that may be seen: a masked name inside of one of them is not told."""
        named = names_by_dataset(self._settings, self._schedules, masked=False)
        return frozenset[str]().union(*named.values())

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return _any_of(self.names, self._visible) if self.names else _NEVER

    def hides(self, dataset_id: str) -> bool:
        """Is this dataset masked?"""
        if dataset_id not in self._known:
            declared = self._declared.get(dataset_id)
            if declared is None:
                head = self._ledger.head(dataset_id)
                declared = DatasetSettings(id=dataset_id, rights=head[1].header.rights if head else None)
                self._known[dataset_id] = dataset_id in self._remembered or (
                    is_masked(declared) and not (head is None and self._is_announced(dataset_id))
                )
            else:
                self._known[dataset_id] = is_masked(declared)
        return self._known[dataset_id]

    def _is_announced(self, dataset_id: str) -> bool:
        return dataset_id in self._feeds or dataset_id in self._announced

    def hides_units(self, dataset: str) -> bool:
        """What is announced publicly is no secret, unless it is declared here, or was, as masked."""
        return (dataset in self._declared or dataset in self._remembered) and self.hides(dataset)

    def mask(self, name: str) -> str:
        """The public form of a name; of `dataset:NAME` the name alone is masked."""
        named = _OF_KIND.fullmatch(name)
        return f"{named[1]}{mask(named[2], self._key)}" if named else mask(name, self._key)

    def is_name(self, text: str) -> bool:
        """Is the text a masked name, or one with its kind, such as `dataset:NAME`?"""
        named = _OF_KIND.fullmatch(text)
        return text in self.names or (named is not None and named[2] in self.names)

    def tells(self, text: str) -> bool:
        """Does the text name anything that is masked, in whatever spelling of separators and case?"""
        return any(found["masked"] for found in self._pattern.finditer(text))

    def meant(self, shown: str) -> str:
        """The name that a mask stands for. A masked name itself finds nothing: a guess is not confirmed."""
        if self.tells(shown):
            return NOTHING
        if PREFIX not in shown:
            return shown
        kind, found = shown[: shown.index(PREFIX)], shown[shown.index(PREFIX) :]
        return next((f"{kind}{one}" for one in self.names if mask(one, self._key) == found), shown)


def _any_of(names: Collection[str], visible: Collection[str]) -> re.Pattern[str]:
    """Finds these names; at each place one that may be seen is preferred."""
    masked, seen = _either(names), _either(visible)
    return re.compile(rf"(?<![^\W_])(?:{seen}|(?P<masked>{masked}))(?![^\W_])", re.IGNORECASE)


def _spelling(name: str) -> str:
    """A file or an address spells it with other separators, or none."""
    parts = [re.escape(part) for part in _SEPARATORS.split(name) if part]
    return r"[\W_]{0,3}".join(parts) if parts else re.escape(name)


def _either(names: Collection[str]) -> str:
    return "|".join(sorted(map(_spelling, names), key=lambda one: (-len(one), one))) or "(?!)"
