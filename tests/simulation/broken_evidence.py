"""Patches that break the evidence: each must be caught, as those of the protocol."""

from __future__ import annotations

from tests.simulation.conditions import CRASHES, QUIET, STALLS, Patch
from tests.simulation.scheduler import Chances

LOST_ANSWERS = Chances(crash=0.0, stall=0.0, jump=0.0, fail_before=0.0, fail_after=0.04)

EVIDENCE = (
    Patch(
        "an end is told whether or not the row was open",
        "kfm.db.outbox",
        (
            (
                "rows.closing_parameters(attempt)) and self._emitter:",
                "rows.closing_parameters(attempt)) or self._emitter:",
            ),
            (
                "        reported = {",
                "        for account in accounts:\n"
                "            self.close(session, account, run)\n"
                "        reported = {",
            ),
        ),
        chances=LOST_ANSWERS,
    ),
    Patch(
        "a run's end is told in a transaction of its own",
        "kfm.db.promotion",
        (("    journal.end(", "    (lambda *_: None)("),),
        also=(
            (
                "kfm.db.ledger",
                "            return self._database.write(\n"
                "                lambda session: promotion.promote(session, request, staged, self._journal)\n"
                "            )\n",
                "            answer = self._database.write("
                "lambda session: promotion.promote(session, request, staged, self._journal))\n"
                '            if answer.answer in ("promoted", "unchanged"):\n'
                "                self._database.write(lambda session: self._journal.end("
                "session, request.closes, request.retries, self.run(request.run_id), session.now_ms()))\n"
                "            return answer\n",
            ),
        ),
        chances=CRASHES,
    ),
    Patch(
        "a node is opened by a run that has passed to another",
        "kfm.db.outbox",
        (('if session.one("runs.held", run_id=run.run_id, fence=run.fence) is None:', "if False:"),),
        chances=STALLS,
    ),
    Patch(
        "what a dead process began is not ended",
        "kfm.db.leases",
        (
            (
                "    journal.abandon("
                "session, run_id, code, message, now_ms, lone, error_class, retryable=retryable)\n",
                "",
            ),
        ),
        chances=CRASHES,
    ),
    Patch(
        "a node may end after its run",
        "kfm.db.outbox",
        (
            (
                'session.all("attempts.under_way", run_id=run.run_id):\n',
                'session.all("attempts.under_way", run_id=run.run_id)[::-1]:\n',
            ),
        ),
        chances=QUIET,
    ),
    Patch(
        "the end of an attempt knows nothing of its beginning",
        "kfm.db.outbox",
        (("attempt=_begun_as(account.attempt, begun, now_ms)", "attempt=account.attempt"),),
        chances=Chances(crash=0.0, stall=0.0, jump=0.02, fail_before=0.0, fail_after=0.0),
    ),
    Patch(
        "a refused call leaves no evidence",
        "kfm.db.ledger",
        (("            if known is not None:\n", "            if False:\n"),),
        chances=QUIET,
    ),
    Patch(
        "the chain's head stays where it was",
        "kfm.db.governance",
        (("    advanced = session.one(\n", "    advanced = (1,) or session.one(\n"),),
        chances=QUIET,
    ),
    Patch(
        "a link does not name the one before it",
        "kfm.db.governance",
        (("audit.link(previous, number, rows.stored", "audit.link(audit.ZEROS, number, rows.stored"),),
        chances=QUIET,
    ),
    Patch(
        "a message is marked before it is sent",
        "kfm.lineage.delivery",
        (
            (
                "                    arrived = collector.deliver(left)\n",
                "                    self._store.messages_delivered([message.number for message in left])\n"
                "                    arrived = collector.deliver(left)\n",
            ),
        ),
        chances=QUIET,
    ),
    Patch(
        "what a collector did not take is offered again at once",
        "kfm.lineage.delivery",
        (("self._store.now_ms() + delay_ms", "self._store.now_ms()"),),
        chances=QUIET,
    ),
    Patch(
        "messages are handed over in any order",
        "kfm.db.outbox",
        (("key=lambda message: message.number", "key=lambda message: -message.number"),),
        chances=QUIET,
    ),
    Patch(
        "an event names what is masked",
        "kfm.lineage.emitter",
        (("        if mask is not None:\n", "        if False:\n"),),
        chances=QUIET,
    ),
)
