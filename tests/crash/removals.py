"""Rollbacks, withdrawals, purges and renamings, killed or stalled anywhere, while a folder and a bucket are
read.

Readers see whole versions only, never an older one after a newer one, and never withdrawn content after its
tombstone; a pointer at an earlier name leads to what is there. In the end every target shows the change, a
purge has left none of its bytes anywhere, and the audit log tells of one change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kfm.db.ledger_reader import LedgerReader
from kfm.db.sqlite import SqliteReader
from kfm.publish.targets.bucket_layout import hash_in
from kfm.system import SystemClock
from tests import services
from tests.crash.campaign import memory_disk
from tests.crash.project import RIGHTS, Ended, Project, finish, table
from tests.published import files_in
from tests.published_bucket import BucketReader

CHILD = Path(__file__).with_name("removing.py")
KILL, STOP = signal.SIGKILL, signal.SIGSTOP
DATASET, RENAMED = "levels", "gauges"
LEASE_SECONDS = 1.0
STRIKE_SECONDS_MAX = 60.0
ENDS_MAX = 6  # how often `kfm project` may be needed
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
WHY = ("--rationale", "campaign")
CHANGES: dict[str, tuple[str, ...]] = {
    "rollback": ("rollback", DATASET, "--to", "2"),
    "window": ("withdraw", DATASET, "--window", "2026-01-02/P1D"),
    "window-purge": ("withdraw", DATASET, "--window", "2026-01-02/P1D", "--purge"),
    "whole-purge": ("withdraw", DATASET, "--purge"),
    "retire": ("dataset", "retire", DATASET),
    "rename": ("dataset", "rename", DATASET, RENAMED),
}
Kind = Literal["kill", "stall-change", "stall-run"]

CONFIG = """\
version: 1
environment: crash
lease: {{seconds: {lease}}}
datasets:
  - {{id: gauges, formerly: [levels], rights: {rights}}}
  - {{id: twin, rights: {rights}}}
publish:
  - {{kind: local, path: published}}
  - {{kind: s3, url: "s3://{bucket}/{prefix}", options: {options}}}
sources:
  - {{id: notes, dataset: gauges, kind: files, folder: incoming, pattern: "{{window.start:%Y-%m-%d}}.csv"}}
  - {{id: copies, dataset: twin, kind: files, folder: incoming, pattern: "2026-01-01.csv"}}
"""


@dataclass
class Outcome:
    """One trial."""

    number: int
    kind: Kind
    change: str
    where: str = "missed"
    reads: int = 0
    problems: list[str] = field(default_factory=list)


class World:
    """The template, the S3 server's bucket, and how many ticks each command has."""

    def __init__(self, scratch: Path, endpoint: str, bucket: str) -> None:
        self.scratch, self.endpoint, self.bucket = scratch, endpoint, bucket
        self.client = services.s3_client(endpoint)
        self.ticks: dict[str, int] = {}
        self.template = self._project("template", "template")
        for day in DAYS:
            self.template.write(f"incoming/{day}.csv", table(day, 20))
            ended = self.template.kfm("run", "--source", "notes", "--window", f"{day}/P1D", "--json")
            assert ended.code == 0, ended
        ended = self.template.kfm("run", "--source", "copies", "--window", f"{DAYS[0]}/P1D", "--json")
        assert ended.code == 0, ended

    def measure(self, names: tuple[str, ...]) -> None:
        for name in (*names, "run"):
            project = self.copy(f"count-{name}")
            note = self.scratch / f"{name}.counts"
            if name == "run":
                revise(project)
            ended = finish(project.start(command=command(note, "end", 1, 0, *asked(name))))
            assert ended.code == 0, ended
            counts = json.loads(note.read_text())["counts"]
            self.ticks[name] = counts["project"] if name == "run" else counts["start"]

    def copy(self, name: str) -> Project:
        """The template's folder and bucket, under a name of their own."""
        shutil.copytree(self.template.folder, self.scratch / name, symlinks=True)
        for key in self.keys("template"):
            source = {"Bucket": self.bucket, "Key": key}
            new = f"{name}/{key.removeprefix('template/')}"
            self.client.copy_object(Bucket=self.bucket, Key=new, CopySource=source)
        return self._project(name, name)

    def keys(self, prefix: str) -> list[str]:
        found: list[str] = []
        for page in self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"{prefix}/"
        ):
            found += [one["Key"] for one in page.get("Contents", ())]
        return found

    def _project(self, name: str, prefix: str) -> Project:
        project = Project(self.scratch / name)
        given = {
            "endpoint": self.endpoint,
            "access_key_id": "env:CRASH_KEY",
            "secret_access_key": "env:CRASH_SECRET",
            "region": services.S3_REGION,
            "allow_http": "true",
        }
        project.write(
            "kfm.yml",
            CONFIG.format(
                lease=LEASE_SECONDS,
                rights=RIGHTS,
                bucket=self.bucket,
                prefix=prefix,
                options=json.dumps(given),
            ),
        )
        project.env |= {"CRASH_KEY": services.S3_ACCESS_KEY, "CRASH_SECRET": services.S3_SECRET_KEY}
        return project


def revise(project: Project) -> None:
    """Upstream has new bytes for the day that is withdrawn."""
    project.write(f"incoming/{DAYS[1]}.csv", table("revised", 30))


def asked(name: str) -> tuple[str, ...]:
    if name == "run":
        return ("run", "--json", "--source", "notes", "--window", f"{DAYS[1]}/P1D")
    return (*CHANGES[name], "--yes", "--json", *WHY)


def command(note: Path, phase: str, number: int, sent: int, *arguments: str) -> list[str]:
    return [sys.executable, str(CHILD), str(note), phase, str(number), str(sent), *arguments]


# --- readers -----------------------------------------------------------------------------


class Torn(Exception):
    """A reader found part of a version."""


class Reader(threading.Thread):
    """Reads one target again and again, as clients do."""

    def __init__(self, name: str, read: Callable[[], tuple[int, dict[str, str], bool] | None]) -> None:
        super().__init__(daemon=True)
        self.place = name
        self._read = read
        self._over = threading.Event()
        self.seen: list[tuple[int, frozenset[str], bool]] = []
        self.problems: list[str] = []
        self.reads = 0

    def run(self) -> None:
        while not self._over.is_set():
            self.look()
            time.sleep(0.01)

    def look(self) -> None:
        try:
            found = self._read()
        except Torn as torn:
            self.problems.append(f"{self.place}: {torn}")
            return
        if found is None:
            return
        self.reads += 1
        sequence, files, tombstone = found
        if self.seen and sequence < self.seen[-1][0]:
            self.problems.append(f"{self.place}: version {sequence} after {self.seen[-1][0]}")
        if not self.seen or self.seen[-1][0] != sequence:
            self.seen.append((sequence, frozenset(files.values()), tombstone))

    def stop(self) -> None:
        self._over.set()
        self.join()


def local_reader(folder: Path, dataset: str) -> Callable[[], tuple[int, dict[str, str], bool] | None]:
    pointer = folder / "published" / dataset / "current"

    def read() -> tuple[int, dict[str, str], bool] | None:
        if dataset == RENAMED and not pointer.is_symlink():
            return None
        for _ in range(50):
            name = os.readlink(pointer)
            root = pointer.parent / name
            try:
                files = {}
                for path, sha256 in files_in(root).items():
                    files[path] = hashlib.sha256((root / "data" / path).read_bytes()).hexdigest()
                    if files[path] != sha256:
                        raise Torn(f"{name}: {path} holds other bytes")
                tombstone = root / "withdrawn.json"
                if dataset == DATASET and tombstone.exists():
                    told = json.loads(tombstone.read_bytes())
                    there = pointer.parents[1] / told.get("renamed_to", DATASET) / "current/manifest.json"
                    if not there.exists():
                        raise Torn(f"{name}: it points to {told['renamed_to']}, where nothing is")
                return int(name.split("/")[1][:8]), files, tombstone.exists()
            except FileNotFoundError as error:
                if os.readlink(pointer) == name:
                    raise Torn(f"{name}: {error}") from None
        raise Torn("it moved 50 times")

    return read


def bucket_reader(
    world: World, prefix: str, dataset: str
) -> Callable[[], tuple[int, dict[str, str], bool] | None]:
    client = services.s3_client(world.endpoint)
    root = f"{prefix}/{dataset}/"

    def get(key: str) -> bytes:
        data: bytes = client.get_object(Bucket=world.bucket, Key=root + key)["Body"].read()
        return data

    def read() -> tuple[int, dict[str, str], bool] | None:
        for _ in range(50):
            try:
                pointer = json.loads(get("current.json"))
            except client.exceptions.NoSuchKey:
                if dataset == RENAMED:
                    return None
                raise
            try:
                get(pointer["manifest"])
                found = BucketReader(lambda key: get(key.removeprefix(root)), root).files(
                    pointer["collection"]
                )
                files = {path: hashlib.sha256(data).hexdigest() for path, data in found.items()}
                tombstone = "withdrawn" in pointer
                if tombstone:
                    told = json.loads(get(pointer["withdrawn"]))
                    if "renamed_to" in told:
                        there = f"{prefix}/{told['renamed_to']}/current.json"
                        client.get_object(Bucket=world.bucket, Key=there)
                return pointer["sequence"], files, tombstone
            except AssertionError:
                raise Torn(f"{pointer['sequence']}: an object holds other bytes") from None
            except client.exceptions.NoSuchKey as error:
                if json.loads(get("current.json")) == pointer:
                    raise Torn(f"{pointer['sequence']}: {error}") from None
        raise Torn("it moved 50 times")

    return read


# --- one trial ---------------------------------------------------------------------------


def conduct(world: World, number: int, seed: int) -> Outcome:
    rng = random.Random(f"{seed}/{number}")
    kind: Kind = ("kill", "kill", "stall-change", "stall-run")[number % 4]  # type: ignore[assignment]
    names = list(CHANGES)
    # Six changes and four kinds: all pairs come round.
    change = names[(number + number // 12) % len(names)]
    outcome = Outcome(number, kind, change)
    name = f"trial-{number}"
    project = world.copy(name)
    readers = [
        Reader("local", local_reader(project.folder, DATASET)),
        Reader("s3", bucket_reader(world, name, DATASET)),
    ]
    renamed = [
        Reader("local, renamed", local_reader(project.folder, RENAMED)),
        Reader("s3, renamed", bucket_reader(world, name, RENAMED)),
    ]
    readers += renamed if change == "rename" else []
    for reader in readers:
        reader.start()
    try:
        _disturb(world, project, outcome, rng)
        base = _settle(project, outcome)
    finally:
        for reader in readers:
            reader.stop()
    for reader in readers:
        reader.look()
        outcome.reads += reader.reads
        outcome.problems += reader.problems
    if base is not None:
        _inspect(world, project, outcome, readers, base)
    shutil.rmtree(project.folder, ignore_errors=True)
    return outcome


def _disturb(world: World, project: Project, outcome: Outcome, rng: random.Random) -> None:
    note = world.scratch / f"{project.folder.name}.note"
    if outcome.kind == "kill":
        tick = 1 + rng.randrange(world.ticks[outcome.change])
        struck = project.start(command=command(note, "start", tick, KILL, *asked(outcome.change)))
        finish(struck)
        outcome.where = _where(note)
        if rng.random() < 0.3:  # its successor, too
            again = 1 + rng.randrange(max(1, world.ticks[outcome.change] // 2))
            finish(project.start(command=command(note, "start", again, KILL, "project", "--json")))
        return
    if outcome.kind == "stall-change":
        arguments, phase = asked(outcome.change), "start"
        tick = 1 + rng.randrange(world.ticks[outcome.change])
    else:
        revise(project)
        arguments, phase = asked("run"), "project"
        tick = 1 + rng.randrange(world.ticks["run"])
    stalled = project.start(command=command(note, phase, tick, STOP, *arguments))
    try:
        is_stopped = _await_stop(stalled)
        outcome.where = _where(note)
        if is_stopped and not _is_writing(note):
            time.sleep(LEASE_SECONDS + 0.1)
            if outcome.kind == "stall-run":
                project.kfm(*asked(outcome.change))
            project.kfm("project", "--json")
    finally:
        with contextlib.suppress(ProcessLookupError):
            stalled.send_signal(signal.SIGCONT)
    finish(stalled)


def _await_stop(process: subprocess.Popen[str]) -> bool:
    """Is it stopped? False: it ended before."""
    until = time.monotonic() + STRIKE_SECONDS_MAX
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state == "T":
            return True
        if state in "ZX":
            return False
        time.sleep(0.002)
    raise AssertionError("it neither ended nor stopped")


def _note(note: Path) -> dict[str, Any]:
    lines = note.read_text().splitlines() if note.exists() else []
    return json.loads(lines[-1]) if lines else {}


def _where(note: Path) -> str:
    return str(_note(note).get("operation", "missed"))


def _is_writing(note: Path) -> bool:
    return bool(_note(note).get("writing"))


def _settle(project: Project, outcome: Outcome) -> int | None:
    """Until nothing is outstanding; the number of the version that the change made."""
    for _ in range(ENDS_MAX):
        rows = project.rows("SELECT sequence FROM dataset_changes")
        if not rows:
            ended = project.kfm(*asked(outcome.change))
            if ended.code not in (0, 4, 5):
                outcome.problems.append(f"the change: {_said(ended)}")
                return None
            continue
        ended = project.kfm("project", "--json")
        waiting = project.rows("SELECT place, detail FROM purges WHERE state = 'outstanding'")
        if ended.code == 0 and not waiting:
            if len(rows) > 1:
                outcome.problems.append(f"{len(rows)} changes were applied")
            return int(rows[0][0])
        time.sleep(LEASE_SECONDS / 2)
    outcome.problems.append(f"never done: {waiting} {_said(ended)}")
    return None


def _said(ended: Ended) -> str:
    return f"{ended.code} {ended.out[-400:]} {ended.err[-400:]}"


def _inspect(world: World, project: Project, outcome: Outcome, readers: list[Reader], made: int) -> None:
    problems = outcome.problems
    gone = _withdrawn(project, outcome.change, made)
    removes = outcome.change != "rollback"
    for reader in readers:
        if not reader.seen or reader.seen[-1][0] < made:
            problems.append(f"{reader.place}: it does not show version {made}")
        if reader.place.endswith("renamed"):
            if any(not files or tombstone for _, files, tombstone in reader.seen):
                problems.append(f"{reader.place}: a version without its files")
            continue
        for sequence, files, tombstone in reader.seen:
            if sequence < made:
                continue
            if removes and not tombstone:
                problems.append(f"{reader.place}: version {sequence} has no tombstone")
            if removes and files & gone:
                problems.append(f"{reader.place}: version {sequence} holds what was withdrawn")
    if "purge" in outcome.change:
        problems += _left(world, project, gone)
    if outcome.change == "rollback":
        switches = project.rows("SELECT position FROM switches WHERE scope = 'dataset:levels'")
        if switches != [("paused",)]:
            problems.append(f"the dataset is not paused: {switches}")
    if project.rows("SELECT scope FROM locks WHERE worker_id IS NOT NULL"):
        problems.append("a lock is held")
    verified = project.kfm("audit", "verify", "--json")
    if verified.code != 0:
        problems.append(f"audit verify: {_said(verified)}")


def _withdrawn(project: Project, change: str, made: int) -> frozenset[str]:
    """The hashes of what readers may not see from the version `made` on."""
    database = SqliteReader(str(project.state / "kfm.db"), SystemClock())
    ledger, found = LedgerReader(database), set[str]()
    for promotion in ledger.promotions(DATASET, limit=1000, before=made):
        version = ledger.version(promotion.version_id)
        for item in version.items() if version is not None else ():
            if not change.startswith("window") or "20260102T" in item.id.split("_")[1]:
                found |= {asset.sha256 for asset in item.assets}
    database.close()
    return frozenset(found)


def _left(world: World, project: Project, gone: frozenset[str]) -> Iterator[str]:
    """Purged bytes that are still somewhere."""
    shared = hashlib.sha256(table(DAYS[0], 20)).hexdigest()  # the other dataset has it, too
    for path in (project.published / DATASET).rglob("*"):
        if path.is_file() and not path.is_symlink():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest in gone:
                yield f"left in the folder: {path.relative_to(project.folder)}"
    for key in world.keys(f"{project.folder.name}/{DATASET}"):
        if hash_in(key.removeprefix(f"{project.folder.name}/{DATASET}/")) in gone:
            yield f"left in the bucket: {key}"
    objects = {path.parent.name + path.name for path in (project.state / "objects/sha256").rglob("*")}
    for sha256 in gone - {shared}:
        if sha256 in objects:
            yield f"left in the object store: {sha256}"
    if shared not in objects:
        yield "what another dataset needs is gone from the object store"


# --- the campaign ------------------------------------------------------------------------


def campaign(
    trials: int,
    *,
    seed: int = 1,
    workers: int = 2,
    scratch: str | None = None,
    deadline: float | None = None,
) -> list[Outcome]:
    """Trials side by side; after the deadline none begins."""

    def in_time(number: int) -> Outcome | None:
        return conduct(world, number, seed) if deadline is None or time.monotonic() < deadline else None

    with (
        tempfile.TemporaryDirectory(dir=scratch or memory_disk()) as folder,
        services.s3() as endpoint,
        services.s3_bucket(endpoint) as bucket,
    ):
        world = World(Path(folder), endpoint, bucket)
        world.measure(tuple(CHANGES))
        with ThreadPoolExecutor(workers) as pool:
            outcomes = []
            for outcome in pool.map(in_time, range(trials)):
                if outcome is None:
                    break
                outcomes.append(outcome)
                print(
                    f"trial {outcome.number}: {outcome.kind}, {outcome.change}, {outcome.where}; "
                    f"{outcome.reads} reads",
                    flush=True,
                )
                for problem in outcome.problems:
                    print(
                        f"removals, seed {seed}, trial {outcome.number} ({outcome.kind}, {outcome.change}, "
                        f"{outcome.where}): {problem}",
                        file=sys.stderr,
                        flush=True,
                    )
        return outcomes


def summary(outcomes: list[Outcome]) -> str:
    kinds, changes = Counter(one.kind for one in outcomes), Counter(one.change for one in outcomes)
    missed = sum(one.where == "missed" for one in outcomes)
    return (
        f"removals: {len(outcomes)} trials {dict(kinds)} of {dict(changes)}, {missed} of them missed; "
        f"{sum(one.reads for one in outcomes)} whole reads\n"
        f"  {sum(len(one.problems) for one in outcomes)} violations"
    )
