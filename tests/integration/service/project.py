"""A small project with real files, and the service's threads around its ledger."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from kfm.app import App
from kfm.config.loader import Loaded, load
from kfm.model.keys import request_id, webhook_key
from kfm.model.records import Trigger
from kfm.model.requests import UpdateRequest

DAY_MS = 86_400_000
START_MS = 1_767_225_600_000  # 2026-01-01
CONFIG = """\
version: 1
datasets:
  - id: rivers
    title: Rivers
    rights:
      license: CC0-1.0
      attribution: The people of Kansas
      care: {label: Public, level: public}
sources:
  - id: river
    dataset: rivers
    kind: files
    folder: incoming
    webhook: {secrets: ["env:RIVER_SECRET"]%s}
"""
SECONDS_MAX = 30.0


def make(folder: Path, webhook: str = "", more: str = "") -> Loaded:
    (folder / "incoming").mkdir(parents=True)
    (folder / "incoming" / "a.csv").write_text("day,flow\n1,2\n")
    (folder / "kfm.yml").write_text(CONFIG % webhook + more)
    return load(str(folder / "kfm.yml"))


def asked(name: str, **more: object) -> UpdateRequest:
    """A webhook's request, as the web hands it on."""
    key = webhook_key(Trigger(type="webhook", source_id="river", dataset_id="rivers", request_uuid=name))
    given = {
        "request_id": request_id(key),
        "key": key,
        "kind": "webhook",
        "source_id": "river",
        "dataset_id": "rivers",
        "window_start_ms": START_MS,
        "window_end_ms": START_MS + DAY_MS,
        "actor": "webhook:river",
        "accepted_at_ms": START_MS + DAY_MS,
        "request_uuid": name,
        "envelope_hash": "sha256:" + "e" * 64,
        "details": {"signature": "valid", "reason": "source.updated"},
        **more,
    }
    return UpdateRequest(**given)  # type: ignore[arg-type]


def opened(loaded: Loaded) -> App:
    return App(loaded, read_only=False, progress=None)


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Threads take their time; a promise that is not kept within it is broken."""
    ends = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < ends, what
        time.sleep(0.01)
