"""People around announced objects: they throw switches and lift them, and bring back what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfm.db.ledger import Ledger
from kfm.model.errors import KfmError
from kfm.model.gates import switch_gate
from kfm.model.records import Justification, Switch, governance_entry
from kfm.model.replays import Selection
from kfm.nodd import replay as replaying
from tests.simulation.adapters import SimClock
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.announced.world import AnnouncedWorld

SCOPES = ("all", "dataset:hrrr", "dataset:nexrad-l2", "dataset:gauges")


def govern(world: AnnouncedWorld, process: Process) -> None:
    """A person sets switches, and lifts them."""
    store, dice = world.store(process), world.dice
    for _ in range(dice.randrange(1, 4)):
        world.scheduler.sleep(process, dice.randrange(10, dice.choice((200, 2_000, 15_000))))
        scope = dice.choice(SCOPES)
        for position in (dice.choice(("paused", "stopped")), "running"):
            try:
                _switch(store, scope, position)
            except KfmError:
                continue
            world.scheduler.sleep(process, dice.choice((10, 500, 20_000)))


def lift(world: AnnouncedWorld, process: Process) -> None:
    for scope in SCOPES:
        _switch(world.store(process), scope, "running")


def _switch(store: Ledger, scope: str, position: Any) -> None:
    now_ms = store.now_ms()
    switch = Switch(scope=scope, position=position, rationale="simulated", actor="sim", set_at_ms=now_ms)
    by = Justification(actor="sim", rationale="simulated")
    entry = governance_entry("switch", scope, now_ms, by, position=position)
    store.set_switch(switch, entry)


def replay(world: AnnouncedWorld, process: Process, dataset: str) -> None:
    """As `kfm replay run`: what failed comes back; a person who is stopped in between does it again."""
    store, settings = world.store(process), world.settings
    kernel = replaying.ReplayContext(
        settings=settings,
        replays=store.replays(),
        gate=lambda name: switch_gate(store.switches(), name, "none", False),
        clock=SimClock(world.scheduler, process),
        now_ms=store.now_ms,
    )
    by = Justification(actor="sim", rationale="simulated")
    for _ in range(3):
        try:
            made = replaying.plan(
                kernel.replays,
                settings,
                Selection(datasets=(dataset,)),
                mode="failed-only",
                reason="incident",
                limit=None,
                now_ms=store.now_ms(),
            )
            if made.units:
                begun = replaying.begin(kernel, made, by)
                replaying.execute(kernel, begun, replaying.ReplayPace(batch_size=1), by)
            return
        except KfmError as error:
            world.outcomes[f"replay {error.code}"] += 1
