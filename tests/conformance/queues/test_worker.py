"""From the topic to the catalogue, through SQS and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import services
from tests.conformance.queues.senders import Fanned, all_of, receipts, s3_event


def worker(folder: Path, fanned: Fanned, url: str) -> dict[str, Any]:
    """What `kfm worker` did with one queue until there was nothing left to do."""
    queue = {
        "name": "mrms",
        "url": url,
        "options": {"region": services.S3_REGION, "endpoint_url": fanned.endpoint},
    }
    settings = {"version": 1, "ingest": {"topics": [fanned.topic], "queues": [queue]}}
    (folder / "kfm.yml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "kfm", "worker", "--until-idle", "--json"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    tasks = json.loads(ran.stdout)["tasks"]
    assert isinstance(tasks, dict)
    return tasks


@pytest.mark.slow
@pytest.mark.req("WAL-20")
def test_announced_objects_become_items_also_by_the_dead_letter_queue(tmp_path: Path, emulator: str) -> None:
    """Each object is taken in once: from the queue, from its dead-letter queue, and not by being repeated."""
    fanned = Fanned(emulator)
    for number in range(8):
        fanned.publish(s3_event(number))
    queue = fanned.open(fanned.url)
    for _ in range(2):  # received in vain; a third time they go to the dead-letter queue
        queue.put_back(receipts(all_of(queue, 8, 2_000)))
    assert queue.receive(10, 0) == []
    queue.close()
    for number in (7, 8, 9, 9):
        fanned.publish(s3_event(number))
    fanned.publish("rubbish")
    first = worker(tmp_path, fanned, fanned.url)
    assert (first["messages"], first["created"], first["succeeded"], first["dead"]) == (5, 3, 3, 1)
    drained = worker(tmp_path, fanned, fanned.dead_url)
    assert (drained["messages"], drained["created"], drained["duplicate"]) == (8, 7, 1)
    assert drained["succeeded"] == 7
    for url in (fanned.url, fanned.dead_url):
        asked = fanned.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert asked["ApproximateNumberOfMessages"] == asked["ApproximateNumberOfMessagesNotVisible"] == "0"
