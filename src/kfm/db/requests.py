"""Requests: accepted in batches, claimed one by one, each with an outcome; bursts of arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kfm.db import governance, rows
from kfm.db.approvals import approval_parameters
from kfm.db.queries import parameters_of
from kfm.db.session import Database, Row, Session
from kfm.model.quarantine import Approval
from kfm.model.records import GovernanceEntry, Window
from kfm.model.requests import (
    Burst,
    BurstState,
    Member,
    RequestKind,
    RequestOutcome,
    RequestState,
    UpdateRequest,
    gathered,
)
from kfm.model.webhooks import former_request_id

_FIELDS = UpdateRequest.__struct_fields__
_FREE = ("actor", "claimed_actor", "rationale", "ticket", "correction", "reason", "request_uuid")
_NEVER = 2**62


def request_from(row: Row) -> UpdateRequest:
    values = dict(zip(_FIELDS, row, strict=True))
    values["details"] = rows.value_of(values["details"])
    values["needs_approval"] = bool(values["needs_approval"])
    return rows.converted(_FIELDS, tuple(values.values()), UpdateRequest)


def request_parameters(request: UpdateRequest) -> dict[str, Any]:
    parameters = rows.with_storable(msgspec.structs.asdict(request), _FREE)
    parameters["details"] = rows.prose_of(request.details)
    parameters["needs_approval"] = int(request.needs_approval)
    return parameters


def accept(session: Session, wanted: Sequence[UpdateRequest]) -> set[str]:
    """The ids that are new."""
    order = parameters_of("requests.accept")
    lines = [tuple(map(request_parameters(one).__getitem__, order)) for one in wanted]
    return {row[0] for row in session.gather("requests.accept", lines) or ()}


def accepted_formerly(session: Session, wanted: Sequence[UpdateRequest]) -> dict[str, str]:
    """Messages that their source was sent before, under the former key: their id → the id of the first."""
    named = [(former, one) for one in wanted if (former := former_request_id(one)) is not None]
    if not named:
        return {}
    lines = [(former, one.source_id) for former, one in named]
    found = {tuple(row) for row in session.gather("requests.formerly", lines) or ()}
    return {one.request_id: former for former, one in named if (former, one.source_id) in found}


def hold(session: Session, claim: tuple[str, str] | None) -> bool:
    """Is this request still this worker's, and not done? Then it stays so until the transaction ends."""
    return claim is None or bool(session.one("requests.hold", request_id=claim[0], worker_id=claim[1]))


def begun(session: Session, claim: tuple[str, str] | None, run_id: str) -> None:
    """Which run a claimed request has become."""
    if claim is not None:
        session.all("requests.begun", request_id=claim[0], worker_id=claim[1], run_id=run_id)


def cancel(session: Session, request_id: str, reason: str) -> bool:
    at_ms, reason = session.now_ms(), rows.storable(reason)
    waited = session.one("requests.cancel_waiting", request_id=request_id, reason=reason, ended_at_ms=at_ms)
    return bool(waited) or bool(session.one("requests.cancel_running", request_id=request_id, reason=reason))


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
        before_ms, before_id = before or (_NEVER, "")
        found = self._database.session.all(
            "requests.list",
            state=state,
            kind=kind,
            source_id=source_id,
            schedule_id=schedule_id,
            before_ms=before_ms,
            before_id=before_id,
            row_limit=limit,
        )
        return [request_from(row) for row in found]

    def find(self, start: str, limit: int = 2) -> list[UpdateRequest]:
        """Those whose id begins so."""
        found = self._database.session.all("requests.find", start=start, chars=len(start), row_limit=limit)
        return [request_from(row) for row in found]

    def of_run(self, run_id: str, limit: int = 50) -> list[UpdateRequest]:
        """Those that a run answered, the oldest first."""
        found = self._database.session.all("requests.of_run", run_id=run_id, row_limit=limit)
        return [request_from(row) for row in found]

    def unsettled_of(self, schedule_id: str) -> list[UpdateRequest]:
        """Those of a schedule that have no end yet, the oldest first."""
        found = self._database.session.all("requests.unsettled_of", schedule_id=schedule_id)
        return [request_from(row) for row in found]

    def preview(self, digest: str) -> str | None:
        """The plan that was kept under this digest."""
        row = self._database.session.one("previews.get", digest=digest)
        return None if row is None else row[0]

    def next_due_ms(self) -> int | None:
        """When the next request that waits may begin."""
        row = self._database.session.one("requests.next_due")
        return None if row is None else row[0]


class Requests(RequestReader):
    """Update requests: accepted, claimed, settled. Each method is one transaction."""

    def accept(
        self, wanted: Sequence[UpdateRequest], entry: GovernanceEntry | None = None
    ) -> list[UpdateRequest | None]:
        """Make them durable, all in one commit. For each: None if it is new, else what has its id already.

        The entry is made with them if any is new.
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
            return answers

        return self._database.write(change)

    def claim(
        self, worker_id: str, claim_ms: int, dead: Callable[[str], bool], limit: int = 1
    ) -> list[UpdateRequest]:
        """Some that are due, ours from now on; also of those whose runner is dead or let its claim lapse.
        None of a dataset that a request is running for: it would only be busy."""
        session = self._database.session
        now_ms = session.now_ms()
        left = [
            (request_id, by, until_ms)
            for request_id, by, until_ms in session.all("requests.claimed")
            if until_ms <= now_ms or dead(by)
        ]
        if not left and session.one("requests.due", now_ms=now_ms) is None:
            return []

        def change(session: Session) -> list[UpdateRequest]:
            now_ms = session.now_ms()
            for request_id, by, until_ms in left:  # as it was seen: a runner that is back has renewed it
                session.all("requests.release", request_id=request_id, claimed_by=by, until_ms=until_ms)
            found = session.all(
                "requests.claim",
                worker_id=worker_id,
                now_ms=now_ms,
                until_ms=now_ms + claim_ms,
                row_limit=limit,
            )
            return [request_from(row) for row in found]

        return self._database.write(change)

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
            return row is not None

        return self._database.write(change)

    def reopen(self, request: UpdateRequest, not_before_ms: int, reason: str, *, tried: bool = True) -> bool:
        """Release our claim, for later. A request that was not tried is not charged an attempt."""

        def change(session: Session) -> bool:
            row = session.one(
                "requests.reopen",
                request_id=request.request_id,
                worker_id=request.claimed_by,
                not_before_ms=not_before_ms,
                reason=rows.storable(reason),
                untried=0 if tried else 1,
            )
            return row is not None

        return self._database.write(change)

    def await_approval(
        self, request: UpdateRequest, plan: tuple[str, str], approval: Approval, entry: GovernanceEntry
    ) -> bool:
        """Keep the preview (digest, text) and ask for a second person; the claim is released."""

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
            session.all("previews.insert", digest=digest, plan=text, made_at_ms=session.now_ms())
            session.all("approvals.insert", **approval_parameters(approval))
            governance.append(session, [entry])
            return True

        return self._database.write(change)

    def keep_preview(self, request_id: str, plan: tuple[str, str]) -> None:
        """What is about to be changed, before it is."""

        def change(session: Session) -> None:
            digest, text = plan
            session.all("previews.insert", digest=digest, plan=text, made_at_ms=session.now_ms())
            session.all("requests.previewed", request_id=request_id, plan_digest=digest)

        self._database.write(change)

    def cancel(self, request_id: str, reason: str, entry: GovernanceEntry | None = None) -> bool:
        """What waits never begins; what runs is told to stop. False: it has ended."""

        def change(session: Session) -> bool:
            landed = cancel(session, request_id, reason)
            if landed and entry is not None:
                governance.append(session, [entry])
            return landed

        return self._database.write(change)


MEMBERS_MAX = 100_000  # of one burst; what is beyond makes the next
PeriodOf = Callable[[str, int], Window]  # of a source and an instant


class Bursts:
    """Bursts of arrivals, gathered until their window closes. Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close_due(self, window_ms: int, period: PeriodOf) -> int:
        """Close the windows that have been open long enough; how many bursts that made."""
        session = self._database.session
        now_ms = session.now_ms()
        due = [
            source_id
            for source_id, oldest_ms in session.all("burst_members.waiting")
            if oldest_ms <= now_ms - window_ms
        ]
        return sum(self._close(source_id, period) for source_id in due)

    def _close(self, source_id: str, period: PeriodOf) -> int:
        def change(session: Session) -> int:
            rows = session.all("burst_members.take", source_id=source_id, row_limit=MEMBERS_MAX)
            bursts = gathered(
                source_id,
                [Member(*row) for row in rows],
                lambda at_ms: period(source_id, at_ms),
                session.now_ms(),
            )
            for burst in bursts:
                session.all(
                    "bursts.insert",
                    burst_id=burst.burst_id,
                    source_id=source_id,
                    dataset=burst.dataset,
                    members=burst.members,
                    start_ms=burst.start_ms,
                    end_ms=burst.end_ms,
                    closed_at_ms=burst.closed_at_ms,
                )
            return len(bursts)

        return self._database.write(change)

    def claim(self, limit: int, claim_ms: int) -> list[Burst]:
        """Open ones; not handed out again before the claim ends."""
        if not self._database.session.all("bursts.due", now_ms=self._database.session.now_ms()):
            return []

        def change(session: Session) -> list[Burst]:
            now_ms = session.now_ms()
            rows = session.all("bursts.claim", now_ms=now_ms, until_ms=now_ms + claim_ms, row_limit=limit)
            return [Burst(*row) for row in rows]

        return self._database.write(change)

    def settle(
        self, burst: Burst, state: BurstState, run_id: str | None = None, not_before_ms: int = 0
    ) -> None:
        """What became of it; one that stays open comes again, not before that time."""
        self._database.write(
            lambda session: session.all(
                "bursts.settle",
                burst_id=burst.burst_id,
                state=state,
                run_id=run_id,
                not_before_ms=not_before_ms,
            )
        )

    def recent(self, limit: int = 50) -> list[Burst]:
        """The newest first."""
        return [Burst(*row) for row in self._database.session.all("bursts.list", row_limit=limit)]
