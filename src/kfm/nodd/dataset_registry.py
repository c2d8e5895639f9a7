"""The registry of datasets: built-in, from plugins, and generic ones of configured buckets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfm.model.errors import ConfigError, PluginConflict, UsageError
from kfm.model.feeds import ShippedFeed
from kfm.model.records import Record
from kfm.model.units import wal_id
from kfm.nodd.grammar import Dataset, Place, Reading, item_id, read
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.object_keys import object_uri, quoted_uri

if TYPE_CHECKING:
    from kfm.config.loader import Loaded


class Generic(Record, frozen=True):
    """Objects of this bucket that no known dataset claims become plain items of `dataset`."""

    dataset: str
    bucket: str
    provider: str = "aws"


class IntakePolicy(Record, frozen=True):
    """Datasets and topics that the configuration adds to the known ones."""

    generic: tuple[Generic, ...] = ()
    topics: tuple[str, ...] = ()
    copies: tuple[tuple[str, Place], ...] = ()  # dataset, where another copy of it lies


NO_POLICY = IntakePolicy()


GROUP = "kfm.datasets"
BUILT_IN = (
    "goes_abi",
    "goes_glm",
    "goes_suvi",
    "nexrad_l2",
    "nexrad_l2_chunks",
    "nexrad_l3",
    "hrrr",
    "gfs",
    "gefs",
    "mrms",
    "nwm",
    "rtma",
    "urma",
    "jpss",
    "ndfd",
    "ghcn_d",
    "isd",
    "nbm",
    "nam",
    "rap",
    "ofs",
)
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\Z")


class Registry:
    """Finds the dataset of a key. Immutable once made, so threads may share it."""

    def __init__(self, datasets: Iterable[Dataset], policy: IntakePolicy = NO_POLICY) -> None:
        self.datasets = tuple(_with_copies(dataset, policy) for dataset in datasets)
        self.policy = policy
        self._places: dict[tuple[str, str], list[tuple[Dataset, Place, str]]] = {}
        names = [dataset.name for dataset in self.datasets]
        self._by_name = dict(zip(reversed(names), reversed(self.datasets), strict=True))
        for dataset in self.datasets:
            homes = [place.platform for place in dataset.places if place.home]
            if len(homes) > 1 and (None in homes or len(set(homes)) < len(homes)):
                raise ConfigError(
                    f"Dataset `{dataset.name}` has several homes for one key, so ids of items would collide.",
                    remedy="Give each place a platform of its own, or `home=False` to all but one.",
                )
            for place in dataset.places:
                places = self._places.setdefault((place.provider, place.bucket), [])
                places.append((dataset, place, _landmark(dataset)))
        self._generic: dict[tuple[str, str], Generic] = {}
        for generic in policy.generic:
            if generic.dataset in names or _NAME.match(generic.dataset) is None:
                raise UsageError(f"`{generic.dataset[:64]}` can't be the name of a generic dataset.")
            self._generic[generic.provider, generic.bucket] = generic
        self.topics = frozenset(policy.topics).union(*(dataset.topics for dataset in self.datasets))

    @property
    def names(self) -> frozenset[str]:
        """Of every dataset that a unit may belong to, generic ones included."""
        generic = (one.dataset for one in self.policy.generic)
        return frozenset((*(dataset.name for dataset in self.datasets), *generic))

    def find(self, name: str) -> Dataset | None:
        """The dataset of this name with a grammar for its keys; None for a generic one."""
        return self._by_name.get(name)

    def providers_of(self, bucket: str) -> tuple[str, ...]:
        """Providers that have a known bucket of this name."""
        return tuple(
            provider
            for provider in dict.fromkeys(("aws", "gcp", "azure", *(name for name, _ in self.places)))
            if (provider, bucket) in self.places
        )

    @property
    def places(self) -> list[tuple[str, str]]:
        """Provider and bucket of all that is known."""
        return [*self._places, *self._generic]

    def places_of(self, name: str) -> list[tuple[str, str]]:
        """Provider and bucket of all places of one dataset."""
        dataset = self.find(name)
        own = [(place.provider, place.bucket) for place in dataset.places] if dataset is not None else []
        return [*own, *(where for where, generic in self._generic.items() if generic.dataset == name)]

    def read(self, provider: str, bucket: str, key: str) -> Reading:
        """The reading of an object's key. Raises RecordRefusal."""
        where = (provider, bucket)
        places = self._places.get(where, ())
        found: Reading | None = None
        rival: Reading | None = None
        for dataset, place, landmark in places:
            reading = read(dataset, place, key) if landmark in key else None
            if found is None:
                found = reading
            elif rival is None:
                rival = reading
        if found is not None and rival is not None:
            raise RecordRefusal("KEY_AMBIGUOUS", f"They are {found.dataset} and {rival.dataset}.")
        if found is not None:
            return found
        if where in self._generic:
            generic = self._generic[where]
            return Reading(
                dataset=generic.dataset,
                object_uri=object_uri(*where, key),
                provider=provider,
                bucket=bucket,
                key=key,
                product=None,
                platform=None,
                time_range_start_ms=None,
                time_range_end_ms=None,
                reference_time_ms=None,
                forecast_hour=None,
                wal_id=wal_id(generic.dataset, quoted_uri(*where, key), None),
                stac_collection_id=generic.dataset,
                # Always with its bucket: an id must not depend on which others are configured, and in
                # which order. Otherwise two objects would share an item once that changes.
                stac_item_id=item_id(key, where, marked=True),
            )
        raise RecordRefusal("KEY_UNKNOWN" if places else "BUCKET_UNKNOWN")


def _with_copies(dataset: Dataset, policy: IntakePolicy) -> Dataset:
    copies = tuple(place for name, place in policy.copies if name == dataset.name)
    return replace(dataset, places=(*dataset.places, *copies)) if copies else dataset


def _landmark(dataset: Dataset) -> str:
    """A text that every key of the dataset contains, sidecars included; empty where none is known."""
    return dataset.rules[0].pattern.landmark if len(dataset.rules) == 1 else ""


def built_in() -> tuple[Dataset, ...]:
    """The datasets that come with kfm."""
    modules = (import_module(f"kfm.nodd.datasets.{name}") for name in BUILT_IN)
    return tuple(module.DATASET for module in modules)


def load_registry(policy: IntakePolicy = NO_POLICY) -> Registry:
    """All datasets, those of installed plugins included."""
    from importlib.metadata import entry_points

    datasets = {dataset.name: ("kfm", dataset) for dataset in built_in()}
    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        owner = point.dist.name if point.dist is not None else "an unknown package"
        try:
            made = point.load()
            dataset = made if isinstance(made, Dataset) else made()
        except Exception as error:  # a plugin may raise anything; the person needs to know whose it is
            raise ConfigError(f"The dataset `{point.name}` of {owner} can't be loaded: {error!r}.") from error
        if not isinstance(dataset, Dataset) or dataset.name != point.name or not _NAME.match(dataset.name):
            raise ConfigError(f"The dataset `{point.name}` of {owner} is not a Dataset of that name.")
        if dataset.name in datasets and datasets[dataset.name] != (owner, dataset):
            other = datasets[dataset.name][0]
            raise PluginConflict(f"The dataset `{dataset.name}` is offered by {other} and {owner}.")
        datasets[dataset.name] = (owner, dataset)
    return Registry((dataset for _, dataset in datasets.values()), policy)


def shipped_feed(name: str) -> ShippedFeed:
    """What is known of an announced dataset without any configuration; nothing of a generic one. Of those
    that come with kfm one module is loaded, not all."""
    module = name.replace("-", "_")
    if module in BUILT_IN:
        dataset: Dataset | None = import_module(f"kfm.nodd.datasets.{module}").DATASET
    else:
        dataset = load_registry().find(name)
    if dataset is None:
        return ShippedFeed()
    places = sorted(dataset.places, key=lambda place: not place.home)  # stable: each in its order
    return ShippedFeed(
        cadences=dataset.cadences,
        buckets=tuple((_address(place), place.platform) for place in places),
    )


def _address(place: Place) -> str:
    return (
        place.bucket if place.provider == "aws" else object_uri(place.provider, place.bucket, "").rstrip("/")
    )


def require_known_datasets(loaded: Loaded) -> None:
    """ConfigError with every name that nothing announces, and the line that it is on."""
    ingest = loaded.settings.ingest
    named = ingest.policies or ingest.generic or ingest.providers or ingest.feeds
    if not named and not any(source.follows for source in loaded.settings.sources):
        return
    from kfm.config.document import Document, gathered
    from kfm.config.section_checks import dataset_problems

    known = {dataset.name for dataset in load_registry().datasets}
    document = Document(loaded.name, None, loaded.lines)
    problems = sorted(dataset_problems(loaded.settings, known), key=lambda one: document.line(one[0]))
    if problems:
        raise gathered([document.error(path, sentence) for path, sentence in problems])
