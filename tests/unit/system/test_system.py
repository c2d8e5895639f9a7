"""The real clock, ids, files and liveness."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from kfm import system
from kfm.periodic import PeriodicTask, run_due
from kfm.system import (
    FlockLiveness,
    PosixFiles,
    SystemClock,
    SystemIds,
    SystemRng,
)

HOLDER = """
import sys, time
from kfm.system import FlockLiveness
liveness = FlockLiveness(sys.argv[1])
liveness.claim("w1")
{more}
print("claimed", flush=True)
time.sleep(60)
"""


def test_ids_are_uuid7_in_order():
    """Ids are version 7, unique and ascending, also from several threads."""
    ids = SystemIds()
    made = [ids.new() for _ in range(2000)]
    assert made == sorted(set(made))
    assert {uuid.UUID(one).version for one in made} == {7}
    assert {uuid.UUID(one).variant for one in made} == {uuid.RFC_4122}
    both: list[str] = []
    threads = [threading.Thread(target=lambda: both.extend(ids.new() for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(both)) == 2000


def test_ids_survive_a_clock_that_steps_back(monkeypatch):
    """A clock set back does not make ids go back."""
    ids = SystemIds()
    before = ids.new()
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)
    assert ids.new() > before


def test_clock_and_rng():
    """Times are in milliseconds; chance lies in [0, 1)."""
    clock = SystemClock()
    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()
    clock.sleep_ms(-5)
    assert all(0 <= SystemRng().unit() < 1 for _ in range(100))


def test_files(tmp_path):
    """The file calls do what their names say, and refuse what would overwrite."""
    files, root = PosixFiles(), str(tmp_path)
    files.make_dirs(f"{root}/a/b")
    files.make_dirs(f"{root}/a/b")
    writer = files.create(f"{root}/a/b/f")
    writer.write(b"x" * 100_000)
    writer.fsync()
    writer.close()
    writer.close()
    with pytest.raises(FileExistsError):
        files.create(f"{root}/a/b/f")
    assert files.size(f"{root}/a/b/f") == 100_000
    assert (os.stat(f"{root}/a/b/f").st_mode & 0o777, os.stat(f"{root}/a").st_mode & 0o777) == (0o644, 0o755)
    reader = files.open(f"{root}/a/b/f")
    assert reader.read(3) == b"xxx"
    reader.close()
    files.link(f"{root}/a/b/f", f"{root}/a/g")
    with pytest.raises(FileExistsError):
        files.link(f"{root}/a/b/f", f"{root}/a/g")
    files.symlink("nowhere", f"{root}/a/link")
    assert files.exists(f"{root}/a/link")
    assert files.readlink(f"{root}/a/link") == "nowhere"
    files.rename(f"{root}/a/g", f"{root}/a/h")
    assert files.listdir(f"{root}/a") == ["b", "h", "link"]
    files.mkdir(f"{root}/d")
    files.fsync_dir(f"{root}/d")
    files.rmdir(f"{root}/d")
    files.unlink(f"{root}/a/h")
    assert not files.exists(f"{root}/a/h")
    with pytest.raises(NotADirectoryError):
        files.make_dirs(f"{root}/a/b/f/deeper")


def test_files_below_a_folder_follow_no_link(tmp_path):
    """Below a folder the calls do the same, and a link in place of a folder is no way to anywhere."""
    root, outside = f"{tmp_path}/tree", tmp_path / "outside"
    (outside / "in").mkdir(parents=True)
    (outside / "in/f").write_text("theirs")
    files = PosixFiles().below(root)
    files.make_dirs(f"{root}/a/b")
    writer = files.create(f"{root}/a/b/f")
    writer.write(b"ours")
    writer.close()
    files.link(f"{root}/a/b/f", f"{root}/a/g")
    files.link(str(outside / "in/f"), f"{root}/a/h")
    files.touch(f"{root}/a/g")
    assert (files.size(f"{root}/a/g"), files.listdir(f"{root}/a")) == (4, ["b", "g", "h"])
    assert files.modified_ms(f"{root}/a/g") > 0
    files.rename(f"{root}/a/g", f"{root}/a/i")
    files.symlink("b", f"{root}/a/link")
    assert files.readlink(f"{root}/a/link") == "b"
    assert (files.exists(f"{root}/a/link"), files.exists(f"{root}/a/b/f/x"), files.exists(f"{root}/z/y")) == (
        True,
        False,
        False,
    )
    os.symlink(outside, f"{root}/out")
    os.symlink(outside / "in/f", f"{root}/file")
    for refused in (
        lambda: files.open(f"{root}/out/in/f"),
        lambda: files.create(f"{root}/out/new"),
        lambda: files.listdir(f"{root}/out"),
        lambda: files.make_dirs(f"{root}/out/new"),
        lambda: files.make_dirs(f"{root}/out"),
        lambda: files.mkdir(f"{root}/out/new"),
        lambda: files.rename(f"{root}/a", f"{root}/out/a"),
        lambda: files.unlink(f"{root}/out/in/f"),
        lambda: files.rmdir(f"{root}/out/in"),
        lambda: files.fsync_dir(f"{root}/out"),
        lambda: files.symlink("x", f"{root}/out/x"),
        lambda: files.touch(f"{root}/a/link/f"),
    ):
        with pytest.raises(OSError, match="is a link, and is not followed"):
            refused()
    with pytest.raises(FileNotFoundError, match="it is a link"):
        files.open(f"{root}/file")
    files.unlink(f"{root}/out")
    assert sorted(os.listdir(outside)) == ["in"]
    assert files.open(f"{root}/a/b/f").read(9) == b"ours"


def test_make_dirs_is_durable(tmp_path, monkeypatch):
    """Every new folder's parent is synced, and that of the folder found there: its maker may have died."""
    synced: list[str] = []
    monkeypatch.setattr(PosixFiles, "fsync_dir", lambda self, path: synced.append(path))
    PosixFiles().make_dirs(f"{tmp_path}/a/b")
    assert synced == [str(tmp_path.parent), str(tmp_path), f"{tmp_path}/a"]
    synced.clear()
    PosixFiles().make_dirs(f"{tmp_path}/a/b")
    assert synced == [f"{tmp_path}/a"]


# --- liveness ------------------------------------------------------------------------


@pytest.fixture
def holder(tmp_path):
    """Starts a process that has claimed `w1`."""
    started = []

    def start(more: str = "") -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER.replace("{more}", more), str(tmp_path)], stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"claimed\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_killed_process_is_dead_at_once(holder, tmp_path):
    """A process is alive while it runs or is stopped, and dead the moment it is killed."""
    process = holder()
    liveness = FlockLiveness(str(tmp_path))
    assert not liveness.is_dead("w1")
    process.send_signal(signal.SIGSTOP)
    assert not liveness.is_dead("w1")
    liveness.claim("me")
    assert liveness.dead() == FlockLiveness(str(tmp_path / "nowhere")).dead() == []
    process.kill()
    process.wait()
    assert liveness.is_dead("w1")
    assert liveness.is_dead("w1")
    assert liveness.dead() == ["w1"]
    assert FlockLiveness(str(tmp_path)).is_dead("w1")


def test_children_do_not_keep_it(holder, tmp_path):
    """A program that the worker started, and that outlives it, does not make it look alive."""
    process = holder(
        "import subprocess; child = subprocess.Popen(['sleep', '30'], close_fds=False)\n"
        "print(child.pid, file=open(sys.argv[1] + '/pid', 'w'))"
    )
    child = int((tmp_path / "pid").read_text())
    try:
        process.kill()
        process.wait()
        os.kill(child, 0)  # still there
        assert FlockLiveness(str(tmp_path)).is_dead("w1")
    finally:
        os.kill(child, signal.SIGKILL)


def test_forked_child_does_not_keep_it(holder, tmp_path):
    """Nor does a child that was only forked."""
    process = holder(
        "import os; here, there = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.write(there, str(os.getpid()).encode()); time.sleep(30); os._exit(0)\n"
        "open(sys.argv[1] + '/pid', 'wb').write(os.read(here, 20))"
    )
    child = int((tmp_path / "pid").read_text())
    try:
        process.kill()
        process.wait()
        assert FlockLiveness(str(tmp_path)).is_dead("w1")
    finally:
        os.kill(child, signal.SIGKILL)


def test_unknown_is_not_dead(tmp_path):
    """A worker that is not known here, or of another boot, is not declared dead."""
    liveness = FlockLiveness(str(tmp_path / "workers"))
    assert not liveness.is_dead("never-seen")
    assert not liveness.is_dead("../../etc/passwd")
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "other.alive").write_text("another-boot")
    assert not liveness.is_dead("other")


def test_own_claim(tmp_path):
    """One's own worker is alive until released; then its file is gone."""
    liveness = FlockLiveness(str(tmp_path))
    liveness.claim("me")
    liveness.claim("me")
    assert not liveness.is_dead("me")
    assert [path.name for path in tmp_path.iterdir()] == ["me.alive"]
    with pytest.raises(FileExistsError):
        FlockLiveness(str(tmp_path)).claim("me")
    liveness.close()
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_long_dead_are_swept(holder, tmp_path):
    """Old files of the dead go at the next claim; those of the living stay, however old."""
    process = holder()
    os.utime(tmp_path / "w1.alive", (0, 0))
    liveness = FlockLiveness(str(tmp_path))
    liveness.claim("w2")
    assert (tmp_path / "w1.alive").exists()
    process.kill()
    process.wait()
    liveness.claim("w3")
    assert not (tmp_path / "w1.alive").exists()
    liveness.close()


def test_a_failing_task_keeps_no_other_from_its_turn() -> None:
    """Every task that is due runs once per interval; failures come back with their task."""
    seen: list[str] = []

    def fails() -> None:
        seen.append("a")
        raise ValueError("odd")

    tasks = [PeriodicTask("a", 1_000, fails), PeriodicTask("b", 2_000, lambda: seen.append("b"))]
    assert [(failure.task.name, str(failure.error)) for failure in run_due(tasks, 0)] == [("a", "odd")]
    assert run_due(tasks, 999) == []
    run_due(tasks, 1_000)
    run_due(tasks, 1_001, everything=True)
    assert seen == ["a", "b", "a", "a", "b"]


@pytest.mark.req("UPD-7")
def test_what_is_synced_is_on_the_disk_also_on_a_mac(tmp_path, monkeypatch):
    """Where the platform has F_FULLFSYNC, files and folders are synced with it; where a file system has no
    notion of it, with fsync."""
    asked, synced = [], []
    monkeypatch.setattr(system, "_FULL_SYNC", 51)
    monkeypatch.setattr(system.fcntl, "fcntl", lambda descriptor, what: asked.append(what))
    monkeypatch.setattr(os, "fsync", synced.append)
    writer = PosixFiles().create(str(tmp_path / "a"))
    writer.write(b"x")
    writer.fsync()
    writer.close()
    PosixFiles().fsync_dir(str(tmp_path))
    assert (asked, synced) == ([51, 51], [])

    def refuses(_descriptor, _what):
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(system.fcntl, "fcntl", refuses)
    PosixFiles().fsync_dir(str(tmp_path))
    assert len(synced) == 1


@pytest.mark.req("UPD-7")
def test_only_one_place_syncs():
    """Whatever is made durable goes through `kfm.system.sync`: a plain fsync is not enough everywhere."""
    source = Path(system.__file__).parent
    plain = [path for path in source.rglob("*.py") if "os.fsync(" in path.read_text()]
    assert plain == [Path(system.__file__)]
