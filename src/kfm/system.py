"""The operating system: the only real clock, randomness, ids, files, energy counters and liveness."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import resource
import threading
import time
from typing import NamedTuple

from kfm.model.energy import counter_growth

_RANDOM_BITS = 74  # what UUIDv7 leaves beside the time, the version and the variant
_FILE_MODE = 0o644
_FOLDER_MODE = 0o755
_DEAD_FILE_KEPT_SECONDS = 7 * 24 * 3600


class SystemClock:
    """Wall time for records, monotonic time for durations."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, delay_ms: int) -> None:
        if delay_ms > 0:
            time.sleep(delay_ms / 1000)


def _random_bits(count: int) -> int:
    return int.from_bytes(os.urandom((count + 7) // 8), "big") >> (-count % 8)


class SystemRng:
    """Randomness from the operating system: forked workers never share a sequence."""

    def unit(self) -> float:
        return _random_bits(53) / (1 << 53)


class SystemIds:
    """UUIDv7 text that only grows within a process, also when the clock steps back."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._last = 0

    def new(self) -> str:
        fresh = ((time.time_ns() // 1_000_000) << _RANDOM_BITS) | _random_bits(_RANDOM_BITS)
        with self._guard:
            # A leap by a random step keeps ids of one millisecond unguessable and in order.
            self._last = fresh if fresh > self._last else self._last + 1 + _random_bits(32)
            value = self._last
        unix_ms, rest = value >> _RANDOM_BITS, value & ((1 << _RANDOM_BITS) - 1)
        high, low = rest >> 62, rest & ((1 << 62) - 1)
        digits = f"{(unix_ms << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


# --- what work costs -----------------------------------------------------------------

_POWERCAP = "/sys/class/powercap"
_PACKAGE_ZONE = re.compile(r"intel-rapl:\d+")  # AMD's counters have this name, too


class ProcessMeter:
    """Processor time from the kernel; the processor's own energy counters where they may be read.

    Most systems let only root read them. Parts of a package (cores, memory) and the whole platform
    have counters of their own, which are left out: they would count the same energy twice.
    """

    def __init__(self, powercap: str = _POWERCAP) -> None:
        self._guard = threading.Lock()
        self._powercap = powercap
        self._zones: dict[str, tuple[int, int]] | None = None  # folder → (last seen, highest)
        self._counted_uj = 0

    def cpu_us(self) -> int:
        total = 0
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            for spent in (usage.ru_utime, usage.ru_stime):
                total += round(spent * 1_000_000)  # each is whole microseconds, told as seconds
        return total

    def package_uj(self) -> int | None:
        """Microjoules since the first question; None where nothing tells."""
        with self._guard:
            try:
                if self._zones is None:
                    self._zones = self._find_zones()
                for zone, (before, highest) in self._zones.items():
                    now = _whole_number(f"{zone}/energy_uj")
                    self._counted_uj += counter_growth(before, now, highest)
                    self._zones[zone] = (now, highest)
            except (OSError, ValueError):
                self._zones = {}
            return self._counted_uj if self._zones else None

    def _find_zones(self) -> dict[str, tuple[int, int]]:
        zones = {}
        for name in sorted(os.listdir(self._powercap)):
            folder = f"{self._powercap}/{name}"
            if _PACKAGE_ZONE.fullmatch(name) and _text(f"{folder}/name").startswith("package"):
                highest = _whole_number(f"{folder}/max_energy_range_uj")
                zones[folder] = (_whole_number(f"{folder}/energy_uj"), highest)
        return zones


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read(100).strip()


def _whole_number(path: str) -> int:
    return int(_text(path))


# --- files ---------------------------------------------------------------------------

# macOS: fsync alone leaves the bytes in the drive's cache, which a power cut empties.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def sync(descriptor: int) -> None:
    """What was written is on the disk when this returns."""
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that has no notion of it
                raise
    os.fsync(descriptor)


def sync_folder(path: str) -> None:
    """The names in a folder are on the disk when this returns."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems have no notion of it
            raise
    finally:
        os.close(descriptor)


class OsTrouble(NamedTuple):
    """What the operating system refused, in words: the file, its disk, and the way out where it is known."""

    text: str
    remedy: str | None


def os_trouble(error: OSError) -> OsTrouble:
    """A full or a read-only disk is named; a file without a name is a temporary one."""
    from tempfile import gettempdir  # late: rarely needed

    reason, path = error.strerror or str(error), error.filename
    if error.errno not in (*_FULL, errno.EROFS):
        return OsTrouble(f"{reason} ({path})." if path else f"{reason}.", None)
    path = os.path.abspath(os.fsdecode(path or gettempdir()))
    disk = path
    while not os.path.ismount(disk):
        disk = os.path.dirname(disk)
    if error.errno == errno.EROFS:
        return OsTrouble(
            f"The disk {disk} is read-only: {path} can't be written before it is mounted writable.",
            f"Look at why it is; then `mount -o remount,rw {disk}`, and run again.",
        )
    return OsTrouble(
        f"The disk {disk} is full: {path} can't be written before there is space.",
        f"Free some space on {disk} and run again; `kfm gc` removes what no kept version needs.",
    )


_FULL = (errno.ENOSPC, errno.EDQUOT)


class PosixWriter:
    """An unbuffered file: what was written is with the kernel, what was fsynced is on the disk."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            error.filename = self._path  # a descriptor has no name
            raise

    def fsync(self) -> None:
        try:
            sync(self._descriptor)
        except OSError as error:
            error.filename = self._path
            raise

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class PosixReader:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, size: int) -> bytes:
        return os.read(self._descriptor, size)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class PosixFiles:
    """The real disk. An fsync that fails is never tried again: the kernel has dropped the pages."""

    def create(self, path: str) -> PosixWriter:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return PosixWriter(os.open(path, flags, _FILE_MODE), path)

    def open(self, path: str) -> PosixReader:
        return PosixReader(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def touch(self, path: str) -> None:
        os.utime(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        missing: list[str] = []
        folder = os.path.abspath(path)
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        # The process that made the deepest existing folder may have died before its entry was durable.
        with contextlib.suppress(PermissionError):
            self.fsync_dir(os.path.dirname(folder))
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, _FOLDER_MODE)
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
            self.fsync_dir(os.path.dirname(folder))

    def mkdir(self, path: str) -> None:
        os.mkdir(path, _FOLDER_MODE)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new, follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, path)

    def readlink(self, path: str) -> str:
        return os.readlink(path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        sync_folder(path)


# --- liveness ------------------------------------------------------------------------

_WORKER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def _boot_id() -> str:
    """Which start of which machine this is; empty where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


class FlockLiveness:
    """A file per worker, locked for as long as its process exists, stopped or not.

    The kernel frees the lock at the moment of death, so a crash need not wait for
    its lease. A file of another machine or another boot tells nothing: locks do not
    travel over every network file system.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}
        os.register_at_fork(after_in_child=self._forget)

    def claim(self, worker_id: str) -> None:
        """Show that this process is alive for as long as it is."""
        if worker_id in self._held:
            return
        path = self._path(worker_id)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._sweep()
        # Locked before it gets its name: under its name it is never seen unlocked while we live.
        fresh = f"{path}.{os.urandom(8).hex()}"
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, _boot_id().encode("ascii"))
            os.link(fresh, path)  # refuses a name that is taken
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            os.unlink(fresh)
        self._held[worker_id] = descriptor

    def is_dead(self, worker_id: str) -> bool:
        """True only if surely dead; False when alive or unknown."""
        try:
            descriptor = os.open(self._path(worker_id), os.O_RDWR | os.O_CLOEXEC)
        except (OSError, ValueError):
            return False
        try:
            if os.read(descriptor, 100).decode("ascii", "replace") != _boot_id():
                return False
            # Shared, so that two who ask at once do not take each other for the owner.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        else:
            return True
        finally:
            os.close(descriptor)

    def release(self, worker_id: str) -> None:
        """A tidy goodbye: the file goes too. Only for a worker that holds nothing any more."""
        descriptor = self._held.pop(worker_id, None)
        if descriptor is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(worker_id))
            os.close(descriptor)

    def close(self) -> None:
        for worker_id in list(self._held):
            self.release(worker_id)

    def _path(self, worker_id: str) -> str:
        if not _WORKER_ID.fullmatch(worker_id):
            raise ValueError(f"not a worker id: {worker_id!r}")
        return os.path.join(self._folder, f"{worker_id}.alive")

    def _sweep(self) -> None:
        """Remove files of the long dead. The recently dead stay: others may still ask for them."""
        horizon = time.time() - _DEAD_FILE_KEPT_SECONDS
        for entry in os.scandir(self._folder):
            with contextlib.suppress(OSError):
                if entry.stat().st_mtime < horizon and self._unlocked(entry.path):
                    os.unlink(entry.path)

    @staticmethod
    def _unlocked(path: str) -> bool:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        else:
            return True
        finally:
            os.close(descriptor)

    def _forget(self) -> None:
        """In a forked child: drop our share of the locks, which stay with the parent."""
        for descriptor in self._held.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._held = {}
