"""`kfm breaker`: circuit breakers of providers: list them, reset one."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import table, utc
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.rationales import require_rationale
from kfm.reports.breakers import breaker_document, breaker_text


@click.group(name="breaker", cls=CommandGroup)
def command() -> None:
    """List and reset the circuit breakers of providers."""


@command.command(name="list")
@session_options
def list_breakers(session: CommandSession) -> None:
    """List every provider that had trouble, and whether it is called now.

    After so many failures in a row (`providers` in the configuration; three) the circuit is open: no process
    calls the provider for its cool-down (300 seconds). Then a single trial call of the whole environment is
    made. What waits meanwhile spends no attempt.
    """
    with session.app(read_only=True) as app:
        now_ms = app.ledger.now_ms()
        documents = [breaker_document(breaker, now_ms, app.settings) for breaker in app.ledger.breakers()]
    rows = [
        (
            each["provider"],
            each["state"],
            str(each["failures"]),
            utc(each["since"]) if each["since"] else "-",
            utc(each["next_try"]) if each["next_try"] else "-",
            utc(each["recovered_at"]) if each["recovered_at"] else "-",
        )
        for each in documents
    ]
    header = ("PROVIDER", "STATE", "FAILURES", "DOWN SINCE", "NEXT TRY", "BACKLOG UNTIL")
    lines = table(header, rows) if rows else ["no provider had trouble: no circuit is open"]
    session.emit({"breakers": documents}, lines, rows=documents)


@command.command(name="reset")
@click.argument("provider", metavar="PROVIDER")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this.")
@click.option("--rationale", metavar="TEXT", help="Why. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def reset(session: CommandSession, provider: str, rationale: str | None, **options: Any) -> None:
    """Close the circuit of PROVIDER: call it again at once, because you know that it is well.

    Only needed where the next try is too far away: a circuit closes by itself. The reset is kept in the
    audit log. If the provider still fails, a few calls open the circuit again.
    """
    require_rationale(rationale, "A circuit is reset with --rationale TEXT.")
    with session.app() as app:
        known = [breaker.provider for breaker in app.ledger.breakers()]
        if provider not in known:
            from kfm.model.quantities import did_you_mean

            raise UsageError(
                f"No provider `{provider}` had trouble{did_you_mean(provider, known)}",
                remedy="`kfm breaker list` names them.",
            )
        from kfm.runs.provider_breakers import reset_breaker

        before, after = reset_breaker(
            app,
            provider,
            rationale=rationale or "",
            actor=app.actor,
            claimed_actor=options["actor"],
            ticket=options["ticket"],
        )
        shown = breaker_document(after, app.ledger.now_ms(), app.settings)
        document = {"breaker": shown, "was": before.state}
        session.emit(document, [f"{breaker_text(shown)}; it was {before.state}"])
        from kfm.cli.run import notify_hooks

        notify_hooks(session, app)
