"""`kfm init`: a project that works, with comments that say how to go on."""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Any

import click

from kfm.cli.options import session_options
from kfm.cli.session import CommandSession
from kfm.model.errors import UsageError

KINDS = ("folder", "http", "bucket")

# Where a file goes → which template it is made from. `{kind}` is what --from says.
FILES = {
    "kfm.yml": "{kind}/kfm.yml",
    "cron.yml": "cron.yml",
    "contracts/example.odcs.yaml": "contracts/example.odcs.yaml",
    "policies/fixtures.yaml": "policies/fixtures.yaml",
    "pipelines/example.py": "pipelines/example.py",
    ".gitignore": "gitignore",
}
SAMPLES = {"incoming/readings.csv": "incoming/readings.csv"}


@click.command()
@click.argument("folder", default=".")
@click.option("--from", "kind", type=click.Choice(KINDS), default="folder", help="Where the data comes from.")
@session_options
def command(session: CommandSession, folder: str, kind: str) -> None:
    """Begin a project in FOLDER (default: here).

    Writes a commented configuration, a schedule, a data contract, policy fixtures and a pipeline. Nothing
    that is there is overwritten. With --from folder a sample file comes along: `kfm run` works at once.
    """
    chosen = {**FILES, **(SAMPLES if kind == "folder" else {})}
    there = [name for name in chosen if os.path.lexists(os.path.join(folder, name))]
    if there:
        raise UsageError(
            f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} already there; nothing was written.",
            remedy="Choose an empty folder: `kfm init FOLDER`.",
        )
    try:
        for name, template in chosen.items():
            _write(os.path.join(folder, name), template.format(kind=kind))
    except OSError as error:
        raise UsageError(f"{folder} can't be written: {(error.strerror or '').lower()}.") from None
    document: dict[str, Any] = {"folder": os.path.abspath(folder), "from": kind, "files": sorted(chosen)}
    session.emit(document, [os.path.normpath(os.path.join(folder, name)) for name in chosen])
    there_first = "" if folder == "." else f"cd {folder} && "
    first = "kfm diff && kfm run" if kind == "folder" else "edit kfm.yml, then kfm config check"
    session.note(f"next: {there_first}{first}")


def _write(path: str, template: str) -> None:
    text = files("kfm").joinpath("templates", *template.split("/")).read_bytes()
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "xb") as file:
        file.write(text)
