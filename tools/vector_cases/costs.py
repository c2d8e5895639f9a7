"""Energy and carbon of processor time, and counters that start again."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from kfm.model.energy import counter_growth, energy_of, fixed_point
from kfm.model.settings import EnergyModel
from tools.vector_cases.shape import Case, Family

_FRACTIONS = "by exact fractions of the decimal texts"
_HAND = "by hand"


def _energy(given: dict[str, Any]) -> Any:
    if "counter" in given:
        return counter_growth(*given["counter"])
    if "value" in given:
        return fixed_point(given["value"], given["places"])
    figures = {name: given[name] for name in EnergyModel.__struct_fields__ if name in given}
    cost = energy_of(given["cpu_us"], EnergyModel(**figures), given.get("package_uj"))
    return {
        "energy_uwh": cost.energy_uwh,
        "co2_ug": cost.co2_ug,
        "package_uwh": cost.package_uwh,
        "assumption": cost.assumption,
    }


def _half_up(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


def _case(
    name: str,
    cpu_us: int,
    watts: str = "10",
    overhead: str = "1",
    carbon: str = "332.6",
    region: str = "US-KS",
    package_uj: int | None = None,
) -> Case:
    energy = cpu_us * Fraction(watts) * Fraction(overhead) / 3600
    pin = {
        "energy_uwh": _half_up(energy),
        "co2_ug": _half_up(energy * Fraction(carbon) / 1000),
        "package_uwh": None if package_uj is None else _half_up(Fraction(package_uj, 3600)),
        "assumption": f"Modelled from processor time: {watts} W per busy core, overhead {overhead}, "
        f"{carbon} g CO2e per kWh ({region}).",
    }
    given = {
        "cpu_us": cpu_us,
        "watts_per_core": float(watts),
        "overhead": float(overhead),
        "carbon_g_per_kwh": float(carbon),
        "region": region,
    }
    return Case(name, given | ({} if package_uj is None else {"package_uj": package_uj}), pin, _FRACTIONS)


def _grew(name: str, before: int, after: int, highest: int, growth: int) -> Case:
    return Case(name, {"counter": [before, after, highest]}, growth, _HAND)


def _fixed(name: str, value: int, places: int, text: str) -> Case:
    return Case(name, {"value": value, "places": places}, text, _HAND)


ENERGY = Family(
    "energy",
    "Whole microwatt-hours and micrograms of CO2e from microseconds of processor time, rounded once, half up; "
    "growth of a counter that starts again; fixed-point text.",
    _energy,
    [
        _case("nothing", 0),
        _case("one microsecond", 1),
        _case("just below a half", 179),
        _case("exactly a half goes up", 180),
        _case("just above a half", 181),
        _case("one microwatt-hour", 360),
        _case("one second", 1_000_000),
        _case("one hour", 3_600_000_000),
        _case("a year of one core", 31_536_000_000_000),
        _case("285 years of one core: the last whole number that JavaScript keeps", 2**53 - 1),
        _case("overhead", 1_000_000, overhead="1.58"),
        _case("overhead that a float can't hold", 3_600_000_000, overhead="1.1"),
        _case("three figures that no float holds", 123_456_789, "0.1", "1.3", "0.7"),
        _case("ten digits", 987_654_321, "12.34567891", "1.0000000001", "412.7182818"),
        _case("watts with a half in sight", 3, "600", "1", "1000"),
        _case("carbon exactly a half", 3600, "1", "1", "500"),
        _case("carbon just below a half", 3600, "1", "1", "499.9999999999999"),
        _case("carbon from exact energy, not from rounded", 170, "10", "1", "1000000"),
        _case("a grid without carbon", 5_000_000, carbon="0"),
        _case("the smallest figures", 10**15, "0.000001", "0.000001", "0.000001"),
        _case("the largest figures", 10**12, "1000", "10", "10000"),
        _case("shortest decimal of a third", 10**12, "0.3333333333333333"),
        _case("France", 60_000_000, "7.5", "1.2", "56", "FR"),
        _case("region outside ASCII", 1000, region="Österreich"),
        _case("the processor's own counter", 1_000_000, package_uj=25_000_000),
        _case("the processor's own counter, a half", 1_000_000, package_uj=1800),
        _case("the processor's own counter, nothing", 1_000_000, package_uj=0),
        _grew("counter stands", 7, 7, 99, 0),
        _grew("counter grows", 7, 50, 99, 43),
        _grew("counter starts again", 99, 0, 99, 1),
        _grew("counter starts again and goes on", 90, 4, 99, 14),
        _grew("counter of a real package", 262_143_000_000, 1_000_000, 262_143_328_850, 1_328_851),
        _fixed("fixed point, nothing", 0, 6, "0.000000"),
        _fixed("fixed point, small", 1500, 6, "0.001500"),
        _fixed("fixed point, large", 9_007_199_254_740_991, 6, "9007199254.740991"),
        _fixed("fixed point, negative", -1, 3, "-0.001"),
        _fixed("fixed point, no places", 42, 0, "42"),
    ],
)

FAMILIES = [ENERGY]
