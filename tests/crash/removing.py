"""As `child.py`, with the requests to buckets watched, too: for commands that change what is published.

    python removing.py NOTE PHASE NUMBER SIGNAL withdraw levels …

Such a command is no run, so all of it is the phase `start`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import child  # beside this file: it is run by its path

CHANGING = ("put", "put_stream", "delete")
READING = ("get", "head")


def watch_buckets(meter: child.Meter) -> None:
    from kfm.objects.bucket_client import ObstoreBucket

    for name in (*CHANGING, *READING):
        setattr(ObstoreBucket, name, _watched(meter, name, getattr(ObstoreBucket, name)))


def _watched(meter: child.Meter, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **options: Any) -> Any:
        meter.tick(f"before a {name}")
        result = call(*args, **options)
        if name in CHANGING:
            meter.tick(f"after a {name}")
        return result

    return watched


if __name__ == "__main__":
    child.watch_network = watch_buckets
    sys.exit(child.main())
