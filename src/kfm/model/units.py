"""Units of the write-ahead ledger: ids, transitions, intake batches, claims, history."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, get_args
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from kfm.model.canonical import canonical_bytes
from kfm.model.catalogue import CatalogueEntry
from kfm.model.contracts import check_transition
from kfm.model.errors import IllegalTransition, RationaleRequired, UsageError
from kfm.model.quarantine import QuarantineEntry
from kfm.model.records import Record, Unit, UnitStatus
from kfm.model.times import MS_MIN, holds

Reissue = Literal["update", "ignore"]
Removing = Literal["keep", "remove"]


class Content(Record, frozen=True, gc=False):
    """Which bytes an object has, by its announcement, a listing or a HEAD. All may be unknown."""

    etag: str | None = None
    sequencer: str | None = None  # orders the versions of one key
    size: int | None = None
    version_id: str | None = None


UNKNOWN = Content()


class StoredUnit(Record, frozen=True):
    """A unit as the ledger stores it: its record, and the columns beside it."""

    unit: Unit
    etag: str | None
    sequencer: str | None
    size: int | None
    version_id: str | None
    content_version: int  # counts the different bytes that were announced under its key
    done_version: int  # the last that succeeded; 0: none
    lease_until_ms: int
    not_before_ms: int
    grants: int  # of this content version
    grant_attempts: int
    granted_at_ms: int  # when the grant's first attempt began
    alone: int
    removed: int
    unclear: int
    replacing: int
    trail: str  # numbers of its history's pages
    removal_sequencer: str | None = None  # of the newest removal, of the object or of one of its versions
    removal_version_id: str | None = None  # of the delete marker that it ends with

    @property
    def content(self) -> Content:
        return Content(etag=self.etag, sequencer=self.sequencer, size=self.size, version_id=self.version_id)

    @property
    def is_tombstone(self) -> bool:
        """Its object's removal is known, and nothing else of it."""
        return bool(self.removed) and self.content == UNKNOWN


class KnownContent(Record, frozen=True):
    """The content that the ledger has recorded for a unit. Field order is column order."""

    wal_id: str
    status: str
    etag: str | None
    size: int | None
    removed: int


# --- intake --------------------------------------------------------------------------


class IntakeUnit(Record, frozen=True, gc=False):
    """An announced object as a unit to insert."""

    unit: Unit
    content: Content
    reissue: Reissue = "update"  # what becomes of new bytes under a known key


class IntakeRemoval(Record, frozen=True):
    """An announced removal."""

    wal_id: str
    sequencer: str | None
    event_time_ms: int | None
    removing: Removing = "keep"
    unit: Unit | None = None  # kept as a tombstone where the object was never announced: that may still come
    version_id: str | None = None  # of the delete marker, or of the version that was deleted
    of_version: bool = False  # this version was deleted, whatever others there are


class RejectedRecord(Record, frozen=True):
    """A record of a message that is refused: a dead letter."""

    envelope_hash: str  # sha256:HEX of the message's body
    index: int  # which record of the message; 0 for the message as a whole
    queue: str
    error_code: str
    error: str
    body: str | None = None  # with escapes for what is no UTF-8; None: it was too large


class IntakeBatch(Record, frozen=True):
    """The content of some queue messages: made durable in one transaction, then acknowledged."""

    arrivals: tuple[IntakeUnit, ...] = ()
    removals: tuple[IntakeRemoval, ...] = ()
    rejected: tuple[RejectedRecord, ...] = ()


class IntakeReport(Record, frozen=True):
    """How many records of an intake batch had which outcome."""

    created: int = 0
    duplicate: int = 0
    reissued: int = 0
    stale: int = 0  # older than what is known
    reissues_ignored: int = 0  # newer than what is known; the policy leaves that as it is
    removed: int = 0
    dead: int = 0


# --- work ----------------------------------------------------------------------------


class Lane(Record, frozen=True):
    """Units of one dataset and provider, claimed together. Possible poison is claimed unit by unit."""

    dataset: str
    provider: str
    alone: int = 0
    due_ms: int = 0  # of the first unit in it; nothing is looked for there before


class ClaimedUnit(Record, frozen=True, gc=False):
    """A unit under the lease of a worker: the columns that inspection needs. Field order is column order."""

    wal_id: str
    version: int  # the fence
    dataset: str
    provider: str
    queue: str
    object_uri: str
    event_time_ms: int | None
    attempts: int
    replay_reason: str | None
    extra: str  # canonical JSON, as stored
    etag: str | None
    sequencer: str | None
    size: int | None
    version_id: str | None
    content_version: int
    done_version: int  # the last content version that succeeded; 0: none
    grants: int
    grant_attempts: int  # this one included
    granted_at_ms: int  # when the grant's first attempt began
    alone: int  # 1: claimed by itself, since its last batch did not come back
    removed: int  # 1: its object is gone, as far as is known; 2: and its item is to go with it
    unclear: int  # 1: which of two versions is newer is not known; a HEAD decides
    replacing: int  # 1: an approved repair, whose outcome may differ from the one before
    claimed_at_ms: int = 0

    @property
    def content(self) -> Content:
        return Content(etag=self.etag, sequencer=self.sequencer, size=self.size, version_id=self.version_id)

    @property
    def is_identified(self) -> bool:
        """Its announcement says of which bytes it speaks."""
        return self.etag is not None or self.version_id is not None


class UnitSuccess(Record, frozen=True, gc=False):
    """The result of a unit that succeeded: the findings of its inspection, and its catalogue entry."""

    claimed: ClaimedUnit
    integrity_status: str
    metadata_status: str
    provenance_status: str
    entry: CatalogueEntry | None  # None: its object is gone, and so is its item
    extra: str | None = None  # None: unchanged
    content: Content | None = None  # from a HEAD, where the announcement was wrong or silent
    sha256: str | None = None  # in hex, where all bytes were read
    gone: int = 0  # as `ClaimedUnit.removed`: a HEAD was to decide, and there is no such object


class UnitFailure(Record, frozen=True):
    """The result of a unit that failed, and what was decided about it."""

    claimed: ClaimedUnit
    error_code: str
    error_message: str  # redacted
    error_class: str
    fate: Literal["retry", "spent", "quarantine"]
    reason: str
    not_before_ms: int | None = None  # of the next attempt, where there is one
    charged: bool = True  # False: an open circuit refused it, or it was put back untried
    extra: str | None = None
    integrity_status: str = "unknown"
    metadata_status: str = "unknown"
    held: QuarantineEntry | None = None


class ResultBatch(Record, frozen=True):
    """Results of claimed units: their effects and final statuses are one transaction."""

    successes: tuple[UnitSuccess, ...] = ()
    failures: tuple[UnitFailure, ...] = ()
    policy_epoch: int | None = None  # that the gates were asked at; None: whatever it is
    replicas: tuple[str, ...] = ()  # external catalogues that follow ours
    downstream: tuple[tuple[str, str], ...] = ()  # (dataset, source that follows it)
    lineage: bool = True  # write outbox messages about the results


class ClaimRequest(Record, frozen=True):
    """Which units a worker claims next, and how many of them."""

    lane: Lane
    limit: int
    worker_id: str
    ingest_run_id: str
    lease_ms: int
    policy_epoch: int | None = None  # that the gates were asked at; None: whatever it is


class ResultReport(Record, frozen=True):
    """Which results were recorded. A lost unit was claimed by another worker meanwhile; it had no effects."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    epoch_moved: bool = False  # nothing was recorded: ask the gates again


class ExchangeReport(Record, frozen=True):
    """What one transaction recorded, inserted and claimed."""

    results: ResultReport = ResultReport()
    claimed: tuple[ClaimedUnit, ...] = ()
    waited: int = 0  # how many of the claimed had been inserted before
    created: int = 0
    skipped: tuple[IntakeUnit, ...] = ()  # not inserted: known before, or the epoch had moved


class HistoryPage(Record, frozen=True):
    """One leaf of the history: the same transition of one or many units, in one transaction."""

    number: int
    event: str
    status: str
    at_ms: int
    worker_id: str | None
    members: tuple[tuple[Any, ...], ...]  # wal_id, version, attempts, then what the event tells


class UnitTransition(Record, frozen=True):
    """One transition of one unit, from its history."""

    version: int
    status: str
    event: str
    at_ms: int
    worker_id: str | None
    attempts: int
    details: dict[str, Any]


# What became of an object: `there` once it succeeded, whatever happened to it since.
Standing = Literal["there", "running", "waiting", "retrying", "failed", "quarantined"]
STANDINGS: tuple[Standing, ...] = get_args(Standing)
AFTER_ALL_IDS = "~"


class UnitFilter(Record, frozen=True):
    """Which units are asked for. What is empty asks for nothing."""

    dataset: str = ""
    status: str = ""
    error_code: str = ""
    since_ms: int = 0  # changed since
    before: str = AFTER_ALL_IDS  # the id of the last one of the page before
    limit: int = 100
    # Of data time in one dataset; of all datasets, of the time that they cover.
    start_ms: int | None = None
    end_ms: int | None = None
    product: str = ""  # in a dataset
    platform: str = ""  # of a product
    standing: str = ""  # of a product's objects; `waiting` and `retrying` also of all that wait

    @property
    def is_of_product(self) -> bool:
        return bool(self.product or self.platform or self.standing)


def data_time_ms(unit: Unit) -> int | None:
    """The time that feeds count an object by: the cycle of a model, else the start of what it covers."""
    cycle_ms = unit.extra.get("reference_time_ms")
    return cycle_ms if isinstance(cycle_ms, int) else unit.time_range_start_ms


def first_id(start_ms: int) -> str:
    """The id before those of all units that cover this time or a later one."""
    return f"{max(min(start_ms - MS_MIN, _TIME_MAX), 0):013x}"


class UnitCause(Record, frozen=True):
    """Units of one dataset that failed, were quarantined or wait for another attempt after one error. Field
    order is column order."""

    dataset: str
    standing: str  # failed, quarantined, retrying
    error_code: str | None
    count: int
    first_ms: int  # the longest without a change
    last_ms: int
    message: str | None  # of one of them
    example: str  # the newest of them
    due_ms: int | None  # the next attempt at one of them

    @property
    def heals(self) -> bool:
        """Is it tried again by itself?"""
        return self.standing == "retrying"


class DeadCause(Record, frozen=True):
    """Dead messages of one queue with one error, not released yet. Field order is column order."""

    error_code: str
    queue: str
    count: int
    times: int
    first_ms: int
    last_ms: int


class FlowHour(Record, frozen=True):
    """How many objects were taken in in an hour, and came to their end in another; None: not yet."""

    taken_in_ms: int
    ended_ms: int | None
    count: int


class DeadMessage(Record, frozen=True):
    """A record of a message that was not taken in. Field order is column order."""

    envelope_hash: str
    record_index: int
    queue: str
    error_code: str
    error: str
    times: int  # how often it came
    first_at_ms: int
    last_at_ms: int
    state: str
    body: str | None = None


SCHEMES = {"aws": "s3", "azure": "az", "gcp": "gs"}  # provider → scheme
PROVIDERS = {scheme: provider for provider, scheme in SCHEMES.items()}
PROVIDER_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,28}[a-z0-9])?\Z")
_OTHERS = "s3+"  # before the name of a provider that the configuration adds: its buckets speak S3


def scheme_of(provider: str) -> str:
    """The scheme of a provider's addresses: `s3+ceph` for one that is called ceph."""
    return SCHEMES.get(provider) or _OTHERS + provider


def provider_of(scheme: str) -> str | None:
    """Whose addresses have this scheme; None: those of no provider."""
    if scheme.startswith(_OTHERS):
        name = scheme.removeprefix(_OTHERS)
        return name if PROVIDER_NAME.match(name) else None
    return PROVIDERS.get(scheme)


WAL_TAG = "wal/1"
URI_CHARS_MAX = 4096
_TIME_MAX = 16**13 - 1

_S3_HOST = re.compile(
    r"(?:(?P<bucket>[a-z0-9][a-z0-9._-]{1,254})\.)?"
    r"s3(?:-accelerate|-fips|-website)?(?:\.dualstack)?(?:[.-](?P<region>[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?\Z"
)
_GCS_HOST = re.compile(
    r"(?:(?P<bucket>[a-z0-9][a-z0-9._-]{1,221})\.)?storage\.(?:googleapis|cloud\.google)\.com\Z"
)
_AZURE_HOST = re.compile(r"(?P<account>[a-z0-9]{3,24})\.(?:blob|dfs)\.core\.windows\.net\Z")
_PLAIN = re.compile(r"(?:s3(?:\+[a-z0-9-]+)?|gs|az)://[A-Za-z0-9_.-]+/[A-Za-z0-9_.=+/-]+\Z")
_BUCKET_SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "az": "az"}


def wal_id(dataset: str, object_uri: str, start_ms: int | None) -> str:
    """13 hex digits of time, so that neighbours in time are neighbours on disk, and 20 of a hash.

    An underivable time counts as zero. The time must come from the dataset's
    frozen function: another time is another unit.
    """
    time_ms = _since_year_one(start_ms)
    document = _document(dataset, canonical_object_uri(object_uri))
    return f"{time_ms:013x}-{sha256(document).hexdigest()[:20]}"


def is_plain(object_uri: str) -> bool:
    """Is an address its own canonical form, and written in JSON as it is? Almost all are."""
    return _PLAIN.match(object_uri) is not None and len(object_uri) <= URI_CHARS_MAX


def plain_wal_id(dataset: str, object_uri: str, start_ms: int | None) -> str:
    """`wal_id` of an address that is plain, at less cost."""
    document = b'%b%b"}' % (_document_head(dataset), object_uri.encode("ascii"))
    return f"{_since_year_one(start_ms):013x}-{sha256(document).hexdigest()[:20]}"


def _since_year_one(start_ms: int | None) -> int:
    since_year_one_ms = 0 if start_ms is None else start_ms - MS_MIN
    if not 0 <= since_year_one_ms <= _TIME_MAX:
        raise UsageError(f"{start_ms} ms is before the year 0001 or too far ahead for an id.")
    return since_year_one_ms


def _document(dataset: str, canonical_uri: str) -> bytes:
    return canonical_bytes({"kfm": WAL_TAG, "dataset": dataset, "object_uri": canonical_uri})


@lru_cache(maxsize=256)  # there are some dozens of datasets
def _document_head(dataset: str) -> bytes:
    """The document's bytes up to its address, which comes last."""
    return _document(dataset, "").removesuffix(b'"}')


def canonical_object_uri(uri: str) -> str:
    """Scheme, bucket and decoded key; no query, no fragment, no region, no credentials.

    All the ways to write an S3 address become `s3://bucket/key`, Google's
    `gs://bucket/key`, Azure's `az://account/container/key`. Percent escapes are
    decoded once; a key that holds a plain % keeps it.
    """
    if not uri or len(uri) > URI_CHARS_MAX:
        raise UsageError(f"An object's URI has 1 to {URI_CHARS_MAX} characters.")
    scheme, separator, rest = uri.partition("://")
    scheme = scheme.lower()
    if not separator:
        raise UsageError(f"{uri[:128]!r} is not a URI.")
    if scheme in _BUCKET_SCHEMES or provider_of(scheme) is not None:
        # Taken apart by hand: an object's key may hold anything, also what a URL parser would drop or refuse.
        bucket, _, key = _without_query(rest).partition("/")
        return _joined(_BUCKET_SCHEMES.get(scheme, scheme), bucket, key, uri)
    if scheme in ("abfs", "abfss"):
        authority, _, key = _without_query(rest).partition("/")
        container, _, host = authority.partition("@")
        account = _AZURE_HOST.match(host.lower())
        if account is None:
            raise UsageError(f"{uri[:128]!r} names no storage account.")
        return _joined("az", account["account"], f"{container}/{key}", uri)
    if scheme in ("http", "https"):
        return _from_http(scheme, uri)
    if scheme == "file":
        return "file://" + unquote(_without_query(rest))
    raise UsageError(f"{uri[:128]!r} has a scheme that names no object: {scheme}.")


def _from_http(scheme: str, uri: str) -> str:
    try:
        parts = urlsplit(uri)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise UsageError(f"{uri[:128]!r} is not a URI.") from None
    path = parts.path.removeprefix("/")
    for target, pattern in (("s3", _S3_HOST), ("gs", _GCS_HOST)):
        match = pattern.match(host)
        if match is not None:
            bucket = match["bucket"]
            if bucket is None:
                bucket, _, path = path.partition("/")
            return _joined(target, bucket, path, uri)
    azure = _AZURE_HOST.match(host)
    if azure is not None:
        return _joined("az", azure["account"], path, uri)
    if not host:
        raise UsageError(f"{uri[:128]!r} names no host.")
    default = {"http": 80, "https": 443}[scheme]
    where = host if port in (None, default) else f"{host}:{port}"
    return f"{scheme}://{where}/{unquote(path)}"


def _joined(scheme: str, bucket: str, key: str, uri: str) -> str:
    if not bucket or not key:
        raise UsageError(f"{uri[:128]!r} names no bucket, or no key in it.")
    return f"{scheme}://{unquote(bucket)}/{unquote(key)}"


def _without_query(text: str) -> str:
    return text.partition("?")[0].partition("#")[0]


Verdict = Literal["duplicate", "stale", "newer", "overtaken", "unclear"]
RemovalVerdict = Literal["stale", "gone", "unclear"]


def newer(sequencer: str | None, other: str | None) -> bool | None:
    """Is the first sequencer of a key after the second? None if they can't be compared."""
    if not sequencer or not other:
        return None
    width = max(len(sequencer), len(other))
    first, second = (text.upper().ljust(width, "0") for text in (sequencer, other))
    return first > second


def newest(sequencer: str | None, other: str | None) -> str | None:
    """The later one of two; of one that is known, that."""
    return sequencer if other is None or newer(sequencer, other) else other


def compare(seen: StoredUnit, announced: Content) -> Verdict:
    """What an announcement means for a unit whose object is known.

    Equal bytes are a duplicate, whichever is newer; after a removal even those are news. `overtaken`: newer
    than the known bytes, but the object's removal is newer still. `unclear`: only a HEAD can tell what is
    there now. Announcements and removals are each compared with their own kind first, so that their order of
    arrival does not matter.
    """
    known = seen.content
    same = known.etag == announced.etag and (known.etag is not None or known.size == announced.size)
    if same and not seen.removed:
        return "duplicate"
    order = newer(announced.sequencer, known.sequencer)
    if order is False:
        return "duplicate" if known.sequencer == announced.sequencer else "stale"
    if order is None and not seen.is_tombstone:
        return "unclear"
    after = newer(announced.sequencer, seen.removal_sequencer)
    if after is None:
        return "unclear" if seen.removed else "newer"
    if after:
        return "newer"
    # Among versions the removal may be of another one, or of a delete marker: that is not in its sequencer.
    return "unclear" if announced.version_id is not None or not seen.removed else "overtaken"


def compare_removal(seen: StoredUnit, gone: IntakeRemoval) -> RemovalVerdict:
    """What a removal means for a unit. `stale`: its object is as it was; `unclear`: a HEAD has to tell."""
    if newer(
        seen.sequencer, gone.sequencer
    ):  # of equal ones it is gone: Google's name the generation removed
        return "stale"
    told = gone.sequencer is not None and gone.sequencer == seen.removal_sequencer
    if gone.of_version:
        if told or seen.is_tombstone:
            return "stale"
        present = seen.removal_version_id if seen.removed else seen.version_id
        return "unclear" if present in (None, gone.version_id) else "stale"
    if seen.removed or (gone.sequencer and seen.sequencer):
        # A delete marker that came late may have been deleted itself since.
        late = gone.version_id is not None and not told and newer(seen.removal_sequencer, gone.sequencer)
        return "unclear" if late and not seen.removed else "gone"
    if gone.event_time_ms is not None and gone.event_time_ms < (seen.unit.event_time_ms or MS_MIN):
        return "stale"
    return "gone" if gone.sequencer or gone.removing == "keep" else "unclear"


LEASE_EXPIRED = "LEASE_EXPIRED"
BY_HAND = "BY_HAND"  # quarantined by a person's decision


def holds_lease(lease_until_ms: int, claimed_at_ms: int, now_ms: int) -> bool:
    """Does a claim still exclude others, by its own length?"""
    return holds(lease_until_ms, now_ms, lease_until_ms - claimed_at_ms)


_FIELDS = frozenset(Unit.__struct_fields__)


def created(
    *,
    wal_id: str,
    dataset: str,
    object_uri: str,
    provider: str,
    queue: str,
    event_time_ms: int | None,
    time_range_start_ms: int | None,
    time_range_end_ms: int | None,
    now_ms: int,
    extra: dict[str, Any] | None = None,
    replay_reason: str | None = None,
) -> Unit:
    check_transition("unit", None, "pending", "created")
    extra = extra or {}
    if not _FIELDS.isdisjoint(extra):
        shadowed = sorted(_FIELDS.intersection(extra))
        raise IllegalTransition(
            f"unit {wal_id}: extra fields shadow the record's own: {', '.join(shadowed)}."
        )
    return Unit(
        wal_id=wal_id,
        dataset=dataset,
        object_uri=object_uri,
        provider=provider,
        queue=queue,
        event_time_ms=event_time_ms,
        time_range_start_ms=time_range_start_ms,
        time_range_end_ms=time_range_end_ms,
        status="pending",
        attempts=0,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        version=1,
        replay_reason=replay_reason,
        extra=extra,
    )


def unit_failed(unit: Unit, *, error_code: str, error_message: str, now_ms: int) -> Unit:
    """The message is stored as given: redact it first."""
    return _moved(
        unit, "failed", "failed", now_ms, last_error_code=error_code, last_error_message=error_message
    )


def lease_lapsed(unit: Unit, *, now_ms: int) -> Unit:
    return unit_failed(unit, error_code=LEASE_EXPIRED, error_message="The lease lapsed.", now_ms=now_ms)


def retry_scheduled(unit: Unit, *, now_ms: int) -> Unit:
    return _reopened(unit, "retry_scheduled", now_ms, replay_reason=unit.replay_reason)


def replayed(unit: Unit, *, reason: str, now_ms: int) -> Unit:
    if not reason:
        raise RationaleRequired(f"A replay of unit {unit.wal_id} needs a reason code.")
    return _reopened(unit, "replayed", now_ms, replay_reason=reason)


def migrated(unit: Unit, *, reason: str, approval: str, now_ms: int) -> Unit:
    """The one way back from succeeded and quarantined. `approval` names the recorded approval."""
    if not (reason and approval):
        raise RationaleRequired(f"A migration of unit {unit.wal_id} needs a reason and an approval.")
    return _reopened(unit, "migrated", now_ms, replay_reason=reason)


def quarantined(unit: Unit, *, error_code: str, error_message: str, now_ms: int) -> Unit:
    """From pending or failed: in progress it fails first."""
    return _moved(
        unit,
        "quarantined",
        "quarantined",
        now_ms,
        last_error_code=error_code,
        last_error_message=error_message,
        worker_id=None,
    )


def _reopened(unit: Unit, event: str, now_ms: int, *, replay_reason: str | None) -> Unit:
    return _moved(
        unit,
        "pending",
        event,
        now_ms,
        attempts=unit.attempts + 1,
        worker_id=None,
        replay_reason=replay_reason,
    )


def _moved(unit: Unit, status: UnitStatus, event: str, now_ms: int, **changes: Any) -> Unit:
    check_transition("unit", unit.status, status, event)
    return replace(unit, status=status, version=unit.version + 1, updated_at_ms=now_ms, **changes)


class Version(Record, frozen=True):
    """The bytes of an object, as they were announced."""

    number: int
    etag: str | None = None
    size: int | None = None


FIRST = Version(1)


class UnitAttempt(Record, frozen=True):
    """One attempt at a unit."""

    attempt: int
    started_at_ms: int
    looked_at: Version
    worker_id: str | None = None
    ended_at_ms: int | None = None  # None: under way
    error_code: str | None = None
    error_class: str | None = None
    stac_status: str | None = None
    sha256: str | None = None  # of the bytes, where it read them all


def catalogued(move: UnitTransition) -> str | None:
    """What became of the item. Most are new, so the history only says so where one is not."""
    return str(move.details.get("stac_status", "created")) if move.event == "succeeded" else None


def tries(history: Sequence[UnitTransition], first: Version = FIRST) -> list[UnitAttempt]:
    """In their order. One that was put back untried is no attempt: the next claim takes its number."""
    made: dict[int, UnitAttempt] = {}
    version, under_way = first, None
    for move, following in zip(history, [*history[1:], None], strict=True):
        version = _announced(version, move)
        if move.event == "claimed":
            under_way = UnitAttempt(move.attempts, move.at_ms, version, move.worker_id)
            made[move.attempts] = under_way
        elif move.status in ("succeeded", "failed") and under_way is not None and move.event == move.status:
            if (
                following is not None
                and following.status == "pending"
                and following.attempts == move.attempts
            ):
                del made[under_way.attempt]
            else:
                made[under_way.attempt] = replace(
                    under_way,
                    ended_at_ms=max(move.at_ms, under_way.started_at_ms),
                    error_code=move.details.get("error_code"),
                    error_class=move.details.get("error_class"),
                    stac_status=catalogued(move),
                    sha256=move.details.get("sha256"),
                )
            under_way = None
    return [made[number] for number in sorted(made)]


def versions(history: Iterable[UnitTransition], first: Version = FIRST) -> list[Version]:
    """The different bytes that were announced. `first`: what is known where the history begins."""
    found: list[Version] = []
    version = first
    for move in history:
        seen = _announced(version, move)
        if seen != version or not found:
            found = [one for one in found if one.number != seen.number]
            found.append(seen)
        version = seen
    return found


def _announced(version: Version, move: UnitTransition) -> Version:
    details = move.details
    if move.event in ("stale", "ignored"):
        return version
    number = details.get("content_version", version.number)
    if "etag" not in details:
        return replace(version, number=number)
    return Version(number, details["etag"], details.get("size"))


def replay_command(wal_id: str, status: str) -> str:
    """Asks for exactly this unit. From quarantine a unit comes back only by an approved repair."""
    mode = "failed-only" if status == "failed" else "repair-and-replace"
    return f"kfm replay run --unit {wal_id} --mode {mode} --reason incident --rationale TEXT"


TOPIC = "unit-lineage"


class Ended(Record, frozen=True, gc=False, omit_defaults=True):
    """One attempt that ended. With an error it failed."""

    wal_id: str
    attempt: int
    dataset: str
    object_uri: str
    etag: str | None = None
    size: int | None = None
    version_id: str | None = None
    sequencer: str | None = None
    content_version: int = 1
    event_time_ms: int | None = None
    collection_id: str | None = None
    item_id: str | None = None
    stac_status: str | None = None
    replay_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    started_at_ms: int | None = None
    sha256: str | None = None
