"""Records of nodes, and a backend to put them on."""

from __future__ import annotations

from typing import Any

from kfm.branches_remote.delta import DeltaRunState
from kfm.model.records import Node


def node(dataset_id: str, run_id: str = "run-1", **fields: Any) -> Node:
    given: dict[str, Any] = {
        "lakefs_branch": "main",
        "inputs_hash": "sha256:" + "a" * 64,
        "validation_summary": {"checks": 1, "passed": 1, "failed": 0},
        "outcome": "success",
        "recorded_at_ms": 1_767_225_600_123,
    }
    return Node(dataset_id=dataset_id, run_id=run_id, **{**given, **fields})


def put(backend: DeltaRunState, *nodes: Node) -> None:
    backend.put(backend.prepare(nodes))
