"""Redaction and masking of documents: no secrets, and masks for the names of hidden datasets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from kfm.model.redaction import MASK_KEY, PREFIX, is_masked, mask, within
from kfm.model.schedules import Schedule
from kfm.model.settings import DatasetSettings

_NEVER = re.compile(r"(?!)")
_REVEALING = ("source_id", "schedule_id", "pipeline_id")  # most often named after their dataset
NOTHING = "-"  # no dataset and no source has this name


class VisibleNames:
    """The names of one request: callers without the role operate or approve see masks of hidden datasets."""

    def __init__(self, app: Any, *, may_know: bool, schedules: Sequence[Schedule] = ()) -> None:
        self._app = app
        self._schedules = schedules
        self._masks = not may_know
        self._key = None if may_know else app.ledger.mark(MASK_KEY)
        self._known: dict[str, bool] = {}
        self._hidden = frozenset[str]() if may_know else self._all_hidden()
        longest = sorted(self._hidden, key=len, reverse=True)
        names = "|".join(map(re.escape, longest))
        self._pattern = re.compile(rf"(?<![\w-])(?:{names})(?![\w-])") if longest else _NEVER

    def _all_hidden(self) -> frozenset[str]:
        settings = self._app.settings
        known = {dataset.id for dataset in settings.datasets} | {
            head.dataset_id for head in self._app.ledger.heads()
        }
        hidden = {name for name in known if self.hides(name)}
        titles = {dataset.title for dataset in settings.datasets if dataset.id in hidden}
        sources = {source.id for source in settings.sources if source.dataset in hidden}
        schedules = {schedule.id for schedule in self._schedules if schedule.source in sources}
        return frozenset(hidden | sources | schedules | {title for title in titles if title})

    def hides(self, dataset_id: str) -> bool:
        """Is the name of this dataset masked for the caller?"""
        if not self._masks:
            return False
        if dataset_id not in self._known:
            declared = self._app.settings.declared(dataset_id)
            if declared is None:
                head = self._app.ledger.head(dataset_id)
                declared = DatasetSettings(id=dataset_id, rights=head[1].rights if head else None)
            self._known[dataset_id] = is_masked(declared)
        return self._known[dataset_id]

    def meant(self, name: str | None) -> str | None:
        """The name that a filter means: a mask is its dataset. A guessed hidden name finds nothing."""
        if name is None or not self._masks:
            return name
        if name in self._hidden:
            return NOTHING
        if name.startswith(PREFIX):
            return next((one for one in self._hidden if mask(one, self._key) == name), name)
        return name

    def shown(self, document: Any) -> Any:
        """The document as plain values, redacted and masked for the caller."""
        plain = msgspec.to_builtins(document)
        discretion = self._app.loaded.discretion
        if self._app.loaded.known_secrets():
            plain = discretion.within(plain)
        if not self._masks:
            return plain
        return within(self._unnamed("", plain), self._masked)

    def text(self, text: str) -> str:
        return self._masked(self._app.loaded.hide(text))

    def _masked(self, text: str) -> str:
        return self._pattern.sub(lambda found: mask(found[0], self._key), text)

    def _unnamed(self, field: str, value: Any) -> Any:
        """A `dataset_id` is masked also if no configuration declares it any more, and its source with it."""
        if isinstance(value, dict):
            plain = {name: self._unnamed(name, each) for name, each in value.items()}
            if isinstance(owner := value.get("dataset_id"), str) and self.hides(owner):
                plain |= {name: mask(value[name], self._key) for name in _REVEALING if value.get(name)}
            return plain
        if isinstance(value, list | tuple):
            return [self._unnamed(field, each) for each in value]
        if field == "dataset_id" and isinstance(value, str) and self.hides(value):
            return mask(value, self._key)
        return value
