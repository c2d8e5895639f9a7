"""Evidence: attempts and the events about them, written in the transaction that they report.

An attempt is opened once and closed once. Its events are posted only where the row changed, so each
has exactly one start and one end, whichever process ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfm.db import rows
from kfm.db.incidents import IncidentKeeper
from kfm.db.session import Session
from kfm.model import keys
from kfm.model.incidents import IncidentRenderer
from kfm.model.records import Found, Invocation, Run
from kfm.model.runs import (
    Admit,
    Attempt,
    AttemptRecord,
    CallRetry,
    Circumstances,
    LineageEvent,
    OutboxMessage,
    Step,
)
from kfm.model.times import last_ms

if TYPE_CHECKING:
    from kfm.lineage.pipeline_emitter import PipelineEmitter
    from kfm.model.dataset_changes import ToldChange
    from kfm.ports import Emitter

NOTHING_KNOWN = Circumstances()


class Journal:
    """Writes attempts, their lineage events, and the incidents that they cause."""

    def __init__(self, emitter: Emitter | None, renderer: IncidentRenderer | None = None) -> None:
        self._emitter = emitter
        self.watch = IncidentKeeper(renderer)

    # --- a run and its nodes -----------------------------------------------------------

    def admitted(self, session: Session, request: Admit, run: Run, now_ms: int) -> None:
        """The first row of an attempt at a run."""
        delay_ms = 0
        if run.attempts > 1:
            row = session.one("attempts.last_end", run_id=run.run_id)
            if row is not None and row[0] is not None:
                delay_ms = max(0, now_ms - int(row[0]))
        attempt = Attempt(
            run_id=run.run_id,
            attempt=run.attempts,
            node="",
            lineage_id=keys.attempt_id(run.run_id, run.attempts),
            invocation_id=request.invocation.invocation_id,
            started_at_ms=now_ms,
            delay_ms=delay_ms,
            code_sha=run.pipeline_version,
        )
        known = NOTHING_KNOWN
        if self._emitter:
            known = replace(request.known, invocation=request.invocation)
        self._open(session, attempt, known, run)

    def dataset_changed(self, session: Session, told: ToldChange, now_ms: int) -> None:
        """What a person's change made of a dataset. An emitter that knows of none says nothing."""
        changed = getattr(self._emitter, "changed", None)
        for event in changed(told) if changed is not None else ():
            self._post(session, event, now_ms)

    def step(self, session: Session, request: Step) -> bool:
        run = request.run
        if session.one("runs.held", run_id=run.run_id, fence=run.fence) is None:
            return False
        self.discovered(session, request.fingerprint, request.inputs)
        self.keep(session, request.retries)
        if request.closes is not None:
            self.close(session, request.closes, run)
        if request.act is not None:
            intend(session, run, request.act)
        if request.opens is not None:
            self._open(session, request.opens.attempt, request.opens.known, run)
        return True

    def discovered(self, session: Session, fingerprint: str | None, inputs: Sequence[Found]) -> None:
        if fingerprint is not None:
            found = rows.found_text(inputs)
            session.all("inputs.keep", fingerprint=fingerprint, found=found)

    def close(self, session: Session, account: AttemptRecord, run: Run) -> None:
        attempt = account.attempt
        if session.one("attempts.close", **rows.closing_parameters(attempt)) and self._emitter:
            event = self._emitter.ended(attempt, run, account.known)
            self._post(session, event, attempt.ended_at_ms or 0)

    def end(
        self,
        session: Session,
        accounts: Sequence[AttemptRecord],
        retries: Iterable[CallRetry],
        run: Run,
        now_ms: int,
    ) -> None:
        """The end of a run: of the node that is under way, if any, and then of the run itself.

        The rows decide what is under way: a process that lost the answer to a step does not know of its node.
        """
        self.keep(session, retries)
        if run.status == "failed":  # a pass that lost the answer to its begin, or to its end, is still open
            self._abandon_pass(
                session, run.run_id, run.error_code or "", run.error_message or "", now_ms, lone=""
            )
        reported = {(account.attempt.attempt, account.attempt.node): account for account in accounts}
        whole = reported.get((run.attempts, ""))
        for row in session.all("attempts.under_way", run_id=run.run_id):
            begun = rows.attempt_from(row)
            account = reported.get((begun.attempt, begun.node))
            if account is None:
                account = AttemptRecord(
                    attempt=_ended_with(begun, run, whole.attempt if whole else None, now_ms)
                )
            else:
                account = replace(account, attempt=_begun_as(account.attempt, begun, now_ms))
            self.close(session, account, run)

    def abandon(
        self,
        session: Session,
        run_id: str,
        code: str,
        message: str,
        now_ms: int,
        lone: str = "",
        error_class: str = "lease",
        *,
        retryable: bool = True,
    ) -> None:
        """Close whatever a process that is gone, or was given up, has left open, nodes before their run.

        `lone` is a node that it ran by itself: others of the run may still be at work.
        """
        self._abandon_pass(session, run_id, code, message, now_ms, lone)
        found = [rows.attempt_from(row) for row in session.all("attempts.under_way", run_id=run_id)]
        if not found:
            return
        row = session.one("runs.by_id", run_id=run_id)
        assert row is not None, "an attempt has a run"
        run = rows.run_from(row)
        for attempt in found:
            ended = replace(
                attempt,
                ended_at_ms=now_ms,
                ending="abort",
                outcome="failed" if attempt.node else None,
                error_code=code,
                error_class=error_class,
                error_message=message,
                retryable=retryable,
            )
            self.close(session, AttemptRecord(attempt=ended), run)

    def _abandon_pass(
        self, session: Session, run_id: str, code: str, message: str, now_ms: int, lone: str
    ) -> None:
        """A pass of the run, if it had begun one: its end comes before the run's."""
        passes = getattr(self._emitter, "passes", None)
        if passes is None:  # the next one to begin ends it
            return
        from kfm.db.pipeline_runs import close_left, fail_pass
        from kfm.model.run_state import PassEnd

        left = close_left(session, run_id, now_ms, lone)
        if not left:
            return
        if not lone:
            fail_pass(session, run_id, code, now_ms)
        emitter: PipelineEmitter | None = passes()
        if emitter is None:
            return
        end = PassEnd("aborted", now_ms, error_code=code, error_message=message)
        for each in left:
            for event in emitter.ended(each, end):
                self._post(session, event, now_ms)

    def keep(self, session: Session, retries: Iterable[CallRetry]) -> None:
        """Each once: a process that lost the answer to a step reports its retries again."""
        for retry in retries:
            session.all("retries.append", **rows.retry_parameters(retry))

    def _open(self, session: Session, attempt: Attempt, known: Circumstances, run: Run) -> None:
        session.all("attempts.open", **rows.opening_parameters(attempt))
        if self._emitter:
            self._post(session, self._emitter.started(attempt, run, known), attempt.started_at_ms)

    # --- invocations that became no run --------------------------------------------------

    def refused(self, session: Session, invocation: Invocation, known: Circumstances, now_ms: int) -> None:
        if self._emitter is None:
            return
        known = replace(known, invocation=invocation, gates=known.gates or invocation.gates)
        for event in self._emitter.refused(invocation, known, now_ms):
            self._post(session, event, now_ms)

    def _post(self, session: Session, event: LineageEvent | None, now_ms: int) -> None:
        if event is None:
            return
        session.all(
            "outbox.post",
            event_id=event.event_id,
            topic=event.topic,
            subject=event.subject,
            body=event.body,
            recorded_at_ms=now_ms,
        )


def intend(session: Session, run: Run, name: str) -> None:
    """An act that must not be repeated is about to be made."""
    session.all(
        "acts.add", run_id=run.run_id, attempt=run.attempts, name=rows.storable(name), at_ms=session.now_ms()
    )


def _begun_as(ended: Attempt, begun: Attempt, now_ms: int) -> Attempt:
    """The end of an attempt, with the start that was recorded."""
    return replace(
        ended,
        lineage_id=begun.lineage_id,
        invocation_id=begun.invocation_id,
        started_at_ms=begun.started_at_ms,
        delay_ms=begun.delay_ms,
        ended_at_ms=now_ms,
    )


def _ended_with(attempt: Attempt, run: Run, whole: Attempt | None, now_ms: int) -> Attempt:
    """As its run ended."""
    if run.status == "success":
        return replace(
            attempt, ended_at_ms=now_ms, ending="complete", outcome="success" if attempt.node else None
        )
    return replace(
        attempt,
        ended_at_ms=now_ms,
        ending=whole.ending if whole else "fail",
        outcome="failed" if attempt.node else None,
        error_code=run.error_code,
        error_class=whole.error_class if whole else None,
        error_message=run.error_message,
        retryable=whole.retryable if whole else None,
    )


# --- the outbox ------------------------------------------------------------------------


def claim(session: Session, topic: str, limit: int, claim_ms: int) -> list[OutboxMessage]:
    """One claimer at a time: two at once would not see each other's claims, and part a subject's messages."""
    session.all("outbox.hold")
    now_ms = session.now_ms()
    times = {"now_ms": now_ms, "until_ms": now_ms + claim_ms, "last_ms": last_ms(now_ms)}
    found = session.all("outbox.claim", topic=topic, row_limit=limit, **times)
    return sorted(map(rows.message_from, found), key=lambda message: message.number)
