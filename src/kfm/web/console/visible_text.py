"""Texts as pages show them: secrets redacted, hidden names masked, control characters made visible."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kfm.model.redaction import MASK_KEY, is_masked, mask
from kfm.model.schedules import Schedule
from kfm.model.settings import DatasetSettings, Settings

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader

TEXT_CHARS_MAX = 8192
MARKS_MAX = 3  # combining marks on one letter; more would be drawn over the lines around it
_NEVER = re.compile(r"(?!)")
NOTHING = "-"  # no dataset, source or schedule has this name
T = TypeVar("T")


def visible(text: str) -> str:
    """Text with everything that is not printed made visible, so that nothing hides, turns or moves."""
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[:TEXT_CHARS_MAX]}…"
    if text.isascii() and text.isprintable():
        return text
    found: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) or unicodedata.category(char) == "Mn" else 0
        if char in "\n\t":
            found.append(" ")
        elif not char.isprintable():
            found.append(f"⟨{ord(char):04X}⟩")
        elif marks <= MARKS_MAX:
            found.append(char)
    return "".join(found)


class Shown:
    """The texts of one page: callers with the role operate see every name, others see masks."""

    def __init__(
        self,
        settings: Settings,
        reader: LedgerReader,
        *,
        names: bool,
        hide: Callable[[str], str] = str,
        schedules: Sequence[Schedule] = (),
    ) -> None:
        self._settings = settings
        self._schedules = schedules
        self._reader = reader
        self._hide = hide
        self._masks = not names
        self._key = None if names else reader.mark(MASK_KEY)
        self._datasets = {dataset.id: dataset for dataset in settings.datasets}
        self._known: dict[str, bool] = {}
        self._hidden = frozenset[str]() if names else self._all_hidden()
        self._secret = self._pattern()

    def _all_hidden(self) -> frozenset[str]:
        """The names of hidden datasets, of the sources that feed them, and of these sources' schedules."""
        names = [one.dataset_id for one in self._reader.heads()] + list(self._datasets)
        datasets = {name for name in names if self.hides(name)}
        sources = {source.id for source in self._settings.sources if source.dataset in datasets}
        return frozenset(
            datasets | sources | {schedule.id for schedule in self._schedules if schedule.source in sources}
        )

    def _pattern(self) -> re.Pattern[str]:
        if not self._hidden:
            return _NEVER
        longest = sorted(self._hidden, key=len, reverse=True)
        return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])")

    def hides(self, dataset_id: str) -> bool:
        """Is this dataset hidden from the caller?"""
        if not self._masks:
            return False
        if dataset_id not in self._known:
            described = self._datasets.get(dataset_id)
            if described is None:
                head = self._reader.head(dataset_id)
                described = DatasetSettings(id=dataset_id, rights=head[1].rights if head else None)
            self._known[dataset_id] = is_masked(described)
        return self._known[dataset_id]

    def text(self, text: str) -> str:
        return visible(self._secret.sub(lambda found: mask(found[0], self._key), self._hide(text)))

    def name(self, dataset_id: str) -> str:
        return mask(dataset_id, self._key) if self.hides(dataset_id) else self.text(dataset_id)

    def real(self, shown: str, among: Sequence[str]) -> str:
        """The name behind a mask: addresses of pages hold what was shown. A guess finds nothing."""
        if shown in self._hidden:
            return NOTHING
        if self._masks:
            return next((name for name in among if mask(name, self._key) == shown), shown)
        return shown

    def record(self, value: T) -> T:
        """A view's record, every text in it fit to be shown. A `dataset_id` is a run's dataset."""
        return self._walked("", value)  # type: ignore[no-any-return]

    def _walked(self, field: str, value: Any) -> Any:
        if isinstance(value, str):
            return self.name(value) if field == "dataset_id" and value else self.text(value)
        if isinstance(value, tuple):
            return tuple([self._walked("", each) for each in value])
        if isinstance(value, msgspec.Struct):
            fields = {name: self._walked(name, getattr(value, name)) for name in value.__struct_fields__}
            return type(value)(**fields)
        return value
