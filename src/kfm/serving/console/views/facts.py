"""Parts that the pages of single things have: facts, commands, and who may see them."""

from __future__ import annotations

from kfm.core.records import Record
from kfm.serving.console.visits import NotForYou, Visit


class Fact(Record, frozen=True):
    name: str
    text: str
    at_ms: int | None = None
    href: str | None = None
    code: bool = False


class Next(Record, frozen=True):
    command: str
    why: str


def allowed(visit: Visit, dataset_id: str) -> None:
    """All that is on record of a dataset which may not be named would give it away."""
    if visit.shown.hides(dataset_id):
        raise NotForYou("The traces of this dataset are for those who have the role operate.")
