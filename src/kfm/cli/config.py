"""`kfm config`: what was read, where each value came from, and whether it is right."""

from __future__ import annotations

from typing import Any

import click

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.output import one_line, table
from kfm.cli.session import CommandSession
from kfm.model.quantities import counted


@click.group(name="config", cls=CommandGroup)
def command() -> None:
    """Show or check the configuration."""


@command.command()
@click.option("--origin", is_flag=True, help="Also show where each value came from.")
@session_options
def show(session: CommandSession, origin: bool) -> None:
    """Print every setting. Secrets are shown as the references that they are, never as values."""
    from kfm.config.origins import leaves, public_document

    loaded = session.load()
    fields = leaves(loaded.written)
    document: dict[str, Any] = {"path": loaded.path, "settings": public_document(loaded.written)}
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
    read, never run. A window length that differs from the one on record is refused.
    """
    from kfm.config.pipeline_functions import require_pipeline_functions
    from kfm.config.schedules import load_schedules
    from kfm.nodd.dataset_registry import require_known_datasets

    loaded = session.load()
    settings = loaded.settings
    require_pipeline_functions(loaded)
    require_known_datasets(loaded)
    load_schedules(loaded)
    notes = _notes(loaded)
    document = {
        "path": loaded.path,
        "ok": True,
        "environment": settings.environment,
        "datasets": len(settings.datasets),
        "sources": len(settings.sources),
        "targets": len(settings.publish),
        "notes": notes,
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
    session.emit(document, [line, *(f"note: {one_line(note['sentence'])}" for note in notes)])


def _notes(loaded: Any) -> list[dict[str, Any]]:
    """Restricted datasets that a target leaves out by default, what targets show and do not take, and names
    and window lengths that differ from those on record."""
    from kfm.model.errors import KfmError
    from kfm.model.targets import withheld
    from kfm.reports.datasets import earlier_names_used, require_recorded_lengths, unlike_record
    from kfm.reports.status import not_taken

    shown, others = [], earlier_names_used(loaded.written)
    try:
        from kfm.app import open_app

        with open_app(loaded, read_only=True) as app:
            shown = not_taken(loaded.settings, app.ledger) if loaded.settings.publish else []
            others += unlike_record(loaded.settings, app.ledger)
            recorded = app.ledger.change_reader().window_rules()
    except KfmError:
        recorded = {}  # a configuration is right or wrong whether its ledger answers or not
    require_recorded_lengths(loaded.settings, recorded)
    told = {(one["dataset_id"], one["target"]) for one in shown}
    notes = [
        {
            "dataset_id": one["dataset_id"],
            "target": one["target"],
            "shown": one["shown"],
            "sentence": f"{one['sentence']}; it is updated no more, and removed with `{one['command']}`",
        }
        for one in shown
    ]
    for dataset_id, target in withheld(loaded.settings):
        if (dataset_id, target) not in told:
            sentence = (
                f"target {target} does not take dataset {dataset_id}, which is restricted; if it is to show "
                "it, name the dataset in the target's `datasets`, or the level in its `care`"
            )
            facts = {"dataset_id": dataset_id, "target": target, "shown": None, "sentence": sentence}
            notes.append(facts)
    return [*notes, *others]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return ", ".join(str(item) for item in value) or "-"
    return one_line(str(value)) or '""'
