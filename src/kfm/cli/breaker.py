"""`kfm breaker`: circuit breakers of providers: list them, and decide about one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import click

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import table, utc
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError
from kfm.model.rationales import require_rationale
from kfm.reports.breakers import breaker_document, breaker_text


@click.group(name="breaker", cls=CommandGroup)
def command() -> None:
    """List, reset, probe and hold open the circuit breakers of providers."""


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
    lines = (
        table(header, rows, spare=("BACKLOG UNTIL",))
        if rows
        else ["no provider had trouble: no circuit is open"]
    )
    session.emit({"breakers": documents}, lines, rows=documents)


def _reasons(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
        click.option("--rationale", metavar="TEXT", help="Why. Required."),
        click.option(
            "--actor", metavar="NAME", help="On whose behalf; recorded beside the account that runs this."
        ),
    ):
        command = option(command)
    return command


@command.command(name="reset")
@click.argument("provider", metavar="PROVIDER")
@_reasons
@session_options
def reset(session: CommandSession, provider: str, **options: Any) -> None:
    """Close the circuit of PROVIDER: call it again at once, because you know that it is well.

    Only needed where the next try is too far away: a circuit closes by itself. The reset is kept in the
    audit log. If the provider still fails, a few calls open the circuit again.
    """
    _decide(session, provider, "reset", "A circuit is reset with --rationale TEXT.", options)


@command.command(name="probe")
@click.argument("provider", metavar="PROVIDER")
@_reasons
@session_options
def probe(session: CommandSession, provider: str, **options: Any) -> None:
    """Have PROVIDER tried by its next call, before the cool-down is over.

    One single call of the whole environment is made: if it goes well, the circuit is closed; if not, it is
    open for another cool-down. Gentler than a reset. The decision is kept in the audit log.
    """
    _decide(session, provider, "probe", "A circuit is probed with --rationale TEXT.", options)


@command.command(name="hold")
@click.argument("provider", metavar="PROVIDER")
@click.option("--until", metavar="TIME", help="To then, as RFC 3339, such as 2026-02-01T08:00:00Z.")
@click.option("--for", "length", metavar="DURATION", help="Or: for so long, such as PT8H.")
@_reasons
@session_options
def hold(session: CommandSession, provider: str, **options: Any) -> None:
    """Hold the circuit of PROVIDER open: it is not called until a time, at most a day ahead.

    For a provider that is known to be down, or asks for a pause. What waits spends no attempt. The call
    after that time decides; `kfm breaker reset` ends it before. The decision is kept in the audit log.
    """
    if bool(options["until"]) == bool(options["length"]):
        raise UsageError("Say until when: one of --until TIME, --for DURATION.")
    _decide(session, provider, "hold", "A circuit is held open with --rationale TEXT.", options)


def _decide(
    session: CommandSession,
    provider: str,
    kind: Literal["reset", "probe", "hold"],
    needed: str,
    options: dict[str, Any],
) -> None:
    require_rationale(options["rationale"], needed)
    with session.app() as app:
        known = [breaker.provider for breaker in app.ledger.breakers()]
        if provider not in known:
            from kfm.model.quantities import did_you_mean

            raise UsageError(
                f"No provider `{provider}` had trouble{did_you_mean(provider, known)}",
                remedy="`kfm breaker list` names them.",
            )
        from kfm.cli.incident import named_end
        from kfm.model.records import justified
        from kfm.runs.provider_breakers import BreakerDecision, decide_breaker

        until_ms = named_end(app.ledger.now_ms(), options) if kind == "hold" else 0
        said = app.loaded.discretion.said
        by = justified(said, app.actor, options["rationale"], options["ticket"], options["actor"])
        before, after = decide_breaker(app, provider, BreakerDecision(kind=kind, until_ms=until_ms), by)
        shown = breaker_document(after, app.ledger.now_ms(), app.settings)
        document = {"breaker": shown, "was": before.state}
        session.emit(document, [f"{breaker_text(shown)}; it was {before.state}"])
        from kfm.cli.run import notify_hooks

        notify_hooks(session, app)
