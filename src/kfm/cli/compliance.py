"""`kfm compliance`: does the ledger show retries as the rules want them? For continuous integration."""

from __future__ import annotations

import json
from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import short_id
from kfm.cli.session import CommandSession
from kfm.model.quantities import counted

LINES_MAX = 1000  # findings that are shown one by one
RULES = {
    "telemetry-missing": "every try of a retry sequence is on record",
    "forbidden-class-retried": "what can't get better is not tried again by itself",
    "over-maximum": "nothing is tried more often than its rule says, unless a person answers for it",
}


@click.command()
@click.option("--since", metavar="TIME", help="Only runs that began since then, as 2026-01-31T00:00:00Z.")
@session_options
def command(session: CommandSession, since: str | None) -> int:
    """Check every retry in the ledger against the rules; fail if one was broken.

    The rules: each retry sequence has its telemetry; no error that can't get better is retried; attempts
    past the maximum have an entry in the audit log. Each finding names the run and the records
    that show it. JSON output has the compliance record of every sequence, too.

    Exit codes: 0 all is well · 1 findings.
    """
    from kfm.model.times import parse_rfc3339
    from kfm.telemetry.compliance import check

    since_ms = parse_rfc3339(since) if since is not None else 0
    findings: list[dict[str, Any]] = []
    sequences: list[dict[str, Any]] = []
    lines: list[str] = []
    count = 0
    with session.app(read_only=True) as app:
        runs = app.ledger.count_runs(since_ms)
        for checked in check(app.ledger, since_ms, app.settings):
            count += len(checked.sequences)
            findings += [finding_document(one) for one in checked.findings]
            if session.output == "json":  # there may be many, and only JSON shows them
                sequences += [sequence_document(one) for one in checked.sequences]
            elif len(lines) < LINES_MAX:
                lines += [_line(one) for one in checked.findings]
    code = 1 if findings else 0
    document = {"runs": runs, "sequences": sequences, "findings": findings, "exit_code": code}
    session.emit(document, [*lines, *_ending(runs, count, len(findings), len(lines))], rows=findings)
    return code


def _line(finding: Any) -> str:
    return f"{finding.rule}  run {short_id(finding.run_id)} of {finding.dataset_id}: {finding.message}"


def _ending(runs: int, sequences: int, findings: int, shown: int) -> list[str]:
    seen = f"{counted(runs, 'run')}, {counted(sequences, 'retry sequence')}"
    if not findings:
        return [f"compliant: {seen}"]
    more = [f"… and {findings - shown} more: see --json"] if findings > shown else []
    return [*more, f"{counted(findings, 'finding')} in {seen}"]


def finding_document(finding: Any) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "meaning": RULES[finding.rule],
        "message": finding.message,
        "run_id": finding.run_id,
        "dataset_id": finding.dataset_id,
        "records": list(finding.records),
    }


def sequence_document(sequence: Any) -> dict[str, Any]:
    """The compliance record with the run that it is about; amounts as the numbers that releases print."""
    from kfm.telemetry.documents import document_line

    record: dict[str, Any] = json.loads(document_line(sequence.compliance))
    return {"run_id": sequence.run_id, "dataset_id": sequence.dataset_id, "tier": sequence.tier, **record}
