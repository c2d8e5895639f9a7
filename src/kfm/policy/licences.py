"""Licence names: as datasets write them, and as the policies name them."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from kfm.model.wording import suggest
from kfm.policy.bundle import SHIPPED


class Licence(NamedTuple):
    """A licence as policies see it."""

    id: str
    groups: tuple[str, ...]  # "open", "conditional", or none
    nearest: str | None = None  # the known licence whose name is most like it


@lru_cache(maxsize=1)
def _known() -> tuple[dict[str, str], dict[str, str]]:
    """(folded spelling → identifier, identifier → group)."""
    document = json.loads((SHIPPED / "licences.json").read_text("utf-8"))
    groups = {name: group for group in ("open", "conditional") for name in document[group]}
    spellings = {_folded(name): name for name in groups}
    spellings.update({_folded(alias): name for alias, name in document["aliases"].items()})
    return spellings, groups


def _folded(text: str) -> str:
    folded = " ".join(text.split()).casefold()
    return folded.replace("https://", "http://").removesuffix("legalcode").rstrip("/")


@lru_cache(maxsize=256)
def licence(text: str) -> Licence:
    """SPDX identifiers in any case, a few everyday names, and the addresses of common licences."""
    spellings, groups = _known()
    name = spellings.get(_folded(text))
    if name is not None:
        return Licence(name, (groups[name],))
    by_folded = {_folded(identifier): identifier for identifier in groups}
    close = suggest(_folded(text), by_folded, similar_min=0.5)  # names of licences are abbreviated freely
    return Licence(text, (), by_folded[close] if close else None)
