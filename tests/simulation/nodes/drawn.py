"""Pipelines as a seed draws them: what each node reads from, and functions that sometimes fail."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING, Any

import msgspec

from kfm.pipelines.declaration import NodeSpec, Pipeline

if TYPE_CHECKING:
    from tests.simulation.nodes.world import NodesWorld

SECRET = "hunter2hunter2hunter2"
_ENCODER = msgspec.json.Encoder(order="sorted")
Value = dict[str, Any]


def checksum_of(value: Value) -> str:
    """As the kernel stores what a node returns."""
    return "sha256:" + hashlib.sha256(_ENCODER.encode(value)).hexdigest()


class DrawnPipeline:
    """A pipeline whose code and parameters change, and come back, and whose files only ever change."""

    def __init__(self, world: NodesWorld, dice: random.Random, name: str) -> None:
        self._world = world
        self.id = name
        self.names = [f"{name}{number}" for number in range(dice.randrange(2, 6))]
        self.reads = {
            node: tuple(sorted(dice.sample(self.names[:at], min(at, dice.choice((0, 1, 1, 2))))))
            for at, node in enumerate(self.names)
        }
        self.versions = dict.fromkeys(self.names, 1)
        self.params = dict.fromkeys(self.names, 0)

    @property
    def roots(self) -> list[str]:
        return [node for node in self.names if not self.reads[node]]

    def change(self, dice: random.Random) -> None:
        node = dice.choice(self.names)
        throw = dice.random()
        if throw < 0.4:
            self.versions[node] = dice.choice((1, 2, 3))
        elif throw < 0.6:
            self.params[node] = dice.choice((0, 1))
        else:
            self._world.write(file_of(dice.choice(self.roots)))

    def spec(self, node: str) -> NodeSpec:
        reads, params = self.reads[node], {"cell": self.params[node]}
        inputs = () if reads else (file_of(node),)
        function = self._function(node, self.versions[node], self.params[node])
        needs = dict(zip(reads, reads, strict=True))
        return NodeSpec(node, function, inputs, params, needs, (), (), str(self.versions[node]))

    def declared(self) -> Pipeline:
        """As its file says now."""
        pipeline = Pipeline(self.id)
        for node in self.names:
            pipeline.add(self.spec(node))
        return pipeline

    def expected(self, given: Any = None) -> dict[str, Value]:
        """What every node makes of the code, the parameters and the files as they are now."""
        made: dict[str, Value] = {}
        for node in self.names:
            values = {each: made[each] for each in self.reads[node]}
            made[node] = self._value(node, self.versions[node], self.params[node], values, given)
        return made

    def _value(self, node: str, version: int, cell: int, values: dict[str, Value], given: Any) -> Value:
        return {
            "node": node,
            "version": version,
            "cell": cell,
            "file": None if values else self._world.read(file_of(node)),
            "given": None if values else given,
            "reads": {name: checksum_of(value) for name, value in sorted(values.items())},
        }

    def _function(self, node: str, version: int, cell: int) -> Any:
        def work(ctx: Any, **values: Value) -> Value | None:
            world, given = self._world, None
            process = world.here
            world.scheduler.point(process, "node")
            if ctx.run is not None and not values:
                given = [entry.read().decode() for entry in ctx.run.inputs]
            value = self._value(node, version, cell, values, given)
            whole = world.trouble(process, ctx)
            if ctx.run is not None and node == self.names[-1]:
                ctx.publisher.write_file("made.csv", _ENCODER.encode(value), {"media_type": "text/csv"})
            elif version > 1 and ctx.run is None:
                ctx.publisher.write_file(f"beside-{version}.txt", checksum_of(value).encode())
            return value if whole else value | {"whole": False}

        return work


def file_of(node: str) -> str:
    return f"data/{node}.txt"
