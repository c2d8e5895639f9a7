"""What is done with the data between fetching and publishing.

The same inputs must give the same outputs: read `context.inputs`, write with `context.publisher`, and
nothing else. A dry-run calls this too; then nothing that is written stays.
"""

from __future__ import annotations

from typing import Any


def publish(context: Any) -> None:
    """Publish every object as it came, and say so in the event log."""
    for entry in context.inputs:
        context.log(f"{entry.path}: {entry.size} bytes")
        context.publisher.write_file(entry.path, entry.fetched)
