"""Datasets and their versions: what is published, who changed it, what is withdrawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kfm.model.dataset_changes import (
    DatasetChange,
    Purge,
    Withdrawal,
    active,
    against_rollback,
    lift_command,
    must_go,
    span_words,
    withdraw_command,
)
from kfm.model.dataset_names import earlier_names, of_dataset, owner_of, present_name, rename_command
from kfm.model.errors import ConfigError, KfmError
from kfm.model.quantities import instant
from kfm.model.targets import target_name

if TYPE_CHECKING:
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.records import Item, Promotion
    from kfm.model.settings import Settings
    from kfm.model.versions import Version

VERSIONS_MAX = 50
OBJECTS_LOOKED_AT = 3  # of a version that is not kept


def dataset_documents(settings: Settings, ledger: LedgerReader) -> list[dict[str, Any]]:
    """Every dataset that is declared or was ever published, by its id."""
    heads = {head.dataset_id: head for head in ledger.heads()}
    withdrawn: dict[str, list[Withdrawal]] = {}
    for one in active(ledger.change_reader().withdrawals()):
        withdrawn.setdefault(one.dataset_id, []).append(one)
    declared = {dataset.id: dataset for dataset in settings.datasets}
    renames = ledger.change_reader().renames()
    found = []
    for dataset_id in sorted(declared.keys() | heads.keys()):
        head, known = heads.get(dataset_id), withdrawn.get(dataset_id, [])
        mine = of_dataset(dataset_id, renames)
        found.append(
            {
                "dataset_id": dataset_id,
                "name": present_name(dataset_id, mine),
                "formerly": list(earlier_names(dataset_id, mine)),
                "declared": dataset_id in declared,
                "state": _state(head is not None, known),
                "version": head.sequence if head else None,
                "version_id": head.version_id if head else None,
                "promoted_at": instant(head.promoted_at_ms) if head else None,
            }
        )
    return found


def _state(published: bool, withdrawn: list[Withdrawal]) -> str:
    if any(one.retires for one in withdrawn):
        return "retired"
    if any(one.is_whole for one in withdrawn):
        return "withdrawn"
    if withdrawn:
        return "partly-withdrawn"
    return "published" if published else "never"


class StoredObjects(NamedTuple):
    """Where versions have their objects, and of how many versions of a dataset they are kept for sure."""

    versions_kept: int
    has: Callable[[str], bool]


def dataset_document(
    settings: Settings, ledger: LedgerReader, dataset_id: str, limit: int, has: Callable[[str], bool]
) -> dict[str, Any]:
    """One dataset with its versions, newest first, and what is withdrawn of it."""
    stored = StoredObjects(settings.limits.versions_kept, has)
    return {
        **summary_document(settings, ledger, dataset_id),
        "versions": version_documents(ledger, dataset_id, ledger.promotions(dataset_id, limit), stored),
    }


def summary_document(settings: Settings, ledger: LedgerReader, dataset_id: str) -> dict[str, Any]:
    """One dataset, and what is withdrawn and purged of it; without a name if there is none."""
    reader = ledger.change_reader()
    known = (*reader.withdrawals(dataset_id), *reader.target_withdrawals(dataset_id))
    summary = next(
        (one for one in dataset_documents(settings, ledger) if one["dataset_id"] == dataset_id), None
    )
    return {
        **(summary or {}),
        "withdrawn": [withdrawal_document(one) for one in known],
        "purges": [purge_document(one) for one in reader.purges_of(dataset_id)],
    }


def version_documents(
    ledger: LedgerReader, dataset_id: str, promotions: Sequence[Promotion], stored: StoredObjects
) -> list[dict[str, Any]]:
    """Versions of one dataset: what made each, what it holds, whether it can be put back."""
    from kfm.model.version_trees import NO_ITEMS  # late: a status looks into no version

    reader = ledger.change_reader()
    known = reader.withdrawals(dataset_id)
    head = next(iter(ledger.promotions(dataset_id, 1)), None)
    found = []
    for promotion in promotions:
        version, change = ledger.version(promotion.version_id), reader.change(promotion.run_id)
        against = against_rollback(promotion.sequence, version, known) if version is not None else None
        facts = version.facts() if version is not None else NO_ITEMS
        is_head = head is not None and head.sequence == promotion.sequence
        held_back: str | None = against[1] if against else None
        if held_back is None and head is not None and version is not None:
            lacks = _is_collected(ledger, head, promotion.sequence, version, stored)
            held_back = "collected" if lacks else None
        found.append(
            {
                "version": promotion.sequence,
                "version_id": promotion.version_id,
                "promoted_at": instant(promotion.promoted_at_ms),
                "by": change.kind if change else "run",
                "run_id": None if change else promotion.run_id,
                "change_id": promotion.run_id if change else None,
                "actor": change.actor if change else None,
                "rationale": change.rationale if change else None,
                "to_version": change.to_sequence if change else None,
                "items": len(version) if version is not None else 0,
                "files": facts.files,
                "bytes": facts.bytes,
                "can_roll_back": not is_head and held_back is None,
                "held_back": held_back,
            }
        )
    return found


def _is_collected(
    ledger: LedgerReader, head: Promotion, sequence: int, version: Version, stored: StoredObjects
) -> bool:
    """Were objects of this version collected? They go together, so a few of those that no kept version has
    tell; a rollback looks at all of them. A store that can't be asked leaves it open."""
    oldest = head.sequence - max(1, stored.versions_kept) + 1
    if sequence >= oldest:
        return False
    kept = ledger.promotion(head.dataset_id, oldest)
    beside = ledger.version(kept.version_id) if kept is not None else None
    changed = version.changed_items(beside)
    shas = {asset.sha256 for _, new in changed if new for asset in new.assets}
    shas -= {asset.sha256 for old, _ in changed if old for asset in old.assets}
    with suppress(KfmError, OSError):
        return not all(stored.has(sha256) for sha256 in sorted(shas)[:OBJECTS_LOOKED_AT])
    return False


def item_document(item: Item) -> dict[str, Any]:
    return {
        "item_id": item.id,
        "source_id": item.source_id,
        "window_start": instant(item.window_start_ms),
        "window_end": instant(item.window_end_ms),
        "partition": item.partition,
        "files": [
            {"path": one.path, "sha256": one.sha256, "bytes": one.size, "media_type": one.media_type}
            for one in item.assets
        ],
    }


def withdrawn_item(
    ledger: LedgerReader, dataset_id: str, item_id: str, known: Sequence[Withdrawal]
) -> list[Withdrawal]:
    """Why readers do not get an item that they got once: what it was withdrawn by. None: it never was."""
    found = []
    for one in active(known):
        before = ledger.promotion(dataset_id, one.since_sequence - 1)
        version = ledger.version(before.version_id) if before is not None else None
        item = version.find((item_id,)).get(item_id) if version is not None else None
        if item is not None and one.holds(item):
            found.append(one)
    return found


def withdrawal_document(one: Withdrawal) -> dict[str, Any]:
    return {
        "change_id": one.change_id,
        "what": span_words(one),
        "source_id": one.source_id or None,
        "target": one.target or None,
        "window_start": instant(one.start_ms),
        "window_end": instant(one.end_ms),
        "retires": one.retires,
        "purge": one.purge,
        "reason": one.reason,
        "since_version": one.since_sequence,
        "withdrawn_at": instant(one.withdrawn_at_ms),
        "lifted_by": one.lifted_by,
        "command": lift_command(one) if one.is_active else None,
    }


def purge_document(one: Purge) -> dict[str, Any]:
    return {
        "change_id": one.change_id,
        "place": one.place,
        "state": one.state,
        "removed": one.removed,
        "detail": one.detail,
    }


def change_document(one: DatasetChange) -> dict[str, Any]:
    return {
        "change_id": one.change_id,
        "dataset_id": one.dataset_id,
        "kind": one.kind,
        "base_version": one.base_sequence,
        "version": one.sequence,
        "to_version": one.to_sequence,
        "digest": one.digest,
        "actor": one.actor,
        "rationale": one.rationale,
        "ticket": one.ticket,
        "changed_at": instant(one.changed_at_ms),
    }


def still_shown(settings: Settings, ledger: LedgerReader) -> list[dict[str, Any]]:
    """Where readers still see what is withdrawn: targets that have not got the version without it, and those
    where old versions were to be purged and are not."""
    reader = ledger.change_reader()
    known = active((*reader.withdrawals(), *reader.target_withdrawals()))
    if not known:
        return []
    targets, shown = {target_name(one) for one in settings.publish}, ledger.projected()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in known:
        for (dataset_id, target), sequence in sorted(shown.items()):
            mine = dataset_id == one.dataset_id and one.target in ("", target) and target in targets
            if mine and 0 < sequence < one.since_sequence:
                found[dataset_id, target] = _still_shown(one, target, f"still see version {sequence} of")
    for purge in reader.purges():
        where = purge.place.removeprefix("target:")
        if purge.state == "outstanding" and where in targets and (purge.dataset_id, where) not in found:
            for one in (each for each in known if each.change_id == purge.change_id):
                found[one.dataset_id, where] = _still_shown(one, where, "can still reach purged versions of")
    return [found[place] for place in sorted(found)]


def _still_shown(one: Withdrawal, target: str, what: str) -> dict[str, Any]:
    gone = "retired" if one.retires else "withdrawn"
    return {
        "dataset_id": one.dataset_id,
        "target": target,
        "since_version": one.since_sequence,
        "sentence": f"readers at target {target} {what} dataset {one.dataset_id}, {gone} with version "
        f"{one.since_sequence}",
        "command": "kfm project",
    }


def receipt_document(ledger: LedgerReader, one: DatasetChange) -> dict[str, Any]:
    """A change with what it has come to: what each target shows, what is purged, what was out of reach."""
    plan, shown = msgspec.json.decode(one.plan), ledger.projected()
    targets = []
    for each in plan.get("targets", ()):
        version = shown.get((one.dataset_id, each["target"]))
        done = one.sequence is not None and (version or 0) >= one.sequence
        targets.append({"target": each["target"], "version": version, "state": "shown" if done else "behind"})
    return {
        **change_document(one),
        "removed": plan.get("tally", {}).get("removed", 0),
        "lifts": plan.get("lifts", []),
        "targets": targets,
        "purges": [purge_document(each) for each in ledger.change_reader().purges(one.change_id)],
        "out_of_reach": plan.get("out_of_reach", []),
    }


def to_withdraw(settings: Settings, ledger: LedgerReader) -> list[dict[str, Any]]:
    """Datasets that readers can still see though they may not: each with why, and the command."""
    found = []
    for dataset in settings.datasets:
        rights = dataset.rights
        if rights is None:
            continue
        consent = rights.sovereignty.consent if rights.sovereignty is not None else None
        if rights.care.level != "blocked" and consent != "withdrawn":
            continue  # the usual case reads nothing
        head = ledger.head(dataset.id)
        why = must_go(head[0] if head else None, bool(head and len(head[1])), rights.care.level, consent)
        if why is not None:
            command = withdraw_command(dataset.id)
            found.append({"dataset_id": dataset.id, "why": why, "command": command})
    return found


def earlier_names_used(written: Settings) -> list[dict[str, Any]]:
    """Sources that fill or read a dataset by a name that it had once, as the file has them."""
    now = {name: one.id for one in written.datasets for name in one.formerly}
    found = []
    for source in written.sources:
        for name in dict.fromkeys((source.dataset, *source.datasets)):
            if name in now:
                sentence = (
                    f"source {source.id} names the dataset {name}, which is called {now[name]} now; it is "
                    "found, and better named so"
                )
                found.append(_note(now[name], sentence))
    return found


def unlike_record(settings: Settings, ledger: LedgerReader) -> list[dict[str, Any]]:
    """Names of datasets that differ from those that readers know."""
    reader = ledger.change_reader()
    renames = reader.renames()
    published = {head.dataset_id for head in ledger.heads()} if settings.datasets else set()
    found = []
    for dataset in settings.datasets:
        mine = of_dataset(dataset.id, renames)
        known_as, formerly = present_name(dataset.id, mine), ", ".join(earlier_names(dataset.id, mine))
        owner = owner_of(dataset.id, renames)
        if owner not in (None, dataset.id):
            sentence = (
                f"the dataset {dataset.id} is refused: that is a name of the dataset that was first called "
                f"{owner}; declare it as `{{id: {dataset.id}, formerly: [{owner}]}}`, or choose another id"
            )
            found.append(_note(dataset.id, sentence))
        elif dataset.formerly and dataset.id not in published:
            sentence = (
                f"nothing was ever published as {dataset.id}, the first of the earlier names of the dataset "
                f"{dataset.name}: correct `formerly`, or leave it out"
            )
            found.append(_note(dataset.name, sentence))
        elif dataset.id in published and known_as != dataset.name:
            sentence = (
                f"readers know the dataset {dataset.name} as {known_as}; they find it by its name after "
                f"`{rename_command(known_as, dataset.name)}`"
                if known_as in dataset.names
                else f"the dataset {dataset.name} was renamed to {known_as}: write it as "
                f"`{{id: {known_as}, formerly: [{formerly}]}}`"
            )
            found.append(_note(dataset.name, sentence))
    return found


def require_recorded_lengths(settings: Settings, recorded: Mapping[str, tuple[str, str | None]]) -> None:
    """Refuse a window length that a source did not get by a plan."""
    from kfm.model.window_rules import merges_windows, rewindow_remedy

    for source in settings.sources:
        length, _ = recorded.get(source.id, (source.window, None))
        if merges_windows(source) and length != source.window:
            name = source.names[-1]
            raise ConfigError(
                f"source `{name}`: its windows are {length} long on record, and {source.window} here",
                remedy=rewindow_remedy(name, source.window, length),
            )


def _note(dataset_id: str, sentence: str) -> dict[str, Any]:
    return {"dataset_id": dataset_id, "target": None, "shown": None, "sentence": sentence}
