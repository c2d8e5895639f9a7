"""Patches of requests and schedules: what happens to a request if one guard is missing."""

from __future__ import annotations

from tests.simulation.conditions import CRASHES, Patch
from tests.simulation.scheduler import Chances

_STORE = "kfm.db.requests"
_ENGINE = "kfm.service.dispatcher"
# Longer than a claim lasts.
OVERSLEPT = Chances(crash=0.0, stall=0.03, jump=0.0, fail_before=0.0, fail_after=0.0, stall_ms=180_000)
AWAY = Chances(crash=0.0, stall=0.0, jump=0.0, fail_before=0.05, fail_after=0.0)
LOST = Chances(crash=0.02, stall=0.0, jump=0.0, fail_before=0.0, fail_after=0.05)

REQUESTS = (
    Patch(
        "a request is ended by who lost it",
        _STORE,
        (),
        sql=(
            ("requests.settle", "AND state = 'running' AND claimed_by = :worker_id", "AND :worker_id <> ''"),
        ),
        chances=OVERSLEPT,
    ),
    Patch(
        "a request is given back by who lost it",
        _STORE,
        (),
        sql=(
            ("requests.reopen", "AND state = 'running' AND claimed_by = :worker_id", "AND :worker_id <> ''"),
        ),
        chances=OVERSLEPT,
    ),
    Patch(
        "a claim is taken as it was seen long ago",
        _STORE,
        (),
        sql=(("requests.release", "AND claim_until_ms = :until_ms", "AND :until_ms >= 0"),),
        chances=OVERSLEPT,
        rule="a claim is taken only from who is lost",
    ),
    Patch(
        "a claim is anybody's",
        _STORE,
        (("if not holds(until_ms, now_ms) or dead(by)", "if True"),),
        rule="a claim is taken only from who is lost",
    ),
    Patch(
        "what is claimed is claimed again",
        _STORE,
        (),
        sql=(
            ("requests.claim", "WHERE d.state = 'open' AND", "WHERE d.state IN ('open', 'running') AND"),
            ("requests.claim", "WHERE f.state = 'open'", "WHERE f.state IN ('open', 'running')"),
            ("requests.claim", "WHERE n.state = 'open' AND", "WHERE n.state IN ('open', 'running') AND"),
            ("requests.claim", "WHERE b.state = 'running')", "WHERE 1 = 0)"),
        ),
        rule="a claim is taken only from who is lost",
    ),
    Patch(
        "a claim never lapses",
        _STORE,
        (("if not holds(until_ms, now_ms) or dead(by)", "if False"),),
        chances=CRASHES,
        rule="every request has an end",
    ),
    Patch(
        "a repeated request begins anew",
        _STORE,
        (),
        sql=(("requests.accept", "DO NOTHING", "DO UPDATE SET state = 'open', run_id = NULL"),),
        rule="an end is final",
    ),
    Patch(
        "a run is not on record with its request",
        _STORE,
        (("    if claim is not None:\n", "    if False:\n"),),
        rule="what is published is still asked for",
    ),
    Patch(
        "who has lost a request enters for it",
        _STORE,
        (),
        sql=(("requests.hold", "AND state = 'running' AND claimed_by = :worker_id", "AND :worker_id <> ''"),),
        chances=OVERSLEPT,
        rule="who enters for a request holds it",
    ),
    Patch(
        "who is busy is done",
        _ENGINE,
        (("        if isinstance(error, Busy):\n", "        if False:\n"),),
        rule="an end is one of a few",
    ),
    Patch(
        "trouble is an end",
        _ENGINE,
        (("        if request.tries >= TRIES_MAX:\n", "        if True:\n"),),
        chances=AWAY,
        rule="what failed without a run is held",
    ),
    Patch(
        "a step is not compared with what was seen",
        "kfm.db.schedules",
        (),
        sql=(("schedules.move", "AND version = :seen_version", "AND :seen_version > 0"),),
    ),
    Patch(
        "requests are opened by the process that comes second",
        "kfm.db.schedules",
        (
            (
                "            if not _moved(session, accounting.seen, accounting.state):\n"
                "                return False\n"
                "            fresh = accept(session, accounting.requests)\n",
                "            fresh = accept(session, accounting.requests)\n"
                "            if not _moved(session, accounting.seen, accounting.state):\n"
                "                return False\n",
            ),
        ),
        rule="a scheduled request has its instant",
    ),
    Patch(
        "a cursor moves on without rows",
        "kfm.db.schedules",
        (
            (
                'session.many("instants.insert", [_parameters(one, early) for one in accounting.instants])',
                "pass",
            ),
        ),
    ),
)
