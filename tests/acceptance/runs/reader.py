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

PROBLEMS_MAX = 20


def read_version(folder: Path) -> list[str]:
    """What is wrong with one version, seen from outside."""
    data = (folder / "manifest.json").read_bytes()
    problems = []
    short = folder.name.partition("-")[2]
    if not hashlib.sha256(data).hexdigest().startswith(short):
        problems.append(f"{folder.name}: the manifest is that of another version")
    items = json.loads(data)["items"]
    assets = [asset for item in items for asset in item["assets"]]
    for asset in assets:
        content = (folder / "data" / asset["path"]).read_bytes()
        if hashlib.sha256(content).hexdigest() != asset["sha256"] or len(content) != asset["size"]:
            problems.append(f"{folder.name}: {asset['path']} has other bytes")
    for name in ("collection.json", "dcat.jsonld", *(f"items/{item['id']}.json" for item in items)):
        json.loads((folder / name).read_bytes())
    found = {
        str(path.relative_to(folder / "data")) for path in (folder / "data").rglob("*") if path.is_file()
    }
    if found != {asset["path"] for asset in assets}:
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
            sequence = int(version.removeprefix("versions/").partition("-")[0])
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
