"""Names of datasets: the ledger knows a dataset by its first name; readers find it by the one that it was
renamed to last, and a pointer at each earlier one. Pure."""

from collections.abc import Sequence
from typing import Any

from kfm.model.records import Record
from kfm.model.settings import Settings
from kfm.model.times import rfc3339

RENAMED = "renamed"  # the state of a tombstone that is a pointer


class Rename(Record, frozen=True):
    """One renaming of a dataset: from its version `sequence` on readers find it as `new`."""

    dataset_id: str
    old: str
    new: str
    sequence: int
    renamed_at_ms: int
    reason: str


def name_at(dataset_id: str, renames: Sequence[Rename], sequence: int) -> str:
    """The name that a version is published under. `renames`: those of this dataset, in order."""
    return next((one.new for one in reversed(renames) if one.sequence <= sequence), dataset_id)


def present_name(dataset_id: str, renames: Sequence[Rename]) -> str:
    return renames[-1].new if renames else dataset_id


def earlier_names(dataset_id: str, renames: Sequence[Rename]) -> tuple[str, ...]:
    """The names that readers knew it by and do not find it by any more, the first one first."""
    names = dict.fromkeys((dataset_id, *(one.new for one in renames)))
    return tuple(name for name in names if name != present_name(dataset_id, renames))


def of_dataset(dataset_id: str, renames: Sequence[Rename]) -> tuple[Rename, ...]:
    return tuple(one for one in renames if one.dataset_id == dataset_id)


def owner_of(name: str, renames: Sequence[Rename]) -> str | None:
    """The dataset that was ever renamed to this name; None: none was."""
    return next((one.dataset_id for one in renames if one.new == name), None)


def identity_of(name: str, settings: Settings, renames: Sequence[Rename]) -> str:
    """The id behind any name that a dataset goes or went by, declared or on record; else the name itself."""
    declared = settings.dataset_id(name) or name
    return declared if settings.declared(declared) is not None else owner_of(name, renames) or declared


def pointer(name: str, renames: Sequence[Rename]) -> dict[str, Any]:
    """The document that readers find at an earlier name: where the dataset is now."""
    last = renames[-1]
    return {
        "tombstone": 1,
        "dataset_id": name,
        "sequence": last.sequence,
        "state": RENAMED,
        "renamed_to": last.new,
        "withdrawn": [],
        "reason": last.reason,
        "at": rfc3339(last.renamed_at_ms),
    }


def rename_command(old: str, new: str) -> str:
    return f"kfm dataset rename {old} {new} --yes --rationale TEXT"
