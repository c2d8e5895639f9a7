"""What processor time costs in energy and carbon, as a model with declared assumptions.

With `w` watts for a busy core, `o` the overhead of the place and `c` grams of CO2 equivalent per kWh:

    energy_uwh = cpu_us x w x o / 3600               (a microwatt-second is a microjoule; 3600 of them)
    co2_ug     = cpu_us x w x o x c / 3 600 000      (1 kWh = 10^9 uWh, 1 g = 10^6 ug)

The three figures are taken as the shortest decimals that name their floats (what Python's `repr` and
JavaScript's `String` print), so each is a whole number over a power of ten. Everything else is
whole-number arithmetic (BigInt in JavaScript), each result rounded once, half up: no float on the way,
and the same result in every language.
"""

from functools import lru_cache
from typing import Literal

from kfm.model.records import Record
from kfm.model.settings import EnergyModel

UJ_PER_UWH = 3600
# What a figure may be at most: ten years of a core stay within the whole numbers that JavaScript keeps.
FIGURES_MAX = {"watts_per_core": 1_000, "overhead": 10, "carbon_g_per_kwh": 10_000}
FIGURE_MIN = 1e-6  # only a grid may have less: none


class Energy(Record, frozen=True):
    """What work cost, in whole small units: microwatt-hours and micrograms of CO2 equivalent."""

    cpu_us: int
    energy_uwh: int
    co2_ug: int
    assumption: str  # with which figures it was computed
    method: Literal["modelled"] = "modelled"
    package_uwh: int | None = None  # read off the processor (RAPL), all other processes included


def energy_of(cpu_us: int, model: EnergyModel, package_uj: int | None = None) -> Energy:
    """The modelled cost of processor time; `package_uj` is what the processor itself counted meanwhile."""
    if cpu_us < 0 or (package_uj is not None and package_uj < 0):
        raise ValueError("processor time and energy counters only grow")
    watts_top, watts_bottom, carbon_top, carbon_bottom, assumption = _factors(model)
    return Energy(
        cpu_us=cpu_us,
        energy_uwh=divided_half_up(cpu_us * watts_top, watts_bottom),
        co2_ug=divided_half_up(cpu_us * carbon_top, carbon_bottom),
        assumption=assumption,
        package_uwh=None if package_uj is None else divided_half_up(package_uj, UJ_PER_UWH),
    )


def divided_half_up(top: int, bottom: int) -> int:
    """The nearest whole number; a half goes up. Neither may be negative."""
    return (2 * top + bottom) // (2 * bottom)


def counter_growth(before: int, after: int, highest: int) -> int:
    """How far a counter went that starts again at 0 after `highest`. More than one round can't be seen."""
    return after - before if after >= before else highest - before + after + 1


@lru_cache(maxsize=32)
def _factors(model: EnergyModel) -> tuple[int, int, int, int, str]:
    """Numerator and denominator of uWh and of ug per microsecond, and the sentence that goes with them."""
    watts, watts_scale = _as_fraction(model.watts_per_core)
    overhead, overhead_scale = _as_fraction(model.overhead)
    carbon, carbon_scale = _as_fraction(model.carbon_g_per_kwh)
    power, power_scale = watts * overhead, watts_scale * overhead_scale * UJ_PER_UWH
    return power, power_scale, power * carbon, power_scale * carbon_scale * 1000, assumption_of(model)


def assumption_of(model: EnergyModel) -> str:
    """The sentence that goes with every figure that was computed with this model."""
    return (
        f"Modelled from processor time: {figure_text(model.watts_per_core)} W per busy core, "
        f"overhead {figure_text(model.overhead)}, "
        f"{figure_text(model.carbon_g_per_kwh)} g CO2e per kWh ({model.region})."
    )


def figure_text(value: float) -> str:
    """The shortest decimal, never with an exponent, and without a fraction where there is none."""
    digits, scale = _as_fraction(value)
    places = len(str(scale)) - 1
    return fixed_point(digits, places).rstrip("0").rstrip(".") if places else str(digits)


def fixed_point(value: int, places: int) -> str:
    """A whole number of 10^-places units as decimal text with all its places: 1500, 6 is 0.001500."""
    sign, value = ("-", -value) if value < 0 else ("", value)
    scale = 10**places
    return f"{sign}{value // scale}.{value % scale:0{places}d}" if places else f"{sign}{value}"


def _as_fraction(value: float) -> tuple[int, int]:
    """Digits and power of ten of the shortest decimal: 332.6 is (3326, 10)."""
    mantissa, _, exponent = repr(float(value)).partition("e")
    whole, _, part = mantissa.partition(".")
    part = part.rstrip("0")
    power = int(exponent or 0) - len(part)
    digits = int(whole + part)
    return (digits * 10**power, 1) if power >= 0 else (digits, int(10**-power))
