"""A ledger that goes away while a worker has units in its hands."""

from __future__ import annotations

import contextlib
import io
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.model.errors import BackendUnavailable
from kfm.nodd.ingest import NoddIngest
from kfm.nodd.worker import Worker
from kfm.nodd.worker_loop import WorkerOptions, run_worker
from tests.integration.nodd.test_downstream import message


class Flaky:
    """A ledger that fails now and then: before it has written, or before it could say so."""

    def __init__(self, wal: Any, *troubles: str | None) -> None:
        self._wal = wal
        self._troubles = list(troubles)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wal, name)

    def exchange(self, finish: Any, claim: Any, fresh: Any) -> Any:
        return self._flaky(self._wal.exchange, finish, claim, fresh)

    def _flaky(self, call: Any, *given: Any) -> Any:
        trouble = self._troubles.pop(0) if self._troubles else None
        if trouble == "before":
            raise BackendUnavailable("The connection broke.")
        answer = call(*given)
        if trouble == "after":
            raise BackendUnavailable("The answer was lost.")
        return answer


@pytest.mark.req("WAL-8", "WAL-10")
@pytest.mark.parametrize(
    ("troubles", "lapsed"),
    [
        ((None, "before", "before", None), 0),
        ((None, "after", None), 2),  # what was claimed with the lost answer waits for its lease
        (("before", None, "before"), 0),
    ],
)
def test_what_was_worked_on_lands_when_the_ledger_is_back(
    tmp_path: Path, troubles: tuple[str | None, ...], lapsed: int
) -> None:
    """Nothing is looked at twice for it, nothing has two effects, and no attempt is charged."""
    (tmp_path / "kfm.yml").write_text("version: 1\ningest: {batch: 2}\n")
    with open_app(load(str(tmp_path / "kfm.yml"))) as app:
        stream = io.BytesIO(b"".join(message(second) for second in range(6)))
        place = NoddIngest(app)
        ((poller, _),) = place.pollers(stream)
        poller.step(100)
        context = place.context()
        object.__setattr__(context, "wal", Flaky(context.wal, *troubles))
        worker, failures = Worker(context), 0
        for _ in range(20):
            try:
                worker.step()
            except BackendUnavailable:
                failures += 1
        worker.drain()
        assert failures == len([one for one in troubles if one])
        reader = app.ledger.unit_reader()
        counts = Counter({name: amount for (_, name), amount in reader.unit_counts().items()})
        assert counts["succeeded"] == 6 - lapsed
        assert counts["in_progress"] == lapsed
        assert counts["attempts:1"] == 6 - lapsed
        (figures,) = app.ledger.catalogue().collections()
        assert figures.items == 6 - lapsed
        place.close()


def test_a_rate_makes_small_batches(tmp_path: Path) -> None:
    """A second's worth at most, so that a limit is kept within each second."""
    from kfm.nodd.worker_loop import batch_of

    assert batch_of(WorkerOptions(rate=5.0), 100) == 5
    assert batch_of(WorkerOptions(rate=0.1), 100) == 1
    assert batch_of(WorkerOptions(rate=500.0), 100) == 100
    assert batch_of(WorkerOptions(batch=7), 100) == 7
    (tmp_path / "kfm.yml").write_text("version: 1\n")
    with open_app(load(str(tmp_path / "kfm.yml"))) as app:
        options = WorkerOptions(mode="until-idle", rate=1000.0, stream=io.BytesIO(message(1) + message(2)))
        report = run_worker(app, options, threading.Event())
    assert report.tasks.succeeded == 2


def test_changes_of_figures_do_not_pile_up() -> None:
    """However many come in between, they are added up until few are left."""
    from kfm.nodd.worker_loop import FOLDED, FOLDS_MAX, fold_counts

    class Counting:
        def __init__(self, left: int) -> None:
            self.left = left
            self.calls = 0

        def fold_counts(self, limit: int) -> int:
            done = min(limit, self.left)
            self.left -= done
            self.calls += 1
            return done

    some, endless = Counting(FOLDED * 3 + 5), Counting(FOLDED * 1_000)
    for one in (some, endless):
        fold_counts(one)  # type: ignore[arg-type]
    assert (some.left, some.calls, endless.calls) == (0, 4, FOLDS_MAX)


@pytest.mark.req("FLT-1")
def test_the_dead_are_asked_for_while_they_may_have_units() -> None:
    """Who died is looked for more than once, since a claim may have been on its way; but not for ever."""
    from kfm.nodd.worker_loop import DEAD_LOOKS_MAX, DeadWorkers

    dead = ["w1"]
    died = DeadWorkers(lambda: dead)
    assert [died.recently() for _ in range(DEAD_LOOKS_MAX)] == [{"w1"}] * DEAD_LOOKS_MAX
    dead.append("w2")
    assert died.recently() == {"w2"}


@pytest.mark.req("WAL-8")
def test_a_worker_that_ends_leaves_nothing_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it claimed in an answer that got lost is pending again when it is gone, not in five minutes."""
    (tmp_path / "kfm.yml").write_text("version: 1\ningest: {batch: 2}\n")
    make = NoddIngest.context

    def flaky(place: NoddIngest, store: Any = None) -> Any:
        kernel = make(place, store)
        object.__setattr__(kernel, "wal", Flaky(kernel.wal, None, "after"))
        return kernel

    monkeypatch.setattr(NoddIngest, "context", flaky)
    with open_app(load(str(tmp_path / "kfm.yml"))) as app:
        stream = io.BytesIO(b"".join(message(second) for second in range(6)))
        with contextlib.suppress(BackendUnavailable):
            run_worker(app, WorkerOptions(mode="until-idle", stream=stream), threading.Event())
        counts = Counter({name: n for (_, name), n in app.ledger.unit_reader().unit_counts().items()})
        assert counts["in_progress"] == 0
        assert counts["pending"] + counts["succeeded"] == 4  # the rest was not taken in, nor acknowledged
        assert counts["pending"] >= 2
