"""Writes to the ledger, on either database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kfm.db import (
    admission,
    approvals,
    breakers,
    governance,
    incidents,
    leases,
    outbox,
    quarantine,
    requests,
    rows,
)
from kfm.db.ledger_reader import MASKED_NAMES, LedgerReader
from kfm.db.session import Database, Session
from kfm.model.audit import Seal
from kfm.model.breaker import Breaker
from kfm.model.canonical import canonical_bytes
from kfm.model.errors import StoreBusy
from kfm.model.incidents import Incident, IncidentRenderer, OverdueWindow, Silence
from kfm.model.quarantine import Approval
from kfm.model.records import GovernanceEntry, Invocation, Lock, Run, Switch
from kfm.model.runs import (
    Admit,
    AdmitResult,
    Approve,
    ApproveResult,
    Circumstances,
    Fail,
    Judge,
    OutboxMessage,
    Promote,
    PromoteResult,
    Reaped,
    Reject,
    Step,
)

if TYPE_CHECKING:
    from kfm.db.branches import EmbeddedBranches
    from kfm.db.catalogue import Replicas
    from kfm.db.dataset_changes import DatasetChanges
    from kfm.db.derived import DerivedSources
    from kfm.db.folds import Fold
    from kfm.db.replays import Replays
    from kfm.db.requests import Bursts, Requests
    from kfm.db.retention import Retention
    from kfm.db.schedules import ScheduleStates
    from kfm.db.units import Units
    from kfm.db.version_upkeep import VersionUpkeep
    from kfm.db.window_facts import Windows
    from kfm.ports import Emitter

RACES_MAX = 100  # of processes that add names at once


class Ledger(LedgerReader):
    """The ledger: each method is one transaction, and its return value says whether it landed."""

    def __init__(
        self, database: Database, emitter: Emitter | None = None, renderer: IncidentRenderer | None = None
    ) -> None:
        super().__init__(database)
        self._journal = outbox.Journal(emitter, renderer)

    # --- admission -------------------------------------------------------------------

    def admit(self, request: Admit, dead: leases.Dead) -> AdmitResult:
        try:
            return self._database.write(
                lambda session: admission.admit(session, request, dead, self._journal)
            )
        except admission.Undo as undo:
            return undo.answer

    def record_invocation(
        self,
        invocation: Invocation,
        entries: Iterable[GovernanceEntry] = (),
        known: Circumstances | None = None,
    ) -> None:
        """Record an invocation that started no run: a no-op, a refusal, a busy answer.

        With `known`, its lineage events are put in the outbox.
        """
        kept = tuple(entries)  # a lost race asks for them again

        def change(session: Session) -> None:
            session.all("invocations.insert", **rows.invocation_parameters(invocation))
            if known is not None:
                self._journal.refused(session, invocation, known, session.now_ms())
            if invocation.outcome == "noop" and invocation.run_id is not None:
                quarantine.found_done(session, invocation.run_id, self._journal.watch, session.now_ms())
            governance.append(session, kept)

        self._database.write(change)

    def keep_entry(self, entry: GovernanceEntry) -> None:
        """A decision whose effect is no row of the ledger."""
        self._database.write(lambda session: governance.append(session, [entry]))

    # --- while a run is under way ----------------------------------------------------

    def renew(self, scope: str, fence: int, lease_ms: int) -> tuple[int, str | None] | None:
        """The policy epoch, and why its request is cancelled if it is; None if the lease is not ours.

        The claims of the requests that the run works for are renewed with it.
        """

        def change(session: Session) -> tuple[int, str | None] | None:
            until = session.now_ms() + lease_ms
            row = session.one("locks.renew", scope=scope, fence=fence, lease_until_ms=until)
            if not row:
                return None
            epoch, cancel = session.one("policy.epoch"), None
            if row[1]:
                session.all("requests.renew_of_run", run_id=row[1], until_ms=until)
                cancel = session.one("requests.cancelled", run_id=row[1])
            assert epoch is not None
            return int(epoch[0]), cancel[0] if cancel else None

        return self._database.write(change)

    def step(self, request: Step) -> bool:
        """False if the run has passed to another."""
        return self._database.write(lambda session: self._journal.step(session, request))

    def intend(self, run: Run, name: str) -> bool:
        """It is durable that the run is about to act outside; False if the run has passed to another."""

        def change(session: Session) -> bool:
            if session.one("runs.held", run_id=run.run_id, fence=run.fence) is None:
                return False
            outbox.intend(session, run, name)
            return True

        return self._database.write(change)

    # --- the end of a run ------------------------------------------------------------

    def promote(self, request: Promote) -> PromoteResult:
        from kfm.db import promotion, versions  # late: a pass of a pipeline alone makes no version

        staged = versions.stage(request.version) if request.version is not None else None
        try:
            return self._database.write(
                lambda session: promotion.promote(session, request, staged, self._journal)
            )
        except promotion.Undo as undo:
            return undo.answer

    def fail(self, request: Fail) -> bool:
        def change(session: Session) -> bool:
            now_ms, late = session.now_ms(), self._journal.watch.late()
            session.one("locks.get_for_update", scope=request.scope)
            if (
                request.pause is not None
            ):  # in the order of admission: with rows in hand it would wait in a circle
                governance.keep_others_out(session)
            landed = session.one(
                "runs.fail",
                run_id=request.run_id,
                fence=request.fence,
                end_time_ms=now_ms,
                error_code=request.error_code,
                error_message=rows.storable(request.error_message),
            )
            session.all(
                "invocations.finish",
                run_id=request.run_id,
                invocation_id=request.invocation_id,
                outcome=request.outcome,
                reason=rows.storable(request.error_message),
                reason_code=request.error_code,
                gates=rows.gates_text(request.gates),
            )
            if landed:  # else another process has the run: a stale one's report does not count
                row = session.one("runs.by_id", run_id=request.run_id)
                assert row is not None
                self._journal.discovered(session, request.fingerprint, request.inputs)
                self._journal.end(session, request.closes, request.retries, rows.run_from(row), now_ms)
                quarantine.ended(session, request.retry, request.held, now_ms)
                if request.cancels is not None:
                    requests.cancel(session, *request.cancels, late)
                requests.settle_run(session, request.run_id, request.settle, now_ms)
                if request.pause is not None:
                    governance.set_switch(session, request.pause)
                if not request.keeps_lock:
                    session.all("locks.release", scope=request.scope, fence=request.fence)
                late.gave_up(session, request.held, request.retry, now_ms, halted=request.pause is not None)
                late.settle()
                governance.append(session, request.entries)
            return landed is not None

        return self._database.write(change)

    def abandon(
        self,
        scope: str,
        fence: int,
        run_id: str,
        code: str,
        message: str,
        error_class: str,
        *,
        retryable: bool,
    ) -> bool:
        """Fail a run whose function does not end after a stop, and free its lock; False if that is lost.

        What the function still does meets a lost lease."""
        from kfm.db.pipeline_runs import fail_pass  # late: most commands abandon nothing

        message = rows.storable(message)

        def change(session: Session) -> bool:
            now_ms = session.now_ms()
            lock = leases.lock_for_update(session, scope)
            if lock.fence != fence or lock.holder is None or lock.holder.run_id != run_id:
                return False
            for each in leases.runs_under(session, lock):
                leases.fail_run(
                    session,
                    lock,
                    each,
                    code,
                    message,
                    now_ms,
                    self._journal,
                    error_class,
                    retryable=retryable,
                )
                if not leases.lone_node(scope):
                    fail_pass(session, each, code, now_ms)
            session.all("locks.release", scope=scope, fence=fence)  # given up by its holder, as by `fail`
            return True

        return self._database.write(change)

    # --- recovery --------------------------------------------------------------------

    def reap(self, dead: leases.Dead) -> list[Reaped]:
        """End the runs whose holder is gone, and free their locks. Needs none of those locks."""
        now_ms = self.now_ms()
        if not any(leases.is_gone(lock, now_ms, dead) for lock in self.locks()):
            return []

        def change(session: Session) -> list[Reaped]:
            reaped, _ = leases.sweep(session, session.now_ms(), dead, self._journal)
            return reaped

        return self._database.write(change)

    def judge(self, request: Judge) -> bool:
        """Decide about a run that has ended already; False if the world has moved."""
        return self._database.write(lambda session: quarantine.judge(session, request, self._journal.watch))

    def request_approval(
        self, approval: Approval, entry: GovernanceEntry, plan: str | None = None
    ) -> Approval:
        """The request that waits for an approval now: this one, or the same that was made before.

        `plan`: what its digest is of, kept for who decides.
        """

        def change(session: Session) -> Approval:
            known = approvals.same_waiting(session, approval)
            if known is not None:
                return known
            approvals.start_waiting(session, approval, self._journal.watch)
            requests.keep_preview(session, (approval.digest, plan) if plan is not None else None)
            governance.append(session, [entry])
            return approval

        return self._database.write(change)

    def approve(self, request: Approve) -> ApproveResult:
        """Approve and carry out; not if the subject has changed since the request, or is being worked on."""
        watch = self._journal.watch
        return self._database.write(lambda session: approvals.approve(session, request, watch))

    def reject(self, request: Reject) -> bool:
        """Reject what was asked for; False if it was decided on meanwhile, or is the asker's own."""
        watch = self._journal.watch
        return self._database.write(lambda session: approvals.reject(session, request, watch))

    def stand(self, approval: Approval, entry: GovernanceEntry) -> None:
        """A standing approval, given and recorded in one act."""

        def change(session: Session) -> None:
            session.all("approvals.insert", **approvals.approval_parameters(approval))
            governance.append(session, [entry])

        self._database.write(change)

    def revoke_approval(
        self, request_id: str, by: str, rationale: str, entries: Sequence[GovernanceEntry]
    ) -> bool:
        """End an approval before its time; False: it was used up or revoked meanwhile."""
        return self._database.write(
            lambda session: approvals.revoke(session, request_id, by, rationale, entries)
        )

    # --- breakers --------------------------------------------------------------------

    def change_breaker(
        self, provider: str, decide: breakers.Change, entries: Iterable[GovernanceEntry] = ()
    ) -> tuple[Breaker, Breaker]:
        """Compare and set: the breaker as found, and as it is now. `decide` is pure, gets the
        database's time and may be called more than once. Without a change there is no transaction."""
        provider, kept = rows.storable(provider), tuple(entries)
        if not kept:
            seen = self.breaker(provider)
            if decide(seen, self.now_ms()) == seen:
                return seen, seen

        def change(session: Session) -> tuple[Breaker, Breaker]:
            answer = breakers.change(session, provider, decide)
            if answer[0].state != "closed" == answer[1].state:
                requests.wake(session, f"circuit:{provider}")
            self._journal.watch.circuit(session, *answer, session.now_ms())
            governance.append(session, kept)
            return answer

        return self._database.write(change)

    # --- incidents and hooks ---------------------------------------------------------

    def close_incident(self, cause: str, entry: GovernanceEntry) -> bool:
        """Resolve an incident because a person says so; False if it is over already."""

        def change(session: Session) -> bool:
            landed = self._journal.watch.closed(session, cause, session.now_ms())
            governance.append(session, [entry] if landed else [])
            return landed

        return self._database.write(change)

    def mark_overdue(self, found: Iterable[OverdueWindow]) -> None:
        """Open or extend the `overdue` incidents of these windows; those that are known change nothing."""
        kept = tuple(found)

        def change(session: Session) -> None:
            now_ms, late = session.now_ms(), self._journal.watch.late()
            for one in kept:
                late.overdue(session, one.source_id, one.dataset_id, one.window, one.due_ms, now_ms)
            late.settle()

        if kept:
            self._database.write(change)

    def acknowledge_incident(self, incident: Incident, actor: str, entry: GovernanceEntry) -> bool:
        """A person has seen it: it is not escalated. False if it is over, or acknowledged already."""

        def change(session: Session) -> bool:
            landed = session.one(
                "incidents.acknowledge",
                cause=incident.cause,
                incident_id=incident.incident_id,
                actor=rows.storable(actor),
                now_ms=session.now_ms(),
            )
            governance.append(session, [entry] if landed else [])
            return landed is not None

        return self._database.write(change)

    def assign_incident(self, incident: Incident, person: str, entry: GovernanceEntry) -> bool:
        """A person looks after it from now on: it is not escalated. False if it is over."""

        def change(session: Session) -> bool:
            landed = session.one(
                "incidents.assign",
                cause=incident.cause,
                incident_id=incident.incident_id,
                person=rows.storable(person),
                now_ms=session.now_ms(),
            )
            governance.append(session, [entry] if landed else [])
            return landed is not None

        return self._database.write(change)

    def escalate_incident(self, incident: Incident) -> bool:
        """Post its escalation, once; False if it is over, acknowledged, silenced or escalated by now."""
        cause, incident_id = incident.cause, incident.incident_id
        watch = self._journal.watch
        return self._database.write(
            lambda session: watch.escalated(session, cause, incident_id, session.now_ms())
        )

    def silence(self, made: Silence, entry: GovernanceEntry) -> None:
        """Send nothing of this scope until then, in place of the silence that it is under."""

        def change(session: Session) -> None:
            incidents.silence(session, made)
            governance.append(session, [entry])

        self._database.write(change)

    def end_silence(self, scope: str, entry: GovernanceEntry) -> bool:
        """End it before its time; False if there is none."""

        def change(session: Session) -> bool:
            landed = self._journal.watch.silence_ended(session, rows.storable(scope), session.now_ms())
            governance.append(session, [entry] if landed else [])
            return landed

        return self._database.write(change)

    def end_lapsed_silences(self) -> int:
        """Tell the present state of what was silenced until now; how many silences have ended."""
        ended, watch = 0, self._journal.watch
        for (scope,) in self._session.all("silences.lapsed", now_ms=self.now_ms()):

            def change(session: Session, scope: str = scope) -> bool:
                now_ms = session.now_ms()
                if (scope,) not in session.all("silences.lapsed", now_ms=now_ms):
                    return False  # it was prolonged, or ended by another process
                return watch.silence_ended(session, scope, now_ms)

            ended += self._database.write(change)
        return ended

    def claim_for_hook(
        self, hook: str, limit: int, claim_ms: int, wants: incidents.Wants | None = None
    ) -> list[OutboxMessage]:
        """The oldest changes of incidents that are due at this hook, not due again before the claim ends."""
        return self._database.write(lambda session: incidents.claim(session, hook, limit, claim_ms, wants))

    def hook_delivered(self, hook: str, numbers: Sequence[int]) -> None:
        self._database.write(lambda session: incidents.delivered(session, hook, numbers))

    def hook_put_back(self, hook: str, numbers: Sequence[int], not_before_ms: int) -> None:
        self._database.write(lambda session: incidents.put_back(session, hook, numbers, not_before_ms))

    def hasten_hook(self, hook: str) -> None:
        """All that waits for it is due now."""
        self._database.write(
            lambda session: session.all("hook_deliveries.hasten", hook=hook, now_ms=session.now_ms())
        )

    def settle_hooks(self, names: Sequence[str]) -> int:
        """Mark as delivered the changes that each of these hooks has had; returns how many there were."""
        return self._database.write(lambda session: incidents.settle(session, names))

    # --- branches --------------------------------------------------------------------

    def branch_store(self) -> EmbeddedBranches:
        from kfm.db.branches import EmbeddedBranches

        return EmbeddedBranches(self._database)

    # --- units -----------------------------------------------------------------------

    def units(self) -> Units:
        from kfm.db.units import Units

        return Units(self._database, self._journal.watch)

    def replays(self) -> Replays:
        from kfm.db.replays import Replays

        return Replays(self._database, self._journal.watch)

    def replicas(self) -> Replicas:
        from kfm.db.catalogue import Replicas

        return Replicas(self._database)

    def derived(self) -> DerivedSources:
        from kfm.db.derived import DerivedSources

        return DerivedSources(self._database)

    def bursts(self) -> Bursts:
        from kfm.db.requests import Bursts

        return Bursts(self._database)

    # --- the service -----------------------------------------------------------------

    def requests(self) -> Requests:
        from kfm.db.requests import Requests

        return Requests(self._database, self._journal.watch)

    def windows(self) -> Windows:
        from kfm.db.window_facts import Windows

        return Windows(self._database, self._journal.watch)

    def schedule_states(self) -> ScheduleStates:
        from kfm.db.schedules import ScheduleStates

        return ScheduleStates(self._database, self._journal.watch)

    def dataset_changes(self) -> DatasetChanges:
        from kfm.db.dataset_changes import DatasetChanges

        return DatasetChanges(self._database, self.head, self._journal)

    # --- projections and collection ---------------------------------------------------

    def raise_projected(self, dataset_id: str, target: str, sequence: int) -> None:
        def change(session: Session) -> None:
            session.all("projections.raise", dataset_id=dataset_id, target=target, sequence=sequence)
            now_ms, late = session.now_ms(), self._journal.watch.late()
            for one in all_withdrawals(session, dataset_id):
                if one.since_sequence <= sequence:
                    late.withdrawal_shown(session, dataset_id, one.change_id, target, now_ms)
            late.settle()

        from kfm.db.dataset_changes import all_withdrawals  # late: most commands show nothing

        self._database.write(change)

    def version_upkeep(self) -> VersionUpkeep:
        from kfm.db.version_upkeep import VersionUpkeep  # late: only collection and the service need it

        return VersionUpkeep(self._database, self._versions)

    def begin_collection(
        self, worker_id: str, lease_ms: int, dead: leases.Dead, waiting: int | None = None
    ) -> int | Lock:
        """The fence of the collection lock, or the lock that blocks it. `waiting`: the fence under which this
        collection waits."""

        def change(session: Session) -> int | Lock:
            now_ms = session.now_ms()
            leases.lock_for_update(session, leases.COLLECTOR)  # first: no run is admitted from here on
            _, live = leases.sweep(session, now_ms, dead, self._journal)
            mine = (leases.COLLECTOR, waiting)
            live = [one for one in live if one.scope != leases.RETENTION and (one.scope, one.fence) != mine]
            if live:
                return live[0]
            own = leases.lock_for_update(session, leases.COLLECTOR)  # a predecessor may have been swept
            leases.take(session, own, own.fence + 1, worker_id, "", now_ms, now_ms + lease_ms)
            return own.fence + 1

        return self._database.write(change)

    def await_collection(self, worker_id: str, lease_ms: int, dead: leases.Dead) -> int | None:
        """Hold back what would begin, until runs in progress have ended: the fence under which a collection
        waits, by the lock that it collects with. None: another collection has it."""

        def change(session: Session) -> int | None:
            now_ms, lock = session.now_ms(), leases.lock_for_update(session, leases.COLLECTOR)
            if lock.holder is not None and not leases.is_gone(lock, now_ms, dead):
                return None
            leases.take(session, lock, lock.fence + 1, worker_id, "", now_ms, now_ms + lease_ms)
            return lock.fence + 1

        return self._database.write(change)

    def leave_collection(self, fence: int) -> None:
        """Wait no longer: what was held back begins."""
        scope = leases.COLLECTOR
        self._database.write(lambda session: session.all("locks.release", scope=scope, fence=fence))

    def end_collection(self, fence: int, entry: GovernanceEntry) -> None:
        def change(session: Session) -> None:
            session.all("locks.release", scope=leases.COLLECTOR, fence=fence)
            governance.append(session, [entry])

        self._database.write(change)

    def retention(self) -> Retention:
        from kfm.db.retention import Retention

        return Retention(self._database)

    # --- governance ------------------------------------------------------------------

    def set_switch(self, switch: Switch, entry: GovernanceEntry) -> int:
        """The new policy epoch: runs that passed the gates before must pass them again.

        It waits for those who hold the epoch, but not for hosts that vanished while they did."""

        def change(session: Session) -> int:
            epoch = governance.set_switch(session, switch)
            if switch.position == "running":
                requests.wake(session, "switch")
            governance.append(session, [entry])
            return epoch

        is_brief = False

        def change_soon(session: Session) -> int:
            nonlocal is_brief
            is_brief = governance.wait_briefly(session)
            return change(session)

        for _ in range(governance.BRIEF_WAITS):
            try:
                return self._database.write(change_soon)
            except StoreBusy:
                if not is_brief:
                    raise
            self._database.write(governance.end_standing)
        return self._database.write(change)

    def append_governance(self, entries: Iterable[GovernanceEntry]) -> None:
        kept = tuple(entries)
        self._database.write(lambda session: governance.append(session, kept))

    # --- evidence ----------------------------------------------------------------------

    def keep_policies(self, bundle_id: str, texts: Mapping[str, str]) -> None:
        text = rows.text_of(dict(texts))
        self._database.write(lambda session: session.all("policies.keep", bundle_id=bundle_id, texts=text))

    def claim_messages(self, topic: str, limit: int, claim_ms: int) -> list[OutboxMessage]:
        """The oldest that are due, not due again before the claim ends."""
        return self._database.write(lambda session: outbox.claim(session, topic, limit, claim_ms))

    def messages_delivered(self, numbers: Sequence[int]) -> None:
        def change(session: Session) -> None:
            now_ms = session.now_ms()
            for number in numbers:
                session.all("outbox.delivered", number=number, delivered_at_ms=now_ms)

        self._database.write(change)

    def messages_put_back(self, numbers: Sequence[int], not_before_ms: int) -> None:
        def change(session: Session) -> None:
            for number in numbers:
                session.all("outbox.put_back", number=number, not_before_ms=not_before_ms)

        self._database.write(change)

    def seal(
        self, actor: str, limit: int = 1000, stream: str = "outbox", *, waits: bool = True
    ) -> Seal | None:
        """Enter one root for the rows of a stream that no seal covers yet; None if there are none, or, unless
        it `waits`, if another process seals them."""
        return self._database.write(
            lambda session: governance.seal(session, actor, limit, stream, waits=waits)
        )

    def hasten_messages(self, topic: str) -> None:
        """All waiting messages are due now, also claimed ones: a person asked for delivery."""
        self._database.write(
            lambda session: session.all("outbox.hasten", topic=topic, now_ms=session.now_ms())
        )

    def ensure_mark(self, name: str, value: str) -> str:
        """The value that the environment has; this one, if it had none."""

        def change(session: Session) -> str:
            session.all("marks.ensure", name=name, value=value)
            row = session.one("marks.get", name=name)
            assert row is not None
            return str(row[0])

        return self._database.write(change)

    def keep_fold(self, name: str, form: str, seen: Fold, body: str) -> bool:
        """In place of the one that was read; False: another process has kept one meanwhile."""
        from kfm.db import folds

        return self._database.write(lambda session: folds.keep(session, name, form, seen, body))

    def remember_names(self, names: Mapping[str, Iterable[str]]) -> None:
        """Masked names, by dataset, are kept for good: they stay masked when no configuration has them."""
        wanted = {dataset_id: set(more) for dataset_id, more in names.items()}
        if _covers(self.remembered_names(), wanted):
            return  # the usual case writes nothing

        def change(session: Session) -> None:
            for _ in range(RACES_MAX):
                session.all("marks.ensure", name=MASKED_NAMES, value="{}")
                row = session.one("marks.get", name=MASKED_NAMES)
                assert row is not None
                known = rows.value_of(row[0])
                merged = {
                    each: sorted({*known.get(each, ()), *wanted.get(each, ())}) for each in known | wanted
                }
                value = canonical_bytes(merged).decode()
                if session.one("marks.move", name=MASKED_NAMES, seen=row[0], value=value) is not None:
                    return

        self._database.write(change)


def _covers(known: Mapping[str, Iterable[str]], wanted: Mapping[str, set[str]]) -> bool:
    return all(names <= set(known.get(dataset_id, ())) for dataset_id, names in wanted.items())
