"""Our catalogue into external ones: each item as it is when it is sent, one delivery in flight for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

from kfm.core.catalogue import CollectionFigures, Item, Owed, Search
from kfm.core.errors import CollectorRefused, KfmError
from kfm.core.records import Record
from kfm.ingest_ports import CatalogueReader, StacReplica

BATCH = 50
CLAIM_MS = 5 * 60_000  # longer than all requests of a batch may take
BACKOFF_BASE_MS = 1_000
BACKOFF_MAX_MS = 5 * 60_000
PARKED_MS = 24 * 3_600_000  # for what a replica refuses: somebody has to look
PAGE = 200

RenderItem = Callable[[Item], dict[str, Any]]
RenderCollection = Callable[[CollectionFigures], dict[str, Any]]


class ReplicaStore(Protocol):
    def claim(self, replica: str, limit: int, claim_ms: int) -> list[Owed]: ...
    def delivered(self, replica: str, done: Iterable[tuple[Owed, int]]) -> None: ...
    def put_back(self, replica: str, owed: Iterable[Owed], not_before_ms: int) -> None: ...
    def again(self, replica: str, items: Iterable[tuple[str, str, int]]) -> None: ...
    def backlog(self, replica: str) -> int: ...
    def now_ms(self) -> int: ...


class Replicated(Record, frozen=True):
    """What one pass came to."""

    sent: int = 0
    refused: int = 0
    waiting: int = 0
    trouble: str | None = None


class Replicator:
    """Keeps one replica up to date."""

    def __init__(
        self,
        name: str,
        api: StacReplica,
        store: ReplicaStore,
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
        self._collections: set[str] = set()

    def step(self, batches_max: int = 20) -> Replicated:
        """Deliver what is due, for a while. Trouble ends the pass; what was claimed comes again later."""
        sent = refused = 0
        trouble: str | None = None
        for _ in range(batches_max):
            owed = self._store.claim(self._name, BATCH, CLAIM_MS)
            if not owed:
                break
            done, parked, failed, trouble = self._deliver(owed)
            now_ms = self._store.now_ms()
            self._store.delivered(self._name, done)
            self._store.put_back(self._name, parked, now_ms + PARKED_MS)
            for one in failed:
                self._store.put_back(self._name, [one], now_ms + backoff_ms(one.tries))
            sent += len(done)
            refused += len(parked)
            if trouble is not None and failed:
                break
        return Replicated(
            sent=sent, refused=refused, waiting=self._store.backlog(self._name), trouble=trouble
        )

    def _deliver(self, owed: list[Owed]) -> tuple[list[tuple[Owed, int]], list[Owed], list[Owed], str | None]:
        done: list[tuple[Owed, int]] = []
        parked: list[Owed] = []
        failed: list[Owed] = []
        trouble: str | None = None
        for index, one in enumerate(owed):
            try:
                done.append((one, self._send(one)))
            except CollectorRefused as error:
                parked.append(one)
                trouble = str(error)
            except KfmError as error:
                failed = owed[index:]
                return done, parked, failed, str(error)
        return done, parked, failed, trouble

    def _send(self, owed: Owed) -> int:
        """The newest revision, whatever was wanted; which one that was."""
        item = self._catalogue.item(owed.collection_id, owed.item_id)
        if item is None:
            self._api.delete_item(owed.collection_id, owed.item_id)
            return owed.wanted
        self._ensure(owed.collection_id)
        self._api.put_item(self._render_item(item))
        shown = self._api.revisions(owed.collection_id, [owed.item_id]).get(owed.item_id)
        if shown is not None and shown < item.revision:
            raise KfmError(f"{self._name} shows revision {shown} after {item.revision} was sent.")
        return item.revision

    def _ensure(self, collection_id: str) -> None:
        if collection_id in self._collections:
            return
        figures = next(
            (one for one in self._catalogue.collections() if one.collection_id == collection_id),
            CollectionFigures(collection_id=collection_id, items=0, start_ms=None, end_ms=None, bbox=None),
        )
        self._api.ensure_collection(self._render_collection(figures))
        self._collections.add(collection_id)

    # --- comparing -------------------------------------------------------------------

    def compare(self, *, repair: bool, progress: Callable[[int], None] = lambda _count: None) -> Compared:
        """Every item of ours against the replica, and every one of its against ours."""
        sums = {"items": 0, "equal": 0, "missing": 0, "stale": 0, "extra": 0}
        for figures in self._catalogue.collections():
            collection_id = figures.collection_id
            for page in self._pages(collection_id):
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
        return Compared(replica=self._name, **sums)

    def _pages(self, collection_id: str) -> Iterator[list[Item]]:
        after: tuple[int, int] | None = None
        while True:
            search = Search(collections=(collection_id,), after=after, limit=PAGE)
            page = self._catalogue.find_items(search)
            if not page:
                return
            yield page
            after = (page[-1].at_ms, page[-1].number)

    def _extra(self, collection_id: str) -> Iterator[str]:
        """Of ours, by their mark, and not in our catalogue any more. What others put there is theirs."""
        ids = (item_id for item_id, revision in self._api.items(collection_id) if revision is not None)
        while page := list(islice(ids, PAGE)):
            search = Search(collections=(collection_id,), ids=tuple(page), limit=len(page))
            known = {item.item_id for item in self._catalogue.find_items(search)}
            yield from (item_id for item_id in page if item_id not in known)


class Compared(Record, frozen=True):
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


def backoff_ms(tries: int) -> int:
    return min(BACKOFF_MAX_MS, BACKOFF_BASE_MS << min(max(tries - 1, 0), 20))


def _difference(item: Item, shown: dict[str, int | None]) -> str:
    if item.item_id not in shown:
        return "missing"
    return "equal" if shown[item.item_id] == item.revision else "stale"
