"""Reads from the ledger, on either database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kfm.db import approvals, breakers, quarantine, rows
from kfm.db.session import Database, Row, Session
from kfm.model.breaker import Breaker
from kfm.model.quarantine import Ahead, Approval, QuarantineEntry, RetryState, Waiting
from kfm.model.records import (
    Found,
    GovernanceEntry,
    Invocation,
    Lock,
    Promotion,
    Run,
    Switch,
    Window,
    Work,
)
from kfm.model.remembered import remembered
from kfm.model.runs import Attempt, Backlog, CallRetry, ChainLink, OutboxMessage

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kfm.db.branches import EmbeddedBranchReader
    from kfm.db.catalogue import CatalogueReader
    from kfm.db.dataset_changes import DatasetChangeReader
    from kfm.db.derived import DerivedReader
    from kfm.db.folds import Fold
    from kfm.db.replays import ReplayReader
    from kfm.db.requests import RequestReader
    from kfm.db.retention import RetentionReader
    from kfm.db.schedules import ScheduleReader
    from kfm.db.units import UnitReader
    from kfm.db.versions import VersionReader
    from kfm.db.window_facts import WindowReader
    from kfm.db.window_plans import WindowPlanReader
    from kfm.model.incidents import Incident, IncidentSubject, Notification, Silence
    from kfm.model.run_state import PassFigures
    from kfm.model.versions import Version


NumberedRow = TypeVar("NumberedRow", bound=tuple[Any, ...])
Key = TypeVar("Key")
Value = TypeVar("Value")

PAGE_ROWS = 1000


def every(read: Callable[[int, int], Sequence[NumberedRow]]) -> Iterator[NumberedRow]:
    """All rows of a reader that takes a number and a limit; each row begins with its own number."""
    after = 0
    while page := read(after, PAGE_ROWS):
        yield from page
        after = page[-1][0]


def every_from(
    start: Key, read: Callable[[Key, int], Sequence[Value]], key: Callable[[Value], Key]
) -> Iterator[Value]:
    """As `every`, for rows that have a place in an order instead of a number."""
    after = start
    while page := read(after, PAGE_ROWS):
        yield from page
        after = key(page[-1])


MASKED_NAMES = "masked_names"  # the mark that remembers every name that was ever masked


def _incidents(found: list[Row]) -> list[Incident]:
    if not found:  # the usual case imports nothing
        return []
    from kfm.db.incidents import incident_from

    return [incident_from(row) for row in found]


class LedgerReader:
    """Read access to the ledger: all that a dry run gets."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._session: Session = database.session

    @property
    def database(self) -> Database:
        """For the tables that have a class of their own."""
        return self._database

    @property
    def is_stored(self) -> bool:
        """False where none is there yet: what is read then is an empty one in memory."""
        from kfm.db.sqlite import MemoryDatabase

        return not isinstance(self._database, MemoryDatabase)

    def moment(self) -> AbstractContextManager[None]:
        """Around many reads, which nothing else is done between."""
        return self._database.moment()

    def latest_run(self, work_base: str) -> Run | None:
        row = self._session.one("runs.latest_of_work", work_base=work_base)
        return rows.run_from(row) if row else None

    def run_documents(self, run_id: str) -> dict[str, Any] | None:
        """What the first attempt of a run kept of its trigger; None: it began before any was kept."""
        row = self._session.one("run_documents.get", run_id=run_id)
        return rows.value_of(row[0]) if row else None

    def latest_success(self, work: Work) -> Run | None:
        """The run that published this source's window last, whatever its pipeline's version."""
        row = self._session.one(
            "runs.latest_success",
            source_id=work.source_id,
            window_start_ms=work.window.start_ms,
            window_end_ms=work.window.end_ms,
            partition_key=work.partition or "",
        )
        return rows.run_from(row) if row else None

    def run_of_correction(self, work_base: str, correction: str) -> Run | None:
        row = self._session.one("runs.of_correction", work_base=work_base, correction=correction)
        return rows.run_from(row) if row else None

    def run(self, run_id: str) -> Run | None:
        row = self._session.one("runs.by_id", run_id=run_id)
        return rows.run_from(row) if row else None

    def is_touched(self, source_id: str, start_ms: int, end_ms: int) -> bool:
        """Has any run looked at this window of a source, or has a person settled it?"""
        return bool(
            self._session.one(
                "runs.touched", source_id=source_id, window_start_ms=start_ms, window_end_ms=end_ms
            )
        )

    def newest_fingerprint(self, source_id: str, window: Window, *, without: str) -> str | None:
        """The fingerprint of the newest other window of a source that succeeded, `without` this one."""
        row = self._session.one(
            "runs.newest_fingerprint",
            source_id=source_id,
            window_start_ms=window.start_ms,
            window_end_ms=window.end_ms,
            without=without,
        )
        return None if row is None else row[0]

    def newest_run(self, dataset_id: str) -> Run | None:
        """The run of a dataset that began last, however much other datasets have done since."""
        row = self._session.one("runs.newest_of", dataset_id=dataset_id)
        return rows.run_from(row) if row else None

    def newest_invocation(self, dataset_id: str) -> Invocation | None:
        """The last invocation for a dataset, however often others were asked for since."""
        row = self._session.one("invocations.newest_of", dataset_id=dataset_id)
        return rows.invocation_from(row) if row else None

    def newest_invocation_of_source(self, source_id: str) -> Invocation | None:
        row = self._session.one("invocations.newest_of_source", source_id=source_id)
        return rows.invocation_from(row) if row else None

    def window_reader(self) -> WindowReader:
        from kfm.db.window_facts import WindowReader

        return WindowReader(self._database)

    def run_by_key(self, idempotency_key: str) -> Run | None:
        row = self._session.one("runs.by_key", idempotency_key=idempotency_key)
        return rows.run_from(row) if row else None

    def runs(
        self,
        *,
        dataset_id: str | None = None,
        source_id: str | None = None,
        status: str | None = None,
        since_ms: int = 0,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[Run]:
        """Newest first; `before` is (start_time_ms, run_id) of the last one of the page before."""
        before_ms, before_id = before or (rows.NEVER, "")
        # The statement whose index leads to the fewest: runs that did not succeed, of a source, of a dataset.
        asked = {"dataset_id": dataset_id or "", "source_id": source_id or "", "status": status or ""}
        if status in ("running", "failed"):
            name = "runs.list_running" if asked.pop("status") == "running" else "runs.list_failed"
        elif source_id:
            name = "runs.list_of_source"
        else:
            del asked["source_id"]
            name = "runs.list_of_dataset" if dataset_id else "runs.list"
            if not dataset_id:
                del asked["dataset_id"]
        found = self._session.all(
            name, since_ms=since_ms, before_ms=before_ms, before_id=before_id, row_limit=limit, **asked
        )
        return [rows.run_from(row) for row in found]

    def find_runs(self, start: str, limit: int = 2) -> list[Run]:
        """Those whose id begins so."""
        found = self._session.all("runs.find", **rows.beginning(start), row_limit=limit)
        return [rows.run_from(row) for row in found]

    def invocations(self, *, run_id: str | None = None, limit: int = 50) -> list[Invocation]:
        """Newest first."""
        found = (
            self._session.all("invocations.of_run", run_id=run_id, row_limit=limit)
            if run_id
            else self._session.all("invocations.list", row_limit=limit)
        )
        return [rows.invocation_from(row) for row in found]

    def invocations_before(
        self, from_ms: int, until_ms: int, before: int, limit: int
    ) -> list[tuple[int, Invocation]]:
        """Those of a span of time, with their numbers, newest first; of those at `until_ms` the ones with
        lower numbers than `before`."""
        found = self._session.all(
            "invocations.before", from_ms=from_ms, until_ms=until_ms, before_number=before, row_limit=limit
        )
        return [(row[0], rows.invocation_from(row[1:])) for row in found]

    def find_invocations(self, start: str, limit: int = 2) -> list[Invocation]:
        """Those whose id begins so."""
        found = self._session.all("invocations.find", **rows.beginning(start), row_limit=limit)
        return [rows.invocation_from(row) for row in found]

    def newer_successes(self, source_id: str, after_ms: int, limit: int) -> list[Run]:
        """Successful runs of a source for windows that end later, the newest window first."""
        found = self._session.all(
            "runs.newer_successes", source_id=source_id, after_ms=after_ms, row_limit=limit
        )
        return [rows.run_from(row) for row in found]

    def head(self, dataset_id: str) -> tuple[Promotion, Version] | None:
        return self._versions.head(dataset_id)

    def change_reader(self) -> DatasetChangeReader:
        from kfm.db.dataset_changes import DatasetChangeReader

        return DatasetChangeReader(self._database, self.head)

    def heads(self) -> list[Promotion]:
        return [rows.promotion_from(row) for row in self._session.all("promotions.heads")]

    def promotions(self, dataset_id: str, limit: int = 50, before: int | None = None) -> list[Promotion]:
        """The newest first; `before`: only versions with a lower number."""
        if before is None:
            found = self._session.all("promotions.list", dataset_id=dataset_id, row_limit=limit)
        else:
            found = self._session.all(
                "promotions.page", dataset_id=dataset_id, before=before, row_limit=limit
            )
        return [rows.promotion_from(row) for row in found]

    def promotion(self, dataset_id: str, sequence: int) -> Promotion | None:
        row = self._session.one("promotions.at", dataset_id=dataset_id, sequence=sequence)
        return rows.promotion_from(row) if row else None

    def version(self, version_id: str) -> Version | None:
        return self._versions.version(version_id)

    @remembered
    def _versions(self) -> VersionReader:
        from kfm.db.versions import VersionReader  # late: not every command looks at one

        return VersionReader(self._database)

    def lock(self, scope: str) -> Lock | None:
        row = self._session.one("locks.get", scope=scope)
        return rows.lock_from(row) if row else None

    def locks(self) -> list[Lock]:
        return [rows.lock_from(row) for row in self._session.all("locks.list")]

    def switches(self) -> list[Switch]:
        return [rows.switch_from(row) for row in self._session.all("switches.list")]

    def breaker(self, provider: str) -> Breaker:
        """The provider's breaker; closed if it has never failed."""
        return breakers.read(self._session, rows.storable(provider))

    def breakers(self) -> list[Breaker]:
        return [breakers.breaker_from(row) for row in self._session.all("breakers.list")]

    def policy_epoch(self) -> int:
        row = self._session.one("policy.epoch")
        assert row is not None
        return int(row[0])

    def forces(self, work_base: str) -> int:
        row = self._session.one("runs.forces", work_base=work_base)
        assert row is not None
        return int(row[0])

    def governance(
        self, *, kind: str | None = None, subject: str | None = None, limit: int = 50
    ) -> list[GovernanceEntry]:
        """Newest first."""
        if subject:
            found = self._session.all("governance.about", subject=subject, kind=kind or "", row_limit=limit)
        elif kind:
            found = self._session.all("governance.of_kind", kind=kind, row_limit=limit)
        else:
            found = self._session.all("governance.list", row_limit=limit)
        return [rows.entry_from(row) for row in found]

    def entries_before(
        self, before: int, *, kind: str | None = None, subject: str | None = None, limit: int = 1000
    ) -> list[ChainLink]:
        """Entries of the audit log before a number, newest first: of one subject, else kind, else all."""
        if subject:
            found = self._session.all(
                "governance.subject_before", subject=subject, before=before, row_limit=limit
            )
        elif kind:
            found = self._session.all("governance.kind_before", kind=kind, before=before, row_limit=limit)
        else:
            found = self._session.all("governance.before", before=before, row_limit=limit)
        return [rows.link_from(row) for row in found]

    def of_ticket(self, ticket: str, limit: int = 50) -> tuple[list[Invocation], list[GovernanceEntry]]:
        """What was asked for and what was decided with reference to a ticket, newest first."""
        calls = self._session.all("invocations.of_ticket", ticket=ticket, row_limit=limit)
        entries = self._session.all("governance.of_ticket", ticket=ticket, row_limit=limit)
        return [rows.invocation_from(row) for row in calls], [rows.entry_from(row) for row in entries]

    def links(self, subject: str, limit: int = 50) -> list[ChainLink]:
        """The audit log's entries about one subject with their places in the chain, newest first."""
        found = self._session.all("governance.of_subject", subject=subject, row_limit=limit)
        return [rows.link_from(row) for row in found]

    def projected(self) -> dict[tuple[str, str], int]:
        """(dataset_id, target) → last sequence known to be shown there."""
        return {(dataset, target): seq for dataset, target, seq in self._session.all("projections.list")}

    def states(self, dataset_id: str) -> dict[str, Any]:
        found = self._session.all("states.list", dataset_id=dataset_id)
        return {key: rows.value_of(value) for key, value in found}

    def events(self, run_id: str) -> list[tuple[str, Any]]:
        found = self._session.all("events.list", run_id=run_id)
        return [(kind, rows.value_of(payload)) for kind, payload in found]

    # --- evidence ----------------------------------------------------------------------

    def invocation(self, invocation_id: str) -> Invocation | None:
        row = self._session.one("invocations.by_id", invocation_id=invocation_id)
        return rows.invocation_from(row) if row else None

    def invocations_since(self, after: int, limit: int = 1000) -> list[tuple[int, Invocation]]:
        """Invocations with a greater row number, each with that number."""
        found = self._session.all("invocations.since", after_number=after, row_limit=limit)
        return [(row[0], rows.invocation_from(row[1:])) for row in found]

    def count_runs(self, since_ms: int = 0) -> int:
        row = self._session.one("runs.count_since", since_ms=since_ms)
        return int(row[0]) if row else 0

    def troubled_runs(self, after: tuple[int, str], limit: int = 1000) -> list[Run]:
        """Runs that were tried more than once, or whose calls were, by start and id, after that place."""
        found = self._session.all("runs.troubled", after_ms=after[0], after_id=after[1], row_limit=limit)
        return [rows.run_from(row) for row in found]

    def attempts(self, run_id: str) -> list[Attempt]:
        """Of the run and its nodes, in the order in which they began."""
        return [rows.attempt_from(row) for row in self._session.all("attempts.of_run", run_id=run_id)]

    def attempts_since(self, after: int, limit: int = 1000) -> list[tuple[int, Attempt, Run]]:
        """Attempts with a greater row number, each with that number and its run: for counting them all."""
        found = self._session.all("attempts.since", after_number=after, row_limit=limit)
        return [rows.attempt_and_run_from(row) for row in found]

    def pass_attempts(self, run_id: str) -> list[PassFigures]:
        from kfm.db import pipeline_runs

        found = self._session.all("pass_attempts.of_run", run_id=run_id)
        return [pipeline_runs.figures_from(row) for row in found]

    def pass_attempts_since(self, after: int, limit: int = 1000) -> list[tuple[int, PassFigures]]:
        """Attempts at passes with a greater number, in order; what they count may still grow."""
        from kfm.db import pipeline_runs

        found = self._session.all("pass_attempts.since", after_number=after, row_limit=limit)
        return [(row[0], pipeline_runs.figures_from(row[1:])) for row in found]

    def retries(self, run_id: str) -> list[CallRetry]:
        return [rows.retry_from(row) for row in self._session.all("retries.of_run", run_id=run_id)]

    def retries_since(self, after: int, limit: int = 1000) -> list[tuple[int, CallRetry]]:
        found = self._session.all("retries.since", after_number=after, row_limit=limit)
        return [(row[0], rows.retry_from(row[1:])) for row in found]

    def inputs(self, fingerprint: str) -> tuple[Found, ...] | None:
        """What was discovered when upstream had this fingerprint."""
        row = self._session.one("inputs.get", fingerprint=fingerprint)
        return rows.found_from(row[0]) if row else None

    def policy_texts(self, bundle_id: str) -> dict[str, str] | None:
        """Policy id → its text, of policies that were in force once."""
        row = self._session.one("policies.get", bundle_id=bundle_id)
        return rows.texts_from(row[0]) if row else None

    def outbox_messages(self, subject: str) -> list[OutboxMessage]:
        found = self._session.all("outbox.of_subject", subject=subject)
        return [rows.message_from(row) for row in found]

    def backlog(self, topic: str) -> Backlog:
        row = self._session.one("outbox.backlog", topic=topic)
        return Backlog(waiting=row[0], oldest_ms=row[1]) if row else Backlog(waiting=0, oldest_ms=None)

    def chain(self, after: int = 0, limit: int = 1000) -> list[ChainLink]:
        """The audit log in its own order."""
        found = self._session.all("governance.chain", after_number=after, row_limit=limit)
        if after == 0:  # what stands before the first row belongs to no page, and must still be seen
            found = self._session.all("governance.strays") + found
        return [rows.link_from(row) for row in found]

    def chain_head(self) -> tuple[int, str]:
        """Where the audit log says that it ends: the number and hash of its last row."""
        row = self._session.one("chain_heads.get")
        if row is None:
            raise rows.headless()
        return row[0], row[1]

    def events_between(self, first: int, last: int, limit: int = 1000) -> list[OutboxMessage]:
        """Rows of the outbox by their numbers, both included."""
        found = self._session.all("outbox.between", first_number=first, last_number=last, row_limit=limit)
        return [rows.message_from(row) for row in found]

    def events_posted(self, after: int = 0, limit: int = 2**62) -> int:
        """How many rows the outbox has above that number; they are counted up to a limit."""
        row = self._session.one("outbox.count", after_number=after, row_limit=limit)
        return int(row[0]) if row else 0

    # --- retries -----------------------------------------------------------------------

    def retry_state(self, run_id: str) -> RetryState | None:
        row = self._session.one("retry_states.get", run_id=run_id)
        return quarantine.state_from(row) if row else None

    def acts(self, run_id: str) -> tuple[str, ...]:
        """What the attempts of a run may have done outside and must not be repeated, by name."""
        return tuple(dict.fromkeys(row[1] for row in self._session.all("acts.of_run", run_id=run_id)))

    def cancelled(self, run_id: str) -> str | None:
        """Why a request of this run, which is under way, is cancelled; None: none is."""
        row = self._session.one("requests.cancelled", run_id=run_id)
        return row[0] if row else None

    def waiting(self, until_ms: int, limit: int = 100) -> list[Waiting]:
        """Failed runs whose automatic attempt is due by then, the earliest first."""
        found = self._session.all("retry_states.waiting", until_ms=until_ms, row_limit=limit)
        return [quarantine.waiting_from(row) for row in found]

    def unjudged(self, limit: int = 100) -> list[Run]:
        """Runs whose process died before it was decided what becomes of them."""
        return [rows.run_from(row) for row in self._session.all("runs.unjudged", row_limit=limit)]

    def held(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        dataset_id: str | None = None,
        subject: str | None = None,
        limit: int = 50,
    ) -> list[QuarantineEntry]:
        """Newest first."""
        if subject:
            return quarantine.of_subject(self._session, subject, state, kind, dataset_id, limit)
        found = self.held_page(state=state, kind=kind, dataset_id=dataset_id, limit=limit)
        return [entry for _, entry in found]

    def held_page(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        dataset_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[tuple[int, QuarantineEntry]]:
        """Newest first, each with its number; `before` is that of the last one of the page before."""
        return quarantine.listed(
            self._session, state=state, kind=kind, dataset_id=dataset_id, before=before, limit=limit
        )

    def held_one(self, held_id: str) -> QuarantineEntry | None:
        row = self._session.one("held.get", held_id=held_id)
        return quarantine.held_from(row) if row else None

    def find_held(self, start: str, limit: int = 2) -> list[QuarantineEntry]:
        """Those whose id begins so."""
        found = self._session.all("held.find", **rows.beginning(start), row_limit=limit)
        return [quarantine.held_from(row) for row in found]

    def ahead(self) -> Ahead:
        """How much is held and since when, and which automatic attempt comes next."""
        held, since_ms, waiting = self._session.one("held.ahead") or (0, None, 0)
        row = self._session.one("retry_states.next") if waiting else None
        run_id, dataset_id, at_ms = row or (None, None, None)
        return Ahead(
            held=held,
            held_since_ms=since_ms,
            waiting=waiting,
            next_run_id=run_id,
            next_dataset_id=dataset_id,
            next_at_ms=at_ms,
        )

    def halted(self, dataset_id: str) -> QuarantineEntry | None:
        """A run of this dataset that a CARE or sovereignty rule halted and that is not released."""
        row = self._session.one("held.halted", dataset_id=dataset_id)
        return quarantine.held_from(row) if row else None

    def approval(self, request_id: str) -> Approval | None:
        row = self._session.one("approvals.get", request_id=request_id)
        return approvals.approval_from(row) if row else None

    def approvals(
        self,
        *,
        state: str | None = None,
        subject: str | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[Approval]:
        """Newest first; `before` is (requested_at_ms, request_id) of the last one of the page before, of a
        list that is not of one subject."""
        before_ms, before_id = before or (rows.NEVER, "")
        place: dict[str, Any] = {"before_ms": before_ms, "before_id": before_id, "row_limit": limit}
        if subject:
            found = self._session.all(
                "approvals.of_subject", subject=subject, state=state or "", row_limit=limit
            )
        elif state:
            found = self._session.all("approvals.in_state", state=state, **place)
        else:
            found = self._session.all("approvals.list", **place)
        return [approvals.approval_from(row) for row in found]

    def find_approvals(self, start: str, limit: int = 2) -> list[Approval]:
        """Those whose id begins so."""
        found = self._session.all("approvals.find", **rows.beginning(start), row_limit=limit)
        return [approvals.approval_from(row) for row in found]

    def approval_of_attempt(self, run_id: str, attempt: int) -> Approval | None:
        """What the attempt of a run was begun under."""
        row = self._session.one("approvals.of_attempt", run_id=run_id, attempt=attempt)
        return approvals.approval_from(row) if row else None

    def approvals_of_terms(self, terms: str, limit: int = 50) -> list[Approval]:
        """Previews of the same work with the same rights, the newest first."""
        found = self._session.all("approvals.of_terms", terms=terms, row_limit=limit)
        return [approvals.approval_from(row) for row in found]

    def approval_uses(self, request_id: str) -> int:
        """How many attempts were begun under it."""
        row = self._session.one("approval_uses.count", request_id=request_id)
        return int(row[0]) if row else 0

    # --- incidents ---------------------------------------------------------------------

    def incidents(
        self,
        *,
        state: Literal["open"] | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[Incident]:
        """Newest first; all, or those that are open. `before` is (opened_at_ms, cause) of the last one of the
        page before."""
        name = "incidents.list_open" if state == "open" else "incidents.list"
        before_ms, after_cause = before or (rows.NEVER, "")
        found = self._session.all(name, before_ms=before_ms, after_cause=after_cause, row_limit=limit)
        return _incidents(found)

    def open_incidents(self) -> dict[str, int]:
        """How many are open, by kind."""
        return {str(kind): int(count) for kind, count in self._session.all("incidents.open_by_kind")}

    def find_incidents(self, start: str, limit: int = 2) -> list[Incident]:
        """Those whose id, or whose cause, begins so."""
        return _incidents(self._session.all("incidents.find", **rows.beginning(start), row_limit=limit))

    def incident_subjects(self, cause: str, limit: int = 100) -> list[str]:
        """What it affects: runs, units, windows, requests, targets."""
        found = self._session.all("incident_subjects.list", cause=cause, row_limit=limit)
        return [str(row[0]) for row in found]

    def incident_affects(self, cause: str) -> int:
        """How many of them there are now."""
        row = self._session.one("incident_subjects.count", cause=cause)
        return int(row[0]) if row else 0

    def incident_subject(self, cause: str, subject: str) -> IncidentSubject | None:
        """One of those that it affects, with its window."""
        row = self._session.one("incident_subjects.get", cause=cause, subject=subject)
        if row is None:
            return None
        from kfm.db import incidents

        return incidents.subject_from(row)

    def incidents_about(self, subject: str) -> list[Incident]:
        """Those that affect a run, a unit or a request now."""
        causes = self._session.all("incident_subjects.of_subject", subject=subject)
        found = (self.find_incidents(str(cause), 1) for (cause,) in causes)
        return [each for one in found for each in one]

    def silences(self) -> list[Silence]:
        """Those in force."""
        found = self._session.all("silences.in_force")
        if not found:
            return []
        from kfm.db import incidents

        return [incidents.silence_from(row) for row in found]

    def hook_backlog(self, hook: str) -> Backlog:
        """The outbox backlog of a hook."""
        from kfm.db import incidents  # late: few ask

        return incidents.backlog(self._session, hook)

    def hook_deliveries(self, cause: str) -> list[Notification]:
        """Each change of a cause and each hook that it was offered to, in their order."""
        found = self._session.all("hook_deliveries.of_subject", subject=cause, topic="incident")
        if not found:
            return []
        from kfm.db import incidents

        return [incidents.notification_from(row) for row in found]

    # --- branches ----------------------------------------------------------------------

    def derived_reader(self) -> DerivedReader:
        """What derived sources have read and asked for."""
        from kfm.db.derived import DerivedReader

        return DerivedReader(self._database)

    def branch_reader(self) -> EmbeddedBranchReader:
        """The branches that are tables here."""
        from kfm.db.branches import EmbeddedBranchReader  # late: most commands need no branches

        return EmbeddedBranchReader(self._database)

    def unit_reader(self) -> UnitReader:
        from kfm.db.units import UnitReader

        return UnitReader(self._database)

    def retention_reader(self) -> RetentionReader:
        from kfm.db.retention import RetentionReader

        return RetentionReader(self._database)

    def replay_reader(self) -> ReplayReader:
        from kfm.db.replays import ReplayReader

        return ReplayReader(self._database)

    def window_plan_reader(self) -> WindowPlanReader:
        from kfm.db.window_plans import WindowPlanReader

        return WindowPlanReader(self._database)

    def unsettled_requests(self) -> list[tuple[str, str | None, int]]:
        """How many requests have no end yet, by state and by what blocks them."""
        return [
            (state, blocked_by, count) for state, blocked_by, count in self._session.all("requests.unsettled")
        ]

    def request_reader(self) -> RequestReader:
        from kfm.db.requests import RequestReader

        return RequestReader(self._database)

    def schedule_reader(self) -> ScheduleReader:
        from kfm.db.schedules import ScheduleReader

        return ScheduleReader(self._database)

    def unit_figures(self) -> list[tuple[str, str, int, int | None]]:
        """(dataset, name, amount, newest time) of the units' counters, for those who need nothing else."""
        found = self._session.all("unit_totals.list")
        return [tuple(row) for row in found if not row[1].startswith(rows.CATALOGUE)]

    def catalogue(self) -> CatalogueReader:
        from kfm.db.catalogue import CatalogueReader

        return CatalogueReader(self._database)

    # --- the environment -----------------------------------------------------------------

    def mark(self, name: str) -> str | None:
        """A value that the environment was given once."""
        row = self._session.one("marks.get", name=name)
        return row[0] if row else None

    def fold(self, name: str, form: str) -> Fold:
        """What was counted of the ledger up to a place."""
        from kfm.db import folds

        return folds.read(self._session, name, form)

    def remembered_names(self) -> dict[str, list[str]]:
        """Every name that was ever masked, by its dataset."""
        text = self.mark(MASKED_NAMES)
        return rows.value_of(text) if text else {}

    def now_ms(self) -> int:
        """The clock that leases live by."""
        return self._session.now_ms()

    def close(self) -> None:
        self._database.close()
