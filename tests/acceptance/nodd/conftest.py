"""A project with a spool, and a worker that empties it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.nodd.worker_loop import WorkerCounts, WorkerOptions, run_worker

SPOOL = "version: 1\ningest:\n  queues: [{name: spool, kind: folder, path: spool}]\n"

Worked = Callable[..., Any]


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@pytest.fixture
def worked(spool: Path) -> Worked:
    """Works the spool off, with more lines under `ingest:`; the application and what was done."""

    @contextmanager
    def work(more: str = "") -> Iterator[tuple[Any, WorkerCounts]]:
        config = spool.parent / "kfm.yml"
        config.write_text(SPOOL + more)
        with open_app(load(str(config))) as app:
            yield app, run_worker(app, WorkerOptions(mode="until-idle"), threading.Event()).tasks

    return work
