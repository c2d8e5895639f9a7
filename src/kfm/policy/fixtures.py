"""Fixtures of policies: what has to be allowed, what denied, and by which policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kfm.model.documents import Document, ReadingRules, decoded, parse_yaml, shaped
from kfm.model.errors import PolicyError
from kfm.model.quantities import suggest
from kfm.model.records import Record
from kfm.model.settings import DatasetSettings
from kfm.policy.cedar import ACTIONS, CedarPolicies

_FILE_BYTES_MAX = 1024 * 1024
_FIXTURES_MAX = 10_000
_FIELDS = ("name", "action", "dataset", "principal", "context", "expect", "by")
_RULES = ReadingRules(error=PolicyError, values_max=500_000, whole_max=None, merges=True)


class FixtureResult(Record, frozen=True, kw_only=True):
    """The result of one fixture."""

    name: str
    passed: bool
    expected: str
    got: str
    expected_by: tuple[str, ...]
    got_by: tuple[str, ...]
    detail: str
    file: str
    line: int


def evaluate_fixtures(policies: CedarPolicies, path: Path) -> list[FixtureResult]:
    """Run every fixture of a YAML or JSON file. A faulty file is a PolicyError that names the line."""
    document = _read(path)
    lines = [document.line(f"[{index}]") for index in range(len(document.values))]
    fixtures = [_checked(entry, path, line) for entry, line in zip(document.values, lines, strict=True)]
    return [_evaluate(policies, document, index, fixture) for index, fixture in enumerate(fixtures)]


def _evaluate(
    policies: CedarPolicies, document: Document, index: int, fixture: Mapping[str, Any]
) -> FixtureResult:
    path, line = document.name, document.line(f"[{index}]")
    dataset = shaped(document, DatasetSettings, (f"[{index}].dataset", fixture["dataset"]))
    try:
        results = policies.decide(
            fixture["action"], dataset, fixture.get("principal") or "tester", fixture.get("context") or {}
        )
    except PolicyError as error:
        raise PolicyError.at(path, line, error.detail) from None
    denials = [result for result in results if not result.allowed]
    got = "deny" if denials else "allow"
    got_by = tuple(sorted(name for result in denials for name in result.policy_ids))
    expected_by = tuple(sorted(fixture.get("by") or ()))
    as_expected = got == fixture["expect"] and (not expected_by or expected_by == got_by)
    if as_expected:
        detail = "as expected"
    else:
        detail = f"{got} by {', '.join(got_by) or 'nothing'}" + (f": {denials[0].reason}" if denials else "")
    return FixtureResult(
        name=fixture["name"],
        passed=as_expected,
        expected=fixture["expect"],
        got=got,
        expected_by=expected_by,
        got_by=got_by,
        detail=detail,
        file=path,
        line=line,
    )


def _read(path: Path) -> Document:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyError.of_file(path, str(error.strerror)) from None
    if len(data) > _FILE_BYTES_MAX:
        raise PolicyError.of_file(path, f"larger than {_FILE_BYTES_MAX} bytes")
    document = parse_yaml(str(path), decoded(str(path), data, _RULES), _RULES)
    if not isinstance(document.values, list) or len(document.values) > _FIXTURES_MAX:
        raise document.error("", f"a list of at most {_FIXTURES_MAX} fixtures is expected")
    return document


def _checked(entry: Any, path: Path, line: int) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise PolicyError.at(path, line, f"a fixture is a mapping of {', '.join(_FIELDS)}")
    for key in entry:
        if key not in _FIELDS:
            close = suggest(str(key), _FIELDS)
            hint = f"; did you mean {close!r}?" if close else ""
            raise PolicyError.at(path, line, f"{key!r} is not a word of a fixture{hint}")
    for key, allowed in (("name", None), ("action", ACTIONS), ("expect", ("allow", "deny"))):
        value = entry.get(key)
        if not isinstance(value, str) or (allowed is not None and value not in allowed):
            choice = f"one of {', '.join(allowed)}" if allowed else "text"
            raise PolicyError.at(path, line, f"{key} must be {choice}")
    if not isinstance(entry.get("principal") or "", str):
        raise PolicyError.at(path, line, "principal must be text")
    by = entry.get("by") or []
    if not isinstance(by, list) or not all(isinstance(item, str) for item in by):
        raise PolicyError.at(path, line, "by must be a list of policy ids")
    if not isinstance(entry.get("dataset"), dict) or not isinstance(entry.get("context") or {}, dict):
        raise PolicyError.at(path, line, "dataset and context must be mappings")
    return entry
