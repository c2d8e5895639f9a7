"""Write the JSON Schemas of the records into contracts/schemas, or check that they are up to date."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kfm.audit import export_documents
from kfm.cli.lint import LintReport
from kfm.cli.logs import LogLine
from kfm.config.schedule_file import ScheduleFile
from kfm.model import audit, incidents, records, replays, runs
from kfm.model.run_state import RunStateDocument
from kfm.model.settings import Settings
from kfm.model.webhooks import Payload
from kfm.release.attestation import Statement
from kfm.runs.artifacts import LogEvent, RunEvent
from kfm.telemetry import documents

FOLDER = Path(__file__).resolve().parent.parent / "src" / "kfm" / "contracts" / "schemas"
MADE_FROM: dict[str, Any] = {
    "run": records.Run,
    "invocation": records.Invocation,
    "node": records.Node,
    "run-state": RunStateDocument,
    "unit": records.Unit,
    "promotion": records.Promotion,
    "switch": records.Switch,
    "governance-entry": records.GovernanceEntry,
    "validation-report": records.ValidationReport,
    "settings": Settings,
    "schedules": ScheduleFile,
    "webhook": Payload,
    "run-event": RunEvent,
    "event-log": LogEvent,
    "log-line": LogLine,
    "audit-link": audit.CopiedLink,
    "audit-anchor": audit.Anchor,
    "audit-export": export_documents.ChainExport,
    "pipeline-retry-log": export_documents.RetryLog,
    "versioning-ledger": export_documents.VersioningLedger,
    "postmortems": export_documents.Postmortems,
    "reviews": export_documents.Reviews,
    "attempt": runs.Attempt,
    "retry": runs.CallRetry,
    "replay-plan": replays.ReplayPlan,
    "replay-spec": replays.ReplaySpec,
}
# Documents that always have all their fields, and numbers with a fraction.
WHOLE: dict[str, Any] = {
    "telemetry-updater": documents.UpdaterTelemetry,
    "telemetry-patterns": documents.PatternsTelemetry,
    "telemetry-focus": documents.FocusTelemetry,
    "telemetry-nodd-sns": documents.IngestTelemetry,
    "energy": documents.EnergyAccount,
    "carbon": documents.CarbonAccount,
    "release-attestation": Statement,
    "cli-lint": LintReport,
    "incident": incidents.IncidentChange,
}
MADE_FROM |= WHOLE
MAY_BE_LEFT_OUT = {"Material"}
# schema → class → its name under `$defs`, where the class was renamed after the schema was published
PUBLISHED_AS = {
    "audit-export": {"ChainExport": "Export"},
    "pipeline-retry-log": {"LoggedCallRetry": "CallRetry"},
    "release-attestation": {"AttestedFile": "Subject"},
    "retry": {"CallRetry": "Retry"},
    "schedules": {"ScheduleEntry": "Entry"},
    "settings": {
        "DatasetSettings": "Dataset",
        "GenericBucketSettings": "Generic",
        "LineageSettings": "Lineage",
        "PersonSettings": "Person",
        "RunStateSettings": "RunState",
        "SourceSettings": "Source",
        "TelemetrySettings": "Telemetry",
    },
    "telemetry-focus": {"SequenceTry": "Try"},
    "telemetry-nodd-sns": {"DatasetUnitsDocument": "DatasetUnits"},
    "telemetry-updater": {"RunsDocument": "Runs"},
}
DEFS = "#/$defs/"


def whole(schema: Any) -> Any:
    """Every field required, and decimals as the numbers that they are printed as."""
    if isinstance(schema, list):
        return [whole(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal":
        rest = {key: value for key, value in schema.items() if key != "format"}
        return rest | {"type": "number", "minimum": 0}
    made = {key: whole(value) for key, value in schema.items()}
    if made.get("type") == "object" and "properties" in made and made.get("title") not in MAY_BE_LEFT_OUT:
        made["required"] = sorted(made["properties"])
    return made


def published(schema: Any, names: Mapping[str, str]) -> Any:
    """The same schema with the names under `$defs` that readers may point to."""
    if isinstance(schema, list):
        return [published(part, names) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: published(value, names) for key, value in schema.items()}
    if isinstance(ref := made.get("$ref"), str):
        name = ref.removeprefix(DEFS)
        made["$ref"] = DEFS + names.get(name, name)
    if isinstance(title := made.get("title"), str):
        made["title"] = names.get(title, title)
    if "$defs" in made:
        made["$defs"] = {names.get(key, key): value for key, value in made["$defs"].items()}
    return made


def schema_text(name: str) -> str:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kfm:schema:{name}",
        **published(msgspec.json.schema(MADE_FROM[name]), PUBLISHED_AS.get(name, {})),
    }
    schema = whole(schema) if name in WHOLE else schema
    return json.dumps(schema, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> int:
    stale = []
    for name in MADE_FROM:
        path = FOLDER / f"{name}.schema.json"
        text = schema_text(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        print(f"out of date: {', '.join(stale)}; run tools/make_schemas.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
