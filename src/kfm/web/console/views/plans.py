"""Plans: replays, backfills, lists of missing windows and approvals; one of them with a receipt per entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kfm.model.errors import UsageError
from kfm.model.quantities import counted, moment, span
from kfm.model.quarantine import Approval
from kfm.model.records import Record
from kfm.model.replays import Receipt, Replay
from kfm.model.window_plans import WindowPlan, WindowReceipt
from kfm.reports.approvals import excluded_by
from kfm.reports.replays import differences_of, replay_document, stage_of
from kfm.reports.window_plans import window_plan_document
from kfm.web.api.plans import is_hidden, listed, plan_row, position_of
from kfm.web.console import state_words
from kfm.web.console.actions import Offer, decisions, offer
from kfm.web.console.state_words import Word, word
from kfm.web.console.views.explanation import Fact, Next
from kfm.web.console.visit import (
    ROWS,
    Link,
    NotForYou,
    NotHere,
    Paging,
    Visit,
    before_position,
    paged_before,
    short,
)

FILTERS = ("before",)
ONE_FILTERS = ("after",)
APPROVALS_MAX = 100
KINDS = {"replay": "Replay", "backfill": "Backfill", "missing": "Missing windows"}
_STAGES = {"awaiting-approval": "waiting for approval", "done": "done", "planned": "planned"}
DIFFERENCES_MAX = 5


class ApprovalRow(Record, frozen=True):
    request_id: str
    href: str | None
    kind: str
    about: str
    by: str
    at_ms: int
    rationale: str
    excluded: str  # why it could not come true, or what would not after it
    actions: tuple[Offer, ...]
    dataset_id: str = ""


class PlanRow(Record, frozen=True):
    plan_id: str
    href: str
    kind: str
    name: str
    word: Word
    about: str
    by: str
    made_ms: int
    entries: int
    done: int
    waiting: int
    in_vain: int


class PlansView(Record, frozen=True):
    approvals: tuple[ApprovalRow, ...]
    approvals_more: bool
    rows: tuple[PlanRow, ...]
    paging: Paging
    starts: tuple[Link, ...]


def view(visit: Visit) -> PlansView:
    found, more = listed(visit.reader, ROWS, before_position(visit.query.get("before")))
    shown = [one for one in found if not is_hidden(visit.visibility, one)]
    waiting = visit.reader.approvals(state="requested", limit=APPROVALS_MAX + 1)
    mine = [one for one in waiting[:APPROVALS_MAX] if not visit.visibility.hides_record(one)]
    return PlansView(
        approvals=tuple(approval_row(visit, one, mine) for one in mine),
        approvals_more=len(waiting) > APPROVALS_MAX,
        rows=tuple(_row(visit, plan_row(visit.reader, one), one.created_at_ms) for one in shown),
        paging=paged_before(visit, len(shown), position_of(found[-1]) if more else None, "plan"),
        starts=(
            Link(text="Replay units…", href=visit.href("plans/new", kind="replay")),
            Link(text="Ask for missing windows…", href=visit.href("plans/new", kind="missing")),
            Link(text="Backfill a schedule…", href=visit.href("plans/new", kind="backfill")),
        ),
    )


def _row(visit: Visit, document: Mapping[str, Any], made_ms: int) -> PlanRow:
    return PlanRow(
        plan_id=short(document["plan_id"]),
        href=visit.at("plans", document["plan_id"]),
        kind=KINDS[document["kind"]],
        name=document["name"] or "",
        word=stage_word(document["stage"]),
        about=document["subject"],
        by=document["requested_by"],
        made_ms=made_ms,
        entries=document["entries"],
        done=document["done"],
        waiting=document["open"],
        in_vain=document["in_vain"],
    )


def stage_word(stage: str) -> Word:
    return word(_STAGES.get(stage, stage))


# --- approvals ---------------------------------------------------------------------------


def approval_row(visit: Visit, one: Approval, waiting: Sequence[Approval]) -> ApprovalRow:
    return ApprovalRow(
        request_id=short(one.request_id),
        href=_subject(visit, one),
        kind=one.kind,
        about=one.about,
        by=one.requested_by,
        at_ms=one.requested_at_ms,
        rationale=one.rationale,
        excluded=exclusion(visit, one, waiting),
        actions=tuple(decisions(visit, one)),
        dataset_id=one.dataset_id or "",
    )


def _subject(visit: Visit, one: Approval) -> str | None:
    places = {"release": "held", "update": "requests", "replay": "plans"}
    if one.kind in places:
        return visit.at(places[one.kind], one.subject)
    return visit.dataset_page(one.dataset_id) if one.dataset_id else None


def exclusion(visit: Visit, one: Approval, waiting: Sequence[Approval]) -> str:
    """What speaks against deciding it now: it can't come true any more, or another one would not after it."""
    known = excluded_by(visit.reader, one)
    if known is not None:
        return known.sentence
    others = [
        short(other.request_id)
        for other in waiting
        if other.request_id != one.request_id
        and other.dataset_id == one.dataset_id
        and one.base_sequence is not None
        and other.base_sequence == one.base_sequence
    ]
    if not others:
        return ""
    return (
        f"It excludes {', '.join(others)} of the same dataset: both were made on version "
        f"{one.base_sequence}, and once one is published the other can't come true."
    )


# --- one ---------------------------------------------------------------------------------


class ReceiptRow(Record, frozen=True):
    name: str
    href: str | None
    what: str
    was: str
    word: Word
    at_ms: int | None
    now: Word | None
    now_href: str | None
    why: str


class PlanView(Record, frozen=True):
    title: str
    word: Word
    sentence: str
    entries: int
    done: int
    waiting: int
    in_vain: int
    percent: int
    facts: tuple[Fact, ...]
    left_out: tuple[str, ...]
    asked: tuple[ApprovalRow, ...]
    decided: tuple[str, ...]
    rows: tuple[ReceiptRow, ...]
    rows_about: str
    paging: Paging
    actions: tuple[Offer, ...]
    commands: tuple[Next, ...]


def view_one(visit: Visit) -> PlanView:
    wanted = visit.params["plan_id"]
    reader = visit.reader.replay_reader()
    replay = reader.replay(wanted)
    if replay is not None:
        _allowed(visit, replay)
        return _replay(visit, replay)
    plan = visit.reader.window_plan_reader().plan(wanted)
    if plan is None:
        raise NotHere("No plan of that id is on record. The list of plans has all.")
    _allowed(visit, plan)
    return _windows(visit, plan)


def _allowed(visit: Visit, one: Replay | WindowPlan) -> None:
    if is_hidden(visit.visibility, one):
        raise NotForYou("The content of this plan needs the role operate.")


def _replay(visit: Visit, replay: Replay) -> PlanView:
    reader = visit.reader.replay_reader()
    requests = visit.reader.approvals(subject=replay.replay_id)
    stage = stage_of(replay, requests)
    document = replay_document(replay, reader.tally(replay.replay_id), stage)
    found = reader.receipts(replay.replay_id, visit.query.get("after", ""), ROWS + 1)
    waiting = [one for one in requests if one.status == "requested"]
    return PlanView(
        title=f"Replay {replay.name or short(replay.replay_id)}",
        word=stage_word(stage),
        sentence=_replay_sentence(stage, document, replay),
        entries=document["units"],
        done=document["replayed"],
        waiting=document["waiting"],
        in_vain=document["drifted"],
        percent=_percent(document["replayed"] + document["drifted"], document["units"]),
        facts=tuple(_replay_facts(visit, replay)),
        left_out=_left_out(replay.plan.left_out, "unit"),
        asked=tuple(approval_row(visit, one, waiting) for one in waiting),
        decided=tuple(filter(None, map(_decided, requests))),
        rows=tuple(_unit_row(visit, one) for one in found[:ROWS]),
        rows_about="Units of the frozen list, each with its receipt and how it is now",
        paging=_paging(visit, len(found), found[ROWS - 1].wal_id if len(found) > ROWS else None, "units"),
        actions=tuple(_replay_actions(visit, replay, stage)),
        commands=(
            Next(command=f"kfm replay inspect {short(replay.replay_id)}", why="the same in a terminal"),
        ),
    )


def _replay_sentence(stage: str, document: Mapping[str, Any], replay: Replay) -> str:
    units = counted(document["units"], "unit")
    ahead = {
        "planned": f"A frozen list of {units}. Nothing has come back yet; if one of them changes before it "
        "is run, nothing is done.",
        "awaiting-approval": f"A frozen list of {units} waits for approval of exactly this list by a second "
        "person.",
        "approved": f"A frozen list of {units} is approved, and waits to be run.",
        "rejected": f"A frozen list of {units} was rejected; it can be asked for again.",
        "stopped": "A person has stopped it: nothing more comes back until it is run again.",
    }
    if stage in ahead:
        return ahead[stage]
    pace = "" if replay.rate is None else f", at most {replay.rate:g} a second"
    drifted = document["drifted"]
    changed = f"; {drifted} had changed meanwhile and was not touched" if drifted else ""
    if stage == "done":
        return f"{document['replayed']} of {units} came back{changed}."
    by = "A service" if replay.served else "A command"
    return f"{by} carries it out{pace}: {document['replayed']} of {units} came back{changed}."


def _replay_facts(visit: Visit, replay: Replay) -> Iterator[Fact]:
    plan = replay.plan
    reader = visit.reader.replay_reader()
    known, size = reader.bytes_of([unit.wal_id for unit in plan.units])
    yield Fact(name="Asked for by", text=replay.requested_by)
    yield Fact(name="Reason", text=replay.rationale)
    yield Fact(name="Kept (UTC)", text="", at_ms=replay.created_at_ms)
    yield Fact(name="Mode", text=f"{replay.mode}, {replay.reason}")
    yield Fact(name="By dataset", text=_amounts(plan.by_dataset))
    yield Fact(name="By error", text=_amounts(plan.by_error_code))
    yield Fact(name="Size", text=_bytes(size, known, len(plan.units)))
    yield Fact(name="Digest of the list", text=replay.digest, code=True)
    yield Fact(name="Replay", text=replay.replay_id, code=True)


def _bytes(size: int, known: int, units: int) -> str:
    from kfm.model.quantities import readable_size

    return readable_size(size) + ("" if known == units else f", of {known} units whose size is known")


def _amounts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {many}" for name, many in counts.items()) or "–"


def _left_out(counts: Mapping[str, int], what: str) -> tuple[str, ...]:
    return tuple(f"{counted(many, what)}: {why}" for why, many in counts.items())


def _percent(done: int, entries: int) -> int:
    return 100 * done // entries if entries else 100


def _decided(one: Approval) -> str:
    if one.status == "approved":
        return f"Approved by {one.approved_by} at {moment(one.approved_at_ms or 0)}: {one.approval_rationale}"
    if one.status == "rejected":
        return (
            f"Rejected by {one.rejected_by} at {moment(one.rejected_at_ms or 0)}: {one.rejection_rationale}"
        )
    return ""


def _unit_row(visit: Visit, one: Receipt) -> ReceiptRow:
    differing = differences_of(visit.reader.unit_reader(), one)
    texts = [f"{name} is {pair[0]}, would be {pair[1]}" for name, pair in differing.items()]
    return ReceiptRow(
        name=one.wal_id,
        href=visit.at("units", one.wal_id),
        what=one.object_uri or "",
        was=f"version {one.version}",
        word=word(
            {"replayed": "came back", "drifted": "changed meanwhile"}.get(one.receipt or "", "waiting")
        ),
        at_ms=one.at_ms,
        now=state_words.of_unit(one.status) if one.status else None,
        now_href=None,
        why="; ".join(texts[:DIFFERENCES_MAX]) or one.error_code or "",
    )


def _replay_actions(visit: Visit, replay: Replay, stage: str) -> Iterator[Offer]:
    if stage in ("planned", "approved", "rejected", "stopped") or (
        stage == "running" and replay.served is None
    ):
        verb = {"stopped": "Go on", "rejected": "Ask again"}.get(stage, "Run")
        yield offer(visit, "runReplay", verb, replay_id=replay.replay_id)
    if stage == "running":
        yield offer(visit, "stopReplay", replay_id=replay.replay_id)


# --- windows -----------------------------------------------------------------------------


def _windows(visit: Visit, plan: WindowPlan) -> PlanView:
    reader = visit.reader.window_plan_reader()
    document = window_plan_document(plan, reader.tally(plan.plan_id))
    after = visit.query.get("after", "0")
    if not after.isascii() or not after.isdigit() or len(after) > 9:
        raise UsageError("`after` is not from a link to further entries.")
    found = reader.entries(plan.plan_id, int(after), ROWS + 1)
    last = str(found[ROWS - 1].number) if len(found) > ROWS else None
    ended = document["done"] + document["in_vain"]
    return PlanView(
        title=f"{KINDS[plan.kind]} {plan.name or short(plan.plan_id)}",
        word=stage_word(document["stage"]),
        sentence=f"{counted(plan.entries, 'window')} asked for: {document['done']} done, "
        f"{document['open']} under way or waiting, {document['in_vain']} in vain.",
        entries=plan.entries,
        done=document["done"],
        waiting=document["open"],
        in_vain=document["in_vain"],
        percent=_percent(ended, plan.entries),
        facts=(
            Fact(name="Asked for by", text=plan.requested_by),
            Fact(name="Reason", text=plan.rationale or "–"),
            *([Fact(name="Ticket", text=plan.ticket)] if plan.ticket else []),
            Fact(name="Asked for (UTC)", text="", at_ms=plan.created_at_ms),
            Fact(
                name="Schedule" if plan.kind == "backfill" else "Sources",
                text=plan.subject,
                href=visit.at("schedules", plan.subject) if plan.kind == "backfill" else None,
            ),
            Fact(name="Digest of the list", text=plan.digest, code=True),
            Fact(name="Plan", text=plan.plan_id, code=True),
        ),
        left_out=_left_out(plan.left_out, "window"),
        asked=(),
        decided=(),
        rows=tuple(_window_row(visit, one) for one in found[:ROWS]),
        rows_about="Windows of the frozen list, each with its request and what has become of it",
        paging=_paging(visit, len(found), last, "windows"),
        actions=(),
        commands=(),
    )


def _window_row(visit: Visit, one: WindowReceipt) -> ReceiptRow:
    became = state_words.of_request(one.state, one.outcome, None) if one.state else word("waiting")
    return ReceiptRow(
        name=span(one.start_ms, one.end_ms).removesuffix(" UTC"),
        href=visit.dataset_page(one.dataset_id),
        what=one.source_id,
        was=one.was,
        word=became,
        at_ms=one.ended_at_ms,
        now=None,
        now_href=visit.at("requests", one.request_id) if one.request_id else None,
        why=one.reason or one.why,
    )


def _paging(visit: Visit, found: int, last: str | None, words: str) -> Paging:
    shown = min(found, ROWS)
    return Paging(
        newer=visit.with_query(after=None) if "after" in visit.query else None,
        older=visit.with_query(after=last) if last is not None else None,
        summary=f"{shown} {words}" if shown else f"no {words}",
        newest=True,
    )
