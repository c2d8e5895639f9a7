"""Which datasets a target takes: by their ids and their CARE levels. Pure; everything that shows or names a
target asks here."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal

from kfm.model.records import Record
from kfm.model.settings import DatasetSettings, Settings, Target

DEFAULT_CARE = ("public", "review")  # of a target that names no levels
UNRESTRICTED = frozenset(DEFAULT_CARE)

Taking = Literal["taken", "no-rights", "blocked", "other-datasets", "care"]


class ReachedTarget(Record, frozen=True):
    """A target that takes a dataset, as plans and approvals name it."""

    name: str
    kind: str
    place: str | None = None  # its address or path, as configured


def target_name(target: Target) -> str:
    """A target's own name, or its kind. The ledger remembers by it what a target shows."""
    return target.name or target.kind


def taking(target: Target, dataset: DatasetSettings) -> Taking:
    """Does this target take this dataset, and if not, why?

    Blocked data goes nowhere. A list of levels is a limit that nothing exceeds; without one a target takes
    what is not restricted, and beyond that what it names by its id: a pattern names nothing. Each
    name of a renamed dataset names it; patterns are about the present one.
    """
    if dataset.rights is None:
        return "no-rights"
    level = dataset.rights.care.level
    if level == "blocked":
        return "blocked"
    named = not set(dataset.names).isdisjoint(target.datasets)
    if not named and not any(fnmatchcase(dataset.name, pattern) for pattern in target.datasets):
        return "other-datasets"
    if target.care is not None:
        return "taken" if level in target.care else "care"
    return "taken" if level in UNRESTRICTED or named else "care"


def is_showable(dataset: DatasetSettings) -> bool:
    """May any target take it? Not without rights, and not what is blocked."""
    return dataset.rights is not None and dataset.rights.care.level != "blocked"


def takes(target: Target, dataset: DatasetSettings) -> bool:
    return taking(target, dataset) == "taken"


def reached(start: Settings, now: Settings, dataset: DatasetSettings) -> tuple[ReachedTarget, ...]:
    """The targets that show this dataset, by name.

    `start` and `now` are the settings that a process began with and those of its file: what the file does not
    allow any more is not done, and what it allows since needs a process that began with it.
    """
    later = {target_name(target): target for target in now.publish}
    found = [
        described(target)
        for target in start.publish
        if takes(target, dataset)
        and (same := later.get(target_name(target))) is not None
        and described(same) == described(target)
        and takes(same, dataset)
    ]
    return tuple(sorted(found, key=lambda one: one.name))


def described(target: Target) -> ReachedTarget:
    """A target by name, kind and place; an address without what is secret in it."""
    place = target.path
    if target.url:
        from kfm.model.redaction import redact_url  # imported late: start-up is measured

        place = redact_url(target.url)
    return ReachedTarget(name=target_name(target), kind=target.kind, place=place)


def reached_text(targets: tuple[ReachedTarget, ...]) -> str:
    """The targets in one line, for readers only."""
    if not targets:
        return "shown by no target"
    return "shown by " + ", ".join(f"{one.name} ({one.place or one.kind})" for one in targets)


def withheld(settings: Settings) -> Iterator[tuple[str, str]]:
    """Restricted datasets and the targets that leave them out by default: before targets chose, they showed
    them."""
    for dataset in settings.datasets:
        for target in settings.publish:
            if target.care is None and taking(target, dataset) == "care":
                yield dataset.id, target_name(target)


def shared(settings: Settings) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Targets that show restricted data beside other data: name, the restricted datasets, the others."""
    for target in settings.publish:
        taken = [dataset for dataset in settings.datasets if takes(target, dataset)]
        restricted = tuple(
            one.id for one in taken if one.rights and one.rights.care.level not in UNRESTRICTED
        )
        others = tuple(one.id for one in taken if one.id not in restricted)
        if restricted and others:
            yield target_name(target), restricted, others


def removal_command(dataset_id: str, target: str) -> str:
    """The command that shows what would be taken down from a target, and how to do it."""
    return f"kfm withdraw {dataset_id} --target {target}"
