"""Which folders hold what kfm itself writes: a source that reads them would feed on its own output."""

from __future__ import annotations

from collections.abc import Iterator

from kfm.core.settings import Settings

STATE = "state folder"
TARGET = "local target"


def own_places(settings: Settings) -> Iterator[tuple[str, str]]:
    """What each is, and its path as it was configured."""
    yield STATE, settings.state
    for target in settings.publish:
        if target.kind == "local" and target.path:
            yield TARGET, target.path


def takes_in(folder: str, own: str, dataset_id: str, what: str) -> bool:
    """Would reading the folder (absolute, as `own`) bring in what is written to `own`?

    Hidden folders are never entered; another dataset's published files are a fair source.
    """
    if _holds(folder, own):
        below = own[len(folder.rstrip("/")) :].split("/")
        return not any(name.startswith(".") for name in below)
    return _holds(own if what == STATE else f"{own.rstrip('/')}/{dataset_id}", folder)


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
