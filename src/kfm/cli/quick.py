"""`kfm status` without the parser: it is typed all day long, and importing click is a tenth of it.

Only calls that are surely meant this way are taken; all others go through the parser. A test
compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from kfm.cli.session import Session


def read_session(arguments: Sequence[str]) -> Session | None:
    """The session that these arguments of `status` mean, or None if the parser should decide."""
    config, output = None, "text"
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--json":
            output = "json"
        elif word in ("-c", "--config") and rest and not rest[0].startswith("-"):
            config = rest.pop(0)
        else:
            return None
    return Session(config=config, output=output)


def quick_status(arguments: Sequence[str]) -> int | None:
    """Run `status` and return its exit code; None: not for us."""
    session = read_session(arguments)
    if session is None:
        return None
    from kfm.cli.ending import guarded
    from kfm.cli.overview_lines import show_status

    return guarded(lambda: show_status(session), arguments)
