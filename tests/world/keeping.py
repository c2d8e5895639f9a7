"""Worlds that were made are kept, by what they were made of; who looks at one gets a copy."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from kfm.system import FlockLiveness
from tests.world.building import inside
from tests.world.clock import served_from
from tests.world.story import NOW_MS

ROOT = Path(__file__).resolve().parents[2]
MADE_OF = ("src/kfm", "tests/world")
NOT_MADE_BY = ("src/kfm/web", "tests/world/bulk.py", "tests/world/test_world.py")  # they look at it
KEPT_MAX = 2


def digest() -> str:
    """Of everything that the world is made by."""
    found = sha256()
    for folder in MADE_OF:
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.is_file() and path.suffix != ".pyc" and not name.startswith(NOT_MADE_BY):
                found.update(f"{name}\0".encode() + sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def kept_world(note: Callable[[str], None] = lambda _line: None) -> Path:
    """The world of the present code: made once, then only copied."""
    shelf = ROOT / "build" / "worlds"
    place = shelf / digest()
    shelf.mkdir(parents=True, exist_ok=True)
    with (shelf / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes start at once
        if not place.exists():
            _make(place, note)
    return place


def _make(place: Path, note: Callable[[str], None]) -> None:
    memory = Path("/dev/shm")  # the disk is not what is looked at
    # Always the same place: tracebacks name it.
    scratch = (memory if memory.is_dir() else Path(tempfile.gettempdir())) / f"kfm-world-{place.name}"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        command = [sys.executable, "-m", "tests.world.building", str(scratch)]
        note(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip())
        fresh = place.with_name("fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(scratch, fresh, symlinks=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    os.rename(fresh, place)
    worlds = [one for one in place.parent.iterdir() if one.is_dir()]
    for old in sorted(worlds, key=lambda one: one.stat().st_mtime, reverse=True)[KEPT_MAX:]:
        shutil.rmtree(old, ignore_errors=True)


def copied_world(folder: Path, note: Callable[[str], None] = lambda _line: None) -> Path:
    """A world of one's own in `folder`, which is not there yet."""
    shutil.copytree(kept_world(note), folder, symlinks=True)
    return folder


def claim_running(folder: Path) -> FlockLiveness:
    """The process of the run that has not ended lives on in this one."""
    workers = folder / ".kfm" / "workers"
    liveness = FlockLiveness(str(workers))
    for path in workers.glob("*.alive"):
        if liveness.is_dead(path.name.removesuffix(".alive")):
            path.unlink()
            liveness.claim(path.name.removesuffix(".alive"))
    return liveness


@contextmanager
def looking_at(folder: Path, who: str = "ann") -> Iterator[None]:
    """Everything in this process is at the world's last moment, in its folder, as this person."""
    with served_from(NOW_MS, frozen=True), inside(folder, who):
        living = claim_running(folder)
        try:
            yield
        finally:
            living.close()
