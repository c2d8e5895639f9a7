"""`kfm show RUN`: one row of the ledger and the calls that asked for it."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.lookup import find_run
from kfm.cli.options import session_options
from kfm.cli.output import instant, one_line
from kfm.cli.runs import run_document
from kfm.cli.session import Session

CALLS_MAX = 100


@click.command()
@click.argument("run")
@session_options
def command(session: Session, run: str) -> None:
    """Show one run with the calls that asked for it.

    RUN is a run's id, or the beginning of one.
    """
    with session.app(read_only=True) as app:
        document = gather(app.ledger, run)
    session.emit(document, render(document))


def gather(ledger: Any, wanted: str) -> dict[str, Any]:
    run = find_run(ledger, wanted)
    promotions = ledger.promotions(run.dataset_id, limit=1000)
    return {
        "run": run_document(run),
        "invocations": [
            invocation_document(call) for call in ledger.invocations(run_id=run.run_id, limit=CALLS_MAX)
        ],
        "promotions": [
            {
                "version": promotion.sequence,
                "version_id": promotion.version_id,
                "promoted_at": instant(promotion.promoted_at_ms),
            }
            for promotion in promotions
            if promotion.run_id == run.run_id
        ],
    }


def invocation_document(call: Any) -> dict[str, Any]:
    return {
        "invocation_id": call.invocation_id,
        "outcome": call.outcome,
        "trigger_type": call.trigger_type,
        "requested_at": instant(call.requested_at_ms),
        "actor": call.actor,
        "claimed_actor": call.claimed_actor,
        "rationale": call.rationale,
        "ticket": call.ticket,
        "reason": call.reason,
        "gates": list(call.gates),
    }


def render(document: dict[str, Any]) -> list[str]:
    run = document["run"]
    facts = [(name.replace("_", " "), value) for name, value in run.items() if value is not None]
    width = max(len(name) for name, _ in facts)
    lines = [f"{name.ljust(width)}  {one_line(str(value))}" for name, value in facts]
    for promotion in document["promotions"]:
        lines.append(
            f"{'promoted'.ljust(width)}  version {promotion['version']} at {promotion['promoted_at']}"
        )
    lines += ["", f"calls ({len(document['invocations'])}):"]
    for call in document["invocations"]:
        claimed = f" for {one_line(call['claimed_actor'])}" if call["claimed_actor"] else ""
        why = f": {one_line(call['reason'])}" if call["reason"] else ""
        lines.append(
            f"  {call['requested_at']}  {call['outcome']}  by {one_line(call['actor'])}{claimed}{why}"
        )
        lines += [
            f"    gate {gate.gate} refused: {one_line(gate.reason)}"
            for gate in call["gates"]
            if not gate.allowed
        ]
    return lines
