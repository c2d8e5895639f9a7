"""Plans over the API: units that come back by a frozen list, and windows that are asked for together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kfm.model.errors import PlanDrifted, RoleMissing, UsageError
from kfm.model.plan_cells import InstantCell, UnitsCell, WindowCell, parse_cells
from kfm.model.quantities import counted
from kfm.model.records import Justification, justified
from kfm.model.replays import ListedReplay, Replay, ReplayPlan, ReplaySpec, Selection
from kfm.model.roles import is_person
from kfm.model.times import parse_rfc3339
from kfm.model.window_plans import WindowPlan
from kfm.reports.quarantine import approval_document
from kfm.reports.replays import plan_document, replay_document, shown_replay, stage_in
from kfm.reports.window_plans import missing_document, window_plan_document, window_receipt_document
from kfm.web.api.operations import ApiCall, Reply, cursor_position
from kfm.web.api.reads import page, rest
from kfm.web.problems import Problem, missing

LISTED_MAX = 10_000  # units whose sizes are summed up
NAMED_MAX = 3
UNSEEN = "The content of this dataset needs the role operate."


def _by(call: ApiCall) -> Justification:
    body, said = call.body, call.app.loaded.discretion.said
    return justified(said, call.identity.subject, body.rationale, body.ticket, body.actor)


# --- replays: what is meant ------------------------------------------------------------


def _selection(call: ApiCall, asked: Mapping[str, Any]) -> ReplaySpec:
    """What a query or a body chooses."""
    wal_ids = set(asked.get("units") or ())
    datasets = {call.visibility.meant(name) or "" for name in asked.get("datasets") or ()}
    if text := asked.get("cells"):
        cells = parse_cells(text)
        if not all(isinstance(one, UnitsCell) for one in cells):
            raise UsageError("A replay is of units: cells are units:DATASET/PRODUCT@FROM/TO.")
        from kfm.nodd.replay import units_in

        known = [_meant(call, one) for one in cells if isinstance(one, UnitsCell)]
        wal_ids |= set(units_in(call.app, known))
    return ReplaySpec(
        kfm="replay-spec/1",
        selection=Selection(
            datasets=tuple(sorted(datasets)),
            statuses=tuple(sorted(set(asked.get("statuses") or ()))),
            error_codes=tuple(sorted(set(asked.get("error_codes") or ()))),
            event_time_start_ms=_time(asked.get("event_time_start")),
            event_time_end_ms=_time(asked.get("event_time_end")),
            created_after_ms=_time(asked.get("created_after")),
            created_before_ms=_time(asked.get("created_before")),
            attempts_max=asked.get("attempts_max"),
            wal_ids=tuple(sorted(wal_ids)),
        ),
        mode=asked.get("mode") or "failed-only",
        reason=asked.get("reason") or "none",
        limit=asked.get("units_max"),
    )


def _time(value: int | str | None) -> int | None:
    return parse_rfc3339(value) if isinstance(value, str) else value


def _meant(call: ApiCall, cell: UnitsCell) -> UnitsCell:
    dataset = call.visibility.meant(cell.dataset) or ""
    return UnitsCell(dataset=dataset, product=cell.product, start_ms=cell.start_ms, end_ms=cell.end_ms)


def _plan(call: ApiCall, spec: ReplaySpec) -> ReplayPlan:
    from kfm.nodd.replay import plan_of

    made = plan_of(call.app, spec)
    if any(map(call.visibility.hides_units, made.by_dataset)):
        raise RoleMissing(UNSEEN)
    return made


def preview_replay(call: ApiCall) -> Any:
    """Exactly what would come back, what would not and why, and how much it is."""
    query = dict(call.query)
    for name in ("datasets", "units", "statuses", "error_codes"):
        query[name] = list(filter(None, (query[name] or "").split(",")))
    made = _plan(call, _selection(call, query))
    return {**plan_document(made), "bytes": bytes_document(call.app, made), "selection_file": None}


def bytes_document(app: Any, made: ReplayPlan) -> dict[str, int]:
    known, size = app.ledger.replay_reader().bytes_of([unit.wal_id for unit in made.units])
    return {"units": known, "size": size}


def selected_units(call: ApiCall) -> Any:
    """The units that are meant, and whether each would come back."""
    from kfm.nodd.replay import selected
    from kfm.reports.replays import unit_document

    query = dict(call.query)
    for name in ("datasets", "units", "statuses", "error_codes"):
        query[name] = list(filter(None, (query[name] or "").split(",")))
    skipped = 0 if query["cursor"] is None else int(query["cursor"])
    found = selected(call.app, _selection(call, query), skipped + query["limit"] + 1)[skipped:]
    if any(call.visibility.hides_units(unit.dataset) for unit, _ in found):
        raise RoleMissing(UNSEEN)
    shown, more = page(found, query["limit"])
    units = [{**unit_document(unit), "left_out": why} for unit, why in shown]
    return {"units": units, **rest(more, skipped + len(shown))}


# --- replays: kept, carried out, stopped -------------------------------------------------


def plan_replay(call: ApiCall) -> Any:
    """Keep a plan; with `run` carry it out at once."""
    from kfm.nodd.replay import freeze

    body = call.body
    asked = {name: getattr(body, name) for name in body.__struct_fields__} | {"units_max": body.limit}
    made = _plan(call, _selection(call, asked))
    if body.digest is not None and body.digest != made.digest:
        raise drifted_since(made)
    if not made.units:
        raise UsageError(
            "No unit of the selection would come back, so there is nothing to replay.",
            remedy="; ".join(f"{many} left out: {why}" for why, many in made.left_out.items()) or None,
        )
    name = body.name and call.app.loaded.discretion.said(body.name)
    replay = freeze(call.app, made, _by(call), name)
    return _run(call, replay, body.rate) if body.run else _answer(call, replay, None, 201)


def drifted_since(made: ReplayPlan) -> PlanDrifted:
    return PlanDrifted(
        f"The list has changed since it was shown: now it has {counted(len(made.units), 'unit')} and is "
        f"{made.digest[:19]}….",
        remedy="Look at it again, and send the digest of that. Nothing was done.",
    )


def run_replay(call: ApiCall) -> Any:
    """Begin a kept replay, or go on with one: a service carries it out."""
    return _run(call, _replay(call), call.body.rate)


def _run(call: ApiCall, replay: Replay, rate: float | None) -> Reply:
    from kfm.nodd.replay import has_approval, have_served
    from kfm.service.approvals import request_replay

    app, by = call.app, _by(call)
    if replay.state == "done":
        raise Problem(409, "The replay is done: each of its units has its receipt.")
    if replay.plan.needs_approval and not has_approval(app, replay.plan):
        request = request_replay(app, replay.plan, by)
        return _answer(call, _known(call, replay.replay_id), request, 202)
    started = have_served(app, replay.plan, by, rate)
    call.context.wake()
    return _answer(call, started, None, 202)


def stop_replay(call: ApiCall) -> Any:
    from kfm.nodd.replay import stop

    stopped = stop(call.app, _replay(call), _by(call))
    if stopped is None:
        raise Problem(409, "The replay is not under way: there is nothing to stop.")
    return _answer(call, stopped, None, 200)


def _answer(call: ApiCall, replay: Replay, request: Any, status: int) -> Reply:
    ledger = call.app.ledger
    tally = ledger.replay_reader().tally(replay.replay_id)
    document = {
        "replay": replay_document(replay, tally, stage_in(ledger, replay)),
        "left_out": replay.plan.left_out,
        "request": approval_document(request) if request is not None else None,
    }
    return Reply(document, {"Location": f"{call.base}/replays/{replay.replay_id}"}, status)


def _replay(call: ApiCall) -> Replay:
    found = _known(call, call.path["replay_id"])
    if is_hidden(call.visibility, found):
        raise RoleMissing(UNSEEN)
    return found


def _known(call: ApiCall, replay_id: str) -> Replay:
    found: Replay | None = call.app.ledger.replay_reader().replay(replay_id)
    if found is None:
        raise missing("replay")
    return found


def is_hidden(visibility: Any, one: Replay | ListedReplay | WindowPlan) -> bool:
    """Is a masked dataset in it? Readers are not told what a list like that is about."""
    if isinstance(one, WindowPlan):
        return any(map(visibility.hides, one.datasets))
    return any(map(visibility.hides_units, one.summary.by_dataset))


def replays(call: ApiCall) -> Any:
    ledger, limit = call.app.ledger, call.query["limit"]
    found, more = page(
        ledger.replay_reader().replays(limit + 1, cursor_position(call.query["cursor"])), limit
    )
    last = (found[-1].created_at_ms, found[-1].replay_id) if more else ()
    reader = ledger.replay_reader()
    shown = [
        replay_document(one, reader.tally(one.replay_id), stage_in(ledger, one))
        for one in found
        if not is_hidden(call.visibility, one)
    ]
    return {"replays": shown, **rest(more, *last)}


def one_replay(call: ApiCall) -> Any:
    replay, query = _replay(call), call.query
    document = shown_replay(call.app.ledger, replay, after=query["cursor"] or "", limit=query["limit"])
    last = [one["wal_id"] for one in document["receipts"][-1:]]
    return {**document, **rest(document["more"], *last)}


# --- missing windows ---------------------------------------------------------------------


def _missing(call: ApiCall, asked: Mapping[str, Any]) -> Any:
    from kfm.model.completeness import ASKED_FOR
    from kfm.service.missing_windows import plan_missing
    from kfm.service.source_choice import choose, sources_feeding

    settings, named = call.app.settings, None
    if text := asked.get("cells"):
        cells = parse_cells(text)
        if not all(isinstance(one, WindowCell) for one in cells):
            raise UsageError("Windows are asked for by cells such as window:SOURCE@START.")
        if asked.get("dataset") or asked.get("source"):
            raise UsageError("Cells name their sources: leave `dataset` and `source` out.")
        sources = [source.id for source in settings.sources]
        known = {
            one: settings.source_id(call.visibility.known(one.source_id, sources))
            for one in cells
            if isinstance(one, WindowCell)
        }
        chosen = choose(settings, tuple(dict.fromkeys(str(name) for name in known.values())))
        named = {(str(name), one.start_ms) for one, name in known.items()}
    elif dataset := asked.get("dataset"):
        dataset = call.visibility.meant(dataset) or ""
        chosen = list(sources_feeding(settings, dataset, (asked["source"],) if asked.get("source") else ()))
    elif source := asked.get("source"):
        chosen = choose(settings, (call.visibility.meant(source) or "",))
    else:
        raise UsageError("Say which windows: `dataset`, `source` or `cells`.")
    if any(call.visibility.hides(settings.source(name).dataset) for name in chosen):
        raise RoleMissing(UNSEEN)
    start_ms, end_ms = _time(asked.get("start")), _time(asked.get("end"))
    if start_ms is not None and end_ms is not None and end_ms <= start_ms:
        raise UsageError("`end` is not after `start`, so no window can be meant.")
    states = (asked["state"],) if asked.get("state") else ASKED_FOR
    return plan_missing(call.app, chosen, states, start_ms, end_ms, named)


def preview_missing(call: ApiCall) -> Any:
    """Windows without data past their time: which would be asked for, which not and why."""
    return missing_document(_missing(call, call.query))


def ask_for_missing(call: ApiCall) -> Any:
    """Requests for exactly the list of this digest."""
    from kfm.service.missing_windows import ask_for_missing, require_same, take_up

    body, app = call.body, call.app
    plan = _missing(call, {name: getattr(body, name) for name in body.__struct_fields__})
    require_same(plan, body.digest)
    if not plan.windows:
        raise UsageError("No window of it has to be asked for.")
    plan_id = app.ids.new()
    asked = ask_for_missing(
        app,
        plan,
        rationale=body.rationale,
        ticket=body.ticket,
        claimed_actor=body.actor,
        by_person=is_person(call.identity),
        name=body.name,
        plan_id=plan_id,
    )
    take_up(app, plan)
    call.context.wake()
    return {**missing_document(plan, asked), "plan_id": plan_id if asked else None}


# --- lists of both -----------------------------------------------------------------------


def plans(call: ApiCall) -> Any:
    """Replays, backfills and lists of missing windows, the newest first."""
    limit, before = call.query["limit"], cursor_position(call.query["cursor"])
    found, more = listed(call.app.ledger, limit, before)
    last = position_of(found[-1]) if more else ()
    shown = [plan_row(call.app.ledger, one) for one in found if not is_hidden(call.visibility, one)]
    return {"plans": shown, **rest(more, *last)}


def listed(
    ledger: Any, limit: int, before: tuple[int, str] | None
) -> tuple[list[ListedReplay | WindowPlan], bool]:
    """A page of both kinds in one order, and whether there are more."""
    both = [
        *ledger.replay_reader().replays(limit + 1, before),
        *ledger.window_plan_reader().plans(limit + 1, before),
    ]
    ordered = sorted(both, key=lambda one: (-one.created_at_ms, position_of(one)[1]))
    return ordered[:limit], len(ordered) > limit


def position_of(one: ListedReplay | WindowPlan) -> tuple[int, str]:
    return one.created_at_ms, one.plan_id if isinstance(one, WindowPlan) else one.replay_id


def plan_row(ledger: Any, one: ListedReplay | WindowPlan) -> dict[str, Any]:
    """A plan of any kind, in the same words."""
    if isinstance(one, WindowPlan):
        return window_plan_document(one, ledger.window_plan_reader().tally(one.plan_id))
    document = replay_document(one, ledger.replay_reader().tally(one.replay_id), stage_in(ledger, one))
    return {
        "plan_id": one.replay_id,
        "kind": "replay",
        "name": one.name,
        "stage": document["stage"],
        "digest": one.digest,
        "subject": subject_of(one.summary.by_dataset),
        "datasets": list(one.summary.by_dataset),
        "requested_by": one.requested_by,
        "rationale": one.rationale,
        "made_at": document["begun_at"],
        "entries": document["units"],
        "done": document["replayed"],
        "open": document["waiting"],
        "in_vain": document["drifted"],
        "left_out": one.summary.left_out,
    }


def subject_of(names: Iterable[str]) -> str:
    known: Sequence[str] = list(names)
    return f"{', '.join(known[:NAMED_MAX])}{', …' if len(known) > NAMED_MAX else ''}"


def one_plan(call: ApiCall) -> Any:
    """A list of windows, with a page of them, and what has become of each."""
    reader, query = call.app.ledger.window_plan_reader(), call.query
    plan = reader.plan(call.path["plan_id"])
    if plan is None:
        raise missing("plan")
    if is_hidden(call.visibility, plan):
        raise RoleMissing(UNSEEN)
    found, more = page(
        reader.entries(plan.plan_id, int(query["cursor"] or 0), query["limit"] + 1), query["limit"]
    )
    return {
        "plan": window_plan_document(plan, reader.tally(plan.plan_id)),
        "windows": [window_receipt_document(one) for one in found],
        **rest(more, *(one.number for one in found[-1:])),
    }


# --- dead messages, quarantine -------------------------------------------------------------


def discard(call: ApiCall) -> Any:
    """Settle the window of a quarantined entry without data."""
    from kfm.reports.quarantine import held_document
    from kfm.service.dismissals import discard_held

    app = call.app
    held = app.ledger.held_one(call.path["held_id"])
    if held is None:
        raise missing("entry")
    discard_held(app, held, _by(call))
    return {"held": held_document(app.ledger.held_one(held.held_id))}


def instants_of(text: str) -> list[InstantCell]:
    """The scheduled times of cells, all of one schedule."""
    cells = [one for one in parse_cells(text) if isinstance(one, InstantCell)]
    if not cells or len({one.schedule_id for one in cells}) > 1:
        raise UsageError("A backfill is of scheduled times of one schedule: instant:SCHEDULE@TIME.")
    return cells
