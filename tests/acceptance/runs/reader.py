"""Reads a published dataset over and over, as a careful reader does, and tells what it saw.

    python reader.py DATASET_FOLDER STOP_FILE

It resolves `current` once, then reads everything of that version and compares it with its manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tests.published import items_in

PROBLEMS_MAX = 20


def read_version(folder: Path) -> list[str]:
    """What is wrong with one version, seen from outside."""
    data = (folder / "manifest.json").read_bytes()
    problems = []
    short = folder.name.partition("-")[2]
    if not hashlib.sha256(data).hexdigest().startswith(short):
        problems.append(f"{folder.name}: the manifest is that of another version")
    root, items = json.loads(data), items_in(folder)
    files = [one for item in items for one in item.files]
    if (root["items"]["count"], root["files"]["count"]) != (len(items), len(files)):
        problems.append(f"{folder.name}: the manifest counts others than the catalogue lists")
    for one in files:
        content = (folder / "data" / one.path).read_bytes()
        if hashlib.sha256(content).hexdigest() != one.sha256 or len(content) != one.size:
            problems.append(f"{folder.name}: {one.path} has other bytes")
    json.loads((folder / "dcat.jsonld").read_bytes())
    found = {
        str(path.relative_to(folder / "data")) for path in (folder / "data").rglob("*") if path.is_file()
    }
    if found != {one.path for one in files}:
        problems.append(f"{folder.name}: it holds {sorted(found)}")
    return problems


def main() -> int:
    dataset, stop = Path(sys.argv[1]), Path(sys.argv[2])
    reads, newest, seen, problems = 0, 0, set(), []
    while True:
        last_look = stop.exists()
        try:
            version = os.readlink(dataset / "current")
        except FileNotFoundError:
            version = ""
            if newest:
                problems.append("current has gone")
        if version:
            sequence = int(version.rpartition("/")[2].partition("-")[0])
            if sequence < newest:
                problems.append(f"{sequence} after {newest}")
            newest = max(newest, sequence)
            seen.add(sequence)
            try:
                problems += read_version(dataset / version)
            except (OSError, ValueError, KeyError) as error:
                problems.append(f"{version}: {type(error).__name__}: {error}")
            reads += 1
        if last_look or len(problems) >= PROBLEMS_MAX:
            break
    print(json.dumps({"reads": reads, "newest": newest, "versions": len(seen), "problems": problems}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
