"""Patches of intake and work: what happens to announced objects if one guard is missing."""

from __future__ import annotations

from tests.simulation.conditions import CRASHES, STALLS, Patch
from tests.simulation.scheduler import Chances

_INTAKE = "kfm.db.unit_intake"
_WORK = "kfm.db.unit_results"
_CLAIMS = "kfm.db.units"
_ENGINE = "kfm.nodd.worker"
# Longer than leases and claims last.
LATE = Chances(crash=0.0, stall=0.02, jump=0.0, fail_before=0.0, fail_after=0.0, stall_ms=60_000)
JUMPS = Chances(crash=0.0, jump=0.02, fail_before=0.0, fail_after=0.0)
OVERSLEPT = Chances(crash=0.0, stall=0.02, jump=0.0, fail_before=0.0, fail_after=0.0, stall_ms=660_000)

UNITS = (
    Patch(
        "messages are acknowledged before they are durable",
        "kfm.nodd.poller",
        (
            (
                "        builder = intake_builder(context, self._queue.name)\n",
                "        self._queue.acknowledge([one.receipt for one in messages])\n"
                "        builder = intake_builder(context, self._queue.name)\n",
            ),
        ),
    ),
    Patch(
        "a unit is ended without looking at its fence",
        "kfm.db.units",
        (),
        sql=tuple(
            (name, "AND version = :version", "AND :version > 0")
            for name in ("units.succeed", "units.succeed_corrected")
        ),
        chances=LATE,
    ),
    Patch(
        "effects of what was lost are kept",
        _WORK,
        (("ours = [one for one in checked if one.claimed.wal_id in landed]", "ours = checked"),),
        chances=STALLS,
    ),
    Patch(
        "a lapse charges the whole batch",
        _WORK,
        (("charged = seen.grant_attempts if alone else", "charged = seen.grant_attempts if True else"),),
        rule="a unit is what its history says",
    ),
    Patch(
        "who may be poison is not isolated",
        _WORK,
        (
            (
                "lease_until_ms=0, alone=1, grant_attempts=charged",
                "lease_until_ms=0, alone=0, grant_attempts=charged",
            ),
        ),
        rule="a unit is what its history says",
    ),
    Patch(
        "new bytes are ignored while the old ones are looked at",
        _INTAKE,
        (
            (
                '    if seen.unit.status == "in_progress":\n',
                '    if seen.unit.status == "in_progress":\n        return\n',
            ),
        ),
        last=True,
    ),
    Patch(
        "sequencers are compared as numbers",
        "kfm.model.units",
        (('.ljust(width, "0")', '.rjust(width, "0")'),),
    ),
    Patch(
        "sequencers are compared as they are written",
        "kfm.model.units",
        (("text.upper().ljust", "text.ljust"),),
    ),
    Patch(
        "older bytes replace newer ones",
        "kfm.model.units",
        (("    if order is False:\n", "    if False:\n"),),
    ),
    Patch(
        "what is said twice does not tell how far a key has come",
        _INTAKE,
        (("        _advance(session, seen, _heard(seen, content))\n", "        pass\n"),),
    ),
    Patch(
        "what the policy leaves out does not tell how far a key has come",
        _INTAKE,
        (('present = replace(heard, removed=0) if verdict == "newer" else heard', "present = seen"),),
    ),
    Patch(
        "an announcement that its removal overtook brings the object back",
        "kfm.model.units",
        (('    if after:\n        return "newer"\n', '    if True:\n        return "newer"\n'),),
        rule="the last event decides what is there",
    ),
    Patch(
        "removals that overtook their announcements are forgotten",
        _INTAKE,
        (("    if seen is None and gone.unit is not None:\n", "    if False:\n"),),
        rule="the last event decides what is there",
    ),
    Patch(
        "a deletion of one version is taken for the object's",
        "kfm.model.units",
        (("    if gone.of_version:\n", "    if False:\n"),),
        rule="the last event decides what is there",
    ),
    Patch(
        "a removal in no order is believed",
        "kfm.model.units",
        (
            (
                'return "gone" if gone.sequencer or gone.removing == "keep" else "unclear"',
                'return "gone"',
            ),
        ),
        rule="the last event decides what is there",
    ),
    Patch(
        "waits are by the clocks of workers",
        _ENGINE,
        (("            now_ms=self._ledger.now_ms(),\n", "            now_ms=context.clock.now_ms(),\n"),),
        rule="the next attempt is due by the ledger's clock",
    ),
    Patch(
        "new units are due when they came",
        _INTAKE,
        (("        0,  # due at once, whatever the clock is set to later\n", "        now_ms,\n"),),
        rule="what is new is due at once",
    ),
    Patch(
        "what was put off by a clock that was ahead waits for it",
        _CLAIMS,
        (("        self._make_stranded_due(now_ms)\n", ""),),
        rule="nothing waits longer than anything may",
    ),
    Patch(
        "leases of a clock that was ahead hold",
        "kfm.model.units",
        (
            (
                "return holds(lease_until_ms, now_ms, lease_until_ms - claimed_at_ms)",
                "return lease_until_ms > now_ms",
            ),
        ),
        rule="nothing waits longer than anything may",
        chances=CRASHES,
    ),
    Patch(
        "units are claimed before their time",
        _CLAIMS,
        (),
        sql=(("units.claim", "not_before_ms <= :now_ms", "not_before_ms <= :now_ms + 86400000"),),
        rule="nothing is claimed before its time",
    ),
    Patch(
        "dead letters are dropped",
        _INTAKE,
        (("    for rejected in intake.rejected:\n", "    for rejected in ():\n"),),
        rule="dead letter",
    ),
    Patch(
        "a sidecar takes the place of its data",
        "kfm.db.catalogue",
        (
            (
                "entry.asset).decode() if entry.asset.role == DATA else None",
                "entry.asset).decode()",
            ),
            ("    if entry.asset.role != DATA:\n        facts", "    if False:\n        facts"),
            ("        if entry.asset.role != DATA:\n            _put", "        if False:\n            _put"),
        ),
    ),
    Patch(
        "a lapse does not raise the version",
        "kfm.model.units",
        (
            (
                "    return unit_failed(unit, error_code=LEASE_EXPIRED,",
                "    return unit_failed(replace(unit, version=unit.version - 1), error_code=LEASE_EXPIRED,",
            ),
        ),
        rule="every transition raises the version by one",
    ),
    Patch(
        "live leases are taken",
        _WORK,
        (
            (
                "        if holds_lease(seen.lease_until_ms,",
                "        if False and holds_lease(seen.lease_until_ms,",
            ),
        ),
        also=(
            (
                "kfm.db.units",
                'session.all("units.lapsed", now_ms=now_ms,',
                'session.all("units.lapsed", now_ms=2**62,',
            ),
        ),
        rule="a lease holds until it lapses",
    ),
    Patch(
        "switches are asked once",
        _CLAIMS,
        (
            (
                "return bool(asked) and asked != {governance.held_epoch(session, is_expected=True)}",
                "return False",
            ),
        ),
        rule="switch",
    ),
    Patch(
        "a removal in between is overlooked",
        "kfm.db.units",
        (),
        sql=tuple(
            (name, "AND (removed < 2 OR removed = :removed)", "AND :removed >= 0")
            for name in ("units.succeed", "units.succeed_corrected")
        ),
        chances=STALLS,
    ),
    Patch(
        "an open circuit costs an attempt",
        _ENGINE,
        (("            charged=False,\n", "            charged=True,\n"),),
        rule="attempts are those that were opened",
    ),
    Patch(
        "what was not begun costs an attempt",
        _ENGINE,
        (
            (
                "self._put_back(one, NOT_BEGUN, NOT_BEGUN_TEXT, None)",
                "replace(self._put_back(one, NOT_BEGUN, NOT_BEGUN_TEXT, None), charged=True)",
            ),
        ),
        rule="attempts are those that were opened",
    ),
    Patch(
        "a renewal does not look at the fence",
        _CLAIMS,
        (),
        sql=(("units.renew", "AND version = :version", "AND :version > 0"),),
        chances=LATE,
        rule="only the worker that has a lease renews it",
    ),
    Patch(
        "switches are asked about what is read once it is read",
        _ENGINE,
        (("self._batch(ended, self._open_epoch)", "self._batch(ended, context.policy_epoch())"),),
        rule="switch",
    ),
    Patch(
        "attempts have no end",
        "kfm.model.retry",
        (
            (
                "    if attempts >= policy.attempts_max:\n        return",
                "    if False:\n        return",
            ),
        ),
        rule="what is spent is not tried again",
    ),
    Patch(
        "claims are not counted",
        _CLAIMS,
        (('        tally.moved(lane.dataset, "pending", "in_progress", len(claimed))\n', "        pass\n"),),
        rule="figures are what counting says",
    ),
    Patch(
        "successes are not told",
        _WORK,
        (
            (
                "            self._ended += map(unit_history.of_success, ours, statuses)\n",
                "            pass\n",
            ),
        ),
        rule="lineage tells exactly what succeeded",
    ),
    Patch(
        "doubts are those of the worker",
        _ENGINE,
        (("return reading if reading.suspect == doubts else", "return reading if True else"),),
        chances=CRASHES,
    ),
    Patch(
        "who overslept and wrote to a replica does not tell",
        "kfm.db.catalogue",
        (),
        sql=(("replica_items.outrun", "SET wanted = wanted + 1", "SET wanted = wanted"),),
        chances=OVERSLEPT,
        rule="a replica shows what we do",
    ),
    Patch(
        "a history is told by the clocks of those who wrote it",
        "kfm.db.unit_history",
        (("    return moves\n", "    return sorted(moves, key=lambda move: (move.version, move.at_ms))\n"),),
        chances=JUMPS,
        rule="a unit's history is told whole and in order",
    ),
    Patch(
        "arrivals are not gathered",
        _WORK,
        (("        self._gather(ours)\n", "        self._gather(ours[1:])\n"),),
        rule="each arrival is in one burst",
    ),
    Patch(
        "a circuit is never tried again",
        "kfm.model.breaker",
        (
            (
                "return max(due_ms, now_ms + left_ms) if left_ms else due_ms",
                "return max(due_ms, now_ms + left_ms)",
            ),
        ),
        rule="settles",
    ),
)
