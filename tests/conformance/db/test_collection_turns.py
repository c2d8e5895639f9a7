"""A collection gets its turn among runs that overlap without end, and runs get theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfm.model.errors import LockHeld
from kfm.model.records import Run, StoredObject
from kfm.objects.local import LocalObjects
from kfm.runs import gc
from kfm.system import PosixFiles, SystemIds
from tests.conformance.db.ledgers import Desk, alive, new_run
from tests.stand_ins import FakeClock

pytestmark = pytest.mark.req("GRO-2")
SCOPES = ("dataset:one", "dataset:two")


class Fleet:
    """Runs of two datasets in turns. With each look at the clock the next one begins, and only then the one
    before it ends: at no moment is there none, unless one is refused."""

    def __init__(self, desk: Desk, clock: FakeClock) -> None:
        self._desk, self._clock = desk, clock
        self.begun = 0
        self.refused_at_ms: list[int] = []
        self._in_progress: list[tuple[str, Run]] = []
        self.begin()

    def begin(self) -> None:
        scope = SCOPES[self.begun % 2]
        answer = self._desk.admit(new_run(f"run {self.begun}"), scope=scope, lease_ms=3_600_000)
        if answer.answer == "admitted":
            assert answer.run is not None
            self._in_progress.append((scope, answer.run))
            self.begun += 1
        else:
            assert answer.lock is not None
            assert answer.lock.scope == "gc"
            self.refused_at_ms.append(self._clock.monotonic_ms())

    def go_on(self) -> None:
        ends = self._in_progress[:1]
        self.begin()
        for scope, run in ends:
            assert self._desk.fail(run, scope=scope)
            self._in_progress.remove((scope, run))


class WatchedClock(FakeClock):
    """Something happens whenever the collection sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.act: Callable[[], None] = lambda: None

    def sleep_ms(self, duration_ms: int) -> None:
        super().sleep_ms(duration_ms)
        self.act()


class Site:
    """An object that no version needs, in a folder, and a kernel as far as collecting needs one."""

    def __init__(self, desk: Desk, folder: Path) -> None:
        self.clock = WatchedClock()
        self.objects = LocalObjects(PosixFiles(), str(folder), SystemIds())
        staging, _ = self.objects.stage()
        staging.write(b"unneeded")
        sha256, size = staging.commit()
        self._listed = gc.Collection(
            before_ms=2**53,
            objects=(StoredObject(sha256=sha256, size=size, modified_ms=0),),
            leftovers=(),
            versions=(),
            objects_kept=0,
        )
        self._kernel: Any = SimpleNamespace(
            store=desk.store,
            ledger=desk.store,
            clock=self.clock,
            progress=SimpleNamespace(phase=lambda *_: None, advance=lambda *_: None, done=lambda: None),
            projections=(),
            liveness=SimpleNamespace(claim=lambda _: None, is_dead=alive),
            worker_id="sweeper",
            settings=SimpleNamespace(environment="test", limits=SimpleNamespace(versions_kept=1)),
        )

    def collect(self, **options: int) -> gc.Collected:
        _, removed = gc.carry_out(
            self._kernel, self.objects, actor="ann", rationale="room", collection=self._listed, **options
        )
        return removed


@pytest.fixture
def site(desk: Desk, tmp_path: Path) -> Site:
    return Site(desk, tmp_path / "objects")


def test_runs_that_overlap_for_ever_let_a_collection_in(desk: Desk, site: Site) -> None:
    """A collection waits for a gap, then new runs are held back until those in progress have ended: it comes,
    and what was held back begins right after it."""
    fleet = Fleet(desk, site.clock)
    site.clock.act = fleet.go_on
    began_ms = site.clock.monotonic_ms()
    assert site.collect().objects == 1
    assert gc.GAP_MS <= site.clock.monotonic_ms() - began_ms < gc.GAP_MS + gc.HOLD_BACK_MS
    begun = fleet.begun
    assert begun > gc.GAP_MS // gc.PAUSE_MS  # none was held back while a gap could come
    assert 0 < len(fleet.refused_at_ms) <= 2  # the next one, while the last one ended
    fleet.go_on()
    assert fleet.begun == begun + 1
    assert [entry.kind for entry in desk.store.governance()] == ["gc"]


def test_new_runs_are_held_back_for_so_long_and_no_longer(desk: Desk, site: Site) -> None:
    """A run that does not end keeps the collection out: it gives up, names that run, and others begin."""
    lasting = desk.admitted("lasting", lease_ms=3_600_000)
    fleet = Fleet(desk, site.clock)
    site.clock.act = fleet.go_on
    with pytest.raises(LockHeld, match=lasting.run_id):
        site.collect(hold_back_ms=60_000)
    span_ms = fleet.refused_at_ms[-1] - fleet.refused_at_ms[0]
    assert span_ms <= 60_000
    begun = fleet.begun
    fleet.go_on()
    assert fleet.begun == begun + 1
    assert list(site.objects.all())


def test_without_patience_a_run_in_progress_is_an_error(desk: Desk, site: Site) -> None:
    """With nothing to wait, no run is ever held back, and the collection says at once what is in progress."""
    fleet = Fleet(desk, site.clock)
    site.clock.act = fleet.go_on
    began_ms = site.clock.monotonic_ms()
    with pytest.raises(LockHeld):
        site.collect(hold_back_ms=0)
    assert site.clock.monotonic_ms() == began_ms
    assert fleet.refused_at_ms == []


def test_a_collection_that_is_interrupted_while_it_waits_holds_nothing_back(desk: Desk, site: Site) -> None:
    """Ctrl-C in the middle of the wait: what was held back begins at once."""
    desk.admitted("lasting", lease_ms=3_600_000)
    fleet = Fleet(desk, site.clock)

    def interrupt() -> None:
        fleet.go_on()
        if fleet.refused_at_ms:
            raise KeyboardInterrupt

    site.clock.act = interrupt
    with pytest.raises(KeyboardInterrupt):
        site.collect()
    begun = fleet.begun
    fleet.go_on()
    assert fleet.begun == begun + 1
