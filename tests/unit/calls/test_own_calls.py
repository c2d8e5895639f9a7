"""A pipeline's own calls as evidence: which rows, which spans, whichever thread they are made in."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kfm.calls.runtime import FailedTry
from kfm.runs.observers import OwnCalls, RunObserver
from tests.acceptance.cli.fakes import make_run
from tests.recording import Recording

RUN = make_run(run_id="00000000-0000-4000-8000-000000000001")


class Ticking:
    def now_ms(self) -> int:
        return 1000

    def monotonic_ms(self) -> int:
        return 5


def tried(sequence: int, attempt: int, outcome: Any, **changes: Any) -> FailedTry:
    values: dict[str, Any] = {
        "call": "look", "provider": "gauges", "attempt": attempt, "outcome": outcome, "reason": outcome,
        "error_class": "HTTP_503", "retryable": True, "delay_ms": 7 if outcome == "retry" else 0,
        "not_before_ms": None, "circuit_open": False, "error": OSError("gone"), "sequence": sequence,
    }  # fmt: skip
    return FailedTry(**{**values, **changes})


@pytest.fixture
def observed() -> tuple[OwnCalls, list[Any], Recording]:
    rows: list[Any] = []
    numbers = iter(range(1, 100))
    telemetry = Recording()
    kernel: Any = SimpleNamespace(telemetry=telemetry, public_name=lambda name: name)
    subject: Any = SimpleNamespace(dataset=SimpleNamespace(id="levels"), source=SimpleNamespace(id="daily"))
    calls = OwnCalls(
        RUN,
        "transform",
        watch=RunObserver(kernel, subject),
        clock=Ticking(),  # type: ignore[arg-type]
        ahead_ms=998,
        take_number=lambda: next(numbers),
        note=lambda *row, **facts: rows.append((row, facts)),
        log_try=lambda _sentence, _kind: None,
        intend=lambda _name: None,
    )
    return calls, rows, telemetry


@pytest.mark.req("RET-8")
def test_calls_that_overlap_are_told_apart(observed: tuple[OwnCalls, list[Any], Recording]) -> None:
    """Two calls fail in turns: each has its own number, rows in order and one span."""
    calls, rows, telemetry = observed
    for one in (
        tried(8, 1, "retry"),
        tried(9, 1, "retry"),
        tried(8, 2, "retry"),
        tried(9, 1, "recovered"),
        tried(8, 3, "gave-up", circuit_open=True),
    ):
        calls.observe(one)
    assert [row for row, _ in rows] == [
        (1, 1, 7, "HTTP_503", "retried"),
        (2, 1, 7, "HTTP_503", "retried"),
        (1, 2, 7, "HTTP_503", "retried"),
        (1, 3, 0, "HTTP_503", "gave-up"),
    ]
    assert [facts["circuit_open"] for _, facts in rows] == [False, False, False, True]
    assert {facts["at_ms"] for _, facts in rows} == {1003}, "by the ledger's clock"
    told = [(span.attributes["call"], span.attributes["tries"]) for span in telemetry.spans]
    assert told == [(2, 2), (1, 3)]


@pytest.mark.req("RET-8")
def test_a_try_that_was_not_made_is_no_failure_of_the_last(
    observed: tuple[OwnCalls, list[Any], Recording],
) -> None:
    """While waiting the circuit opened: the failed try stays as it was, the refused one has its own row."""
    calls, rows, _ = observed
    calls.observe(tried(1, 1, "retry"))
    calls.observe(tried(1, 1, "gave-up", reason="circuit-open"))
    assert [row[1:] for row, _ in rows] == [
        (1, 7, "HTTP_503", "retried"),
        (2, 0, "circuit-open", "gave-up"),
    ]
    assert rows[-1][1]["circuit_open"] is True


def test_an_error_that_does_not_pass_is_no_retry_sequence(
    observed: tuple[OwnCalls, list[Any], Recording],
) -> None:
    """A 404 is the pipeline's failure, and nothing else."""
    calls, rows, telemetry = observed
    calls.observe(tried(1, 1, "gave-up", retryable=False, error_class="HTTP_404"))
    assert (rows, telemetry.spans) == ([], [])


def test_a_call_in_a_thread_belongs_to_the_run_s_trace(
    observed: tuple[OwnCalls, list[Any], Recording],
) -> None:
    """There no span is open, so it names the trace itself."""
    calls, _, telemetry = observed
    thread = threading.Thread(target=lambda: calls.observe(tried(1, 1, "gave-up")))
    thread.start()
    thread.join()
    (span,) = telemetry.spans
    assert len(span.trace_id or "") == 32
