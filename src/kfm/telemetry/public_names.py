"""What datasets and providers are called in metrics, which anybody may read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfm.model.breaker import provider_of
from kfm.model.redaction import MASK_KEY, hidden_names, is_masked, mask
from kfm.model.run_state import PassFigures
from kfm.model.settings import DatasetSettings, Settings

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader


class PublicNames:
    """A dataset's id, or its mask. One that is not configured any more goes by its last published rights."""

    def __init__(self, settings: Settings, ledger: LedgerReader) -> None:
        self._sources = settings.sources
        self._datasets = {dataset.id: dataset for dataset in settings.datasets}
        self._ledger = ledger
        self._key = ledger.mark(MASK_KEY)
        self._known: dict[str, str] = {}
        self._hides = hidden_names(settings.datasets)

    def __call__(self, dataset_id: str) -> str:
        if dataset_id not in self._known:
            hidden = is_masked(self._described(dataset_id))
            self._known[dataset_id] = self._masked(dataset_id) if hidden else dataset_id
        return self._known[dataset_id]

    def of_units(self, dataset: str) -> str:
        """What is announced publicly is no secret, unless its rights are declared here and say so."""
        return self(dataset) if dataset in self._datasets else dataset

    def provider(self, provider: str) -> str:
        """A provider's name, or its mask where it could give a hidden dataset away."""
        users = [one for one in self._sources if provider_of(one) == provider]
        hidden = [is_masked(self._described(one.dataset)) for one in users]
        if not users:  # a name from a pipeline's own code: whose, is not known
            hidden = [is_masked(dataset) for dataset in self._datasets.values()]
            return self._masked(provider) if any(hidden) else provider
        return self._masked(provider) if all(hidden) else provider

    def pipeline(self, figures: PassFigures) -> str:
        """A pipeline's name, or its mask where it works for a hidden dataset, or is named after one."""
        owner, name = figures.dataset_id, figures.pipeline_id
        named_after = self._hides is not None and self._hides(name)
        hidden = named_after if owner is None else self(owner) != owner
        return self._masked(name) if hidden else name

    def _described(self, dataset_id: str) -> DatasetSettings:
        if dataset_id in self._datasets:
            return self._datasets[dataset_id]
        head = self._ledger.head(dataset_id)
        return DatasetSettings(id=dataset_id, rights=head[1].rights if head else None)

    def _masked(self, dataset_id: str) -> str:
        # Without a key (there is no ledger yet) they can't be distinguished, and need not be.
        return mask(dataset_id, self._key)
