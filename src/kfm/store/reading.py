"""Questions to the ledger. Nothing here writes."""

from __future__ import annotations

from typing import Any

from kfm.core.records import (
    GovernanceEntry,
    Invocation,
    Lock,
    Manifest,
    Promotion,
    Run,
    Switch,
    Work,
)
from kfm.store import rows
from kfm.store.session import Database, Session


class Ledger:
    """Implements `ports.LedgerReader` on either database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._session: Session = database.session

    def latest_run(self, work_base: str) -> Run | None:
        row = self._session.one("runs.latest_of_work", work_base=work_base)
        return rows.run_from(row) if row else None

    def latest_success(self, work: Work) -> Run | None:
        """The run that published this source's window last, whatever its pipeline's version."""
        row = self._session.one(
            "runs.latest_success",
            source_id=work.source_id,
            window_start_ms=work.window.start_ms,
            window_end_ms=work.window.end_ms,
            partition_key=work.partition or "",
        )
        return rows.run_from(row) if row else None

    def run_of_correction(self, work_base: str, correction: str) -> Run | None:
        row = self._session.one("runs.of_correction", work_base=work_base, correction=correction)
        return rows.run_from(row) if row else None

    def run(self, run_id: str) -> Run | None:
        row = self._session.one("runs.by_id", run_id=run_id)
        return rows.run_from(row) if row else None

    def run_by_key(self, idempotency_key: str) -> Run | None:
        row = self._session.one("runs.by_key", idempotency_key=idempotency_key)
        return rows.run_from(row) if row else None

    def runs(
        self,
        *,
        dataset_id: str | None = None,
        source_id: str | None = None,
        status: str | None = None,
        limit: int = 50,
    ) -> list[Run]:
        found = self._session.all(
            "runs.list",
            dataset_id=dataset_id or "",
            source_id=source_id or "",
            status=status or "",
            row_limit=limit,
        )
        return [rows.run_from(row) for row in found]

    def invocations(self, *, run_id: str | None = None, limit: int = 50) -> list[Invocation]:
        found = self._session.all("invocations.list", run_id=run_id or "", row_limit=limit)
        return [rows.invocation_from(row) for row in found]

    def head(self, dataset_id: str) -> tuple[Promotion, Manifest] | None:
        row = self._session.one("promotions.head_with_manifest", dataset_id=dataset_id)
        return (rows.promotion_from(row[:-1]), rows.manifest_from(row[-1])) if row else None

    def heads(self) -> list[Promotion]:
        return [rows.promotion_from(row) for row in self._session.all("promotions.heads")]

    def promotions(self, dataset_id: str, limit: int = 50) -> list[Promotion]:
        found = self._session.all("promotions.list", dataset_id=dataset_id, row_limit=limit)
        return [rows.promotion_from(row) for row in found]

    def promotion(self, dataset_id: str, sequence: int) -> Promotion | None:
        row = self._session.one("promotions.at", dataset_id=dataset_id, sequence=sequence)
        return rows.promotion_from(row) if row else None

    def manifest(self, version_id: str) -> Manifest | None:
        row = self._session.one("versions.get", version_id=version_id)
        return rows.manifest_from(row[0]) if row else None

    def lock(self, scope: str) -> Lock | None:
        row = self._session.one("locks.get", scope=scope)
        return rows.lock_from(row) if row else None

    def locks(self) -> list[Lock]:
        return [rows.lock_from(row) for row in self._session.all("locks.list")]

    def switches(self) -> list[Switch]:
        return [rows.switch_from(row) for row in self._session.all("switches.list")]

    def policy_epoch(self) -> int:
        row = self._session.one("policy.epoch")
        assert row is not None
        return int(row[0])

    def forces(self, work_base: str) -> int:
        row = self._session.one("runs.forces", work_base=work_base)
        assert row is not None
        return int(row[0])

    def governance(
        self, *, kind: str | None = None, subject: str | None = None, limit: int = 50
    ) -> list[GovernanceEntry]:
        found = self._session.all("governance.list", kind=kind or "", subject=subject or "", row_limit=limit)
        return [rows.entry_from(row) for row in found]

    def projected(self) -> dict[tuple[str, str], int]:
        return {(dataset, target): seq for dataset, target, seq in self._session.all("projections.list")}

    def states(self, dataset_id: str) -> dict[str, Any]:
        found = self._session.all("states.list", dataset_id=dataset_id)
        return {key: rows.value_of(value) for key, value in found}

    def events(self, run_id: str) -> list[tuple[str, Any]]:
        found = self._session.all("events.list", run_id=run_id)
        return [(kind, rows.value_of(payload)) for kind, payload in found]

    def oldest_running_ms(self) -> int | None:
        row = self._session.one("runs.oldest_running")
        return row[0] if row else None

    def now_ms(self) -> int:
        """The clock that leases live by."""
        return self._session.now_ms()

    def close(self) -> None:
        self._database.close()
