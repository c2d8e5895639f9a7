"""Whether work may start is decided in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "kfm"
DECISION = "model/admission.py"
# Predicates and gates that a decision is made of, and which other modules may use each, for what.
IMPORTED = {
    "is_spent": {DECISION, "model/next_steps.py"},  # what a person is advised
    "has_attempts": {DECISION},
    "may_be_granted": {DECISION, "model/next_steps.py", "service/approvals.py"},  # whether a release helps
    "may_be_granted_today": {DECISION},
    "switch_gate": {
        "runs/gates.py",  # facts for the decision, and at promotion
        "nodd/ingest.py",  # units are not runs
        "reports/blockers.py",
        "reports/explain/units.py",
    },
    "freeze_gate": {
        "runs/gates.py",
        "nodd/ingest.py",
        "reports/blockers.py",
        "datasets/completeness.py",  # tells that a dataset is paused
    },
}
# Facts that only a decision compares: with a time, a number, a word.
COMPARED = {"fate", "attempts_max", "grants_max", "day_grants"}
COMPARING = {
    DECISION,
    "model/retry.py",  # what an attempt's end means, and when the next one is
    "model/retry_budgets.py",
    "model/replays.py",  # units
    "model/quarantine.py",  # what is kept of a run that is given up
    "telemetry/compliance.py",  # holds the ledger against the rules, afterwards
}
# What they compare is a choice of words, or what has just been decided.
TOLD = {
    "model/next_steps.py",
    "model/incidents.py",
    "runs/outcome.py",
    "runs/retry.py",
    "calls/call_plan.py",  # one call, not a run
}


def _modules() -> list[tuple[str, ast.Module]]:
    found = []
    for path in sorted(SRC.rglob("*.py")):
        found.append((path.relative_to(SRC).as_posix(), ast.parse(path.read_text(encoding="utf-8"))))
    return found


@pytest.mark.req("UPD-2")
def test_only_the_decision_asks_budgets_and_switches() -> None:
    """No starter has a rule of its own: what a decision is made of is imported by the decision."""
    strays = []
    for name, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kfm.model"):
                strays += [
                    f"{name} imports {each.name}"
                    for each in node.names
                    if each.name in IMPORTED and name not in IMPORTED[each.name]
                ]
    assert strays == []


@pytest.mark.req("UPD-2")
def test_only_the_decision_compares_what_is_left() -> None:
    """Attempts, grants and fates are compared where it is decided, and where that is told."""
    strays = []
    for name, tree in _modules():
        if (
            name in COMPARING
            or name in TOLD
            or name.startswith(("reports/", "cli/", "web/console/", "nodd/", "db/unit"))
        ):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                strays += [
                    f"{name}:{node.lineno} compares {side.attr}"
                    for side in sides
                    if isinstance(side, ast.Attribute) and side.attr in COMPARED
                ]
    assert strays == []
