"""The benchmark harness judges fairly."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from bench import admission, evidence
from bench.harness import Benchmark, as_line, is_met, ratio_of, run, run_all


@pytest.mark.parametrize(
    ("kind", "ours", "reference", "ratio", "goal", "met"),
    [
        ("cost", 4.0, 2.0, 2.0, 2.0, True),
        ("cost", 4.1, 2.0, 2.05, 2.0, False),
        ("speedup", 2.0, 20.0, 10.0, 10.0, True),
        ("speedup", 3.0, 20.0, 20 / 3, 10.0, False),
        ("throughput", 50.0, 100.0, 0.5, 0.5, True),
        ("throughput", 49.0, 100.0, 0.49, 0.5, False),
    ],
)
def test_ratio_and_verdict(kind, ours, reference, ratio, goal, met) -> None:  # type: ignore[no-untyped-def]
    """A cost must be low, a speed-up and a throughput high."""
    assert ratio_of(kind, ours, reference) == pytest.approx(ratio)
    assert is_met(kind, ratio_of(kind, ours, reference), goal) is met


def test_sides_take_turns_and_medians_count() -> None:
    """Both sides are measured in every round, and one odd round does not decide."""
    calls: list[str] = []
    closed: list[bool] = []
    ours = iter([0.0, 3.0, 999.0, 3.0])

    def setup(stack: ExitStack) -> str:
        stack.callback(closed.append, True)
        return "fixture"

    def measured(side: str, value: float):  # type: ignore[no-untyped-def]
        def work(fixture: str) -> float:
            assert fixture == "fixture"
            calls.append(side)
            return value if side == "reference" else next(ours)

        return work

    result = run(
        Benchmark(
            name="x",
            goal=1,
            kind="cost",
            setup=setup,
            rounds=3,
            ours=measured("ours", 0),
            reference=measured("reference", 2.0),
        )
    )
    assert (result.ours, result.reference, result.ratio, result.met) == (3.0, 2.0, 1.5, False)
    assert closed == [True]
    rounds = [frozenset(calls[index : index + 2]) for index in range(2, 8, 2)]
    assert rounds == [frozenset({"ours", "reference"})] * 3


def test_time_is_bounded() -> None:
    """A benchmark out of time stops with the rounds that it has, at least three."""
    result = run(
        Benchmark(
            name="x",
            goal=1,
            kind="cost",
            rounds=10_000,
            seconds_max=0,
            ours=lambda _: 1.0,
            reference=lambda _: 1.0,
        )
    )
    assert result.rounds == 3


def test_a_broken_benchmark_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """What breaks is named; the rest is still measured."""
    broken = Benchmark(name="broken", goal=1, kind="cost", ours=lambda _: 1 / 0, reference=lambda _: 1.0)
    whole = Benchmark(
        name="whole", goal=1, kind="cost", rounds=3, ours=lambda _: 1.0, reference=lambda _: 1.0
    )
    assert [result.name for result in run_all([broken, whole])] == ["whole"]
    assert "bench: broken broke" in capsys.readouterr().err


def test_one_json_line_each_and_a_missed_goal_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output has one JSON object a benchmark; standard error names what was missed."""
    missed = Benchmark(
        name="slow", goal=1, kind="cost", rounds=3, ours=lambda _: 2.0, reference=lambda _: 1.0
    )
    (result,) = run_all([missed])
    out, err = capsys.readouterr()
    assert out == as_line(result) + "\n"
    assert list(json.loads(out)) == ["name", "ours", "reference", "unit", "ratio", "goal", "rounds", "met"]
    assert "slow missed its goal: 2, wanted ≤ 1" in err


@pytest.mark.parametrize("name", ["admission_new", "evidence_on"])
def test_a_benchmark_keeps_up_with_what_it_measures(name: str) -> None:
    """What benchmarks write by hand, beside the product's writers, fits the ledger of today."""
    benchmark = next(one for one in [*admission.benchmarks(), *evidence.benchmarks()] if one.name == name)
    with ExitStack() as stack:
        fixture = benchmark.setup(stack)
        assert benchmark.reference(fixture)
        assert benchmark.ours(fixture)
