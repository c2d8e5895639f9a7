"""Who else is about in a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.actors.auditor import audit
from tests.simulation.actors.calendars import keep_time
from tests.simulation.actors.lineage import write_down
from tests.simulation.actors.names import name_things
from tests.simulation.actors.providers import call
from tests.simulation.actors.retries import retry
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.units import work_through
from tests.simulation.actors.webhooks import deliver

if TYPE_CHECKING:
    from tests.simulation.world import World

PARTS: tuple[tuple[str, Callable[[Scene], None]], ...] = (
    ("calendars", keep_time),
    ("names", name_things),
    ("providers", call),
    ("retries", retry),
    ("lineage", write_down),
    ("units", work_through),
    ("webhooks", deliver),
)
AUDITS = 0.1  # reading contracts takes longest


def cast(world: World) -> None:
    """One or two of them, in slow worlds beside the updates; in quick ones time stands still for none."""
    dice = random.Random(f"cast {world.seed}")
    parts = dice.sample(PARTS, dice.choice((1, 2)))
    if dice.random() < AUDITS:
        parts.append(("auditor", audit))
    for name, act in parts:
        own = random.Random(dice.random())
        world.scheduler.spawn(
            name, lambda process, act=act, own=own: act(Scene(world.scheduler, process, own))
        )
    if not world.slow:
        world.scheduler.run()
