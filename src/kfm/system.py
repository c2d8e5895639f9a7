"""The operating system: the only real clock, randomness, ids, files, energy counters and liveness."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import stat
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from kfm.model.energy import counter_growth
from kfm.model.patterns import late

_RANDOM_BITS = 74  # what UUIDv7 leaves beside the time, the version and the variant
_FILE_MODE = 0o644
_FOLDER_MODE = 0o755
ALIVE = ".alive"
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
_PACKAGE_ZONE = late(r"intel-rapl:\d+")  # AMD's counters have this name, too


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


_HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_LINKS_MAX = 40
_PERHAPS_LINK = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)  # Linux, Linux for folders, BSD


class OutsideFolder(OSError):
    """A link leads out of the folder below which everything has to be."""


def open_below(folder: str, relpath: str, flags: int = os.O_RDONLY) -> tuple[int, os.stat_result]:
    """A descriptor of what stands below a folder, and the status of the folder that it stands in.

    The way is walked part by part from a handle, so that a rename meanwhile can't lead it elsewhere. A link
    may lead to another place below the folder: it is read, and its parts are walked in the same way.
    """
    stack = [os.open(folder, _HANDLE)]
    parts = relpath.split("/")[::-1]
    links = 0
    try:
        while parts:
            part = parts.pop()
            if part == "..":
                if len(stack) == 1:
                    raise OutsideFolder(errno.EXDEV, "it leads out of the folder", relpath)
                os.close(stack.pop())
            elif part not in ("", "."):
                wanted = flags | os.O_CLOEXEC if not parts else _HANDLE
                try:
                    # A name that became a pipe meanwhile is not waited for.
                    found = os.open(part, wanted | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=stack[-1])
                except OSError as error:
                    target = _link_target(part, stack[-1], error)
                    links += 1
                    if links > _LINKS_MAX:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), relpath) from None
                    if target.startswith("/"):
                        if not target.startswith(f"{folder.rstrip('/')}/"):
                            raise OutsideFolder(errno.EXDEV, "it leads out of the folder", relpath) from None
                        target = target[len(folder.rstrip("/")) :]
                        while len(stack) > 1:
                            os.close(stack.pop())
                    parts += target.split("/")[::-1]
                    continue
                if not parts:
                    return found, os.stat(stack[-1])
                stack.append(found)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), relpath)
    finally:
        for each in stack:
            os.close(each)


def _link_target(name: str, folder: int, error: OSError) -> str:
    """What the link says; the error again if it is none."""
    if error.errno in _PERHAPS_LINK:
        with contextlib.suppress(OSError):
            return os.readlink(name, dir_fd=folder)
    raise error


class PosixFiles:
    """The real disk. An fsync that fails is never tried again: the kernel has dropped the pages."""

    _folder: str | None = None  # below it, no link on the way is followed
    _file_mode, _folder_mode = _FILE_MODE, _FOLDER_MODE

    def private(self) -> PosixFiles:
        """The same disk; what is made on it is for its owner alone."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__, _file_mode=0o600, _folder_mode=0o700)
        return bound

    def below(self, folder: str) -> PosixFiles:
        """The same disk, on which whatever is below this folder is reached from a handle of it.

        A link in place of a folder or a file there is an error, never a way to somewhere else.
        """
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__, _folder=folder.rstrip("/"))
        return bound

    def create(self, path: str) -> PosixWriter:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with self._at(path) as (folder, name):
            return PosixWriter(os.open(name, flags, self._file_mode, dir_fd=folder), path)

    def open(self, path: str) -> PosixReader:
        with self._at(path) as (folder, name):
            if folder is None:
                return PosixReader(os.open(name, os.O_RDONLY | os.O_CLOEXEC))
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            try:
                return PosixReader(os.open(name, flags, dir_fd=folder))
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.EMLINK):
                    raise FileNotFoundError(errno.ENOENT, "it is a link, and no file", path) from None
                raise

    def exists(self, path: str) -> bool:
        try:
            with self._at(path) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, path: str) -> int:
        return self._stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return self._stat(path).st_mtime_ns // 1_000_000

    def times_ns(self, path: str) -> tuple[int, int]:
        found = self._stat(path)
        return found.st_mtime_ns, found.st_ctime_ns

    def touch(self, path: str) -> None:
        with self._at(path) as (folder, name):
            os.utime(name, dir_fd=folder, follow_symlinks=folder is None)

    def listdir(self, path: str) -> list[str]:
        with self._handle(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as folder:
            return sorted(os.listdir(folder))

    def make_dirs(self, path: str) -> None:
        parts = self._parts(path)
        if parts is None:
            self._make_dirs(path)
            return
        assert self._folder is not None
        self._make_dirs(self._folder)
        place = self._folder
        for part in parts:
            with contextlib.suppress(FileExistsError):
                self.mkdir(f"{place}/{part}")
            self.fsync_dir(place)  # also where it was there: its maker may have died before this
            place = f"{place}/{part}"
        with self._handle(place, _HANDLE):
            pass  # it is a folder, and no link to one

    def _make_dirs(self, path: str) -> None:
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
                os.mkdir(folder, self._folder_mode)
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
            self.fsync_dir(os.path.dirname(folder))

    def mkdir(self, path: str) -> None:
        with self._at(path) as (folder, name):
            os.mkdir(name, self._folder_mode, dir_fd=folder)

    def rename(self, old: str, new: str) -> None:
        with self._at(old) as (source, name), self._at(new) as (folder, fresh):
            os.rename(name, fresh, src_dir_fd=source, dst_dir_fd=folder)

    def link(self, old: str, new: str) -> None:
        with self._at(old) as (source, name), self._at(new) as (folder, fresh):
            os.link(name, fresh, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        with self._at(path) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    def readlink(self, path: str) -> str:
        with self._at(path) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def unlink(self, path: str) -> None:
        with self._at(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def rmdir(self, path: str) -> None:
        with self._at(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def fsync_dir(self, path: str) -> None:
        with self._handle(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as folder:
            try:
                sync(folder)
            except OSError as error:
                if error.errno != errno.EINVAL:  # some file systems have no notion of it
                    raise

    # --- the way to a path -----------------------------------------------------------

    def _stat(self, path: str) -> os.stat_result:
        with self._at(path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=folder is None)

    def _parts(self, path: str) -> list[str] | None:
        """The names on the way from our folder; None for a path that is not below it."""
        if self._folder is None or not f"{path}/".startswith(f"{self._folder}/"):
            return None
        return [part for part in path[len(self._folder) :].split("/") if part]

    @contextlib.contextmanager
    def _at(self, path: str) -> Iterator[tuple[int | None, str]]:
        """The handle of the folder that holds it, and its name there; elsewhere, the path itself."""
        parts = self._parts(path)
        if not parts:
            yield None, path
            return
        assert self._folder is not None
        with self._handle("/".join((self._folder, *parts[:-1])), _HANDLE) as folder:
            try:
                yield folder, parts[-1]
            except OSError as error:
                error.filename = path  # the name alone says little
                raise

    @contextlib.contextmanager
    def _handle(self, path: str, flags: int) -> Iterator[int]:
        """An open folder, reached without a link below ours."""
        parts = self._parts(path)
        handle = os.open(path if not parts else self._folder or "/", flags if not parts else _HANDLE)
        try:
            for index, part in enumerate(parts or ()):
                is_last = parts is not None and index == len(parts) - 1
                try:
                    inner = os.open(part, (flags if is_last else _HANDLE) | os.O_NOFOLLOW, dir_fd=handle)
                except OSError as error:
                    if error.errno in _PERHAPS_LINK and _is_link(part, handle):
                        raise OSError(errno.ELOOP, f"{part} is a link, and is not followed", path) from None
                    error.filename = path
                    raise
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


# --- liveness ------------------------------------------------------------------------

_WORKER_ID = late(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


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

    def dead(self) -> list[str]:
        """All that surely are, as far as their files are still there."""
        with contextlib.suppress(FileNotFoundError):
            names = [name.removesuffix(ALIVE) for name in os.listdir(self._folder) if name.endswith(ALIVE)]
            return sorted(filter(self.is_dead, names))
        return []

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
        return os.path.join(self._folder, f"{worker_id}{ALIVE}")

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
