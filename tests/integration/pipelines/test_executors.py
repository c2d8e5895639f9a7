"""Threads, processes and a Dask cluster of real processes, through the same seam."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kfm.config.loader import load
from kfm.config.state_folder import StateFolder
from kfm.model.errors import BackendUnavailable, Cancelled, PipelineError, PipelineFailed
from kfm.pipelines.dask_workers import DaskWorkers, _Task
from kfm.pipelines.executor_address import ExecutorAddress, executor_of
from kfm.pipelines.options import PipelineReport
from kfm.pipelines.project import load_pipeline, open_project, run_pipeline
from kfm.pipelines.workers import TRIES_MAX, NodeJob
from tests import services
from tests.crash.project import Project, finish
from tests.dask_cluster import DaskCluster, certificates, dask_cluster
from tests.recording_s3 import recording

SECONDS_MAX = 60
NODES = 24
FLOW = f"""\
import hashlib, os, sys
import kfm

pipeline = kfm.Pipeline("work")

def declare(number):
    def node(ctx, **read):
        ctx.log("at work")
        ctx.validate("it is so", True)
        digest = hashlib.sha256(repr((number, sorted(read.items()))).encode()).hexdigest()
        if number % 5 == 0:
            ctx.publisher.write_file(f"{{number}}.txt", digest)
        return digest.encode() if number % 3 == 0 else {{"digest": digest, "half": number / 2}}

    reads = [each for each in (number - 7, number - 3) if each >= 0 and each % 3]
    pipeline.node(f"n{{number:02}}", needs={{f"n{{each:02}}": f"n{{each:02}}" for each in reads}})(node)

for number in range({NODES}):
    declare(number)

@pipeline.node("wrong")
def wrong(ctx):
    raise LookupError("nowhere")
"""
# Each node says who runs it, and waits until it may go on.
HELD = """\
import os, time
import kfm

pipeline = kfm.Pipeline("held")

def declare(name):
    def node(ctx):
        with open(os.path.join(os.environ["HELD"], f"{name}.{os.getppid()}.{os.getpid()}"), "w"):
            pass
        held = os.environ["HELD"]
        while not {"go", f"go.{os.getpid()}"}.intersection(os.listdir(held)):
            time.sleep(0.01)
            if name == "polite":
                ctx.check()
        return str(os.getpid()) if name == "late" else name

    pipeline.node(name)(node)

for name in os.environ.get("HELD_NODES", "first second").split():
    declare(name)
"""


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where held nodes of this module's cluster say that they are at work."""
    return tmp_path_factory.mktemp("held")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, held: Path) -> Iterator[DaskCluster]:
    env = {"S3_SECRET": services.S3_SECRET_KEY, "HELD": str(held), "HELD_NODES": "first second polite late"}
    with dask_cluster(tmp_path_factory.mktemp("cluster"), 2, env=env) as started:
        yield started


@pytest.fixture
def config(s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("S3_SECRET", services.S3_SECRET_KEY)
    return (
        "version: 1\nenvironment: fleet\nlease: {seconds: 2}\n"
        f"objects: s3://{s3_bucket}/values\n"
        f"objects_options: {{endpoint: '{s3_endpoint}', region: {services.S3_REGION},\n"
        f"  access_key_id: {services.S3_ACCESS_KEY}, secret_access_key: env:S3_SECRET}}\n"
    )


@pytest.fixture
def place(tmp_path: Path, config: str) -> Path:
    return project_in(tmp_path / "project", config)


def project_in(folder: Path, config: str, flow: str = FLOW) -> Path:
    folder.mkdir()
    (folder / "flow.py").write_text(flow)
    (folder / "kfm.yml").write_text(config)
    return folder


def ran(folder: Path, executor: str, **more: Any) -> PipelineReport:
    pipeline = load_pipeline(str(folder / "flow.py"))
    return run_pipeline(pipeline, config=str(folder / "kfm.yml"), workers=executor, **more)


def facts(folder: Path, run_id: str) -> dict[str, Any]:
    """All that is on record of a run, without times; and the bytes of what was made."""
    found: dict[str, Any] = {}
    with open_project(config=str(folder / "kfm.yml"), read_only=True) as project:
        for node in project.tables.of_run(run_id):
            made = {}
            for output in node.outputs:
                reader = project.objects.open(output.checksum.removeprefix("sha256:"))
                made[output.name] = reader.read(1 << 20)
                reader.close()
            told = (
                node.outcome,
                node.code_sha,
                node.inputs_hash,
                node.validation_summary,
                node.error_message,
            )
            found[node.dataset_id] = (*told, node.error_code, node.attempt, made)
    return found


def in_bucket(report: PipelineReport, node: str, endpoint: str, bucket: str) -> bool:
    """The bytes of its first output are there, and are the right ones."""
    sha256 = json.loads(report.nodes[node].outputs)[0]["checksum"].removeprefix("sha256:")
    client = services.s3_client(endpoint)
    key = f"values/sha256/{sha256[:2]}/{sha256[2:]}"
    return hashlib.sha256(client.get_object(Bucket=bucket, Key=key)["Body"].read()).hexdigest() == sha256


def awaited(found: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + SECONDS_MAX
    while not (seen := found()):
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.01)
    return seen


# --- the same, wherever it runs ----------------------------------------------------------


@pytest.mark.req("FLT-4")
@pytest.mark.parametrize("executor", ["processes", "dask"])
def test_what_is_made_and_recorded_does_not_depend_on_the_executor(
    executor: str, tmp_path: Path, config: str, cluster: DaskCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The same records, byte-equal values and errors as with threads; what nodes log is shown here."""
    address = cluster.address if executor == "dask" else executor
    first = project_in(tmp_path / "threads", "version: 1\nenvironment: fleet\n")
    second = project_in(tmp_path / "other", config)
    expected = ran(first, "threads", run_id="one", keep_going=True)
    caplog.set_level("INFO", logger="kfm.pipelines.context")
    report = ran(second, address, run_id="one", keep_going=True)
    assert report.counts == expected.counts
    assert facts(second, "one") == facts(first, "one")
    assert "n00: at work" in caplog.messages
    wrong = report.nodes["wrong"].error
    assert isinstance(wrong, PipelineFailed)
    assert wrong.message == expected.nodes["wrong"].error.message  # type: ignore[union-attr]
    again = ran(second, "threads", run_id="two", keep_going=True)
    assert again.counts["skipped"] == NODES, "one executor knows what another has done"


@pytest.mark.req("FLT-4")
def test_values_of_before_are_found_in_the_folder(
    place: Path, config: str, cluster: DaskCluster, s3_endpoint: str, s3_bucket: str
) -> None:
    """A project that gets a bucket repeats nothing, and a cluster can read what only the folder has."""
    (place / "kfm.yml").write_text("version: 1\nenvironment: fleet\n")
    before = ran(place, "threads", keep_going=True)
    (place / "kfm.yml").write_text(config)
    unchanged = ran(place, "threads", keep_going=True)
    assert unchanged.counts["skipped"] == before.counts["success"] == NODES
    flow = (place / "flow.py").read_text().replace("for number in range(24):", "for number in range(27):")
    (place / "flow.py").write_text(flow)
    more = ran(place, cluster.address, keep_going=True)
    assert (more.counts["skipped"], more.counts["success"]) == (NODES, 3)
    assert in_bucket(more, "n17", s3_endpoint, s3_bucket), "it is read by a new node, on whichever machine"


@pytest.mark.req("FLT-4")
def test_a_folder_that_all_share_needs_no_bucket(
    tmp_path: Path, cluster: DaskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `?files=shared` nodes read and write files of the project on the workers."""
    flow = (
        "import kfm\npipeline = kfm.Pipeline('files')\n"
        "@pipeline.node('copied', inputs=['in.txt'], outputs=['out.txt'])\n"
        "def copied():\n    open('out.txt', 'w').write(open('in.txt').read())\n"
    )
    place = project_in(tmp_path / "project", "version: 1\n", flow)
    (place / "in.txt").write_text("in")
    monkeypatch.chdir(place)
    report = ran(place, f"{cluster.address}?files=shared")
    assert report.error is None
    assert (place / "out.txt").read_text() == "in"


@pytest.mark.req("FLT-4")
def test_values_of_unchanged_nodes_are_looked_for_at_once(
    place: Path, config: str, s3_endpoint: str, s3_bucket: str
) -> None:
    """However many nodes there are, a run that finds nothing new lists the bucket and asks for no value; one
    that is gone is made again, also by a run that is resumed."""
    with recording(s3_endpoint) as record:
        (place / "kfm.yml").write_text(config.replace(s3_endpoint, record.address))
        first = ran(place, "threads", run_id="first", keep_going=True)
        record.passed.clear()
        assert ran(place, "threads", keep_going=True).counts["skipped"] == NODES
        assert not [one for one in record.passed if one.method == "HEAD"]
        assert len(record.tells("list-type=2")) == 1
    sha256 = json.loads(first.nodes["n20"].outputs)[0]["checksum"].removeprefix("sha256:")
    key = f"values/sha256/{sha256[:2]}/{sha256[2:]}"
    services.s3_client(s3_endpoint).delete_object(Bucket=s3_bucket, Key=key)
    (place / "kfm.yml").write_text(config)
    assert ran(place, "threads", resume="first", keep_going=True).nodes["n20"].ran
    assert in_bucket(first, "n20", s3_endpoint, s3_bucket)


# --- what is killed ----------------------------------------------------------------------


def started(place: Path, *arguments: str, **env: str) -> subprocess.Popen[str]:
    project = Project(place)
    project.env |= {"S3_SECRET": services.S3_SECRET_KEY, "HELD_NODES": "first second polite late", **env}
    return project.start("pipeline", "run", "flow.py", "--json", *arguments)


def at_work(held: Path, *names: str) -> dict[str, tuple[int, int]]:
    """node → its worker and its process, of those that are at work the latest."""
    files = sorted(held.iterdir(), key=lambda each: each.stat().st_mtime_ns)
    found = {}
    for each in files:
        if not each.name.startswith("go"):
            name, worker, child = each.name.split(".")
            found[name] = (int(worker), int(child))
    return found if found.keys() >= set(names) else {}


@pytest.fixture
def fresh(held: Path) -> Iterator[Path]:
    for each in held.iterdir():
        each.unlink()
    yield held
    (held / "go").touch()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.req("FLT-4")
def test_a_killed_worker_costs_its_node_alone(
    tmp_path: Path, config: str, cluster: DaskCluster, fresh: Path
) -> None:
    """The node runs again on another worker, which goes on with its own; no process is left of the first."""
    place = project_in(tmp_path / "project", config, HELD)
    process = started(place, "--executor", cluster.address, "--only", "first", "--only", "second")
    seen = awaited(lambda: at_work(fresh, "first", "second"), "both nodes")
    worker, child = seen["first"]
    assert worker != seen["second"][0]
    cluster.kill(next(each for each in cluster.workers if each.pid == worker))
    cluster.add_worker()
    awaited(lambda: at_work(fresh, "first")["first"] != seen["first"], "another try")
    awaited(lambda: not is_alive(child), "the end of the killed worker's child")
    (fresh / "go").touch()
    ended = finish(process)
    assert ended.code == 0, ended.err
    tries = Counter(each.name.split(".")[0] for each in fresh.iterdir() if each.name != "go")
    assert tries == {"first": 2, "second": 1}
    assert facts(place, ended.document["run_id"])["first"][0] == "success"


@pytest.mark.slow
@pytest.mark.req("FLT-4")
def test_a_pipeline_run_that_lost_its_lease_records_nothing_of_its_workers(
    tmp_path: Path,
    config: str,
    cluster: DaskCluster,
    fresh: Path,
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A killed one is resumed from another folder. That one stands still past its lease, is resumed in its
    turn, and comes back: what its workers have made meanwhile is discarded, whole."""
    config += "store: env:HELD_STORE\n"
    one, two = project_in(tmp_path / "one", config, HELD), project_in(tmp_path / "two", config, HELD)
    order = ("--executor", cluster.address, "--only", "first")
    killed = started(one, *order, "--run-id", "held", HELD_STORE=postgres_database)
    seen = awaited(lambda: at_work(fresh, "first"), "the node")
    killed.kill()
    finish(killed)

    def resumed(place: Path) -> subprocess.Popen[str] | None:
        """None: its lease has not lapsed yet."""
        process = started(place, *order, "--resume", "held", HELD_STORE=postgres_database)
        while process.poll() is None and at_work(fresh) == seen and not (fresh / "go").exists():
            time.sleep(0.01)
        if process.poll() is None or process.returncode == 0:
            return process
        assert finish(process).code == 5
        return None

    late = awaited(lambda: resumed(two), "the end of the first lease")
    late.send_signal(signal.SIGSTOP)
    (fresh / "go").touch()

    def done() -> Any:
        process = resumed(one)
        ended = finish(process) if process is not None else None
        return ended if ended is not None and ended.code == 0 else None

    ended = awaited(done, "the end of the second lease")
    assert ended.document["attempt"] == 3
    monkeypatch.setenv("HELD_STORE", postgres_database)
    before = facts(two, "held")
    late.send_signal(signal.SIGCONT)
    told = finish(late)
    assert told.code != 0
    assert "has passed to another" in told.err + told.out
    assert facts(two, "held") == before


@pytest.mark.slow
@pytest.mark.req("FLT-4")
def test_what_a_late_worker_has_made_is_discarded(
    tmp_path: Path, config: str, cluster: DaskCluster, fresh: Path
) -> None:
    """A worker stands still until the scheduler gives it up and another has its node; then it goes on, and
    ends the node first. What is recorded is of the other."""
    place = project_in(tmp_path / "project", config, HELD)
    process = started(place, "--executor", cluster.address, "--only", "late")
    worker, child = awaited(lambda: at_work(fresh, "late"), "the node")["late"]
    stopped = next(each for each in cluster.workers if each.pid == worker)
    stopped.send_signal(signal.SIGSTOP)
    _, other = awaited(
        lambda: (now := at_work(fresh)["late"]) != (worker, child) and now, "another worker at the node"
    )
    (fresh / f"go.{child}").touch()
    stopped.send_signal(signal.SIGCONT)
    awaited(lambda: not is_alive(child), "the end of the late node")
    assert process.poll() is None
    (fresh / "go").touch()
    ended = finish(process)
    assert ended.code == 0, ended.err
    assert list(facts(place, ended.document["run_id"])["late"][-1].values()) == [f'"{other}"'.encode()]
    cluster.kill(stopped)
    cluster.add_worker()


@pytest.mark.req("FLT-4")
def test_a_stop_kills_nodes_on_the_cluster_and_ctrl_c_asks_them(
    tmp_path: Path, config: str, cluster: DaskCluster, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C lets a node end that looks for it; a stop does not wait for one that does not. With a killed
    pipeline run the nodes end that it has at work: none would record them."""
    place = project_in(tmp_path / "project", config, HELD)
    process = started(place, "--executor", cluster.address, "--only", "second")
    _, child = awaited(lambda: at_work(fresh, "second"), "the node")["second"]
    process.kill()
    finish(process)
    awaited(lambda: not is_alive(child), "the end of the node of a killed pipeline run")
    process = started(place, "--executor", cluster.address, "--only", "polite")
    awaited(lambda: at_work(fresh, "polite"), "the node")
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 130, ended.err
    assert "polite was asked to stop" in ended.document["nodes"][0]["error"]["message"]
    monkeypatch.setenv("HELD_NODES", "first second polite late")
    children: list[int] = []

    def stop() -> None:
        if found := at_work(fresh, "first"):
            children.append(found["first"][1])
            raise Cancelled("a person has stopped it")

    from kfm.pipelines.execution import PipelineExecutor
    from kfm.pipelines.planner import PipelinePlanner
    from kfm.pipelines.project import make_options, with_workers

    pipeline = load_pipeline(str(place / "flow.py"))
    with open_project(config=str(place / "kfm.yml")) as project:
        kernel = with_workers(project.kernel(lambda _node: None), project, pipeline, cluster.address)
        options = make_options(pipeline, project, only=["first"])
        executor = PipelineExecutor(PipelinePlanner(kernel, pipeline, options))
        executor._held_lease = lambda: None  # type: ignore[method-assign] # so that only `check` stops it
        executor._cancel.check = stop
        report = executor.run()
    assert report.state == "cancelled"
    assert isinstance(report.nodes["first"].error, Cancelled)
    awaited(lambda: not is_alive(children[0]), "the end of the killed node")


# --- what can't be -----------------------------------------------------------------------


@pytest.mark.req("FLT-4")
def test_a_scheduler_that_is_gone_ends_the_run_which_can_be_resumed(
    tmp_path: Path, config: str, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has failed for want of a backend; what has ended is on record, and any executor goes on."""
    place = project_in(tmp_path / "project", config, HELD)
    monkeypatch.setenv("HELD_NODES", "first")
    monkeypatch.setenv("HELD", str(fresh))
    address = f"dask://127.0.0.1:{services.free_port()}"
    monkeypatch.setattr("kfm.pipelines.dask_workers.CONNECT_S", 0.5)
    report = ran(place, address, run_id="lost")
    assert isinstance(report.error, BackendUnavailable)
    assert "No Dask scheduler answers at tcp://127.0.0.1:" in report.error.message
    env = {"S3_SECRET": services.S3_SECRET_KEY, "HELD": str(fresh), "HELD_NODES": "first"}
    with dask_cluster(tmp_path, 1, env=env) as own:
        process = started(place, "--executor", own.address, "--resume", "lost", HELD_NODES="first")
        awaited(lambda: at_work(fresh, "first"), "the node")
        own.scheduler.kill()
        ended = finish(process)
    assert ended.code == 4, ended.err
    assert "has gone" in ended.document["error"]["message"]
    (fresh / "go").touch()
    assert ran(place, "threads", resume="lost").error is None


@pytest.mark.req("FLT-4")
def test_a_cluster_behind_tls(tmp_path: Path, config: str, fresh: Path) -> None:
    """With its certificates nodes run there. Without any, with those of another authority, or by a plain
    address the command says what is wrong, and does not wait."""
    (fresh / "go").touch()
    place = project_in(tmp_path / "project", config, HELD)
    env = {"S3_SECRET": services.S3_SECRET_KEY, "HELD": str(fresh), "HELD_NODES": "first second polite late"}
    right, wrong = certificates(tmp_path / "right"), certificates(tmp_path / "wrong")

    lost = {**right, "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY": str(tmp_path / "nowhere")}

    def told(address: str, own: dict[str, str], node: str = "second") -> tuple[int, str]:
        ended = finish(started(place, "--executor", address, "--only", node, HELD=str(fresh), **own))
        return ended.code, ended.err

    with dask_cluster(tmp_path, 1, env={**env, **right}, is_tls=True) as secure:
        assert told(secure.address, right, "first") == (0, "")
        for address, own, expected, why in (
            (secure.address, {}, 2, "There are no certificates"),
            (secure.address, lost, 2, "can't be read"),
            (secure.address, wrong, 4, "certificate does not match"),
            (secure.address.replace("+tls", ""), {}, 4, "No Dask scheduler answers"),
        ):
            code, message = told(address, own)
            assert (code, why in message) == (expected, True), message


@pytest.mark.req("FLT-4")
def test_a_cluster_without_workers_is_told_and_waited_for(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In one line, once; nodes run when a worker has come."""
    with dask_cluster(tmp_path, 0, env={"S3_SECRET": services.S3_SECRET_KEY}) as empty:
        caplog.set_level(logging.WARNING, logger="kfm")
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(ran, place, empty.address, only=("n00",))
            awaited(lambda: "has no workers" in caplog.text, "the line")
            assert not running.done()
            empty.add_worker()
            assert running.result(SECONDS_MAX).error is None
    assert caplog.text.count("has no workers") == 1


class Fetched:
    """A task of Dask whose worker dies when its answer is asked for; what made it anew has failed so."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.status = "finished"
        self.key = "key"

    def result(self, timeout: float) -> bytes:
        self.status = "error"
        raise self._error

    def exception(self) -> Exception:
        return self._error


@pytest.mark.req("FLT-4")
@pytest.mark.parametrize("dies", [True, False])
def test_an_answer_that_is_lost_for_good_is_the_node_s_failure(
    place: Path, dies: bool, cluster: DaskCluster
) -> None:
    """Workers die between the end of a task and the fetching of its answer, and again while it is made
    anew: the node has failed, the pipeline run goes on. A cluster that can't make it is told as such."""
    from distributed import KilledWorker

    pipeline = load_pipeline(str(place / "flow.py"))
    with open_project(config=str(place / "kfm.yml")) as project:
        workers = DaskWorkers(project, pipeline, executor_of(cluster.address), None)
        job = NodeJob(pipeline.nodes["n00"], "", "", "", b"", 1, {}, "run", "main")
        error = KilledWorker("n00", None, 3) if dies else ImportError("No module named 'kfm'")
        task = _Task(Fetched(error), job, {}, "ticket", TRIES_MAX)
        workers._running["key"] = task
        if dies:
            result = workers._result("key")
            assert result is not None
            assert "all workers of the cluster that ran it died" in str(result.error)
        else:
            with pytest.raises(PipelineError, match="can't run nodes"):
                workers._result("key")
        assert not workers.busy


@pytest.mark.req("FLT-4")
def test_a_cluster_without_kfm_is_told_in_one_line(place: Path, tmp_path: Path) -> None:
    """The message names what is missing, and the way out what to install."""
    with dask_cluster(tmp_path, 1, has_kfm=False) as bare:
        report = ran(place, bare.address)
    assert isinstance(report.error, PipelineError)
    assert "The Dask cluster can't run nodes: " in report.error.message
    assert "\n" not in report.error.message
    assert "kfm-kernel" in report.error.way_out


@pytest.mark.req("FLT-4")
def test_what_a_cluster_can_not_run_is_refused_before_anything_begins(tmp_path: Path, config: str) -> None:
    """Values in a folder, files of the project, a pipeline in no file: each with the way out."""
    place = project_in(tmp_path / "project", "version: 1\n")
    address = "dask://127.0.0.1:1"
    with pytest.raises(PipelineError, match="in a folder"):
        ran(place, address)
    (place / "kfm.yml").write_text(config)
    for declared in ("inputs=['in.txt']", "inputs='*.csv'", "outputs=['out.txt']"):
        (place / "flow.py").write_text(
            f"import kfm\np = kfm.Pipeline('p')\n@p.node('n', {declared})\ndef n(): ...\n"
        )
        with pytest.raises(PipelineError, match="n reads or writes files") as caught:
            ran(place, address)
        assert "?files=shared" in caught.value.way_out
    with open_project(config=str(place / "kfm.yml"), read_only=True) as project:
        assert not project.tables.any_passes()


@pytest.mark.parametrize(
    "text",
    ["dask://", "dask://host", "dask://u@h:1", "dask://h:1/x", "dask://h:1?a=b", "dask://h:x", "ray://h:1"],
)
def test_other_addresses_are_refused(text: str) -> None:
    """With what can be written."""
    with pytest.raises(PipelineError):
        executor_of(text)


def test_addresses_are_read() -> None:
    """Host and port, encrypted or not, and whether files are shared."""
    assert executor_of("dask://h:8786") == ExecutorAddress("dask", "tcp://h:8786", False)
    assert executor_of("dask+tls://[::1]:1?files=shared") == ExecutorAddress("dask", "tls://[::1]:1", True)


@pytest.mark.req("FLT-4")
def test_values_of_a_pipeline_lie_in_the_configured_store(
    place: Path, s3_bucket: str, s3_endpoint: str
) -> None:
    """Also with threads: other machines find them."""
    report = ran(place, "threads", keep_going=True)
    assert in_bucket(report, "n00", s3_endpoint, s3_bucket)
    folder = StateFolder.of(load(str(place / "kfm.yml"), {}))
    assert not os.path.exists(f"{folder.path}/objects/sha256")
