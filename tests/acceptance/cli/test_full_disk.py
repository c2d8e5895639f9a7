"""Backups, restores and copies where a real disk is full: said by name, nothing half-made counts, and the
same command goes on once there is space."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import Called

pytestmark = pytest.mark.req("GRO-4")
Kfm = Callable[..., Called]
KIB = 1024
PLENTY_KIB = 4 * KIB * KIB  # not taken from memory before it is used


class Disk:
    """A file system of its own, whose size can be changed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mount(self, options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            pytest.skip(f"NO FULL DISK HERE, so nothing is shown about one: {done.stderr.strip()}")

    def resize(self, kib: int) -> None:
        self.mount(f"remount,size={kib}k")

    @property
    def used_kib(self) -> int:
        found = os.statvfs(self.path)
        return (found.f_blocks - found.f_bfree) * found.f_frsize // KIB

    def files(self) -> list[Path]:
        return [path for path in self.path.rglob("*") if path.is_file()]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("NO FULL DISK HERE, so nothing is shown about one: only root mounts a file system")
    path = tmp_path / "disk"
    path.mkdir()
    made = Disk(path)
    made.mount("size=64m,mode=0700")
    try:
        yield made
    finally:
        subprocess.run(["umount", "-l", str(path)], timeout=30, check=True)


@pytest.fixture
def published(kfm: Kfm, project: Path) -> Path:
    """A project with a version of a few objects, 400 KiB in all."""
    rng = random.Random(7)
    for number in range(4):
        (project / "incoming" / f"{number}.bin").write_bytes(rng.randbytes(100 * KIB))
    assert kfm("run", "--source", "daily").code == 0
    assert kfm("audit", "anchor").code == 0
    return project


def tried(kfm: Kfm, disk: Disk, sizes_kib: range, *command: str) -> list[Called]:
    """The command with more and more space, until it ends well; how it ended each time before."""
    failed: list[Called] = []
    for kib in sizes_kib:
        disk.resize(max(kib, disk.used_kib))
        called = kfm(*command)
        if called.code == 0:
            return failed
        failed.append(called)
        assert f"The disk {disk.path} is full: {disk.path}/" in called.err, (kib, called)
        assert f"Free some space on {disk.path} and run again" in called.err, called
        assert "Traceback" not in called.err
    pytest.fail(f"it never ended well: {failed[-1]}")


def test_a_backup_on_a_full_disk(kfm: Kfm, published: Path, disk: Disk) -> None:
    """At whatever file the space ends: no backup is listed; with space the same command makes one, and copies
    no object that is there already."""
    failures = []
    for kib in (64, 150, 300, 500, 700, 1200, 1700, 2300):
        disk.resize(max(kib, disk.used_kib))
        called = kfm("backup", str(disk.path))
        if called.code == 0:
            break
        failures.append(called.err)
        assert f"The disk {disk.path} is full: {disk.path}/" in called.err, (kib, called)
        assert not list(disk.path.glob("backups/*/manifest.json"))
        assert "There is no backup" in kfm("restore", str(disk.path), "--dry-run").err
    assert len(failures) >= 3
    assert len({("objects/" in one, "ledger.db" in one) for one in failures}) == 2, "only one kind of file"
    disk.resize(PLENTY_KIB)
    made = kfm("backup", str(disk.path), "--json").document
    assert made["copied"] == 0
    assert not [path for path in disk.files() if "/objects/tmp/" in str(path)]
    shutil.move(published / ".kfm", published / "lost")
    assert kfm("restore", str(disk.path)).code == 0
    assert kfm("doctor", "--deep").code == 0


def test_a_backup_of_a_state_on_a_full_disk(kfm: Kfm, project: Path, disk: Disk) -> None:
    """The state folder has no room for the ledger's copy: said, and work and the next backup go on."""
    (project / "kfm.yml").write_text((project / "kfm.yml").read_text() + f"state: {disk.path}/state\n")
    (project / "incoming" / "a.csv").write_text("gauge,level\na,1\n")
    assert kfm("run", "--source", "daily").code == 0
    used = disk.used_kib
    assert tried(kfm, disk, range(used + 100, used + 64 * KIB, 600), "backup", "safe")
    assert not [path for path in disk.files() if "backup-" in str(path)]
    assert kfm("restore", "safe", "--dry-run").code == 2  # there is a ledger already
    assert kfm("audit", "verify").code == 0


def test_a_restore_on_a_full_disk(kfm: Kfm, published: Path, disk: Disk) -> None:
    """No ledger is there before all of it is; the same command goes on with the objects that arrived."""
    assert kfm("backup", "safe").code == 0
    shutil.move(published / ".kfm", published / "lost")
    (published / "kfm.yml").write_text((published / "kfm.yml").read_text() + f"state: {disk.path}/state\n")
    failed = tried(kfm, disk, range(100, 64 * KIB, 400), "restore", "safe")
    assert len(failed) >= 3
    disk.resize(PLENTY_KIB)
    assert kfm("doctor", "--deep").code == 0
    assert kfm("audit", "verify").code == 0
    assert kfm("run", "--source", "daily").out.startswith("unchanged")


def test_a_copy_of_the_ledger_on_a_full_disk(kfm: Kfm, published: Path, disk: Disk) -> None:
    """The old ledger goes on until the new one is whole; the same command goes on, and then the old one has
    moved."""
    to = f"sqlite:{disk.path}/new.db"
    for kib in range(100, 64 * KIB, 400):
        disk.resize(max(kib, disk.used_kib))
        called = kfm("store", "copy", "--to", to, "--rationale", "A larger disk.")
        if called.code == 0:
            break
        assert f"The disk {disk.path} is full: {disk.path}/" in called.err, (kib, called)
        assert kfm("run", "--source", "daily").out.startswith("unchanged"), "the old ledger goes on"
    assert kib > 500
    disk.resize(PLENTY_KIB)
    (published / "kfm.yml").write_text(f"store: {to}\n" + (published / "kfm.yml").read_text())
    assert kfm("run", "--source", "daily").out.startswith("unchanged")
    assert kfm("audit", "verify").code == 0


def test_a_copy_of_the_objects_on_a_full_disk(kfm: Kfm, published: Path, disk: Disk) -> None:
    """What arrived is whole, and stays; the same command copies the rest."""
    command = ("store", "copy", "--objects", "--to", f"{disk.path}/objects")
    failed = tried(kfm, disk, range(60, 64 * KIB, 150), *command)
    assert len(failed) >= 2
    again = kfm(*command, "--json").document
    assert (again["copied"], again["there"] >= 4) == (0, True)
    assert not [path for path in disk.files() if "/tmp/" in str(path.relative_to(disk.path))]
