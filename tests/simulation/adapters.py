"""The ports, as the simulated world has them."""

from __future__ import annotations

import errno
import hashlib
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from kfm.db.ledger import Ledger
from kfm.db.queries import queries
from kfm.db.session import Database, Row, Session
from kfm.model.errors import BackendUnavailable, UpstreamUnavailable
from kfm.model.records import Found, GateResult, ObjectStat, Window
from kfm.model.settings import DatasetSettings
from tests.power import FolderNode, PowerCutFiles
from tests.simulation.judging import Violation
from tests.simulation.scheduler import Process, Scheduler

T = TypeVar("T")


class SimClock:
    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process

    def now_ms(self) -> int:
        return self._scheduler.now_ms + self._process.wall_offset_ms

    def monotonic_ms(self) -> int:
        return self._scheduler.now_ms

    def sleep_ms(self, delay_ms: int) -> None:
        self._scheduler.sleep(self._process, delay_ms)


class SimRng:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def unit(self) -> float:
        return self._rng.random()


class SimMeter:
    """Every step costs the same. Some machines have a counter of energy, which begins anew now and then."""

    def __init__(self, scheduler: Scheduler, *, has_counter: bool) -> None:
        self._scheduler = scheduler
        self._has_counter = has_counter

    def cpu_us(self) -> int:
        return self._scheduler.steps * 137

    def package_uj(self) -> int | None:
        return self._scheduler.steps * 911 % 1_000_000 if self._has_counter else None


class SimIds:
    """Ids that tell their time, as real ones do: leftovers are judged by it."""

    def __init__(self, name: str, clock: SimClock) -> None:
        self._name = name
        self._clock = clock
        self._count = 0

    def new(self) -> str:
        self._count += 1
        time = f"{self._clock.now_ms():012x}"
        digest = hashlib.sha256(f"{self._name}/{self._count}".encode()).hexdigest()
        return f"{time[:8]}-{time[8:]}-7{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


class SimHeartbeat:
    """A second thread of a process, which renews its lease while the first is busy."""

    def __init__(self, scheduler: Scheduler, owner: Process, store: Callable[[Process], Ledger]) -> None:
        self._scheduler = scheduler
        self._owner = owner
        self._store = store

    def start(self, beat: Callable[[Ledger], None], interval_ms: int) -> Callable[[], None]:
        scheduler, owner, stopped = self._scheduler, self._owner, []

        def beating(heart: Process) -> None:
            store = self._store(heart)
            while True:
                scheduler.sleep(heart, interval_ms)
                if stopped:
                    return
                scheduler.counts["beat"] += 1
                try:
                    beat(store)
                except Exception:
                    store = self._store(heart)

        heart = scheduler.spawn(f"{owner.name}.heart", beating)
        heart.wall_offset_ms, heart.kin = owner.wall_offset_ms, owner.kin
        owner.kin.append(heart)

        def finish() -> None:
            stopped.append(True)
            owner.kin.remove(heart)
            heart.stalled_until_ms = 0

        return finish


class SimLiveness:
    """Knows the dead of this machine, except where the worker is on another one."""

    def __init__(self, dead: Callable[[str], bool]) -> None:
        self._dead = dead

    def claim(self, worker_id: str) -> None:
        pass

    def is_dead(self, worker_id: str) -> bool:
        return self._dead(worker_id)


class SimFiles(PowerCutFiles):
    """A disk shared by all processes; every call is a point, and may find the disk full.

    A disk with `can_link=False` has no hard links, as some network file systems.
    """

    def __init__(
        self,
        rng: random.Random,
        root: FolderNode,
        scheduler: Scheduler,
        process: Process,
        on_effect: Callable[[Process, str, str], None],
        can_link: bool = True,
    ) -> None:
        self._scheduler = scheduler
        super().__init__(rng, root)
        self._process = process
        self._on_effect = on_effect
        self._can_link = can_link

    @property  # type: ignore[override]
    def now_ms(self) -> int:
        return self._scheduler.now_ms

    @now_ms.setter
    def now_ms(self, _value: int) -> None:
        """The disk has no clock of its own."""

    def _call(self) -> None:
        self._scheduler.point(self._process, "file")

    def _effect(self, kind: str, path: str) -> None:
        if path.startswith("/published/") and kind != "create":
            self._scheduler.point(self._process, "show")
        self._on_effect(self._process, kind, path)
        if self._scheduler.unlucky(self._scheduler.chances.fail_before / 4):
            self._process.facts["full"] = True
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def create(self, path: str) -> Any:
        self._effect("create", path)
        return super().create(path)

    def mkdir(self, path: str) -> None:
        self._effect("mkdir", path)
        super().mkdir(path)

    def rename(self, old: str, new: str) -> None:
        self._effect("rename", new)
        super().rename(old, new)

    def symlink(self, target: str, path: str) -> None:
        self._effect("symlink", path)
        super().symlink(target, path)

    def link(self, old: str, new: str) -> None:
        self._effect("link", new)
        if not self._can_link:
            raise OSError(errno.EXDEV, "Invalid cross-device link", new)
        super().link(old, new)

    def unlink(self, path: str) -> None:
        self._on_effect(self._process, "unlink", path)
        super().unlink(path)


class SimSession:
    """Reading outside a transaction: a point before each question."""

    def __init__(self, inner: Session, clock: SimClock, pause: Callable[[str], None]) -> None:
        self._inner = inner
        self._clock = clock
        self._pause = pause

    def all(self, name: str, /, **parameters: Any) -> list[Row]:
        self._pause(name)
        return self._inner.all(name, **parameters)

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        self._pause(name)
        return self._inner.one(name, **parameters)

    def now_ms(self) -> int:
        return self._clock.now_ms()


class ReadingSession(SimSession):
    """Tells when a provider's circuit was looked at, and what the clock showed outside transactions."""

    def __init__(
        self,
        inner: Session,
        clock: SimClock,
        pause: Callable[[str], None],
        looked: Callable[[str], None],
        facts: dict[str, Any],
    ) -> None:
        super().__init__(inner, clock, pause)
        self._looked = looked
        self._facts = facts

    def now_ms(self) -> int:
        seen_ms = self._facts["seen ms"] = super().now_ms()
        return seen_ms

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        found = super().one(name, **parameters)
        if name == "breakers.get":
            self._looked(parameters["provider"])
        return found


WATCHED = frozenset(
    {
        "approvals.use",
        "breakers.change",
        "breakers.get_for_update",
        "governance.append",
        "held.put",
        "invocations.insert",
        "passes.begin",
        "passes.end",
        "passes.join",
        "requests.revive",
        "retry_states.put",
        "run_states.put",
        "runs.fail",
        "runs.insert",
        "runs.restart",
        "runs.succeed",
    }
)


class WatchedSession(SimSession):
    """Remembers those statements of a transaction about which there are rules."""

    def __init__(self, inner: Session, clock: SimClock) -> None:
        super().__init__(inner, clock, lambda _name: None)
        self.told: list[tuple[str, dict[str, Any], bool]] = []  # name, parameters, whether it found a row
        self.changed: set[str] = set()  # every table that it may have written to

    def all(self, name: str, /, **parameters: Any) -> list[Row]:
        found = self._inner.all(name, **parameters)
        self.changed |= written_by(name)
        if name in WATCHED:
            self.told.append((name, parameters, bool(found)))
        return found

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        found = self._inner.one(name, **parameters)
        self.changed |= written_by(name)
        if name in WATCHED:
            self.told.append((name, parameters, found is not None))
        return found

    def many(self, name: str, lines: Iterable[dict[str, Any]], /) -> None:
        self.changed |= written_by(name)
        self._inner.many(name, lines)

    def bulk(self, name: str, lines: Sequence[tuple[Any, ...]], /) -> int:
        self.changed |= written_by(name)
        return self._inner.bulk(name, lines)

    def gather(self, name: str, lines: Sequence[tuple[Any, ...]], /) -> list[Row] | None:
        self.changed |= written_by(name)
        return self._inner.gather(name, lines)

    def expect(self, *names: str) -> None:
        """Nothing travels."""

    def send(self, name: str, /, **parameters: Any) -> None:
        self.all(name, **parameters)

    def send_all(self, name: str, lines: Sequence[tuple[Any, ...]], /) -> None:
        self.bulk(name, lines)

    def ask(self, name: str, /, **parameters: Any) -> Callable[[], list[Row]]:
        found = self.all(name, **parameters)
        return lambda: found


@cache
def written_by(name: str) -> frozenset[str]:
    """The tables that a named statement writes to."""
    return frozenset(re.findall(r"(?:INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)", queries("sqlite")[name]))


class SimDatabase:
    """One database for all processes. A transaction is one step; its answer may be lost."""

    def __init__(
        self,
        inner: Database,
        scheduler: Scheduler,
        process: Process,
        clock: SimClock,
        on_commit: Callable[[Process], None],
        on_look: Callable[[Process, str, bool | None], None] | None = None,
    ) -> None:
        self._on_look = on_look  # a provider's circuit was read, or its answer got lost
        self._inner = inner
        self._scheduler = scheduler
        self._process = process
        self._clock = clock
        self._on_commit = on_commit
        self._reading = ReadingSession(
            inner.session, clock, lambda name: scheduler.point(process, name), self._looked, process.facts
        )

    @property
    def session(self) -> Session:
        return self._reading

    def _looked(self, provider: str) -> None:
        if self._on_look is not None:
            self._on_look(self._process, provider, False)

    def _on_answer(self, told: list[tuple[str, dict[str, Any], bool]], *, lost: bool | None) -> None:
        for name, parameters, _ in told:
            if name == "breakers.get_for_update" and self._on_look is not None:
                self._on_look(self._process, parameters["provider"], lost)

    def write(self, change: Callable[[Session], T]) -> T:
        self._scheduler.point(self._process, "begin")
        if self._scheduler.unlucky(self._scheduler.chances.fail_before):
            raise BackendUnavailable("simulated: before the commit")
        silent = WatchedSession(self._inner.session, self._clock)
        result = self._inner.write(lambda _session: change(silent))
        self._process.facts["told"] = silent.told
        self._process.facts["changed"] = silent.changed
        try:
            self._on_commit(self._process)
        except Exception as error:  # the kernel must not take it for trouble of its ledger
            raise Violation(f"a rule can't be looked at: {error!r}") from error
        if self._scheduler.unlucky(self._scheduler.chances.fail_after):
            self._on_answer(silent.told, lost=True)
            raise BackendUnavailable("simulated: the commit's answer was lost")
        self._on_answer(silent.told, lost=False)
        self._scheduler.point(self._process, "committed")
        self._on_answer(silent.told, lost=None)  # only now it hears of it
        return result

    def close(self) -> None:
        pass


class SimBucket:
    """An S3 bucket with conditional puts, shared by all processes."""

    def __init__(self, objects: dict[str, tuple[bytes, str]], scheduler: Scheduler, process: Process) -> None:
        self._objects = objects
        self._scheduler = scheduler
        self._process = process

    def _point(self, label: str) -> None:
        self._scheduler.point(self._process, label)
        if self._scheduler.unlucky(self._scheduler.chances.fail_before):
            raise BackendUnavailable("simulated: the bucket does not answer")

    def get(self, key: str) -> tuple[bytes, str] | None:
        self._point("bucket.get")
        return self._objects.get(key)

    def head(self, key: str) -> Any:
        self._point("bucket.head")
        found = self._objects.get(key)
        return None if found is None else _stat(key, found)

    def put(
        self,
        key: str,
        data: bytes,
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
        attributes: Any = None,
    ) -> bool:
        del attributes
        self._point("bucket.put")
        held = self._objects.get(key)
        if if_none_match and held is not None:
            return False
        if if_match is not None and (held is None or held[1] != if_match):
            return False
        tag = hashlib.sha256(data + str(len(self._objects)).encode()).hexdigest()
        self._objects[key] = (bytes(data), f'"{tag[:32]}"')
        if self._scheduler.unlucky(self._scheduler.chances.fail_after):
            raise BackendUnavailable("simulated: the bucket's answer was lost")
        return True

    def put_stream(self, key: str, chunks: Any, *, attributes: Any = None) -> None:
        self.put(key, b"".join(chunks), attributes=attributes)

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        self._point("bucket.list")
        yield from (_stat(key, self._objects[key]) for key in sorted(self._objects) if key.startswith(prefix))

    def delete(self, key: str) -> None:
        self._point("bucket.delete")
        self._objects.pop(key, None)


def _stat(key: str, found: tuple[bytes, str]) -> ObjectStat:
    return ObjectStat(key=key, size=len(found[0]), modified_ms=None, etag=found[1])


class SimDownload:
    def __init__(self, found: Found, offset: int, data: bytes, pause: Callable[[], None]) -> None:
        self.found = found
        self.offset = offset
        self._data = data
        self._pause = pause

    def chunks(self) -> Iterator[bytes]:
        step = max(64, len(self._data) // 4)
        for start in range(self.offset, len(self._data), step):
            self._pause()
            yield self._data[start : start + step]


class SimUpstream:
    """A provider whose objects change, and which sometimes does not answer."""

    def __init__(
        self,
        content: Callable[[], Mapping[str, bytes]],
        place: str,
        media_type: str,
        scheduler: Scheduler,
        process: Process,
    ) -> None:
        self._content = content
        self._place = place
        self._media_type = media_type
        self._scheduler = scheduler
        self._process = process

    def _pause(self) -> None:
        self._scheduler.point(self._process, "net")
        if self._scheduler.unlucky(self._scheduler.chances.fail_before):
            raise UpstreamUnavailable("simulated: the connection was cut")

    def discover(self, window: Window) -> list[Found]:
        self._pause()
        return [self._found(path, data) for path, data in sorted(self._content().items())]

    def _found(self, path: str, data: bytes) -> Found:
        return Found(
            uri=f"sim://{self._place}/{path}",
            path=path,
            media_type=self._media_type,
            size=len(data),
            modified_ms=1_700_000_000_000,
            etag=hashlib.sha256(data).hexdigest()[:16],
        )

    @contextmanager
    def open(self, found: Found, offset: int) -> Iterator[SimDownload]:
        self._pause()
        data = self._content().get(found.path)
        if data is None:
            raise UpstreamUnavailable("simulated: the object is gone")
        now = self._found(found.path, data)
        yield SimDownload(now, offset if now.etag == found.etag else 0, data, self._pause)


class SimPolicies:
    """Allows everything but what the world has declared a violation."""

    bundle_id = "sha256:simulated"
    texts: Mapping[str, str] = {
        f"{gate}.simulated": "forbid (principal, action, resource);"
        for gate in ("care", "sovereignty", "licence")
    }

    def __init__(self, violated: Callable[[str, str], str | None]) -> None:
        self._violated = violated

    def decide(
        self, action: str, dataset: DatasetSettings, principal: str, context: Mapping[str, Any]
    ) -> list[GateResult]:
        del principal, context
        broken = self._violated(action, dataset.id)
        return [
            GateResult(
                gate=gate,
                allowed=gate != broken,
                reason=f"simulated {gate}",
                policy_ids=(f"{gate}.simulated",),
                halts=gate == broken and gate in ("care", "sovereignty"),
            )
            for gate in ("care", "sovereignty", "licence")
        ]
