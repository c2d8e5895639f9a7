"""Reconciliation: a bucket's listing against the ledger, since messages may be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from kfm.model.errors import UsageError
from kfm.model.records import Justification, ObjectStat, Record, governance_entry
from kfm.model.replays import BACKFILL
from kfm.model.units import Content, IntakeBatch, IntakeUnit, KnownContent, provider_of
from kfm.nodd.grammar import Reading
from kfm.nodd.ingest import NoddIngest, registry_of, upstream_of
from kfm.nodd.inspect.integrity import plain_etag
from kfm.nodd.intake import pending
from kfm.nodd.messages.announcement import Announcement
from kfm.nodd.messages.record_outcomes import Arrival
from kfm.nodd.messages.refusals import RecordRefusal
from kfm.nodd.worker import IngestContext
from kfm.ports import Upstream

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.db.units import UnitReader, Units


BATCH = 500
QUEUE = "reconcile"


class ReconciliationOptions(Record, frozen=True):
    """Where to look, and for what."""

    provider: str
    bucket: str
    prefixes: tuple[str, ...] = ("",)
    dataset: str | None = None  # None: all that the bucket has
    from_ms: int | None = None  # by the time in the key
    until_ms: int | None = None
    limit: int = 1_000_000  # objects looked at


class Gap(Record, frozen=True):
    """An object that the ledger does not know, or not as it is."""

    wal_id: str
    dataset: str
    object_uri: str
    what: str  # missing | changed
    time_range_start_ms: int | None


class ReconciliationReport(Record, frozen=True):
    """Counts of a comparison."""

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
    reader: UnitReader,
    options: ReconciliationOptions,
    *,
    open_missing: Callable[[list[tuple[Reading, ObjectStat]]], int] | None = None,
    found: Callable[[Gap], None] = lambda _gap: None,
    progress: Callable[[int], None] = lambda _listed: None,
) -> ReconciliationReport:
    """Compare page by page. With `open_missing` what is missing or changed is taken in."""
    sums = dict.fromkeys(ReconciliationReport.__struct_fields__[:-1], 0)
    listing = _listing(upstream, options)
    for page in iter(lambda: list(islice(listing, min(BATCH, options.limit - sums["listed"]))), []):
        sums["listed"] += len(page)
        readings = list(_readings(page, registry_read, options, sums))
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
    return ReconciliationReport(complete=complete, **sums)


def opener(context: IngestContext, wal: Units) -> Callable[[list[tuple[Reading, ObjectStat]]], int]:
    """Takes in what a listing shows, as a backfill. A listing does not order versions."""

    def open_missing(gaps: list[tuple[Reading, ObjectStat]]) -> int:
        taken = tuple(_taken(context, reading, stat) for reading, stat in gaps)
        report = wal.take_in(IntakeBatch(arrivals=taken))
        return report.created + report.reissued

    return open_missing


def _taken(context: IngestContext, reading: Reading, stat: ObjectStat) -> IntakeUnit:
    announced = Announcement(
        provider=reading.provider, bucket=reading.bucket, key=reading.key, event_time_ms=stat.modified_ms
    )
    content = Content(etag=plain_etag(stat.etag), size=stat.size, version_id=stat.version)
    arrival = Arrival(announced=announced, reading=reading)
    return IntakeUnit(
        unit=pending(arrival, queue=QUEUE, now_ms=context.wal.now_ms(), replay_reason=BACKFILL),
        content=content,
        reissue=context.settings.policy_of(reading.dataset).reissue,
    )


def _listing(upstream: Upstream, options: ReconciliationOptions) -> Iterator[ObjectStat]:
    for prefix in options.prefixes:
        yield from upstream.list(options.provider, options.bucket, prefix)


def _readings(
    page: Iterable[ObjectStat],
    registry_read: Callable[[str, str, str], Reading],
    options: ReconciliationOptions,
    sums: dict[str, int],
) -> Iterator[tuple[Reading, ObjectStat]]:
    for stat in page:
        try:
            reading = registry_read(options.provider, options.bucket, stat.key)
        except RecordRefusal:
            sums["unreadable"] += 1
            continue
        if _is_meant(reading, options):
            yield reading, stat
        else:
            sums["outside"] += 1


def _is_meant(reading: Reading, options: ReconciliationOptions) -> bool:
    if options.dataset is not None and reading.dataset != options.dataset:
        return False
    at_ms = reading.time_range_start_ms
    if at_ms is None:
        return options.from_ms is None and options.until_ms is None
    return (options.from_ms is None or at_ms >= options.from_ms) and (
        options.until_ms is None or at_ms < options.until_ms
    )


def _difference(known: KnownContent | None, stat: ObjectStat) -> str | None:
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


def reconciliation_options(
    bucket: str,
    *,
    dataset: str | None,
    prefixes: Sequence[str],
    from_ms: int | None,
    until_ms: int | None,
    limit: int,
) -> ReconciliationOptions:
    scheme, separator, name = bucket.rpartition("://")
    provider = provider_of(scheme) if separator else "aws"
    if provider is None or not name:
        raise UsageError(f"`{bucket[:128]}` is no bucket.", remedy="Give a name, or s3://, gs:// or az://….")
    return ReconciliationOptions(
        provider=provider,
        bucket=name.rstrip("/"),
        prefixes=tuple(prefixes) or ("",),
        dataset=dataset,
        from_ms=from_ms,
        until_ms=until_ms,
        limit=limit,
    )


def reconcile_bucket(
    app: App,
    options: ReconciliationOptions,
    found: Callable[[Gap], None],
    progress: Callable[[int], None],
    *,
    by: Justification | None = None,
) -> ReconciliationReport:
    """Compare; `by` whom missing objects are taken in, which is recorded."""
    registry, upstream = registry_of(app), upstream_of(app)
    if options.dataset is not None and options.dataset not in registry.names:
        raise UsageError(
            f"There is no dataset `{options.dataset[:64]}`.", remedy="`kfm nodd datasets` lists them."
        )
    if by is None:
        return reconcile(
            upstream, registry.read, app.ledger.unit_reader(), options, found=found, progress=progress
        )
    context, store = NoddIngest(app).context(), app.writer
    result = reconcile(
        upstream,
        registry.read,
        store.units(),
        options,
        open_missing=opener(context, store.units()),
        found=found,
        progress=progress,
    )
    entry = governance_entry(
        "backfill",
        f"{options.provider}:{options.bucket}",
        store.now_ms(),
        by,
        dataset=options.dataset,
        listed=result.listed,
        missing=result.missing,
        changed=result.changed,
        opened=result.opened,
    )
    store.append_governance([entry])
    return result
