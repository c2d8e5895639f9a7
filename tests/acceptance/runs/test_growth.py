"""What is on record does not slow down what happens now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.db.connection import open_store
from kfm.db.ledger_reader import LedgerReader
from kfm.db.sqlite import SqliteReader
from kfm.model.records import Run, Window, Work
from kfm.system import SystemClock
from tests.acceptance.runs.conftest import Inside
from tests.history import multiply, steps

FEW, MANY = 1000, 20_000
ALLOWED = 1.3  # an index that is a level deeper, a page more


def _ledger(project: Inside) -> str:
    return str(Path(project.folder) / ".kfm" / "kfm.db")


def _steps(project: Inside, *command: str) -> int:
    with steps() as counted:
        ended = project.kfm(*command)
    assert ended.code == 0, ended
    assert counted.count > 0
    return counted.count


def _last_success(ledger: LedgerReader) -> Run | None:
    run = ledger.newest_run("levels")
    assert run is not None
    window = Window(spec=run.window_spec, start_ms=run.window_start_ms, end_ms=run.window_end_ms)
    found = ledger.latest_success(
        Work(source_id=run.source_id, window=window, partition=run.partition, output_version="")
    )
    assert found is not None
    return found


@pytest.mark.req("GRO-3")
def test_commands_cost_the_same_whatever_the_history(project: Inside) -> None:
    """A run that finds nothing new, and the status, take as many steps after 20,000 runs as after 1,000."""
    for _ in range(2):
        assert project.kfm("run", "--source", "notes").code == 0
    multiply(_ledger(project), FEW)
    commands = (("run", "--source", "notes"), ("status",), ("runs", "--limit", "5"))
    before = {command: _steps(project, *command) for command in commands}
    multiply(_ledger(project), MANY - FEW, FEW + 1)
    after = {command: _steps(project, *command) for command in commands}
    for command in commands:
        assert after[command] <= ALLOWED * before[command], (command, before[command], after[command])


@pytest.mark.req("GRO-3")
def test_statements_of_every_run_cost_the_same(project: Inside) -> None:
    """Heads, the last success of a window, and what is left to judge do not depend on how much was done."""
    assert project.kfm("run", "--source", "notes").code == 0
    counts: dict[str, list[int]] = {}
    questions: dict[str, Callable[[LedgerReader], object]] = {
        "heads": lambda ledger: ledger.heads(),
        "unjudged": lambda ledger: ledger.unjudged(),
        "last success": _last_success,
        "ahead": lambda ledger: ledger.ahead(),
    }
    for first, rows in ((1, FEW), (FEW + 1, MANY - FEW)):
        multiply(_ledger(project), rows, first)
        for name, ask in questions.items():
            with steps() as counted:
                reader = LedgerReader(SqliteReader(_ledger(project), SystemClock()))
                opened = counted.count
                ask(reader)
                counts.setdefault(name, []).append(counted.count - opened)
                reader.close()
    for name, (before, after) in counts.items():
        assert 0 < after <= ALLOWED * before, (name, before, after)


@pytest.mark.req("GRO-3")
def test_a_fold_spares_the_next_process_the_history(project: Inside) -> None:
    """The first scrape of a process reads what came since the fold, and says the same as without one."""
    from kfm.telemetry.ledger_metrics import Folding, keep_fold, take_up

    assert project.kfm("run", "--source", "notes").code == 0
    multiply(_ledger(project), 5000)
    store = open_store(None, str(Path(project.folder) / ".kfm"), SystemClock())
    with steps() as whole:
        reader = LedgerReader(SqliteReader(_ledger(project), SystemClock()))
        expected = Folding().fold(reader, str, ["levels"], "1")
        reader.close()
    while keep_fold(store, rows_max=2000):
        pass
    store.close()
    with steps() as rest:
        reader = LedgerReader(SqliteReader(_ledger(project), SystemClock()))
        assert take_up(reader).fold(reader, str, ["levels"], "1") == expected
        reader.close()
    assert rest.count * 10 < whole.count, (rest.count, whole.count)
