"""The six hosts: what runs on each, how it is started, killed and paused."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests import ministack_server, services
from tests.crash.project import RIGHTS, environment
from tests.crash.senders import SECRET, Address
from tests.crash.serves import HOOKED, PIPELINE, SCHEDULED
from tests.hosts.network import ROOT, Network
from tests.hosts.process import set_clock
from tests.memory_disk import memory_disk

SERVICES = ("alder", "birch", "cedar")
WORKERS = ("dogwood", "elm")
BACKEND = "fir"  # PostgreSQL, the buckets and the queue
CLIENT = "outside"  # senders, a person at the switch, the auditor
PORT = 8377
POSTGRES_PORT = 5432
TOKEN = secrets.token_hex(32)
OBJECTS, PUBLISHED, UPSTREAM = "kfm-objects", "kfm-published", "upstream"
ANNOUNCED = "noaa-mrms-pds"
PREFIX = "pub"
SCHEDULE_S = 3
STORE, HOOK_SECRET = "HOSTS_STORE", "HOSTS_HOOK_SECRET"
LEASE_S, UNIT_LEASE_S = 3, 8
_COMPLAINT = re.compile(r"Traceback|\b(?!KfmError)[A-Z]\w+(Error|Exception): ")


class Backend:
    """PostgreSQL, which may be killed, and emulators of S3, SNS and SQS, which keep all in memory."""

    def __init__(self, network: Network, stack: ExitStack, folder: Path) -> None:
        self._network = network
        self.address = network.address(BACKEND)
        self._who = services.unprivileged_user()
        self._folder = folder / "postgres"
        self._folder.mkdir()
        if self._who:
            os.chown(self._folder, self._who["user"], self._who["group"])
        self._install = services.postgres_install(self._folder, self._who)
        password = secrets.token_hex(16)
        self._data = services.initdb(self._install, self._folder, password, self._who)
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet scram-sha-256\n")
        self._server: subprocess.Popen[bytes] | None = None
        stack.callback(self.kill)
        self.start()
        with network.inside(BACKEND):
            self.s3 = stack.enter_context(services.s3(self.address))
            self.queues = stack.enter_context(ministack_server.serving(self.address))
        self.dsn = f"postgresql://postgres:{password}@{self.address}:{POSTGRES_PORT}/postgres"
        self.await_answer()
        client = services.s3_client(self.s3)
        for bucket in (OBJECTS, PUBLISHED, UPSTREAM, ANNOUNCED):
            client.create_bucket(Bucket=bucket)
        self._make_queue()

    def _make_queue(self) -> None:
        sns, sqs = self.client("sns"), self.client("sqs")
        self.topic = sns.create_topic(Name="NewMRMSObject")["TopicArn"]
        self.queue = sqs.create_queue(QueueName="mrms")["QueueUrl"]
        asked = sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=["QueueArn"])
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=asked["Attributes"]["QueueArn"])

    def client(self, service: str) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.client(
            service,
            endpoint_url=self.s3 if service == "s3" else self.queues,
            aws_access_key_id=services.S3_ACCESS_KEY,
            aws_secret_access_key=services.S3_SECRET_KEY,
            region_name=services.S3_REGION,
            config=Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 1}),
        )

    def start(self) -> None:
        settings = [
            f"listen_addresses={self.address}", f"port={POSTGRES_PORT}", "unix_socket_directories=",
            "shared_buffers=64MB", "max_connections=60",
        ]  # fmt: skip
        command = [str(self._install / "bin" / "postgres"), "-D", str(self._data)]
        with (self._folder / "log").open("ab") as log, self._network.inside(BACKEND):
            self._server = subprocess.Popen(
                [*command, *(part for setting in settings for part in ("-c", setting))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder,
                start_new_session=True, preexec_fn=services.die_with_parent, **self._who,
            )  # fmt: skip

    def kill(self) -> None:
        """The postmaster; the server's other processes notice, and end."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def await_answer(self) -> None:
        assert self._server is not None
        if not services.wait_for_postgres(self._server, self.dsn, self._folder / "log"):
            raise RuntimeError(f"PostgreSQL ended: {(self._folder / 'log').read_text()[-500:]}")


class Host:
    """One host with one process of kfm, and a state folder that no other host sees."""

    def __init__(
        self, network: Network, name: str, folder: Path, backend: Backend, ahead_ms: int = 0
    ) -> None:
        self.name = name
        self.address = network.address(name)
        self._network = network
        self.folder = folder / name
        self.folder.mkdir()
        self._clock = self.folder / "clock"
        self._log = self.folder / "log"
        self._env = variables(backend)
        (self.folder / "kfm.yml").write_text(configuration(backend, self.address))
        (self.folder / "cron.yml").write_text(schedules())
        (self.folder / "pipeline.py").write_text(PIPELINE)
        self.set_clock(ahead_ms)
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._said_before = 0
        self._excused: set[int] = set()  # lines

    @property
    def is_service(self) -> bool:
        return self.name in SERVICES

    @property
    def endpoint(self) -> Address:
        return self.address, PORT

    def set_clock(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms
        set_clock(self._clock, ahead_ms)

    def start(self, *more: str) -> None:
        arguments = ["serve", "--no-worker", "--no-input"] if self.is_service else ["worker", "--verbose"]
        command = [sys.executable, "-m", "tests.hosts.process", str(self._clock), *arguments, *more]
        self.starts += 1
        self._said_before = len(self.lines)
        with self._log.open("ab") as log, self._network.inside(self.name):
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=environment(**self._env), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=log, preexec_fn=services.die_with_parent,
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def is_ready(self) -> bool:
        """A worker listens nowhere: one that runs is taken for ready."""
        if not self.is_service or not self.is_running:
            return self.is_running
        connection = http.client.HTTPConnection(*self.endpoint, timeout=3)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

    def kill(self) -> None:
        """Every process of the host, at once."""
        self._each(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        self._each(signal.SIGSTOP)

    def resume(self) -> None:
        self._each(signal.SIGCONT)

    def _each(self, number: signal.Signals) -> None:
        for pid in self._network.processes(self.name):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def ask_to_end(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def ended(self, seconds: float) -> int | None:
        """The exit code; None if it did not end in time."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    @property
    def lines(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines() if self._log.exists() else []

    def found_no_database(self) -> bool:
        """It ended as it began, since the database was away: what started it starts it again. Asked to be
        verbose, it says where it was then; that is no complaint."""
        told = self.lines
        found = told[self._said_before :][:1]
        if self.is_running or not found or not found[0].startswith("error KFM400"):
            return False
        self._excused.update(range(self._said_before, len(told)))
        return True

    @property
    def complaints(self) -> list[str]:
        """Whatever looks like a defect of ours."""
        said = [line for number, line in enumerate(self.lines) if number not in self._excused]
        return [line for line in said if _COMPLAINT.search(line)]


def variables(backend: Backend) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        STORE: backend.dsn,
        HOOK_SECRET: SECRET,
        "AWS_ACCESS_KEY_ID": services.S3_ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": services.S3_SECRET_KEY,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def configuration(backend: Backend, address: str) -> str:
    """As in `deploy/kubernetes`: an address of its own, people with tokens, nothing kept on the host."""
    options = (
        f"{{endpoint: '{backend.s3}', region: {services.S3_REGION}, "
        "access_key_id: 'env:AWS_ACCESS_KEY_ID', secret_access_key: 'env:AWS_SECRET_ACCESS_KEY'}"
    )
    names = [*SCHEDULED, *HOOKED]
    hook = f', webhook: {{secrets: ["env:{HOOK_SECRET}"]}}'
    token = hashlib.sha256(TOKEN.encode()).hexdigest()
    lines = [
        "version: 1",
        "environment: hosts",
        f"store: env:{STORE}",
        f"objects: s3://{OBJECTS}",
        f"objects_options: {options}",
        f"lease: {{seconds: {LEASE_S}}}",
        "lineage: {export: file}",
        f"serve: {{host: {address}, port: {PORT}, runners: 2, late_seconds: 4, grace_seconds: 20}}",
        "limits: {call_timeout_ms: 5000}",
        f'people: [{{subject: ops, roles: [operate], accounts: [root], tokens: ["sha256:{token}"]}}]',
        "datasets:",
        *(f"  - {{id: {name}, title: {name}, domain: hydrology, rights: {RIGHTS}}}" for name in names),
        "publish:",
        f"  - {{kind: s3, url: s3://{PUBLISHED}/{PREFIX}, options: {options}}}",
        "sources:",
        *(
            f"  - {{id: {name}, dataset: {name}, kind: bucket, bucket: s3://{UPSTREAM}, prefix: tables/"
            f", bucket_options: {options}, window: PT1S"
            f", pipeline: 'pipeline.py:{'quick' if name in HOOKED else 'slow'}', output_version: '1'"
            f"{hook if name in HOOKED else ''}}}"
            for name in names
        ),
        "ingest:",
        f"  queues: [{{name: mrms, kind: sqs, url: '{backend.queue}', options: "
        f"{{region: {services.S3_REGION}, endpoint_url: '{backend.queues}'}}}}]",
        f"  topics: ['{backend.topic}']",
        "  policies: [{datasets: ['*'], integrity: full}]",
        f"  object_options: {{'s3://*': {options}}}",
        f"  batch: 10\n  visibility_seconds: {UNIT_LEASE_S - 2}\n  safety_seconds: 2",
    ]
    return "\n".join(lines) + "\n"


def schedules() -> str:
    lines = [
        f"  - {{id: {name}, source: {name}, every: PT{SCHEDULE_S}S, {how}}}"
        for name, how in SCHEDULED.items()
    ]
    return "\n".join(["version: 1", "schedules:", *lines]) + "\n"


def scratch() -> str:
    """Where hosts keep their folders."""
    return memory_disk() or "/tmp"


def await_all(hosts: list[Host], seconds: float) -> list[Host]:
    """Those that are not ready in time."""
    until = time.monotonic() + seconds
    waiting = list(hosts)
    while waiting and time.monotonic() < until:
        waiting = [host for host in waiting if not host.is_ready()]
        time.sleep(0.1)
    return waiting
