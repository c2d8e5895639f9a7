"""The facts of one run: all that the ledger has of it, read once for every document about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kfm.lineage.facets import dataset_name
from kfm.model.derived import InputPin
from kfm.model.errors import UsageError
from kfm.model.item_ids import item_id
from kfm.model.keys import refused_call_id
from kfm.model.records import (
    PROMOTED_TOGETHER,
    Found,
    GovernanceEntry,
    Invocation,
    Item,
    Promotion,
    Record,
    Run,
    Window,
    is_promotion_of,
)
from kfm.model.runs import Attempt, CallRetry, OutboxMessage

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.versions import Version

INVOCATIONS_MAX = 1000
ENTRIES_MAX = 1000
PROMOTIONS = (1, 100, 100_000)
TOPIC = "openlineage"
# Entries by which a person answers for what the rules alone would not have let pass.
APPROVALS = ("force", "correction", "governed-retry", "approval", "release")


class AttemptEvents(Record, frozen=True):
    """Facts that are in the events of one attempt and not in its row."""

    policies: str | None = None  # the bundle in force
    producer: str | None = None  # the version of kfm that did the work


class RunEvidence(Record, frozen=True):
    """One run and what belongs to it. Empty means that nothing of the kind was kept."""

    run: Run
    attempts: tuple[Attempt, ...] = ()
    retries: tuple[CallRetry, ...] = ()
    invocations: tuple[Invocation, ...] = ()  # oldest first
    messages: tuple[OutboxMessage, ...] = ()
    attempt_events: dict[str, AttemptEvents] = {}  # by lineage id
    policies: dict[str, dict[str, str] | None] = {}  # bundle → its texts, where they were kept
    inputs: tuple[Found, ...] = ()
    inputs_known: bool = False
    version: Version | None = None  # that the run ended with
    item: Item | None = None  # what the run contributed, or found as it stood
    promotion: Promotion | None = None  # by this run
    before: Promotion | None = None  # the one that it followed
    approvals: tuple[GovernanceEntry, ...] = ()
    pins: tuple[InputPin, ...] = ()  # versions of other datasets that it read

    @property
    def made_by(self) -> str | None:
        """The run whose work the item is."""
        if self.item is None:
            return None
        if isinstance(self.item.run_state, msgspec.UnsetType):
            return self.run.run_id if self.promotion is not None else None
        return self.item.run_state.run_id


def gather(
    ledger: LedgerReader,
    run_id: str,
    *,
    policies: str | None = None,
    producer: str | None = None,
    fetched: Sequence[Found] = (),
    version: Version | None = None,
) -> RunEvidence:
    """Read it all. What the engine knows at the end of an attempt may be given: it fills gaps only.

    `policies` and `producer` are those of the last attempt, `fetched` its inputs with their checksums,
    `version` is the one that it ended with, where it is at hand.
    """
    run = ledger.run(run_id)
    if run is None:
        raise UsageError(f"There is no run `{run_id}`.", remedy="`kfm runs` lists them.")
    attempts = tuple(ledger.attempts(run_id))
    messages = tuple(one for one in ledger.outbox_messages(run_id) if one.topic == TOPIC)
    events = [_decoded(message) for message in messages]
    attempt_events = _attempt_events(events)
    last = max((one.attempt for one in attempts), default=0)
    for one in attempts:
        of_one = attempt_events.get(one.lineage_id, AttemptEvents())
        if one.attempt == last:
            of_one = AttemptEvents(policies=of_one.policies or policies, producer=of_one.producer or producer)
        attempt_events[one.lineage_id] = of_one
    if version is None and run.version_id:
        version = ledger.version(run.version_id)
    promotion, before = _promotions(ledger, run) if run.version_id else (None, None)
    inputs, known = _inputs(ledger, run, attempts, events, fetched)
    entries = ledger.governance(subject=run_id, limit=ENTRIES_MAX)
    bundles = {one.policies for one in attempt_events.values() if one.policies} | _bundles(entries)
    return RunEvidence(
        run=run,
        attempts=attempts,
        retries=tuple(ledger.retries(run_id)),
        invocations=tuple(
            sorted(
                ledger.invocations(run_id=run_id, limit=INVOCATIONS_MAX),
                key=lambda call: (call.requested_at_ms, call.invocation_id),
            )
        ),
        messages=messages,
        attempt_events=_completed(attempt_events, attempts, entries),
        policies={bundle: ledger.policy_texts(bundle) for bundle in sorted(bundles)},
        inputs=inputs,
        inputs_known=known,
        pins=ledger.derived_reader().pins(run_id),
        version=version,
        item=_item(version, run),
        promotion=promotion,
        before=before,
        approvals=tuple(
            sorted(
                (entry for entry in entries if entry.kind in APPROVALS),
                key=lambda entry: (entry.recorded_at_ms, entry.kind),
            )
        ),
    )


class CallEvidence(Record, frozen=True):
    """An invocation that never became an attempt."""

    invocation: Invocation
    messages: tuple[OutboxMessage, ...] = ()
    attempt_events: AttemptEvents = AttemptEvents()
    policies: dict[str, dict[str, str] | None] = {}


def gather_call(
    ledger: LedgerReader, invocation_id: str, *, policies: str | None = None, producer: str | None = None
) -> CallEvidence:
    invocation = ledger.invocation(invocation_id)
    if invocation is None:
        raise UsageError(f"There is no call `{invocation_id}`.", remedy="`kfm show RUN` lists a run's calls.")
    messages = tuple(one for one in ledger.outbox_messages(invocation_id) if one.topic == TOPIC)
    known = _attempt_events([_decoded(message) for message in messages]).get(
        refused_call_id(invocation_id), AttemptEvents()
    )
    known = AttemptEvents(policies=known.policies or policies, producer=known.producer or producer)
    texts = {known.policies: ledger.policy_texts(known.policies)} if known.policies else {}
    return CallEvidence(invocation=invocation, messages=messages, attempt_events=known, policies=texts)


# --- facts from events -----------------------------------------------------------------


def _decoded(message: OutboxMessage) -> dict[str, Any]:
    try:
        event = msgspec.json.decode(message.body)
    except msgspec.DecodeError:
        return {}
    return event if isinstance(event, dict) else {}


def _attempt_events(events: Iterable[dict[str, Any]]) -> dict[str, AttemptEvents]:
    found: dict[str, AttemptEvents] = {}
    for event in events:
        run = event.get("run") or {}
        facets = run.get("facets") or {}
        before = found.get(run.get("runId", ""), AttemptEvents())
        found[run.get("runId", "")] = AttemptEvents(
            policies=(facets.get("kfmGates") or {}).get("policies") or before.policies,
            producer=(facets.get("processing_engine") or {}).get("version") or before.producer,
        )
    return found


def _bundles(entries: Iterable[GovernanceEntry]) -> set[str]:
    return {entry.details["policies"] for entry in entries if isinstance(entry.details.get("policies"), str)}


def _completed(
    attempt_events: dict[str, AttemptEvents], attempts: Sequence[Attempt], entries: Iterable[GovernanceEntry]
) -> dict[str, AttemptEvents]:
    """A node was judged by what its run's attempt was; a promotion by what its entry names."""
    whole = {one.attempt: one.lineage_id for one in attempts if not one.node}
    promoted = next(
        iter(_bundles(entry for entry in entries if entry.kind in ("promotion", PROMOTED_TOGETHER))), None
    )
    last = max(whole, default=0)
    done = dict(attempt_events)  # also of refused invocations
    for one in attempts:
        mine, its = (
            attempt_events.get(one.lineage_id, AttemptEvents()),
            attempt_events.get(whole.get(one.attempt, ""), AttemptEvents()),
        )
        of_promotion = promoted if one.attempt == last else None
        done[one.lineage_id] = AttemptEvents(
            policies=mine.policies or its.policies or of_promotion, producer=mine.producer or its.producer
        )
    return done


# --- inputs and outputs ------------------------------------------------------------------


def _inputs(
    ledger: LedgerReader,
    run: Run,
    attempts: Sequence[Attempt],
    events: Sequence[dict[str, Any]],
    fetched: Sequence[Found],
) -> tuple[tuple[Found, ...], bool]:
    """What the last attempt that got so far discovered, with checksums where its bytes were seen."""
    hashes = [run.fingerprint, *(one.inputs_hash for one in reversed(attempts))]
    for fingerprint in (one for one in hashes if one):
        found = ledger.inputs(fingerprint)
        if found is not None:
            break
    else:
        return tuple(fetched), bool(fetched)
    seen = {one.uri: one.checksum for one in fetched if one.checksum}
    checksums = _checksums(events)
    return tuple(
        one if one.checksum else replace(one, checksum=seen.get(one.uri) or _checksum_of(checksums, one.uri))
        for one in found
    ), True


def _checksum_of(checksums: dict[tuple[str, str], str | None], uri: str) -> str | None:
    """By events, which name files by whole paths; discovery names them by paths within the project."""
    namespace, name = dataset_name(uri)
    if namespace != "file" or name.startswith("/"):
        return checksums.get((namespace, name))
    found = {
        sum_ for (place, path), sum_ in checksums.items() if place == "file" and path.endswith(f"/{name}")
    }
    return found.pop() if len(found) == 1 else None


def _checksums(events: Iterable[dict[str, Any]]) -> dict[tuple[str, str], str | None]:
    """By name, as events give it; None where two contents bear one name."""
    checksums: dict[tuple[str, str], str | None] = {}
    for event in events:
        for dataset in event.get("inputs") or ():
            sha256 = ((dataset.get("facets") or {}).get("kfmContent") or {}).get("sha256")
            if not sha256:
                continue
            name = (dataset.get("namespace", ""), dataset.get("name", ""))
            checksum = f"sha256:{sha256}"
            checksums[name] = checksum if checksums.get(name, checksum) == checksum else None
    return checksums


def _item(version: Version | None, run: Run) -> Item | None:
    if version is None:
        return None
    window = Window(start_ms=run.window_start_ms, end_ms=run.window_end_ms, spec="")
    found = version.items(item_id(run.source_id, window, None))
    slot = (run.source_id, run.window_start_ms, run.window_end_ms, run.partition)
    return next(
        (
            item
            for item in found
            if (item.source_id, item.window_start_ms, item.window_end_ms, item.partition) == slot
        ),
        None,
    )


def _promotions(ledger: LedgerReader, run: Run) -> tuple[Promotion | None, Promotion | None]:
    """The run's promotion and the one before it; the newest are asked for most."""
    for limit in PROMOTIONS:
        found = ledger.promotions(run.dataset_id, limit=limit)
        for promotion in found:
            if is_promotion_of(promotion, run):
                return promotion, ledger.promotion(run.dataset_id, promotion.sequence - 1)
        if len(found) < limit:
            break
    return None, None
