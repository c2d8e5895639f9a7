"""The container and the pods of deploy/kubernetes, run: `python -m tests.container`; as root, some minutes.

Debian's tools make the base; every step of deploy/Containerfile is carried out on it. runc runs the result
as the manifests say: as their user, on a read-only file system, without capabilities, with their volumes,
each pod in a network namespace with an address of its own. PostgreSQL, buckets and a queue are on another
host, a real Prometheus on a third; probes come from the machine. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.container import containerfile
from tests.container.campaign import ROOT, Told, run

CONTAINERFILE = ROOT / "deploy" / "Containerfile"


@contextlib.contextmanager
def scratch_folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="kfm-container-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="make the file systems here; those that are there are used")
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("Namespaces and file systems of others are made by root alone.", file=sys.stderr)
        return 2
    told, began = Told(), time.monotonic()
    with scratch_folder(given.keep) as made, tempfile.TemporaryDirectory(prefix="kfm-pods-") as name:
        root = made / "image"
        if root.exists():
            image = containerfile.started_with(CONTAINERFILE.read_text(), root)
        else:
            image = containerfile.make(CONTAINERFILE, ROOT, made)
        told.facts["seconds until the image was made"] = round(time.monotonic() - began)
        try:
            run(image, Path(name), told)
        except (AssertionError, TimeoutError) as error:
            told.problems.append(str(error))
            for log in sorted(Path(name).glob("*/log")):
                print(f"--- {log.parent.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
    told.facts["seconds"] = round(time.monotonic() - began)
    print(json.dumps(asdict(told), indent=1))
    return 1 if told.problems else 0


if __name__ == "__main__":
    sys.exit(main())
