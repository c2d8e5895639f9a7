"""The energy model: exact, monotone, additive up to rounding, whatever the figures."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.energy import FIGURE_MIN, FIGURES_MAX, counter_growth, energy_of, figure_text, fixed_point
from kfm.model.settings import EnergyModel

MODELS = st.builds(
    EnergyModel,
    watts_per_core=st.floats(FIGURE_MIN, FIGURES_MAX["watts_per_core"]),
    overhead=st.floats(FIGURE_MIN, FIGURES_MAX["overhead"]),
    carbon_g_per_kwh=st.floats(FIGURE_MIN, FIGURES_MAX["carbon_g_per_kwh"]) | st.just(0.0),
)
CPU_US = st.integers(0, 10**18)


def _exact(cpu_us: int, model: EnergyModel) -> tuple[Fraction, Fraction]:
    """In fractions of the shortest decimals, straight from the definition of the units."""
    watts, overhead, carbon = (
        Fraction(repr(figure)) for figure in (model.watts_per_core, model.overhead, model.carbon_g_per_kwh)
    )
    kwh = Fraction(cpu_us, 10**6) * watts * overhead / 3600 / 1000
    return kwh * 10**9, kwh * carbon * 10**6


@pytest.mark.req("UPD-15")
@given(CPU_US, MODELS)
def test_exact(cpu_us: int, model: EnergyModel) -> None:
    """Both figures are the nearest whole number to the exact value, a half up."""
    cost = energy_of(cpu_us, model)
    for got, exact in zip((cost.energy_uwh, cost.co2_ug), _exact(cpu_us, model), strict=True):
        assert isinstance(got, int)
        assert Fraction(-1, 2) < got - exact <= Fraction(1, 2)


@given(CPU_US, CPU_US, MODELS)
def test_monotone(one: int, more: int, model: EnergyModel) -> None:
    """More time never costs less."""
    first, second = energy_of(one, model), energy_of(one + more, model)
    assert first.energy_uwh <= second.energy_uwh
    assert first.co2_ug <= second.co2_ug


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20), MODELS)
def test_additive_within_rounding(parts: list[int], model: EnergyModel) -> None:
    """Nodes add up to their run, but for half a unit each and half a unit of the run."""
    whole = energy_of(sum(parts), model)
    costs = [energy_of(part, model) for part in parts]
    assert abs(whole.energy_uwh - sum(cost.energy_uwh for cost in costs)) <= (len(parts) + 1) / 2
    assert abs(whole.co2_ug - sum(cost.co2_ug for cost in costs)) <= (len(parts) + 1) / 2


@given(MODELS)
def test_assumption_names_every_figure(model: EnergyModel) -> None:
    """One sentence: watts, overhead, carbon intensity, region; no exponents; each figure reads back."""
    cost = energy_of(1, model)
    assert cost.method == "modelled"
    assert cost.assumption.endswith(f"({model.region}).")
    for figure in (model.watts_per_core, model.overhead, model.carbon_g_per_kwh):
        text = figure_text(figure)
        assert set(text) <= set("0123456789.")
        assert float(text) == figure
        assert text in cost.assumption


@given(st.integers(-(10**20), 10**20), st.integers(0, 12))
def test_fixed_point_is_exact(value: int, places: int) -> None:
    """Nothing is lost, and every number has all its places."""
    text = fixed_point(value, places)
    assert Fraction(text) == Fraction(value, 10**places)
    assert len(text.partition(".")[2]) == places


@given(st.integers(1, 10**12), st.data())
def test_counter_that_starts_again(highest: int, data: st.DataObject) -> None:
    """Any growth short of a full round is seen, wherever the counter stood."""
    before = data.draw(st.integers(0, highest))
    growth = data.draw(st.integers(0, highest))
    assert counter_growth(before, (before + growth) % (highest + 1), highest) == growth


def test_figures_stay_whole_everywhere() -> None:
    """Ten years of a core at the highest figures are numbers that JavaScript keeps exactly."""
    cost = energy_of(315_360_000_000_000, EnergyModel(**FIGURES_MAX))  # type: ignore[arg-type]
    assert max(cost.energy_uwh, cost.co2_ug) < 2**53


@pytest.mark.parametrize(("cpu_us", "package_uj"), [(-1, None), (0, -1)])
def test_what_only_grows_is_not_negative(cpu_us: int, package_uj: int | None) -> None:
    """A negative reading is a mistake of the caller, not a gain of energy."""
    with pytest.raises(ValueError, match="only grow"):
        energy_of(cpu_us, EnergyModel(), package_uj)
