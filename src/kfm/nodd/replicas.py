"""Replicas: external STAC catalogues that follow ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from kfm.model.catalogue import CatalogueItem, CollectionFigures, Owed, Search
from kfm.model.errors import CollectorRefused, KfmError, UpstreamUnavailable, UsageError
from kfm.model.records import Record
from kfm.model.retry import backoff_ms
from kfm.model.settings import Replica
from kfm.nodd.catalogue.search import pages_of
from kfm.nodd.catalogue.stac_items import render_collection, render_item
from kfm.objects.http_client import HttpxClient
from kfm.ports import StacReplica
from kfm.sinks.stac_api import StacApi

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.db.catalogue import CatalogueReader, Replicas
    from kfm.db.ledger import Ledger
    from kfm.nodd.dataset_registry import Registry


BATCH = 50
CLAIM_MS = 5 * 60_000
ITEM_MS = 2 * 60_000  # the requests for one item take no longer: none is begun later before a claim's end
FAILURES_MAX = 3  # in a row: then it is the replica, not an item
BACKOFF_BASE_MS = 1_000
BACKOFF_MAX_MS = 5 * 60_000
PARKED_MS = 24 * 3_600_000  # for what a replica refuses: a person has to look
COLLECTION_MS = 5 * 60_000  # extents grow all the time; they are sent so often at most
PAGE = 200

RenderItem = Callable[[CatalogueItem], dict[str, Any]]
RenderCollection = Callable[[CollectionFigures], dict[str, Any]]


class ReplicaReport(Record, frozen=True):
    """Deliveries to one replica."""

    sent: int = 0
    refused: int = 0
    waiting: int = 0
    trouble: str | None = None


@dataclass
class _Deliveries:
    """Outcomes of the items of one claim."""

    done: list[tuple[Owed, int]] = field(default_factory=list)
    parked: list[Owed] = field(default_factory=list)
    failed: list[Owed] = field(default_factory=list)
    untried: list[Owed] = field(default_factory=list)
    refusal: str | None = None
    trouble: str | None = None


@dataclass
class _SentCollection:
    """A collection in the form in which it was sent last."""

    body: dict[str, Any]
    at_ms: int
    grown: bool = False  # items of it were sent since


class Replicator:
    """Keeps one replica up to date."""

    def __init__(
        self,
        name: str,
        api: StacReplica,
        store: Replicas,
        catalogue: CatalogueReader,
        render_item: RenderItem,
        render_collection: RenderCollection,
    ) -> None:
        self._name = name
        self._api = api
        self._store = store
        self._catalogue = catalogue
        self._render_item = render_item
        self._render_collection = render_collection
        self._collections: dict[str, _SentCollection] = {}

    def step(self, batches_max: int = 20, stopping: Callable[[], bool] = lambda: False) -> ReplicaReport:
        """Deliver what is due, for a while. An error ends it; claimed items come again later."""
        sent = refused = 0
        trouble: str | None = None
        for _ in range(batches_max):
            owed = [] if stopping() else self._store.claim(self._name, BATCH, CLAIM_MS)
            if not owed:
                break
            outcomes = self._deliver(owed, stopping)
            self._settle(outcomes)
            sent += len(outcomes.done)
            refused += len(outcomes.parked)
            trouble = outcomes.trouble or outcomes.refusal or trouble
            if outcomes.untried:
                break
        if trouble is None and not stopping():
            trouble = self._refresh()
        return ReplicaReport(
            sent=sent, refused=refused, waiting=self._store.backlog(self._name), trouble=trouble
        )

    def _deliver(self, owed: list[Owed], stopping: Callable[[], bool]) -> _Deliveries:
        """Trouble with one item is its own; trouble with several in a row is the replica's."""
        outcomes, failures = _Deliveries(), 0
        for index, one in enumerate(owed):
            late = self._store.now_ms() > one.until_ms - ITEM_MS
            if failures >= FAILURES_MAX or late or stopping():
                outcomes.untried = owed[index:]
                break
            try:
                outcomes.done.append((one, self._send(one)))
                failures = 0
            except CollectorRefused as error:
                outcomes.parked.append(one)
                outcomes.refusal = f"{one.collection_id}/{one.item_id} is refused: {error.detail}"
                failures = 0
            except KfmError as error:
                outcomes.failed.append(one)
                outcomes.trouble = error.detail or str(error)
                failures += 1
                self._collections.pop(one.collection_id, None)  # perhaps it was dropped there
        return outcomes

    def _settle(self, outcomes: _Deliveries) -> None:
        store, now_ms = self._store, self._store.now_ms()
        store.delivered(self._name, outcomes.done)
        store.put_back(self._name, outcomes.parked, now_ms + PARKED_MS)
        for one in outcomes.failed:
            store.put_back(self._name, [one], now_ms + backoff_ms(BACKOFF_BASE_MS, BACKOFF_MAX_MS, one.tries))
        tries = max((one.tries for one in outcomes.failed), default=0)
        later_ms = now_ms + backoff_ms(BACKOFF_BASE_MS, BACKOFF_MAX_MS, tries) if outcomes.failed else 0
        store.put_back(self._name, outcomes.untried, later_ms, charged=False)

    def _send(self, owed: Owed) -> int:
        """The newest revision, whatever was wanted; which one that was."""
        item = self._catalogue.item(owed.collection_id, owed.item_id)
        if item is None:
            self._api.delete_item(owed.collection_id, owed.item_id)
            return owed.wanted
        self._ensure(owed.collection_id)
        self._api.put_item(self._render_item(item))
        shown = self._api.revisions(owed.collection_id, [owed.item_id])
        if owed.item_id not in shown:
            raise UpstreamUnavailable(f"{self._name} took {owed.item_id} and does not show it.")
        revision = shown[owed.item_id]
        if revision is not None and revision < item.revision:
            raise UpstreamUnavailable(
                f"{self._name} shows revision {revision} of {owed.item_id} after {item.revision} was sent."
            )
        self._collections[owed.collection_id].grown = True
        return item.revision

    # --- collections -----------------------------------------------------------------

    def _ensure(self, collection_id: str) -> None:
        """Before the first item; afterwards as its extent grows, every now and then."""
        if collection_id not in self._collections:
            body = self._body(collection_id)
            self._api.ensure_collection(body)
            self._collections[collection_id] = _SentCollection(body, self._store.now_ms())

    def _refresh(self) -> str | None:
        """Send collections again that have changed, none too often. What went wrong, if anything did."""
        now_ms = self._store.now_ms()
        for collection_id, sent in self._collections.items():
            if not sent.grown or now_ms - sent.at_ms < COLLECTION_MS:
                continue
            body = self._body(collection_id)
            try:
                if body != sent.body:
                    self._api.ensure_collection(body)
            except KfmError as error:
                sent.at_ms = now_ms
                return f"{collection_id}: {error.detail or error}"
            self._collections[collection_id] = _SentCollection(body, now_ms)
        return None

    def _body(self, collection_id: str) -> dict[str, Any]:
        figures = next(
            (one for one in self._catalogue.collections() if one.collection_id == collection_id),
            CollectionFigures(collection_id=collection_id, items=0, start_ms=None, end_ms=None, bbox=None),
        )
        return self._render_collection(figures)

    # --- comparing -------------------------------------------------------------------

    def compare(
        self, *, repair: bool, progress: Callable[[int], None] = lambda _count: None
    ) -> ReplicaComparison:
        """Every item of ours against the replica, and every one of its against ours."""
        sums = {"items": 0, "equal": 0, "missing": 0, "stale": 0, "extra": 0}
        for collection_id in self._catalogue.collection_ids():
            before = sums["items"]
            for page in pages_of(self._catalogue, collection_id, PAGE):
                shown = self._api.revisions(collection_id, [item.item_id for item in page])
                again = []
                for item in page:
                    what = _difference(item, shown)
                    sums[what] += 1
                    if what != "equal":
                        again.append((collection_id, item.item_id, item.revision))
                sums["items"] += len(page)
                if repair:
                    self._store.again(self._name, again)
                progress(len(page))
            for item_id in self._extra(collection_id):
                sums["extra"] += 1
                if repair:
                    self._store.again(self._name, [(collection_id, item_id, 1)])
            if repair and sums["items"] > before:
                self._collections.pop(collection_id, None)
                self._ensure(collection_id)
        return ReplicaComparison(replica=self._name, **sums)

    def _extra(self, collection_id: str) -> Iterator[str]:
        """Of ours, by their mark, and not in our catalogue any more. What others put there is theirs."""
        ids = (item_id for item_id, revision in self._api.items(collection_id) if revision is not None)
        while page := list(islice(ids, PAGE)):
            search = Search(collections=(collection_id,), ids=tuple(page), limit=len(page))
            known = {item.item_id for item in self._catalogue.find_items(search)}
            yield from (item_id for item_id in page if item_id not in known)


class ReplicaComparison(Record, frozen=True):
    """A replica against our catalogue."""

    replica: str
    items: int
    equal: int
    missing: int
    stale: int
    extra: int

    @property
    def differs(self) -> int:
        return self.missing + self.stale + self.extra


def _difference(item: CatalogueItem, shown: dict[str, int | None]) -> str:
    if item.item_id not in shown:
        return "missing"
    return "equal" if shown[item.item_id] == item.revision else "stale"


BATCHES_MAX = 20
ALL_BATCHES = 1_000_000
logger = logging.getLogger(__name__)


class Deliveries:
    """Every replica of a configuration, served from one thread. Trouble with one is no other's."""

    def __init__(self, app: App, store: Ledger | None = None) -> None:
        from kfm.nodd.ingest import registry_of

        self._logged: dict[str, str | None] = {}
        registry, ledger = registry_of(app), store or app.writer
        self._made = {
            replica.name: replicator(app, replica, registry, ledger)[0]
            for replica in app.settings.ingest.replicas
        }

    def step(
        self, batches_max: int = BATCHES_MAX, stopping: Callable[[], bool] = lambda: False
    ) -> list[ReplicaReport]:
        """Deliver to all of them. An error is logged once, however long it lasts."""
        results = []
        for name, made in self._made.items():
            result = made.step(batches_max, stopping)
            if result.trouble is not None and result.trouble != self._logged.get(name):
                logger.warning("replica %s: %s", name, result.trouble, extra={"replica": name})
            self._logged[name] = result.trouble
            results.append(result)
        return results


def replicator(app: App, replica: Replica, registry: Registry, store: Ledger) -> tuple[Replicator, StacApi]:
    token = app.loaded.secret(replica.token) if replica.token is not None else None
    base_url = app.loaded.secret(replica.url).rstrip("/")
    api = StacApi(base_url, token, client=HttpxClient(), clock=app.clock)
    made = Replicator(
        replica.name,
        api,
        store.replicas(),
        store.catalogue(),
        lambda item: render_item(item, base_url),
        lambda figures: render_collection(registry.find(figures.collection_id), figures, base_url),
    )
    return made, api


def compare_all(
    app: App, names: tuple[str, ...], *, repair: bool, progress: Callable[[int], None]
) -> list[tuple[ReplicaComparison, ReplicaReport | None]]:
    """Compare the named replicas, or all. With `repair` what differs is delivered again."""
    from kfm.nodd.ingest import registry_of

    replicas = {one.name: one for one in app.settings.ingest.replicas}
    for name in names:
        if name not in replicas:
            raise UsageError(
                f"There is no replica `{name[:64]}`.", remedy=f"Known are: {', '.join(replicas) or 'none'}."
            )
    if not replicas:
        raise UsageError("No replica is configured.", remedy="Name one under `ingest.replicas`.")
    registry, results = registry_of(app), []
    for name in names or tuple(replicas):
        made, api = replicator(app, replicas[name], registry, app.writer)
        try:
            compared = made.compare(repair=repair, progress=progress)
            delivered = made.step(batches_max=ALL_BATCHES) if repair else None
            if delivered is not None and delivered.trouble is not None:
                logger.warning("replica %s: %s", name, delivered.trouble, extra={"replica": name})
            results.append((compared, delivered))
        finally:
            api.close()
    return results
