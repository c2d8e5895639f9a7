"""One process, interrupted once; its successors; and what has to be true afterwards."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.crash import evidence
from tests.crash.child import PHASES
from tests.crash.project import PERSON, Ended, Project, differences, finish
from tests.crash.scenarios import KILL, LEASE_SECONDS, RUN, STOP, Scenario, child_command

Kind = Literal["kill", "stop"]
Approach = Literal["operation", "clock"]

POLL_SECONDS = 0.0005
STRIKE_TIMEOUT_SECONDS = 60.0
# A successor that has not ended by then waits for a transaction in which the other was stopped.
SUCCESSOR_SECONDS = 10.0
SUCCESSOR_WAITS_SECONDS = 1.0  # where that is known beforehand
# How often each phase is aimed at, in 23: short ones as often as long ones.
AIMS = (
    *("admit",) * 3, *("discover",) * 2, *("fetch",) * 3, *("pipeline",) * 2,
    *("validate",) * 2, *("promote",) * 3, *("project",) * 3,
    *("deliver",) * 3, "start", "end",
)  # fmt: skip
INSIDE = PHASES[1:-1]


@dataclass(frozen=True)
class Plan:
    """What a trial does, decided by its seed alone."""

    number: int
    kind: Kind
    approach: Approach
    scenario: str
    phase: str
    tick_share: float  # which tick of the phase, as a share of them
    delay_share: float  # by the clock: which part of the phase's usual time
    again: bool  # is the first successor killed, too?


@dataclass
class Outcome:
    plan: Plan
    hit: str = "missed"  # the phase in which it was struck
    where: str = ""
    writing: bool = False  # struck while no other process could write
    waited: bool = False  # stopped inside a transaction: its successor had to wait
    second_hit: str | None = None
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    litter: list[str] = field(default_factory=list)  # harmless, but readers of the tree can see it


def plan_trial(seed: int, kind: Kind, number: int, scenarios: list[str], clock_every: int = 5) -> Plan:
    rng = random.Random(f"{seed}/{kind}/{number}")
    return Plan(
        number=number,
        kind=kind,
        approach="clock" if clock_every and number % clock_every == clock_every - 1 else "operation",
        scenario=scenarios[rng.randrange(len(scenarios))],
        # 7 and 23 share no divisor, so all aims come round; the shift lets them meet both approaches.
        phase=AIMS[(number * 7 + number // len(AIMS) + seed) % len(AIMS)],
        tick_share=rng.random(),
        delay_share=rng.random(),
        again=kind == "kill" and rng.random() < 0.2,
    )


def conduct(plan: Plan, scenario: Scenario, folder: Path) -> Outcome:
    """Carry out one trial in a folder that does not exist yet."""
    began = time.monotonic()
    outcome = Outcome(plan)
    project = scenario.copy_to(folder)
    process = _strike(plan, scenario, project, outcome)
    try:
        if plan.kind == "kill":
            _after_kill(plan, scenario, project, outcome, process)
        else:
            _after_stop(scenario, project, outcome, process)
        _inspect(scenario, project, outcome)
        _again_unchanged(scenario, project, outcome)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    outcome.seconds = time.monotonic() - began
    return outcome


# --- striking --------------------------------------------------------------------------


def _strike(plan: Plan, scenario: Scenario, project: Project, outcome: Outcome) -> subprocess.Popen[str]:
    sent = KILL if plan.kind == "kill" else STOP
    if plan.approach == "operation":
        number = 1 + int(plan.tick_share * scenario.ticks[plan.phase])
        return _by_operation(project, outcome, plan.phase, number, sent)
    return _by_clock(plan, scenario, project, outcome, sent)


def _by_operation(
    project: Project, outcome: Outcome, phase: str, number: int, sent: int
) -> subprocess.Popen[str]:
    """The process strikes itself at the chosen operation."""
    note = project.folder.with_name(f"{project.folder.name}.note")
    process = project.start(command=child_command(note, phase, number, sent))
    if _await_strike(process):
        told = json.loads(note.read_text())
        outcome.hit, outcome.where, outcome.writing = told["phase"], told["operation"], told["writing"]
    note.unlink(missing_ok=True)
    return process


def _by_clock(
    plan: Plan, scenario: Scenario, project: Project, outcome: Outcome, sent: int
) -> subprocess.Popen[str]:
    """The production command, struck from outside some time after the phase was seen to begin."""
    known = set(_event_logs(project))
    # The line of `validate` is written when it is done.
    aim = PHASES.index("pipeline" if plan.phase == "validate" else plan.phase)
    process = project.start(*RUN, *PERSON)
    deadline = time.monotonic() + STRIKE_TIMEOUT_SECONDS
    while process.poll() is None and PHASES.index(seen_phase(project, known)) < aim:
        assert time.monotonic() < deadline, "the process neither ended nor came to its phase"
        time.sleep(POLL_SECONDS)
    time.sleep(plan.delay_share * scenario.seconds[plan.phase])
    if process.poll() is None:
        process.send_signal(sent)
        if _await_strike(process):
            outcome.hit, outcome.where = seen_phase(project, known), "by the clock"
    return process


def _await_strike(process: subprocess.Popen[str]) -> bool:
    """Wait until the process is dead or stopped; False if it came to its own end."""
    deadline = time.monotonic() + STRIKE_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        pid, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            return True
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode == -signal.SIGKILL
        time.sleep(0.002)
    process.kill()
    raise AssertionError("the process was not struck and did not end")


def _event_logs(project: Project) -> list[Path]:
    return sorted(project.state.glob("runs/*/attempt-*/event_log.jsonl"))


def seen_phase(project: Project, known: set[Path]) -> str:
    """How far a process has come, from the traces that it leaves."""
    fresh = [path for path in _event_logs(project) if path not in known]
    if not fresh:
        return "admit" if list(project.state.glob("workers/*.alive")) else "start"
    if b'"run.end"' in fresh[-1].with_name("run.jsonl").read_bytes():
        return "deliver"
    lines = fresh[-1].read_bytes().split(b"\n")[:-1]
    return str(json.loads(lines[-1])["phase"]) if lines else "admit"


# --- what comes after ------------------------------------------------------------------


def _after_kill(
    plan: Plan, scenario: Scenario, project: Project, outcome: Outcome, process: subprocess.Popen[str]
) -> None:
    process.communicate()
    if plan.again:
        second = Outcome(plan)
        number = 1 + int(plan.delay_share * scenario.ticks[plan.phase])
        _by_operation(project, second, plan.phase, number, KILL).communicate()
        outcome.second_hit = second.hit
    _expect(outcome, "the successor", project.run(*PERSON), {0})


def _after_stop(
    scenario: Scenario, project: Project, outcome: Outcome, process: subprocess.Popen[str]
) -> None:
    if process.returncode is None:
        time.sleep(LEASE_SECONDS + 0.05)
    successor = project.start(*RUN, *PERSON)
    try:
        successor.wait(SUCCESSOR_WAITS_SECONDS if outcome.writing else SUCCESSOR_SECONDS)
    except subprocess.TimeoutExpired:
        outcome.waited = True
    else:
        _expect(outcome, "the successor", finish(successor), {0})
        shown, wanted = project.current(), _current_of(scenario.tree)
        outcome.problems += [f"beside the stopped one: {line}" for line in differences(wanted, shown)]
    if process.returncode is None:
        process.send_signal(signal.SIGCONT)
    # 5: it found that its lease had passed to the successor.
    _expect(outcome, "the stopped one", finish(process), {0, 5})
    if outcome.waited:
        _expect(outcome, "the successor that waited", finish(successor), {0, 5})
        _expect(outcome, "one more", project.run(*PERSON), {0})


def _expect(outcome: Outcome, who: str, ended: Ended, codes: set[int]) -> None:
    if ended.code not in codes:
        outcome.problems.append(f"{who} ended with {ended.code}: {ended.err.strip() or ended.out.strip()}")


def _current_of(tree: dict[str, str]) -> dict[str, str]:
    prefix = "levels/" + tree["levels/current"].removeprefix("-> ") + "/"
    return {name.removeprefix(prefix): what for name, what in tree.items() if name.startswith(prefix)}


def _inspect(scenario: Scenario, project: Project, outcome: Outcome) -> None:
    """Everything that an interruption must not change."""
    problems = outcome.problems
    _compare_trees(scenario, project, outcome, "")
    runs = project.rows("SELECT work_key, status FROM runs")
    if len(runs) != scenario.runs or len({key for key, _ in runs}) != len(runs):
        problems.append(f"{len(runs)} runs of {len({key for key, _ in runs})} works, not {scenario.runs}")
    problems += [f"run of {key} is {status}" for key, status in runs if status != "success"]
    held = project.rows("SELECT scope, worker_id FROM locks WHERE worker_id IS NOT NULL")
    problems += [f"{scope} is held by {worker}" for scope, worker in held]
    promoted = project.rows("SELECT count(*) FROM promotions")
    if promoted != [(scenario.runs,)]:
        problems.append(f"{promoted} promotions, not {scenario.runs}")
    undecided = project.rows("SELECT invocation_id FROM invocations WHERE outcome IS NULL")
    problems += [f"call {one} has no outcome" for (one,) in undecided]
    problems += evidence.problems(project)
    sound = project.rows("PRAGMA integrity_check")
    if sound != [("ok",)]:
        problems.append(f"the database: {sound}")


def _again_unchanged(scenario: Scenario, project: Project, outcome: Outcome) -> None:
    ended = project.run(*PERSON)
    _expect(outcome, "the last one", ended, {0})
    if ended.code == 0 and ended.result["word"] != "unchanged":
        outcome.problems.append(f"the last one was {ended.result['word']}, not unchanged")
    _compare_trees(scenario, project, outcome, "after the last: ")


def _compare_trees(scenario: Scenario, project: Project, outcome: Outcome, when: str) -> None:
    for line in differences(scenario.tree, project.tree()):
        left_behind = "/.versions/." in line or "/.tickets/" in line
        (outcome.litter if left_behind else outcome.problems).append(when + line)
