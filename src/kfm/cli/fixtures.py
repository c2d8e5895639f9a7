"""Fixtures of policies: what has to be allowed, what denied, and by which policy."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import msgspec

from kfm.configuration.document import Document
from kfm.configuration.shape import nearest
from kfm.configuration.yaml_text import parse_yaml
from kfm.core.errors import ConfigError, PolicyError
from kfm.core.settings import Dataset

FILE_BYTES_MAX = 1024 * 1024
FIELDS = ("name", "action", "dataset", "principal", "context", "expect", "by")


class Result(NamedTuple):
    """How one fixture went."""

    name: str
    passed: bool
    expected: str
    got: str
    by: list[str]
    detail: str
    file: str
    line: int


class Fixture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    action: str
    dataset: Dataset
    expect: str
    principal: str = "tester"
    context: dict[str, Any] = {}
    by: tuple[str, ...] = ()


def evaluate(policies: Any, path: str) -> list[Result]:
    """Ask the policies about each fixture of a file. A faulty file is an error that names the line."""
    return [_ask(policies, path, line, fixture) for line, fixture in _read(path)]


def _ask(policies: Any, path: str, line: int, fixture: Fixture) -> Result:
    answers = policies.decide(fixture.action, fixture.dataset, fixture.principal, fixture.context)
    denials = [answer for answer in answers if not answer.allowed]
    got = "deny" if denials else "allow"
    by = sorted(policy for denial in denials for policy in denial.policy_ids)
    passed = got == fixture.expect and (not fixture.by or sorted(fixture.by) == by)
    why = f": {denials[0].reason}" if denials else ""
    detail = "as expected" if passed else f"{got} by {', '.join(by) or 'nothing'}{why}"
    return Result(fixture.name, passed, fixture.expect, got, by, detail, path, line)


def _read(path: str) -> list[tuple[int, Fixture]]:
    try:
        if os.path.getsize(path) > FILE_BYTES_MAX:
            raise PolicyError(f"{path}: larger than {FILE_BYTES_MAX:,} bytes")
        with open(path, encoding="utf-8") as file:
            document = parse_yaml(path, file.read())
    except ConfigError as error:
        raise PolicyError(error.detail) from None
    except UnicodeDecodeError:
        raise PolicyError(f"{path}:1: the file is not UTF-8 text") from None
    if not isinstance(document.values, list):
        raise PolicyError(f"{path}:1: a list of fixtures is expected")
    return [_fixture(document, index) for index in range(len(document.values))]


def _fixture(document: Document, index: int) -> tuple[int, Fixture]:
    line, value = document.line(f"[{index}]"), document.values[index]
    where = f"{document.name}:{line}"
    for key in value if isinstance(value, dict) else ():
        if key not in FIELDS:
            raise PolicyError(f"{where}: `{key}` is not a word of a fixture{nearest(key, list(FIELDS))}")
    try:
        fixture = msgspec.convert(value, Fixture)
    except msgspec.ValidationError as error:
        raise PolicyError(f"{where}: {error}") from None
    if fixture.expect not in ("allow", "deny"):
        raise PolicyError(f"{where}: `expect` must be `allow` or `deny`, not `{fixture.expect}`")
    return line, fixture
