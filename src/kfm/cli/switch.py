"""`kfm switch`: stop work, or let it go on, and say why."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import one_line, table
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.quantities import moment
from kfm.model.rationales import require_rationale
from kfm.reports.status import switch_document

MEANING = {
    "running": "work may start",
    "paused": "nothing new starts, work in flight goes on",
    "stopped": "nothing new starts, work in flight is cancelled",
}


@click.group(name="switch", cls=CommandGroup)
def command() -> None:
    """Set and list kill switches."""


@command.command(name="set")
@click.argument("position", type=click.Choice(tuple(MEANING)), metavar="POSITION")
@click.option("--dataset", metavar="ID", help="For one dataset.")
@click.option("--domain", metavar="ID", help="For all datasets of one domain.")
@click.option("--all", "everything", is_flag=True, help="For everything.")
@click.option("--replays", metavar="DATASET|all", help="For replays alone: of one dataset, or of all.")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def set_switch(session: CommandSession, position: str, rationale: str | None, **options: Any) -> None:
    """Set a kill switch to POSITION: running, paused or stopped.

    Paused keeps new work from starting; stopped also cancels work in flight, safely. Replays ask between
    two batches, so either position ends one there; `kfm replay run REPLAY` goes on once it is lifted. Every
    change needs a rationale, and is kept in the audit log.
    """
    require_rationale(rationale, "A kill switch is set with --rationale TEXT.")
    with session.app() as app:
        scope = _scope(app, options)
        switch = app.set_switch(
            scope,
            position,
            rationale=rationale,
            actor=app.actor,
            claimed_actor=options["actor"],
            ticket=options["ticket"],
        )
    document = {"switch": switch_document(switch), "meaning": MEANING[position]}
    session.emit(
        document, [f"{'everything' if scope == 'all' else scope} is now {position}: {MEANING[position]}"]
    )


def _scope(app: Any, options: dict[str, Any]) -> str:
    named = [kind for kind in ("dataset", "domain", "replays") if options[kind] is not None]
    if len(named) + options["everything"] != 1:
        raise UsageError(
            "Say what the switch is for: one of --dataset ID, --domain ID, --all, --replays DATASET|all."
        )
    if options["everything"]:
        return "all"
    kind, name = named[0], options[named[0]]
    if kind == "replays" and name == "all":
        return "replays:all"
    name = name if kind == "domain" else app.settings.dataset_id(name)
    known = sorted({d.domain if kind == "domain" else d.id for d in app.settings.datasets})
    if name not in known and kind != "domain":
        known = sorted({*known, *_announced(app)})
    if name not in known:
        from kfm.model.quantities import did_you_mean

        what = "dataset" if kind == "replays" else kind
        raise UsageError(f"There is no {what} `{name}`{did_you_mean(str(name), known)}")
    return f"{kind}:{name}"


def _announced(app: Any) -> frozenset[str]:
    """Datasets of announced objects: known without a declaration."""
    from kfm.nodd.ingest import registry_of

    return registry_of(app).names


@command.command(name="list")
@session_options
def list_switches(session: CommandSession) -> None:
    """List every kill switch that was ever set, and its position now."""
    with session.app(read_only=True) as app:
        switches = sorted(app.ledger.switches(), key=lambda switch: switch.scope)
    rows = [
        (s.scope, s.position, moment(s.set_at_ms), one_line(s.actor), one_line(s.rationale)) for s in switches
    ]
    header = ("SCOPE", "POSITION", "SINCE", "BY", "WHY")
    lines = table(header, rows) if rows else ["no switch was ever set: everything may run"]
    documents = [switch_document(switch) for switch in switches]
    session.emit({"switches": documents}, lines, rows=documents)
