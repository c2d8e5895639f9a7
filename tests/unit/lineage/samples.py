"""Runs, attempts and circumstances as the engine would pass them to an emitter."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from kfm.lineage.emitter import LineageEmitter
from kfm.model.dataset_changes import DatasetChange, ToldChange, Withdrawal
from kfm.model.energy import Energy
from kfm.model.keys import attempt_id, key_of, uuid5
from kfm.model.records import Asset, Check, Found, GateResult, Invocation, Run, ValidationReport
from kfm.model.runs import Attempt, Circumstances, Code, DataColumn, LineageEvent

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = ROOT / "src/kfm/contracts/schemas/openlineage-event.schema.json"
RUN_ID = "0b8e4f0c-7a51-8c1e-9d3f-2f6a1b0c9d8e"
INVOCATION_ID = "0198c0de-0000-7000-8000-000000000001"
START_MS = 1_767_225_600_000

WORK = {
    "kfm": "work/1",
    "source_id": "usgs-daily",
    "window_start": "2026-01-01T00:00:00Z",
    "window_end": "2026-01-02T00:00:00Z",
    "partition": None,
    "output_version": "v1",
    "revision": 0,
}
TRIGGER = {
    "kfm": "trigger/1",
    "trigger_type": "manual",
    "source_id": "usgs-daily",
    "window": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "pipeline_version": "v1",
}


def run(**changes: Any) -> Run:
    facts: dict[str, Any] = {
        "run_id": RUN_ID,
        "source_id": "usgs-daily",
        "dataset_id": "ks-streamflow",
        "pipeline_id": "usgs-daily",
        "idempotency_key": key_of(TRIGGER),
        "work_key": key_of(WORK),
        "work_base": "sha256:" + "3" * 64,
        "revision": 0,
        "trigger_type": "manual",
        "window_spec": "P1D",
        "window_start_ms": START_MS,
        "window_end_ms": START_MS + 86_400_000,
        "partition": None,
        "pipeline_version": "v1",
        "status": "running",
        "attempts": 1,
        "fence": 7,
        "start_time_ms": START_MS,
    }
    return Run(**(facts | changes))


def attempt(node: str = "", number: int = 1, **changes: Any) -> Attempt:
    whole = attempt_id(RUN_ID, number)
    facts: dict[str, Any] = {
        "run_id": RUN_ID,
        "attempt": number,
        "node": node,
        "lineage_id": uuid5(whole, node) if node else whole,
        "invocation_id": INVOCATION_ID,
        "started_at_ms": START_MS + 1,
    }
    return Attempt(**(facts | changes))


def ended(ending: str, node: str = "", **changes: Any) -> Attempt:
    facts: dict[str, Any] = {"ending": ending, "ended_at_ms": START_MS + 2500}
    if ending == "complete":
        facts |= {"outcome": "success", "validation": {"checks": 2, "passed": 2, "failed": 0}}
        facts |= {"inputs_hash": "sha256:" + "4" * 64, "code_sha": "sha256:" + "5" * 64, "energy": energy()}
    else:
        facts |= {"outcome": "failed", "error_code": "KFM404", "error_class": "unavailable"}
        facts |= {"error_message": "The upstream source is down.", "retryable": True}
    return attempt(node, **(facts | changes))


def energy() -> Energy:
    return Energy(cpu_us=1500, energy_uwh=4, co2_ug=1386, assumption="10 W a core, 332.6 g/kWh (US-KS)")


def invocation(**changes: Any) -> Invocation:
    facts: dict[str, Any] = {
        "invocation_id": INVOCATION_ID,
        "run_id": RUN_ID,
        "source_id": "usgs-daily",
        "dataset_id": "ks-streamflow",
        "trigger_type": "manual",
        "idempotency_key": key_of(TRIGGER),
        "outcome": None,
        "actor": "maria",
        "requested_at_ms": START_MS,
        "rationale": "Maria's phone is 555-0100",
        "ticket": "KS-7",
    }
    return Invocation(**(facts | changes))


def gates(allowed: bool = True) -> tuple[GateResult, ...]:
    return (
        GateResult(gate="switch", allowed=True, reason="No switch is thrown."),
        GateResult(
            gate="policy",
            allowed=allowed,
            reason="care: public; see https://u:hunter22@host/x?token=hunter22",
            policy_ids=("care.public",),
        ),
    )


def found(number: int = 1, **changes: Any) -> Found:
    facts: dict[str, Any] = {
        "uri": f"https://water.example/daily/{number}.csv",
        "path": f"daily/{number}.csv",
        "media_type": "text/csv",
        "size": 100,
        "etag": '"abc"',
        "checksum": "sha256:" + "6" * 64,
    }
    return Found(**(facts | changes))


def asset(number: int = 1) -> Asset:
    return Asset(path=f"daily/{number}.csv", sha256="7" * 64, size=10, media_type="text/csv")


def report(failed: int = 0) -> ValidationReport:
    return ValidationReport(
        checks=(
            Check(name="schema.present:daily", passed=True, detail="1 file.", path="daily/1.csv"),
            *(
                Check(
                    name="not_null:daily.site",
                    passed=False,
                    detail="Row 3 holds Ada Lovelace.",
                    sample=("Lovelace",),
                )
                for _ in range(failed)
            ),
        )
    )


def everything(**changes: Any) -> Circumstances:
    facts: dict[str, Any] = {
        "invocation": invocation(),
        "gates": gates(),
        "policies": "sha256:" + "8" * 64,
        "key_documents": {"trigger": TRIGGER, "work": WORK},
        "inputs": (found(1), found(2)),
        "outputs": (asset(1), asset(2)),
        "version_id": "sha256:" + "9" * 64,
        "report": report(),
        "columns": (
            DataColumn(name="site", type="string", description="The gauge."),
            DataColumn(name="q", type="number"),
        ),
        "code": Code(path="pipelines/daily.py", sha="sha256:" + "5" * 64),
    }
    return Circumstances(**(facts | changes))


def emitter(**changes: Any) -> LineageEmitter:
    facts: dict[str, Any] = {
        "namespace": "kfm.test",
        "producer_version": "0.1.0",
        "outputs": lambda dataset_id: [
            ("file", f"/srv/open/{dataset_id}"),
            ("s3://open-data", f"v1/{dataset_id}"),
        ],
    }
    return LineageEmitter(**(facts | changes))


def event(emitted: LineageEvent | None) -> dict[str, Any]:
    """The document of an emitted event, after its bytes were found to follow our schema."""
    assert emitted is not None
    document: dict[str, Any] = json.loads(emitted.body)
    validator().validate(document)
    return document


@cache
def validator() -> Any:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return jsonschema_rs.validator_for(schema, validate_formats=True)


def specs() -> Path | None:
    """The folder with the public specifications, where it is at hand."""
    named = os.environ.get("KFM_SPECS")
    for folder in [Path(named)] if named else [ROOT.parent / "shared/data/specs"]:
        if (folder / "openlineage/OpenLineage.json").is_file():
            return folder / "openlineage"
    return None


def changes() -> list[ToldChange]:
    """One of each kind of change that a person makes of a dataset."""
    told = []
    for kind, withdrawal in (
        ("rollback", None),
        ("lift", None),
        ("withdraw", {}),
        ("withdraw", {"start_ms": START_MS, "end_ms": START_MS + 1, "purge": True}),
        ("withdraw", {"target": "old"}),
        ("retire", {"retires": True}),
    ):
        change = DatasetChange(
            change_id=f"{len(told):08x}-0000-7000-8000-00000000cccc",
            dataset_id="ks-streamflow",
            kind=kind,  # type: ignore[arg-type]
            base_sequence=3,
            sequence=4,
            to_sequence=2 if kind == "rollback" else None,
            digest="sha256:" + "d" * 64,
            actor="ann",
            rationale="It was wrong.",
            ticket=None,
            changed_at_ms=START_MS,
            plan="{}",
        )
        facts: dict[str, Any] = {
            "source_id": "",
            "start_ms": None,
            "end_ms": None,
            "retires": False,
            "purge": False,
            **(withdrawal or {}),
        }
        one = Withdrawal(
            change_id=change.change_id,
            dataset_id=change.dataset_id,
            reason="It was wrong.",
            since_sequence=4,
            withdrawn_at_ms=START_MS,
            **facts,
        )
        told.append(
            ToldChange(
                change=change,
                version_id="sha256:" + "4" * 64,
                came_from=("sha256:" + "3" * 64, "sha256:" + "2" * 64)[: 2 if kind == "rollback" else 1],
                withdrawal=one if withdrawal is not None else None,
                lifts=("00000009-0000-7000-8000-00000000cccc",) if kind == "lift" else (),
            )
        )
    return told
