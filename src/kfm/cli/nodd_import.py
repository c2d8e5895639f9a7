"""`kfm nodd import`: records of an older ledger."""

from __future__ import annotations

from typing import Any, BinaryIO

import click
import msgspec

from kfm.cli.options import session_options
from kfm.cli.session import Session
from kfm.core.errors import RationaleRequired
from kfm.core.wording import counted


@click.command(name="import")
@click.argument("file", type=click.File("rb"), metavar="FILE")
@click.option("--rationale", metavar="TEXT", help="Why; it is kept with the import.")
@session_options
def import_records(session: Session, file: BinaryIO, rationale: str | None) -> int:
    """Take over the records of an older ledger: JSON Lines, one record a line; `-` is standard input.

    A record keeps its states, attempts and times; its id is made anew from dataset, address and start time.
    What is in the ledger already stays as it is, so the same file may be imported again. A line that can't
    be read is told with its number, and the others are taken.

    Exit codes: 0 all lines were taken, or known · 1 some could not be read · 2 no such file.
    """
    if not rationale:
        raise RationaleRequired("An import is on record: give --rationale TEXT.")
    from kfm.ingest.importing import import_units
    from kfm.wiring.ingest import registry_of

    with session.app() as app:
        report = import_units(
            file,
            app.kernel.store.units(),
            registry_of(app),
            now_ms=app.clock.now_ms(),
            actor=app.actor,
            rationale=app.loaded.discretion.said(rationale),
            hide=app.loaded.discretion.hide,
        )
    code = int(report.refused > 0)
    session.emit({**msgspec.to_builtins(report), "exit_code": code}, _lines(report))
    return code


def _lines(report: Any) -> list[str]:
    lines = [f"line {error.line}: {error.error}" for error in report.errors]
    if report.refused > len(report.errors):
        lines.append(f"and {report.refused - len(report.errors)} more")
    lines.append(
        f"{counted(report.lines, 'record')}: {report.created} taken, {report.known} known already, "
        f"{report.refused} not read"
    )
    return lines
