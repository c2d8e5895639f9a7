"""Write the JSON Schemas of the records into contracts/schemas, or check that they are up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from kfm.core import records
from kfm.core.settings import Settings
from kfm.engine.artifacts import LogEvent, RunEvent

FOLDER = Path(__file__).resolve().parent.parent / "src" / "kfm" / "contracts" / "schemas"
MADE_FROM: dict[str, Any] = {
    "run": records.Run,
    "invocation": records.Invocation,
    "node": records.Node,
    "unit": records.Unit,
    "promotion": records.Promotion,
    "switch": records.Switch,
    "governance-entry": records.GovernanceEntry,
    "validation-report": records.ValidationReport,
    "settings": Settings,
    "run-event": RunEvent,
    "event-log": LogEvent,
}


def schema_text(name: str) -> str:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kfm:schema:{name}",
        **msgspec.json.schema(MADE_FROM[name]),
    }
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
