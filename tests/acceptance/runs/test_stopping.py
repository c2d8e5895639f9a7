"""Stop means stop: what a switch, a cancellation or a run's time does to a function at work."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kfm
from kfm.app import App, open_app
from kfm.config.loader import load
from kfm.db.ledger import Ledger
from kfm.model.errors import Cancelled, ContractViolated, KfmError, LostLease, RunTimedOut, SwitchThrown
from kfm.model.records import Switch, governance_entry, justified
from kfm.ports import Clock
from kfm.runs.kernel import RunReport, RunRequest
from tests.acceptance.runs.conftest import Inside
from tests.crash.project import Ended, finish
from tests.stand_ins import FixedRng

pytestmark = pytest.mark.req("GOV-1")
WINDOW = "2026-01-01/2026-01-02"


class Beats:
    """A heartbeat that beats when the test asks it to, with a ledger of its own."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.interval_ms = 0
        self._beat: Callable[[Ledger], None] = lambda _ledger: None

    def start(self, beat: Callable[[Ledger], None], interval_ms: int) -> Callable[[], None]:
        self._beat, self.interval_ms = beat, interval_ms
        return lambda: None

    def __call__(self) -> None:
        self._beat(self.ledger)


class Ahead:
    """The app's clock; its monotonic time passes by hand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        return self._began_ms + self.ahead_ms

    def sleep_ms(self, delay_ms: int) -> None:
        self.ahead_ms += delay_ms


class Bench:
    """A project whose pipeline is a function of the test, in an application of its own."""

    def __init__(self, app: App, beats: Beats, clock: Ahead) -> None:
        self.app = app
        self.beats = beats
        self.clock = clock

    def throw(self, position: str = "stopped") -> None:
        ledger, at_ms = self.beats.ledger, self.beats.ledger.now_ms()
        switch = Switch(scope="all", position=position, rationale="flood", actor="ada", set_at_ms=at_ms)  # type: ignore[arg-type]
        why = justified(lambda text: text, "ada", "flood", None, None)
        ledger.set_switch(switch, governance_entry("switch", "all", at_ms, why))

    def cancel(self, reason: str) -> None:
        """A person cancels its request, and the next beat sees it."""
        requests = self.beats.ledger.requests()
        for request in requests.requests(state="running"):
            assert requests.cancel(request.request_id, reason)
        self.beats()

    def run(self, function: Callable[[Any], None], **kernel: Any) -> RunReport:
        loads = self.app._load_pipeline  # so that its calls have a clock and circuits
        changed = {
            "heartbeat": self.beats,
            "clock": self.clock,
            "load_pipeline": lambda reference: loads(reference) and function,
            **kernel,
        }
        self.app.__dict__["kernel"] = replace(self.app.kernel, **changed)
        made: RunReport = self.app.run(RunRequest(source_id="notes", window_spec=WINDOW, actor="ada"))
        return made


@contextmanager
def bench(project: Inside) -> Iterator[Bench]:
    project.write("pipeline.py", "def publish(context): ...\n")
    with project._surroundings(), open_app(load(None, {})) as app:
        ledger = app._open_own_ledger()
        try:
            yield Bench(app, Beats(ledger), Ahead(app.clock))
        finally:
            ledger.close()


@pytest.fixture
def own(project: Inside) -> Iterator[Bench]:
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    with bench(project) as made:
        yield made


def caught(call: Callable[[], object]) -> KfmError | None:
    try:
        call()
    except KfmError as error:
        return error
    return None


def stored(project: Inside) -> tuple[Any, ...]:
    (row,) = project.rows("SELECT status, error_code FROM runs")
    return tuple(row)


def unpublished(project: Inside) -> None:
    assert project.rows("SELECT * FROM promotions") == []
    assert project.rows("SELECT scope FROM locks WHERE worker_id IS NOT NULL") == []


@pytest.mark.req("GOV-1", "RET-2")
def test_a_stop_reaches_the_function(project: Inside, own: Bench) -> None:
    """Thrown while a function works, a switch is noticed at the next beat: its check, its calls and its
    publisher refuse, and the run ends as cancelled, with the switch on record."""
    seen: list[KfmError | None] = []
    calls: list[int] = []

    def publish(context: Any) -> None:
        context.check()
        own.throw()
        own.beats()
        seen.append(caught(context.check))
        seen.append(caught(lambda: kfm.call(calls.append, 1, provider="gauges", idempotent=True)))
        seen.append(caught(lambda: context.publisher.write_file("late.csv", b"late")))
        context.check()

    report = own.run(publish)
    assert [type(error) for error in seen] == [SwitchThrown] * 3
    assert calls == [], "the call was not made"
    assert (report.outcome, type(report.error)) == ("refused", SwitchThrown)
    assert "flood" in report.reason
    assert stored(project) == ("failed", "CANCELLED")
    assert project.rows("SELECT fate, reason FROM retry_states") == [("spent", "stopped")]
    ((gates,),) = project.rows("SELECT gates FROM invocations")
    assert '"switch-thrown"' in gates or '"gate":"switch"' in gates.replace(" ", "")
    unpublished(project)


def test_the_heartbeat_looks_every_two_seconds(project: Inside) -> None:
    """However long the lease is; and it renews no more often than it has to."""
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    text = (project.folder / "kfm.yml").read_text().replace("lease: {seconds: 1}", "lease: {seconds: 600}")
    project.write("kfm.yml", text)
    until: list[int] = []

    with bench(project) as own:

        def publish(_context: Any) -> None:
            for _ in range(2):
                own.beats()
                until.append(project.rows("SELECT MAX(lease_until_ms) FROM locks")[0][0])
            own.clock.ahead_ms += 200_000
            own.beats()
            until.append(project.rows("SELECT MAX(lease_until_ms) FROM locks")[0][0])

        assert own.run(publish).word == "unchanged"
        assert own.beats.interval_ms == 2_000
    assert until[0] == until[1] < until[2]


def test_a_paused_switch_lets_the_function_end(project: Inside, own: Bench) -> None:
    """Paused keeps new runs from starting, not a running one from its end."""

    def publish(context: Any) -> None:
        own.throw("paused")
        own.beats()
        context.check()
        context.publisher.write_file("a.csv", b"gauge,at,level\n")

    assert isinstance(own.run(publish).error, ContractViolated)  # by the data, not by the switch


def test_whatever_a_function_makes_of_the_stop_it_is_a_stop(project: Inside, own: Bench) -> None:
    """An error that the function raises after the stop does not hide it."""

    def publish(context: Any) -> None:
        own.cancel("A person cancelled it.")
        try:
            context.check()
        except Cancelled as error:
            raise ValueError("mine") from error

    report = own.run(publish)
    assert isinstance(report.error, Cancelled)
    assert "A person cancelled it." in report.reason
    assert stored(project) == ("failed", "CANCELLED")
    unpublished(project)


def test_a_call_does_not_wait_out_its_back_off(project: Inside, own: Bench) -> None:
    """Cancelled while it waits for its next try, a call ends there, and its tries are on record."""
    from kfm.calls.runtime import HERE

    tries: list[int] = []

    def flaky() -> None:
        tries.append(1)
        raise ConnectionError("reset")

    class Waiting(Ahead):
        def sleep_ms(self, delay_ms: int) -> None:
            super().sleep_ms(delay_ms)
            own.cancel("A person cancelled it.")

    clock = Waiting(own.app.clock)

    def publish(_context: Any) -> None:
        with HERE.replaced(clock=clock, rng=FixedRng(0.9)):
            kfm.call(flaky, provider="gauges", idempotent=True, base=1.0)

    assert isinstance(own.run(publish).error, Cancelled)
    assert len(tries) == 1
    assert clock.ahead_ms <= 250, "it looks between short waits"
    assert stored(project) == ("failed", "CANCELLED")
    outcomes = [row[0] for row in project.rows("SELECT outcome FROM retries ORDER BY number")]
    assert outcomes == ["retried", "gave-up"]


def test_threads_that_a_function_starts_are_refused_too(project: Inside, own: Bench) -> None:
    """Also a thread that knows nothing of the run's context can't call or publish after the stop."""
    seen: list[KfmError | None] = []

    def publish(context: Any) -> None:
        own.cancel("enough")

        def work() -> None:
            seen.append(caught(context.check))
            seen.append(caught(lambda: kfm.call(len, "", provider="gauges", idempotent=True)))
            seen.append(caught(lambda: context.publisher.write_file("late.csv", b"late")))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    own.run(publish)
    assert [type(error) for error in seen] == [Cancelled] * 3


@pytest.mark.req("UPD-4")
def test_a_dry_run_is_not_stopped(project: Inside) -> None:
    """`check` does nothing there: a preview changes nothing that a stop would have to protect."""
    project.write(
        "pipeline.py", "def publish(context):\n    context.check()\n    context.log(f'{context.dry_run}')\n"
    )
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    assert project.kfm("run", "--dry-run", "--window", WINDOW).code == 0


# --- the grace period ----------------------------------------------------------------------


def elsewhere(project: Inside, function: Callable[[Bench], RunReport]) -> RunReport:
    """As a runner of the service: not in the main thread, which can be interrupted."""
    made: list[Any] = []

    def work() -> None:
        with bench(project) as own:
            made.append(function(own))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    report: RunReport = made[0]
    return report


@pytest.mark.req("GOV-1", "UPD-8")
def test_a_function_that_does_not_end_is_abandoned(project: Inside, caplog: pytest.LogCaptureFixture) -> None:
    """After the grace period the run has failed as cancelled and its lock is free for others; what the
    function does later changes nothing."""
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    seen: list[Any] = []

    def run(own: Bench) -> RunReport:
        def publish(context: Any) -> None:
            own.throw()
            own.beats()
            own.clock.ahead_ms += 9_999
            own.beats()
            seen.append(stored(project))
            own.clock.ahead_ms += 1
            own.beats()
            seen.append(stored(project))
            unpublished(project)
            seen.append(type(caught(context.check)))
            context.publisher.write_file("late.csv", b"late")

        return own.run(publish)

    with caplog.at_level(logging.WARNING, "kfm"):
        report = elsewhere(project, run)
    assert seen == [("running", None), ("failed", "CANCELLED"), LostLease]
    (run_id,) = project.rows("SELECT run_id FROM runs")[0]
    text = f"run {run_id} was abandoned: its function did not end within 10 s after the stop"
    assert any(text in record.getMessage() for record in caplog.records)
    assert isinstance(report.error, LostLease)
    assert stored(project) == ("failed", "CANCELLED")
    assert {row[0] for row in project.rows("SELECT ending FROM attempts WHERE node = 'transform'")} == {
        "abort"
    }
    assert project.rows("SELECT outcome, reason_code FROM invocations") == [("failed", "CANCELLED")]
    unpublished(project)
    told = project.kfm("explain", run_id).out
    assert "abandoned" in told


def test_an_abandoned_run_of_the_main_thread_is_interrupted(project: Inside, own: Bench) -> None:
    """`kfm run` has nothing else to do: its function is interrupted as by Ctrl-C, so that it ends."""
    after: list[int] = []

    def publish(_context: Any) -> None:
        own.cancel("enough")
        own.beats()
        own.beats()
        for _ in range(100):
            threading.Event().wait(0.01)
        after.append(1)

    report = own.run(publish, grace_ms=0)
    assert after == []
    assert isinstance(report.error, LostLease)
    assert stored(project) == ("failed", "CANCELLED")


@pytest.mark.req("RET-2")
def test_an_abandoned_run_is_not_retried(project: Inside) -> None:
    """It was stopped on purpose: no process tries it again by itself, a person can."""
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')

    def run(own: Bench) -> RunReport:
        def publish(_context: Any) -> None:
            own.cancel("enough")
            own.beats()
            own.beats()

        report = own.run(publish, grace_ms=0)
        assert own.app.dispatch_due("retries") == 0
        return report

    elsewhere(project, run)
    assert project.rows("SELECT fate, reason FROM retry_states") == [("spent", "stopped")]


# --- a bound in time -----------------------------------------------------------------------


@pytest.mark.req("RET-3")
def test_a_run_has_a_bound_in_time(project: Inside) -> None:
    """Past `run_seconds` of its source a run is stopped; the attempt has failed, and is tried again."""
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1", run_seconds: 90')
    left: list[float | None] = []

    with bench(project) as own:

        def publish(context: Any) -> None:
            left.append(kfm.deadline())
            own.clock.ahead_ms += 90_000
            own.beats()
            context.check()

        report = own.run(publish)
    assert left[0] is not None
    assert 80 < left[0] <= 90
    assert isinstance(report.error, RunTimedOut)
    assert "90 s" in report.reason
    assert stored(project) == ("failed", "KFM613")
    assert project.rows("SELECT fate, error_class FROM retry_states") == [("retry", "timeout")]
    unpublished(project)


@pytest.mark.req("RET-3")
def test_a_run_that_outlasts_its_bound_is_abandoned_and_tried_again(project: Inside) -> None:
    """The attempt has failed with the limit's code, and the next one is due in its time."""
    project.configure(
        extra='pipeline: "pipeline.py:publish", output_version: "1"', more="limits: {run_seconds: 60}"
    )

    def run(own: Bench) -> RunReport:
        def publish(_context: Any) -> None:
            own.clock.ahead_ms += 60_000
            own.beats()
            own.beats()

        report = own.run(publish, grace_ms=0)
        own.app.dispatch_due("retries")
        return report

    assert isinstance(elsewhere(project, run).error, LostLease)
    assert stored(project) == ("failed", "KFM613")
    assert project.rows("SELECT fate, error_class FROM retry_states") == [("retry", "timeout")]


# --- nodes ---------------------------------------------------------------------------------


def test_nodes_of_a_governed_run_are_told(project: Inside, own: Bench) -> None:
    """The check of a node raises, what comes after it does not begin, and the run was cancelled."""
    pipeline = kfm.Pipeline("levels", jobs=1)
    began: list[str] = []

    @pipeline.node("first")
    def first(ctx: Any) -> str:
        began.append("first")
        own.throw()
        own.beats()
        ctx.check()
        return "done"

    @pipeline.node("second")
    def second(first: str) -> str:
        began.append(first)
        return first

    pipeline.home = str(project.folder / "pipeline.py")
    report = own.run(pipeline)  # type: ignore[arg-type]
    assert began == ["first"]
    assert isinstance(report.error, SwitchThrown)
    assert stored(project) == ("failed", "CANCELLED")
    unpublished(project)


# --- pipeline runs -------------------------------------------------------------------------

FLOW = """\
import os, time
import kfm

pipeline = kfm.Pipeline("flow", workers="processes")

@pipeline.node("stubborn")
def stubborn():
    with open("pid", "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(0.01)
"""


@pytest.mark.parametrize("position", ["paused", "stopped"])
def test_a_pipeline_run_is_refused_by_a_switch(project: Inside, position: str) -> None:
    """Before anything is begun, with the switch's code and its reason."""
    project.write("flow.py", FLOW)
    assert project.kfm("switch", "set", position, "--all", "--rationale", "flood").code == 0
    ended = project.kfm("pipeline", "run", "flow.py", "--json")
    assert ended.code == 3
    assert json.loads(ended.out)["code"] == "KFM307"
    assert project.rows("SELECT * FROM passes") == []
    assert not (project.folder / "pid").exists()


def test_a_stop_kills_the_processes_of_a_pipeline_run(
    project: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that never looks is ended with its process; the pipeline run is cancelled."""
    monkeypatch.setattr("kfm.periodic.LOOK_MS", 20)
    project.write("flow.py", FLOW)
    pid = project.folder / "pid"
    ends = time.monotonic() + 20

    def stop() -> None:
        while time.monotonic() < ends and not (pid.exists() and pid.read_text()):
            time.sleep(0.005)
        thrown.append(finish(project.start("switch", "set", "stopped", "--all", "--rationale", "flood")))

    thrown: list[Ended] = []
    helper = threading.Thread(target=stop)
    helper.start()
    ended = project.kfm("pipeline", "run", "flow.py", "--json")
    helper.join()
    assert thrown[0].code == 0, thrown
    document = json.loads(ended.out)
    assert (ended.code, document["state"], document["error"]["code"]) == (3, "cancelled", "KFM307")
    assert not Path(f"/proc/{pid.read_text()}").exists()
    assert project.rows("SELECT state, error_code, commit_id FROM passes") == [
        ("cancelled", "CANCELLED", None)
    ]
    unpublished(project)


STUBBORN = """\
import time

def publish(context):
    open("began", "w").close()
    while True:
        time.sleep(0.01)
"""
IMPATIENT = """\
import sys
import kfm.periodic

kfm.periodic.GRACE_MS = kfm.periodic.LOOK_MS = 50
from kfm.cli import main

main(sys.argv[1:])
"""


def test_a_process_ends_although_its_function_does_not(project: Inside) -> None:
    """`kfm run` ends after the grace period, and the next run finds the lock free."""
    project.write("pipeline.py", STUBBORN)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    arguments = ("run", "--json", "--window", WINDOW)
    running = project.start(command=[sys.executable, "-c", IMPATIENT, *arguments])
    ends = time.monotonic() + 20
    while time.monotonic() < ends and not (project.folder / "began").exists():
        time.sleep(0.005)
    assert project.kfm("switch", "set", "stopped", "--all", "--rationale", "flood").code == 0
    ended = finish(running)
    assert ended.result["error"]["code"] == "KFM502", ended
    assert "was abandoned" in ended.err
    assert stored(project) == ("failed", "CANCELLED")
    unpublished(project)
