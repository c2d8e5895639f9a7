"""Replays as documents for programs and as lines for people."""

from __future__ import annotations

from typing import Any

import msgspec

from kfm.cli.output import clipped, instant, one_line, table
from kfm.core.wording import counted, moment

UNITS_SHOWN = 20
VALUE_CHARS = 100


def unit_document(unit: Any) -> dict[str, Any]:
    return dict(msgspec.to_builtins(unit))


def selection_document(selection: Any) -> dict[str, Any]:
    """What was said, with times as texts."""
    said = {name: getattr(selection, name) for name in selection.__struct_fields__}
    return {
        name.removesuffix("_ms"): instant(value) if name.endswith("_ms") else value
        for name, value in said.items()
        if value not in (None, ())
    }


def plan_document(plan: Any) -> dict[str, Any]:
    return {
        "replay_id": plan.replay_id,
        "digest": plan.digest,
        "mode": plan.mode,
        "reason": plan.reason,
        "made_at": instant(plan.made_at_ms),
        "needs_approval": plan.needs_approval,
        "selection": selection_document(plan.selection),
        "counts": {
            "units": len(plan.units),
            "by_dataset": plan.by_dataset,
            "by_error_code": plan.by_error_code,
            "by_status": plan.by_status,
        },
        "left_out": plan.left_out,
        "units": [unit_document(unit) for unit in plan.units],
    }


def plan_lines(plan: Any, *, units_shown: int = UNITS_SHOWN) -> list[str]:
    facts = [
        ("replay", plan.replay_id),
        ("digest", plan.digest),
        ("made", moment(plan.made_at_ms)),
        ("mode", f"{plan.mode}, reason {plan.reason}"),
        ("units", str(len(plan.units))),
        ("by dataset", amounts(plan.by_dataset)),
        ("by error", amounts(plan.by_error_code)),
        ("by status", amounts(plan.by_status)),
        *(("left out", f"{counted(many, 'unit')}: {why}") for why, many in plan.left_out.items()),
    ]
    if plan.needs_approval:
        facts.append(("approval", "a second person has to agree, since work that had ended comes back"))
    lines = [f"{name.ljust(11)} {one_line(value)}" for name, value in facts]
    if plan.units and units_shown:
        lines += ["", *unit_table([(unit, None) for unit in plan.units[:units_shown]], verdicts=False)]
    hidden = len(plan.units) - units_shown
    if units_shown and hidden > 0:
        lines.append(f"… and {counted(hidden, 'unit')} more; --json and the plan's file have all")
    return lines


def unit_table(units: list[tuple[Any, str | None]], *, verdicts: bool) -> list[str]:
    header = ["UNIT", "DATASET", "STATUS", "ERROR", "TRIED", "GRANTS"]
    rows = []
    for unit, why in units:
        row = [unit.wal_id, unit.dataset, unit.status, unit.error_code or "-", str(unit.attempts)]
        row.append(str(unit.grants))
        if verdicts:
            row.append("yes" if why is None else f"no: {why}")
        rows.append([*row, unit.object_uri])
    return table([*header, *(["REPLAY"] if verdicts else []), "OBJECT"], rows)


def amounts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {many}" for name, many in counts.items()) or "-"


# --- replays that are on record -----------------------------------------------------------


def replay_document(replay: Any, tally: dict[str, int]) -> dict[str, Any]:
    return {
        "replay_id": replay.replay_id,
        "digest": replay.digest,
        "state": replay.state,
        "mode": replay.mode,
        "reason": replay.reason,
        "rationale": replay.rationale,
        "requested_by": replay.requested_by,
        "made_at": instant(replay.plan.made_at_ms),
        "begun_at": instant(replay.created_at_ms),
        "changed_at": instant(replay.updated_at_ms),
        "units": len(replay.plan.units),
        "by_dataset": replay.plan.by_dataset,
        "replayed": tally.get("replayed", 0),
        "drifted": tally.get("drifted", 0),
        "waiting": tally.get("", 0),
    }


def receipt_document(receipt: Any, differences: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "wal_id": receipt.wal_id,
        "version": receipt.version,
        "receipt": receipt.receipt,
        "at": instant(receipt.at_ms),
        "dataset": receipt.dataset,
        "object_uri": receipt.object_uri,
        "now": {
            "status": receipt.status,
            "error_code": receipt.error_code,
            "attempts": receipt.attempts,
        },
        "differences": [
            {"field": name, "is": pair[0], "would_be": pair[1]} for name, pair in (differences or {}).items()
        ],
    }


def replay_line(document: dict[str, Any]) -> str:
    told = f"{document['replayed']} of {counted(document['units'], 'unit')} replayed"
    if document["drifted"]:
        told += f", {document['drifted']} changed meanwhile and left alone"
    if document["waiting"]:
        told += f", {document['waiting']} waiting"
    return f"{document['state'].ljust(9)}  {document['replay_id']}  {told}"


def receipt_table(documents: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            one["wal_id"],
            one["receipt"] or "waiting",
            one["now"]["status"] or "-",
            str(one["now"]["attempts"] if one["now"]["attempts"] is not None else "-"),
            one["now"]["error_code"] or "-",
            one["object_uri"] or "-",
        )
        for one in documents
    ]
    return table(("UNIT", "RECEIPT", "NOW", "TRIED", "ERROR", "OBJECT"), rows) if rows else []


def difference_lines(documents: list[dict[str, Any]]) -> list[str]:
    """Field by field: what is published, and what the replay would have made of it."""
    lines = []
    for one in documents:
        if not one["differences"]:
            continue
        lines += ["", f"{one['wal_id']} would have made another item of the same bytes:"]
        for field in one["differences"]:
            lines += [
                f"  {one_line(field['field'])}",
                f"    is        {_value(field['is'])}",
                f"    would be  {_value(field['would_be'])}",
            ]
    return lines


def _value(value: Any) -> str:
    return clipped(value if isinstance(value, str) else msgspec.json.encode(value).decode(), VALUE_CHARS)
