"""Missing windows: the frozen list of what has no data past its time, and the requests for all of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal

from kfm.datasets.completeness import completeness_of
from kfm.model.canonical import canonical_bytes
from kfm.model.completeness import ASKED_FOR, WindowState, WindowVerdict
from kfm.model.errors import LimitExceeded, PlanDrifted, UsageError
from kfm.model.input_hash import sha256_text
from kfm.model.keys import request_id as request_id_of
from kfm.model.quantities import counted, moment
from kfm.model.records import GovernanceEntry, Justification, Record, governance_entry, justified
from kfm.model.requests import UpdateRequest
from kfm.model.times import rfc3339
from kfm.model.window_plans import Listed, PlannedWindow, window_plan
from kfm.reports.blockers import Blocker, frozen, switched
from kfm.reports.coverage import why
from kfm.reports.next_steps import step_of_held, waiting

if TYPE_CHECKING:
    from kfm.app import App
    from kfm.model.quarantine import Approval, QuarantineEntry

MISSING_TAG = "missing/1"
WINDOWS_MAX = 10_000  # of one list
NamedWindow = tuple[str, int]  # a source, and the start of one of its windows
PAUSES = ("switch", "freeze")  # what requests wait for until people end it
NAMED_MAX = 3  # sources, in the subject of a list
MISSING = "missing"  # in the details of a request: the digest of the list that it was on


class MissingWindow(Record, frozen=True):
    """One window of the list, and what is done about it."""

    source_id: str
    dataset_id: str
    start_ms: int
    end_ms: int
    state: WindowState
    why: str
    action: Literal["ask", "take-up", "skip"]  # take-up: its request waits for what is gone
    reason: str = ""  # why it is skipped, or what it takes besides
    held_id: str | None = None  # in quarantine: unless upstream has changed, a second person releases it
    request_id: str | None = None  # that waits for it


class MissingPlan(Record, frozen=True):
    """The list, frozen: its digest is of the windows and their states."""

    windows: tuple[MissingWindow, ...]
    skipped: tuple[MissingWindow, ...]
    digest: str
    made_at_ms: int
    blockers: tuple[Blocker, ...] = ()  # what the requests for these windows would wait for


def plan_missing(
    app: App,
    source_ids: Sequence[str],
    states: Sequence[WindowState],
    start_ms: int | None = None,
    end_ms: int | None = None,
    named: Collection[NamedWindow] | None = None,
) -> MissingPlan:
    """What would be asked for, and what would not and why; of `named` only those. Reads only."""
    now_ms = app.ledger.now_ms()
    completeness = completeness_of(app, now_ms)
    chosen: list[MissingWindow] = []
    skipped: list[MissingWindow] = []
    thrown = [
        *(one for one in switched(app.ledger.switches()) if one.kind == "switch"),
        *frozen(app.settings, now_ms),
    ]
    blockers: dict[str, Blocker] = {}
    for source_id in source_ids:
        source = app.settings.source(source_id)
        domain = app.settings.domain_of(source.dataset)
        blocking = [one for one in thrown if one.holds(source.dataset, domain)]
        found = sorted(completeness.verdicts(source), key=lambda one: (one.start_ms, one.end_ms))
        for one in found:
            if named is not None and (one.source_id, one.start_ms) not in named:
                continue
            if (start_ms is not None and one.end_ms <= start_ms) or (
                end_ms is not None and one.start_ms >= end_ms
            ):
                continue
            if one.state in states:
                chosen.append(_planned(app, one, source.dataset, now_ms))
                blockers |= {each.sentence: each for each in blocking}
            elif states == ASKED_FOR and _may_go_on(one, now_ms, is_blocked=bool(blocking)):
                reason = "its request waits, and nothing blocks it any more"
                chosen.append(_window(one, source.dataset, "take-up", reason))
            elif one.state in ("running", "waiting"):
                skipped.append(_window(one, source.dataset, "skip", _under_way(one)))
                if one.waiting_for in PAUSES:
                    blockers |= {each.sentence: each for each in blocking}
            elif named is not None:
                skipped.append(_window(one, source.dataset, "skip", f"it is {one.state}"))
    if named is not None:
        _require_all(named, [*chosen, *skipped])
    if len(chosen) > WINDOWS_MAX:
        raise LimitExceeded(
            f"{len(chosen):,} windows are missing, and one list has at most {WINDOWS_MAX:,}.",
            remedy="Narrow it with --from and --to, or with --source.",
        )
    listed = [[one.source_id, rfc3339(one.start_ms), rfc3339(one.end_ms), one.state] for one in chosen]
    digest = sha256_text(canonical_bytes({"kfm": MISSING_TAG, "windows": listed}))
    return MissingPlan(
        windows=tuple(chosen),
        skipped=tuple(skipped),
        digest=digest,
        made_at_ms=now_ms,
        blockers=tuple(blockers.values()),
    )


def _require_all(named: Collection[NamedWindow], found: Sequence[MissingWindow]) -> None:
    unknown = sorted(set(named) - {(one.source_id, one.start_ms) for one in found})
    if unknown:
        source_id, start_ms = unknown[0]
        raise UsageError(
            f"No window of {source_id} that is expected, or was asked for, begins at {moment(start_ms)}.",
            remedy="`kfm coverage DATASET` lists them.",
        )


def _may_go_on(one: WindowVerdict, now_ms: int, *, is_blocked: bool) -> bool:
    """Does a request wait for the window, though what it waits for is gone?"""
    if one.request_id is None or one.state != "waiting" or one.waiting_for in ("approval", "not-yet"):
        return False
    return not is_blocked and (one.waiting_for in PAUSES or (one.at_ms or 0) <= now_ms)


def _under_way(one: WindowVerdict) -> str:
    if one.state == "running":
        return "it is running"
    return "it is not due yet" if one.waiting_for == "not-yet" else f"it waits {why(one)}"


def _window(
    one: WindowVerdict,
    dataset_id: str,
    action: Literal["ask", "take-up", "skip"],
    reason: str = "",
    held_id: str | None = None,
) -> MissingWindow:
    return MissingWindow(
        source_id=one.source_id,
        dataset_id=dataset_id,
        start_ms=one.start_ms,
        end_ms=one.end_ms,
        state=one.state,
        why=why(one),
        action=action,
        reason=reason,
        held_id=held_id,
        request_id=one.request_id,
    )


def _planned(app: App, one: WindowVerdict, dataset_id: str, now_ms: int) -> MissingWindow:
    held = _held(app, one) if one.state == "quarantined" else None
    if held is None:
        return _window(one, dataset_id, "ask")
    step = step_of_held(app.ledger, held, now_ms, app.settings)
    if step is None or step.code not in ("release", "approve", "request-approval"):
        return _window(one, dataset_id, "ask")  # a person may try it within its budget
    reason = f"unless upstream has changed, it needs a second person: `{step.command}`"
    return _window(one, dataset_id, "ask", reason, held.held_id)


def _held(app: App, one: WindowVerdict) -> QuarantineEntry | None:
    """What is quarantined of a window: its run, or the request that became none."""
    wanted = app.ledger.window_reader().held_of(one.source_id, one.start_ms, one.end_ms)
    return next((found for held_id in wanted if (found := app.ledger.held_one(held_id))), None)


def ask_for_missing(
    app: App,
    plan: MissingPlan,
    *,
    rationale: str | None,
    ticket: str | None = None,
    claimed_actor: str | None = None,
    by_person: bool = True,
    name: str | None = None,
    plan_id: str | None = None,
) -> list[UpdateRequest]:
    """Make durable requests for all of a list, in one commit with the list."""
    store = app.kernel.store
    now_ms = store.now_ms()
    by = justified(app.loaded.discretion.said, app.actor, rationale, ticket, claimed_actor)
    wanted = [
        _request(app, one, plan.digest, now_ms, by_person=by_person, rationale=by.rationale, ticket=by.ticket)
        for one in plan.windows
        if one.action == "ask"
    ]
    if wanted:
        store.requests().accept(
            wanted, _asked(plan, wanted, by, now_ms), _listed(app, plan, wanted, by, now_ms, name, plan_id)
        )
    return wanted


def _listed(
    app: App,
    plan: MissingPlan,
    wanted: Sequence[UpdateRequest],
    by: Justification,
    now_ms: int,
    name: str | None,
    plan_id: str | None,
) -> Listed:
    asked = {(one.source_id, one.window_start_ms, one.window_end_ms): one.request_id for one in wanted}
    windows = [
        PlannedWindow(
            source_id=one.source_id,
            dataset_id=one.dataset_id,
            start_ms=one.start_ms,
            end_ms=one.end_ms,
            instant_ms=None,
            was=one.state,
            why=one.why,
            request_id=asked.get((one.source_id, one.start_ms, one.end_ms), one.request_id),
        )
        for one in plan.windows
    ]
    sources = sorted({one.source_id for one in plan.windows})
    subject = f"{', '.join(sources[:NAMED_MAX])}{', …' if len(sources) > NAMED_MAX else ''}"
    skipped = [one.reason for one in plan.skipped]
    said = app.loaded.discretion.said
    return window_plan(
        plan_id or app.ids.new(),
        "missing",
        plan.digest,
        subject,
        windows,
        skipped,
        by,
        now_ms,
        name and said(name),
    )


def tell_together(
    app: App, plan: MissingPlan, *, rationale: str | None, ticket: str | None, claimed_actor: str | None
) -> None:
    """The audit log tells of windows that are asked for to be published together, before any begins."""
    by = justified(app.loaded.discretion.said, app.actor, rationale, ticket, claimed_actor)
    entry = _asked(plan, plan.windows, by, app.kernel.store.now_ms(), together=True)
    app.kernel.store.append_governance([entry])


def _asked(
    plan: MissingPlan,
    wanted: Sequence[UpdateRequest | MissingWindow],
    by: Justification,
    now_ms: int,
    **more: object,
) -> GovernanceEntry:
    sources = sorted({one.source_id for one in wanted})
    return governance_entry(
        "missing-asked-for", plan.digest, now_ms, by, windows=len(wanted), sources=sources, **more
    )


def take_up(app: App, plan: MissingPlan) -> list[UpdateRequest]:
    """The requests of a list that wait for what is gone: they are due now."""
    reader = app.ledger.request_reader()
    found = [
        request
        for one in plan.windows
        if one.action == "take-up" and one.request_id and (request := reader.request(one.request_id))
    ]
    if found:
        app.kernel.store.requests().hasten(found)
    return found


def ask_for_releases(
    app: App,
    windows: Sequence[MissingWindow],
    *,
    rationale: str | None,
    ticket: str | None = None,
    claimed_actor: str | None = None,
) -> list[Approval]:
    """Request the release of windows that stay quarantined, from a second person; none without a rationale,
    or where that was requested before."""
    if not (rationale or "").strip():
        return []
    from kfm.service.approvals import request_release

    made = []
    for one in windows:
        held = app.ledger.held_one(one.held_id) if one.held_id else None
        if held is not None and held.state == "held" and not waiting(app.ledger, held):
            made.append(
                request_release(
                    app,
                    held,
                    actor=app.actor,
                    names=app.identity.names,
                    rationale=rationale or "",
                    ticket=ticket,
                    claimed_actor=claimed_actor,
                )
            )
    return made


def _request(
    app: App,
    one: MissingWindow,
    digest: str,
    now_ms: int,
    *,
    by_person: bool,
    rationale: str | None,
    ticket: str | None,
) -> UpdateRequest:
    document = {
        "kfm": MISSING_TAG,
        "digest": digest,
        "source_id": one.source_id,
        "window_start": rfc3339(one.start_ms),
        "window_end": rfc3339(one.end_ms),
        "asked": app.ids.new(),  # the same list may be asked for again, once it has been in vain
    }
    key = sha256_text(canonical_bytes(document))
    return UpdateRequest(
        request_id=request_id_of(key),
        key=key,
        kind="manual",
        source_id=one.source_id,
        dataset_id=one.dataset_id,
        window_start_ms=one.start_ms,
        window_end_ms=one.end_ms,
        actor=app.actor,
        accepted_at_ms=now_ms,
        not_before_ms=now_ms,
        rationale=rationale,
        ticket=ticket,
        by_person=by_person,
        details={MISSING: digest},
    )


def require_same(plan: MissingPlan, digest: str) -> None:
    """Refuse a list that is not the one that was shown."""
    if plan.digest != digest:
        raise PlanDrifted(
            f"The list was {digest[:19]}…; now, at {moment(plan.made_at_ms)}, it has "
            f"{counted(len(plan.windows), 'window')} and is {plan.digest[:19]}….",
            remedy="Look at it again without --digest and --yes.",
        )
