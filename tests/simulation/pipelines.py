"""What people's pipeline functions do: mostly their work, sometimes something silly."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.provider import MODEL_MARK
from tests.simulation.scheduler import CALM, Process

if TYPE_CHECKING:
    from tests.simulation.world import World

SECRET = "hunter2hunter2hunter2"


def pipeline(world: World, process: Process) -> Callable[[Any], None]:
    def transform(context: Any) -> None:
        rng, publisher = world.rng, context.publisher
        silly = 1.0 if world.scheduler.chances is CALM else rng.random()
        if world.slow and silly > 0.5 and not context.dry_run:
            world.scheduler.sleep(process, rng.randrange(60_000, 3_000_000))
        for entry in context.inputs:
            publisher.write_file(entry.path, made_of(entry, rng.random() < 0.5), {"media_type": "text/csv"})
        publisher.update_state("inputs", len(context.inputs))
        publisher.emit_event("models.made", {"inputs": len(context.inputs)})
        publisher.publish_release({"note": "simulated"})
        context.log(f"transformed with token={SECRET}")
        if silly < 0.12 and not (context.dry_run and 0.02 < silly < 0.03):
            _misbehave(context, silly)

    return transform


def made_of(entry: Any, as_stream: bool) -> Any:
    data = MODEL_MARK + entry.read()
    return io.BytesIO(data) if as_stream else data


def _misbehave(context: Any, throw: float) -> None:
    publisher = context.publisher
    if throw < 0.02:
        raise RuntimeError(f"password={SECRET}")
    if throw < 0.03:
        raise KeyboardInterrupt
    if throw < 0.05 and context.inputs:
        publisher.write_file(context.inputs[0].path, b"twice")
    if throw < 0.07:
        publisher.write_file("x.csv", b"1", {"colour": "blue"})
    if throw < 0.08:
        publisher.write_file("../x.csv", b"1")
    if throw < 0.10:
        publisher.publish_release({"note": "again"})
    raise OSError(28, "No space left on device")
