"""Where a pipeline works, for the commands: by the configuration, or a folder with its state in `.kfm`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kfm.cli.session import CommandSession
from kfm.cli.signals import masked
from kfm.model.errors import ConfigNotFound, UsageError

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.pipelines.project import PipelineProject


def directory_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--directory",
        metavar="DIR",
        help="Work in this folder: by its kfm.yml, else with its state in DIR/.kfm. Without: by the "
        "configuration, else here.",
    )(function)


@contextmanager
def opened(
    session: CommandSession, directory: str | None, *, read_only: bool = True, moving: bool = False
) -> Iterator[PipelineProject]:
    """What the session's configuration says, if there is one; what changes something needs a role."""
    with masked():
        from kfm.pipelines.project import open_project

    loaded = _loaded(session, directory)
    if loaded is not None:
        from kfm.config.access import require_role
        from kfm.system import SystemClock

        what = click.get_current_context().command_path
        require_role(loaded, "read" if read_only else "operate", what, SystemClock())
    session.inform()
    with open_project(directory, None, loaded=loaded, read_only=read_only, moving=moving) as place:
        yield place


def _loaded(session: CommandSession, directory: str | None) -> Loaded | None:
    """The configuration; None where there is none. A folder that has one is never worked in without it."""
    if directory is not None:
        if session.config is not None:
            raise UsageError("--directory and --config exclude each other.")
        from kfm.config.loader import NAMES

        paths = [os.path.join(directory, name) for name in NAMES]
        found = next((path for path in paths if os.path.exists(path)), None)
        if found is None:
            return None
        session = session._replace(config=found)
    try:
        return session.load()
    except ConfigNotFound:
        if session.config is not None:
            raise
        return None
