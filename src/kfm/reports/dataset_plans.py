"""Plans of changes of a dataset, for people: the command that makes one, and the approver, read the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.model.quantities import counted, moment, readable_size

if TYPE_CHECKING:
    from kfm.datasets.changes import ChangePlan
    from kfm.model.window_rules import RewindowPreview

FILES_MAX = 20  # named in a preview; more are counted
APPROVED_FILES_MAX = 1000  # named to a person who approves them
VERSIONS_MAX = 20


def out_of_reach_lines(plan: ChangePlan) -> list[str]:
    """The copies that a person has to look for."""
    return [
        f"  out of reach  {one.what}{f' ({one.name})' if one.name != one.what else ''}: {one.detail}"
        for one in plan.out_of_reach
    ]


def _part(plan: ChangePlan) -> str:
    """The part of the dataset that a withdrawal or its lifting is about; nothing where it is all of it."""
    start_ms, end_ms = plan.window_start_ms, plan.window_end_ms
    span = f" {moment(start_ms)[:16]} … {moment(end_ms)[:16]} UTC" if start_ms is not None and end_ms else ""
    source = f" of source {plan.source_id}" if plan.source_id else ""
    return f"{span or ' all'}{source}" if span or source else ""


def _effect(plan: ChangePlan) -> str:
    """What becomes of readers, behind the numbers of the versions."""
    if plan.kind == "rollback":
        return f", with the content of version {plan.to_sequence}"
    if plan.rename is not msgspec.UNSET:
        return f", as {plan.rename.new}; a pointer to it as {plan.rename.old}"
    if plan.kind == "lift":
        at = f" at target {plan.target}" if plan.target is not None else ""
        again = f", the same content;{_part(plan) or ' all of it'} may be published again{at}"
        return f"{again}, and it is not retired any more" if plan.ends_retirement is True else again
    if plan.target is not None:
        return f", the same content; target {plan.target} shows a tombstone in its place"
    if plan.kind == "withdraw" and (part := _part(plan)):
        return f", without{part}"
    return ", empty: readers get a tombstone in the place of all of it"


def rewindow_lines(source_id: str, found: RewindowPreview) -> list[str]:
    """What another window length does, for people."""
    lines = [
        f"rewindow  {source_id}: {found.old or 'windows'} → {found.new}",
        f"  {counted(found.lasting, 'published window')} of other lengths stay until something replaces them",
        f"  {counted(len(found.covered), 'window')} of {found.new} covered by them, and published so",
        f"  {counted(len(found.asked_again), 'window')} of {found.new} to be asked for again",
    ]
    for one in found.asked_again[:FILES_MAX]:
        lines.append(f"    {_place(one.window)}  replaces {counted(len(one.replaces), 'window')}")
    if len(found.asked_again) > FILES_MAX:
        lines.append(f"    … and {len(found.asked_again) - FILES_MAX} more")
    if found.later is not None:
        many = counted(len(found.later.replaces), "window")
        lines.append(f"  when it is over: {_place(found.later.window)}  replaces {many}")
    if found.cancels:
        lines.append(
            f"  {counted(len(found.cancels), 'request')} for windows of the earlier length cancelled"
        )
    return lines


def _place(span: Any) -> str:
    return f"{moment(span.start_ms)[:16]} … {moment(span.end_ms)[:16]} UTC"


def plan_lines(plan: ChangePlan, files_max: int = FILES_MAX) -> list[str]:
    """The change for people: what becomes of readers first."""
    if plan.rewindow is not msgspec.UNSET:
        return [*rewindow_lines(plan.source_id or "", plan.rewindow), f"  digest {plan.digest}"]
    made = f"version {plan.base_sequence} → {plan.sequence}{_effect(plan)}"
    tally = plan.tally
    lines = [
        f"{plan.kind}  {plan.dataset_id}: {made}",
        f"  {counted(tally.removed, 'file')} removed, {tally.changed} changed, {tally.added} added, "
        f"{tally.unchanged} unchanged",
    ]
    for one in [each for each in plan.changes if each.what == "asset"][:files_max]:
        lines.append(f"    {one.kind:8} {one.name}")
    more = sum(each.what == "asset" for each in plan.changes) - files_max
    if more > 0:
        lines.append(f"    … and {more} more")
    if plan.pauses is not None:
        lines.append(f"  pauses {plan.pauses}")
    if plan.target is not None and plan.kind != "lift":
        lines.append(f"  {counted(tally.unchanged, 'file')} no longer shown there; others stay as they are")
    for target in plan.targets:
        lines.append(f"  target {target.target}: shows {target.shows or 'nothing'} now")
    if plan.purge is not None:
        purge = plan.purge
        lines.append(
            f"  purges {counted(len(purge.versions), 'version')}{_numbers(purge.versions)}, "
            f"{counted(purge.blobs, 'object')}, {readable_size(purge.bytes)}, for good; "
            f"{counted(purge.shared, 'object')} shared, kept"
        )
    lines += out_of_reach_lines(plan)
    return [*lines, f"  digest {plan.digest}"]


def _numbers(versions: Sequence[int]) -> str:
    shown = ", ".join(map(str, versions[:VERSIONS_MAX]))
    return f" ({shown}{', …' if len(versions) > VERSIONS_MAX else ''})" if versions else ""


def approved_lines(plan: ChangePlan, rationale: str) -> list[str]:
    """The change as an approver decides on it: every file, and what readers will be told."""
    lines = plan_lines(plan, APPROVED_FILES_MAX)
    if plan.kind in ("withdraw", "retire"):
        lines.insert(1, f"  readers are told: {rationale}")
    return lines
