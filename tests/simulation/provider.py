"""Upstream: what it holds for each source and window, and whether that keeps its contract."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kfm.model.records import Item, Window
from kfm.model.settings import Settings
from kfm.model.windows import previous_window, resolve_window
from tests.simulation.kits.features import FeatureKit
from tests.simulation.kits.tables import TableKit

WINDOWS = (0, 1)
MODEL_MARK = b"# model\n"


class Kit(Protocol):
    contract: bytes
    media_type: str
    suffix: str

    def files(self, rng: random.Random, start: int, window: Window, *, good: bool) -> dict[str, bytes]: ...


class Measurements:
    """The plain contract of most seeds: small to read, so that runs stay quick."""

    suffix = "csv"
    media_type = "text/csv"
    contract = (
        b"{apiVersion: v3.1.0, kind: DataContract, id: f, version: '1', status: active, schema: [{name: f, "
        b"properties: [{name: site, required: true}, "
        b"{name: cfs, logicalType: number, logicalTypeOptions: {minimum: 0}}]}]}"
    )

    def files(self, rng: random.Random, start: int, window: Window, *, good: bool) -> dict[str, bytes]:
        del window
        parts = {}
        for part in range(rng.randrange(1, 3)):
            rows = "".join(f"0688{i},{(start + 10 * part + i) * (1 if good else -1)}\n" for i in range(8))
            parts[f"part{part}.csv"] = f"site,cfs\n{rows}".encode()
        return parts


@dataclass
class Provider:
    """`moves` counts the changes of each place: two looks at one number saw the same content."""

    rng: random.Random
    settings: Settings
    now_ms: int
    content: dict[tuple[str, int], dict[str, bytes]] = field(default_factory=dict)
    good: dict[tuple[str, int], bool] = field(default_factory=dict)
    moves: dict[tuple[str, int], int] = field(default_factory=dict)
    bad_sets: set[tuple[str, frozenset[str]]] = field(default_factory=set)
    changes: int = 0

    def __post_init__(self) -> None:
        rng = self.rng
        table: Kit = TableKit(rng, columns=1) if rng.random() < 0.25 else Measurements()
        self.kits: dict[str, Kit] = {
            "gauges": table,
            "models": Measurements(),
            "counties": FeatureKit(rng, plain=rng.random() < 0.75),
            "orphan": Measurements(),
        }
        self.windows = {
            source.id: self._windows(source.window, source.time_zone) for source in self.settings.sources
        }

    def _windows(self, spec: str, zone: str) -> tuple[Window, ...]:
        newest = resolve_window(spec, zone, self.now_ms)
        return newest, previous_window(newest, zone)

    def contract(self, path: str) -> bytes:
        return self.kits[path.partition(".")[0]].contract

    def members(self, source: str) -> tuple[str, ...]:
        return self.settings.source(source).members or (source,)

    def held(self, source: str, window: int) -> dict[str, bytes]:
        """Everything for one window, at the paths at which it would be published."""
        members = self.settings.source(source).members
        if not members:
            return self.content.get((source, window), {})
        return {
            f"{member}/{path}": data
            for member in members
            for path, data in self.content.get((member, window), {}).items()
        }

    def state(self, source: str, window: int) -> tuple[tuple[int, bool], ...]:
        """How often each member moved, and whether what it holds is good."""
        places = [(member, window) for member in self.members(source)]
        return tuple((self.moves[place], self.good[place]) for place in places)

    def change(self, source: str, window: int, *, good: bool) -> None:
        for member in self.members(source):
            self._change_one(member, window, good=good)

    def _change_one(self, source: str, window: int, *, good: bool) -> None:
        self.changes += 1
        span = self.windows[source][window]
        parts = self.kits[source].files(self.rng, self.changes * 100, span, good=good)
        place = (source, window)
        self.content[place] = {f"{source}/w{window}/{name}": data for name, data in parts.items()}
        checked = self.settings.source(source).contract is not None
        self.good[place] = good or not checked
        self.moves[place] = self.moves.get(place, 0) + 1
        if not self.good[place]:
            self.bad_sets.add((source, _digests(parts.values())))

    def breaks_contract(self, item: Item) -> bool:
        """Does this item hold what some source once held, and should not have?"""
        groups: dict[str, set[str]] = {}
        for asset in item.assets:
            source = asset.path.rpartition("/w")[0].rpartition("/")[2]
            groups.setdefault(source, set()).add(asset.sha256)
        return any((source, frozenset(group)) in self.bad_sets for source, group in groups.items())

    def look(self, source: str, window: Window) -> Callable[[], Mapping[str, bytes]]:
        """What a reader of one member finds, whenever it looks."""
        index = next(
            (index for index in WINDOWS if self.windows[source][index].start_ms == window.start_ms), None
        )
        return lambda: {} if index is None else self.content.get((source, index), {})


def _digests(parts: Any) -> frozenset[str]:
    return frozenset(hashlib.sha256(data).hexdigest() for data in parts)
