"""JSON schemas of answers: those of the commands, and those that only the API has."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, get_args

import msgspec

import kfm
from kfm.model.completeness import WINDOW_STATES
from kfm.model.records import UNIT_STATUSES
from kfm.model.targets import Taking
from kfm.reports.replays import STAGES
from kfm.web.api.components import DEFINED, Components, dereferenced
from kfm.web.problems import problem_schema

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(kfm.__file__)), "contracts", "schemas")
_TEXT = {"type": "string"}
_SOME = {"type": ["string", "null"]}
_AT = {"type": "string", "format": "date-time"}
_SOMETIME = {"type": ["string", "null"], "format": "date-time"}
_NUMBER = {"type": "integer", "minimum": 0}


def _object(**properties: Any) -> dict[str, Any]:
    """An object with exactly these members."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(properties),
        "properties": properties,
    }


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


@cache
def contract(name: str) -> dict[str, Any]:
    """A schema of the contracts, as a part of an OpenAPI document."""
    return dereferenced(_stored(name))


@cache
def definition(name: str, part: str) -> dict[str, Any]:
    """One definition of a schema of the contracts."""
    return dereferenced({"$defs": _stored(name)["$defs"], "$ref": f"#/$defs/{part}"})


def _stored(name: str) -> dict[str, Any]:
    with open(os.path.join(_FOLDER, f"{name}.schema.json"), encoding="utf-8") as file:
        schema: dict[str, Any] = json.load(file)
    return {key: each for key, each in schema.items() if key not in ("$schema", "$id", "title")}


def paged(name: str) -> dict[str, Any]:
    """The command's document, with a cursor of the next page."""
    schema = contract(name)
    return {
        **schema,
        "required": sorted({*schema["required"], "more", "next"}),
        "properties": {**schema["properties"], "more": {"type": "boolean"}, "next": _SOME},
    }


def _with_more(schema: dict[str, Any]) -> dict[str, Any]:
    """A dataset's document of a command, of which the API shows no more than `limit`; asked for by an earlier
    name, it has the one that readers find it by now."""
    properties = {**schema["properties"], "more": {"type": "boolean"}, "next": _SOME, "renamed_to": _SOME}
    return {**schema, "required": sorted(properties), "properties": properties}


def _state() -> dict[str, Any]:
    paused = _object(at=_AT, by=_SOME, rationale=_SOME)
    return {"accounted_until": _SOMETIME, "paused": {**paused, "type": ["object", "null"]}}


def _schedule() -> dict[str, Any]:
    """A schedule as the command prints it, with its state."""
    schema = contract("cli-schedule-list")["properties"]["schedules"]["items"]
    properties = {name: each for name, each in schema["properties"].items() if name != "recent"}
    properties |= _state()
    return {**schema, "required": sorted(properties), "properties": properties}


def _graph() -> dict[str, Any]:
    schema = contract("cli-graph")
    left = {name: value for name, value in schema["properties"].items() if name != "svg"}
    return {**schema, "type": ["object", "null"], "required": sorted(left), "properties": left}


def _life() -> dict[str, dict[str, Any]]:
    """Datasets, their versions and what people change about them."""
    whole = contract("cli-dataset-show")["properties"]["dataset"]
    shown = whole["properties"]
    version, purges = shown["versions"]["items"], shown["purges"]
    more: dict[str, Any] = {"type": "boolean"}
    file = _object(path=_TEXT, sha256=_TEXT, bytes=_NUMBER, media_type=_TEXT)
    item = _object(
        item_id=_TEXT,
        source_id=_TEXT,
        window_start=_SOMETIME,
        window_end=_SOMETIME,
        partition=_SOME,
        files=_list(file),
    )
    made = contract("cli-withdraw")
    properties = {name: each for name, each in made["properties"].items() if name != "exit_code"}
    told = properties["receipt"]["anyOf"][0]["properties"]["change"]
    change, optional = told["properties"], set(told["properties"]) - set(told["required"])
    target = _object(target=_TEXT, version={"type": ["integer", "null"]}, state={"enum": ["shown", "behind"]})
    receipt = _object(
        **change,
        removed=_NUMBER,
        lifts=_list(_TEXT),
        targets=_list(target),
        purges=purges,
        out_of_reach=_list(_object(what=_TEXT, name=_TEXT, detail=_TEXT)),
    )
    receipt["required"] = sorted(set(receipt["required"]) - optional)
    summary = {name: each for name, each in shown.items() if name != "versions"}
    return {
        "dataset": {
            **_object(**summary, head={"anyOf": [version, {"type": "null"}]}, targets=_list(_target())),
            "required": sorted({*whole["required"], "head", "targets"} - {"versions"}),
        },
        "versions": _object(dataset_id=_TEXT, versions=_list(version), more=more, next=_SOME),
        "version": _object(dataset_id=_TEXT, version=version, items=_list(item), more=more, next=_SOME),
        "version-diff": _version_diff(),
        "item": _object(dataset_id=_TEXT, version=_NUMBER, item=item),
        "change": {**made, "required": ["applied", "plan", "receipt"], "properties": properties},
        "dataset-changes": _object(changes=_list(receipt), more=more, next=_SOME),
        "dataset-change": _object(change=receipt),
    }


def _target() -> dict[str, Any]:
    """What one target shows of a dataset."""
    number = {"type": ["integer", "null"], "minimum": 0}
    shown = _object(
        target=_TEXT,
        kind=_TEXT,
        state={"enum": ["shown", "behind", "not taken", "never"]},
        taking={"enum": list(get_args(Taking))},
        head=number,
        version=number,
        behind=_NUMBER,
        since=_SOMETIME,
    )
    return {**shown, DEFINED: "dataset-target"}  # plans have targets, too


def _version_diff() -> dict[str, Any]:
    """Two versions compared by files, columns and rows."""
    kind = {"enum": ["added", "changed", "removed"]}
    count, some = {"type": ["integer", "null"], "minimum": 0}, _SOME
    change = _object(
        kind=kind,
        what=_TEXT,
        name=_TEXT,
        item_id=some,
        size_before=count,
        size_after=count,
        sha256_before=some,
        sha256_after=some,
        before=some,
        after=some,
    )
    cell = _object(column=_TEXT, before=some, after=some)
    table = _object(
        path=_TEXT,
        earlier_path=some,
        source_id=_TEXT,
        is_compared={"type": "boolean"},
        why_not=some,
        key=_list(_TEXT),
        added=_NUMBER,
        changed=_NUMBER,
        removed=_NUMBER,
        unchanged=_NUMBER,
        columns=_list(_object(kind=kind, column=_TEXT, before=some, after=some)),
        rows=_list(_object(kind=kind, key=some, cells=_list(cell))),
        rows_more=_NUMBER,
    )
    return _object(
        dataset_id=_TEXT,
        against=count,
        version=_NUMBER,
        summary=_TEXT,
        files_added=_NUMBER,
        files_changed=_NUMBER,
        files_removed=_NUMBER,
        files_unchanged=_NUMBER,
        changes=_list(change),
        changes_more=_NUMBER,
        tables=_list(table),
        tables_more=_NUMBER,
        shows_values={"type": "boolean"},
    )


def _feeds() -> dict[str, dict[str, Any]]:
    """Announced datasets: their standing, hours, failures and reconciliation."""
    more: dict[str, Any] = {"type": "boolean"}
    maybe = {"type": ["integer", "null"], "minimum": 0}
    mark = contract("cli-nodd-watermarks")["properties"]["watermarks"]["items"]
    health = definition("cli-coverage", "health")
    standing = _object(
        dataset=_TEXT,
        is_expected={"type": "boolean"},
        health={"anyOf": [health, {"type": "null"}]},
        newest=_SOMETIME,
        lag_ms=maybe,
        watermark={"anyOf": [mark, {"type": "null"}]},
        expected=maybe,
        arrived=maybe,
        gaps=maybe,
        backlog=_object(
            waiting=_NUMBER, running=_NUMBER, retrying=_NUMBER, more_than_six_hours_ago={"type": "integer"}
        ),
        per_hour={"type": "number", "minimum": 0},
        units=_object(**dict.fromkeys(UNIT_STATUSES, _NUMBER)),
    )
    dead = _object(error_code=_TEXT, queue=_TEXT, count=_NUMBER, times=_NUMBER, first_at=_AT, last_at=_AT)
    hour = _object(
        source_id=_TEXT,
        product=_TEXT,
        platform=_SOME,
        start=_AT,
        end=_AT,
        state={"enum": list(WINDOW_STATES)},
        expected=maybe,
        arrived=_NUMBER,
        running=_NUMBER,
        waiting=_NUMBER,
        retrying=_NUMBER,
        failed=_NUMBER,
        quarantined=_NUMBER,
        newest=_SOMETIME,
        error_code=_SOME,
    )
    failure = _object(
        dataset=_TEXT,
        error_code=_SOME,
        state={"enum": ["failed", "quarantined", "retrying"]},
        count=_NUMBER,
        since=_AT,
        last_at=_AT,
        heals={"type": "boolean"},
        next_attempt=_SOMETIME,
        then=_TEXT,
        message=_SOME,
        example=_TEXT,
        incident_id=_SOME,
        command=_SOME,
    )
    flow = _object(
        hour_start=_AT, taken_in=_NUMBER, ended=_NUMBER, open={"type": "integer"}, latency_ms=maybe
    )
    return {
        "feeds": _object(feeds=_list(standing), dead_messages=_list(dead), more=more, next=_SOME),
        "feed": _object(
            feed=standing,
            start=_AT,
            end=_AT,
            hours=_list(hour),
            flow=_list(flow),
            next_steps=_list(_TEXT),
            more=more,
            next=_SOME,
        ),
        "feed-failures": _object(dataset=_TEXT, failures=_list(failure), more=more, next=_SOME),
    }


def _plans() -> dict[str, dict[str, Any]]:
    """Lists that are frozen, and what has become of their entries."""
    replay = contract("cli-replay-list")["properties"]["replays"]["items"]
    counts = {"type": "object", "additionalProperties": _NUMBER}
    plan = _object(
        plan_id=_TEXT,
        kind={"enum": ["replay", "backfill", "missing"]},
        name=_SOME,
        stage={"enum": list(STAGES)},
        digest=_TEXT,
        subject=_TEXT,
        datasets=_list(_TEXT),
        requested_by=_TEXT,
        rationale=_SOME,
        made_at=_AT,
        entries=_NUMBER,
        done=_NUMBER,
        open=_NUMBER,
        in_vain=_NUMBER,
        left_out=counts,
    )
    window = _object(
        number=_NUMBER,
        source_id=_TEXT,
        dataset_id=_TEXT,
        window_start=_SOMETIME,
        window_end=_SOMETIME,
        instant=_SOMETIME,
        was=_TEXT,
        why=_TEXT,
        request_id=_SOME,
        state=_SOME,
        outcome=_SOME,
        reason=_SOME,
        run_id=_SOME,
        ended_at=_SOMETIME,
    )
    more: dict[str, Any] = {"type": "boolean"}
    approval = contract("cli-replay-run")["properties"]["request"]
    return {
        "plans": _object(plans=_list(plan), more=more, next=_SOME),
        "plan-of-windows": _object(plan=plan, windows=_list(window), more=more, next=_SOME),
        "missing": contract("cli-run-missing"),
        "replays": paged("cli-replay-list"),
        "replay": paged("cli-replay-inspect"),
        "replay-selection": paged("cli-replay-select"),
        "replay-answer": _object(replay=replay, left_out=counts, request=approval),
        "discarded": _object(held=contract("cli-quarantine-show")["properties"]["held"]),
    }


def shapes() -> dict[str, dict[str, Any]]:
    """The schemas that only the API has, by name."""
    return {
        "runs": paged("cli-runs"),
        "audit": paged("cli-audit-list"),
        "units": paged("cli-nodd-units"),
        "dead-letters": paged("cli-nodd-dead-list"),
        "quarantine": paged("cli-quarantine-list"),
        "incidents": paged("cli-incident-list"),
        "approvals": paged("cli-approve-list"),
        "attempts": _object(
            run_id=_TEXT, attempts=_list(contract("attempt")), retries=_list(contract("retry"))
        ),
        "nodes": _object(run_id=_TEXT, attempt=_NUMBER, nodes=_list(contract("attempt")), pipeline=_graph()),
        "run-log": _object(
            run_id=_TEXT,
            attempt=_NUMBER,
            lines=_list(_object(at=_AT, level=_TEXT, phase=_TEXT, message=_TEXT, facts={"type": "object"})),
            more={"type": "boolean"},
            next=_TEXT,
            ended={"type": "boolean"},
        ),
        "cancelled-run": _object(
            run_id=_TEXT, requests=contract("cli-requests-list")["properties"]["requests"]
        ),
        "provenance": {"type": "object", "required": ["@context"]},
        "datasets": _object(
            datasets=_list(
                _object(
                    dataset_id=_TEXT,
                    name=_TEXT,
                    version={"type": ["integer", "null"]},
                    promoted_at=_SOMETIME,
                    health=definition("cli-coverage", "health"),
                    domain=_TEXT,
                    owner=_SOME,
                    holes=_NUMBER,
                    complete_percent={"type": ["integer", "null"], "minimum": 0, "maximum": 100},
                )
            ),
            more={"type": "boolean"},
            next=_SOME,
        ),
        **_life(),
        "coverage": _with_more(definition("cli-coverage", "dataset")),
        "requests": paged("cli-requests-list"),
        "schedules": _object(schedules=_list(_schedule())),
        "instants": _object(
            schedule_id=_TEXT,
            start=_AT,
            end=_AT,
            instants=contract("cli-schedule-history")["properties"]["instants"],
            more={"type": "boolean"},
            next=_SOME,
        ),
        "schedule-state": _object(schedule_id=_TEXT, changed={"type": "boolean"}, **_state()),
        "preview": _object(request_id=_TEXT, run_id=_SOME, plan={"type": "object"}),
        "whoami": _object(
            subject=_SOME,
            known_by={"enum": ["token", "account", "nothing"]},
            roles=_list({"enum": ["read", "operate", "approve"]}),
            people=_NUMBER,
        ),
        **_feeds(),
        **_plans(),
        "events": _TEXT,
        "problem": problem_schema(),
    }


@cache
def schemas(names: tuple[str, ...], bodies: tuple[type[msgspec.Struct], ...]) -> dict[str, dict[str, Any]]:
    """The components of these answers and bodies, and of all that they hold."""
    _, taken = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    known = shapes()
    components = Components(taken, names)
    for name in names:
        components.add(name, known[name] if name in known else contract(name))
    return dict(sorted(components.schemas.items()))
