"""Which operation of a service's API each command is, when it is called with --server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kfm.model.errors import UsageError

LISTED_MAX = 1_000_000  # of `kfm nodd reconcile` unless it is told; a service has a limit of its own
Given = Mapping[str, Any]  # the command's arguments and options, by name
REASON = {"rationale": "rationale", "ticket": "ticket", "actor": "actor"}


class Remote(NamedTuple):
    """One command. Braces in `path` and the names in `sends` are its arguments and options."""

    method: str
    path: str | Callable[[Given], str]
    sends: Mapping[str, str] = {}  # option → name in the query or the body
    ignores: tuple[str, ...] = ()  # options that mean nothing there
    more: Callable[[Given], dict[str, Any]] = lambda _: {}  # what is computed from several of them
    preview: bool = False  # GET tells the plan and its digest, POST carries out exactly that one
    each: str = ""  # an option that may be given several times: one request for each
    or_path: str = ""  # where the first is not found
    instead: Mapping[str, Any] = {}  # an option that makes another operation of it


def _get(path: str | Callable[[Given], str], *ignores: str, **sends: str) -> Remote:
    return Remote("GET", path, sends, ignores)


def _post(path: str | Callable[[Given], str], *ignores: str, **sends: str) -> Remote:
    return Remote("POST", path, {**REASON, **sends}, ignores)


def _coverage(given: Given) -> str:
    return "/datasets/{dataset}/coverage" if given["dataset"] else "/datasets"


def _scope(given: Given) -> str:
    """The scope that the options of `kfm switch set` name."""
    named = [(kind, given[kind]) for kind in ("dataset", "domain", "replays") if given[kind]]
    if len(named) + bool(given["everything"]) != 1:
        raise UsageError("Say what the switch is for: one of --dataset, --domain, --replays, --all.")
    return f"/switches/{':'.join(named[0]) if named else 'all'}"


def _withdrawal(given: Given) -> str:
    return "/datasets/{dataset_id}/" + ("lift" if given["lift"] else "withdrawal")


def _spans(given: Given) -> dict[str, Any]:
    windows = given["windows"]
    if len(windows) > 1:
        raise UsageError("A service takes one --window at a time.", remedy="Call it once for each.")
    return {"window": windows[0]} if windows else {}


def _until(given: Given) -> dict[str, Any]:
    from kfm.model.times import rfc3339
    from kfm.model.windows import parse_duration, shifted
    from kfm.system import SystemClock

    if given["length"]:
        return {"until": rfc3339(shifted(SystemClock().now_ms(), parse_duration(given["length"]), "UTC"))}
    return {"until": given["until"]} if given["until"] else {}


def _state(given: Given) -> dict[str, Any]:
    if len(given["states"]) > 1:
        raise UsageError("A service takes one --state at a time.", remedy="Call it once for each.")
    return {"state": given["states"][0]} if given["states"] else {}


def _only_missed(given: Given) -> dict[str, Any]:
    cells = {"cells": ",".join(given["cells"])} if given["cells"] else {}
    return {"missed_only": bool(given["missed"]), "dry_run": bool(given["dry_run"]), **cells}


def _one_name(given: Given) -> dict[str, Any]:
    if len(given["names"]) > 1:
        raise UsageError("A service takes one dataset at a time.", remedy="Name one, or none: all of them.")
    return {"dataset": given["names"][0]} if given["names"] else {}


def _listing(given: Given) -> dict[str, Any]:
    if len(given["prefixes"]) > 1:
        raise UsageError("A service takes one --prefix at a time.", remedy="Call it once for each.")
    prefix = {"prefix": given["prefixes"][0]} if given["prefixes"] else {}
    return prefix if given["limit"] == LISTED_MAX else {**prefix, "limit": given["limit"]}


_TIMES = ("event_time_start", "event_time_end", "created_after", "created_before")
_CHOSEN = (
    "datasets", "dataset_in", "cells", "units", "statuses", "error_codes", *_TIMES, "attempts_max", "limit",
    "mode", "reason",
)  # fmt: skip


def _units(given: Given) -> dict[str, Any]:
    """The units that the options of `kfm replay` select."""
    from kfm.cli.options import past_ms
    from kfm.model.times import rfc3339
    from kfm.system import SystemClock

    now_ms = SystemClock().now_ms()
    named = [name.strip() for name in (given["dataset_in"] or "").split(",")]
    chosen: dict[str, Any] = {
        "datasets": sorted({*given["datasets"], *filter(None, named)}),
        **{name: sorted(set(given[name])) for name in ("units", "statuses", "error_codes")},
        "cells": ",".join(given["cells"]),
        **{
            name: rfc3339(past_ms(given[name], f"--{name.replace('_', '-')}", now_ms))
            for name in _TIMES
            if given[name] is not None
        },
    }
    plain = {name: given[name] for name in ("attempts_max", "limit", "mode", "reason")}
    return {name: value for name, value in chosen.items() if value} | {
        name: value for name, value in plain.items() if value is not None
    }


def _asked_units(given: Given) -> dict[str, Any]:
    """The same in an address."""
    found = _units(given)
    found["units_max"] = found.pop("limit", None)
    return {
        name: ",".join(value) if isinstance(value, list) else value
        for name, value in found.items()
        if value is not None
    }


def _selected_units(given: Given) -> dict[str, Any]:
    found = _asked_units(given)
    found.pop("units_max", None)
    return found


def _kept_units(given: Given) -> dict[str, Any]:
    if not given.get("confirm"):
        raise UsageError("With --server, give --confirm: there is no list to say yes to here.")
    if given.get("replay_id"):
        return {}
    path = given.get("selection_file")
    if path is None:
        return {**_units(given), "run": True}
    from kfm.cli.replay_options import read_plan

    plan = read_plan(path)
    return {
        "units": [unit.wal_id for unit in plan.units],
        "mode": plan.mode,
        "reason": plan.reason,
        "digest": plan.digest,
        "run": True,
    }


def _replay_path(given: Given) -> str:
    return "/replays/{replay_id}/run" if given["replay_id"] else "/replays"


def _replays(given: Given) -> str:
    return "/replays/{replay_id}" if given["replay_id"] else "/replays"


def _missing(given: Given) -> dict[str, Any]:
    from kfm.model.times import rfc3339
    from kfm.model.windows import parse_instant

    sources, states = given["sources"], given["states"]
    if len(sources) > 1 or len(states) > 1:
        raise UsageError("A service takes one --source and one --state at a time.")
    found = {name: rfc3339(parse_instant(given[name], "UTC")) for name in ("start", "end") if given[name]}
    return {
        **found,
        **({"source": sources[0]} if sources else {}),
        **({"state": states[0]} if states else {}),
        **({"cells": ",".join(given["cells"])} if given["cells"] else {}),
    }


_MISSING = _post(
    "/missing", "missing", "sources", "states", "start", "end", "cells", dataset="dataset"
)._replace(preview=True, more=_missing)
REMOTE: dict[str, Remote] = {
    "status": _get("/status", "everything"),
    "whoami": _get("/whoami"),
    "runs": _get("/runs", dataset="dataset", source="source", status="status", limit="limit"),
    "show": _get("/runs/{run}"),
    "graph": _get("/runs/{run}/nodes"),
    "explain": _get("/explain/{what}"),
    "coverage": _get(_coverage, start="start", end="end", at="at", product="product")._replace(more=_state),
    "run": _post("/requests", "now", window="window", at="at", correction="correction")._replace(
        each="sources=source", instead={"missing": _MISSING}
    ),
    "replay select": _get("/replays/selection", *_CHOSEN[:-3], "mode", "reason", limit="limit")._replace(
        more=_selected_units
    ),
    "replay dry-run": _get("/replays/preview", *_CHOSEN)._replace(more=_asked_units),
    "replay plan": _post("/replays", *_CHOSEN, name="name")._replace(more=_units),
    "replay run": _post(
        _replay_path, "replay_id", "selection_file", "confirm", *_CHOSEN, rate="rate"
    )._replace(more=_kept_units),
    "replay stop": _post("/replays/{replay_id}/stop"),
    "replay inspect": _get(_replays, "replay_id", limit="limit"),
    "retry": _post("/runs/{run_id}/retry", "now"),
    "cancel": _post("/requests/{wanted}/cancel")._replace(or_path="/runs/{wanted}/cancel"),
    "requests list": _get(
        "/requests", state="state", kind="kind", source="source", schedule="schedule", limit="limit"
    ),
    "requests show": _get("/requests/{wanted}"),
    "requests cancel": _post("/requests/{wanted}/cancel")._replace(or_path="/runs/{wanted}/cancel"),
    "schedule list": _get("/schedules"),
    "schedule history": _get("/schedules/{name}/instants", since="start", limit="limit"),
    "schedule pause": _post("/schedules/{name}/pause"),
    "schedule resume": _post("/schedules/{name}/resume"),
    "schedule backfill": _post(
        "/schedules/{name}/backfill", "missed", "dry_run", "cells", start="start", end="end"
    )._replace(more=_only_missed),
    "dataset list": _get("/datasets"),
    "dataset show": _get("/datasets/{dataset_id}", "limit"),
    "dataset retire": _post("/datasets/{dataset_id}/retirement", purge="purge")._replace(preview=True),
    "rollback": _post("/datasets/{dataset_id}/rollback", to_version="to_version")._replace(preview=True),
    "withdraw": _post(
        _withdrawal, "windows", "lift", source_id="source", target="target", purge="purge"
    )._replace(preview=True, more=_spans),
    "dismiss": _post(
        "/datasets/{dataset}/dismissal", source="source", product="product", platform="platform", undo="undo"
    )._replace(each="windows=window"),
    "project": _post("/datasets/{dataset}/projection"),
    "approvals list": _get("/approvals", state="state"),
    "approvals show": _get("/approvals/{wanted}"),
    "approvals approve": _post("/approvals/{request_id}/approve"),
    "approvals reject": _post("/approvals/{request_id}/reject"),
    "approvals revoke": _post("/approvals/{request_id}/revoke"),
    "approvals stand": _post("/sources/{source}/standing-approval", until="until"),
    "quarantine list": _get("/quarantine", dataset="dataset", kind="kind", everything="all", limit="limit"),
    "quarantine show": _get("/quarantine/{wanted}"),
    "quarantine resume": _post("/quarantine/{wanted}/release"),
    "quarantine release": _post("/quarantine/{wanted}/release"),
    "quarantine discard": _post("/quarantine/{wanted}/discard"),
    "incident list": _get("/incidents", everything="all", limit="limit"),
    "incident show": _get("/incidents/{wanted}"),
    "incident ack": _post("/incidents/{wanted}/acknowledge"),
    "incident assign": _post("/incidents/{wanted}/assign", person="person"),
    "incident retry": _post("/incidents/{wanted}/retry"),
    "incident close": _post("/incidents/{wanted}/close"),
    "incident silence": _post("/incidents/{wanted}/silence", "length", "end", "until")._replace(
        more=_until, or_path="/datasets/{wanted}/silence"
    ),
    "switch list": _get("/switches"),
    "switch set": _post(_scope, "dataset", "domain", "replays", "everything", position="position"),
    "breaker list": _get("/breakers"),
    "breaker reset": _post("/breakers/{provider}/reset"),
    "breaker probe": _post("/breakers/{provider}/probe"),
    "breaker hold": _post("/breakers/{provider}/hold", "until", "length")._replace(more=_until),
    "audit list": _get("/audit", kind="kind", subject="subject", limit="limit"),
    "lineage show": _get("/runs/{run}/lineage"),
    "lineage prov": _get("/runs/{run}/provenance"),
    "nodd units": _get(
        "/units", dataset="dataset", status="status", error_code="error_code", since="since", limit="limit"
    ),
    "nodd show": _get("/units/{unit}"),
    "nodd watermarks": _get("/watermarks")._replace(more=_one_name),
    "nodd reconcile": _post(
        "/feeds/{dataset}/reconcile",
        "prefixes",
        "limit",
        bucket="bucket",
        start="start",
        end="end",
        open_missing="open",
    )._replace(more=_listing),
    "nodd dead show": _get("/dead-letters/{wanted}"),
    "nodd dead release": _post("/dead-letters/{wanted}/release"),
    "nodd dead list": _get("/dead-letters", error_code="error_code", everything="all", limit="limit"),
}

_FILES = "it reads or writes files of the project"
_PROCESS = "it is a process of the machine that it runs on"
_CARE = "it takes care of the ledger and of what is stored, beside the service"
_ITSELF = "it is about this installation"
_NO_OPERATION = "the API has no operation for it"
_STAY = {
    "init, config, schedule export, gate, lint, export, audit export, audit anchor": _FILES,
    "pipeline, run-state, branch, catalogue export, webhook, release": _FILES,
    "serve, worker, catalogue serve, schedule run-due, nodd import": _PROCESS,
    "incident deliver, incident test, lineage deliver, catalogue reconcile": _PROCESS,
    "backup, restore, store, migrate, du, gc, audit seal, audit verify": _CARE,
    "source, dataset rename, compliance, lineage status": _CARE,
    "replay drain, replay from-spec": _FILES,
    "doctor, completion, man, metrics, nodd datasets, nodd parse": _ITSELF,
    "diff, schedule next, approvals request, quarantine add, nodd, catalogue": _NO_OPERATION,
}
# Why a command has no form for a service, by the words that it begins with.
STAYS = {begin: why for begins, why in _STAY.items() for begin in begins.split(", ")}


def why_it_stays(name: str) -> str:
    """Why a command is not carried out by a service."""
    words = name.split()
    known = (STAYS.get(" ".join(words[:count])) for count in range(len(words), 0, -1))
    return next(filter(None, known), _NO_OPERATION)
