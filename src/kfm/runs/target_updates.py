"""Target updates: every target is made to show the head that the ledger names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from kfm.model.dataset_changes import (
    TombstonedPromotion,
    Withdrawal,
    at_version,
    only_removes,
    tombstone,
)
from kfm.model.dataset_names import Rename, earlier_names, name_at, of_dataset, pointer, present_name
from kfm.model.errors import ConfigError, KfmError, TargetUnavailable
from kfm.model.gates import refusal
from kfm.model.records import Promotion
from kfm.model.settings import DatasetSettings, Settings
from kfm.model.targets import is_showable
from kfm.model.versions import Version, emptied
from kfm.ports import Projection
from kfm.runs import gates, purges
from kfm.runs.kernel import Kernel, ProjectionReport
from kfm.system import os_trouble

ROUNDS_MAX = 5  # in which a dataset is renamed while a target is being updated
NOT_TAKEN = ConfigError("The target does not take this dataset any more.")


def project(
    kernel: Kernel, dataset_id: str | None = None, *, everything: bool = False
) -> list[ProjectionReport]:
    """Bring targets up to date: those behind the head, or all of them.

    A target that fails is reported and left for the next call: the promotion stands. What may not be
    published now is not shown either: the gates are asked for each dataset that a target lacks. A target that
    does not take a dataset is called only to remove what it shows of it.
    """
    shown, renames = kernel.ledger.projected(), kernel.ledger.change_reader().renames()
    reports = []
    for head in kernel.ledger.heads():
        if dataset_id is not None and head.dataset_id != dataset_id:
            continue
        # What is not configured any more stays where it was shown.
        looks = is_configured(kernel.settings, head.dataset_id)
        named = of_dataset(head.dataset_id, renames)
        targets, dataset, problem = _taking(kernel, head.dataset_id)
        behind = [
            target
            for target in targets
            if shown.get((head.dataset_id, target.name), 0) < head.sequence
            or (looks and (everything or has_fallen(kernel, target, head, named)))
        ]
        refused = problem or (_refusal(kernel, head, dataset) if behind else None)
        for target in kernel.projections if len(targets) < len(kernel.projections) else ():
            before = shown.get((head.dataset_id, target.name), 0)
            if target not in targets and _only_removes(kernel, head, target, before, named):
                # It took the dataset once. It gets nothing new, but what is taken down goes there, too.
                reports.append(_project_one(kernel, head.dataset_id, target, before, (head, NOT_TAKEN)))
        for target in behind:
            before = shown.get((head.dataset_id, target.name), 0)
            if refused is None:
                reports.append(_project_one(kernel, head.dataset_id, target, before, everything=everything))
            elif _only_removes(kernel, head, target, before, named):
                reports.append(_project_one(kernel, head.dataset_id, target, before, (head, refused)))
            else:
                reports.append(_failed(head.dataset_id, target, refused))
    purges.finish(kernel, dataset_id)
    return reports


def projection_document(report: ProjectionReport) -> dict[str, Any]:
    return {
        "dataset_id": report.dataset_id,
        "target": report.target,
        "version": report.sequence,
        "error": report.error,
    }


def _taking(
    kernel: Kernel, dataset_id: str
) -> tuple[list[Projection], DatasetSettings | None, KfmError | None]:
    """The targets that take this dataset as it is declared now. All of them where none may: what is declared
    no more, can't be read, is blocked or has no rights is refused by name, not left out."""
    try:
        dataset = kernel.dataset_now(dataset_id)
        if dataset is None or not is_showable(dataset):
            return list(kernel.projections), dataset, None
        names = {target.name for target in kernel.reached(dataset)}
    except KfmError as error:
        return list(kernel.projections), None, error
    return [target for target in kernel.projections if target.name in names], dataset, None


def _only_removes(
    kernel: Kernel, head: Promotion, target: Projection, shown: int, renames: tuple[Rename, ...]
) -> bool:
    """What stops publishing does not stop removing. Where nothing was shown, or is there any more, there is
    nothing to remove: what the head still holds would be shown anew. Under another name all of it is new:
    there something has to be removed at the earlier one, which is done there alone."""
    ledger = kernel.ledger
    before = ledger.promotion(head.dataset_id, shown) if 0 < shown < head.sequence else None
    was, now = (given_to(kernel, target, one) for one in (before, head))
    if was is None or now is None or (len(now[1]) and fell(target, published_as(was[0], renames))):
        return False
    withdrawn = _withdrawn_from(kernel, head.dataset_id, target)
    if at_version(withdrawn, was[0].sequence):
        return not len(now[1])  # it shows a tombstone and no files
    renamed = was[1].dataset_id != now[1].dataset_id
    if renamed and len(was[1]) == len(now[1]) and not at_version(withdrawn, head.sequence):
        return False  # it was renamed, and nothing else
    return only_removes(was[1], now[1])


def published_as(promotion: Promotion, renames: tuple[Rename, ...]) -> Promotion:
    """The version as a target knows it: by the name that it is published under."""
    name = name_at(promotion.dataset_id, renames, promotion.sequence)
    return promotion if name == promotion.dataset_id else replace(promotion, dataset_id=name)


def given_to(
    kernel: Kernel, target: Projection, promotion: Promotion | None
) -> tuple[Promotion, Version] | None:
    """A version as this target is given it: emptied, where the dataset is withdrawn from it alone."""
    version = kernel.ledger.version(promotion.version_id) if promotion is not None else None
    if promotion is None or version is None:
        return None
    return _emptied((promotion, version), _withdrawn_from(kernel, promotion.dataset_id, target))


def _withdrawn_from(kernel: Kernel, dataset_id: str, target: Projection) -> list[Withdrawal]:
    known = kernel.ledger.change_reader().target_withdrawals(dataset_id)
    return [one for one in known if one.target == target.name]


def fell(target: Projection, shown: Promotion) -> bool:
    """Is what this target was known to show not there any more? Asked where looking is cheap."""
    stands: Callable[[str, Promotion], bool] | None = getattr(target, "stands", None)
    try:
        return stands is not None and not stands(shown.dataset_id, shown)
    except (KfmError, OSError):
        return True  # projecting it again names the trouble


def has_fallen(kernel: Kernel, target: Projection, head: Promotion, renames: tuple[Rename, ...]) -> bool:
    """Does the target not show the head as it was given it?"""
    if getattr(target, "stands", None) is None:
        return False
    withdrawn = at_version(_withdrawn_from(kernel, head.dataset_id, target), head.sequence)
    given = given_to(kernel, target, head) if withdrawn else None
    return fell(target, published_as(given[0] if given is not None else head, renames))


def is_configured(settings: Settings, dataset_id: str) -> bool:
    return any(dataset.id == dataset_id for dataset in settings.datasets)


def _refusal(kernel: Kernel, head: Promotion, dataset: DatasetSettings | None) -> KfmError | None:
    """Why nothing of this dataset may be shown now; None if it may."""
    if dataset is None:
        return ConfigError(
            f"The dataset {head.dataset_id} is promoted but not configured any more, so it is not projected.",
            remedy="Configure the dataset again, and its targets are brought up to date.",
        )
    try:
        decision = gates.at_projection(kernel, dataset, head)
    except KfmError as error:
        return error  # a gate that can't be asked does not let anything pass
    if not decision.allowed:
        return refusal(decision)
    if not is_showable(dataset):
        return ConfigError(f"The dataset {dataset.id} has no rights that let a target show it.")
    return None


class _Renamed(Exception):
    """The dataset has another name by now: look again where it belongs."""


def _project_one(
    kernel: Kernel,
    dataset_id: str,
    target: Projection,
    before: int,
    pinned: tuple[Promotion, KfmError] | None = None,
    *,
    everything: bool = False,
) -> ProjectionReport:
    """`before`: the version that it was known to show; `pinned`: the only version that may be shown, and what
    refuses any other.

    Under its present name first, then the pointers at the earlier ones: what readers are sent to is there.
    What the target shows is noted after both, so that a process that is killed leaves it to the next."""
    try:
        for _ in range(ROUNDS_MAX):
            try:
                update = _TargetUpdate(kernel, dataset_id, target, before, pinned)
                sequence = update.run(everything=everything)
                break
            except _Renamed:
                continue
        else:
            raise TargetUnavailable(f"{target.name}: {dataset_id} was renamed {ROUNDS_MAX} times meanwhile.")
        if update.looked_back:
            # It was about to show an older version, whose bytes may have been purged since: not by its doing.
            purges.finish(kernel, dataset_id, again=True, target=target.name)
        if sequence is not None:
            kernel.store.raise_projected(dataset_id, target.name, sequence)
    except KfmError as error:
        return _failed(dataset_id, target, error)
    except OSError as error:
        trouble = os_trouble(error)
        problem = TargetUnavailable(f"{target.name}: {trouble.text}", remedy=trouble.remedy)
        return _failed(dataset_id, target, problem)
    return ProjectionReport(dataset_id=dataset_id, target=target.name, sequence=sequence)


class _TargetUpdate:
    """One target brought up to date about one dataset, under each name that it has there."""

    def __init__(
        self,
        kernel: Kernel,
        dataset_id: str,
        target: Projection,
        before: int,
        pinned: tuple[Promotion, KfmError] | None,
    ) -> None:
        self._kernel = kernel
        self._changes = kernel.ledger.change_reader()
        self._dataset_id = dataset_id
        self._target = target
        self._before = before
        self._pinned = pinned
        self._renames = self._changes.renames(dataset_id)
        self._mine = [
            one for one in self._changes.target_withdrawals(dataset_id) if one.target == target.name
        ]
        self._seen: list[int] = []

    @property
    def looked_back(self) -> bool:
        return bool(self._seen) and self._seen[-1] > self._seen[0]

    def run(self, *, everything: bool) -> int | None:
        name = present_name(self._dataset_id, self._renames)
        elsewhere = self._before > 0 and name_at(self._dataset_id, self._renames, self._before) != name
        sequence: int | None = None
        if not (elsewhere and self._pinned is not None and self._stays_away()):
            sequence = self._target.project(name, lambda: self._head(name), _Known(self, name))
        is_behind = self._renames and 0 < self._before < self._renames[-1].sequence
        for earlier in earlier_names(self._dataset_id, self._renames):
            if is_behind or (everything and self._before > 0):
                self._target.project(earlier, partial(self._moved, earlier), _Known(self, earlier))
        if sequence is None and self._pinned is not None and elsewhere:
            if self._mine and self._head(name) is not None:
                return self._pinned[0].sequence  # only tombstones are left of it there
            raise self._pinned[1]
        return sequence

    def _stays_away(self) -> bool:
        """Nothing may be shown under a name that the target does not have yet, but a tombstone of all."""
        version = self._kernel.ledger.version(self._pinned[0].version_id) if self._pinned else None
        return bool(self._mine) or version is None or len(version) > 0

    def _read(self) -> tuple[Promotion, Version] | None:
        found = self._changes.shown_head(self._dataset_id)
        if self._pinned is not None and (found is None or found[0].sequence != self._pinned[0].sequence):
            raise self._pinned[1]
        if found is not None and found[1].dataset_id != present_name(self._dataset_id, self._renames):
            raise _Renamed
        return found

    def _head(self, name: str) -> tuple[Promotion, Version] | None:
        """What the target shows under the present name."""
        found = _emptied(self._read(), self._mine)
        self._seen.append(found[0].sequence if found else 0)
        return found if found is None else (replace(found[0], dataset_id=name), found[1])

    def _moved(self, name: str) -> tuple[Promotion, Version] | None:
        """What the target shows under an earlier name: nothing but a pointer, or the tombstone of what was
        withdrawn from this target."""
        found = self._read()
        assert found is not None, "what was renamed was published"
        if at_version(self._mine, found[0].sequence):
            shown = _emptied((found[0], emptied(found[1], name)), self._mine)
            return shown if shown is None else (replace(shown[0], dataset_id=name), shown[1])
        renamed = self._kernel.ledger.promotion(self._dataset_id, self._renames[-1].sequence)
        assert renamed is not None, "a renaming makes a version"
        version = self._empty(renamed, name)
        facts = {field: getattr(renamed, field) for field in Promotion.__struct_fields__}
        facts |= {"dataset_id": name, "version_id": version.version_id}
        return TombstonedPromotion(**facts, tombstone=pointer(name, self._renames)), version

    def known(self, name: str, sequence: int) -> str | None:
        """The version that a target shows under this name by this number, if this database put it there."""
        found = self._kernel.ledger.promotion(self._dataset_id, sequence)
        if found is None:
            return None
        return found.version_id if self._is_given(name, sequence) else self._empty(found, name).version_id

    def version(self, name: str, sequence: int) -> Version | None:
        found = self._kernel.ledger.promotion(self._dataset_id, sequence)
        if found is None or not self._is_given(name, sequence):
            return None
        return self._kernel.ledger.version(found.version_id)

    def _is_given(self, name: str, sequence: int) -> bool:
        """Was the target given this version under this name as it was promoted?"""
        is_here = name_at(self._dataset_id, self._renames, sequence) == name
        return is_here and not at_version(self._mine, sequence)

    def _empty(self, promotion: Promotion, name: str) -> Version:
        version = self._kernel.ledger.version(promotion.version_id)
        assert version is not None, "a promotion has its version"
        return emptied(version, name)


class _Known:
    """`ports.PublishedVersions` under one name of a dataset."""

    def __init__(self, update: _TargetUpdate, name: str) -> None:
        self._update, self._name = update, name

    def __call__(self, sequence: int, /) -> str | None:
        return self._update.known(self._name, sequence)

    def version(self, sequence: int) -> Version | None:
        return self._update.version(self._name, sequence)


def _emptied(
    found: tuple[Promotion, Version] | None, withdrawals: list[Withdrawal]
) -> tuple[Promotion, Version] | None:
    """The head as a target shows it from which the dataset was withdrawn: nothing but a tombstone."""
    known = at_version(withdrawals, found[0].sequence) if found is not None else ()
    if found is None or not known:
        return found
    promotion, version = found[0], emptied(found[1], found[1].dataset_id)
    stands = tombstone(version.dataset_id, promotion.sequence, known)
    facts = {name: getattr(promotion, name) for name in Promotion.__struct_fields__}
    assert stands is not None
    return (
        TombstonedPromotion(**{**facts, "version_id": version.version_id}, tombstone=stands),
        version,
    )


def _failed(dataset_id: str, target: Projection, error: KfmError) -> ProjectionReport:
    return ProjectionReport(
        dataset_id=dataset_id, target=target.name, sequence=None, error=error.as_document()
    )
