"""What a broken protocol is called, and the weather in which it shows soonest."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.scheduler import Chances


@dataclass(frozen=True)
class Patch:
    name: str
    module: str
    changes: tuple[tuple[str, str], ...]
    last: bool = False  # change the last place where the text stands, not the first
    chances: Chances | None = None  # the weather in which it shows soonest
    rule: str = ""  # what the violation says, where another one would prove nothing
    also: tuple[tuple[str, str, str], ...] = ()  # module, old, new: a second guard that would still hold
    sql: tuple[tuple[str, str, str], ...] = ()  # statement, old, new


SHOWN = Chances(crash=0.0, stall=0.006, jump=0.0, fail_before=0.0, fail_after=0.0)
STALLS = Chances(switch=0.3, crash=0.0, stall=0.02, jump=0.0, fail_before=0.0, fail_after=0.0)
CRASHES = Chances(crash=0.015, stall=0.0, jump=0.0, fail_before=0.0, fail_after=0.0)
CUTS = Chances(crash=0.0, stall=0.0, power_cut=0.003)

QUIET = Chances(crash=0.0, stall=0.0, jump=0.0, fail_before=0.0, fail_after=0.0)
