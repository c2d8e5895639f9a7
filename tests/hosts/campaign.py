"""Hosts fail by a plan that a seed makes, while work goes on; then everything is counted."""

from __future__ import annotations

import os
import random
import statistics
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.crash.project import table
from tests.crash.senders import Senders
from tests.crash.serves import BACKLOG_MAX, HOOKED, PIPELINE
from tests.crash.serves_checks import Found
from tests.hosts.load import Announcements, Disturbances, Person, until_done
from tests.hosts.machines import (
    BACKEND,
    CLIENT,
    PUBLISHED,
    SERVICES,
    UPSTREAM,
    WORKERS,
    Backend,
    Host,
    await_all,
    configuration,
    schedules,
    variables,
)
from tests.hosts.network import Network, Weather, enter
from tests.hosts.recount import Auditor

HOSTS = (*SERVICES, *WORKERS)
AHEAD_MS = {"birch": -45_000, "dogwood": 90_000}  # from the beginning to the end
READY_S, DRAIN_S, LEFT_S = 90.0, 240.0, 60.0
CHANGE_S = 20.0
TICK_S = 0.1
PATIENCE_S = 6.0  # of a sender that gets no answer
# kind → how often, for how long, whom
KINDS: dict[str, tuple[int, tuple[float, float], tuple[str, ...]]] = {
    "silence": (3, (3, 15), HOSTS),
    "unplug": (2, (3, 15), HOSTS),
    "deaf": (2, (3, 12), HOSTS),  # frames go out, none come in
    "mute": (2, (3, 12), HOSTS),
    "sever": (3, (3, 15), HOSTS),  # from the backend alone
    "slow": (3, (5, 20), (*HOSTS, BACKEND)),
    "kill": (5, (1, 8), HOSTS),
    "restart": (2, (0, 1), HOSTS),
    "pause": (3, (2, 10), HOSTS),
    "clock": (3, (5, 20), ("cedar", "elm", "alder")),
    "crash-database": (2, (0, 3), (BACKEND,)),
    "away": (1, (2, 8), (BACKEND,)),
}
APART_S = (1.0, 6.0)


@dataclass(frozen=True)
class Fault:
    at_s: float
    kind: str
    host: str
    lasts_s: float
    amount: float  # of what the kind knows: from −1 to 1


def plan(seed: int, seconds: float) -> list[Fault]:
    rng = random.Random(f"hosts {seed}")
    made, at_s = [], 2.0
    while at_s < seconds:
        kind = rng.choices(list(KINDS), [one[0] for one in KINDS.values()])[0]
        _, span, hosts = KINDS[kind]
        made.append(Fault(at_s, kind, rng.choice(hosts), rng.uniform(*span), rng.uniform(-1, 1)))
        at_s += rng.uniform(*APART_S)
    return made


SHORT = [
    Fault(0.0, "silence", "elm", 2.5, 0.0),
    Fault(0.5, "kill", "birch", 0.5, 0.0),
    Fault(1.0, "clock", "cedar", 3.0, 1.0),
]


@dataclass
class Told:
    seed: int
    seconds: float = 0.0
    drained: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    passed_over: int = 0  # the host, or the backend, was failing already
    started_again: int = 0  # met no database as it began
    messages: int = 0
    unanswered: int = 0
    refused: int = 0
    objects: int = 0
    announcements: int = 0
    lapsed: int = 0  # units whose worker lost its lease
    switches: int = 0
    undisturbed: int = 0  # of them: through a service, with a backend, that had nothing
    looks: int = 0
    switch_p50_s: float = 0.0
    switch_max_s: float = 0.0
    switch_disturbed_max_s: float = 0.0
    starts: int = 0
    found: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    tampered: list[str] = field(default_factory=list)  # what the recount says after rows were changed
    timeline: list[str] = field(default_factory=list)


class Campaign:
    def __init__(self, seed: int, folder: Path, stack: ExitStack, *, quiet: bool = False) -> None:
        self.told = Told(seed)
        self._began = time.monotonic()
        self._quiet = quiet
        self._network = stack.enter_context(Network([*HOSTS, BACKEND, CLIENT]))
        enter(self._network.namespace(CLIENT))  # this process is a host, too
        self._backend = Backend(self._network, stack, folder)
        os.environ |= variables(self._backend)
        self._hosts = {
            name: Host(self._network, name, folder, self._backend, AHEAD_MS.get(name, 0)) for name in HOSTS
        }
        desk = folder / CLIENT
        desk.mkdir()
        (desk / "kfm.yml").write_text(configuration(self._backend, "127.0.0.1"))
        (desk / "cron.yml").write_text(schedules())
        (desk / "pipeline.py").write_text(PIPELINE)
        self._auditor = Auditor(desk, self._backend)
        self._change(0)
        self._disturbed = Disturbances()
        self._lifting: list[tuple[float, Fault]] = []
        self._recovering: list[Fault] = []
        self._down: set[str] = set()
        self._over = threading.Event()
        self._crowded = False
        services = [self._hosts[name] for name in SERVICES]
        self._senders = Senders(
            lambda: [host.endpoint for host in services],
            HOOKED,
            seed,
            pace_seconds=0.8,
            crowded=lambda: self._crowded,
            patience_seconds=PATIENCE_S,
        )
        self._announced = Announcements(self._backend, seed, pace_s=0.25)
        self.person = Person(self._backend.dsn, seed, self._reachable, self._undisturbed)

    def _say(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:7.1f} s  {text}"
        self.told.timeline.append(line)
        if not self._quiet:
            sys.stderr.write(line + "\n")

    # --- the course of it ------------------------------------------------------------------

    def run(self, faults: list[Fault], seconds: float, *, throws: int = 0) -> Told:
        """`throws`: so often the switch is set while hosts fail; 0: now and then."""
        hosts = list(self._hosts.values())
        for host in hosts:
            host.start()
        late = await_all(hosts, READY_S)
        assert not late, [(host.name, host.lines[-5:]) for host in late]
        self._say("all hosts are up")
        beside = [threading.Thread(target=work, daemon=True) for work in (self._changes, self._watch)]
        for thread in beside:
            thread.start()
        self._senders.start(3)
        self._announced.start()
        if not throws:
            self.person.start(0)
        self._fail(faults, seconds, throws)
        self._say("no more faults")
        self._settle()
        self._over.set()
        for host in hosts:
            host.kill()  # all is at rest: no tidy end is needed
        self.told.seconds = round(time.monotonic() - self._began, 1)
        self._count()
        return self.told

    def _fail(self, faults: list[Fault], seconds: float, throws: int) -> None:
        began, waiting = time.monotonic(), list(faults)
        while (passed := time.monotonic() - began) < seconds or waiting or self._lifting:
            if waiting and waiting[0].at_s <= passed:
                self._begin(waiting.pop(0))
                if throws and not waiting:
                    self.person.start(throws)
            self._tend()
            time.sleep(TICK_S)

    def _tend(self) -> None:
        """End what has lasted, welcome who is back, miss who is gone."""
        for until, fault in list(self._lifting):
            if time.monotonic() >= until:
                self._lifting.remove((until, fault))
                self._end(fault)
        for fault in list(self._recovering):
            names = SERVICES if fault.host == BACKEND else (fault.host,)
            well = [name for name in names if fault.host != BACKEND or not self._disturbed.now(name)]
            if all(self._hosts[name].is_ready() for name in well):
                self._recovering.remove(fault)
                self._disturbed.end(fault.host)
                self._say(f"{fault.host} is well after: {fault.kind}")
        for host in self._hosts.values():
            if not host.is_running and host.name not in self._down:
                if host.found_no_database():
                    self.told.started_again += 1
                else:
                    self.told.problems.append(f"{host.name} ended by itself: {' / '.join(host.lines[-3:])}")
                host.start()

    def _begin(self, fault: Fault) -> None:
        crowd = sum(self._disturbed.now(name) for name in SERVICES) > 1 and fault.host in SERVICES
        if self._disturbed.now(fault.host) or self._disturbed.now(BACKEND) or crowd:
            self.told.passed_over += 1
            return
        self._disturbed.begin(fault.host)
        self.told.faults[fault.kind] = self.told.faults.get(fault.kind, 0) + 1
        self._say(f"{fault.host}: {fault.kind} for {fault.lasts_s:.1f} s")
        host, network, name = self._hosts.get(fault.host), self._network, fault.host
        match fault.kind:
            case "silence" | "away":
                network.silence(name)
            case "unplug":
                network.unplug(name)
            case "kill" if host:
                self._down.add(name)
                host.kill()
            case "restart" if host:
                self._down.add(name)
                host.ask_to_end()
            case "pause" if host:
                host.pause()
            case "clock" if host:
                host.set_clock(round(fault.amount * 120_000))
            case "crash-database":
                self._backend.kill()
            case kind:
                network.replace_cable(name, self._weather(kind, fault.amount), self.told.seed)
        self._lifting.append((time.monotonic() + fault.lasts_s, fault))

    def _weather(self, kind: str, amount: float) -> Weather:
        if kind == "slow":
            delay_ms = round(5 + 45 * abs(amount))
            return Weather(delay_ms=delay_ms, jitter_ms=delay_ms // 2, loss=0.02 * max(0.0, amount))
        peer = self._network.address(BACKEND) if kind == "sever" else ""
        return Weather(closed={"deaf": "in", "mute": "out", "sever": "both"}[kind], peer=peer)

    def _end(self, fault: Fault) -> None:
        host, network, name = self._hosts.get(fault.host), self._network, fault.host
        match fault.kind:
            case "silence" | "away":
                network.hear(name)
            case "unplug":
                network.plug(name)
            case "kill" | "restart" if host:
                if fault.kind == "restart":
                    self._see_off(host)
                host.start()
                self._down.discard(name)
            case "pause" if host:
                host.resume()
            case "clock" if host:
                host.set_clock(AHEAD_MS.get(name, 0))
            case "crash-database":
                self._backend.start()
            case _:
                network.restore_cable(name)
        self._recovering.append(fault)

    def _reachable(self) -> list[Host]:
        if self._disturbed.now(BACKEND):
            return []
        return [self._hosts[name] for name in SERVICES if not self._disturbed.now(name)]

    def _undisturbed(self, name: str, since: float) -> bool:
        return all(self._disturbed.none_since(one, since) for one in (name, BACKEND))

    # --- the end of it ---------------------------------------------------------------------

    def _settle(self) -> None:
        """Everybody is well; what was sent is answered; what was accepted comes to its end."""
        began = time.monotonic()
        self._until(lambda: self._tend() or not self._recovering, READY_S, "all hosts are well")  # type: ignore[func-returns-value]
        self.person.finish(130)
        self._announced.finish(130)
        self._senders.finish(90)
        self.told.problems += self._auditor.overlong()
        services = [self._hosts[name] for name in SERVICES]
        self._stop(services)
        for host in services:
            host.start("--no-schedules")
        self._until(lambda: not self._auditor.waiting() and self._all_taken_in(), DRAIN_S, "all is at rest")
        self.told.drained = round(time.monotonic() - began, 1)
        self._say(f"at rest but for {self._auditor.waiting()}")

    def _all_taken_in(self) -> bool:
        ((units,),) = self._auditor.rows("SELECT COUNT(*) FROM units")
        return bool(units >= len(self._announced.newest))

    def _stop(self, hosts: list[Host]) -> None:
        for host in hosts:
            host.ask_to_end()
        for host in hosts:
            self._see_off(host)

    def _see_off(self, host: Host) -> None:
        """A process that is asked to end, ends: in time, and saying so."""
        code = host.ended(LEFT_S)
        if code != 0:
            self.told.problems.append(f"{host.name} was asked to end: {code}: {' / '.join(host.lines[-3:])}")
            host.kill()

    def _until(self, done: Any, seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while not done():
            if time.monotonic() > until:
                self.told.problems.append(f"not within {seconds:.0f} s: {what}; {self._auditor.waiting()}")
                return
            time.sleep(0.2)

    # --- beside it -------------------------------------------------------------------------

    def _change(self, number: int) -> None:
        body = table(f"t{number}", 3 + number % 5)
        s3 = self._backend.client("s3")
        until_done(lambda: s3.put_object(Bucket=UPSTREAM, Key=f"tables/t{number}.csv", Body=body))

    def _changes(self) -> None:
        number = 0
        while not self._over.wait(CHANGE_S):
            number += 1
            self._change(number)

    def _watch(self) -> None:
        """Cursors only move on."""
        seen: dict[str, int] = {}
        while not self._over.wait(0.5):
            with suppress(psycopg.Error):  # the server is away
                ((waiting,),) = self._auditor.rows("SELECT COUNT(*) FROM requests WHERE state = 'open'")
                self._crowded = waiting > BACKLOG_MAX
                for name, cursor in self._auditor.rows("SELECT schedule_id, cursor_ms FROM schedules"):
                    if cursor < seen.get(name, 0):
                        self.told.problems.append(f"{name} went back from {seen[name]} to {cursor}")
                    seen[name] = cursor

    def _count(self) -> None:
        told, person, messages = self.told, self.person, self._senders.messages
        told.messages = len(messages)
        told.unanswered = sum(message.unanswered for message in messages)
        statuses = Counter(status for message in messages for status, _ in message.answers)
        told.refused = sum(count for status, count in statuses.items() if status >= 500)
        told.objects, told.announcements = len(self._announced.newest), self._announced.messages
        thrown = [*person.throws, *person.lifts]
        quiet = [one.seconds for one in thrown if one.undisturbed]
        told.switches, told.undisturbed, told.looks = len(thrown), len(quiet), person.looks
        told.switch_p50_s = round(statistics.median(quiet), 3) if quiet else 0.0
        told.switch_max_s = round(max(quiet, default=0.0), 3)
        told.switch_disturbed_max_s = round(
            max((one.seconds for one in thrown if not one.undisturbed), default=0.0), 3
        )
        told.starts = sum(host.starts for host in self._hosts.values())
        told.problems += person.problems
        for host in self._hosts.values():
            told.problems += [f"{host.name} said: {line[:300]}" for line in host.complaints[:3]]
        found = Found()
        told.problems += self._recount(found)
        told.found = asdict(found)
        ((told.lapsed,),) = self._auditor.rows("SELECT COUNT(*) FROM units WHERE attempts > 1")
        self._say(f"counted: {len(told.problems)} problems")

    def _recount(self, found: Found) -> list[str]:
        return self._auditor.recount(self._senders.messages, self._announced, found)

    def tamper(self) -> None:
        """A unit and a request vanish, and a published byte changes: the recount has to name each."""
        book = self._auditor
        book.rows("DELETE FROM units WHERE wal_id = (SELECT MIN(wal_id) FROM units) RETURNING wal_id")
        book.rows(
            "DELETE FROM requests WHERE request_id = (SELECT MIN(request_id) FROM requests "
            "WHERE kind = 'webhook' AND state = 'done') RETURNING request_id"
        )
        s3 = self._backend.client("s3")
        listed = s3.list_objects_v2(Bucket=PUBLISHED)["Contents"]
        key = next(one["Key"] for one in listed if "/files/" in one["Key"])
        s3.put_object(Bucket=PUBLISHED, Key=key, Body=b"another byte")
        self.told.tampered = self._recount(Found())
