"""The version of what a pipeline puts out: declared, or a hash of the pipeline's own files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kfm.core.canonical import canonical_bytes
from kfm.core.settings import Source

# What decides which bytes come out. Not the contract (it says what may pass), not the
# credentials, not the schedule.
_DECISIVE = (
    "dataset", "kind", "mode", "path", "folder", "pattern", "url", "params", "pagination",
    "bucket", "prefix", "members",
)  # fmt: skip


def output_version(source: Source, members: Sequence[Source], read: Callable[[str], bytes]) -> str:
    if source.output_version is not None:
        return source.output_version
    document = {
        "kfm": "output/1",
        "sources": [_definition(each) for each in (source, *members)],
        "files": [
            _digest(read(each.pipeline.rpartition(":")[0])) for each in (source, *members) if each.pipeline
        ],
    }
    return "auto-" + hashlib.sha256(canonical_bytes(document)).hexdigest()[:16]


def _definition(source: Source) -> dict[str, Any]:
    plain = msgspec.to_builtins(source)
    return {name: plain[name] for name in _DECISIVE}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
