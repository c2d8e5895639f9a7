"""Do the datasets that a configuration names exist? Asked where announced objects matter: it loads all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfm.config import Loaded


def require_known_datasets(loaded: Loaded) -> None:
    """ConfigError with every name that nothing announces, and the line that it is on."""
    ingest = loaded.settings.ingest
    named = ingest.policies or ingest.generic or any(source.follows for source in loaded.settings.sources)
    if not named:
        return
    from kfm.configuration.ingest import dataset_problems
    from kfm.configuration.shape import gathered
    from kfm.ingest.registry import load_registry

    known = {dataset.name for dataset in load_registry().datasets}
    problems = list(dataset_problems(loaded.settings, known))
    if problems:
        raise gathered([loaded.error(path, sentence) for path, sentence in problems])
