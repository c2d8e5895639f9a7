"""Patches of the decision, the renewal and the settlement: one for each rule of starting."""

from __future__ import annotations

from tests.simulation.conditions import CRASHES, QUIET, Patch
from tests.simulation.scheduler import Chances

_DECISION = "kfm.model.admission"
_FACTS = "kfm.runs.admission"
_STORE = "kfm.db.requests"
# Nothing stalls, jumps or fails: who works for a request keeps it.
STEADY = Chances(crash=0.002, stall=0.0, jump=0.0, fail_before=0.0, fail_after=0.0)
KILLED = Chances(crash=0.012, stall=0.0, jump=0.0, fail_before=0.0, fail_after=0.0)

DECISIONS = (
    Patch(
        "a machine begins before its time",
        _DECISION,
        (("    if holds(due_ms, now_ms, due_ms - state.updated_at_ms) and", "    if False and"),),
        chances=CRASHES,
        rule="a machine begins nothing before its time",
    ),
    Patch(
        "a machine passes for a person",
        _DECISION,
        (
            (
                "return (asked.by_person and not asked.promised) or facts.gates.answered",
                "return True",
            ),
        ),
        chances=CRASHES,
    ),
    Patch(
        "quarantined work is tried at the same inputs",
        _DECISION,
        (("    if facts.fingerprint == state.fingerprint:\n", "    if False:\n"),),
        chances=QUIET,
        rule="a machine tries what was given up at other inputs only",
    ),
    Patch(
        "acts are not looked at",
        _DECISION,
        (("    if facts.acts and not (", "    if False and not ("),),
        chances=KILLED,
    ),
    Patch(
        "an act is not durable before it is made",
        "kfm.db.ledger",
        (("            outbox.intend(session, run, name)\n", "            pass\n"),),
        chances=KILLED,
        rule="nothing acts twice without a person",
    ),
    Patch(
        "a pipeline that acts as a whole is not noted",
        "kfm.runs.nodes",
        (("act=self._acts_as if node == TRANSFORM else None", "act=None"),),
        also=((_DECISION, "    if not facts.idempotent and not (", "    if False and not ("),),
        chances=KILLED,
    ),
    Patch(
        "sources that are not idempotent are retried",
        _DECISION,
        (("    if not facts.idempotent and not (", "    if False and not ("),),
        also=(("kfm.model.retry_budgets", "    elif not idempotent:\n", "    elif False:\n"),),
        chances=KILLED,
        rule="what is not idempotent is begun again by a person",
    ),
    Patch(
        "a plan binds one attempt only",
        _DECISION,
        (("facts.bound is not None and facts.bound != asked.plan", "False"),),
        chances=KILLED,
        rule="bound",
    ),
    Patch(
        "the next revision acts again",
        _DECISION,
        (
            ("    if facts.acts and not (", "    if facts.acts and not elsewhere and not ("),
            ("    if not facts.idempotent and not (", "    if not (facts.idempotent or elsewhere) and not ("),
        ),
        chances=KILLED,
        rule="nothing acts twice without a person",
    ),
    Patch(
        "a switch is an end",
        _DECISION,
        (('    if asked.can_wait and blocker.gate == "switch":\n', "    if False:\n"),),
        also=(
            (
                "kfm.service.dispatcher",
                '            self._put_off(request, SWITCH_MS, "switch", report.reason)\n',
                '            self._end(request, "refused", report.reason, run_id)\n',
            ),
        ),
        chances=QUIET,
        rule="a switch is no end",
    ),
    Patch(
        "circuits are not asked",
        _FACTS,
        (("        if providers is None:\n            return None\n", "        return None\n"),),
        chances=QUIET,
        rule="a circuit is asked first",
    ),
    Patch(
        "an open circuit lets work begin",
        _DECISION,
        (
            (
                '    if decision.kind in ("admitted", "compare") and facts.circuit is not None:\n',
                "    if False:\n",
            ),
        ),
        rule="nothing begins while its circuit is open",
    ),
    Patch(
        "changed inputs are granted without end",
        _DECISION,
        (("    if not may_be_granted_today(state, now_ms, facts.limits):\n", "    if False:\n"),),
        chances=QUIET,
        rule="grants of a day are bounded",
    ),
    Patch(
        "inputs that change while it is tried are granted without end",
        "kfm.model.retry_budgets",
        (
            (
                "_has_other_inputs(prior, fingerprint) and may_be_granted_today(prior, now_ms, limits)",
                "_has_other_inputs(prior, fingerprint)",
            ),
        ),
        chances=QUIET,
        rule="grants of a day are bounded",
    ),
    Patch(
        "a late promise is dropped",
        _DECISION,
        (
            (
                '    if state.fate == "retry":\n',
                '    if state.fate == "retry" and now_ms < (state.not_before_ms or 0) + 600_000:\n',
            ),
        ),
        chances=CRASHES,
        rule="a promised attempt is made, also late",
    ),
    Patch(
        "what died at its inputs has seen none",
        "kfm.runs.retry",
        (("            fingerprint=_inputs_of(kernel, run),\n", ""),),
        chances=KILLED,
        rule="a machine tries what was given up at other inputs only",
    ),
)

RENEWALS = (
    Patch(
        "a claim is not renewed while it is worked for",
        _STORE,
        (),
        sql=(
            ("requests.renew", "SET claim_until_ms = :until_ms", "SET claim_until_ms = claim_until_ms"),
            (
                "requests.renew_of_run",
                "SET claim_until_ms = :until_ms",
                "SET claim_until_ms = claim_until_ms",
            ),
        ),
        chances=STEADY,
        rule="who works for a request keeps it",
    ),
    Patch(
        "a lease is renewed without the claims of its run",
        "kfm.db.ledger",
        (('                session.all("requests.renew_of_run", run_id=row[1], until_ms=until)\n', ""),),
        chances=STEADY,
        rule="who works for a request keeps it",
    ),
    Patch(
        "what is cancelled is not told to stop",
        "kfm.db.ledger",
        (("return int(epoch[0]), cancel[0] if cancel else None", "return int(epoch[0]), None"),),
        also=(("kfm.db.promotion", "requests.is_cancelled(session, request.request_id)", "False"),),
        chances=STEADY,
        rule="what is published is still asked for",
    ),
)

SETTLEMENTS = (
    Patch(
        "a promotion does not end the requests of its run",
        "kfm.db.promotion",
        (
            (
                'requests.end_with_run(session, request.run_id, "success", request.reason, now_ms)',
                "{request.request_id}",
            ),
        ),
        chances=QUIET,
        rule="a promotion ends the requests of its run",
    ),
    Patch(
        "a failure does not put its requests off",
        "kfm.db.ledger",
        (("                requests.settle_run(session, request.run_id, request.settle, now_ms)\n", ""),),
        rule="who has failed holds no request",
    ),
    Patch(
        "cancelled work is published",
        "kfm.db.promotion",
        (("requests.is_cancelled(session, request.request_id)", "False"),),
        chances=STEADY,
        rule="what is",
    ),
    Patch(
        "cancelled work begins",
        _STORE,
        (),
        sql=(("requests.hold", "AND cancel IS NULL", ""),),
        chances=QUIET,
        rule="what is cancelled does not begin",
    ),
    Patch(
        "what waits for a run is not tied to it",
        "kfm.service.dispatcher",
        (
            (
                "self._requests.reopen(request, later, run_id=tied, tried=False)",
                "self._requests.reopen(request, later, tried=False)",
            ),
        ),
        rule="what waits for a run is tied to it",
    ),
    Patch(
        "what was judged settles nothing",
        "kfm.db.quarantine",
        (("    requests.settle_run(session, run.run_id, request.settle, session.now_ms())\n", ""),),
        chances=CRASHES,
    ),
    Patch(
        "promises without a request are not adopted",
        "kfm.runs.retry",
        (("    return requests.adopt(BATCH_MAX, make)\n", "    return 0\n"),),
        chances=QUIET,
        rule="no promise is without a request",
    ),
    Patch(
        "an adopted attempt is not bound",
        "kfm.runs.retry",
        (("is_bound=bound is not None,", "is_bound=False,"),),
        chances=KILLED,
        rule="a promised attempt is made",
    ),
    Patch(
        "a promise outlives the cancel of what waits",
        _STORE,
        (
            (
                '        session.all("retry_states.unwanted", run_id=waited[0], now_ms=at_ms)\n',
                "        pass\n",
            ),
        ),
        chances=CRASHES,
        rule="no promise outlives its last request",
    ),
    Patch(
        "members are lost",
        _STORE,
        (
            (
                "                            for one in burst.members\n",
                "                            for one in burst.members[1:]\n",
            ),
        ),
        chances=QUIET,
        rule="each arrival is in one burst",
    ),
    Patch(
        "arrivals are forgotten",
        _STORE,
        (("            fresh = accept(session, made)\n", "            fresh = accept(session, made[1:])\n"),),
        chances=QUIET,
        rule="each arrival is in one burst",
    ),
    Patch(
        "datasets take no turns",
        _STORE,
        (),
        sql=(("requests.claim", "THEN turns.claimed_at_ms ELSE 0 END", "THEN 0 ELSE 0 END"),),
        chances=QUIET,
        rule="datasets take turns",
    ),
    Patch(
        "a turn is not noted",
        _STORE,
        (('            session.all("turns.take", dataset_id=request.dataset_id, now_ms=now_ms)\n', ""),),
        chances=QUIET,
        rule="datasets take turns",
    ),
    Patch(
        "two requests of one dataset run side by side",
        _STORE,
        (),
        sql=(
            (
                "requests.claim",
                "AND waiting.dataset_id NOT IN "
                "(SELECT b.dataset_id FROM requests b WHERE b.state = 'running')",
                "",
            ),
        ),
        chances=QUIET,
        rule="one request of a dataset runs at a time",
    ),
)

# Too rare for seeds: scenes of their own show them.
TAKEN_FOR_LOST = Patch(
    "what was taken for lost and cancelled is published",
    "kfm.db.promotion",
    (
        (
            "requests.is_cancelled(session, request.request_id)",
            'session.one("requests.cancelled", run_id=request.run_id)',
        ),
    ),
    sql=(("requests.cancelled", "state = 'cancelled' AND", "FALSE AND"),),
)
CANCELLED_TOO_LATE = Patch(
    "a promise outlives the cancel of what runs",
    _STORE,
    (('        session.all("retry_states.unwanted", run_id=run_id, now_ms=now_ms)\n', "        pass\n"),),
    rule="no promise outlives its last request",
)
STOPPED_PREVIEW = Patch(
    "a switch in the middle of a preview keeps the claim",
    "kfm.service.dispatcher",
    (('            self._put_off(request, SWITCH_MS, "switch", report.reason)\n', "            pass\n"),),
    rule="who is done with a request has given it back",
)
