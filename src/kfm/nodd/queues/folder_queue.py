"""A spool folder as a queue: each file, or each line of a `.jsonl` file, is a message."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import heapq
import itertools
import os
import re
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kfm.model.errors import BackendUnavailable, ConfigError
from kfm.nodd.queues.line_stream import MESSAGE_BYTES_MAX
from kfm.ports import Clock, QueueMessage
from kfm.system import sync_folder

NAMES_MAX = 10_000  # of a folder with millions, so many are sorted at once
HELD_MAX = 256  # files that are open at once
POLL_MS = 250
VISIBILITY_MS = 60_000
LEAVING = ".leaving-"
_WORKER = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class FolderQueue:
    """Messages in one folder, in the order of their names. Sub-folders and links are not looked at."""

    def __init__(
        self,
        folder: str,
        clock: Clock,
        *,
        worker: str,
        name: str = "folder",
        done_folder: str | None = None,
        visibility_ms: int = VISIBILITY_MS,
    ) -> None:
        """`worker` is this process alone. Acknowledged files are removed, or moved into `done_folder`,
        which is on the same file system. What is neither acknowledged nor put back within `visibility_ms`
        comes again, also to this process."""
        if _WORKER.match(worker) is None:
            raise ValueError("a worker's name is letters, digits, - and _")
        self._folder = folder
        self._done = done_folder
        self._clock = clock
        self._name = name
        self._visibility_ms = visibility_ms
        self._worker = worker
        self._leaving = os.path.join(folder, LEAVING + worker)
        self._numbers = itertools.count(1)
        self._held: dict[str, Spooled] = {}
        self._names: deque[str] = deque()
        self._unreadable: str | None = None
        for each in (folder, done_folder):
            if each is not None and not os.access(each, os.R_OK | os.W_OK | os.X_OK):
                raise ConfigError(
                    f"The folder {each} is not there, or can't be read and written.",
                    remedy="Make it, and let kfm write in it: messages that are done leave it.",
                )

    @property
    def name(self) -> str:
        return self._name

    @property
    def ended(self) -> bool:
        return True

    def receive(self, limit: int, wait_ms: int) -> list[QueueMessage]:
        until_ms = self._clock.monotonic_ms() + wait_ms
        while True:
            with self._explained():
                messages = self._gathered(limit)
            left_ms = until_ms - self._clock.monotonic_ms()
            if messages or left_ms <= 0:
                if not messages and self._unreadable is not None:
                    raise self._trouble(f"{self._unreadable} can't be read", "Let kfm read all files in it.")
                return messages
            self._clock.sleep_ms(min(POLL_MS, left_ms))

    def acknowledge(self, receipts: Sequence[str]) -> list[str]:
        unknown = []
        spent: dict[str, Spooled] = {}
        for receipt in receipts:
            serial, _, part = receipt.partition(":")
            held = self._held.get(serial)
            if held is None or not held.acknowledge(part):
                unknown.append(receipt)
            elif held.is_spent:
                spent[serial] = held
        if spent:
            with self._explained():
                self._finish(spent)
        return unknown

    def put_back(self, receipts: Sequence[str]) -> None:
        """A file of which nothing is done yet is let go; of others the lines come again from here."""
        touched = {}
        for receipt in reversed(receipts):
            serial, _, part = receipt.partition(":")
            held = self._held.get(serial)
            if held is not None:
                held.put_back(part)
                touched[serial] = held
        for serial, held in touched.items():
            if held.is_untouched:
                self._release(serial)
                self._names.appendleft(held.name)

    def close(self) -> None:
        for serial in list(self._held):
            self._release(serial)
        with contextlib.suppress(OSError):
            os.rmdir(self._leaving)

    # --- receiving -------------------------------------------------------------------

    def _gathered(self, limit: int) -> list[QueueMessage]:
        messages: list[QueueMessage] = []
        now_ms = self._clock.monotonic_ms()
        lapsed = [f"{serial}:{part}" for serial, held in self._held.items() for part in held.lapsed(now_ms)]
        self.put_back(lapsed)
        for serial, held in list(self._held.items()):
            if len(messages) < limit:
                messages += self._taken(serial, held, limit - len(messages))
        files = self._files() if len(messages) < limit else iter(())
        for held in files:
            serial = str(next(self._numbers))
            self._held[serial] = held
            messages += self._taken(serial, held, limit - len(messages))
            if len(messages) >= limit or len(self._held) >= HELD_MAX:
                break
        return messages

    def _taken(self, serial: str, held: Spooled, limit: int) -> list[QueueMessage]:
        messages = [
            QueueMessage(
                receipt=f"{serial}:{part.number}",
                body=body,
                message_id=held.shown if part.number is None else f"{held.shown}:{part.number}",
                receives=part.receives,
            )
            for part, body in held.take(limit, self._clock.monotonic_ms() + self._visibility_ms)
        ]
        if not messages and held.is_spent:  # nothing but blank lines
            if held.size:
                self._finish({serial: held})
            else:
                self._release(serial)  # perhaps it is about to be written
        return messages

    def _files(self) -> Iterator[Spooled]:
        """Files that no process has locked, in the order of their names."""
        for scanned in (False, True):
            if scanned:
                self._scan()
            while self._names and len(self._held) < HELD_MAX:
                held = self._opened(self._names.popleft())
                if held is not None:
                    yield held
            if self._names:
                return

    def _scan(self) -> None:
        ours = {held.name for held in self._held.values()}
        found: list[str] = []
        self._unreadable = None
        with os.scandir(self._folder) as entries:
            names = (
                entry.name
                for entry in self._swept(entries)
                if entry.name not in ours and entry.is_file(follow_symlinks=False)
            )
            found = heapq.nsmallest(NAMES_MAX, names)
        self._names = deque(found)

    def _swept(self, entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        """Without files that are no messages; files that a dead worker had moved aside come back."""
        for entry in entries:
            if entry.name.startswith(LEAVING) and entry.name != LEAVING + self._worker:
                self._bring_back(entry.path)
            elif not entry.name.startswith(".") and not entry.name.endswith(".tmp"):
                yield entry

    def _opened(self, name: str) -> Spooled | None:
        path = os.path.join(self._folder, name)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            return None  # another worker was faster
        except OSError as error:
            if error.errno != errno.ELOOP:
                self._unreadable = name
            return None
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and _locked(descriptor) and _is_still(path, found):
                return Spooled(name, descriptor, found)
        except OSError:
            self._unreadable = name
        os.close(descriptor)
        return None

    # --- leaving ---------------------------------------------------------------------

    def _finish(self, spent: dict[str, Spooled]) -> None:
        """All of these files are durable elsewhere. One sync for all of them."""
        try:
            for held in spent.values():
                self._leave(held)
            if self._done is not None:
                sync_folder(self._done)
            sync_folder(self._folder)
        finally:  # what could not leave comes again
            for serial in spent:
                self._release(serial)

    def _leave(self, held: Spooled) -> None:
        aside = os.path.join(self._leaving, held.name)
        path = os.path.join(self._folder, held.name)
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._leaving, 0o700)
            try:
                os.rename(path, aside)
            except FileNotFoundError:
                return  # it vanished: nothing is left to do
        try:
            if identity_of(os.lstat(aside)) != held.identity:
                os.rename(aside, self._again(held.name))  # another one of the same name, or it has grown
            elif self._done is None:
                os.unlink(aside)
            else:
                os.rename(aside, self._done_as(held.name))
        except FileNotFoundError:
            return  # another worker took this one for dead and brought it back: it comes again

    def _done_as(self, name: str) -> str:
        assert self._done is not None
        path = os.path.join(self._done, name)
        return os.path.join(self._done, self._other(name)) if os.path.lexists(path) else path

    def _again(self, name: str) -> str:
        return os.path.join(self._folder, self._other(name))

    def _other(self, name: str) -> str:
        """A name that is free, with the same suffix: it distinguishes lines from a single message."""
        end = os.fsdecode(os.fsencode(name)[-120:])
        return f"again-{self._worker}-{next(self._numbers)}-{end}"

    def _bring_back(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(os.path.join(folder, name), self._again(name))
            os.rmdir(folder)

    def _release(self, serial: str) -> None:
        self._held.pop(serial).close()

    # --- trouble ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise self._trouble(reason, "Make it readable and writable; nothing is lost meanwhile.") from None

    def _trouble(self, reason: str, remedy: str) -> BackendUnavailable:
        return BackendUnavailable(f"The spool folder {self._folder}: {reason}.", remedy=remedy)


def _locked(descriptor: int) -> bool:
    """Did this process get the lock? True on file systems without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_still(path: str, found: os.stat_result) -> bool:
    """The holder before may have removed it between opening and lock."""
    try:
        now = os.lstat(path)
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino)


CHUNK_BYTES = 64 * 1024
LINES = ".jsonl"


class SpooledPart(NamedTuple):
    """Where a message is in its file."""

    number: int | None  # of its line; None: it is the whole file
    start: int
    length: int
    receives: int = 1
    until_ms: int = 0  # while it is out: when it comes again (monotonic)


class Spooled:
    """An open file under our lock. Bytes are not kept: what is put back is read again."""

    def __init__(self, name: str, descriptor: int, found: os.stat_result) -> None:
        self.name = name
        self.shown = os.fsencode(name).decode("utf-8", "replace")
        self.size = found.st_size
        self.identity = identity_of(found)
        self._file = os.fdopen(descriptor, "rb", buffering=CHUNK_BYTES)
        self._ready: deque[SpooledPart] = deque()
        self._out: dict[str, SpooledPart] = {}
        self._done = 0
        self._line = 0
        self._position = 0
        self._at_end = not name.endswith(LINES)
        if self._at_end:
            self._ready.append(SpooledPart(None, 0, min(self.size, MESSAGE_BYTES_MAX + 1)))

    @property
    def is_spent(self) -> bool:
        """Every message was handed out and acknowledged."""
        return self._at_end and not self._ready and not self._out

    @property
    def is_untouched(self) -> bool:
        return not self._out and not self._done

    def take(self, limit: int, until_ms: int) -> Iterator[tuple[SpooledPart, bytes]]:
        """The next messages, those that were put back first; they are out until then."""
        for _ in range(limit):
            if self._ready:
                part = self._ready.popleft()
                body = _read(self._file.fileno(), part.start, part.length)
            else:
                found = self._next_line()
                if found is None:
                    return
                part, body = found
            self._out[str(part.number)] = part._replace(until_ms=until_ms)
            yield part, body

    def acknowledge(self, part: str) -> bool:
        """False if it is not out."""
        if self._out.pop(part, None) is None:
            return False
        self._done += 1
        return True

    def put_back(self, part: str) -> None:
        found = self._out.pop(part, None)
        if found is not None:
            self._ready.appendleft(found._replace(receives=found.receives + 1))

    def lapsed(self, now_ms: int) -> list[str]:
        """Those that were not acknowledged in time."""
        return [key for key, part in self._out.items() if part.until_ms <= now_ms]

    def close(self) -> None:
        """This releases the lock, too."""
        self._file.close()

    def _next_line(self) -> tuple[SpooledPart, bytes] | None:
        """The next line that is not blank; of one that is too long one byte more than a message may have."""
        while not self._at_end:
            start = self._position
            line = self._file.readline(MESSAGE_BYTES_MAX + 1)
            self._position += len(line)
            if not line:  # empty, or cut meanwhile
                self._at_end = True
                break
            self._line += 1
            body = line.removesuffix(b"\n")
            while line and not line.endswith(b"\n"):
                line = self._file.readline(CHUNK_BYTES)
                self._position += len(line)
            self._at_end = self._position >= self.size  # what is written from now on is found when it leaves
            if len(body) > MESSAGE_BYTES_MAX or body.strip():
                return SpooledPart(self._line, start, len(body)), body
        return None


def identity_of(found: os.stat_result) -> tuple[int, int, int, int]:
    """Changes when the file is replaced, grows or is written again; not when it is moved."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _read(descriptor: int, start: int, length: int) -> bytes:
    """A range, shorter if the file was cut meanwhile: then it is not removed either."""
    found = bytearray()
    while len(found) < length:
        chunk = os.pread(descriptor, length - len(found), start + len(found))
        if not chunk:
            break
        found += chunk
    return bytes(found)
