"""Whether what is asked of a lakeFS server, and what the stand-in answers, is what lakeFS documents.

Without the document a few checks of our own remain: the fields that each request must have and may have.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

# Operation → fields that its body must have, and those that it may have besides.
BODIES: dict[str, tuple[set[str], set[str]]] = {
    "createBranch": ({"name", "source"}, {"force", "hidden"}),
    "createTag": ({"id", "ref"}, {"force"}),
    "commit": ({"message"}, {"metadata", "date", "allow_empty", "force"}),
    "revertBranch": ({"ref", "parent_number"}, {"commit_overrides", "force", "allow_empty"}),
    "mergeIntoBranch": (set(), {"message", "metadata", "strategy", "force", "allow_empty", "squash_merge"}),
    "deleteObjects": ({"paths"}, set()),
}
NEEDS_PATH = ("statObject", "getObject", "uploadObject")


def document() -> str | None:
    """From the folder that KFM_SPECS names; else where published documents lie beside the project, if so."""
    folder = Path(os.environ.get("KFM_SPECS") or Path(__file__).resolve().parents[2] / "shared/data/specs")
    found = folder / "lakefs" / "swagger.yml"
    return str(found) if found.is_file() else None


@cache
def _loaded(path: str) -> Any:
    from ruamel.yaml import YAML

    with open(path, encoding="utf-8") as text:
        return YAML(typ="safe", pure=False).load(text)


class Contract:
    """Collects whatever does not fit."""

    def __init__(self, document: str | None) -> None:
        self.violations: list[str] = []
        self._document = _loaded(document) if document else None
        self._operations: dict[str, Any] = {}
        self._shared: dict[str, list[Any]] = {}
        for methods in (self._document or {"paths": {}})["paths"].values():
            for operation in methods.values():
                if isinstance(operation, dict) and "operationId" in operation:
                    self._operations[operation["operationId"]] = operation
                    self._shared[operation["operationId"]] = methods.get("parameters", [])

    def request(
        self,
        operation: str,
        names: Mapping[str, str],
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> None:
        must, may = BODIES.get(operation, (set(), set()))
        if operation in BODIES:
            given = set(json.loads(body))
            self._expect(must <= given <= must | may, f"{operation}: body has {sorted(given)}")
        if operation in NEEDS_PATH:
            self._expect(bool(query.get("path")), f"{operation}: no path")
        if self._document is None:
            return
        documented = self._operations.get(operation)
        if documented is None:
            self.violations.append(f"{operation} is not documented")
            return
        wanted = [self._whole(each) for each in self._shared[operation] + documented.get("parameters", [])]
        known = {(each["in"], each["name"]): each for each in wanted}
        for name, value in query.items():
            self._expect(("query", name) in known, f"{operation}: parameter {name} is not documented")
            if ("query", name) in known:
                self._check(operation, known["query", name]["schema"], _read(value, known["query", name]))
        for (place, name), each in known.items():
            there = {"query": name in query, "path": name in names, "header": True}.get(place, True)
            self._expect(there or not each.get("required"), f"{operation}: no parameter {name}")
        kinds = self._whole(documented.get("requestBody", {})).get("content", {})
        given_kind = (headers.get("Content-Type") or "").partition(";")[0]
        if body and kinds:
            self._expect(given_kind in kinds, f"{operation}: content of type {given_kind}")
            if given_kind == "application/json":
                self._check(operation, kinds[given_kind]["schema"], json.loads(body))

    def answer(self, operation: str, status: int, content: Any) -> None:
        if self._document is None or operation not in self._operations:
            return
        answers = {str(key): value for key, value in self._operations[operation]["responses"].items()}
        documented = self._whole(answers.get(str(status)) or answers.get("default") or {})
        self._expect(bool(documented), f"{operation}: the status {status} is not documented")
        schema = documented.get("content", {}).get("application/json", {}).get("schema")
        if schema is not None:
            self._check(f"{operation} {status}", schema, content)

    def _check(self, where: str, schema: Any, value: Any) -> None:
        import jsonschema

        whole = {**schema, "components": self._document["components"]}
        for error in jsonschema.Draft4Validator(whole).iter_errors(value):
            self.violations.append(f"{where}: {'/'.join(map(str, error.path))}: {error.message}"[:300])

    def _whole(self, each: Any) -> Any:
        if "$ref" in each:
            _, _, kind, name = each["$ref"].split("/")
            return self._document["components"][kind][name]
        return each

    def _expect(self, true: bool, otherwise: str) -> None:
        if not true:
            self.violations.append(otherwise)


def _read(text: str, parameter: Mapping[str, Any]) -> Any:
    kind = parameter["schema"].get("type")
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower(), text)
    return int(text) if kind == "integer" and text.lstrip("-").isdigit() else text
