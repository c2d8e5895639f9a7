"""Where a dataset is shown: each target that takes it, the version there, and how far it is behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kfm.model.dataset_names import Rename, of_dataset, present_name
from kfm.model.quantities import instant
from kfm.model.records import Record
from kfm.model.targets import Taking, taking, target_name

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.records import Promotion
    from kfm.model.settings import Target


class DatasetTarget(Record, frozen=True):
    """One target of the configuration, and what it shows of a dataset."""

    target: str
    kind: str
    place: str | None
    taking: Taking
    head: int | None
    version: int | None  # that it shows
    behind: int  # versions that it does not show yet

    @property
    def state(self) -> Literal["shown", "behind", "not taken", "never"]:
        if self.taking != "taken":
            return "not taken"
        if self.head is None:
            return "never"
        return "behind" if self.behind else "shown"


def dataset_targets(
    app: Any,
    dataset_id: str,
    head: Promotion | None,
    known: Mapping[tuple[str, str], int],
    renames: Sequence[Rename],
) -> list[DatasetTarget]:
    """`known`: what each target shows, as the ledger has it; `renames`: of all datasets. A dataset that is
    not declared any more is taken by all."""
    settings, found = app.settings, []
    declared = settings.declared(dataset_id)
    for target in settings.publish:
        name = target_name(target)
        takes: Taking = "taken" if declared is None else taking(target, declared)
        version = known.get((dataset_id, name))
        if version is not None and target.kind == "local" and declared is not None and takes == "taken":
            name_now = present_name(dataset_id, of_dataset(dataset_id, renames))
            version = None if _is_emptied(app, target, name_now) else version
        is_due = head is not None and takes == "taken" and target.kind != "noop"
        behind = max(head.sequence - (version or 0), 0) if head is not None and is_due else 0
        found.append(
            DatasetTarget(
                target=name,
                kind=target.kind,
                place=target.path,
                taking=takes,
                head=head.sequence if head is not None else None,
                version=version,
                behind=behind,
            )
        )
    return found


def _is_emptied(app: Any, target: Target, name: str) -> bool:
    """Is what it showed gone?"""
    folder = app.loaded.resolve(target.path or ".")
    return not app.files.exists(f"{folder}/{name}/current/manifest.json")


def behind_since_ms(ledger: LedgerReader, dataset_id: str, one: DatasetTarget) -> int | None:
    """When the first version that a target does not show yet was promoted."""
    first = ledger.promotion(dataset_id, (one.version or 0) + 1) if one.behind else None
    return first.promoted_at_ms if first is not None else None


def target_document(one: DatasetTarget, since_ms: int | None) -> dict[str, Any]:
    return {
        "target": one.target,
        "kind": one.kind,
        "state": one.state,
        "taking": one.taking,
        "head": one.head,
        "version": one.version,
        "behind": one.behind,
        "since": instant(since_ms),
    }
