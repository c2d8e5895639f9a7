"""Our side of the ingest benchmarks: announcements as NODD sends them, through a poller and a worker of ours.

Everything that `kfm worker` does for an object happens: its message is parsed, the unit is durable
before the message is acknowledged, the gates are asked, and the item, its lineage, the counters and the
history are in the transaction of the success. A queue and its network are not there: messages are
in memory.

    python bench/ingest_feed.py CONFIG    one of several workers, told what to do on stdin; see `Crew`
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import md5
from pathlib import Path

import orjson
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from bench.ingest_references import BUCKET, object_key, start_of  # noqa: E402 (found only now)
from kfm.app import App, open_app  # noqa: E402
from kfm.config.loader import load  # noqa: E402
from kfm.model.times import rfc3339  # noqa: E402
from kfm.nodd.ingest import NoddIngest  # noqa: E402
from kfm.nodd.poller import Poller  # noqa: E402
from kfm.nodd.worker import Worker  # noqa: E402
from kfm.nodd.worker_loop import WorkerLoop, WorkerTotals  # noqa: E402
from kfm.ports import QueueMessage  # noqa: E402

TOPIC = "arn:aws:sns:us-east-1:123901341784:NewGOES19Object"


def announcement(number: int) -> bytes:
    """A message of SQS: an S3 event that came by way of SNS."""
    at_ms = start_of(number) + 13_000
    digest = md5(str(number).encode()).hexdigest()  # of bytes: nothing of it repeats
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": rfc3339(at_ms),
        "eventName": "ObjectCreated:Put",
        "userIdentity": {"principalId": "AWS:AIDAJIC4U5R2TXT7T3MI6"},
        "requestParameters": {"sourceIPAddress": "192.0.2.17"},
        "responseElements": {"x-amz-request-id": f"{number:016X}", "x-amz-id-2": "4CFJrIHl+bAyhktScnPO98mk"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "MjQ5OTllZTctZGNmZC00NjZkLThlNDctYmQxZTQzNDViZGU0",
            "bucket": {
                "name": BUCKET,
                "ownerIdentity": {"principalId": "A2AJV00K47QOI1"},
                "arn": f"arn:aws:s3:::{BUCKET}",
            },
            "object": {
                "key": object_key(number),
                "size": 1_000_000 + int(digest[:6], 16),
                "eTag": digest,
                "sequencer": f"00{at_ms:012X}{digest[:4].upper()}",
            },
        },
    }
    members = {
        "Type": "Notification",
        "MessageId": f"191c04d9-d428-5417-b457-{number:012x}",
        "TopicArn": TOPIC,
        "Subject": "Amazon S3 Notification",
        "Message": orjson.dumps({"Records": [record]}).decode(),
        "Timestamp": rfc3339(at_ms + 1_000),
        "SignatureVersion": "1",
        "Signature": "DrjMXAKufoJ7lM2ZC7uZ5q0NwrGCoy4YQAT/" * 9,
        "SigningCertURL": "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-6aad65c2.pem",
        "UnsubscribeURL": f"https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn={TOPIC}",
    }
    # Blanks and line ends as SNS has them.
    lines = [f'  "{name}" : {orjson.dumps(value).decode()}' for name, value in members.items()]
    return ("{\n" + ",\n".join(lines) + "\n}").encode()


class Spool:
    """Implements `ports.Queue`: messages in memory."""

    name = "nodd"

    def __init__(self) -> None:
        self.waiting: deque[QueueMessage] = deque()
        self.taken: set[str] = set()

    def put(self, numbers: range) -> None:
        self.waiting.extend(QueueMessage(f"r{one}", announcement(one), f"m{one}") for one in numbers)

    def receive(self, limit: int, wait_ms: int) -> list[QueueMessage]:
        del wait_ms
        some = [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]
        self.taken.update(message.receipt for message in some)
        return some

    def acknowledge(self, receipts: Sequence[str]) -> list[str]:
        self.taken.difference_update(receipts)
        return []

    def put_back(self, receipts: Sequence[str]) -> None:
        raise AssertionError(receipts)

    def close(self) -> None:
        pass


class Ours:
    """One poller and one worker, in this process, on one ledger."""

    def __init__(self, app: App, first: int = 0) -> None:
        self._place = NoddIngest(app)
        self._next = first

    def prepare(self, n: int) -> Spool:
        """What is announced in the next round; not part of the measurement."""
        spool = Spool()
        spool.put(range(self._next, self._next + n))
        self._next += n
        return spool

    def work_off(self, spool: Spool, batch: int) -> int:
        """How many succeeded.

        The loop is that of `kfm worker --until-idle`: one commit ends a batch, takes in the next one and
        claims it. A worker that runs until it is stopped does the same with what its pollers' threads hand
        over; a thread's change of turns is not measured here.
        """
        self._place.settings = replace(self._place.settings, batch=batch)
        kernel = self._place.context()
        service = WorkerLoop(
            Worker(kernel),
            kernel.clock,
            totals=WorkerTotals(),
            pollers=[Poller(kernel, spool)],
            rest=time.sleep,
        )
        tasks = service.run_until_idle()
        assert not tasks.failed
        assert not tasks.lost
        assert not spool.taken  # all are acknowledged
        return tasks.succeeded

    def units_per_second(self, n: int, batch: int) -> float:
        spool = self.prepare(n)
        began_s = time.perf_counter()
        succeeded = self.work_off(spool, batch)
        took_s = time.perf_counter() - began_s
        assert succeeded == n, (succeeded, n)
        return n / took_s

    def close(self) -> None:
        self._place.close()


def configuration(folder: str, store: str | None = None) -> str:
    """The path of a new configuration, its state in the same folder."""
    path, address = Path(folder, "kfm.yaml"), Path(folder, "store.txt")
    lines = ["version: 1", "environment: bench"]
    if store is not None:
        address.touch(0o600)
        address.write_text(store)
        lines.append(f"store: file:{address}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def open_ours(stack: ExitStack, config: str, first: int = 0) -> Ours:
    made = Ours(stack.enter_context(open_app(load(config, environ={}))), first)
    stack.callback(made.close)
    return made


# --- several at once -----------------------------------------------------------------------------


class Crew:
    """Workers in processes of their own, each with announcements of its own, on one ledger."""

    def __init__(self, config: str, size: int) -> None:
        environ = {"PATH": os.defpath, "HOME": os.path.dirname(config)}
        self._workers = [
            subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), config],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environ,
            )
            for _ in range(size)
        ]
        self._next = 0

    def _tell(self, workers: list[subprocess.Popen[str]], lines: Sequence[str]) -> list[str]:
        for worker, line in zip(workers, lines, strict=True):
            assert worker.stdin is not None
            print(line, file=worker.stdin, flush=True)
        answers = []
        for worker in workers:
            assert worker.stdout is not None
            answers.append(worker.stdout.readline().strip())
        return answers

    def units_per_second(self, n: int, batch: int, workers: int) -> float:
        """n units in all, shared among so many workers."""
        chosen, share = self._workers[:workers], n // workers
        orders = [f"prepare {self._next + number * share} {share}" for number in range(workers)]
        self._next += share * workers
        assert self._tell(chosen, orders) == ["prepared"] * workers
        began_s = time.perf_counter()
        done = sum(int(answer) for answer in self._tell(chosen, [f"work {batch}"] * workers))
        took_s = time.perf_counter() - began_s
        assert done == share * workers, (done, share, workers)
        return done / took_s

    def close(self) -> None:
        for worker in self._workers:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.close()
            try:
                worker.wait(15)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            worker.stdout.close()


def _serve(config: str) -> None:
    with ExitStack() as stack:
        ours = open_ours(stack, config)
        spool = Spool()
        for line in sys.stdin:
            order, *numbers = line.split()
            if order == "prepare":
                first, n = (int(text) for text in numbers)
                spool = Spool()
                spool.put(range(first, first + n))
                print("prepared", flush=True)
            else:
                print(ours.work_off(spool, int(numbers[0])), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
