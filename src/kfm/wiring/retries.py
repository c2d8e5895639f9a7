"""Trying failed runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kfm.core.errors import UsageError
from kfm.core.holding import Waiting
from kfm.core.records import Run
from kfm.core.times import rfc3339
from kfm.engine.requests import RunReport, RunRequest
from kfm.telemetry.compliance import AUTOMATIC

if TYPE_CHECKING:
    from kfm.admission.subject import Subject
    from kfm.engine.retrying import Passed
    from kfm.wiring.app import App


# --- trying again ----------------------------------------------------------------------


def retry_run(
    app: App,
    run: Run,
    *,
    actor: str,
    claimed_actor: str | None = None,
    rationale: str | None = None,
    ticket: str | None = None,
) -> RunReport:
    """One more attempt at exactly this run, now, because a person wants it."""
    from kfm.engine.run import Updating

    subject = require_current(app, run, _subject(app, run, actor, claimed_actor, rationale, ticket))
    return Updating(app.kernel, subject, force=False, artifacts_dir=None, plan=None).run()


def require_retriable(app: App, run: Run) -> None:
    """UsageError, unless another attempt would be one at this very run."""
    require_current(app, run, _subject(app, run, app.actor))


def require_current(app: App, run: Run, subject: Subject | None) -> Subject:
    if subject is None:
        raise UsageError(
            f"Its source `{run.source_id}` is not in the configuration any more.",
            remedy="Put the source back, or leave the run as it is.",
        )
    latest = app.ledger.latest_run(run.work_base)
    if subject.work_base != run.work_base:
        raise UsageError(
            f"The pipeline of {run.source_id} has changed since: with the new code it is other work.",
            remedy=f"Run it as such: kfm run --source {run.source_id} --window {window_of(run)}",
        )
    if latest is not None and latest.run_id != run.run_id:
        raise UsageError(
            f"Revision {latest.revision} of the same work has begun since: run {latest.run_id}.",
            remedy=f"Retry that one, if it failed: kfm show {latest.run_id}",
        )
    return subject


def run_due(app: App, *, actor: str, told: Callable[[RunReport | Passed], None]) -> list[RunReport | Passed]:
    """Make every automatic attempt that is due now, one after the other."""
    from kfm.engine.retrying import Automatic

    automatic = Automatic(app.kernel, lambda run: _subject(app, run, actor, claimed_actor=AUTOMATIC))
    automatic.settle()
    made = []
    for waiting in automatic.due():
        made.append(automatic.attempt(waiting))
        told(made[-1])
    return made


def waiting(app: App, limit: int = 100) -> list[Waiting]:
    """Every run with an automatic attempt ahead, the earliest first."""
    from kfm.engine.retrying import EVER_MS

    return app.ledger.waiting(EVER_MS, limit)


def _subject(
    app: App,
    run: Run,
    actor: str,
    claimed_actor: str | None = None,
    rationale: str | None = None,
    ticket: str | None = None,
) -> Subject | None:
    """The run's work as the configuration describes it now; None if it describes it no more."""
    if run.source_id not in {source.id for source in app.settings.sources}:
        return None
    request = RunRequest(
        source_id=run.source_id,
        window_spec=window_of(run),
        trigger_type=run.trigger_type,
        correction=run.correction,
        actor=actor,
        claimed_actor=claimed_actor,
        rationale=rationale,
        ticket=ticket,
    )
    return app.subject(request)


def window_of(run: Run) -> str:
    return f"{rfc3339(run.window_start_ms)}/{rfc3339(run.window_end_ms)}"
