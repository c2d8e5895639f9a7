"""`kfm doctor`: is everything that a run needs there, and right?"""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import one_line
from kfm.cli.session import Session
from kfm.core.wording import counted

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@click.option("--offline", is_flag=True, help="Do not try the sources' addresses.")
@session_options
def command(session: Session, offline: bool) -> int:
    """Check this machine, the store, sources and targets.

    Each line says ok, warn or fail, and how to put it right. Nothing is changed; addresses are only asked
    with HEAD. Exit code 4 if a backend fails, 1 if something else does, else 0.
    """
    from kfm.cli.health import examine

    findings = examine(session.load(), offline=offline)
    rows = [finding._asdict() for finding in findings]
    failed = [finding for finding in findings if finding.state == "fail"]
    code = 4 if any(finding.backend for finding in failed) else 1 if failed else 0
    warned = sum(finding.state == "warn" for finding in findings)
    lines: list[str] = []
    for finding in findings:
        lines += _lines(finding)
    fine = len(findings) - len(failed) - warned
    lines.append(f"{fine} ok, {counted(warned, 'warning')}, {counted(len(failed), 'failure')}")
    for row in rows:
        del row["backend"]
    session.emit({"ok": not failed, "checks": rows, "exit_code": code}, lines, rows=rows)
    return code


def _lines(finding: Any) -> list[str]:
    state = click.style(finding.state.ljust(4), fg=_COLOURS[finding.state])
    lines = [f"{state}  {finding.name}: {one_line(finding.message)}"]
    return [*lines, f"      fix: {one_line(finding.fix)}"] if finding.fix else lines
