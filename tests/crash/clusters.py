"""A pipeline on a Dask cluster whose workers are killed and suspended: `python -m tests.crash.clusters`.

Each node appends its name to a file that no transaction protects. Afterwards every value has the bytes that
threads make, each node has one record, and only nodes that were at work at a kill have run again. The run
itself is killed once, too, and resumed from another folder. Prints one JSON document.

With --shared the workers share a folder in place of a bucket, and the ledger is SQLite: an emulated
bucket takes longer than all the rest. The run is resumed in the same folder then.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests import services
from tests.crash.fleet import Book
from tests.crash.project import Project, finish
from tests.dask_cluster import DaskCluster, dask_cluster
from tests.memory_disk import memory_disk

RUN_ID = "fleet"
LEASE_SECONDS = 3
POLL_SECONDS = 0.02
PATIENCE_SECONDS = 300.0
GIVEN_UP_SECONDS = 30.0
FETCHED_MAX = 3  # nodes whose answers a killed worker may take with it, beside the one at work

FLOW = """\
import hashlib
import os
import random

import kfm

pipeline = kfm.Pipeline("fleet")


def work(ctx, name, **read):
    file = os.open(os.environ["FLEET_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{name}\\n".encode())
    os.close(file)
    text = "".join(f"{key}={read[key]['digest']};" for key in sorted(read))
    digest = hashlib.sha256((name + text).encode()).hexdigest()
    if digest < "2":
        ctx.publisher.write_file(f"{name}.txt", digest * 50)
    ctx.validate("it has a digest", len(digest) == 64)
    return {"digest": digest, "bytes": digest * 3}


def declare(number):
    rng = random.Random(number)
    before = range(max(0, number - 60), max(0, number - 20))
    reads = sorted(rng.sample(before, min(len(before), rng.randrange(3))))

    def node(ctx, **read):
        return work(ctx, f"n{number:04}", **read)

    needs = {f"n{each:04}": f"n{each:04}" for each in reads}
    pipeline.node(f"n{number:04}", needs=needs)(node)


for number in range(NODES):
    declare(number)
"""


def flow_of(nodes: int) -> str:
    return FLOW.replace("NODES", str(nodes))


@dataclass
class Told:
    """What a campaign saw."""

    nodes: int
    workers: int
    kills: int = 0
    suspended: int = 0
    coordinators_killed: int = 0
    repeated: int = 0
    seconds: float = 0.0
    seconds_of_threads: float = 0.0
    problems: list[str] = field(default_factory=list)


class Fleet:
    """One project of several folders: a ledger and a bucket that all of them share, and a cluster."""

    def __init__(self, scratch: Path, nodes: int, dsn: str | None, endpoint: str, bucket: str) -> None:
        """Without a DSN: one folder that all workers see."""
        self._scratch, self._dsn, self._endpoint, self._bucket = scratch, dsn, endpoint, bucket
        self._nodes = nodes
        self.effects = scratch / "effects.txt"
        self.is_shared = dsn is None
        self.env = {
            "FLEET_EFFECTS": str(self.effects),
            "FLEET_S3": services.S3_SECRET_KEY,
            "FLEET_STORE": dsn or "",
        }

    def folder(self, name: str) -> Project:
        """A machine's copy of the project."""
        project = Project(self._scratch / ("only" if self.is_shared else name))
        project.env |= self.env
        project.write("flow.py", flow_of(self._nodes))
        project.write("kfm.yml", self._config())
        return project

    def _config(self) -> str:
        if self.is_shared:
            return f"version: 1\nenvironment: fleet\nlease: {{seconds: {LEASE_SECONDS}}}\n"
        return (
            "version: 1\nenvironment: fleet\nstore: env:FLEET_STORE\n"
            f"lease: {{seconds: {LEASE_SECONDS}}}\n"
            f"objects: s3://{self._bucket}/values\n"
            f"objects_options: {{endpoint: '{self._endpoint}', region: {services.S3_REGION},\n"
            f"  access_key_id: {services.S3_ACCESS_KEY}, secret_access_key: env:FLEET_S3}}\n"
        )

    def ran(self) -> Counter[str]:
        try:
            return Counter(self.effects.read_text().split())
        except FileNotFoundError:
            return Counter()

    def book(self, project: Project) -> Book:
        return Book(project, self._dsn)

    def values(self, project: Project) -> dict[str, str]:
        """node/output → the hash of its bytes, read from the store; and the branch's tree."""
        if self.is_shared:
            return recorded(self.book(project), partial(stored, project))
        client = services.s3_client(self._endpoint)

        def digest(sha256: str) -> str:
            key = f"values/sha256/{sha256[:2]}/{sha256[2:]}"
            return hashlib.sha256(client.get_object(Bucket=self._bucket, Key=key)["Body"].read()).hexdigest()

        return recorded(self.book(project), digest)


def stored(project: Project, sha256: str) -> str:
    path = project.state / "objects" / "sha256" / sha256[:2] / sha256[2:]
    return hashlib.sha256(path.read_bytes()).hexdigest()


def recorded(book: Book, digest: Any) -> dict[str, str]:
    found = {}
    for name, outcome, outputs in book.rows("SELECT dataset_id, outcome, outputs FROM run_states ORDER BY 1"):
        assert outcome == "success", f"{name}: {outcome}"
        for output in json.loads(outputs):
            found[f"{name}/{output['name']}"] = digest(output["checksum"].removeprefix("sha256:"))
    trees = book.rows(
        "SELECT c.tree_id FROM branches b JOIN commits c ON c.commit_id = b.head WHERE b.name = 'main'"
    )
    return {**found, "main": str(trees)}


def by_threads(scratch: Path, nodes: int) -> tuple[dict[str, str], float]:
    """What threads make of it on one machine, with a folder for the values; and how long that took."""
    project = Project(scratch / "threads")
    project.env["FLEET_EFFECTS"] = os.devnull
    project.write("flow.py", flow_of(nodes))
    project.write("kfm.yml", "version: 1\nenvironment: fleet\n")
    began = time.monotonic()
    ended = finish(project.start("pipeline", "run", "flow.py", "--run-id", RUN_ID, "--jobs", "2", "--json"))
    took = time.monotonic() - began
    assert ended.code == 0, ended.err[-2000:]

    return recorded(Book(project, None), partial(stored, project)), took


class Campaign:
    """One pipeline run on a cluster, with what happens to it."""

    def __init__(self, fleet: Fleet, cluster: DaskCluster, told: Told, seed: int) -> None:
        self._fleet, self._cluster, self.told = fleet, cluster, told
        self._rng = random.Random(f"clusters {seed}")

    def bear(self, kills: int, *, suspend: bool) -> Project:
        """So many workers are killed, evenly over the nodes; in the middle the pipeline run itself."""
        fleet, nodes = self._fleet, self.told.nodes
        project = fleet.folder("first")
        began = time.monotonic()
        process = self.start(project)
        points = [nodes * (number + 1) // (kills + 2) for number in range(kills)]
        middle = points[len(points) // 2]
        for point in points:
            self._reach(process, point)
            self._kill_one()
            if point == middle:
                process.send_signal(signal.SIGKILL)
                finish(process)
                self.told.coordinators_killed += 1
                project = fleet.folder("second")
                process = self._resumed(project)
        if suspend:
            self._suspend_one()
        ended = finish(process)
        self.told.seconds = time.monotonic() - began
        if ended.code != 0:
            self.told.problems.append(f"it ended with {ended.code}: {ended.err.strip()[-1000:]}")
        return project

    def start(self, project: Project, *more: str) -> subprocess.Popen[str]:
        address = self._cluster.address + ("?files=shared" if self._fleet.is_shared else "")
        command = ["pipeline", "run", "flow.py", "--executor", address, "--json"]
        return project.start(*command, *(more or ("--run-id", RUN_ID)))

    def _resumed(self, project: Project) -> subprocess.Popen[str]:
        """From another folder, as soon as the lease of the dead one has lapsed."""
        book, deadline = self._fleet.book(project), time.monotonic() + PATIENCE_SECONDS
        begun = f"SELECT 1 FROM pass_attempts WHERE run_id = '{RUN_ID}' AND attempt = 2"
        while True:
            process = self.start(project, "--resume", RUN_ID)
            while process.poll() is None and not book.rows(begun):
                time.sleep(POLL_SECONDS)
            if process.poll() is None or process.returncode == 0:
                return process
            ended = finish(process)
            assert ended.code == 5, ended.err
            assert time.monotonic() < deadline, "the lease never lapsed"

    def _reach(self, process: subprocess.Popen[str], point: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and len(self._fleet.ran()) < point:
            assert time.monotonic() < deadline, f"it never came to {point} nodes"
            time.sleep(POLL_SECONDS)
        time.sleep(self._rng.random() * 0.05)  # anywhere between two nodes

    def _kill_one(self) -> None:
        """The oldest: the newest may not have begun yet."""
        self._cluster.kill(self._cluster.workers[0])
        self.told.kills += 1
        self._cluster.add_worker()

    def _suspend_one(self) -> None:
        """It stands still until the scheduler has given it up, and goes on afterwards."""
        worker = self._cluster.workers[0]
        worker.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + GIVEN_UP_SECONDS
        while time.monotonic() < deadline and not self.told.suspended:
            self.told.suspended = int("Remove worker" in self._since_suspension())
            time.sleep(POLL_SECONDS)
        worker.send_signal(signal.SIGCONT)
        if not self.told.suspended:
            self.told.problems.append("the scheduler never gave a suspended worker up")

    def _since_suspension(self) -> str:
        _, found, rest = self._cluster.log().partition("failed to heartbeat")
        return rest if found else ""


def inspect(fleet: Fleet, project: Project, told: Told, expected: dict[str, str]) -> None:
    ran = fleet.ran()
    told.repeated = sum(ran.values()) - len(ran)
    interrupted = told.kills + told.suspended + told.coordinators_killed * told.workers
    if len(ran) != told.nodes:
        told.problems.append(f"{len(ran)} nodes ran, not {told.nodes}")
    if told.repeated > interrupted * (1 + FETCHED_MAX):
        told.problems.append(f"{told.repeated} repetitions after {interrupted} interruptions")
    values = fleet.values(project)
    told.problems += [
        f"{name} is not what threads make"
        for name in sorted(expected.keys() | values.keys())
        if expected.get(name) != values.get(name)
    ][:5]
    held = fleet.book(project).rows("SELECT scope FROM locks WHERE worker_id IS NOT NULL")
    told.problems += [f"{scope} is still held" for (scope,) in held]


def campaign(
    scratch: Path,
    dsn: str | None,
    endpoint: str,
    bucket: str,
    *,
    nodes: int,
    kills: int,
    seed: int,
    suspend: bool,
) -> Told:
    told = Told(nodes, workers=2)
    expected, told.seconds_of_threads = by_threads(scratch, nodes)
    fleet = Fleet(scratch, nodes, dsn, endpoint, bucket)
    with dask_cluster(scratch, told.workers, env=fleet.env) as cluster:
        project = Campaign(fleet, cluster, told, seed).bear(kills, suspend=suspend)
    inspect(fleet, project, told, expected)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="kfm-clusters-", dir=memory_disk()))
    with ExitStack() as stack:
        dsn, endpoint, bucket = None, "", ""
        if not asked.shared:
            dsn = stack.enter_context(services.postgres_database(stack.enter_context(services.postgres())))
            endpoint = stack.enter_context(services.s3())
            bucket = stack.enter_context(services.s3_bucket(endpoint))
        told = campaign(
            scratch,
            dsn,
            endpoint,
            bucket,
            nodes=asked.nodes,
            kills=asked.kills,
            seed=asked.seed,
            suspend=True,
        )
    print(json.dumps({"seed": asked.seed, **asdict(told)}, indent=1))
    if not told.problems:
        shutil.rmtree(scratch)
    return 1 if told.problems else 0


if __name__ == "__main__":
    sys.exit(main())
