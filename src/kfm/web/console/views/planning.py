"""A new plan: what is meant, the list that it comes to, and the form that has exactly this carried out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from secrets import token_urlsafe
from typing import Any, Literal

from kfm.model.errors import KfmError, UsageError
from kfm.model.plan_cells import Cell, InstantCell, UnitsCell, WindowCell, cells_text, parse_cells
from kfm.model.quantities import counted, readable_size, utc
from kfm.model.records import UNIT_STATUSES, Record
from kfm.model.replays import MODES
from kfm.model.roles import decide
from kfm.reports.state_words import UNITS
from kfm.web.api.access import require
from kfm.web.api.operations import TIME
from kfm.web.api.operations import read_query as read_parameters
from kfm.web.api.perform import body_of, perform
from kfm.web.console.actions import BY_NAME, curl_line, lack
from kfm.web.console.forms import as_utc
from kfm.web.console.state_words import Word, word
from kfm.web.console.visit import Filter, NotHere, TypedFilter, Visit, chosen, typed
from kfm.web.openapi import BASE
from kfm.web.problems import Problem, problem_of

Kind = Literal["replay", "missing", "backfill"]
KINDS: dict[str, str] = {"replay": "Replay", "missing": "Missing windows", "backfill": "Backfill"}
CELLS, KEY = "cells", "key"
FILTERS = (
    "kind",
    CELLS,
    "dataset",
    "schedule",
    "error",
    "status",
    "state",
    "mode",
    "since",
    "from",
    "to",
    "units_max",
)
SHOWN_MAX = 200
TARGET = {"replay": "planReplay", "missing": "askForMissing", "backfill": "backfillSchedule"}
_SAID = ("rationale", "ticket", "name")


class Entry(Record, frozen=True):
    """One of the list."""

    name: str
    what: str
    word: Word
    why: str
    dataset_id: str = ""


class PlanningView(Record, frozen=True):
    title: str
    kind: str
    filters: tuple[Filter | TypedFilter, ...]
    selected: str  # how many cells are meant; empty: what the filters say
    clear: str
    is_planned: bool
    count: int
    counted: str
    size: str
    digest: str
    breakdown: tuple[str, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    entries: tuple[Entry, ...]
    entries_more: int
    given: tuple[tuple[str, str], ...]
    verb: str
    effect: str
    has_rate: bool
    rate: str
    name: str
    rationale: str
    ticket: str
    refused: str
    problem: str
    remedy: str
    command: str
    curl: str
    here: str


def view(visit: Visit) -> PlanningView:
    """What is meant, and the list that it comes to now."""
    return _page(visit, dict(visit.query), "", "")


def sent(visit: Visit, form: Mapping[str, str]) -> tuple[int, PlanningView | str]:
    """The address of the plan that was made; or the page again, with what is wrong and the list now."""
    values = {name: form.get(name, "").strip() for name in (*FILTERS, *_SAID, "rate", "digest", KEY)}
    values = {name: value for name, value in values.items() if value}
    try:
        return 303, _carry_out(visit, values)
    except (KfmError, Problem) as error:
        problem = problem_of(error)
        remedy = str(problem.document().get("remedy", ""))
        return problem.status, _page(visit, values, problem.detail, remedy)


def _carry_out(visit: Visit, values: Mapping[str, str]) -> str:
    kind, cells = _kind(values)
    operation = BY_NAME[TARGET[kind]]
    require(visit.context, visit.identity, operation.role or "operate", f"POST {operation.shown_path}")
    if re.fullmatch(r"[A-Za-z0-9_-]{16,64}", values.get(KEY, "")) is None:
        raise Problem(400, "The form has no key of its own: open it again.")
    assert operation.body is not None
    body = body_of(_body(kind, cells, values), operation.body)
    reply = perform(
        visit.context,
        visit.identity,
        operation,
        path=_path(visit, kind, cells, values),
        query={},
        body=body,
        key=f"console:{values[KEY]}",
        base=BASE,
    )
    if kind == "replay":
        return visit.at("plans", reply.document["replay"]["replay_id"])
    made = reply.document["plan_id"]
    return visit.at("plans", made) if made else visit.href("plans")


# --- what is meant -----------------------------------------------------------------------


def _kind(values: Mapping[str, str]) -> tuple[Kind, tuple[Cell, ...]]:
    cells = parse_cells(values.get(CELLS, ""))
    if cells:
        found: dict[type, Kind] = {UnitsCell: "replay", WindowCell: "missing", InstantCell: "backfill"}
        return found[type(cells[0])], cells
    kind = values.get("kind", "replay")
    if kind not in KINDS:
        raise UsageError(f"`kind` is one of {', '.join(KINDS)}.")
    return kind, ()  # type: ignore[return-value]


def _path(visit: Visit, kind: Kind, cells: Sequence[Cell], values: Mapping[str, str]) -> dict[str, str]:
    if kind != "backfill":
        return {}
    first = cells[0] if cells else None
    shown = first.schedule_id if isinstance(first, InstantCell) else values.get("schedule", "")
    schedule_id = visit.schedule(shown)
    if schedule_id not in {one.id for one in visit.context.schedules}:
        raise NotHere("There is no such schedule.")
    return {"schedule_id": str(schedule_id)}


def _asked(kind: Kind, cells: Sequence[Cell], values: Mapping[str, str]) -> dict[str, Any]:
    """What is meant, in the names of the operations."""
    found: dict[str, Any] = {CELLS: cells_text(cells)} if cells else {}
    if kind == "backfill":
        times = [one.instant_ms for one in cells if isinstance(one, InstantCell)]
        start, end = _time(values, "from"), _time(values, "to")
        if times:
            from kfm.model.times import rfc3339

            start, end = rfc3339(min(times)), rfc3339(max(times) + 1)
        return found | {"start": start, "end": end}
    if kind == "missing":
        named = {} if cells else {"dataset": values.get("dataset")}
        return (
            found
            | named
            | {
                "start": _time(values, "from"),
                "end": _time(values, "to"),
                "state": values.get("state"),
            }
        )
    named = {} if cells else {"datasets": values.get("dataset")}
    return (
        found
        | named
        | {
            "error_codes": values.get("error"),
            "statuses": values.get("status"),
            "mode": values.get("mode"),
            "created_after": _time(values, "since"),
            "units_max": values.get("units_max"),
        }
    )


def _time(values: Mapping[str, str], name: str) -> str | None:
    text = values.get(name)
    if not text:
        return None
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        text = f"{text}T00:00:00Z"
    text = as_utc(text.removesuffix("Z"))
    if re.fullmatch(TIME, text) is None:
        raise UsageError(f"`{name}` is a time such as 2026-01-31 or 2026-01-31T06:00:00Z.")
    return text


def _body(kind: Kind, cells: Sequence[Cell], values: Mapping[str, str]) -> dict[str, Any]:
    asked = {name: value for name, value in _asked(kind, cells, values).items() if value}
    if kind == "replay":
        for name in ("datasets", "error_codes", "statuses"):
            if name in asked:
                asked[name] = asked[name].split(",")
        if units_max := asked.pop("units_max", None):
            asked["limit"] = _number(units_max, "At most")
        if rate := values.get("rate"):
            asked["rate"] = _number(rate, "The rate")
        asked["run"] = True
    elif kind == "backfill":
        asked |= {"missed_only": True}
    return asked | {name: values[name] for name in (*_SAID, "digest") if values.get(name)}


def _number(text: str, what: str) -> int | float:
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,3})?", text) is None or float(text) == 0:
        raise UsageError(f"{what} is a number above 0.")
    return float(text) if "." in text else int(text)


# --- the list that it comes to -------------------------------------------------------------


def _page(visit: Visit, values: dict[str, str], problem: str, remedy: str) -> PlanningView:
    kind, cells = _kind(values)
    asked = {name: value for name, value in _asked(kind, cells, values).items() if value}
    document: dict[str, Any] | None = None
    if _is_told(kind, cells, asked, values):
        try:
            document = _listed(visit, kind, cells, asked, values)
        except (KfmError, Problem) as error:
            found = problem_of(error)
            problem = problem or found.detail
            remedy = remedy or str(found.document().get("remedy", ""))
    operation = BY_NAME[TARGET[kind]]
    digest = document["digest"] if document is not None else ""
    values["digest"] = digest
    entries, counts = _entries(kind, document) if document is not None else ([], 0)
    body = _body(kind, cells, {**values, "rate": _plain(values.get("rate", ""))})
    return PlanningView(
        title=f"New plan: {KINDS[kind].lower()}",
        kind=kind,
        filters=() if cells else tuple(_filters(visit, kind, values)),
        selected=counted(len(cells), "selected cell") if cells else "",
        clear=visit.href("plans/new", kind=kind),
        is_planned=document is not None and counts > 0,
        count=counts,
        counted=counted(counts, "unit" if kind == "replay" else "window"),
        size=_size(document) if document is not None else "",
        digest=digest,
        breakdown=tuple(_breakdown(document)) if document is not None and kind == "replay" else (),
        left_out=tuple(_left_out(kind, document)) if document is not None else (),
        notes=tuple(_notes(visit, kind, document)) if document is not None else (),
        entries=tuple(entries[:SHOWN_MAX]),
        entries_more=max(counts - SHOWN_MAX, 0),
        given=tuple(_given(kind, cells, values)),
        verb=_verb(kind, document),
        effect=_effect(kind),
        has_rate=kind == "replay",
        rate=values.get("rate", ""),
        name=values.get("name", ""),
        rationale=values.get("rationale", ""),
        ticket=values.get("ticket", ""),
        refused=lack(visit.identity, operation.role or "operate", visit.context.people),
        problem=problem,
        remedy=remedy,
        command=_command(kind, cells, values, asked),
        curl=curl_line(operation, _path_or_none(visit, kind, cells, values), body),
        here=visit.href("plans/new"),
    )


def _plain(rate: str) -> str:
    return rate if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,3})?", rate) and float(rate) else ""


def _is_told(kind: Kind, cells: Sequence[Cell], asked: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    """Is enough said to make a list of it?"""
    if kind == "backfill":
        return bool(cells or values.get("schedule")) and bool(asked.get("start") and asked.get("end"))
    if kind == "missing":
        return bool(cells or asked.get("dataset"))
    return bool(cells or asked.get("datasets") or asked.get("error_codes") or asked.get("created_after"))


def _listed(
    visit: Visit, kind: Kind, cells: Sequence[Cell], asked: Mapping[str, Any], values: Mapping[str, str]
) -> dict[str, Any]:
    if kind == "backfill":
        return _backfill(visit, _path(visit, kind, cells, values)["schedule_id"], cells, asked)
    operation = BY_NAME["previewReplay" if kind == "replay" else "previewMissing"]
    query = read_parameters(list(asked.items()), operation.parameters)
    reply = perform(visit.context, visit.identity, operation, path={}, query=query, base=BASE)
    document: dict[str, Any] = reply.document
    return document


def _backfill(
    visit: Visit, schedule_id: str, cells: Sequence[Cell], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """What the operation would make requests for. It reads only, so it is asked as the caller may."""
    from kfm.model.times import parse_rfc3339
    from kfm.reports.schedules import backfill_document
    from kfm.service.schedule_changes import backfill_digest, plan_backfill

    schedule = next(one for one in visit.context.schedules if one.id == schedule_id)
    source = visit.context.settings.source(schedule.source)
    if visit.visibility.hides(source.dataset):
        raise Problem(403, "The content of this dataset needs the role operate.")
    with visit.context.app(visit.identity, read_only=True) as app:
        start_ms, end_ms = parse_rfc3339(asked["start"]), parse_rfc3339(asked["end"])
        planned = plan_backfill(app, schedule, start_ms, end_ms, only_missed=True)
    wanted = {one.instant_ms for one in cells if isinstance(one, InstantCell)}
    chosen_ones = [one for one in planned if not wanted or one.instant_ms in wanted]
    documents = [backfill_document(one) for one in chosen_ones]
    skipped = len(wanted - {one.instant_ms for one in chosen_ones})
    return {
        "digest": backfill_digest(schedule, chosen_ones),
        "source_id": source.id,
        "instants": [one for one in documents if not one["has_request"]],
        "skipped": skipped + sum(one["has_request"] for one in documents),
    }


def _entries(kind: Kind, document: Mapping[str, Any]) -> tuple[list[Entry], int]:
    if kind == "replay":
        units = document["units"]
        return [
            Entry(
                name=unit["wal_id"],
                what=unit["object_uri"],
                word=word(UNITS.get(unit["status"], unit["status"])),
                why=unit["error_code"] or "",
            )
            for unit in units[:SHOWN_MAX]
        ], len(units)
    if kind == "missing":
        windows = document["windows"]
        return [
            Entry(
                name=_span(one),
                what=one["source_id"],
                word=word(one["state"]),
                why=one["reason"] or one["why"] or "",
            )
            for one in windows[:SHOWN_MAX]
        ], len(windows)
    instants = document["instants"]
    return [
        Entry(name=utc(one["instant"]), what=_span(one), word=word(one["fate"]), why="")
        for one in instants[:SHOWN_MAX]
    ], len(instants)


def _span(one: Mapping[str, Any]) -> str:
    if one["window_start"] is None or one["window_end"] is None:
        return "snapshot"
    return f"{utc(one['window_start'])} … {utc(one['window_end'])}"


def _size(document: Mapping[str, Any]) -> str:
    found = document.get("bytes")
    if found is None:
        return ""
    units = len(document["units"])
    partly = "" if found["units"] == units else f" of the {found['units']} whose size is known"
    return f"{readable_size(found['size'])}{partly}"


def _breakdown(document: Mapping[str, Any]) -> list[str]:
    counts = document["counts"]
    shown = [("by dataset", "by_dataset"), ("by error", "by_error_code"), ("by status", "by_status")]
    return [
        f"{text}: {', '.join(f'{name} {many}' for name, many in counts[field].items())}"
        for text, field in shown
        if counts[field]
    ]


def _left_out(kind: Kind, document: Mapping[str, Any]) -> list[str]:
    if kind == "replay":
        return [f"{counted(many, 'unit')}: {why}" for why, many in document["left_out"].items()]
    if kind == "backfill":
        skipped = document["skipped"]
        why = "it has a request, ran, or is not due yet"
        return [f"{counted(skipped, 'scheduled time')}: {why}"] if skipped else []
    reasons: dict[str, int] = {}
    for one in document["skipped"]:
        reasons[one["reason"] or ""] = reasons.get(one["reason"] or "", 0) + 1
    return [f"{counted(many, 'window')}: {why}" for why, many in reasons.items()]


def _notes(visit: Visit, kind: Kind, document: Mapping[str, Any]) -> list[str]:
    if kind == "missing":
        return [one["sentence"] for one in document["blocked_by"]]
    if kind == "replay" and document["needs_approval"]:
        people = decide(visit.identity, "approve", visit.context.people, remote=True).others
        who = f" ({', '.join(people[:3])})" if people else ""
        return [
            "Work that had ended would come back: a second person"
            f"{who} has to approve exactly this list before it is run."
        ]
    return []


def _verb(kind: Kind, document: Mapping[str, Any] | None) -> str:
    if kind != "replay":
        return "Ask for all of it"
    return "Freeze, and ask for approval" if document and document["needs_approval"] else "Freeze and run"


def _effect(kind: Kind) -> str:
    if kind != "replay":
        return "A request for each of these windows, made together; runners take them up one by one."
    return (
        "Each unit of this list is due again, with a new grant of attempts and a receipt. If one has changed "
        "since it was shown, nothing is done."
    )


def _given(kind: Kind, cells: Sequence[Cell], values: Mapping[str, str]) -> list[tuple[str, str]]:
    kept = [(name, values[name]) for name in FILTERS if values.get(name) and name not in ("kind", CELLS)]
    chosen_cells = [(CELLS, cells_text(cells))] if cells else []
    return [
        ("kind", kind),
        *chosen_cells,
        *kept,
        ("digest", values.get("digest", "")),
        (KEY, token_urlsafe(16)),
    ]


def _filters(visit: Visit, kind: Kind, values: Mapping[str, str]) -> list[Filter | TypedFilter]:
    settings = visit.context.settings
    if kind == "replay":
        names = sorted(
            {
                dataset
                for dataset, _ in visit.reader.unit_reader().unit_counts()
                if not visit.visibility.hides_units(dataset)
            }
        )
        words = [UNITS.get(each, each) for each in UNIT_STATUSES]
        return [
            _hidden_kind(kind),
            chosen("dataset", "Dataset", names, values.get("dataset")),
            typed("error", "Error code", values.get("error")),
            chosen("status", "Status", UNIT_STATUSES, values.get("status"), words),
            chosen("mode", "What may come back", MODES, values.get("mode")),
            typed("since", "Taken in since (UTC)", values.get("since")),
            typed("units_max", "At most", values.get("units_max")),
        ]
    if kind == "missing":
        datasets = [one.id for one in settings.datasets if not visit.visibility.hides(one.id)]
        return [
            _hidden_kind(kind),
            chosen("dataset", "Dataset", datasets, values.get("dataset")),
            typed("from", "From (UTC)", values.get("from")),
            typed("to", "Before (UTC)", values.get("to")),
        ]
    schedules = [one.id for one in visit.context.schedules]
    return [
        _hidden_kind(kind),
        chosen("schedule", "Schedule", schedules, values.get("schedule")),
        typed("from", "From (UTC)", values.get("from")),
        typed("to", "Before (UTC)", values.get("to")),
    ]


def _hidden_kind(kind: Kind) -> Filter:
    found = chosen("kind", "Of", tuple(KINDS), kind, tuple(KINDS.values()))
    return Filter(name=found.name, label=found.label, options=found.options[1:])


# --- the same elsewhere --------------------------------------------------------------------


def _command(
    kind: Kind,
    cells: Sequence[Cell],
    values: Mapping[str, str],
    asked: Mapping[str, Any],
) -> str:
    reason = ["--rationale", values.get("rationale") or "TEXT"]
    ticket = ["--ticket", values["ticket"]] if values.get("ticket") else []
    if kind == "backfill":
        schedule = next((one.schedule_id for one in cells if isinstance(one, InstantCell)), None)
        words = ["kfm", "schedule", "backfill", schedule or values.get("schedule") or "SCHEDULE"]
        words += ["--from", asked.get("start") or "TIME", "--to", asked.get("end") or "TIME"]
        words += [part for one in cells for part in ("--cell", cells_text([one]))]
        words += ["--missed", "--yes"]
    elif kind == "missing":
        words = ["kfm", "run", "--missing"]
        words += [asked["dataset"]] if asked.get("dataset") else []
        for one in cells:
            words += ["--cell", cells_text([one])]
        for name, option in (("start", "--from"), ("end", "--to"), ("state", "--state")):
            words += [option, asked[name]] if asked.get(name) else []
        words += ["--digest", values["digest"]] if values.get("digest") else []
    else:
        words = ["kfm", "replay", "run"]
        for one in cells:
            words += ["--cell", cells_text([one])]
        for name, option in (
            ("datasets", "--dataset"),
            ("error_codes", "--error-code"),
            ("statuses", "--status"),
            ("mode", "--mode"),
            ("created_after", "--created-after"),
            ("units_max", "--limit"),
        ):
            words += [option, str(asked[name])] if asked.get(name) else []
        words += ["--rate", values["rate"]] if values.get("rate") else []
        words += ["--confirm"]
    return shlex.join([*words, *reason, *ticket])


def _path_or_none(
    visit: Visit, kind: Kind, cells: Sequence[Cell], values: Mapping[str, str]
) -> dict[str, str]:
    try:
        return _path(visit, kind, cells, values)
    except NotHere:
        return {"schedule_id": "SCHEDULE"}
