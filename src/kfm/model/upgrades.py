"""Upgrades of the ledger: what a migration means for the kfm of before, and what must wait for whom. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from kfm.model.errors import LedgerBehind

Migration = tuple[int, str, str]  # number, name, text
Kind = Literal["expand", "contract", "undeclared"]

LEVELS = 47  # the migration that made `schema_level`; from it on each says what it is
_DECLARATION = re.compile(r"-- (expand|contract)(?: from (\d+))?: (\S.*)")


class Declaration(NamedTuple):
    """What a migration says of itself in its first line."""

    kind: Kind
    floor: int  # the newest migration that a process must know to write beside it; 0: as before
    does: str


def declaration(migration: Migration) -> Declaration:
    """One that says nothing may be anything: no kfm of before goes on beside it."""
    version, name, text = migration
    found = _DECLARATION.fullmatch(text.partition("\n")[0])
    if found is None or (found[1] == "expand" and found[2]):
        return Declaration("undeclared", version, name.replace("_", " ").capitalize() + ".")
    if found[1] == "expand":
        return Declaration("expand", 0, found[3])
    return Declaration("contract", int(found[2] or version), found[3])


def is_needed(migration: Migration) -> bool:
    """Does the kfm that brings it need it? What it only takes away may wait until no other needs that."""
    return migration[0] <= LEVELS or declaration(migration).kind != "contract"


def at_start(missing: Sequence[Migration]) -> list[Migration]:
    """Of the migrations that a ledger lacks, those that a process applies that finds it so, beside others of
    the version before. They are applied in order: what it needs behind one that others can't live with is
    left to `kfm migrate`."""
    made: list[Migration] = []
    for one in missing:
        if one[0] <= LEVELS or declaration(one).kind != "expand":
            break
        made.append(one)
    behind = [one for one in missing[len(made) :] if is_needed(one)]
    if behind:
        version, name, _ = behind[0]
        raise LedgerBehind(
            f"It lacks migration {version} ({name}), and processes of the kfm before may be at work."
        )
    return made
