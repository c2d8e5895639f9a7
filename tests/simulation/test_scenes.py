"""Single histories of requests, step by step: those that seeds once found amiss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kfm.db.ledger import Ledger
from kfm.model.errors import UsageError
from kfm.model.keys import request_id
from kfm.model.records import GovernanceEntry, Switch
from kfm.model.requests import UpdateRequest
from kfm.model.settings import Settings
from kfm.runs import retry
from kfm.runs.kernel import Kernel
from kfm.service import approvals
from kfm.service.dispatcher import CLAIM_MS, TRIES_MAX
from tests.simulation import shortcuts
from tests.simulation.asked.world import AskedWorld
from tests.simulation.asking import SimulatedRuns, app_of
from tests.simulation.broken import applied
from tests.simulation.broken_starts import CANCELLED_TOO_LATE, STOPPED_PREVIEW, TAKEN_FOR_LOST
from tests.simulation.conditions import Patch
from tests.simulation.hunting import named
from tests.simulation.judging import Violation
from tests.simulation.scheduler import CALM, Process
from tests.simulation.seeds import FixedClock

WINDOW_MS = 1_000
Script = Callable[["Stage", Any], None]


class QuietWorld(AskedWorld):
    """Every source may be repeated, and no provider has a circuit."""

    def _settings(self) -> Settings:
        drawn = super()._settings()
        return replace(
            drawn, sources=tuple(replace(one, idempotent=True, provider=None) for one in drawn.sources)
        )


class Stage:
    """A world in which one process acts at a time, and the pipeline does what the scene says."""

    def __init__(self, script: Script | None = None, *, judged: bool = False) -> None:
        self.world = QuietWorld(0, shortcuts.new_ledger(FixedClock()), CALM)
        self.world.is_calm = True  # nothing happens but what is told here
        if not judged:  # the rules of the worlds know of nothing that is done behind their back
            self.world.checks.on_commit = lambda _process: None  # type: ignore[method-assign]
        self.world.upstream.mend()
        self.source = self.world.sources[0]
        self.world.acts = dict.fromkeys(self.world.sources, None)
        self._script = script
        self._names = 0
        self.world._kernels._pipeline = lambda _process: self._publish

    def _publish(self, context: Any) -> None:
        if self._script is not None:
            self._script(self, context)
        context.publisher.write_file(context.inputs[0].path, context.inputs[0].read())

    def act(self, body: Callable[[Kernel, Process], Any]) -> Any:
        """What one process does, from its start to its end."""
        answers: list[Any] = []
        self._names += 1

        def whole(process: Process) -> None:
            answers.append(body(self.world.kernel(process), process))

        self.world.scheduler.spawn(f"p{self._names}", whole)
        self.world.scheduler.run()
        return answers[0] if answers else None

    def ask(self, name: str, **more: Any) -> str:
        """A request of a machine; its id."""
        key = f"sha256:{name:0<64}"
        one = UpdateRequest(
            request_id=request_id(key),
            key=key,
            kind="webhook",
            source_id=self.source,
            dataset_id=self.source,
            window_start_ms=WINDOW_MS,
            window_end_ms=2 * WINDOW_MS,
            actor="sender",
            accepted_at_ms=self.world.scheduler.now_ms,
            request_uuid=name,
            **more,
        )
        self.act(lambda kernel, _process: kernel.store.requests().accept([one]))
        return one.request_id

    def dispatch(self) -> None:
        """One request that is due."""

        def step(kernel: Kernel, process: Process) -> None:
            request = self.world._dispatcher(kernel, process, "all").step()
            if request is not None:
                self.world.checks.starts.given_back(process, request.request_id, kernel.worker_id)

        self.act(step)

    def request(self, name: str) -> UpdateRequest:
        return self.world.checks.requests()[name]

    def rows(self, sql: str) -> list[Any]:
        return self.world.checks._rows(sql)

    @property
    def beside(self) -> Ledger:
        """The ledger, for what others do while a process is at work."""
        return Ledger(self.world.database)

    def pass_time(self, span_ms: int) -> None:
        self.world.scheduler.now_ms += span_ms


@pytest.mark.req("UPD-13", "TRG-3")
def test_a_cancel_that_comes_before_a_failure() -> None:
    """The attempt fails before it hears of the cancel: no further one is promised."""
    asked: list[str] = []

    def script(stage: Stage, _context: Any) -> None:
        stage.beside.requests().cancel(asked[0], "not any more")
        raise TimeoutError("no answer")

    stage = Stage(script, judged=True)
    asked.append(stage.ask("one"))
    stage.dispatch()
    assert stage.request(asked[0]).state == "cancelled"
    assert stage.rows("SELECT fate, reason FROM retry_states") == [("spent", "stopped")]
    assert stage.act(lambda kernel, _process: retry.adopt(kernel)) == 0


@pytest.mark.req("UPD-13", "TRG-3")
def test_a_cancel_of_what_was_taken_for_lost() -> None:
    """A runner oversleeps its claim, its request is cancelled as one that waits, and it wakes up: nothing of
    it is published."""
    asked: list[str] = []

    def script(stage: Stage, _context: Any) -> None:
        stage.pass_time(2 * CLAIM_MS)
        sql = "UPDATE requests SET state = 'open', claimed_by = NULL, claim_until_ms = 0"
        stage.rows(f"{sql} WHERE request_id = '{asked[0]}'")  # as the next claim of another runner does
        assert stage.beside.requests().cancel(asked[0], "not any more")

    stage = Stage(script)
    asked.append(stage.ask("one"))
    stage.dispatch()
    assert stage.request(asked[0]).state == "cancelled"
    assert stage.rows("SELECT status, error_code FROM runs") == [("failed", "CANCELLED")]
    assert stage.rows("SELECT 1 FROM promotions") == []


def fails_in_earnest(_stage: Stage, context: Any) -> None:
    if not context.dry_run:
        raise ValueError("what is this?")


def release(stage: Stage) -> UpdateRequest:
    """Two persons let a run go that was given up: the request that is made for it."""
    before = set(stage.world.checks.requests())

    def ask(kernel: Kernel, _process: Process) -> None:
        app, held = app_of(kernel, stage.world.settings), kernel.store.held(state="held")[0]
        approvals.request_release(app, held, actor="ada", rationale="seen", ticket=None, claimed_actor=None)

    stage.act(ask)
    stage.act(lambda kernel, _process: stage.world.people.decide(kernel, approve=True))
    assert stage.act(lambda kernel, _process: retry.adopt(kernel)) == 1
    (adopted,) = [one for name, one in stage.world.checks.requests().items() if name not in before]
    return adopted


@pytest.fixture
def given_up() -> tuple[Stage, str]:
    """A webhook's run that was approved, failed for good, and is bound to its plan; its request."""
    stage = Stage(fails_in_earnest)
    asked = stage.ask("one", needs_approval=True)
    stage.dispatch()
    assert stage.request(asked).state == "awaiting-approval"
    stage.act(lambda kernel, _process: stage.world.people.decide(kernel, approve=True))
    stage.dispatch()
    assert stage.rows("SELECT fate FROM retry_states") == [("quarantine",)]
    return stage, asked


@pytest.mark.req("TRG-4")
def test_a_released_run_keeps_its_plan(given_up: tuple[Stage, str]) -> None:
    """A bound run is given up and let go: the request that is made for it is bound, too."""
    stage, asked = given_up
    adopted = release(stage)
    assert (adopted.is_bound, adopted.plan_digest) == (True, stage.request(asked).plan_digest)


@pytest.mark.req("TRG-4")
def test_a_released_run_that_has_drifted_is_refused(given_up: tuple[Stage, str]) -> None:
    """Upstream has changed since: the attempt is refused at once, and nothing is ahead of the run."""
    stage, _ = given_up
    adopted = release(stage)
    stage.world.upstream.change(stage.source, WINDOW_MS)
    stage.dispatch()
    assert stage.request(adopted.request_id).outcome == "refused"
    assert stage.rows("SELECT fate, reason FROM retry_states") == [("spent", "drifted")]


def trouble(*_: Any) -> Any:
    raise UsageError("what is this?")


@pytest.mark.req("RET-5")
def test_a_promised_attempt_that_can_not_be_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """After very many tries its request ends, and with it the promise."""

    def script(_stage: Stage, _context: Any) -> None:
        raise TimeoutError("no answer")

    stage = Stage(script)
    asked = stage.ask("one")
    stage.dispatch()
    stage.rows(f"UPDATE requests SET tries = {TRIES_MAX}, not_before_ms = 0")
    monkeypatch.setattr(SimulatedRuns, "run", trouble)
    stage.dispatch()
    assert stage.request(asked).outcome == "failed"
    assert stage.rows("SELECT fate FROM retry_states") == [("spent",)]


@pytest.mark.req("RET-5")
def test_a_run_may_be_released_again(given_up: tuple[Stage, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was let go, given up without an attempt and let go again has a request each time."""
    stage, _ = given_up
    first = release(stage)
    stage.rows(f"UPDATE requests SET tries = {TRIES_MAX} WHERE request_id = '{first.request_id}'")
    monkeypatch.setattr(SimulatedRuns, "run", trouble)
    stage.dispatch()
    assert stage.request(first.request_id).is_settled
    stage.pass_time(WINDOW_MS)
    assert release(stage).request_id != first.request_id


@pytest.mark.req("TRG-7", "RET-2")
def test_what_died_at_its_inputs_has_seen_them() -> None:
    """A run whose process dies at the same inputs until it is given up is not tried again by a machine as
    if they had changed."""

    def script(stage: Stage, _context: Any) -> None:
        stage.world.scheduler.processes[-1].die()
        stage.world.scheduler.point(stage.world.scheduler.processes[-1], "killed")

    stage = Stage(script)
    stage.ask("one")
    stage.dispatch()
    stage.pass_time(10 * CLAIM_MS)
    stage.act(lambda kernel, _process: kernel.store.reap(lambda _worker: True))
    stage.act(lambda kernel, _process: retry.judge_reaped(kernel))
    ((seen,),) = stage.rows("SELECT fingerprint FROM retry_states")
    assert seen is not None


@pytest.mark.req("GOV-1", "TRG-3")
def test_a_stop_in_the_middle_of_a_preview() -> None:
    """The request waits for the switch, and its dataset is free for others."""

    def script(stage: Stage, _context: Any) -> None:
        scope = f"dataset:{stage.source}"
        switch = Switch(scope=scope, position="stopped", rationale="r", actor="ada", set_at_ms=0)
        entry = GovernanceEntry(kind="switch", subject=scope, actor="ada", recorded_at_ms=0)
        stage.beside.set_switch(switch, entry)

    stage = Stage(script, judged=True)
    asked = stage.ask("one", needs_approval=True)
    stage.dispatch()
    one = stage.request(asked)
    assert (one.state, one.blocked_by, one.claimed_by) == ("open", "switch", None)


@pytest.mark.req("TRG-4")
def test_what_needs_an_approval_does_not_end_with_a_run_of_others() -> None:
    """Another request's run has failed and is to be tried again: this one waits, and is not tied to it."""

    def script(_stage: Stage, context: Any) -> None:
        if not context.dry_run:
            raise TimeoutError("no answer")

    stage = Stage(script)
    stage.ask("one")
    stage.dispatch()
    asked = stage.ask("two", needs_approval=True)
    stage.dispatch()
    one = stage.request(asked)
    assert (one.state, one.blocked_by, one.run_id) == ("open", "retry", None)


@pytest.mark.parametrize(
    ("patch", "scene"),
    [
        (CANCELLED_TOO_LATE, test_a_cancel_that_comes_before_a_failure),
        (TAKEN_FOR_LOST, test_a_cancel_of_what_was_taken_for_lost),
        (STOPPED_PREVIEW, test_a_stop_in_the_middle_of_a_preview),
    ],
    ids=lambda one: named(one) if isinstance(one, Patch) else "its-scene",
)
def test_a_scene_without_its_guard_fails(patch: Patch, scene: Callable[[], None]) -> None:
    """What is too rare for seeds is caught by its scene: by the rule of the worlds, where one sees it."""
    caught = Violation if patch.rule else AssertionError
    with applied(patch), pytest.raises(caught, match=patch.rule or None):
        scene()
