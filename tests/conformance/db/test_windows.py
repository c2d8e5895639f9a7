"""What became of windows is found by source and window, whatever else happened since."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.completeness import Dismissal
from kfm.model.records import GateResult, GovernanceEntry
from kfm.model.requests import UpdateRequest
from tests.conformance.db.ledgers import START_MS, Desk

DAY_MS = 86_400_000
ENTRY = GovernanceEntry(kind="window-dismissed", subject="d", actor="ana", recorded_at_ms=1, rationale="gone")
