"""Fixtures of policies: what has to be allowed, what denied, and by which policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kfm.model.errors import PolicyError
from kfm.model.quantities import suggest
from kfm.model.records import Record
from kfm.model.settings import DatasetSettings
from kfm.policy.cedar import ACTIONS, CedarPolicies

_FILE_BYTES_MAX = 1024 * 1024
_FIXTURES_MAX = 10_000
_NODES_MAX = 500_000
_FIELDS = ("name", "action", "dataset", "principal", "context", "expect", "by")
_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<word>[^`]*)`")


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
    return [_evaluate(policies, path, line, fixture) for line, fixture in _read(path)]


def _evaluate(policies: CedarPolicies, path: Path, line: int, fixture: Mapping[str, Any]) -> FixtureResult:
    dataset = _dataset(fixture["dataset"], path, line)
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
        file=str(path),
        line=line,
    )


def _dataset(value: Any, path: Path, line: int) -> DatasetSettings:
    try:
        return msgspec.convert(value, DatasetSettings)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN_FIELD.search(str(error))
        hint = ""
        if unknown:
            words = ("id", "title", "domain", "rights", "license", "care", "label", "level", "sovereignty")
            close = suggest(unknown["word"], words)
            hint = f"; did you mean {close!r}?" if close else ""
        raise PolicyError.at(path, line, f"dataset: {error}{hint}") from None


def _read(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}") from None
    if len(data) > _FILE_BYTES_MAX:
        raise PolicyError(f"{path}: larger than {_FILE_BYTES_MAX} bytes")
    try:
        entries = YAML(typ="rt").load(data)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise PolicyError.at(path, line, f"{' '.join((error.problem or 'is not YAML').split())}") from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise PolicyError(f"{path}:1: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(entries, list) or len(entries) > _FIXTURES_MAX:
        raise PolicyError(f"{path}:1: a list of at most {_FIXTURES_MAX} fixtures is expected")
    marks: Any = getattr(entries, "lc", None)
    lines = [marks.item(index)[0] + 1 for index in range(len(entries))]
    plain = _plain(entries, path, [_NODES_MAX])
    return [(line, _checked(entry, path, line)) for line, entry in zip(lines, plain, strict=True)]


def _plain(value: Any, path: Path, budget: list[int]) -> Any:
    """Ordinary values instead of the parser's own kinds; the budget ends what aliases would unfold to."""
    budget[0] -= 1
    if budget[0] < 0:
        raise PolicyError(f"{path}: more than {_NODES_MAX} values")
    if isinstance(value, dict):
        return {_plain(key, path, budget): _plain(item, path, budget) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, path, budget) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise PolicyError(f"{path}: {ascii(value)[:80]} is not Unicode text")
    return next((kind(value) for kind in (str, int, float) if isinstance(value, kind)), str(value))


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
