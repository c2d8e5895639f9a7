"""How the record of one step of a run changes, and what its validation summary must say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfm.core.errors import IllegalTransition, SchemaViolation
from kfm.core.records import Node
from kfm.core.states import check_transition


def recorded(previous: Node | None, node: Node) -> Node:
    """The record to store for this step, once it is known to be a legal successor."""
    check_summary(node.validation_summary)
    check_transition("node", previous.outcome if previous else None, node.outcome)
    if (node.outcome == "skipped") != (node.skipped_because is not None):
        raise IllegalTransition(
            f"node {node.dataset_id}: a skipped step, and no other, names the run that made its result."
        )
    return node


def check_summary(summary: Mapping[str, Any]) -> None:
    """`checks == passed + failed`, all three whole numbers from 0 upwards; more may ride along."""
    counts = [summary.get(field) for field in ("checks", "passed", "failed")]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise SchemaViolation("validation_summary needs checks, passed and failed, counted from 0 upwards.")
    if summary["checks"] != summary["passed"] + summary["failed"]:
        raise SchemaViolation(
            f"validation_summary: {counts[0]} checks, but {counts[1]} passed and {counts[2]} failed."
        )
