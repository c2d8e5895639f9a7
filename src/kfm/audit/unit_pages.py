"""The history of units as lines that anybody can check against the seals of the chain."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kfm.core.canonical import canonical_bytes
from kfm.core.masking import is_masked
from kfm.core.sealing import SealedPage, leaf, page_bytes
from kfm.core.settings import Settings
from kfm.ports import LedgerReader

FILE = "unit-pages.jsonl"
WITHHELD_TAG = "withheld-page/1"
PAGE_ROWS = 500


def page_lines(ledger: LedgerReader, settings: Settings, *, internal: bool) -> Iterator[bytes]:
    """Every page; of one that tells of a masked dataset only its hash, unless the export is internal."""
    reader, at = ledger.unit_reader(), 1
    hidden = set() if internal else _hidden(ledger, settings)
    while pages := reader.pages_between(at, 2**62, PAGE_ROWS):
        for page in pages:
            yield _line(page, withhold=bool(hidden) and _tells_of(ledger, page, hidden))
        at = pages[-1].number + 1


def _line(page: SealedPage, *, withhold: bool) -> bytes:
    if not withhold:
        return page_bytes(page) + b"\n"
    return canonical_bytes({"kfm": WITHHELD_TAG, "number": page.number, "leaf": leaf(page).hex()}) + b"\n"


def _hidden(ledger: LedgerReader, settings: Settings) -> set[str]:
    """Masked datasets that have units at all."""
    masked = {dataset.id for dataset in settings.datasets if is_masked(dataset)}
    return masked & {figure[0] for figure in ledger.unit_figures()} if masked else set()


def _tells_of(ledger: LedgerReader, page: SealedPage, hidden: set[str]) -> bool:
    reader = ledger.unit_reader()
    units = (reader.unit(member[0]) for member in msgspec.json.decode(page.members))
    return any(unit is None or unit.dataset in hidden for unit in units)
