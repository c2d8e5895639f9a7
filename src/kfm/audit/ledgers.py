"""The ledgers of an export: retries, promotions, reviews, unit history; masked for the public."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.audit.export_documents import (
    CareOf,
    ChainEnd,
    DatasetVersions,
    Extract,
    LoggedCallRetry,
    RetryLog,
    RunAttempt,
    TroubledRun,
    VersioningLedger,
    VersionRow,
)
from kfm.db.ledger_reader import every
from kfm.model.audit import SealedPage, entry_document, leaf, page_bytes
from kfm.model.canonical import canonical_bytes
from kfm.model.masked_names import MaskedNames
from kfm.model.records import GovernanceEntry, Run
from kfm.model.redaction import redact
from kfm.model.runs import Attempt, CallRetry, ChainLink
from kfm.model.settings import Rights, Settings
from kfm.model.times import rfc3339

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

PAGE_ROWS = 1000
CIRCUIT_OPEN = "circuit-open"
PROMOTIONS_MAX = 10_000_000
POSTMORTEM_KINDS = frozenset({"postmortem"})
REVIEW_KINDS = frozenset({"review", "halt-review", "halt"})
FILE = "unit-pages.jsonl"
WITHHELD_TAG = "withheld-page/1"
UNIT_PAGE_ROWS = 500


# --- what was tried again --------------------------------------------------------------


def retry_log(
    ledger: LedgerReader, curtain: Curtain, *, environment: str, internal: bool, chain: ChainEnd
) -> RetryLog:
    """Every run that did not succeed at the first try, or whose calls were tried again."""
    calls: dict[str, list[CallRetry]] = {}
    for retry in _all_retries(ledger):
        calls.setdefault(retry.run_id, []).append(retry)
    runs: dict[str, Run] = {}
    attempts: dict[str, list[Attempt]] = {}
    total = 0
    for attempt, run in _all_attempts(ledger):
        runs[run.run_id] = run
        total += attempt.node == ""
        attempts.setdefault(run.run_id, []).append(attempt)
        if attempt.node == "" and _is_calm(attempts[run.run_id]) and run.run_id not in calls:
            attempts[run.run_id] = attempts[run.run_id][:1]
    troubled = [
        _troubled(run, attempts[run_id], calls.get(run_id, []), curtain)
        for run_id, run in runs.items()
        if run_id in calls or not _is_calm(attempts[run_id])
    ]
    return RetryLog(
        environment=environment,
        internal=internal,
        chain=chain,
        runs_total=len(runs),
        attempts_total=total,
        call_retries_total=sum(map(len, calls.values())),
        runs=tuple(troubled),
    )


def _is_calm(attempts: Iterable[Attempt]) -> bool:
    return all(one.attempt == 1 and one.ending in (None, "complete") for one in attempts)


def _troubled(run: Run, attempts: list[Attempt], calls: list[CallRetry], curtain: Curtain) -> TroubledRun:
    classes = {one.error_class for one in attempts} | {one.error_class for one in calls}
    return TroubledRun(
        run_id=run.run_id,
        dataset_id=curtain.name(run.dataset_id),
        source_id=curtain.name(run.dataset_id, run.source_id),
        pipeline_id=curtain.name(run.dataset_id, run.pipeline_id),
        care=curtain.care(run.dataset_id),
        masked=curtain.hides(run.dataset_id),
        status=run.status,
        error_classes=tuple(sorted(one for one in classes if one)),
        attempts=tuple(
            _attempt(one, [call for call in calls if call.attempt == one.attempt])
            for one in attempts
            if one.node == ""
        ),
    )


def _attempt(one: Attempt, calls: list[CallRetry]) -> RunAttempt:
    return RunAttempt(
        attempt=one.attempt,
        started_at=rfc3339(one.started_at_ms),
        ended_at=None if one.ended_at_ms is None else rfc3339(one.ended_at_ms),
        delay_ms=one.delay_ms,
        ending=one.ending,
        error_code=one.error_code,
        error_class=one.error_class,
        retryable=one.retryable,
        circuit_open=one.error_class == CIRCUIT_OPEN or any(call.circuit_open for call in calls),
        calls=tuple(
            LoggedCallRetry(
                node=call.node,
                call=call.call,
                number=call.number,
                delay_ms=call.delay_ms,
                error_class=call.error_class,
                retryable=call.retryable,
                outcome=call.outcome,
                circuit_open=call.circuit_open,
                at=rfc3339(call.at_ms),
            )
            for call in calls
        ),
    )


def _all_attempts(ledger: LedgerReader) -> Iterator[tuple[Attempt, Run]]:
    return ((attempt, run) for _, attempt, run in every(ledger.attempts_since))


def _all_retries(ledger: LedgerReader) -> Iterator[CallRetry]:
    return (retry for _, retry in every(ledger.retries_since))


# --- what was promoted -----------------------------------------------------------------


def versioning_ledger(
    ledger: LedgerReader,
    curtain: Curtain,
    promoted: dict[tuple[str, str], int],
    *,
    environment: str,
    internal: bool,
    chain: ChainEnd,
) -> VersioningLedger:
    """Every version of every dataset; `promoted` leads from (run, version) to the chain's row.

    One that was promoted since the chain was read is left out with its row. One without any row was not made
    by kfm: it is told, for a reader to see.
    """
    found = []
    for head in ledger.heads():
        rights = curtain.rights(head.dataset_id)
        known = [
            one
            for one in reversed(ledger.promotions(head.dataset_id, limit=PROMOTIONS_MAX))
            if (one.run_id, one.version_id) in promoted
            or not ledger.governance(kind="promotion", subject=one.run_id, limit=1)
        ]
        versions = [
            VersionRow(
                sequence=one.sequence,
                version_id=one.version_id,
                run_id=one.run_id,
                policy_epoch=one.policy_epoch,
                promoted_at=rfc3339(one.promoted_at_ms),
                governance_entry=promoted.get((one.run_id, one.version_id)),
                **_effort(ledger, one.run_id),
            )
            for one in known
        ]
        if not versions:
            continue
        found.append(
            DatasetVersions(
                dataset_id=curtain.name(head.dataset_id),
                care=curtain.care(head.dataset_id),
                masked=curtain.hides(head.dataset_id),
                license=rights.license if rights is not None else None,
                versions=tuple(versions),
            )
        )
    return VersioningLedger(
        environment=environment,
        internal=internal,
        chain=chain,
        # By the name that is shown: the order of the ids would tell about the hidden ones.
        datasets=tuple(sorted(found, key=lambda one: one.dataset_id)),
    )


def _effort(ledger: LedgerReader, run_id: str) -> dict[str, Any]:
    """How often a promoted run had been tried, and with which errors."""
    run = ledger.run(run_id)
    if run is None:
        return {"attempts": None, "error_classes": ()}
    if run.attempts == 1:
        return {"attempts": 1, "error_classes": ()}
    failed = {one.error_class for one in ledger.attempts(run_id) if one.node == "" and one.error_class}
    return {"attempts": run.attempts, "error_classes": tuple(sorted(failed))}


# --- what was reviewed -----------------------------------------------------------------


def extract(one: ChainLink, curtain: Curtain) -> Extract:
    entry, dataset_id = one.entry, curtain.dataset_of(one.entry)
    withheld = curtain.withholds(entry)
    shown = {} if withheld else {
        "subject": entry.subject,
        "actor": entry.actor,
        "rationale": entry.rationale,
        "ticket": entry.ticket,
        "details": entry.details,
    }  # fmt: skip
    return Extract(
        number=one.number,
        hash=one.hash,
        kind=entry.kind,
        recorded_at=rfc3339(entry.recorded_at_ms),
        dataset_id=None if dataset_id is None else curtain.name(dataset_id),
        care=CareOf(label=None, level=None) if dataset_id is None else curtain.care(dataset_id),
        withheld=withheld,
        **shown,  # type: ignore[arg-type]
    )


def page_lines(ledger: LedgerReader, settings: Settings, *, internal: bool) -> Iterator[bytes]:
    """Every page; of one that tells of a masked dataset only its hash, unless the export is internal."""
    reader, at = ledger.unit_reader(), 1
    hidden = set() if internal else _hidden(ledger, settings)
    while pages := reader.pages_between(at, 2**62, UNIT_PAGE_ROWS):
        for page in pages:
            yield _line(page, withhold=bool(hidden) and _tells_of(ledger, page, hidden))
        at = pages[-1].number + 1


def _line(page: SealedPage, *, withhold: bool) -> bytes:
    if not withhold:
        return page_bytes(page) + b"\n"
    return canonical_bytes({"kfm": WITHHELD_TAG, "number": page.number, "leaf": leaf(page).hex()}) + b"\n"


def _hidden(ledger: LedgerReader, settings: Settings) -> set[str]:
    """Masked datasets that have units at all."""
    names = MaskedNames(settings, ledger)
    return {dataset for dataset, *_ in ledger.unit_figures() if names.hides_units(dataset)}


def _tells_of(ledger: LedgerReader, page: SealedPage, hidden: set[str]) -> bool:
    reader = ledger.unit_reader()
    units = (reader.unit(member[0]) for member in msgspec.json.decode(page.members))
    return any(unit is None or unit.dataset in hidden for unit in units)


class Curtain:
    """Hides datasets whose people have not agreed to be seen; an internal export hides nothing."""

    def __init__(self, settings: Settings, ledger: LedgerReader, *, internal: bool) -> None:
        self._ledger = ledger
        self._internal = internal
        self._datasets = {dataset.id: dataset for dataset in settings.datasets}
        self._names = MaskedNames(settings, ledger)

    def rights(self, dataset_id: str) -> Rights | None:
        if dataset_id in self._datasets:
            return self._datasets[dataset_id].rights
        head = self._ledger.head(dataset_id)
        return head[1].header.rights if head else None

    def hides(self, dataset_id: str) -> bool:
        return not self._internal and self._names.hides(dataset_id)

    def name(self, dataset_id: str, text: str | None = None) -> str:
        """A dataset's id, or another name that belongs to it, as it may be shown."""
        text = dataset_id if text is None else text
        return self._names.mask(text) if self.hides(dataset_id) else text

    def care(self, dataset_id: str) -> CareOf:
        rights = self.rights(dataset_id)
        if rights is None:
            return CareOf(label=None, level=None)
        return CareOf(label=None if self.hides(dataset_id) else rights.care.label, level=rights.care.level)

    # --- entries ---------------------------------------------------------------------

    def dataset_of(self, entry: GovernanceEntry) -> str | None:
        """The dataset that an entry is about, if it is about one."""
        named = entry.details.get("dataset_id")
        if isinstance(named, str):
            return named
        if entry.subject.startswith("dataset:"):
            return entry.subject.removeprefix("dataset:")
        run = self._ledger.run(entry.subject)
        return run.dataset_id if run is not None else None

    def withholds(self, entry: GovernanceEntry) -> bool:
        """Must it be left out? Its place in the chain remains."""
        if self._internal:
            return False
        dataset_id = self.dataset_of(entry)
        if dataset_id is not None and self.hides(dataset_id):
            return True
        for text in _texts(entry_document(entry)):
            if self._names.tells(text):
                return True
            if redact(text) != text:  # something in it has the shape of a secret
                return True
        return False


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield key
            yield from _texts(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _texts(child)
