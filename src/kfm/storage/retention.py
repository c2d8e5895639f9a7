"""Retention: a preview of what would go, and the passes that take it away beside running work.

A pass goes from kind to kind, the oldest first, in batches. Each is one short transaction that looks at the
fence, takes rows away, tells the audit chain and moves a mark: a process that is killed leaves whole
batches, and the next one goes on from the mark. Histories are sealed before, and checked against their seals.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from kfm.db.retention import Mark, RetentionReader
from kfm.model.audit import UNITS, Seal, SealedPage, leaf
from kfm.model.audit import Row as SealedRow
from kfm.model.errors import ChainBroken, KfmError
from kfm.model.records import Justification, Lock, Record
from kfm.model.retention import (
    ARTIFACTS,
    ROW_KINDS,
    SEALED_KINDS,
    Cuts,
    KindPlan,
    Partition,
    RetentionPlan,
    RetiredSpan,
    RowKind,
    SealDecision,
    SealedKind,
    artifacts_details,
    cutoffs,
    decide_events,
    decide_page,
    decide_pages,
    is_as_sealed,
    planned,
    size_of,
)
from kfm.telemetry.ledger_metrics import counted_rows, keep_fold

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.settings import RetentionSettings
    from kfm.storage.artifacts import ArtifactFolders

LEASE_MS = 60_000
BATCH_ROWS = 500
FOLDERS_BATCH = 50  # of files of runs, told in one entry of the chain
SEALS_PAGE = 100
WAITING_MAX = 1000  # seals that are passed over because a message in them was not delivered
FOLDS_MAX = 1000  # so often metrics are folded before rows that they count may go
logger = logging.getLogger(__name__)


class Batch(Record, frozen=True):
    """What one transaction, or some folders, took away."""

    kind: str
    rows: int  # or files
    bytes: int


# --- a preview -------------------------------------------------------------------------------


def preview(
    ledger: LedgerReader,
    settings: RetentionSettings,
    folders: ArtifactFolders | None = None,
    *,
    again: bool = False,
) -> RetentionPlan:
    """What a pass would take away now. Reads only; decided by what decides when it is carried out.

    What is not sealed yet counts as if it were: a pass seals it first. `again`: also what passes kept."""
    reader, before = ledger.retention_reader(), cutoffs(settings, ledger.now_ms())
    plans = [_sealed_plan(ledger, reader, kind, before[kind.name], again=again) for kind in SEALED_KINDS]
    plans += [_rows_plan(reader, kind, before[kind.name], again=again) for kind in ROW_KINDS]
    before_ms, found = before[ARTIFACTS], Counter[str]()
    if folders is not None and before_ms is not None:
        for one in folders.old(before_ms):
            found.update(rows=one.files, bytes=one.size)
    plans.append(KindPlan(kind=ARTIFACTS, before_ms=before_ms, rows=found["rows"], bytes=found["bytes"]))
    return planned(plans)


def _rows_plan(reader: RetentionReader, kind: RowKind, before_ms: int | None, *, again: bool) -> KindPlan:
    if before_ms is None:
        return KindPlan(kind=kind.name, before_ms=None)
    count = size = 0
    kept: Counter[str] = Counter()
    mark, seen = Mark() if again else reader.mark(kind.name), set[object]()
    while True:
        found = reader.page(kind, mark, before_ms, BATCH_ROWS)
        decision = decide_page(kind, found, before_ms, BATCH_ROWS)
        going = {tuple(one[at] for at in kind.key): one for one in decision.going}
        fresh = [one for key, one in going.items() if key not in seen]
        if kind.name == "inputs":  # two runs of different pages may have found the same
            seen |= going.keys()
        count, size = count + len(fresh), size + sum(map(size_of, fresh))
        kept.update(decision.kept)
        if decision.is_end:
            return KindPlan(
                kind=kind.name, before_ms=before_ms, rows=count, bytes=size, kept=dict(sorted(kept.items()))
            )
        mark = Mark(place=decision.place)


def _sealed_plan(
    ledger: LedgerReader, reader: RetentionReader, kind: SealedKind, before_ms: int | None, *, again: bool
) -> KindPlan:
    if before_ms is None:
        return KindPlan(kind=kind.name, before_ms=None)
    count = size = 0
    kept: Counter[str] = Counter()
    cuts = reader.cuts(kind, before_ms)
    for one in _decisions(reader, kind, before_ms, Mark() if again else reader.mark(kind.name), cuts):
        count, size = count + len(one.decision.going), size + one.decision.size
        if one.decision.kept:
            kept["needed" if kind.stream == UNITS else "not-delivered"] += one.decision.kept
    for decision in _unsealed(ledger, reader, kind, before_ms, cuts):
        count, size = count + len(decision.going), size + decision.size
    return KindPlan(
        kind=kind.name, before_ms=before_ms, rows=count, bytes=size, kept=dict(sorted(kept.items()))
    )


# --- sealed rows -----------------------------------------------------------------------------


class _Decided(Record, frozen=True):
    """One seal, what goes of its rows, and the mark after it."""

    row: int  # of the chain
    seal: Seal
    decision: SealDecision
    mark: Mark


def _decisions(
    reader: RetentionReader, kind: SealedKind, before_ms: int, mark: Mark, cuts: Cuts
) -> Iterator[_Decided]:
    """Seal by seal, those first that were passed over; ends with the first that is young."""
    waiting, through = list(mark.waiting), mark.through
    retired = cache(partial(reader.retired, kind.name))  # read once, where a seal is not whole any more
    for number in mark.waiting:
        found = reader.seal(kind.stream, number)
        decision = None if found is None else _decided(reader, kind, *found, before_ms, retired, cuts)
        if found is not None and decision is not None and decision.verdict == "go":
            waiting.remove(number)
            yield _Decided(*found, decision, Mark(through=through, waiting=tuple(waiting)))
    while page := reader.seals(kind.stream, through, SEALS_PAGE):
        for number, seal in page:
            decision = _decided(reader, kind, number, seal, before_ms, retired, cuts)
            if decision.verdict == "waits":
                waiting.append(number)
            if decision.verdict == "young" or len(waiting) > WAITING_MAX:
                return
            through = number
            yield _Decided(number, seal, decision, Mark(through=through, waiting=tuple(waiting)))


def _decided(
    reader: RetentionReader,
    kind: SealedKind,
    number: int,
    seal: Seal,
    before_ms: int,
    retired: Callable[[], dict[int, list[RetiredSpan]]],
    cuts: Cuts,
) -> SealDecision:
    """What goes of the rows of a seal, once they are seen to be what was sealed."""
    found = reader.sealed_rows(seal)
    if not all(_is_old(row, before_ms, cuts) for row in found):
        return SealDecision(verdict="young")
    gone = [] if len(found) == seal.count else retired().get(number, [])
    problem = is_as_sealed(seal, {row.number: leaf(row) for row in found}, gone)
    if problem is not None:
        raise ChainBroken(
            f"Rows of the {kind.table} are not what row {number} of the audit log has sealed: {problem}.",
            remedy="Nothing more is taken away. `kfm audit verify` says more.",
        )
    return _judge(reader, kind, found)


def _is_old(row: SealedRow, before_ms: int, cuts: Cuts) -> bool:
    """Rows of a partition are as old as its last ones: then all of them go at once."""
    at_ms = row.at_ms if isinstance(row, SealedPage) else row.recorded_at_ms
    return at_ms < before_ms and not cuts.waits(row.number)


def _judge(reader: RetentionReader, kind: SealedKind, found: Sequence[SealedRow]) -> SealDecision:
    """What goes of old rows."""
    if kind.stream == UNITS:
        pages = [row for row in found if isinstance(row, SealedPage)]
        needed = reader.needed_pages(pages)
        return decide_pages(pages, lambda page: page.number in needed)
    return decide_events([row for row in found if not isinstance(row, SealedPage)])


def _unsealed(
    ledger: LedgerReader, reader: RetentionReader, kind: SealedKind, before_ms: int, cuts: Cuts
) -> Iterator[SealDecision]:
    """What would go of the rows that a pass would seal first, in the batches that it would seal them in."""
    high = _sealed_high(ledger, kind)
    while old := _old_rows(reader, kind, high, before_ms, cuts):
        decision = _judge(reader, kind, old)
        high = old[-1].number
        if decision.verdict == "go":
            yield decision


def _sealed_high(ledger: LedgerReader, kind: SealedKind) -> int:
    newest = next(iter(ledger.governance(kind="seal", subject=kind.stream, limit=1)), None)
    return 0 if newest is None else int(newest.details["high"])


def _old_rows(
    reader: RetentionReader, kind: SealedKind, after: int, before_ms: int, cuts: Cuts
) -> list[SealedRow]:
    """The next rows that no seal covers, up to the first that is young: a seal with old and young rows would
    keep the old ones until the last of them is old."""
    return list(takewhile(lambda row: _is_old(row, before_ms, cuts), reader.rows_after(kind.stream, after)))


# --- passes ----------------------------------------------------------------------------------


class RetentionPass:
    """One pass over everything that is old. `steps` yields after each batch, so that a loop can do other
    things in between; closing it ends the pass, and the lease with it."""

    def __init__(
        self,
        store: Ledger,
        settings: RetentionSettings,
        *,
        worker_id: str,
        is_dead: Callable[[str], bool],
        by: Justification,
        folders: ArtifactFolders | None = None,
        again: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        self._store = store
        self._settings = settings
        self._worker_id = worker_id
        self._is_dead = is_dead
        self._by = by
        self._folders = folders
        self._again = again
        self._batch_rows = batch_rows
        self._retention = store.retention()
        self.blocked_by: Lock | None = None

    def steps(self) -> Iterator[Batch]:
        fence = self._retention.begin(self._worker_id, LEASE_MS, self._is_dead)
        if isinstance(fence, Lock):
            self.blocked_by = fence
            return
        try:
            before = cutoffs(self._settings, self._store.now_ms())
            for sealed in SEALED_KINDS:
                if (before_ms := before[sealed.name]) is not None:
                    yield from self._seals(sealed, fence, before_ms)
            for _ in range(FOLDS_MAX):
                if not keep_fold(self._store, rows_min=1):
                    break
                self._retention.renew(fence, LEASE_MS)
            is_counted = counted_rows(self._store)
            for kind in ROW_KINDS:
                if (before_ms := before[kind.name]) is not None:
                    yield from self._rows(kind, fence, before_ms, is_counted)
            if self._folders is not None and (before_ms := before[ARTIFACTS]) is not None:
                yield from self._artifacts(self._folders, fence, before_ms)
        finally:
            self._retention.end(fence)

    def _seals(self, kind: SealedKind, fence: int, before_ms: int) -> Iterator[Batch]:
        self._retention.cut(kind)
        cuts = self._retention.cuts(kind, before_ms)
        while old := _old_rows(self._retention, kind, _sealed_high(self._store, kind), before_ms, cuts):
            if self._store.seal(self._by.actor, len(old), kind.stream) is None:
                break
            self._retention.renew(fence, LEASE_MS)
        mark = Mark() if self._again else self._retention.mark(kind.name)
        # Rows went one by one while a copy was under way: no seal that is looked at leads there again.
        for empty in (one for one in cuts.old if one.is_empty):
            told = self._retention.mark(kind.name)
            if not self._dropped(kind, fence, empty, (), told, before_ms):
                return
        together, drops = list[_Decided](), [one for one in cuts.old if not one.is_empty]
        for one in _decisions(self._retention, kind, before_ms, mark, cuts):
            lowest = min((first for first, _ in one.seal.members), default=0)
            while drops and lowest >= drops[0].high:
                batch = self._drop(kind, fence, before_ms, drops.pop(0), together)
                if batch is None:  # the mark stays before it
                    return
                yield batch
                together = []
            if drops and lowest >= drops[0].low:
                self._retention.renew(fence, LEASE_MS)
                together.append(one)
                continue
            self._retention.retire_seal(
                kind, fence, one.row, one.decision, one.mark, before_ms, self._by, lease_ms=LEASE_MS
            )
            yield Batch(kind=kind.name, rows=len(one.decision.going), bytes=one.decision.size)
        if drops:  # whatever of it was not decided on is moved, not lost
            batch = self._drop(kind, fence, before_ms, drops[0], together)
            if batch is not None:
                yield batch

    def _drop(
        self, kind: SealedKind, fence: int, before_ms: int, partition: Partition, decided: Sequence[_Decided]
    ) -> Batch | None:
        """What went with a partition; None: it is being read, and goes with a later pass."""
        told = [(one.row, one.decision) for one in decided]
        if decided and not self._dropped(kind, fence, partition, told, decided[-1].mark, before_ms):
            return None
        decisions = [decision for _, decision in told]
        return Batch(
            kind=kind.name,
            rows=sum(len(one.going) for one in decisions),
            bytes=sum(one.size for one in decisions),
        )

    def _dropped(
        self,
        kind: SealedKind,
        fence: int,
        partition: Partition,
        told: Sequence[tuple[int, SealDecision]],
        mark: Mark,
        before_ms: int,
    ) -> bool:
        is_done = self._retention.retire_partition(
            kind, fence, partition, told, mark, before_ms, self._by, lease_ms=LEASE_MS
        )
        if not is_done:
            logger.info("retention: %s is being read, and goes with a later pass", partition.name)
        return is_done

    def _rows(
        self, kind: RowKind, fence: int, before_ms: int, is_counted: Callable[[str, int], bool]
    ) -> Iterator[Batch]:
        mark = Mark() if self._again else self._retention.mark(kind.name)
        while True:
            decision = self._retention.retire_page(
                kind,
                fence,
                mark,
                before_ms,
                self._by,
                lease_ms=LEASE_MS,
                limit=self._batch_rows,
                is_counted=is_counted,
            )
            if decision.going or not decision.is_end:
                yield Batch(kind=kind.name, rows=len(decision.going), bytes=decision.size)
            if decision.is_end:
                return
            mark = Mark(place=decision.place)

    def _artifacts(self, folders: ArtifactFolders, fence: int, before_ms: int) -> Iterator[Batch]:
        found = folders.old(before_ms)
        while batch := list(islice(found, FOLDERS_BATCH)):
            files, size = sum(one.files for one in batch), sum(one.size for one in batch)
            told = artifacts_details([one.run_id for one in batch], files, size, before_ms)
            self._retention.tell_artifacts(fence, told, self._by, lease_ms=LEASE_MS)
            for one in batch:
                folders.remove(one)
            yield Batch(kind=ARTIFACTS, rows=files, bytes=size)


def carry_out(made: RetentionPass) -> dict[str, Batch]:
    """The whole pass at once: kind → what has gone of it."""
    totals: dict[str, Batch] = {}
    for one in made.steps():
        before = totals.get(one.kind, Batch(kind=one.kind, rows=0, bytes=0))
        totals[one.kind] = Batch(kind=one.kind, rows=before.rows + one.rows, bytes=before.bytes + one.bytes)
    return {kind: one for kind, one in totals.items() if one.rows}


def cut(store: Ledger) -> None:
    """Make the next partitions ahead, also where nothing goes yet: what is in the default one goes row by
    row."""
    for kind in SEALED_KINDS:
        store.retention().cut(kind)


class RetentionDuty:
    """The periodic duty of a service: once an hour a pass, batch by batch between its other duties."""

    def __init__(self, begin: Callable[[], RetentionPass]) -> None:
        self._begin = begin
        self._steps: Iterator[Batch] | None = None
        self._due_ms = 0
        self._totals: Counter[str] = Counter()

    def step(self, now_ms: int, every_ms: int, batches: int = 1) -> bool:
        """At most so many batches; True while a pass is under way."""
        if self._steps is None:
            if now_ms < self._due_ms:
                return False
            self._steps, self._due_ms = self._begin().steps(), now_ms + every_ms
        try:
            for _ in range(batches):
                one = next(self._steps)
                self._totals[one.kind] += one.rows
        except StopIteration:
            self._ended()
            return False
        except KfmError as error:  # other duties go on; the next pass tries again
            logger.warning("retention: %s", error, extra={"code": error.code})
            self._ended()
            return False
        return True

    def close(self) -> None:
        """End a pass that is under way, and its lease."""
        close = getattr(self._steps, "close", None)
        self._steps = None
        if close is not None:
            close()

    def _ended(self) -> None:
        self._steps = None
        gone = {kind: count for kind, count in sorted(self._totals.items()) if count}
        self._totals.clear()
        if gone:
            told = ", ".join(f"{count} of {kind}" for kind, count in gone.items())
            logger.info("retention: gone: %s", told, extra={"retention": gone})
