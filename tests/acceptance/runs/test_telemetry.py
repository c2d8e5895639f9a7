"""`kfm retry --due --watch`: how it waits, what it survives, and how it is stopped."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from kfm.cli.retry import PAUSE_MAX_MS, PAUSE_MIN_MS
from kfm.model.errors import StoreBusy, StoreCorrupt
from kfm.system import SystemClock
from tests.acceptance.runs.conftest import Inside, http_source
from tests.acceptance.runs.test_retries import DUE, change
from tests.crash.project import finish
from tests.crash.upstream import Upstream

pytestmark = pytest.mark.req("TRG-1")

SLOW = 'def publish(context):\n    raise TimeoutError("no answer")\n'
FINE = """\
def publish(context):
    for one in context.inputs:
        context.publisher.write_file(one.path, one.fetched)
"""
WATCH = ("retry", "--due", "--watch")
WAIT_SECONDS = 60


@pytest.fixture
def failing(project: Inside) -> Inside:
    """A project whose pipeline fails with an error that may pass."""
    project.write("pipeline.py", SLOW)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    assert project.run().code == 1
    return project


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], list[int]]:
    """Instead of waiting, something happens; the pauses are kept."""

    def instead(happens: Callable[[int], None]) -> list[int]:
        kept: list[int] = []

        def sleep_ms(_clock: SystemClock, delay_ms: int) -> None:
            if delay_ms >= PAUSE_MIN_MS:  # shorter ones are for a turn at the database
                kept.append(delay_ms)
                happens(delay_ms)

        monkeypatch.setattr(SystemClock, "sleep_ms", sleep_ms)
        return kept

    return instead


def test_it_waits_for_what_is_ahead_and_makes_it_once(failing: Inside, pauses: Any) -> None:
    """Each attempt is made when its time has come, and not before; it never waits too long or not at all."""
    turns_max = 400

    def passes(delay_ms: int) -> None:
        if not failing.rows("SELECT 1 FROM retry_states WHERE fate = 'retry'") or len(kept) > turns_max:
            raise KeyboardInterrupt
        for column in ("not_before_ms", "granted_at_ms", "updated_at_ms"):
            change(failing, f"UPDATE retry_states SET {column} = {column} - {delay_ms}")
        moved = f"not_before_ms = not_before_ms - {delay_ms}"
        change(failing, f"UPDATE requests SET {moved} WHERE state = 'open'")
        if failing.rows("SELECT 1 FROM runs WHERE attempts = 3"):
            failing.write("pipeline.py", FINE)

    kept = pauses(passes)
    ended = failing.kfm(*WATCH, "-o", "jsonl")
    assert ended.code == 0, ended
    made = [json.loads(line)["word"] for line in ended.out.splitlines()]
    assert made == ["failed", "failed", "published"]
    assert failing.rows("SELECT status, attempts FROM runs") == [("success", 4)]
    assert all(PAUSE_MIN_MS <= pause <= PAUSE_MAX_MS for pause in kept), kept
    assert sum(kept) >= 15_000 + 30_000 + 60_000, "the shortest that the matrix allows"
    assert "stopped watching" in ended.err


def test_nothing_ahead_is_looked_for_now_and_then(project: Inside, pauses: Any) -> None:
    """Without anything to wait for, it comes back as often as a new failure may go unseen."""

    def passes(_delay_ms: int) -> None:
        if len(kept) == 3:
            raise KeyboardInterrupt

    kept = pauses(passes)
    ended = project.kfm(*WATCH)
    assert ended.code == 0, ended
    assert kept == [PAUSE_MAX_MS] * 3
    assert ended.err.count("nothing is due") == 1, "said once, not every half minute"


def test_a_ledger_that_is_away_for_a_while_is_waited_for(
    failing: Inside, pauses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on where it was; a ledger that is broken ends it."""
    from kfm.service import runner

    run_due = runner.dispatch_due
    troubles: list[Exception] = [StoreBusy("another process holds it.")]

    def troubled(*args: Any, **options: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return run_due(*args, **options)

    def passes(_delay_ms: int) -> None:
        if len(kept) == 2:
            raise KeyboardInterrupt
        failing.write("pipeline.py", FINE)
        change(failing, DUE)

    monkeypatch.setattr(runner, "dispatch_due", troubled)
    kept = pauses(passes)
    ended = failing.kfm(*WATCH)
    assert ended.code == 0, ended
    assert "Watching goes on in 30 s" in ended.err
    assert failing.rows("SELECT status FROM runs") == [("success",)]
    troubles.append(StoreCorrupt("It is torn."))
    assert failing.kfm(*WATCH).code == 4


def test_who_stops_it_while_events_are_sent_is_heard(
    failing: Inside, pauses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt is told, its events wait in the outbox, and no other pass is made."""
    from kfm.lineage import collectors

    def interrupted(_app: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(collectors, "deliver", interrupted)
    kept = pauses(lambda _delay_ms: None)
    change(failing, DUE)
    ended = failing.kfm(*WATCH, "-o", "jsonl")
    assert ended.code == 0, ended
    assert kept == []
    assert len(ended.out.splitlines()) == 1
    assert failing.rows("SELECT COUNT(*) FROM outbox WHERE delivered_at_ms IS NULL")[0][0] > 0


def test_one_document_has_no_end(project: Inside) -> None:
    """`--watch --json` says which output is meant."""
    ended = project.kfm(*WATCH, "--json")
    assert ended.code == 2, ended
    assert "jsonl" in ended.out + ended.err


@pytest.mark.slow
def test_sigterm_ends_the_waiting(failing: Inside) -> None:
    """A service manager stops it while nothing is due: at once, cleanly, and without an error."""
    watching = failing.start(*WATCH)
    assert watching.stderr is not None
    first = watching.stderr.readline()
    assert "nothing is due; 1 run ahead" in first, first
    watching.send_signal(signal.SIGTERM)
    ended = finish(watching, timeout=WAIT_SECONDS)
    assert (ended.code, ended.err) == (0, "stopped watching\n")
    assert failing.rows("SELECT attempts FROM runs") == [(1,)]
    assert failing.rows("SELECT fate FROM retry_states") == [("retry",)]


@pytest.mark.slow
@pytest.mark.req("RET-3")
def test_sigterm_during_an_attempt_loses_nothing(project: Inside, upstream: Upstream) -> None:
    """The attempt ends and counts, as if its process had been killed; the run stays due, and succeeds."""
    project.configure(source=http_source(upstream))
    upstream.status = 404  # of the first attempt: it says nothing about the provider
    assert project.run().code != 0
    upstream.status = 200
    change(project, "UPDATE retry_states SET not_before_ms = 1, fate = 'retry'")
    upstream.hold.clear()
    watching = project.start(*WATCH, "-o", "jsonl")
    if not upstream.began.wait(WAIT_SECONDS):
        watching.kill()
        pytest.fail(f"it does not fetch: {finish(watching)}")
    watching.send_signal(signal.SIGTERM)
    ended = finish(watching, timeout=WAIT_SECONDS)
    assert ended.code == 0, ended
    assert json.loads(ended.out)["error"]["code"] == "KFM930", ended.out
    assert "stopped watching" in ended.err
    assert project.rows("SELECT status, attempts, error_code FROM runs") == [("failed", 2, "CANCELLED")]
    assert project.rows("SELECT fate, grant_attempts, attempt FROM retry_states") == [("retry", 2, 2)]
    assert project.rows("SELECT * FROM locks WHERE worker_id IS NOT NULL") == []
    assert project.current() == {}

    upstream.hold.set()
    change(project, DUE)
    assert project.kfm("retry", "--due", "--json").result["word"] == "published"
    assert project.rows("SELECT status, attempts FROM runs") == [("success", 3)]


def test_a_person_who_stops_his_own_attempt_is_believed(
    failing: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kfm retry RUN`, cancelled: nothing tries it again by itself."""
    from kfm.runs import preparation

    def interrupted(*_args: Any, **_options: Any) -> None:
        raise KeyboardInterrupt

    ((run_id,),) = failing.rows("SELECT run_id FROM runs")
    monkeypatch.setattr(preparation, "prepare", interrupted)
    assert failing.kfm("retry", run_id).code == 130
    assert failing.rows("SELECT fate, reason FROM retry_states") == [("spent", "stopped")]
