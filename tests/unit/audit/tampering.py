"""A chain as an export shows it, and everything that an attacker could do to it."""

from __future__ import annotations

import copy
import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from kfm.model import audit
from kfm.model.canonical import canonical_bytes
from kfm.model.records import GovernanceEntry
from kfm.model.runs import ChainLink

SCRIPT = Path(audit.__file__).resolve().parent.parent / "contracts" / "verifier" / "verify_audit.py"
Row = dict[str, Any]
KINDS = ("force", "switch", "promotion", "review", "postmortem", "gate-refused", "gc", "anchor – 水")


def verifier() -> ModuleType:
    """The script that goes with an export, as a module."""
    spec = importlib.util.spec_from_file_location("verify_audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def some_entry(rng: random.Random) -> GovernanceEntry:
    return GovernanceEntry(
        kind=rng.choice(KINDS),
        subject=f"run-{rng.randrange(10**6)}",
        actor=rng.choice(("ada", "grace", "kfm")),
        recorded_at_ms=rng.randrange(2**41),
        rationale=rng.choice((None, "because", "weil – 因为", 'tab\tand "quotes" \\ \u2028')),
        ticket=rng.choice((None, "T-1")),
        details={
            "n": rng.randrange(-(10**9), 10**9),
            "deep": {"\ue000": [1, None], "😀" if rng.random() < 0.05 else "ü": [True]},
        },
    )


def rows_of(links: list[ChainLink]) -> list[Row]:
    """The links as an export has them."""
    return [
        {**msgspec.to_builtins(audit.copied(one)), "entry": audit.entry_document(one.entry)} for one in links
    ]


def some_rows(rng: random.Random, count: int) -> list[Row]:
    return rows_of(list(audit.chained(some_entry(rng) for _ in range(count))))


def lines(rows: list[Row]) -> list[bytes]:
    return [canonical_bytes(row) + b"\n" for row in rows]


def anchor(row: Row) -> audit.Anchor:
    return audit.Anchor(number=row["number"], hash=row["hash"], environment="test", at="2026-01-01T00:00:00Z")


def copies(rows: list[Row]) -> list[audit.CopiedLink]:
    return [msgspec.convert(row, audit.CopiedLink) for row in rows]


def stored(rows: list[Row]) -> list[ChainLink]:
    """As a database would show the rows: what comes before a row is whatever stands there."""
    found, previous = [], audit.ZEROS
    for row in rows:
        entry = msgspec.convert(row["entry"], GovernanceEntry)
        found.append(ChainLink(number=row["number"], entry=entry, previous=previous, hash=row["hash"]))
        previous = row["hash"]
    return found


# --- what an attacker could do -----------------------------------------------------------


class Tampering(NamedTuple):
    name: str
    do: Callable[[random.Random, list[Row]], None]  # changes the rows
    leaves_a_chain: bool  # is the outcome sound in itself?
    fits: int = 0  # rows that were made to fit: only the one after them does not


def renumbered(rows: list[Row]) -> None:
    for number, row in enumerate(rows, 1):
        row["number"] = number


def rechained(rows: list[Row], start: int = 0) -> None:
    """Compute everything again from here on, as a forger who knows how would."""
    renumbered(rows)
    previous = rows[start - 1]["hash"] if start else audit.ZEROS
    for row in rows[start:]:
        row["previous"] = previous
        row["content"] = audit.content_hash(msgspec.convert(row["entry"], GovernanceEntry))
        row["hash"] = previous = audit.link_hash(previous, row["number"], row["content"])


def _edit_entry(rng: random.Random, row: Row) -> None:
    field = rng.choice(("kind", "subject", "actor", "recorded_at_ms", "rationale", "ticket", "details"))
    if field == "recorded_at_ms":
        row["entry"][field] += rng.choice((-1, 1, 1000))
    elif field == "details":
        details = row["entry"]["details"]
        rng.choice(
            (
                lambda: details.update(n=details["n"] + 1),
                lambda: details.update(more=None),
                lambda: details.pop("n"),
                lambda: details["deep"]["\ue000"].reverse(),
            )
        )()
    else:
        row["entry"][field] = f"{row['entry'][field] or ''}!"


def _edit(rng: random.Random, rows: list[Row]) -> None:
    at = rng.randrange(len(rows))
    _edit_entry(rng, rows[at])


def _edit_with_hashes(rng: random.Random, rows: list[Row]) -> None:
    """The entry and its own hashes, but not those that follow."""
    at = rng.randrange(len(rows) - 1)
    row = rows[at]
    _edit_entry(rng, row)
    row["content"] = audit.content_hash(msgspec.convert(row["entry"], GovernanceEntry))
    row["hash"] = audit.link_hash(row["previous"], row["number"], row["content"])


def _edit_hash(rng: random.Random, rows: list[Row]) -> None:
    at = rng.randrange(len(rows))
    digits = rows[at]["hash"]
    place = rng.randrange(64)
    rows[at]["hash"] = digits[:place] + ("0" if digits[place] != "0" else "f") + digits[place + 1 :]


def _edit_number(rng: random.Random, rows: list[Row]) -> None:
    at = rng.randrange(len(rows))
    rows[at]["number"] += rng.choice((-1, 1, 7, -100))


def _delete(rng: random.Random, rows: list[Row]) -> None:
    at = rng.randrange(len(rows) - 1)
    del rows[at]
    if rng.random() < 0.5:
        renumbered(rows)


def _swap(rng: random.Random, rows: list[Row]) -> None:
    first, second = sorted(rng.sample(range(len(rows)), 2))
    rows[first], rows[second] = rows[second], rows[first]
    if rng.random() < 0.5:
        renumbered(rows)


def _swap_entries(rng: random.Random, rows: list[Row]) -> None:
    first, second = sorted(rng.sample(range(len(rows)), 2))
    for field in ("entry", "content"):
        rows[first][field], rows[second][field] = rows[second][field], rows[first][field]


def _insert(rng: random.Random, rows: list[Row]) -> None:
    at = rng.randrange(len(rows))
    made = copy.deepcopy(rng.choice(rows))
    if rng.random() < 0.5:
        made["entry"] = audit.entry_document(some_entry(rng))
        made["content"] = audit.content_hash(msgspec.convert(made["entry"], GovernanceEntry))
        made["previous"] = rows[at]["previous"]
        made["hash"] = audit.link_hash(made["previous"], at + 1, made["content"])
    rows.insert(at, made)
    renumbered(rows)


def _truncate(rng: random.Random, rows: list[Row]) -> None:
    keep = rng.randrange(len(rows))
    del rows[keep:]


def _rewrite(rng: random.Random, rows: list[Row]) -> None:
    """Something is changed, removed, added or moved, and all hashes from there on are made anew."""
    at = rng.randrange(len(rows) - 1)
    way = rng.randrange(4)
    if way == 0:
        _edit_entry(rng, rows[at])
    elif way == 1:
        rows[at]["entry"] = audit.entry_document(some_entry(rng))
        del rows[at + 1]
    elif way == 2:
        rows.insert(at, {"entry": audit.entry_document(some_entry(rng))})
    else:
        rows[at], rows[at + 1] = rows[at + 1], rows[at]
    rechained(rows, at)


def _rewrite_all(rng: random.Random, rows: list[Row]) -> None:
    rows[:] = some_rows(rng, len(rows) + rng.randrange(3))


TAMPERINGS = (
    Tampering("edit", _edit, False),
    Tampering("edit with its hashes", _edit_with_hashes, False, 1),
    Tampering("edit of a hash", _edit_hash, False),
    Tampering("edit of a number", _edit_number, False),
    Tampering("deletion", _delete, False),
    Tampering("swap", _swap, False),
    Tampering("swap of entries", _swap_entries, False),
    Tampering("insertion", _insert, False, 1),
    Tampering("truncation", _truncate, True),
    Tampering("rewrite", _rewrite, True),
    Tampering("rewrite of everything", _rewrite_all, True),
)
