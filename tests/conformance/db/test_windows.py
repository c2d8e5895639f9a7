"""What became of windows is found by source and window, whatever else happened since."""

from __future__ import annotations

from kfm.model.records import GovernanceEntry

DAY_MS = 86_400_000
ENTRY = GovernanceEntry(kind="window-dismissed", subject="d", actor="ana", recorded_at_ms=1, rationale="gone")
