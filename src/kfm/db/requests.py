"""Requests: accepted in batches, claimed one by one, each with an outcome; arrivals that become requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kfm.db import approvals, governance, quarantine, rows
from kfm.db.queries import parameters_of
from kfm.db.session import Database, Row, Session
from kfm.model.keys import request_id as request_id_of
from kfm.model.quarantine import Approval, QuarantineEntry
from kfm.model.records import BY_KFM, GovernanceEntry, Window, governance_entry
from kfm.model.requests import (
    ABSENT,
    CHANGES,
    UNSETTLED,
    AnnouncedObject,
    Burst,
    Member,
    PutOff,
    RequestKind,
    RequestOutcome,
    RequestPart,
    RequestState,
    Settlement,
    UpdateRequest,
    gathered,
    member_of,
    spread_ms,
)
from kfm.model.times import AHEAD_MS, WAIT_MAX_MS, holds, last_ms

if TYPE_CHECKING:
    from kfm.db.incidents import IncidentKeeper
    from kfm.model.window_plans import Listed

_FIELDS = UpdateRequest.__struct_fields__
_FLAGS = ("needs_approval", "is_bound", "by_person")
_FREE = ("actor", "claimed_actor", "rationale", "ticket", "correction", "reason", "request_uuid")
# The part of the requests that a claimer is for → whether one of them is due, and the claim of the next one.
DUE: dict[RequestPart, str] = {
    "all": "requests.due",
    "retries": "requests.due_retry",
    "bursts": "requests.due_burst",
}
CLAIM: dict[RequestPart, str] = {
    "all": "requests.claim",
    "retries": "requests.claim_retry",
    "bursts": "requests.claim_burst",
}
SAME_MAX = 100  # requests for the same work that are looked at
VERSIONS_MAX = 20  # contents of one unit, the newest


def request_from(row: Row) -> UpdateRequest:
    values = dict(zip(_FIELDS, row, strict=True))
    values["details"] = rows.value_of(values["details"])
    for name in _FLAGS:
        values[name] = bool(values[name])
    return rows.converted(_FIELDS, tuple(values.values()), UpdateRequest)


def request_parameters(request: UpdateRequest) -> dict[str, Any]:
    parameters = rows.with_storable(msgspec.structs.asdict(request), _FREE)
    parameters["details"] = rows.prose_of(request.details)
    for name in _FLAGS:
        parameters[name] = int(parameters[name])
    return parameters


def accept(session: Session, wanted: Sequence[UpdateRequest]) -> set[str]:
    """The ids that are new."""
    order = parameters_of("requests.accept")
    lines = [tuple(map(request_parameters(one).__getitem__, order)) for one in wanted]
    fresh = session.gather("requests.accept", lines)
    return {one.request_id for one in wanted} if fresh is None else {row[0] for row in fresh}


def accepted_formerly(session: Session, wanted: Sequence[UpdateRequest]) -> dict[str, str]:
    """Messages that their source was sent before, under the former key: their id → the id of the first."""
    if all(one.kind != "webhook" for one in wanted):
        return {}
    from kfm.model.webhooks import former_request_id  # late: most commands have nothing to do with webhooks

    named = [(former, one) for one in wanted if (former := former_request_id(one)) is not None]
    if not named:
        return {}
    former_ids = msgspec.json.encode([former for former, _ in named]).decode()
    found = {tuple(row) for row in session.all("requests.formerly", former_ids=former_ids)}
    return {one.request_id: former for former, one in named if (former, one.source_id) in found}


def hold(session: Session, claim: tuple[str, str] | None) -> bool:
    """Is this request still this worker's, and not cancelled? Then it stays so until the transaction ends."""
    return claim is None or bool(session.one("requests.hold", request_id=claim[0], worker_id=claim[1]))


def begun(session: Session, claim: tuple[str, str] | None, run_id: str) -> None:
    """Which run a claimed request has become."""
    if claim is not None:
        session.all("requests.begun", request_id=claim[0], worker_id=claim[1], run_id=run_id)


def is_cancelled(session: Session, request_id: str | None) -> bool:
    """Also one that waits no more, because its runner was taken for lost when it was cancelled."""
    row = session.one("requests.get", request_id=request_id) if request_id is not None else None
    return row is not None and request_from(row).cancel is not None


def keep_preview(session: Session, plan: tuple[str, str] | None) -> None:
    """The text of a plan, under its digest."""
    if plan is not None:
        session.all("previews.insert", digest=plan[0], plan=plan[1], made_at_ms=session.now_ms())


def end_with_run(session: Session, run_id: str, outcome: str, reason: str, now_ms: int) -> set[str]:
    """The requests of a run have their answer, all but those that are cancelled; the ids."""
    found = session.all(
        "requests.ended_with",
        run_id=run_id,
        outcome=outcome,
        reason=rows.storable(reason),
        ended_at_ms=now_ms,
    )
    return {row[0] for row in found}


def _within_a_day(later: PutOff, now_ms: int) -> int:
    """When it is looked at again. Only the end of a freeze may be further ahead: no clock has made it."""
    if later.blocked_by == "freeze":
        return later.not_before_ms
    return min(later.not_before_ms, now_ms + WAIT_MAX_MS)


def settle_run(session: Session, run_id: str, settlement: Settlement | None, now_ms: int) -> None:
    """An attempt of a run has ended without success: so do its requests, or they wait for the next one."""
    if settlement is None:
        return
    cancelled = session.all("requests.end_cancelled", run_id=run_id, ended_at_ms=now_ms)
    if isinstance(settlement, RequestOutcome):
        end_with_run(session, run_id, settlement.outcome or "failed", settlement.reason, now_ms)
    else:
        session.all(
            "requests.put_off",
            run_id=run_id,
            not_before_ms=_within_a_day(settlement, now_ms),
            blocked_by=settlement.blocked_by,
            reason=rows.storable(settlement.reason),
        )
    if cancelled:  # if no other request asks for it, the attempt that was just promised is not made
        session.all("retry_states.unwanted", run_id=run_id, now_ms=now_ms)


def cancel(session: Session, request_id: str, reason: str, watch: IncidentKeeper) -> bool:
    """What waits never begins, and an approval that it waits for is asked for no more; what runs is told."""
    at_ms, reason = session.now_ms(), rows.storable(reason)
    waited = session.one("requests.cancel_waiting", request_id=request_id, reason=reason, ended_at_ms=at_ms)
    if waited and waited[0] is not None:
        session.all("retry_states.unwanted", run_id=waited[0], now_ms=at_ms)
    if waited:
        approvals.supersede(session, request_id, request_id, watch)
    return bool(waited) or bool(session.one("requests.cancel_running", request_id=request_id, reason=reason))


def _awaiting_same(session: Session, request: UpdateRequest) -> list[UpdateRequest]:
    found = session.all(
        "requests.awaiting_same",
        source_id=request.source_id,
        window_start_ms=request.window_start_ms,
        window_end_ms=request.window_end_ms,
        correction=request.correction or "",
        request_id=request.request_id,
        row_limit=SAME_MAX,
    )
    return [request_from(row) for row in found]


def wake(session: Session, blocked_by: str) -> None:
    """What waited for this is due, spread over some seconds."""
    now_ms = session.now_ms()
    for (request_id,) in session.all("requests.blocked", blocked_by=blocked_by):
        at_ms = now_ms + spread_ms(request_id)
        session.all("requests.wake", request_id=request_id, blocked_by=blocked_by, not_before_ms=at_ms)
        session.all("retry_states.hasten", request_id=request_id, not_before_ms=at_ms)


class RequestReader:
    """Read access to requests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def request(self, request_id: str) -> UpdateRequest | None:
        row = self._database.session.one("requests.get", request_id=request_id)
        return None if row is None else request_from(row)

    def requests(
        self,
        *,
        state: RequestState | None = None,
        kind: RequestKind | None = None,
        source_id: str | None = None,
        schedule_id: str | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[UpdateRequest]:
        """The newest first; `before` is (accepted_at_ms, request_id) of the last one of the page before."""
        before_ms, before_id = before or (rows.NEVER, "")
        # The statement whose index leads to the fewest; most requests are done, and most are of schedules.
        asked = {"state": state, "kind": kind, "source_id": source_id, "schedule_id": schedule_id}
        if state in UNSETTLED:
            name = "requests.list_unsettled"
        elif state == "cancelled":
            name = "requests.list_cancelled"
            del asked["state"]
        elif source_id is not None:
            name = "requests.list_of_source"
        elif schedule_id is not None:
            name = "requests.list_of_schedule"
            del asked["source_id"]
        else:
            name = "requests.list" if kind in (None, "cron") else "requests.list_of_kind"
            del asked["source_id"], asked["schedule_id"]
        found = self._database.session.all(
            name, before_ms=before_ms, before_id=before_id, row_limit=limit, **asked
        )
        return [request_from(row) for row in found]

    def find(self, start: str, limit: int = 2) -> list[UpdateRequest]:
        """Those whose id begins so."""
        found = self._database.session.all("requests.find", **rows.beginning(start), row_limit=limit)
        return [request_from(row) for row in found]

    def of_run(self, run_id: str, limit: int = 50) -> list[UpdateRequest]:
        """Those that a run answered, the oldest first."""
        found = self._database.session.all("requests.of_run", run_id=run_id, row_limit=limit)
        return [request_from(row) for row in found]

    def unsettled_of(self, schedule_id: str) -> list[UpdateRequest]:
        """Those of a schedule that have no end yet, the oldest first."""
        found = self._database.session.all("requests.unsettled_of", schedule_id=schedule_id)
        return [request_from(row) for row in found]

    def is_asked_for(self, source_id: str, schedule_id: str, start_ms: int, end_ms: int) -> bool:
        """Did this schedule ask for a window, ever, or does anything else ask for it now?"""
        row = self._database.session.one(
            "requests.is_asked_for",
            source_id=source_id,
            schedule_id=schedule_id,
            window_start_ms=start_ms,
            window_end_ms=end_ms,
        )
        return row is not None

    def refused_of(self, schedule_id: str, limit: int) -> list[UpdateRequest]:
        """The last requests of windows that a gate refused before anything ran, or that a newer scheduled
        time overtook, if nothing has covered them since; the oldest windows first."""
        found = self._database.session.all("requests.refused_of", schedule_id=schedule_id, row_limit=limit)
        return [request_from(row) for row in found]

    def preview(self, digest: str) -> str | None:
        """The plan that was kept under this digest."""
        row = self._database.session.one("previews.get", digest=digest)
        return None if row is None else row[0]

    def bound_to(self, run_id: str) -> str | None:
        """The digest of the plan that binds the attempts of a run, if one does."""
        row = self._database.session.one("requests.binding", run_id=run_id)
        return None if row is None else row[0]

    def members(self, request_id: str, limit: int = 1000) -> list[Member]:
        """What a request gathers."""
        found = self._database.session.all("request_members.of", request_id=request_id, row_limit=limit)
        return [
            Member(member=row[0], dataset=row[1], start_ms=row[2], end_ms=row[3], at_ms=row[4])
            for row in found
        ]

    def asked_by(self, member: str, limit: int = 50) -> list[UpdateRequest]:
        """The requests that a unit's content was a member of."""
        found = self._database.session.all("request_members.asked_for", member=member, row_limit=limit)
        return [one for (request_id,) in found if (one := self.request(request_id)) is not None]

    def of_unit(self, wal_id: str, content_version: int) -> list[UpdateRequest]:
        """The requests that the newest contents of a unit led to, the newest content first."""
        versions = range(content_version, max(0, content_version - VERSIONS_MAX), -1)
        return [one for each in versions for one in self.asked_by(member_of(wal_id, each))]

    def announced(self, requests: Sequence[UpdateRequest], limit: int) -> list[AnnouncedObject]:
        """The first objects that some requests gather."""
        found: list[tuple[str, Member]] = []
        for request in requests:
            if request.members and len(found) < limit:
                members = self.members(request.request_id, limit - len(found))
                found += [(request.request_id, one) for one in members]
        if not found:
            return []
        units = msgspec.json.encode([one.unit for _, one in found]).decode()
        addresses: dict[str, str] = dict(self._database.session.all("units.objects", wal_ids=units))
        from kfm.db import unit_rows  # late: most requests gather no objects

        addresses |= unit_rows.addresses(self._database.session, addresses)
        return [
            AnnouncedObject(
                request_id=request_id,
                unit=one.unit,
                content_version=one.content_version,
                dataset=one.dataset,
                object=addresses.get(one.unit),
            )
            for request_id, one in found
        ]

    def awaiting_same(self, request: UpdateRequest) -> list[UpdateRequest]:
        """Those that wait for an approval of the same work, the oldest first."""
        return _awaiting_same(self._database.session, request)

    def approved_same(self, source_id: str, window: Window) -> UpdateRequest | None:
        """One of the same work whose preview was approved, and which has not begun."""
        row = self._database.session.one(
            "requests.approved_same",
            source_id=source_id,
            window_start_ms=window.start_ms,
            window_end_ms=window.end_ms,
        )
        return None if row is None else request_from(row)

    def approved_of(self, dataset_id: str) -> list[tuple[str, str, int | None]]:
        """Request, approval and version of previews of a dataset that were approved and have not ended."""
        found = self._database.session.all(
            "requests.approved_of_dataset", dataset_id=dataset_id, row_limit=SAME_MAX
        )
        return [(request_id, approval_id, sequence) for request_id, approval_id, sequence in found]

    def due(self, now_ms: int, limit: int) -> list[UpdateRequest]:
        """Those that wait no longer, the longest due first."""
        found = self._database.session.all("requests.all_due", now_ms=now_ms, row_limit=limit)
        return [request_from(row) for row in found]

    def next_due_ms(self) -> int | None:
        """When the next request that waits may begin."""
        row = self._database.session.one("requests.next_due")
        return None if row is None else row[0]


class Requests(RequestReader):
    """Update requests: accepted, claimed, settled. Each method is one transaction."""

    def __init__(self, database: Database, watch: IncidentKeeper) -> None:
        super().__init__(database)
        self._watch = watch

    def hasten(self, waiting: Sequence[UpdateRequest]) -> None:
        """What these waited for is gone: they are due now, unless they wait for something else since."""

        def change(session: Session) -> None:
            now_ms = session.now_ms()
            for one in waiting:
                due = {"request_id": one.request_id, "not_before_ms": now_ms}
                session.all("requests.wake", **due, blocked_by=one.blocked_by)
                session.all("retry_states.hasten", **due)

        self._database.write(change)

    def accept(
        self,
        wanted: Sequence[UpdateRequest],
        entry: GovernanceEntry | None = None,
        listed: Listed | None = None,
    ) -> list[UpdateRequest | None]:
        """Make them durable, all in one commit. For each: None if it is new, else what has its id already.

        The entry, and the list that they are on, are kept with them if any is new.
        """

        def change(session: Session) -> list[UpdateRequest | None]:
            former = accepted_formerly(session, wanted)
            fresh = accept(session, [one for one in wanted if one.request_id not in former])
            answers: list[UpdateRequest | None] = []
            for one in wanted:
                if one.request_id in fresh:
                    fresh.discard(one.request_id)  # of two in one batch the second finds the first
                    answers.append(None)
                    continue
                known_as = former.get(one.request_id, one.request_id)
                row = session.one("requests.get", request_id=known_as)
                answers.append(one if row is None else request_from(row))
            if entry is not None and None in answers:
                governance.append(session, [entry])
            if listed is not None and None in answers:
                from kfm.db import window_plans  # late: most requests are on no list

                window_plans.keep(session, *listed)
            return answers

        return self._database.write(change)

    def claim(
        self, worker_id: str, claim_ms: int, dead: Callable[[str], bool], part: RequestPart = "all"
    ) -> UpdateRequest | None:
        """One that is due, ours from now on; also of those whose runner is dead or let its claim lapse.
        None of a dataset that a request is running for: it would only be busy. Datasets take turns."""
        session = self._database.session
        now_ms = session.now_ms()
        left = [
            (request_id, by, until_ms)
            for request_id, by, until_ms in session.all("requests.claimed")
            if not holds(until_ms, now_ms) or dead(by)
        ]
        if not left and session.one(DUE[part], now_ms=now_ms) is None:
            return None

        def change(session: Session) -> UpdateRequest | None:
            session.all("requests.turn")
            now_ms = session.now_ms()
            for request_id, by, until_ms in left:  # as it was seen: a runner that is back has renewed it
                session.all("requests.release", request_id=request_id, claimed_by=by, until_ms=until_ms)
            row = session.one(CLAIM[part], worker_id=worker_id, now_ms=now_ms, until_ms=now_ms + claim_ms)
            if row is None:
                return None
            request = request_from(row)
            session.all("turns.take", dataset_id=request.dataset_id, now_ms=now_ms)
            return request

        return self._database.write(change)

    def make_due(self) -> int:
        """What waits for the time of a clock that was ahead is due; how many."""
        session = self._database.session
        now_ms = session.now_ms()
        times = {"now_ms": now_ms, "last_ms": last_ms(now_ms), "ahead_ms": now_ms + AHEAD_MS}
        if session.one("requests.stranded", **times) is None:
            return 0
        return len(self._database.write(lambda each: each.all("requests.make_due", **times)))

    def give_back(self, worker_id: str) -> None:
        """The claims of a worker id that is not used any more."""
        self._database.write(lambda session: session.all("requests.give_back", worker_id=worker_id))

    def renew(self, request: UpdateRequest, claim_ms: int) -> UpdateRequest | None:
        """Ours for longer, as it stands now; None: it is not ours any more."""

        def change(session: Session) -> UpdateRequest | None:
            row = session.one(
                "requests.renew",
                request_id=request.request_id,
                worker_id=request.claimed_by,
                until_ms=session.now_ms() + claim_ms,
            )
            return None if row is None else request_from(row)

        return self._database.write(change)

    def settle(self, request: UpdateRequest, ending: RequestOutcome) -> bool:
        """The end of what we claimed; False: it was not ours any more."""

        def change(session: Session) -> bool:
            settled = settle(session, request, ending)
            if settled and ending.outcome == ABSENT and request.run_id is not None:
                # What an earlier attempt was promised is not made; nothing failed that a person has to see.
                session.all("retry_states.unwanted", run_id=request.run_id, now_ms=session.now_ms())
            if settled and ending.outcome in ("noop", "empty") and ending.run_id is None:
                # Its preview has seen what is there, and no run will say so.
                window = (request.window_start_ms, request.window_end_ms)
                self._watch.settled(session, request.source_id, window, session.now_ms())
            return settled

        return self._database.write(change)

    def reopen(
        self, request: UpdateRequest, later: PutOff, *, run_id: str | None = None, tried: bool = True
    ) -> bool:
        """Release our claim, for later; with a run, it ends with that. What was not tried is not charged."""

        def change(session: Session) -> bool:
            row = session.one(
                "requests.reopen",
                request_id=request.request_id,
                worker_id=request.claimed_by,
                not_before_ms=_within_a_day(later, session.now_ms()),
                blocked_by=later.blocked_by,
                reason=rows.storable(later.reason),
                run_id=run_id,
                untried=0 if tried else 1,
            )
            if row is not None and later.blocked_by == "next-run":
                session.all(
                    "retry_states.leave",
                    run_id=run_id or request.run_id,
                    not_before_ms=later.not_before_ms,
                )
            return row is not None

        return self._database.write(change)

    def give_up(
        self,
        request: UpdateRequest,
        ending: RequestOutcome,
        held: QuarantineEntry | None,
        entries: Sequence[GovernanceEntry],
    ) -> bool:
        """The end of a request that became no run, with its entry in quarantine and its incident."""

        def change(session: Session) -> bool:
            if not settle(session, request, ending):
                return False
            quarantine.hold(session, held)
            self._watch.gave_up(session, held, None, session.now_ms())
            governance.append(session, entries)
            return True

        return self._database.write(change)

    def adopt(self, limit: int, make: Callable[[str, int, int], UpdateRequest | None]) -> int:
        """A request for each promised attempt without one; how many. `make` gets run, time, attempt."""
        found = self._database.session.all("requests.orphans", row_limit=limit)
        wanted = [made for row in found if (made := make(row[0], row[1] or 0, row[2])) is not None]
        if not wanted:
            return 0
        latest_ms = self._database.session.now_ms() + WAIT_MAX_MS
        near = [replace(one, not_before_ms=min(one.not_before_ms, latest_ms)) for one in wanted]
        return len(self._database.write(lambda session: accept(session, near)))

    def await_approval(
        self, request: UpdateRequest, plan: tuple[str, str], approval: Approval, entry: GovernanceEntry
    ) -> bool:
        """Keep the preview (digest, text) and ask for a second person; the claim is released. Undecided
        previews of the same work are superseded: their requests end."""

        from kfm.model.next_steps import approve_command

        def change(session: Session) -> bool:
            digest, text = plan
            row = session.one(
                "requests.await_approval",
                request_id=request.request_id,
                worker_id=request.claimed_by,
                plan_digest=digest,
                reason="Waits for a second person to approve its preview: "
                + approve_command(approval.request_id),
            )
            if row is None:
                return False
            keep_preview(session, (digest, text))
            late = self._watch.late()
            approvals.supersede(session, request.request_id, approval.request_id, late)
            ended = _supersede_same(session, request, approval.request_id, late)
            approvals.start_waiting(session, approval, late)
            late.settle()
            governance.append(session, [entry, *ended])
            return True

        return self._database.write(change)

    def preview_anew(self, limit: int) -> int:
        """Previews that wait for an approval although their dataset has a newer version are made anew: what
        they show can't come true any more. How many."""
        if not self._database.session.all("approvals.outdated", row_limit=1):
            return 0

        def change(session: Session) -> int:
            found, late = session.all("approvals.outdated", row_limit=limit), self._watch.late()
            for request_id, digest in found:
                reason = "A newer version is published: its preview is made anew."
                session.one("requests.preview_anew", request_id=request_id, plan_digest=digest, reason=reason)
                approvals.supersede(session, request_id, request_id, late)
            late.settle()
            return len(found)

        return self._database.write(change)

    def take(self, request_id: str, worker_id: str, claim_ms: int) -> UpdateRequest | None:
        """One that is due, claimed by its id; None: it waits no more."""

        def change(session: Session) -> UpdateRequest | None:
            session.all("requests.turn")
            now_ms = session.now_ms()
            row = session.one(
                "requests.take",
                request_id=request_id,
                worker_id=worker_id,
                now_ms=now_ms,
                until_ms=now_ms + claim_ms,
            )
            return None if row is None else request_from(row)

        return self._database.write(change)

    def keep_preview(self, request_id: str, run_id: str, plan: tuple[str, str]) -> None:
        """What is about to be changed, before it is: for this request, and for all that end with its run."""

        def change(session: Session) -> None:
            keep_preview(session, plan)
            session.all("requests.previewed", request_id=request_id, run_id=run_id, plan_digest=plan[0])

        self._database.write(change)

    def cancel(self, request_id: str, reason: str, entry: GovernanceEntry | None = None) -> bool:
        """What waits never begins; what runs is told to stop. False: it has ended."""

        def change(session: Session) -> bool:
            late = self._watch.late()
            landed = cancel(session, request_id, reason, late)
            late.settle()
            if landed and entry is not None:
                governance.append(session, [entry])
            return landed

        return self._database.write(change)


def _supersede_same(
    session: Session, request: UpdateRequest, approval_id: str, watch: IncidentKeeper
) -> list[GovernanceEntry]:
    ended, now_ms = [], session.now_ms()
    for older in _awaiting_same(session, request):
        reason = f"Superseded by request {request.request_id}, whose preview is newer."
        session.one("requests.superseded", request_id=older.request_id, reason=reason, ended_at_ms=now_ms)
        for each in approvals.supersede(session, older.request_id, approval_id, watch):
            ended.append(
                governance_entry(
                    "approval-superseded",
                    older.request_id,
                    now_ms,
                    BY_KFM,
                    request_id=each,
                    dataset_id=older.dataset_id,
                    superseded_by=approval_id,
                )
            )
    return ended


def settle(session: Session, request: UpdateRequest, ending: RequestOutcome) -> bool:
    row = session.one(
        "requests.settle",
        request_id=request.request_id,
        worker_id=request.claimed_by,
        state=ending.state,
        outcome=ending.outcome,
        reason=rows.storable(ending.reason),
        run_id=ending.run_id,
        ended_at_ms=session.now_ms(),
    )
    if row is not None and ending.state == "cancelled" and request.run_id is not None:
        session.all("retry_states.unwanted", run_id=request.run_id, now_ms=session.now_ms())
    return row is not None


MEMBERS_MAX = 100_000  # of one burst; what is beyond makes the next
PeriodOf = Callable[[str, int], Window]  # of a source and a time


class Bursts:
    """Arrivals that sources wait for, gathered until their window closes; then they are requests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close_due(
        self, window_ms: int, period: PeriodOf, dataset_of: Callable[[str], str], actor: str
    ) -> int:
        """Close the windows that have been open long enough; how many requests that made."""
        session = self._database.session
        now_ms = session.now_ms()
        due = [
            source_id
            for source_id, oldest_ms in session.all("burst_members.waiting")
            if not now_ms - window_ms < oldest_ms <= now_ms  # or it came by a clock that was ahead
        ]
        return sum(self._close(source_id, period, dataset_of(source_id), actor) for source_id in due)

    def _close(self, source_id: str, period: PeriodOf, dataset_id: str, actor: str) -> int:
        """One transaction: the members leave the gathering and become requests, or neither."""

        def change(session: Session) -> int:
            taken = session.all("burst_members.take", source_id=source_id, row_limit=MEMBERS_MAX)
            bursts = gathered(
                source_id, [Member(*row) for row in taken], lambda at_ms: period(source_id, at_ms)
            )
            now_ms = session.now_ms()
            made = [_request_of(burst, source_id, dataset_id, actor, now_ms) for burst in bursts]
            fresh = accept(session, made)
            for request, burst in zip(made, bursts, strict=True):
                if request.request_id in fresh:
                    session.send_all(
                        "request_members.add",
                        [
                            (request.request_id, one.member, one.dataset, one.start_ms, one.end_ms, one.at_ms)
                            for one in burst.members
                        ],
                    )
            return len(fresh)

        return self._database.write(change)


def _gathered_details(burst: Burst) -> dict[str, Any]:
    """Announced objects are counted, changed datasets named with their newest sequence."""
    details: dict[str, Any] = {"datasets": sorted({one.dataset for one in burst.members})}
    objects = sum(one.change is None for one in burst.members)
    if objects:
        details["members"] = objects
    changes = sorted(one.change for one in burst.members if one.change is not None)
    return {**details, CHANGES: dict(changes)} if changes else details


def _request_of(burst: Burst, source_id: str, dataset_id: str, actor: str, now_ms: int) -> UpdateRequest:
    return UpdateRequest(
        request_id=request_id_of(burst.key),
        key=burst.key,
        kind="upstream-event",
        source_id=source_id,
        dataset_id=dataset_id,
        window_start_ms=burst.window.start_ms,
        window_end_ms=burst.window.end_ms,
        actor=actor,
        accepted_at_ms=now_ms,
        details=_gathered_details(burst),
    )
