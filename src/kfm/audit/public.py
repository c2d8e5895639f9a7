"""What of the ledger may be shown to everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kfm.audit.shapes import CareOf
from kfm.core.audit import entry_document
from kfm.core.masking import MASK_KEY, is_masked, mask
from kfm.core.providers import provider_of
from kfm.core.records import GovernanceEntry
from kfm.core.redact import redact
from kfm.core.settings import Dataset, Rights, Settings
from kfm.ports import LedgerReader


class Curtain:
    """Hides datasets whose people have not agreed to be seen; an internal export hides nothing.

    A dataset that nobody describes any more goes by its last published rights; one without any is hidden.
    """

    def __init__(self, settings: Settings, ledger: LedgerReader, *, internal: bool) -> None:
        self._ledger = ledger
        self._internal = internal
        self._datasets = {dataset.id: dataset for dataset in settings.datasets}
        self._key = ledger.mark(MASK_KEY)
        self._hidden: dict[str, bool] = {}
        self._words = None if internal else self._telling_words(settings)

    def rights(self, dataset_id: str) -> Rights | None:
        if dataset_id in self._datasets:
            return self._datasets[dataset_id].rights
        head = self._ledger.head(dataset_id)
        return head[1].rights if head else None

    def hides(self, dataset_id: str) -> bool:
        if self._internal:
            return False
        if dataset_id not in self._hidden:
            described = self._datasets.get(dataset_id) or Dataset(
                id=dataset_id, rights=self.rights(dataset_id)
            )
            self._hidden[dataset_id] = is_masked(described)
        return self._hidden[dataset_id]

    def name(self, dataset_id: str, text: str | None = None) -> str:
        """A dataset's id, or another name that belongs to it, as it may be shown."""
        text = dataset_id if text is None else text
        if not self.hides(dataset_id):
            return text
        # Without a key they can't be told apart, and need not be.
        return mask(text, self._key)

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
            if self._words is not None and self._words.search(text):
                return True
            if redact(text) != text:  # something in it has the shape of a secret
                return True
        return False

    def _telling_words(self, settings: Settings) -> re.Pattern[str] | None:
        """Ids and titles that would give a hidden dataset away."""
        known = {*self._datasets, *(head.dataset_id for head in self._ledger.heads())}
        words = {dataset_id for dataset_id in known if self.hides(dataset_id)}
        words |= {source.id for source in settings.sources if self.hides(source.dataset)}
        words |= {one.title for one in settings.datasets if one.title and self.hides(one.id)}
        called = {provider_of(source) for source in settings.sources if self.hides(source.dataset)}
        words |= {provider for provider in called if provider is not None}
        if not words:
            return None
        anyone = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        return re.compile(rf"(?<![\w-])(?:{anyone})(?![\w-])", re.IGNORECASE)


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
