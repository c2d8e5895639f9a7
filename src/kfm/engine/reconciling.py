"""What a bucket has against what the ledger knows: messages may be lost, a listing shows what was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from kfm.core.records import ObjectStat, Record
from kfm.core.replays import BACKFILL
from kfm.core.wal import Content, Intake, Known, Taken
from kfm.engine.ingesting import Ingesting
from kfm.ingest.announced import Announced
from kfm.ingest.grammar import Reading
from kfm.ingest.operators.integrity import plain_etag
from kfm.ingest.reading import Arrival
from kfm.ingest.refusals import Refusal
from kfm.ingest.units import pending
from kfm.ingest_ports import Upstream, Wal, WalReader

BATCH = 500
QUEUE = "reconcile"


class Wish(Record, frozen=True):
    """Where to look, and for what."""

    provider: str
    bucket: str
    prefixes: tuple[str, ...] = ("",)
    dataset: str | None = None  # None: all that the bucket has
    from_ms: int | None = None  # by the time that the key tells
    until_ms: int | None = None
    limit: int = 1_000_000  # objects looked at


class Gap(Record, frozen=True):
    """An object that the ledger does not know, or not as it is."""

    wal_id: str
    dataset: str
    object_uri: str
    what: str  # missing | changed
    time_range_start_ms: int | None


class Reconciled(Record, frozen=True):
    """What the comparison came to."""

    listed: int = 0
    known: int = 0
    missing: int = 0
    changed: int = 0
    gone: int = 0  # known as removed, and listed all the same
    unreadable: int = 0  # of no known dataset
    outside: int = 0  # of another dataset or time
    opened: int = 0
    complete: bool = True  # False: the limit was reached


def reconcile(
    upstream: Upstream,
    registry_read: Callable[[str, str, str], Reading],
    reader: WalReader,
    wish: Wish,
    *,
    open_missing: Callable[[list[tuple[Reading, ObjectStat]]], int] | None = None,
    found: Callable[[Gap], None] = lambda _gap: None,
    progress: Callable[[int], None] = lambda _listed: None,
) -> Reconciled:
    """Compare page by page. With `open_missing` what is missing or changed is taken in."""
    sums = dict.fromkeys(Reconciled.__struct_fields__[:-1], 0)
    listing = _listing(upstream, wish)
    for page in iter(lambda: list(islice(listing, min(BATCH, wish.limit - sums["listed"]))), []):
        sums["listed"] += len(page)
        readings = list(_readings(page, registry_read, wish, sums))
        known = reader.contents([reading.wal_id for reading, _ in readings])
        gaps = []
        for reading, stat in readings:
            what = _difference(known.get(reading.wal_id), stat)
            sums["known" if what is None else what] += 1
            if what is not None:
                gaps.append((reading, stat))
                found(_gap(reading, what))
        if open_missing is not None and gaps:
            sums["opened"] += open_missing(gaps)
        progress(len(page))
    complete = next(listing, None) is None
    return Reconciled(complete=complete, **sums)


def opener(kernel: Ingesting, wal: Wal) -> Callable[[list[tuple[Reading, ObjectStat]]], int]:
    """Takes in what a listing shows, as a backfill. Which of two versions is newer a listing can't tell."""

    def open_missing(gaps: list[tuple[Reading, ObjectStat]]) -> int:
        taken = tuple(_taken(kernel, reading, stat) for reading, stat in gaps)
        report = wal.take_in(Intake(taken=taken))
        return report.created + report.reissued

    return open_missing


def _taken(kernel: Ingesting, reading: Reading, stat: ObjectStat) -> Taken:
    announced = Announced(
        provider=reading.provider, bucket=reading.bucket, key=reading.key, event_time_ms=stat.modified_ms
    )
    content = Content(etag=plain_etag(stat.etag), size=stat.size, version_id=stat.version)
    arrival = Arrival(announced=announced, reading=reading)
    return Taken(
        unit=pending(arrival, queue=QUEUE, now_ms=kernel.clock.now_ms(), replay_reason=BACKFILL),
        content=content,
        reissue=kernel.settings.policy_of(reading.dataset).reissue,
    )


def _listing(upstream: Upstream, wish: Wish) -> Iterator[ObjectStat]:
    for prefix in wish.prefixes:
        yield from upstream.list(wish.provider, wish.bucket, prefix)


def _readings(
    page: Iterable[ObjectStat],
    registry_read: Callable[[str, str, str], Reading],
    wish: Wish,
    sums: dict[str, int],
) -> Iterator[tuple[Reading, ObjectStat]]:
    for stat in page:
        try:
            reading = registry_read(wish.provider, wish.bucket, stat.key)
        except Refusal:
            sums["unreadable"] += 1
            continue
        if _is_meant(reading, wish):
            yield reading, stat
        else:
            sums["outside"] += 1


def _is_meant(reading: Reading, wish: Wish) -> bool:
    if wish.dataset is not None and reading.dataset != wish.dataset:
        return False
    at_ms = reading.time_range_start_ms
    if at_ms is None:
        return wish.from_ms is None and wish.until_ms is None
    return (wish.from_ms is None or at_ms >= wish.from_ms) and (
        wish.until_ms is None or at_ms < wish.until_ms
    )


def _difference(known: Known | None, stat: ObjectStat) -> str | None:
    if known is None:
        return "missing"
    if known.removed:
        return "gone"
    etag = plain_etag(stat.etag)
    same_etag = etag is None or known.etag is None or known.etag == etag
    same_size = known.size is None or known.size == stat.size
    return None if same_etag and same_size else "changed"


def _gap(reading: Reading, what: str) -> Gap:
    return Gap(
        wal_id=reading.wal_id,
        dataset=reading.dataset,
        object_uri=reading.object_uri,
        what=what,
        time_range_start_ms=reading.time_range_start_ms,
    )
