"""`kfm status`, as it is told to people."""

from __future__ import annotations

from typing import Any

from kfm.cli.output import between, duration, one_line, short_id, table, utc
from kfm.cli.session import Session
from kfm.documents.overview import gather


def show_status(session: Session) -> int:
    with session.app(read_only=True) as app:
        document = gather(app)
    session.emit(document, render(document))
    return 0


def render(document: dict[str, Any]) -> list[str]:
    head = document["headline"]
    first = head["sentence"]
    if head["state"] == "empty":
        first = f"{first}: {head['command']}"
    elif head["command"]:
        first = f"{first}: {head['who']} can lift it with `{head['command']}`"
        if head["state"] != "blocked":
            first = f"{head['sentence']}: try `{head['command']}`"
    lines = [first, f"environment {document['environment']}, {utc(document['at'])}"]
    if datasets := _dataset_rows(document):
        lines += ["", *table(("DATASET", "VERSION", "PROMOTED", "LAST RUN", "RUN ID"), datasets)]
    for title, rows in (
        ("needs attention", _attention_rows(document)),
        ("running", _running_rows(document)),
        ("locks", _lock_rows(document)),
        ("switches", _switch_rows(document)),
        ("providers", _breaker_rows(document)),
        ("incidents", _incident_rows(document)),
        ("failed work", _ahead_rows(document)),
        ("requests", _request_rows(document)),
        ("not shown yet", _pending_rows(document)),
        ("not delivered yet", _lineage_rows(document)),
        ("announced objects", _unit_rows(document)),
    ):
        if rows:
            lines += ["", f"{title}:", *rows]
    return lines


def _dataset_rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for dataset in document["datasets"]:
        last = dataset["last_run"]
        rows.append(
            (
                dataset["dataset_id"],
                str(dataset["version"] or "-"),
                utc(dataset["promoted_at"]) if dataset["promoted_at"] else "-",
                last["status"] if last else "-",
                short_id(last["run_id"]) if last else "-",
            )
        )
    return rows


def _unit_rows(document: dict[str, Any]) -> list[str]:
    if document["units"] is None:
        return []
    from kfm.cli.unit_status import unit_status_rows

    return unit_status_rows(document["units"])


def _attention_rows(document: dict[str, Any]) -> list[str]:
    rows = []
    for run in document["needs_attention"]:
        tries = f", {run['attempts']} attempts" if run["attempts"] > 1 else ""
        rows.append(
            f"  {short_id(run['run_id'])}  {run['dataset_id']} from {run['source_id']}, "
            f"{between(run['window_start'], run['window_end'])}: {run['error_code'] or 'an error'}{tries}"
        )
        rows.append(f"                 `{run['command']}`")
    if document["needs_attention_more"]:
        rows.append(f"  … and {document['needs_attention_more']} more: kfm runs --status failed")
    return rows


def _running_rows(document: dict[str, Any]) -> list[str]:
    rows = []
    for run in document["running"]:
        held = (
            f"held by {run['holder']}"
            if run["holder"]
            else "held by nobody: the next `kfm run` takes it over"
        )
        left = f", lease ends in {duration(run['lease_left_ms'])}" if run["holder"] else ""
        rows.append(
            f"  {short_id(run['run_id'])}  {run['dataset_id']} from {run['source_id']}, "
            f"attempt {run['attempt']}, since {utc(run['started_at'])}, {held}{left}"
        )
    return rows


def _lock_rows(document: dict[str, Any]) -> list[str]:
    return [
        f"  {lock['scope']}  fence {lock['fence']}, run {short_id(lock['run_id'])}, "
        + (f"lease ends in {duration(lock['lease_left_ms'])}" if lock["lease_left_ms"] else "lease lapsed")
        for lock in document["locks"]
    ]


def _switch_rows(document: dict[str, Any]) -> list[str]:
    return [
        f"  {switch['scope']}  {switch['position']} since {utc(switch['set_at'])} "
        f"by {one_line(switch['actor'])}: {one_line(switch['rationale'])}"
        for switch in document["switches"]
    ]


def _breaker_rows(document: dict[str, Any]) -> list[str]:
    if not document["breakers"]:
        return []
    from kfm.documents.breakers import breaker_text

    return [f"  {breaker_text(breaker)}" for breaker in document["breakers"]]


def _incident_rows(document: dict[str, Any]) -> list[str]:
    if not document["incidents"]:
        return []
    from kfm.documents.incidents import incident_text

    return [f"  {short_id(each['incident_id'])}  {incident_text(each)}" for each in document["incidents"]]


def _ahead_rows(document: dict[str, Any]) -> list[str]:
    if document["held"] is None and document["next_retry"] is None:
        return []
    from kfm.cli.ahead_lines import ahead_rows

    return ahead_rows(document)


def _request_rows(document: dict[str, Any]) -> list[str]:
    counts = document["requests"]
    told = [
        f"{counts[state]} {word}"
        for state, word in (
            ("running", "running"),
            ("open", "waiting"),
            ("awaiting_approval", "waiting for an approval (`kfm approve`)"),
        )
        if counts[state]
    ]
    return [f"  {', '.join(told)}: `kfm requests list`"] if told else []


def _lineage_rows(document: dict[str, Any]) -> list[str]:
    waiting, oldest = document["lineage"]["waiting"], document["lineage"]["oldest"]
    if not waiting:
        return []
    events = f"{waiting} lineage event{'s' if waiting != 1 else ''}"
    return [f"  {events} since {utc(oldest)}; send with `kfm lineage deliver`"]


def _pending_rows(document: dict[str, Any]) -> list[str]:
    return [
        f"  {pending['dataset_id']} on {pending['target']}: shows {pending['shown'] or 'nothing'}, "
        f"promoted is {pending['promoted']}; make it with `kfm project`"
        for pending in document["pending_projections"]
    ]
