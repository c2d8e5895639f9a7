"""`kfm show RUN`: one row of the ledger and the calls that asked for it."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.explain import untold_refusals
from kfm.cli.options import session_options
from kfm.cli.output import between, one_line, utc
from kfm.cli.session import Session
from kfm.documents.finding import is_wal_id
from kfm.documents.runs import shown_run

# Told in one line of its own, or only of interest to programs.
_NOT_TOLD = ("window_start", "window_end", "version_id", "force")


@click.command()
@click.argument("run")
@session_options
def command(session: Session, run: str) -> None:
    """Show one run with the calls that asked for it.

    RUN is a run's id, or the beginning of one. The id of a unit (wal_id) shows that, as `kfm nodd show` does.
    """
    if is_wal_id(run):
        from kfm.cli.nodd_units import show_unit

        show_unit(session, run)
        return
    with session.app(read_only=True) as app:
        document = shown_run(app.ledger, run)
    session.emit(document, render(document))


def render(document: dict[str, Any]) -> list[str]:
    run = document["run"]
    facts = [(name.replace("_", " "), value) for name, value in _facts(run, document["version"])]
    width = max(len(name) for name, _ in facts)
    lines = [f"{name.ljust(width)}  {one_line(str(value))}" for name, value in facts]
    for promotion in document["promotions"]:
        lines.append(
            f"{'promoted'.ljust(width)}  version {promotion['version']} at {utc(promotion['promoted_at'])}"
        )
    lines += ["", f"calls ({len(document['invocations'])}):"]
    for call in document["invocations"]:
        claimed = f" for {one_line(call['claimed_actor'])}" if call["claimed_actor"] else ""
        why = f": {one_line(call['reason'])}" if call["reason"] else ""
        outcome = call["outcome"] or "under way"
        asked = utc(call["requested_at"])
        lines.append(f"  {asked}  {outcome}  by {one_line(call['actor'])}{claimed}{why}")
        lines += [
            f"    gate {gate.gate} refused: {one_line(gate.reason)}"
            for gate in untold_refusals(call["gates"], call["reason"] or "")
        ]
    return lines


def _facts(run: dict[str, Any], version: int | None) -> list[tuple[str, Any]]:
    """What people want to know of a run; JSON output has all of it."""
    facts: list[tuple[str, Any]] = []
    for name, value in run.items():
        if name == "window_start":
            facts.append(("window", between(value, run["window_end"])))
        elif name == "version_id" and version is not None:
            facts.append(("version", version))
        elif name == "force" and value:
            facts.append((name, f"number {value}"))
        elif name.endswith("_time_utc") and value is not None:
            facts.append(
                (
                    name.removesuffix("_time_utc").replace("start", "started").replace("end", "ended"),
                    utc(value),
                )
            )
        elif value is not None and name not in _NOT_TOLD:
            facts.append((name, value))
    return facts
