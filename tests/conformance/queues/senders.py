"""Queues of each kind, each with a sender."""

from __future__ import annotations

import io
import itertools
import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kfm.nodd.queues.folder_queue import FolderQueue
from kfm.nodd.queues.line_stream import StreamQueue
from kfm.nodd.queues.sqs import SqsQueue, open_sqs
from kfm.ports import Queue, QueueMessage
from tests import services
from tests.stand_ins import FakeClock

EMULATORS = {"sqs-moto": "s3_endpoint", "sqs-ministack": "ministack_endpoint"}
KINDS = ("folder", "folder-done", "folder-lines", "stream", *EMULATORS)
SHORT_MS = 1_000  # the shortest time that SQS hides what was received
KEY = "CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-{:06}.grib2.gz"
WAIT_MS = 4_000  # for what was received before to come again


class Place:
    """One queue, opened as often as there are workers."""

    def __init__(self, kind: str, folder: Path, endpoint: str | None = None) -> None:
        self.kind = kind
        self.comes_again = kind != "stream"  # to another receiver, after the first has died
        self.is_sqs = endpoint is not None
        self.wait_ms = WAIT_MS if self.is_sqs else 0
        self.visibility_ms = 60_000  # tests with a crash take the shortest
        self.clock = FakeClock()
        self._folder = folder
        self._endpoint = endpoint
        self._numbers = itertools.count(1)
        self._sent = b""
        self.opened: list[Queue] = []
        if endpoint is not None:
            self.client = sqs_client(endpoint)
            self.url = self.client.create_queue(QueueName=f"kfm-{secrets.token_hex(6)}")["QueueUrl"]
        else:
            (folder / "spool").mkdir()
            (folder / "done").mkdir()

    def send(self, *bodies: str) -> None:
        if self.is_sqs:
            for body in bodies:
                self.client.send_message(QueueUrl=self.url, MessageBody=body)
        elif self.kind == "stream":
            self._sent += "".join(body + "\n" for body in bodies).encode()
        elif self.kind == "folder-lines" and bodies:
            self._write(".jsonl", "".join(body + "\n" for body in bodies).encode())
        else:
            for body in bodies:
                self._write(".json", body.encode())

    def open(self) -> Queue:
        number = next(self._numbers)
        made: Queue
        if self._endpoint is not None:
            made = open_sqs(
                self.url,
                name="q",
                region=services.S3_REGION,
                endpoint_url=self._endpoint,
                visibility_ms=self.visibility_ms,
            )
        elif self.kind == "stream":
            made, self._sent = StreamQueue(io.BytesIO(self._sent), self.clock, name="q"), b""
        else:
            made = FolderQueue(
                str(self._folder / "spool"),
                self.clock,
                worker=f"worker-{number}",
                name="q",
                done_folder=str(self._folder / "done") if self.kind == "folder-done" else None,
            )
        self.opened.append(made)
        return made

    def kill(self, queue: Queue) -> None:
        """As if its process had died: files are closed by the system, and nothing else is done."""
        self.opened.remove(queue)
        if isinstance(queue, FolderQueue):
            for held in queue._held.values():
                held.close()

    def close(self) -> None:
        for queue in self.opened:
            queue.close()

    def _write(self, end: str, data: bytes) -> None:
        name = f"{next(self._numbers):06}{end}"
        path = self._folder / "spool" / name
        path.with_suffix(".tmp").write_bytes(data)
        os.rename(path.with_suffix(".tmp"), path)


def sqs_client(endpoint: str, service: str = "sqs") -> Any:
    import boto3

    return boto3.client(
        service,
        endpoint_url=endpoint,
        aws_access_key_id=services.S3_ACCESS_KEY,
        aws_secret_access_key=services.S3_SECRET_KEY,
        region_name=services.S3_REGION,
    )


def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the emulators take, where boto3 looks for it, and nothing of the environment of the tests."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", services.S3_ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", services.S3_SECRET_KEY)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def bodies(count: int, start: int = 0) -> list[str]:
    return [json.dumps({"number": number}) for number in range(start, start + count)]


def texts(messages: Iterable[QueueMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


def receipts(messages: Iterable[QueueMessage]) -> list[str]:
    return [message.receipt for message in messages]


def all_of(queue: Queue, count: int, wait_ms: int) -> list[QueueMessage]:
    """Receive until so many are there; a queue may hand out fewer than it has."""
    found: list[QueueMessage] = []
    for _ in range(count + 5):
        if len(found) >= count:
            break
        found += queue.receive(count - len(found), wait_ms)
    return found


# --- topics --------------------------------------------------------------------------


def s3_event(number: int) -> str:
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": "2026-01-01T00:01:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "noaa-mrms-pds"}, "object": {"key": KEY.format(number), "size": 12}},
    }
    return json.dumps({"Records": [record]})


class Fanned:
    """A topic, its queue, and where messages go that were received twice in vain."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.sqs, sns = sqs_client(endpoint), sqs_client(endpoint, "sns")
        mark = secrets.token_hex(6)
        self.topic = sns.create_topic(Name=f"NewObject-{mark}")["TopicArn"]
        self.publish = lambda text: sns.publish(TopicArn=self.topic, Message=text)
        self.dead_url, dead_arn = self._queue(f"dead-{mark}", {})
        redrive = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": "2"})
        self.url, arn = self._queue(f"intake-{mark}", {"RedrivePolicy": redrive})
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn)

    def _queue(self, name: str, attributes: dict[str, str]) -> tuple[str, str]:
        url = self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        asked = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return url, asked["Attributes"]["QueueArn"]

    def open(self, url: str) -> SqsQueue:
        return open_sqs(
            url, name="mrms", region=services.S3_REGION, endpoint_url=self.endpoint, visibility_ms=60_000
        )
