"""Walking the chain, a page at a time: it may be longer than memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from kfm.core import audit
from kfm.core.evidence import Link
from kfm.ports import LedgerReader, Progress

PAGE_ROWS = 1000
PHASE = "checking the chain"


def links(
    ledger: LedgerReader, progress: Progress | None = None, through: int | None = None
) -> Iterator[Link]:
    """Every link in order; those after the row `through` are left out."""
    after = 0
    while page := ledger.chain(after=after, limit=PAGE_ROWS):
        for one in page:
            if through is not None and one.number > through:
                return
            yield one
        if progress is not None:
            progress.advance(len(page))
        after = page[-1].number


def verify(
    ledger: LedgerReader, anchors: Iterable[audit.Anchor] = (), progress: Progress | None = None
) -> audit.Verdict:
    head = ledger.chain_head()  # before the rows: those that come later are none of its business
    if progress is not None:
        progress.phase(PHASE, head[0])
    verdict = audit.verify(links(ledger, progress), anchors, head)
    if progress is not None:
        progress.done()
    return verdict


def newest(
    ledger: LedgerReader, *, kind: str | None = None, subject: str | None = None, limit: int = 50
) -> list[Link]:
    """The last entries, newest first, each with its number."""

    def wanted(one: Link) -> bool:
        return kind in (None, one.entry.kind) and subject in (None, one.entry.subject)

    end, _ = ledger.chain_head()
    if end == 0:  # nothing, or rows from before the chain
        return list(deque(filter(wanted, links(ledger)), maxlen=limit))[::-1]
    found: list[Link] = []
    top: int | None = None  # the first page may find rows that were added just now
    while end > 0 and len(found) < limit:
        after = max(0, end - PAGE_ROWS)
        page = [one for one in ledger.chain(after=after, limit=2 * PAGE_ROWS) if _is_within(one.number, top)]
        found += [one for one in reversed(page) if wanted(one)]
        end = top = after
    return found[:limit]


def _is_within(number: Any, top: int | None) -> bool:
    """A forged row may have anything for a number."""
    return top is None or (isinstance(number, int) and number <= top)
