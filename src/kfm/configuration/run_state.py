"""What a configuration may say about the store of run-state."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfm.core.settings import Settings

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")


def run_state_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """Path and sentence: one store, and only what belongs to it."""
    chosen = settings.run_state
    if chosen.store != "delta":
        for field in ("path", "options"):
            if getattr(chosen, field):
                yield (
                    f"run_state.{field}",
                    f"`{field}` names a Delta table, and `store` says `{chosen.store}`: an environment keeps"
                    " its run-state in one store",
                )
    elif chosen.path is not None and not chosen.path.strip():
        yield "run_state.path", "`path` must not be empty"
    yield from _lakefs_problems(settings)


def _lakefs_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """Branches are in one place, and the records of nodes with them."""
    server, store = settings.lakefs, settings.run_state.store
    if (server is None) == (store == "lakefs"):
        said = "`run_state.store` is `lakefs`, and" if server is None else "`lakefs` is set, and"
        rest = "`lakefs` names no server" if server is None else f"`run_state.store` is `{store}`"
        yield (
            "lakefs" if server is None else "run_state.store",
            f"{said} {rest}: branches and the records of their nodes are in one place",
        )
    if server is None:
        return
    if not server.endpoint.startswith(("https://", "http://", "env:", "file:")):
        yield (
            "lakefs.endpoint",
            "`endpoint` must be an https:// or http:// address, `env:NAME` or `file:PATH`",
        )
    if not _REPOSITORY.fullmatch(server.repository):
        yield (
            "lakefs.repository",
            "`repository` must have 3 to 63 lower-case letters, digits and dashes, and begin with no dash",
        )
