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
    from kfm.configuration.document import Document
    from kfm.configuration.ingest import dataset_problems
    from kfm.configuration.shape import gathered
    from kfm.ingest.registry import load_registry

    known = {dataset.name for dataset in load_registry().datasets}
    document = Document(loaded.name, None, loaded.lines)
    problems = sorted(dataset_problems(loaded.settings, known), key=lambda one: document.line(one[0]))
    if problems:
        raise gathered([document.error(path, sentence) for path, sentence in problems])
