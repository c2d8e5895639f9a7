"""The sources that a person means, by their names or by the dataset that they feed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kfm.model.errors import UsageError


def sources_feeding(settings: Any, dataset: str, sources: Sequence[str]) -> tuple[str, ...]:
    """The sources of a dataset, members of a sync left out."""
    from kfm.service.dismissals import require_dataset, sources_of

    if sources:
        raise UsageError("Name a dataset, or sources with --source, not both.")
    known = settings.declared(settings.dataset_id(dataset)) is not None
    if not known and settings.source_named(dataset) is not None:
        raise UsageError(
            f"`{dataset[:64]}` is a source, and no dataset.", remedy=f"`kfm run --source {dataset}`."
        )
    dataset = require_dataset(settings, dataset)
    if not known:
        raise UsageError(
            f"{dataset} is a feed: its objects are announced, nothing can be asked for.",
            remedy=f"`kfm coverage {dataset}` ends with the `kfm nodd reconcile` that lists what was not "
            "announced; with --open it is taken in.",
        )
    found = tuple(one.id for one in sources_of(settings, dataset))
    if not found:
        raise UsageError(
            f"The dataset {dataset} has no source.", remedy="Add one under `sources:`, or name another."
        )
    return found


def choose(settings: Any, wanted: Sequence[str]) -> list[str]:
    """The sources to run. Members of a sync run through it only."""
    known = [source.id for source in settings.sources]
    if not known:
        raise UsageError("The configuration has no sources.", remedy="Add one under `sources:`.")
    called = [settings.called(source_id) for source_id in known]
    for name in wanted:
        if settings.source_named(name) is None:
            from kfm.model.quantities import did_you_mean

            raise UsageError(
                f"There is no source `{name}`{did_you_mean(name, called)}",
                remedy=f"The configuration has: {', '.join(called[:10])}{', …' if len(called) > 10 else ''}.",
            )
    wanted = [settings.source(name).id for name in wanted]
    for source_id in wanted:
        sync = settings.sync_of(source_id)
        if sync is not None:
            raise UsageError(
                f"Source `{source_id}` is a member of the sync `{sync}`, which publishes its data: "
                "run alone, it would publish the same once more.",
                remedy=f"Run the sync: `kfm run --source {sync}`.",
            )
    members = {member for source in settings.sources for member in source.members}
    chosen = list(dict.fromkeys(wanted)) or [source_id for source_id in known if source_id not in members]
    if not any(settings.source(source_id).datasets for source_id in chosen):
        return chosen
    from kfm.model.derived import made_in_order

    return made_in_order(settings, chosen)
