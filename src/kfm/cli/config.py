"""`kfm config`: what was read, where each value came from, and whether it is right."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.output import one_line, table
from kfm.cli.session import CommandSession
from kfm.model.quantities import counted


@click.group(name="config")
def command() -> None:
    """Show or check the configuration."""


@command.command()
@click.option("--origin", is_flag=True, help="Also show where each value came from.")
@session_options
def show(session: CommandSession, origin: bool) -> None:
    """Print every setting. Secrets are shown as the references that they are, never as values."""
    from kfm.config.origins import leaves, public_document

    loaded = session.load()
    fields = leaves(loaded.settings)
    document: dict[str, Any] = {"path": loaded.path, "settings": public_document(loaded.settings)}
    if origin:
        origins = loaded.origins
        document["origins"] = origins
        lines = table(("SETTING", "VALUE", "FROM"), [(f, _text(v), origins[f]) for f, v in fields])
    else:
        lines = table(("SETTING", "VALUE"), [(f, _text(v)) for f, v in fields])
    session.emit(document, lines)


@command.command()
@session_options
def check(session: CommandSession) -> None:
    """Check the configuration; every problem names its file and line.

    Schedules, the names of announced datasets, and the functions of pipelines are looked for, too. Code is
    read, never run.
    """
    from kfm.config.pipeline_functions import require_pipeline_functions
    from kfm.config.schedules import load_schedules
    from kfm.nodd.dataset_registry import require_known_datasets

    loaded = session.load()
    settings = loaded.settings
    require_pipeline_functions(loaded)
    require_known_datasets(loaded)
    load_schedules(loaded)
    document = {
        "path": loaded.path,
        "ok": True,
        "environment": settings.environment,
        "datasets": len(settings.datasets),
        "sources": len(settings.sources),
        "targets": len(settings.publish),
    }
    counts: dict[str, Any] = {
        "dataset": settings.datasets,
        "source": settings.sources,
        "target": settings.publish,
    }
    if settings.ingest.queues:
        counts["queue"] = settings.ingest.queues
    words = [counted(len(things), word) for word, things in counts.items()]
    line = f"ok: {loaded.name}: environment {settings.environment}, {', '.join(words)}"
    session.emit(document, [line])


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return ", ".join(str(item) for item in value) or "-"
    return one_line(str(value)) or '""'
