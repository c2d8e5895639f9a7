"""Plans as documents."""

from __future__ import annotations

from typing import Any


def plan_document(plan: Any) -> dict[str, Any]:
    header = plan.header
    return {
        "digest": header.digest,
        "base_version": header.base_sequence,
        "version_id": header.version_id,
        "fingerprint": header.fingerprint,
        "made_at": header.made_at,
        "unchanged": plan.unchanged,
        "tally": header.tally,
        "changes": list(plan.changes),
    }
