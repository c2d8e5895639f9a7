"""Reports: findings for people, for programs, for GitHub, for code scanning."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from kfm_lint import __version__
from kfm_lint.findings import LIKELY, SURE, Finding
from kfm_lint.rules import BY_CODE, RULES

FORMATS = ("full", "concise", "json", "github", "sarif")
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ReadLine = Callable[[str, int], str]


def full(findings: Sequence[Finding], line_of: ReadLine) -> list[str]:
    """Each finding with the line it is about and the way out."""
    lines = []
    for finding in findings:
        lines += concise([finding])
        text = _visible(line_of(finding.path, finding.line).expandtabs(4).rstrip())
        if text.strip():
            shift = len(text) - len(text.lstrip())
            start = max(finding.column - 1 - shift, 0)
            end = finding.end_column - 1 - shift if finding.end_line == finding.line else len(text)
            width = max(min(end, len(text) - shift) - start, 1)
            lines += [f"    {text.lstrip()}", f"    {' ' * start}{'^' * width}"]
        lines += [f"    fix: {BY_CODE[finding.code].remedy}", ""]
    return lines


def concise(findings: Sequence[Finding]) -> list[str]:
    return [
        f"{_visible(each.path)}:{each.line}:{each.column}: {each.code} {marked(_visible(each.message), each)}"
        for each in findings
    ]


def document(findings: Sequence[Finding], files: int, waived: int) -> dict[str, Any]:
    rows = [
        {
            "code": each.code,
            "name": BY_CODE[each.code].name,
            "path": _clean(each.path),
            "line": each.line,
            "column": each.column,
            "end_line": each.end_line,
            "end_column": each.end_column,
            "message": _clean(each.message),
            "confidence": each.confidence,
            "remedy": BY_CODE[each.code].remedy,
            "docs": BY_CODE[each.code].docs,
        }
        for each in findings
    ]
    return {"findings": rows, "files": files, "waived": waived, "exit_code": 1 if rows else 0}


def marked(message: str, finding: Finding) -> str:
    """The message, marked if the finding is only likely."""
    return message if finding.confidence == SURE else f"[{finding.confidence}] {message}"


def github(findings: Sequence[Finding]) -> list[str]:
    """Workflow commands: GitHub shows them beside the lines that they are about."""
    kind = {SURE: "error", LIKELY: "notice"}
    return [
        f"::{kind[each.confidence]} file={_escape(_clean(each.path), ':,')}"
        f",line={each.line},col={each.column},"
        f"endLine={each.end_line},endColumn={each.end_column},title={each.code} {BY_CODE[each.code].name}"
        f"::{_escape(f'{marked(_clean(each.message), each)} {BY_CODE[each.code].remedy}')}"
        for each in findings
    ]


def sarif(findings: Sequence[Finding], waived: Sequence[Finding], line_of: ReadLine) -> dict[str, Any]:
    """SARIF 2.1.0. Waived findings are in it as suppressed, so that a reviewer sees them."""
    index = {rule.code: number for number, rule in enumerate(RULES)}
    seen: Counter[tuple[str, str, str]] = Counter()
    results = []
    for each, lifted in [*((each, False) for each in findings), *((each, True) for each in waived)]:
        text = line_of(each.path, each.line).strip()
        seen[each.path, each.code, text] += 1
        result: dict[str, Any] = {
            "ruleId": each.code,
            "ruleIndex": index[each.code],
            "level": "error" if each.confidence == SURE else "note",
            "properties": {"confidence": each.confidence},
            "message": {"text": f"{marked(_clean(each.message), each)} {BY_CODE[each.code].remedy}"},
            "locations": [{"physicalLocation": _location(each)}],
            # The text of the line, not its number: a finding stays itself when code moves.
            "partialFingerprints": {"kfmLine/v1": _fingerprint(each, text, seen[each.path, each.code, text])},
        }
        if lifted:
            result["suppressions"] = [{"kind": "inSource"}]
        results.append(result)
    driver = {
        "name": "kfm lint",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_sarif_rule(rule) for rule in RULES],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_rule(rule: Any) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.message},
        "fullDescription": {"text": " ".join(rule.page.split())},
        "help": {"text": f"{rule.message}\n\n{rule.page}\n\nFix: {rule.remedy}"},
        "helpUri": f"urn:kfm:rule:{rule.code}",
        "defaultConfiguration": {"level": "error"},
    }


def _location(finding: Finding) -> dict[str, Any]:
    path = finding.path.replace("\\", "/")
    uri = quote(path.encode("utf-8", "surrogateescape"))
    place: dict[str, Any] = (
        {"uri": f"file://{uri}"} if path.startswith("/") else {"uri": uri, "uriBaseId": "%SRCROOT%"}
    )
    region = {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": finding.end_line,
        "endColumn": max(finding.end_column, finding.column + (finding.end_line == finding.line)),
    }
    return {"artifactLocation": place, "region": region}


def _fingerprint(finding: Finding, text: str, number: int) -> str:
    parts = json.dumps([finding.code, finding.path, text, number], ensure_ascii=True)
    return sha256(parts.encode()).hexdigest()[:32]


def _clean(text: str) -> str:
    """A file may be called anything; output is UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _visible(text: str) -> str:
    """Text without control characters: a terminal must not obey a file's content."""
    return "".join(char if char.isprintable() else " " for char in _clean(text))


def _escape(text: str, more: str = "") -> str:
    for char in "%\r\n" + more:
        text = text.replace(char, f"%{ord(char):02X}")
    return text
