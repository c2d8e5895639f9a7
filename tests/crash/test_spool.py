"""Workers on one spool folder, killed: what they had in hand is durable, or still there."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kfm.nodd.queues.folder_queue import FolderQueue
from kfm.system import SystemClock

ROOT = Path(__file__).resolve().parents[2]
KILLS = 16
# Keeps each batch on the disk before it acknowledges, as intake does.
WORKER = """
import os, sys
from kfm.nodd.queues.folder_queue import FolderQueue
from kfm.system import SystemClock
queue = FolderQueue(sys.argv[1], SystemClock(), worker=f"w{os.getpid()}")
ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
print("ready", flush=True)
while True:
    messages = queue.receive(7, 20)
    os.write(ledger, b"".join(message.body + b"\\n" for message in messages))
    os.fsync(ledger)
    queue.acknowledge([message.receipt for message in messages])
"""


def _start(spool: Path, ledger: Path) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(spool), str(ledger)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"
    return worker


@pytest.mark.slow
@pytest.mark.req("WAL-20")
def test_killed_workers_lose_no_message(tmp_path: Path) -> None:
    """Two at a time, killed whenever: every message of every file is in the ledger in the end."""
    rng = random.Random(7)
    spool, ledger = tmp_path / "spool", tmp_path / "ledger"
    spool.mkdir()
    sent: set[str] = set()

    def send(number: int) -> None:
        lines = [json.dumps([number, line]) for line in range(rng.choice([1, 1, 1, 20]))]
        sent.update(lines)
        name = spool / f"{number % 50:03}.{'json' if len(lines) == 1 else 'jsonl'}"
        while name.exists():  # names are used again, but never while a writer may still write there
            name = name.with_stem(f"{name.stem}x")
        name.with_suffix(".tmp").write_text("\n".join(lines))
        os.rename(name.with_suffix(".tmp"), name)

    workers = [_start(spool, ledger), _start(spool, ledger)]
    try:
        for kill in range(KILLS):
            for number in range(40):
                send(40 * kill + number)
            time.sleep(rng.random() * 0.03)
            victim = rng.randrange(2)
            workers[victim].send_signal(signal.SIGKILL)
            workers[victim].communicate()
            workers[victim] = _start(spool, ledger)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    last = FolderQueue(str(spool), SystemClock(), worker="last")
    found = set(ledger.read_text().splitlines())
    while messages := last.receive(100, 0):
        found |= {message.body.decode() for message in messages}
        assert last.acknowledge([message.receipt for message in messages]) == []
    last.close()
    assert found == sent
    assert os.listdir(spool) == []
