"""`kfm request`: ask a second person to let one attempt be made."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.quarantine import NEEDS_APPROVAL
from kfm.cli.run import choose, require_window
from kfm.cli.session import CommandSession
from kfm.model.errors import RationaleRequired, UsageError
from kfm.reports.lookup import find_run
from kfm.reports.quarantine import approval_document


@click.command()
@click.option("--source", metavar="ID", help="Of which source.")
@click.option("--window", metavar="W", help="Of which window, as for `kfm run`; else the source's last.")
@click.option("--run", "run_id", metavar="RUN", help="Or: of the work of this run, which failed.")
@click.option("--actor", metavar="NAME", help="On whose behalf; recorded beside who runs this.")
@click.option("--rationale", metavar="TEXT", help="Why it should be done. Required.")
@click.option("--ticket", metavar="ID", help="The ticket that this belongs to.")
@session_options
def command(
    session: CommandSession, source: str | None, window: str | None, run_id: str | None, **wish: Any
) -> int:
    """Ask a second person to approve one attempt at work that needs it.

    Data whose CARE level is restricted is fetched and published only after somebody else has agreed with
    `kfm approve`. The approval is for one attempt at exactly this work: this source and window, with the
    rights and the pipeline as they are now. It holds for seven days. A retry needs another one. What is
    blocked, or lacks consent, can't be asked for.

    Exit code 3: it needs an approval.

    \b
    Examples:
      kfm request --source burials --window 2026-01-01/P1D --rationale "yearly review"
      kfm request --run 0b7f --rationale "the provider is back"
    """
    if (source is None) == (run_id is None):
        raise UsageError("Say what to ask for: --source ID, with --window W, or --run RUN.")
    if run_id is not None and window is not None:
        raise UsageError("--run names its window itself.")
    if not (wish["rationale"] or "").strip():
        raise RationaleRequired("An approval is asked for with --rationale TEXT.")
    from kfm.service.approvals import request_attempt

    with session.app() as app:
        subject = _subject(app, source, window, run_id, wish)
        approval = request_attempt(app, subject, rationale=wish["rationale"], names=app.identity.names)
    session.emit(
        {"request": approval_document(approval)}, [f"requested  {approval.request_id}  {approval.about}"]
    )
    session.note(f"somebody else has to agree: kfm approve {approval.request_id} --rationale TEXT")
    return NEEDS_APPROVAL


def _subject(
    app: Any, source: str | None, window: str | None, run_id: str | None, wish: dict[str, Any]
) -> Any:
    from kfm.runs.kernel import RunRequest
    from kfm.runs.retry import window_of

    if run_id is not None:
        run = find_run(app.ledger, run_id)
        source, window = run.source_id, window_of(run)
    (chosen,) = choose(app.settings, (source or "",))
    if window is not None:
        require_window(window, [app.settings.source(chosen)], app.clock.now_ms())
    return app.subject(
        RunRequest(
            source_id=chosen,
            window_spec=window,
            actor=app.actor,
            claimed_actor=wish["actor"],
            rationale=wish["rationale"],
            ticket=wish["ticket"],
        )
    )
