"""`make crash`: kill and stop real processes, and look at what is left."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests import services
from tests.crash import passes, removals
from tests.crash.campaign import every_tick, histogram, memory_disk, shortfalls, worlds
from tests.crash.fleet import Told, fleets
from tests.crash.project import environment
from tests.crash.scenarios import NAMES
from tests.crash.trial import Outcome, Plan, plan_trial

EFFECT_KILLS = 500
EFFECT_KILLS_EACH = 25  # in one project
DERIVED_KILLS = 200
DERIVED_KILLS_EACH = 25  # in one project
STARTS = 100
REMOVALS = 200
# How the time is shared, by what each part needs on a quiet machine of two cores: about three hours in all.
SHARES = {
    "trials": 28, "fleets": 8, "passes": 20, "workers": 20, "serves": 10, "effects": 20, "derived": 15,
    "starts": 30, "removals": 25,
}  # fmt: skip


class TimeLeft:
    """The time of all parts. What one part leaves, the later ones have."""

    def __init__(self, minutes: float, only: str | None = None) -> None:
        self._ends = time.monotonic() + minutes * 60
        self._parts = [only] if only else list(SHARES)

    def until(self, part: str) -> float:
        """When this part has to end. Parts are asked about in their order."""
        later = self._parts[self._parts.index(part) :]
        left = max(0.0, self._ends - time.monotonic())
        return time.monotonic() + left * SHARES[part] / sum(SHARES[each] for each in later)


def main() -> int:
    parser = argparse.ArgumentParser(prog="crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many processes to kill")
    parser.add_argument("--stops", type=int, default=200, help="how many to stop past their lease")
    parser.add_argument(
        "--fleets", type=int, default=20, help="how often two processes share what they retry"
    )
    parser.add_argument("--passes", type=int, default=300, help="how often to kill passes over 200 nodes")
    parser.add_argument("--worker-kills", type=int, default=2000, help="how often to kill workers on a feed")
    parser.add_argument(
        "--serve-minutes", type=float, default=5.0, help="how long to kill services, on each database"
    )
    parser.add_argument(
        "--minutes", type=float, default=28.0, help="how long in all; 0: until everything was done"
    )
    parser.add_argument("--seed", type=int, default=1, help="decides every trial")
    parser.add_argument("--workers", type=int, default=2, help="trials side by side")
    parser.add_argument("--serves", action="store_true", help="instead: only the services")
    parser.add_argument("--effects", type=int, metavar="KILLS", help="instead: only work that acts outside")
    parser.add_argument(
        "--derived",
        type=int,
        metavar="KILLS",
        help="instead: only changes of datasets that others are made of",
    )
    parser.add_argument(
        "--starts", type=int, metavar="N", help="instead: only N starts of services, and of workers"
    )
    parser.add_argument(
        "--removals",
        type=int,
        metavar="TRIALS",
        help="instead: only rollbacks, withdrawals, purges, renamings",
    )
    parser.add_argument("--only", metavar="KIND-N", help="one trial of this seed, such as kill-17")
    parser.add_argument("--every", choices=NAMES, help="instead: a kill at every operation of one scenario")
    parser.add_argument("--scratch", metavar="DIR", help="where; memory, if there is such a place")
    options = parser.parse_args()
    minutes = options.minutes or 24 * 60.0
    alone: dict[str, Callable[[TimeLeft], int]] = {}
    if options.serves:
        alone["serves"] = lambda left: _serves(options, left)
    if options.effects is not None:
        alone["effects"] = lambda left: _effects(options, options.effects, left)
    if options.derived is not None:
        alone["derived"] = lambda left: _derived(options, options.derived, left)
    if options.starts is not None:
        alone["starts"] = lambda left: _starts(options, options.starts, left)
    if options.removals is not None:
        alone["removals"] = lambda left: _removals(options, options.removals, left)
    if alone:
        return max([part(TimeLeft(minutes, name)) for name, part in alone.items()])
    began, left = time.monotonic(), TimeLeft(minutes)
    deadline = left.until("trials")
    names = (options.every,) if options.every else NAMES
    with worlds(names, options.scratch) as campaign:
        plans = every_tick(campaign.scenarios[options.every]) if options.every else _plans(options)
        kills = [plan for plan in plans if plan.kind == "kill"]
        stops = [plan for plan in plans if plan.kind == "stop"]
        outcomes = campaign.run(kills, options.workers, deadline, _tell)
        # Most of a stop is waiting for the lease to lapse.
        outcomes += campaign.run(stops, options.workers * 2, deadline, _tell)
    code = _summary(options, plans, outcomes, time.monotonic() - began)
    if options.only or options.every:
        return code
    return max(
        code,
        _fleets(options, left),
        _passes(options, left),
        _workers(options, left),
        _serves(options, left),
        _effects(options, EFFECT_KILLS, left),
        _derived(options, DERIVED_KILLS, left),
        _starts(options, STARTS, left),
        _removals(options, REMOVALS, left),
    )


def _short(options: argparse.Namespace, count: int, what: str) -> int:
    """Tell what the time was not enough for; that is a failure only where all of it was asked for."""
    if count <= 0:
        return 0
    print(f"not made: {count} {what}: the time was up; --minutes 0 makes all")
    return 0 if options.minutes else 1


def _derived(options: argparse.Namespace, kills: int, left: TimeLeft) -> int:
    """Changes of datasets that others are made of, in several projects side by side."""
    print(flush=True)
    until = left.until("derived")
    count = -(-kills // DERIVED_KILLS_EACH)
    scratch = options.scratch or memory_disk()

    def world(number: int) -> dict[str, Any]:
        if time.monotonic() >= until:
            return {"problems": []}
        seed, each = options.seed * 1000 + number, kills // count + (number < kills % count)
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            command = [sys.executable, "-m", "tests.crash.derived", folder, "--kills", str(each)]
            command += ["--seed", str(seed), "--seconds", str(max(1.0, until - time.monotonic()))]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment())
        told: dict[str, Any] = json.loads(ended.stdout or "{}")
        for problem in told.setdefault("problems", ["it ended without a word"])[:PROBLEMS_TOLD_MAX]:
            print(f"derived, seed {seed}: {problem}", file=sys.stderr, flush=True)
        return told

    with ThreadPoolExecutor(options.workers) as pool:
        done = list(pool.map(world, range(count)))
    sums: Counter[str] = Counter()
    for told in done:
        sums.update({name: value for name, value in told.items() if isinstance(value, int)})
    print(
        f"derived: {sums['kills']} kills, {sums['inside']} of them inside a run; {sums['changes']} changes, "
        f"{sums['rebuilt']} windows made, {sum(len(told['problems']) for told in done)} violations"
    )
    short = _short(options, kills - sums["kills"], "kills around changes")
    return max(short, int(any(told["problems"] for told in done)))


def _removals(options: argparse.Namespace, trials: int, left: TimeLeft) -> int:
    """Rollbacks, withdrawals and purges, killed and stalled, with readers of a folder and of a bucket."""
    print(flush=True)
    outcomes = removals.campaign(
        trials,
        seed=options.seed,
        workers=options.workers,
        scratch=options.scratch,
        deadline=left.until("removals"),
    )
    print(removals.summary(outcomes))
    short = _short(options, trials - len(outcomes), "trials of removals")
    return max(short, int(any(one.problems for one in outcomes)))


def _starts(options: argparse.Namespace, starts: int, left: TimeLeft) -> int:
    """Services and workers that start, answer, and end when asked to, in several projects side by side."""
    print(flush=True)
    until = left.until("starts")

    def world(number: int) -> dict[str, Any]:
        each = str(starts // options.workers + (number < starts % options.workers))
        with tempfile.TemporaryDirectory(dir=options.scratch or memory_disk()) as folder:
            command = [sys.executable, "-m", "tests.crash.starts", f"{folder}/project", "--serves", each]
            command += ["--workers", each, "--seed", str(options.seed * 1000 + number)]
            command += ["--seconds", str(max(1.0, until - time.monotonic()))]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment())
        told: dict[str, Any] = json.loads(ended.stdout or '{"problems": ["it ended without a word"]}')
        for problem in told["problems"][:PROBLEMS_TOLD_MAX]:
            print(f"starts: {problem}", file=sys.stderr, flush=True)
        return told

    with ThreadPoolExecutor(options.workers) as pool:
        done = list(pool.map(world, range(options.workers)))
    count: Counter[str] = Counter()
    for told in done:
        count.update({name: value for name, value in told.items() if isinstance(value, int)})
    problems = sum(len(told["problems"]) for told in done)
    print(
        f"starts: {count['serves']} services with {count['answers']} answers, {count['workers']} workers, "
        f"{count['objects']} objects, {max(told.get('seconds', 0) for told in done) / 60:.1f} min, "
        f"{problems} violations"
    )
    short = _short(options, 2 * starts - count["serves"] - count["workers"], "starts")
    return max(short, int(bool(problems)))


def _effects(options: argparse.Namespace, kills: int, left: TimeLeft) -> int:
    """Work that acts outside, killed around its effects, in several projects side by side."""
    print(flush=True)
    until = left.until("effects")
    count = -(-kills // EFFECT_KILLS_EACH)
    scratch = options.scratch or memory_disk()

    def world(number: int) -> dict[str, Any]:
        if time.monotonic() >= until:
            return {"problems": []}
        seed, each = options.seed * 1000 + number, kills // count + (number < kills % count)
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            command = [sys.executable, "-m", "tests.crash.effects", folder, "--kills", str(each)]
            command += ["--seed", str(seed), "--seconds", str(max(1.0, until - time.monotonic()))]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment())
        told: dict[str, Any] = json.loads(ended.stdout or "{}")
        problems = told.setdefault("problems", ["it ended without a word"])
        for problem in problems[:PROBLEMS_TOLD_MAX]:
            print(f"effects, seed {seed}: {problem}", file=sys.stderr, flush=True)
        return told

    with ThreadPoolExecutor(options.workers) as pool:
        done = list(pool.map(world, range(count)))
    print(acted(done))
    short = _short(options, kills - sum(told.get("kills", 0) for told in done), "kills around effects")
    return max(short, int(any(told["problems"] for told in done)))


def acted(done: list[dict[str, Any]]) -> str:
    count: Counter[str] = Counter()
    starts: Counter[str] = Counter()
    places: Counter[str] = Counter()
    doublers: Counter[str] = Counter()
    for told in done:
        count.update({name: value for name, value in told.items() if isinstance(value, int)})
        starts.update(told.get("starts", {}))
        places.update(told.get("places", {}))
        doublers.update(told.get("doublers", {}))
    return (
        f"effects: {count['kills']} kills {dict(places)}, {count['inside']} of them inside a run; "
        f"{count['failures']} failures after an effect\n"
        f"  started: {dict(sorted(starts.items()))}\n"
        f"  {count['works']} works, {count['effects']} effects that must not be repeated, {count['persons']} "
        f"persons who repeated {count['by_persons']}; {count['waiting']} works wait for a person, "
        f"{count['untouched']} of them without an effect; "
        f"{count['published']} works that may be repeated are published, {count['repeated']} repetitions\n"
        f"  {count['doubled']} works with an effect too many {dict(doublers)}; "
        f"{sum(len(told['problems']) for told in done)} violations"
    )


def _serves(options: argparse.Namespace, left: TimeLeft) -> int:
    """Three services with schedules and webhooks, on SQLite and PostgreSQL."""
    print(flush=True)
    code = 0
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.scratch or memory_disk())))
        servers: dict[str, str | None] = {"sqlite": None}
        try:
            servers["postgresql"] = stack.enter_context(services.postgres())
        except services.ServiceUnavailable as error:
            print(f"services on SQLite only: {error}", file=sys.stderr)
        seconds = (left.until("serves") - time.monotonic()) / len(servers)
        seconds = max(10.0, min(options.serve_minutes * 60, seconds))
        for backend, server in servers.items():
            dsn = stack.enter_context(services.postgres_database(server)) if server else None
            command = [sys.executable, "-m", "tests.crash.serves", str(scratch / backend)]
            command += [
                "--seconds",
                str(min(options.serve_minutes * 60, seconds)),
                "--seed",
                str(options.seed),
            ]
            ended = subprocess.run(
                command + (["--dsn", dsn] if dsn else []), stdout=subprocess.PIPE, text=True, check=False
            )
            told = json.loads(ended.stdout) if ended.stdout else {"problems": ["it ended without a word"]}
            for problem in told["problems"][:PROBLEMS_TOLD_MAX]:
                print(f"services on {backend}: {problem}", file=sys.stderr, flush=True)
            print(_served(backend, told), flush=True)
            code = max(code, int(bool(told["problems"])))
    return code


def _served(backend: str, told: dict[str, Any]) -> str:
    found: Counter[str] = Counter(told.get("found", {}))
    count: Counter[str] = Counter({name: value for name, value in told.items() if isinstance(value, int)})
    return (
        f"services on {backend}: {told.get('seconds', 0) / 60:.1f} min, {count['kills']} kills, "
        f"{count['stops']} stopped past their claims, {count['terminations']} asked to end, "
        f"{count['cuts']} times cut off\n"
        f"  {count['messages']} webhooks, {count['unanswered']} of their answers lost, "
        f"{count['conflicts']} told of the first; {found['requests']} requests, {found['again']} claimed "
        f"again, {found['runs']} runs, {found['interrupted']} interrupted\n"
        f"  {found['instants']} instants: {found['fired']} fired, {found['skipped']} skipped, "
        f"{found['missed']} missed; {len(told['problems'])} violations"
    )


def _workers(options: argparse.Namespace, left: TimeLeft) -> int:
    """One to four workers on a feed of announcements, on SQLite and PostgreSQL."""
    print(flush=True)
    until = left.until("workers")
    done: list[dict[str, Any]] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.scratch or memory_disk())))
        servers: dict[str, str | None] = {"sqlite": None}
        try:
            servers["postgresql"] = stack.enter_context(services.postgres())
        except services.ServiceUnavailable as error:
            print(f"workers on SQLite only: {error}", file=sys.stderr)
        plans = [(name, count) for name in servers for count in (1, 2, 4)]
        for number, (backend, count) in enumerate(plans):
            server = servers[backend]
            dsn = stack.enter_context(services.postgres_database(server)) if server else None
            command = [sys.executable, "-m", "tests.crash.workers", str(scratch / f"{backend}-{count}")]
            command += ["--kills", str(-(-options.worker_kills // len(plans))), "--workers", str(count)]
            command += ["--seed", str(options.seed * 100 + number)]
            command += ["--seconds", str(max(1.0, until - time.monotonic()) / (len(plans) - number))]
            ended = subprocess.run(
                command + (["--dsn", dsn] if dsn else []), stdout=subprocess.PIPE, text=True, check=False
            )
            told = json.loads(ended.stdout) if ended.stdout else {"problems": ["it ended without a word"]}
            done.append(told)
            for problem in told["problems"][:PROBLEMS_TOLD_MAX]:
                print(f"{count} workers on {backend}: {problem}", file=sys.stderr, flush=True)
    kills = sum(told.get("kills", 0) for told in done)
    broken = sum(bool(told["problems"]) for told in done)
    print(
        f"workers: {kills} kills, {sum(told.get('objects', 0) for told in done)} objects, "
        f"{sum(told.get('lapsed', 0) for told in done)} units in the hands of the killed, {broken} broken"
    )
    short = _short(options, options.worker_kills - kills, "kills of workers")
    return max(short, int(bool(broken)))


def _passes(options: argparse.Namespace, left: TimeLeft) -> int:
    """Passes over many nodes, with threads and with processes, on SQLite and PostgreSQL."""

    def tell(told: passes.Told) -> None:
        for problem in told.problems:
            print(
                f"pass {told.seed}, {told.workers} on {told.backend}: {problem}", file=sys.stderr, flush=True
            )

    deadline = left.until("passes")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.scratch or memory_disk())))
        try:
            server = stack.enter_context(services.postgres())
        except services.ServiceUnavailable as error:
            print(f"passes on SQLite only: {error}", file=sys.stderr)
            server = None
        done = passes.campaign(options.passes, scratch, options.seed, server, deadline, tell)
    kills: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    for told in done:
        kills[f"{told.workers} on {told.backend}"] += told.kills
        hits += told.hits
    broken = sum(bool(told.problems) for told in done)
    print(
        f"passes: {len(done)} of {passes.NODES} nodes, {kills.total()} kills {dict(kills)}, "
        f"{sum(told.repeated for told in done)} interrupted nodes ran again, {broken} broken"
    )
    print(f"kills by what was on record: {dict(sorted(hits.items()))}")
    short = _short(options, options.passes - kills.total(), "kills of passes")
    return max(short, int(bool(broken)))


def _fleets(options: argparse.Namespace, left: TimeLeft) -> int:
    """Two real processes with one budget and one breaker, on SQLite and, where it can be had, PostgreSQL."""

    def tell(told: Told) -> None:
        for problem in told.problems:
            print(f"fleet {told.seed} on {told.backend}: {problem}", file=sys.stderr, flush=True)

    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.scratch)))
        try:
            dsn = stack.enter_context(services.postgres())
        except services.ServiceUnavailable as error:
            print(f"fleets on SQLite only: {error}", file=sys.stderr)
            dsn = None
        done = fleets(options.fleets, scratch, options.seed, dsn, left.until("fleets"), tell)
    broken = sum(bool(told.problems) for told in done)
    print(
        f"fleets: {dict(Counter(told.backend for told in done))}, {sum(told.kills for told in done)} kills, "
        f"{sum(told.attempts for told in done)} attempts, {sum(told.requests for told in done)} requests, "
        f"{sum(told.probes for told in done)} probes, {broken} broken"
    )
    short = _short(options, options.fleets - len(done), "fleets")
    return max(short, int(bool(broken)))


def _plans(options: argparse.Namespace) -> list[Plan]:
    counts = (("kill", options.kills), ("stop", options.stops))
    plans = [
        plan_trial(options.seed, kind, number, list(NAMES))  # type: ignore[arg-type]
        for kind, count in counts
        for number in range(count)
    ]
    if options.only:
        plans = [plan for plan in plans if f"{plan.kind}-{plan.number}" == options.only]
    return plans


PROBLEMS_TOLD_MAX = 4


def _tell(outcome: Outcome) -> None:
    problems = outcome.problems + outcome.litter
    if not problems:
        return
    plan, more = outcome.plan, len(problems) - PROBLEMS_TOLD_MAX
    lines = [
        f"{plan.kind}-{plan.number} ({plan.scenario}, in {outcome.hit}, {outcome.where}):",
        *problems[:PROBLEMS_TOLD_MAX],
        *([f"and {more} more"] if more > 0 else []),
    ]
    print("\n  ".join(lines), file=sys.stderr, flush=True)


def _summary(options: argparse.Namespace, plans: list[Plan], outcomes: list[Outcome], seconds: float) -> int:
    broken = [outcome for outcome in outcomes if outcome.problems or outcome.litter]
    littered = sum(not outcome.problems for outcome in broken)
    each = sum(outcome.seconds for outcome in outcomes) / max(1, len(outcomes))
    print(histogram(outcomes))
    print(f"scenarios: {dict(Counter(outcome.plan.scenario for outcome in outcomes))}")
    print(
        f"seed {options.seed}: {len(outcomes)} trials, {len(broken)} broken "
        f"({littered} only by what they left in the tree), {seconds:.0f} s, {each:.2f} s each"
    )
    missing = _short(options, len(plans) - len(outcomes), "trials")
    whole = not options.only and not options.every and len(outcomes) == len(plans)
    short = shortfalls(outcomes, each_phase_min=min(options.kills, options.stops) // 20) if whole else []
    for line in short:
        print(f"not proven: {line}")
    if broken:
        again = ", ".join(f"--only {o.plan.kind}-{o.plan.number}" for o in broken[:5])
        print(f"again, one by one: --seed {options.seed} {again}")
    return 1 if broken or short or missing else 0


if __name__ == "__main__":
    sys.exit(main())
