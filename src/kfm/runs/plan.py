"""A plan: what a run would publish, frozen with a digest, so that what is applied is what was read.

On disk it is JSON Lines: a header, then one line for each change.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kfm.model.approvals import GATE as APPROVAL_GATE
from kfm.model.canonical import canonical_bytes
from kfm.model.contracts import require_valid
from kfm.model.errors import PlanError
from kfm.model.quantities import counted, readable_size, span
from kfm.model.records import GateResult, Promotion, Record, Window
from kfm.model.targets import ReachedTarget, reached_text
from kfm.model.times import rfc3339
from kfm.publish.manifest import ChangeTally, VersionChange, diff, tally

if TYPE_CHECKING:
    from kfm.model.versions import Version

PLAN_BYTES_MAX = 256 * 1024 * 1024
NAMES_SHOWN_MAX = 5
ROWS_SHOWN_MAX = 200


class Header(Record, frozen=True):
    """The header of a plan: everything that the changes were computed from."""

    plan: Literal[1]
    dataset_id: str
    source_id: str
    partition: str | None
    window: Window
    base_sequence: int  # 0: the dataset has never been published
    base_version_id: str | None
    version_id: str
    fingerprint: str
    output_version: str
    gates: tuple[GateResult, ...]
    tally: ChangeTally
    kfm_version: str
    made_at: str
    digest: str
    # That would show it. Plans of earlier versions name none, and are read and compared without.
    targets: tuple[ReachedTarget, ...] | msgspec.UnsetType = msgspec.UNSET


class RunPlan(Record, frozen=True):
    header: Header
    changes: tuple[VersionChange, ...]

    @property
    def unchanged(self) -> bool:
        return self.header.version_id == self.header.base_version_id


def make(
    *,
    base: tuple[Promotion, Version] | None,
    version: Version,
    source_id: str,
    partition: str | None,
    window: Window,
    fingerprint: str,
    output_version: str,
    gates: tuple[GateResult, ...],
    targets: tuple[ReachedTarget, ...],
    kfm_version: str,
    made_at_ms: int,
    dataset_id: str | None = None,
) -> RunPlan:
    """The plan of publishing a version over the head that it was merged from. `dataset_id`: where it is not
    the version's, which has the name that readers know."""
    promotion, old = base or (None, None)
    changes = tuple(sorted(diff(old, version), key=_order))
    header = Header(
        plan=1,
        dataset_id=dataset_id or version.dataset_id,
        source_id=source_id,
        partition=partition,
        window=window,
        base_sequence=promotion.sequence if promotion else 0,
        base_version_id=promotion.version_id if promotion else None,
        version_id=promotion.version_id if promotion and version.is_same(old) else version.version_id,
        fingerprint=fingerprint,
        output_version=output_version,
        gates=gates,
        targets=targets,
        tally=tally(old, version),
        kfm_version=kfm_version,
        made_at=rfc3339(made_at_ms),
        digest="",
    )
    return RunPlan(header=msgspec.structs.replace(header, digest=_digest(header, changes)), changes=changes)


def _order(change: VersionChange) -> tuple[bool, str, str, str]:
    return (change.what == "asset", change.what, change.name, change.kind)


def _digest(header: Header, changes: tuple[VersionChange, ...]) -> str:
    plain = _plain(header)
    del plain["made_at"], plain["digest"]
    body = {"header": plain, "changes": [_plain(change) for change in changes]}
    return "sha256:" + hashlib.sha256(canonical_bytes(body)).hexdigest()


def _plain(record: Record) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    return plain


# --- on disk -------------------------------------------------------------------------


def write(plan: RunPlan) -> bytes:
    """The plan as JSON Lines, each line in canonical form."""
    lines = [_plain(plan.header), *(_plain(change) for change in plan.changes)]
    for line in lines:
        require_valid("plan", line)
    return b"".join(canonical_bytes(line) + b"\n" for line in lines)


def read(data: bytes) -> RunPlan:
    """The plan of these bytes; refused unless it is whole, well-formed and as it was written."""
    if len(data) > PLAN_BYTES_MAX:
        raise PlanError(f"It is larger than {PLAN_BYTES_MAX} bytes.")
    if not data.endswith(b"\n"):
        raise PlanError("It is empty or was cut short.")
    first, *rest = data[:-1].split(b"\n")
    try:
        header = msgspec.json.decode(first, type=Header, strict=True)
        changes = tuple(msgspec.json.decode(line, type=VersionChange, strict=True) for line in rest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"It is not a plan: {error}") from error
    if header.digest != _digest(header, changes):
        raise PlanError("Its digest does not match: it was changed after it was made.")
    if list(changes) != sorted(changes, key=_order):
        raise PlanError("Its lines are not in order.")
    return RunPlan(header=header, changes=changes)


# --- drift ---------------------------------------------------------------------------


def compare(plan: RunPlan, actual: RunPlan) -> list[str]:
    """What is no longer as the plan says, in sentences; empty if the plan may be applied.

    The release of kfm is not compared: what was agreed to is the outcome.
    """
    was, now = plan.header, actual.header
    sentences = []
    for name, label in (("dataset_id", "dataset"), ("source_id", "source"), ("partition", "partition")):
        if getattr(was, name) != getattr(now, name):
            sentences.append(f"the {label} is {getattr(now, name)}, not {getattr(was, name)}")
    if (was.window.start_ms, was.window.end_ms) != (now.window.start_ms, now.window.end_ms):
        sentences.append(f"the window is {_span(now.window)}, not {_span(was.window)}")
    if (was.base_sequence, was.base_version_id) != (now.base_sequence, now.base_version_id):
        sentences.append(f"the dataset is at version {now.base_sequence}, not {was.base_sequence}")
    if was.output_version != now.output_version:
        sentences.append(f"the pipeline is {now.output_version}, not {was.output_version}")
    moved = _moved(plan, actual)
    if moved:
        names = ", ".join(moved[:NAMES_SHOWN_MAX])
        more = f" and {len(moved) - NAMES_SHOWN_MAX} more" if len(moved) > NAMES_SHOWN_MAX else ""
        sentences.append(f"{counted(len(moved), 'asset')} changed since: {names}{more}")
    if was.fingerprint != now.fingerprint and not moved:
        sentences.append("the upstream fingerprint changed")
    if _gates(was) != _gates(now):
        sentences.append("the gates decide otherwise")
    if difference := other_targets(was, now.targets):
        sentences.append(difference)
    if was.version_id != now.version_id and not sentences:
        sentences.append("the outcome would be another version")
    return [f"plan made at {was.made_at}, {sentence}" for sentence in sentences]


def other_targets(was: Header, now: tuple[ReachedTarget, ...] | msgspec.UnsetType) -> str | None:
    """How the targets differ from those of the plan; None if they do not, or if it names none."""
    if was.targets is msgspec.UNSET or now is msgspec.UNSET or was.targets == now:
        return None
    return f"it would be {reached_text(now)}, not {reached_text(was.targets).removeprefix('shown ')}"


def _moved(plan: RunPlan, actual: RunPlan) -> list[str]:
    before = {(change.what, change.name): change for change in plan.changes}
    after = {(change.what, change.name): change for change in actual.changes}
    keys = before.keys() | after.keys()
    return sorted(name for what, name in keys if before.get((what, name)) != after.get((what, name)))


def _gates(header: Header) -> list[tuple[str, bool, bool, tuple[str, ...]]]:
    """An approval is no part of it: a plan is made before it is given."""
    return sorted(
        (gate.gate, gate.allowed, gate.overridden, gate.policy_ids)
        for gate in header.gates
        if gate.gate != APPROVAL_GATE
    )


# --- for people ----------------------------------------------------------------------

SIGNS = {"added": "+", "changed": "~", "removed": "-"}


def render_text(plan: RunPlan) -> str:
    """The plan for reading: one line for each change, the totals last."""
    return "".join(f"{line}\n" for _, line in signed_lines(plan))


def signed_lines(plan: RunPlan) -> list[tuple[str, str]]:
    """The lines of a plan, each with the sign of its change, or none. Colour is the caller's."""
    header = plan.header
    base = f"on version {header.base_sequence}" if header.base_sequence else "nothing published yet"
    lines = [("", f"{header.dataset_id} from {header.source_id}, {_span(header.window)}, {base}")]
    if header.targets is not msgspec.UNSET:
        lines.append(("", f"  {reached_text(header.targets)}"))
    lines += [
        ("!", f"  ! {gate.gate}: {gate.reason}")
        for gate in header.gates
        if not gate.allowed and not gate.overridden
    ]
    for change in plan.changes[:ROWS_SHOWN_MAX]:
        sign = SIGNS[change.kind]
        lines.append((sign, f"  {sign} {_row(change)}"))
    if len(plan.changes) > ROWS_SHOWN_MAX:
        lines.append(("", f"  … and {len(plan.changes) - ROWS_SHOWN_MAX} more"))
    return [*lines, ("", _totals(plan)), ("", f"plan {header.digest}")]


def _totals(plan: RunPlan) -> str:
    counts = plan.header.tally
    if plan.unchanged:
        return f"unchanged: {counted(counts.unchanged, 'file')}, {readable_size(counts.bytes_total)}"
    return (
        f"{counts.added} added, {counts.changed} changed, {counts.removed} removed, "
        f"{counts.unchanged} unchanged; {readable_size(counts.bytes_new)} new "
        f"of {readable_size(counts.bytes_total)}"
    )


def _row(change: VersionChange) -> str:
    if change.what == "item":
        return f"item {change.name}"
    if change.what != "asset":
        return f"{change.name}: {change.before or 'none'} → {change.after or 'none'}"
    if change.kind == "added":
        return f"{change.name}  {readable_size(change.size_after or 0)}"
    if change.kind == "removed":
        return f"{change.name}  {readable_size(change.size_before or 0)}"
    if change.sha256_before == change.sha256_after:
        return f"{change.name}  same bytes; {change.before or 'none'} → {change.after or 'none'}"
    before, after = readable_size(change.size_before or 0), readable_size(change.size_after or 0)
    return f"{change.name}  {before} → {after}"


def _span(window: Window) -> str:
    return span(window.start_ms, window.end_ms)
