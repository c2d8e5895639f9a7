"""The JSON document of `kfm lint`, as the schema `cli-lint` declares it."""

from __future__ import annotations

import msgspec


class ReportedFinding(msgspec.Struct, frozen=True):
    code: str
    name: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    confidence: str
    remedy: str
    docs: str


class LintReport(msgspec.Struct, frozen=True):
    """The result of `kfm lint`; with jsonl one of `findings` on each line"""

    findings: list[ReportedFinding]
    files: int
    waived: int
    exit_code: int
