"""Patches of pipeline runs: what happens to nodes and branches if one guard is missing."""

from __future__ import annotations

from tests.simulation.conditions import CRASHES, QUIET, Patch
from tests.simulation.scheduler import Chances

_TABLES = "kfm.db.run_state"
_RUNS = "kfm.db.pipeline_runs"
_MODEL = "kfm.model.run_state"
_BRANCHES = "kfm.db.node_branches"
# Longer than any lease lasts.
LATE = Chances(crash=0.0, stall=0.02, jump=0.0, fail_before=0.0, fail_after=0.0, stall_ms=90_000)

NODES = (
    Patch(
        "a node is recorded without the lock",
        _TABLES,
        (("            if not holds(session, fence):\n                return False\n", ""),),
        chances=LATE,
        rule="only the holder of the lock records a node",
    ),
    Patch(
        "a run is ended without the lock",
        _TABLES,
        (("if not holds(session, Fence(request.scope, request.fence)):", "if False:"),),
        sql=(("passes.end", "AND fence = :fence AND state = 'running'", "AND :fence >= 0"),),
        chances=LATE,
        rule="only the holder of the lock ends a run",
    ),
    Patch(
        "a takeover does not raise the fence",
        _TABLES,
        (("fence = lock.fence + 1", "fence = lock.fence or 1"),),
        chances=LATE,
        rule="only the holder of the lock",
    ),
    Patch(
        "a governed run's nodes begin without its lock",
        _TABLES,
        (("if fence is not None and not holds(session, Fence(request.scope, fence)):", "if False:"),),
        chances=LATE,
        rule="every attempt has an end",
    ),
    Patch(
        "a lock is taken from those at work",
        _TABLES,
        (
            (
                "        if lock.holder is not None and not leases.is_gone(lock, now_ms, dead):\n"
                "            return Begun(held_by=lock)\n",
                "",
            ),
        ),
        chances=QUIET,
        rule="a lease is taken only from what is gone",
    ),
    Patch(
        "a stop does not reach the commit",
        _TABLES,
        (("request.policy_epoch not in (None, governance.held_epoch(session))", "False"),),
        chances=QUIET,
        rule="nothing is committed while everything is stopped",
    ),
    Patch(
        "other inputs are taken for the same",
        _MODEL,
        (
            (
                "return head.inputs_hash == inputs_hash and head.code_sha == code_sha",
                "return head.code_sha == code_sha",
            ),
        ),
        chances=QUIET,
    ),
    Patch(
        "other code is taken for the same",
        _MODEL,
        (
            (
                "head.inputs_hash == inputs_hash and head.code_sha == code_sha and",
                "head.inputs_hash == inputs_hash and",
            ),
        ),
        chances=QUIET,
    ),
    Patch(
        "what is done is not remembered",
        _TABLES,
        (('    if node.outcome == "success":\n        put_head(session, node, outputs, digest)\n', ""),),
        chances=QUIET,
    ),
    Patch(
        "a revert is not noticed",
        _BRANCHES,
        (
            (
                "    reverted = _reverted(session, branch, found.head)\n    for dataset_id",
                "    reverted = {}\n    for dataset_id",
            ),
        ),
        chances=QUIET,
        rule="a branch shows what its nodes made",
    ),
    Patch(
        "what a node does not make any more stays on the branch",
        _BRANCHES,
        (
            (
                "            if path not in wanted:\n                changes[path] = None\n",
                "            pass\n",
            ),
        ),
        chances=QUIET,
        rule="a branch shows what its nodes made",
    ),
    Patch(
        "what was forked is not shown",
        "kfm.pipelines.planner",
        (
            (
                "if shown is None or not stands(shown, inputs_hash, code_sha) or decision.earlier:",
                "if decision.earlier:",
            ),
        ),
        chances=QUIET,
        rule="a run leaves nodes that were made of each other",
    ),
    Patch(
        "attempts of the dead stay open",
        _RUNS,
        (("for each in close_left(session, name, now_ms, request.lone)", "for each in ()"),),
        chances=CRASHES,
    ),
    Patch(
        "a lone node does not look at the whole",
        _RUNS,
        (("    for each in locks:\n", "    for each in locks[2:]:\n"),),
        chances=QUIET,
        rule="a lease is taken only from what is gone",
    ),
    Patch(
        "a lone node leaves the lock of a lapsed run as it is",
        _RUNS,
        (("    leases.free(session, lock, now_ms)\n    if run_id", "    if run_id"),),
        chances=LATE,
        rule="what ends was under way",
    ),
    Patch(
        "a whole run does not look at lone nodes",
        _TABLES,
        (("        for each in others:\n", "        for each in ():\n"),),
        chances=QUIET,
        rule="a lease is taken only from what is gone",
    ),
    Patch(
        "what is gone is taken for there",
        "kfm.pipelines.planner",
        (("        if outputs == NO_OUTPUTS:\n            return None\n", "        return None\n"),),
        chances=QUIET,
        rule="what is recorded lies in the store",
    ),
)
