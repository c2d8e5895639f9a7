"""Runs of every kind, as a ledger would tell of them: written by hand, so that nothing has to be run."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import replace

from kfm.model.energy import Energy
from kfm.model.keys import attempt_id, node_attempt_id
from kfm.model.records import (
    Asset,
    Found,
    GateResult,
    GovernanceEntry,
    Invocation,
    Item,
    Manifest,
    Promotion,
    PublishedRun,
    Run,
)
from kfm.model.requests import AnnouncedObject, UpdateRequest
from kfm.model.runs import Attempt, CallRetry, ChainLink, OutboxMessage
from kfm.model.settings import Care, Rights
from kfm.model.versions import Version, version_of

T0 = 1_767_225_600_000  # 2026-01-01T00:00:00Z
DAY_MS = 86_400_000
RUN_ID = "11111111-2222-8333-8444-555555555555"
OTHER_RUN = "99999999-2222-8333-8444-555555555555"
CALLS = [f"0000000{n}-0000-7000-8000-000000000000" for n in range(1, 10)]
FINGERPRINT = "sha256:" + hashlib.sha256(b"upstream").hexdigest()
BUNDLE = "sha256:" + hashlib.sha256(b"policies").hexdigest()
POLICIES = {
    "care-public": "permit(principal, action, resource);",
    "mine": "forbid(principal, action, resource);",
}
ENERGY = Energy(cpu_us=1200, energy_uwh=3, co2_ug=1, assumption="10 W a busy core; 332.6 g/kWh (US-KS)")
GATES = (
    GateResult(gate="switch", allowed=True, reason="running"),
    GateResult(
        gate="policy", allowed=True, reason="fine, says Jane at 38.97,-95.23", policy_ids=("care-public",)
    ),
)
RIGHTS = Rights(
    license="CC-BY-4.0",
    care=Care(label="Public · Low-Risk"),
    local_contexts="https://localcontextshub.org/projects/1234",
)
FOUND = (
    Found(
        uri="https://user:secret@data.example.org/a b.csv?token=hunter2",
        path="a b.csv",
        media_type="text/csv",
        size=3,
        checksum="sha256:" + hashlib.sha256(b"one").hexdigest(),
    ),
    Found(uri="s3://bucket/ü.csv", path="ü.csv", media_type="text/csv", etag='"abc"', modified_ms=T0),
)


def asset(path: str, data: bytes, source_uri: str | None = None) -> Asset:
    return Asset(
        path=path,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        media_type="text/csv",
        source_uri=source_uri,
    )


def item(run_id: str = RUN_ID, *, signed: bool = True) -> Item:
    state = PublishedRun(
        dataset_id="levels",
        run_id=run_id,
        lakefs_branch="main",
        inputs_hash=FINGERPRINT,
        validation_summary={"checks": 2, "passed": 2, "failed": 0},
        outcome="success",
        code_sha="auto-1",
    )
    return Item(
        id="daily_20260101T000000Z_20260102T000000Z",
        source_id="daily",
        window_start_ms=T0,
        window_end_ms=T0 + DAY_MS,
        partition=None,
        assets=(asset("a b.csv", b"one", FOUND[0].uri), asset("made.csv", b"two")),
        bbox=("-102.05", "37", "-94.6", "40"),
        run_state=state if signed else msgspec.UNSET,
    )


def manifest(*items: Item) -> Manifest:
    return Manifest(
        dataset_id="levels",
        title="Levels",
        description="Water levels",
        domain="hydrology",
        keywords=(),
        rights=RIGHTS,
        items=items or (item(),),
    )


def run(**changes: Any) -> Run:
    fields: dict[str, Any] = {
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
        "window_start_ms": T0,
        "window_end_ms": T0 + DAY_MS,
        "partition": None,
        "pipeline_version": "auto-1",
        "status": "success",
        "attempts": 1,
        "fence": 1,
        "start_time_ms": T0 + 1000,
        "end_time_ms": T0 + 9000,
        "fingerprint": FINGERPRINT,
    }
    return Run(**{**fields, **changes})


def call(number: int, outcome: str | None, **changes: Any) -> Invocation:
    fields: dict[str, Any] = {
        "invocation_id": CALLS[number],
        "run_id": RUN_ID,
        "source_id": "daily",
        "dataset_id": "levels",
        "trigger_type": "manual",
        "idempotency_key": "sha256:" + "1" * 64,
        "outcome": outcome,
        "actor": "jane",
        "requested_at_ms": T0 + 1000 + number,
        "gates": GATES,
    }
    return Invocation(**{**fields, **changes})


def tries(number: int, ending: str | None, nodes: tuple[str, ...], code: str | None = None) -> list[Attempt]:
    """One attempt with its nodes; the last node ended as the attempt did."""
    start = T0 + 1000 + number * 2000
    bad = {"error_code": code, "error_class": "unavailable", "retryable": True} if code else {}
    whole = Attempt(
        run_id=RUN_ID,
        attempt=number,
        node="",
        lineage_id=attempt_id(RUN_ID, number),
        invocation_id=CALLS[number],
        started_at_ms=start,
        ended_at_ms=None if ending is None else start + 900,
        ending=ending,  # type: ignore[arg-type]
        inputs_hash=FINGERPRINT,
        energy=ENERGY if ending == "complete" else None,
        validation={"checks": 2, "passed": 2, "failed": 0} if ending == "complete" else None,
        **(bad if ending != "complete" else {}),  # type: ignore[arg-type]
    )
    found = [whole]
    for place, node in enumerate(nodes):
        last = place == len(nodes) - 1
        end = ending if last else "complete"
        found.append(
            Attempt(
                run_id=RUN_ID,
                attempt=number,
                node=node,
                lineage_id=node_attempt_id(RUN_ID, number, node),
                invocation_id=CALLS[number],
                started_at_ms=start + place * 100,
                ended_at_ms=None if end is None else start + place * 100 + 100,
                ending=end,  # type: ignore[arg-type]
                outcome=None if end is None else "success" if end == "complete" else "failed",
                code_sha="auto-1",
                energy=ENERGY if end == "complete" else None,
                **(bad if end not in (None, "complete") else {}),  # type: ignore[arg-type]
            )
        )
    return found


def messages(attempts: list[Attempt], *, dataset: str = "levels") -> list[OutboxMessage]:
    """A start and an end for each, as far as the reader of messages looks at them."""
    found = []
    for one in attempts:
        for kind in (
            "START",
            {"complete": "COMPLETE", "fail": "FAIL", "abort": "ABORT"}.get(one.ending or ""),
        ):
            if kind is None:
                continue
            facets: dict[str, Any] = {"processing_engine": {"version": "9.9.9"}}
            if not one.node:
                facets["kfmGates"] = {"policies": BUNDLE, "gates": []}
            event = {
                "eventType": kind,
                "run": {"runId": one.lineage_id, "facets": facets},
                "job": {"namespace": "kfm.test", "name": dataset},
                "inputs": [],
                "outputs": [],
            }
            body = msgspec.json.encode(event, order="sorted").decode()
            number = len(found) + 1
            found.append(
                OutboxMessage(
                    number=number,
                    event_id=str(number),
                    topic="openlineage",
                    subject=RUN_ID,
                    body=body,
                    recorded_at_ms=T0,
                )
            )
    return found


class PaperLedger:
    """A ledger that knows one run and nothing else."""

    def __init__(self, the_run: Run | None, calls: list[Invocation], attempts: list[Attempt]) -> None:
        self.the_run = the_run
        self.calls = calls
        self.all_attempts = attempts
        self.all_messages = messages(attempts)
        self.all_retries: list[CallRetry] = []
        self.kept_inputs: dict[str, tuple[Found, ...]] = {FINGERPRINT: FOUND}
        self.texts: dict[str, dict[str, str]] = {BUNDLE: POLICIES}
        self.entries: list[GovernanceEntry] = []
        self.all_promotions: list[Promotion] = []
        self.versions: dict[str, Version] = {}
        self.links: list[ChainLink] = []
        self.requests: list[UpdateRequest] = []
        self.objects: list[AnnouncedObject] = []

    def request_reader(self) -> Any:
        return SimpleNamespace(of_run=lambda *_: self.requests, announced=lambda *_: self.objects)

    def derived_reader(self) -> Any:
        return SimpleNamespace(pins=lambda *_: ())

    def run(self, run_id: str) -> Run | None:
        return self.the_run if self.the_run and self.the_run.run_id == run_id else None

    def runs(self, **_: Any) -> list[Run]:
        return [self.the_run] if self.the_run else []

    def attempts(self, run_id: str) -> list[Attempt]:
        return self.all_attempts

    def retries(self, run_id: str) -> list[CallRetry]:
        return self.all_retries

    def invocations(self, *, run_id: str | None = None, limit: int = 50) -> list[Invocation]:
        return list(reversed(self.calls))[:limit]

    def invocation(self, invocation_id: str) -> Invocation | None:
        return next((one for one in self.calls if one.invocation_id == invocation_id), None)

    def outbox_messages(self, subject: str) -> list[OutboxMessage]:
        return [one for one in self.all_messages if one.subject == subject]

    def events_between(self, first: int, last: int, limit: int = 500) -> list[OutboxMessage]:
        return [one for one in self.all_messages if first <= one.number <= last][:limit]

    def inputs(self, fingerprint: str) -> tuple[Found, ...] | None:
        return self.kept_inputs.get(fingerprint)

    def policy_texts(self, bundle_id: str) -> dict[str, str] | None:
        return self.texts.get(bundle_id)

    def governance(
        self, *, kind: str | None = None, subject: str | None = None, limit: int = 50
    ) -> list[GovernanceEntry]:
        return [one for one in self.entries if subject in (None, one.subject) and kind in (None, one.kind)]

    def chain(self, after: int = 0, limit: int = 1000) -> list[ChainLink]:
        return [one for one in self.links if one.number > after][:limit]

    def promotions(self, dataset_id: str, limit: int = 50) -> list[Promotion]:
        return list(reversed(self.all_promotions))[:limit]

    def promotion(self, dataset_id: str, sequence: int) -> Promotion | None:
        return next((one for one in self.all_promotions if one.sequence == sequence), None)

    def version(self, version_id: str) -> Version | None:
        return self.versions.get(version_id)


NODES = ("fetch", "transform", "validate", "publish")


def succeeded(*, signed: bool = True) -> PaperLedger:
    made = version_of(manifest(item(signed=signed)))
    version = made.version_id
    ledger = PaperLedger(run(version_id=version), [call(1, "success")], tries(1, "complete", NODES))
    ledger.versions[version] = made
    first = Promotion(
        dataset_id="levels",
        sequence=1,
        version_id="sha256:" + "a" * 64,
        run_id=OTHER_RUN,
        fence=1,
        policy_epoch=0,
        promoted_at_ms=T0,
    )
    mine = replace(first, sequence=2, version_id=version, run_id=RUN_ID, promoted_at_ms=T0 + 9000)
    ledger.all_promotions = [first, mine]
    ledger.entries = [
        GovernanceEntry(
            kind="promotion",
            subject=RUN_ID,
            actor="jane",
            recorded_at_ms=T0 + 9000,
            details={"dataset_id": "levels", "version_id": version, "policies": BUNDLE},
        )
    ]
    return ledger


def failed() -> PaperLedger:
    end = run(status="failed", error_code="KFM400", error_message="https://jane@host/?token=hunter2 is down")
    ledger = PaperLedger(end, [call(1, "failed")], tries(1, "fail", NODES[:1], "KFM400"))
    ledger.all_retries = [
        CallRetry(
            run_id=RUN_ID,
            attempt=1,
            node="fetch",
            call=1,
            number=number,
            delay_ms=500,
            error_class="unavailable",
            retryable=True,
            outcome="gave-up" if number == 3 else "retried",
            circuit_open=False,
            at_ms=T0,
        )
        for number in (1, 2, 3)
    ]
    return ledger


def refused() -> PaperLedger:
    """Begun, and stopped by a gate on the way; a second call did not get past the door."""
    denied = (*GATES, GateResult(gate="care", allowed=False, reason="no", policy_ids=("mine",), halts=True))
    calls = [call(1, "refused", gates=denied), call(2, "refused", gates=denied, claimed_actor="the boss")]
    end = run(status="failed", error_code="KFM302")
    return PaperLedger(end, calls, tries(1, "abort", NODES[:3], "KFM302"))


def killed() -> PaperLedger:
    """The process died in its second node, and the reaper closed what it had left."""
    end = run(status="failed", error_code="WORKER_DIED")
    return PaperLedger(end, [call(1, "failed")], tries(1, "abort", NODES[:2], "WORKER_DIED"))


def retried() -> PaperLedger:
    ledger = succeeded()
    ledger.the_run = replace(ledger.the_run, attempts=2)  # type: ignore[type-var]
    ledger.calls = [call(1, "failed"), call(2, "success", trigger_type="retry"), call(3, "noop")]
    ledger.all_attempts = [*tries(1, "abort", NODES[:2], "LEASE_EXPIRED"), *tries(2, "complete", NODES)]
    ledger.all_messages = messages(ledger.all_attempts)
    ledger.entries.append(
        GovernanceEntry(
            kind="governed-retry",
            subject=RUN_ID,
            actor="olga",
            recorded_at_ms=T0 + 3000,
            rationale="Upstream is well again, says Tom",
            ticket="T-1",
        )
    )
    return ledger


def unchanged() -> PaperLedger:
    ledger = succeeded()
    made = version_of(manifest(item(OTHER_RUN)))
    version = made.version_id
    ledger.versions = {version: made}
    ledger.the_run = run(version_id=version)
    ledger.all_promotions = [replace(ledger.all_promotions[0], version_id=version)]
    ledger.entries = []
    return ledger


def running() -> PaperLedger:
    under_way = run(status="running", end_time_ms=None, fingerprint=None)
    return PaperLedger(under_way, [call(1, None)], tries(1, None, NODES[:2]))


def forgotten() -> PaperLedger:
    """From before evidence was kept: the run's row, and no more."""
    ledger = PaperLedger(run(version_id="sha256:" + "b" * 64), [call(1, "success")], [])
    ledger.kept_inputs, ledger.texts = {}, {}
    return ledger


EVERY = {
    "succeeded": succeeded,
    "failed": failed,
    "refused": refused,
    "killed": killed,
    "retried": retried,
    "unchanged": unchanged,
    "running": running,
    "forgotten": forgotten,
    "from before items named their run": lambda: succeeded(signed=False),
}
