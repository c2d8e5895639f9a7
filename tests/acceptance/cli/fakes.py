"""An application that answers as it is told, so that the commands can be tested alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from kfm.lineage.delivery import Delivered
from kfm.model.breaker import Breaker
from kfm.model.completeness import WindowFacts
from kfm.model.quarantine import Ahead, RetryState
from kfm.model.records import (
    Found,
    GateResult,
    GovernanceEntry,
    Holder,
    Invocation,
    Lock,
    Promotion,
    Run,
    Switch,
)
from kfm.model.runs import Attempt, Backlog, CallRetry, ChainLink, OutboxMessage
from kfm.runs.kernel import ProjectionReport, RunReport, RunRequest

NOW_MS = 1_767_312_000_000  # 2026-01-02T00:00:00Z
DAY_MS = 86_400_000
RUN_ID = "0a1b2c3d-0000-8000-8000-000000000001"
VERSION_ID = "sha256:" + "ab" * 32


def make_run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "run_id": RUN_ID,
        "source_id": "daily",
        "dataset_id": "levels",
        "pipeline_id": "daily",
        "idempotency_key": "sha256:" + "1" * 64,
        "work_key": "sha256:" + "2" * 64,
        "work_base": "sha256:" + "3" * 64,
        "revision": 0,
        "trigger_type": "manual",
        "window_spec": "P1D",
        "window_start_ms": NOW_MS - DAY_MS,
        "window_end_ms": NOW_MS,
        "partition": None,
        "pipeline_version": "auto-1",
        "status": "success",
        "attempts": 1,
        "fence": 1,
        "start_time_ms": NOW_MS,
        "end_time_ms": NOW_MS + 1500,
        "version_id": VERSION_ID,
    }
    return Run(**{**values, **changes})


def make_call(**changes: Any) -> Invocation:
    values: dict[str, Any] = {
        "invocation_id": "call-1",
        "run_id": RUN_ID,
        "source_id": "daily",
        "dataset_id": "levels",
        "trigger_type": "manual",
        "idempotency_key": "sha256:" + "1" * 64,
        "outcome": "success",
        "actor": "ana",
        "requested_at_ms": NOW_MS,
    }
    return Invocation(**{**values, **changes})


def make_switch(**changes: Any) -> Switch:
    values: dict[str, Any] = {
        "scope": "dataset:levels",
        "position": "paused",
        "rationale": "the gauge is broken",
        "actor": "ana",
        "set_at_ms": NOW_MS - 60_000,
    }
    return Switch(**{**values, **changes})


def make_lock(**changes: Any) -> Lock:
    values: dict[str, Any] = {
        "scope": "dataset:levels",
        "fence": 7,
        "holder": Holder(worker_id="worker-1", run_id=RUN_ID),
        "acquired_at_ms": NOW_MS - 1000,
        "lease_until_ms": NOW_MS + 42_000,
    }
    return Lock(**{**values, **changes})


PROMOTION = Promotion(
    dataset_id="levels",
    sequence=3,
    version_id=VERSION_ID,
    run_id=RUN_ID,
    fence=1,
    policy_epoch=0,
    promoted_at_ms=NOW_MS + 1500,
)


def make_report(request: RunRequest, **changes: Any) -> RunReport:
    values: dict[str, Any] = {
        "outcome": "success",
        "word": "published",
        "source_id": request.source_id,
        "dataset_id": "levels",
        "window_start_ms": NOW_MS - DAY_MS,
        "window_end_ms": NOW_MS,
        "invocation_id": "call-1",
        "reason": "new work",
        "run": make_run(source_id=request.source_id),
        "gates": (GateResult(gate="switch", allowed=True, reason="No kill switch stands in the way."),),
        "version_id": VERSION_ID,
        "sequence": 3,
        "projections": (ProjectionReport(dataset_id="levels", target="local", sequence=3),),
        "duration_ms": 1500,
    }
    return RunReport(**{**values, **changes})


class FakeClock:
    def now_ms(self) -> int:
        return NOW_MS


class FakeLiveness:
    def __init__(self) -> None:
        self.dead: set[str] = set()

    def is_dead(self, worker_id: str) -> bool:
        return worker_id in self.dead


class FakeLedger:
    waiting = Backlog(waiting=0, oldest_ms=None)

    failed = Ahead(held=0, held_since_ms=None, waiting=0)

    def backlog(self, topic: str) -> Backlog:
        return self.waiting

    def ahead(self) -> Ahead:
        return self.failed

    def moment(self) -> AbstractContextManager[None]:
        return nullcontext()

    def __init__(self, **lists: Any) -> None:
        self.lists = lists

    def _all(self, name: str) -> list[Any]:
        return list(self.lists.get(name, ()))

    def runs(
        self,
        *,
        dataset_id: str | None = None,
        source_id: str | None = None,
        status: str | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[Run]:
        chosen = [
            run
            for run in self._all("runs")
            if dataset_id in (None, run.dataset_id)
            and source_id in (None, run.source_id)
            and status in (None, run.status)
        ]
        return chosen[:limit]

    def newest_run(self, dataset_id: str) -> Run | None:
        return next(iter(self.runs(dataset_id=dataset_id, limit=1)), None)

    def newest_invocation(self, dataset_id: str) -> Invocation | None:
        return next((call for call in self._all("invocations") if call.dataset_id == dataset_id), None)

    def newest_invocation_of_source(self, source_id: str) -> Invocation | None:
        return next((call for call in self._all("invocations") if call.source_id == source_id), None)

    def window_reader(self) -> Any:
        """What the runs alone tell of windows."""
        return SimpleNamespace(facts=self._window_facts, expectations=dict)

    def _window_facts(
        self, source_id: str, dataset_id: str, is_live: Any
    ) -> dict[tuple[int, int], WindowFacts]:
        found: dict[tuple[int, int], WindowFacts] = {}
        mine = [one for one in self.runs(source_id=source_id) if one.dataset_id == dataset_id]
        for run in sorted(mine, key=lambda one: (one.start_time_ms, one.revision)):
            state = self.retry_state(run.run_id)
            found[run.window_start_ms, run.window_end_ms] = WindowFacts(
                run_id=run.run_id,
                run_status=run.status,
                run_started_ms=run.start_time_ms,
                run_ended_ms=run.end_time_ms,
                run_error=run.error_code,
                is_live=is_live(run.run_id),
                outcome="published" if run.status == "success" else None,
                is_promised=state is not None and state.fate == "retry",
            )
        return found

    def change_reader(self) -> Any:
        """Nothing was withdrawn, rolled back or renamed."""
        return SimpleNamespace(
            newest=lambda *_: None,
            withdrawals=lambda *_: [],
            target_withdrawals=lambda *_: [],
            times=lambda *_: [],
            changes=lambda *_, **__: [],
            change=lambda *_: None,
            renames=lambda *_: (),
            window_rules=dict,
            window_rule=lambda *_: None,
        )

    def derived_reader(self) -> Any:
        """Nothing is made from other datasets."""
        return SimpleNamespace(pins=lambda *_: (), windows=lambda *_: [])

    def silences(self) -> list[Any]:
        return []

    def schedule_reader(self) -> Any:
        return SimpleNamespace(states=dict)

    def run(self, run_id: str) -> Run | None:
        return next((run for run in self._all("runs") if run.run_id == run_id), None)

    def invocations(self, *, run_id: str | None = None, limit: int = 50) -> list[Invocation]:
        return [call for call in self._all("invocations") if run_id in (None, call.run_id)][:limit]

    def find_runs(self, start: str, limit: int = 2) -> list[Run]:
        return [run for run in self._all("runs") if run.run_id.startswith(start)][:limit]

    def find_invocations(self, start: str, limit: int = 2) -> list[Invocation]:
        found = self._all("invocations")
        return [call for call in found if call.invocation_id.startswith(start)][:limit]

    def find_approvals(self, start: str, limit: int = 2) -> list[Any]:
        return [one for one in self.approvals() if one.request_id.startswith(start)][:limit]

    def heads(self) -> list[Promotion]:
        return self._all("heads")

    def promotions(self, dataset_id: str, limit: int = 50) -> list[Promotion]:
        return [head for head in self._all("heads") if head.dataset_id == dataset_id][:limit]

    def locks(self) -> list[Lock]:
        return self._all("locks")

    def switches(self) -> list[Switch]:
        return self._all("switches")

    def incidents(self, **_: Any) -> list[Any]:
        return self._all("incidents")

    def incident_affects(self, cause: str) -> int:
        return next((one.affected for one in self._all("incidents") if one.cause == cause), 0)

    def unsettled_requests(self) -> list[tuple[str, str | None, int]]:
        return self._all("unsettled")

    def unit_figures(self) -> list[tuple[str, str, int, int | None]]:
        return []

    def halted(self, dataset_id: str) -> Any:
        return next((one for one in self._all("halted") if one.dataset_id == dataset_id), None)

    def breakers(self) -> list[Breaker]:
        return self._all("breakers")

    def retry_state(self, run_id: str) -> RetryState | None:
        return next((row for row in self._all("retry_states") if row.run_id == run_id), None)

    def held(self, *, state: str | None = None, subject: str | None = None, **_: Any) -> list[Any]:
        found = [one for one in self._all("held") if one.state == (state or one.state)]
        return [one for one in found if one.subject == (subject or one.subject)]

    def request_reader(self) -> Any:
        """Nothing came by a service."""
        return SimpleNamespace(
            of_run=lambda *_: [],
            find=lambda *_: [],
            announced=lambda *_: [],
            approved_same=lambda *_: None,
        )

    def unit_reader(self) -> Any:
        return SimpleNamespace(attempts=list)

    def replay_reader(self) -> Any:
        return SimpleNamespace(find=lambda *_: [])

    def find_incidents(self, start: str, limit: int = 2) -> list[Any]:
        return [one for one in self._all("incidents") if one.incident_id.startswith(start)][:limit]

    def approvals(
        self, *, state: str | None = None, subject: str | None = None, limit: int = 50
    ) -> list[Any]:
        found = [one for one in self._all("approvals") if one.state == (state or one.state)]
        return [one for one in found if one.subject == (subject or one.subject)][:limit]

    def now_ms(self) -> int:
        return NOW_MS

    def projected(self) -> dict[tuple[str, str], int]:
        return dict(self.lists.get("projected", {}))

    def governance(self, *, kind: str | None = None, **_: Any) -> list[GovernanceEntry]:
        """Every run that has a version has promoted it, unless entries say otherwise."""
        promoted = [GovernanceEntry(kind="promotion", subject=RUN_ID, actor="ana", recorded_at_ms=NOW_MS)]
        return self._all("governance") or (promoted if kind == "promotion" else [])

    # What `explain` asks for beyond that.

    def retention_reader(self) -> Any:
        """Nothing has gone."""
        return SimpleNamespace(gone=dict)

    def links(self, subject: str, limit: int = 50) -> list[ChainLink]:
        entries = [entry for entry in self._all("governance") if entry.subject == subject][:limit]
        return [
            ChainLink(number=number, entry=entry, previous="0" * 64, hash="1" * 64)
            for number, entry in enumerate(entries, 7)
        ]

    def invocation(self, invocation_id: str) -> Invocation | None:
        calls = self._all("invocations")
        return next((call for call in calls if call.invocation_id == invocation_id), None)

    def attempts(self, run_id: str) -> list[Attempt]:
        return [row for row in self._all("attempts") if row.run_id == run_id]

    def retries(self, run_id: str) -> list[CallRetry]:
        return [row for row in self._all("retries") if row.run_id == run_id]

    def inputs(self, fingerprint: str) -> tuple[Found, ...] | None:
        return dict(self.lists.get("inputs", {})).get(fingerprint)

    def policy_texts(self, bundle_id: str) -> dict[str, str] | None:
        return dict(self.lists.get("policies", {})).get(bundle_id)

    def outbox_messages(self, subject: str) -> list[OutboxMessage]:
        return [message for message in self._all("messages") if message.subject == subject]


class FakeApp:
    """Keeps what it was asked; answers with `answers`, an exception among them is raised."""

    delivered = Delivered()
    files = SimpleNamespace(exists=lambda _path: True)  # every tree is there
    kernel = SimpleNamespace(store=None)

    @property
    def actor(self) -> str:
        from kfm.config import loader

        return loader.actor()

    def deliver_incidents(self) -> list[Any]:
        return []

    def shipped_feed(self, name: str) -> Any:
        raise AssertionError(f"no feed is configured, and {name} was asked for")

    def subject(self, _request: RunRequest) -> Any:
        return SimpleNamespace(window=None)

    def __init__(self, **lists: Any) -> None:
        self.ledger = FakeLedger(**lists)
        self.clock = FakeClock()
        self.liveness = FakeLiveness()
        self.requests: list[RunRequest] = []
        self.switched: list[tuple[str, str]] = []
        self.opened: list[bool] = []
        self.answers: dict[str, Any] = {}
        self.projection_reports: list[ProjectionReport] = []
        self.settings: Any = None
        self.loaded: Any = None

    @contextmanager
    def place(self, session: Any, _directory: str | None) -> Iterator[Any]:
        """As `kfm.cli.options.opened`: no pipeline has run here."""
        with self.open(session.load(), read_only=True):
            tables = SimpleNamespace(get=lambda _run: None, passes=lambda limit: [])
            yield SimpleNamespace(
                store=self.ledger,
                tables=tables,
                loaded=self.loaded,
                clock=self.clock,
                liveness=self.liveness,
            )

    @contextmanager
    def open(
        self, loaded: Any, *, read_only: bool = False, progress: Any = None, **_: Any
    ) -> Iterator[FakeApp]:
        self.loaded, self.settings = loaded, loaded.settings
        self.opened.append(read_only)
        yield self

    def run(self, request: RunRequest) -> RunReport:
        self.requests.append(request)
        answer = self.answers.get(request.source_id, {})
        if isinstance(answer, BaseException):
            raise answer
        return make_report(request, **answer)

    def preview(self, request: RunRequest) -> RunReport:
        assert request.dry_run
        return self.run(request)

    def project(self, dataset_id: str | None = None, *, everything: bool = False) -> list[ProjectionReport]:
        assert everything
        return self.projection_reports

    def set_switch(self, scope: str, position: Any, **facts: Any) -> Switch:
        self.switched.append((scope, position))
        return make_switch(scope=scope, position=position, rationale=facts["rationale"], actor=facts["actor"])
