"""Accounts of runs, attempts, nodes and calls, from records alone."""

from __future__ import annotations

import pytest

from kfm.model.energy import Energy
from kfm.model.errors import UsageError
from kfm.model.records import Found, GovernanceEntry
from kfm.model.runs import Attempt, CallRetry, OutboxMessage
from kfm.model.settings import DatasetSettings, Settings
from kfm.reports.explain.subjects import explain_record
from tests.acceptance.cli.fakes import NOW_MS, PROMOTION, RUN_ID, FakeLedger, make_call, make_run, make_switch

pytestmark = pytest.mark.req("RS-12")


def tried(attempt: int = 1, node: str = "", **facts: object) -> Attempt:
    values = {
        "run_id": RUN_ID,
        "attempt": attempt,
        "node": node,
        "lineage_id": f"lineage-{attempt}-{node}",
        "invocation_id": "call-1",
        "started_at_ms": NOW_MS,
        "ended_at_ms": NOW_MS + 1500,
        "ending": "complete",
    }
    return Attempt(**{**values, **facts})


def retry(number: int, **facts: object) -> CallRetry:
    values = {
        "run_id": RUN_ID,
        "attempt": 1,
        "node": "fetch",
        "call": 1,
        "number": number,
        "delay_ms": 500 * number,
        "error_class": "unavailable",
        "retryable": True,
        "outcome": "retried",
        "circuit_open": False,
        "at_ms": NOW_MS,
    }
    return CallRetry(**{**values, **facts})


def told(ledger: FakeLedger, wanted: str = RUN_ID, **known: object) -> tuple[str, dict[str, str]]:
    """The reason, and every other sentence with its record."""
    explanation = explain_record(ledger, wanted, NOW_MS, **known)
    return explanation.reason.text, {s.text: f"{s.record.type}:{s.record.id}" for s in explanation.chain}


def test_killed_and_reaped():
    """Who ended it and why, which node it was in, and how long the next attempt waited."""
    rows = [
        tried(1, ending="abort", error_code="WORKER_DIED"),
        tried(1, "fetch", ending="abort", error_code="WORKER_DIED"),
        tried(2, delay_ms=90_000),
    ]
    ledger = FakeLedger(runs=[make_run(attempts=2)], attempts=rows, heads=[PROMOTION])
    _, chain = told(ledger)
    killed = (
        "Attempt 1 began at 2026-01-02 00:00:00 UTC and was killed in step fetch; the reaper ended it at "
        "2026-01-02 00:00:01 UTC: its process was gone (WORKER_DIED)."
    )
    assert chain[killed] == f"attempt:{RUN_ID}#1"
    again = next(text for text in chain if text.startswith("Attempt 2 began"))
    assert "1 min 30 s after the one before had ended, and completed after 1.5 s." in again
    reason, _ = told(
        FakeLedger(runs=[make_run(status="failed", error_code="WORKER_DIED")], attempts=rows[:2])
    )
    assert (
        "was interrupted: its process was gone (WORKER_DIED). Next: Run the same work again: `kfm run"
        in reason
    )


def test_retries_with_their_errors_and_delays():
    """Each call that met trouble: how often, on what, and how long was waited."""
    ledger = FakeLedger(
        runs=[make_run()],
        attempts=[tried(), tried(1, "fetch")],
        retries=[retry(1), retry(2, error_class="timeout"), retry(3, outcome="gave-up", delay_ms=0)],
    )
    _, chain = told(ledger)
    said = (
        "In attempt 1, step fetch, a call was retried 2 times: unavailable, then 500 ms of waiting; "
        "timeout, then 1.0 s of waiting; it gave up on unavailable."
    )
    assert chain[said] == f"attempt:{RUN_ID}#1/fetch"
    _, quiet = told(FakeLedger(runs=[make_run()], attempts=[tried()]))
    assert "No evidence of a call that was tried again." in quiet


def test_who_forced_it_and_why():
    """The entry of the audit log, by its number."""
    entry = GovernanceEntry(
        kind="force", subject=RUN_ID, actor="ana", recorded_at_ms=NOW_MS, rationale="flood", ticket="T-9"
    )
    ledger = FakeLedger(runs=[make_run(force=1, revision=1)], governance=[entry], heads=[PROMOTION])
    reason, chain = told(ledger)
    assert reason == f"Run {RUN_ID} published version 3 of levels because ana forced it."
    assert chain["ana forced it at 2026-01-02 00:00:00 UTC because: flood. Ticket T-9."] == "governance:7"
    _, unknown = told(FakeLedger(runs=[make_run(force=1, revision=1)]))
    assert "No evidence of who forced it." in unknown


def test_idempotency_is_claimed_with_evidence_only():
    """That it acts once is said where an invocation came again with the key and nothing was done."""
    again = make_call(invocation_id="call-2", outcome="noop", requested_at_ms=NOW_MS + 1)
    _, claimed = told(FakeLedger(runs=[make_run()], invocations=[make_call(), again]))
    text = next(text for text in claimed if text.startswith("It acted once: 1 later invocation"))
    assert claimed[text] == "invocation:call-2"
    for other in (
        [make_call()],
        [make_call(), make_call(invocation_id="call-2", outcome="noop", idempotency_key="sha256:other")],
        [make_call(), make_call(invocation_id="call-2", outcome="busy")],
    ):
        _, chain = told(FakeLedger(runs=[make_run()], invocations=other))
        assert not any("acted once" in text for text in chain)
        assert any("No evidence of a repeated request with that key." in text for text in chain)


def test_cost_is_modelled_or_not_known():
    """With the assumption; without figures it says so."""
    energy = Energy(cpu_us=2_500_000, energy_uwh=6944, co2_ug=2310, assumption="10 W per core.")
    _, chain = told(FakeLedger(runs=[make_run()], attempts=[tried(energy=energy)]))
    text = (
        "Attempt 1 used 2.500 s of processor time; modelled cost 6,944 µWh and 2,310 µg CO2e. 10 W per core."
    )
    assert chain[text] == f"attempt:{RUN_ID}#1"
    _, unknown = told(FakeLedger(runs=[make_run()], attempts=[tried()]))
    assert "No evidence of what it cost." in unknown


def test_a_changed_pipeline():
    """The same window, done before with other code."""
    before = make_run(run_id="older", pipeline_version="auto-0", start_time_ms=NOW_MS - 1000)
    reason, chain = told(FakeLedger(runs=[make_run(), before], heads=[PROMOTION]))
    assert reason.endswith("because the pipeline changed from auto-0 to auto-1.")
    assert chain["Run older did the same window with auto-0."] == "run:older"


def test_an_unchanged_call_names_the_run_that_it_equals():
    """Nothing was done because the inputs were those of a run: both fingerprints, one name."""
    call = make_call(invocation_id="call-2", outcome="noop", reason="Any words.", reason_code="unchanged")
    ledger = FakeLedger(runs=[make_run(fingerprint="sha256:same")], invocations=[call])
    explanation = explain_record(ledger, "call-2", NOW_MS)
    assert explanation.kind == "invocation"
    assert explanation.reason.text == (
        f"Invocation call-2 left it unchanged: its inputs equal those of run {RUN_ID}, both are sha256:same."
    )
    assert (explanation.reason.record.type, explanation.reason.record.id) == ("inputs", "sha256:same")


def test_an_unchanged_call_of_an_old_row():
    """Without a code the sentence that was recorded is shown as it is."""
    call = make_call(invocation_id="call-2", outcome="noop", reason="Upstream is unchanged since revision 0.")
    ledger = FakeLedger(runs=[make_run(fingerprint="sha256:same")], invocations=[call])
    said = explain_record(ledger, "call-2", NOW_MS).reason.text
    assert said == "Invocation call-2 left it unchanged: Upstream is unchanged since revision 0."


def test_a_node_and_an_attempt():
    """A node by its run and name, in the newest attempt or in one that is named."""
    rows = [
        tried(1, ending="fail", error_code="KFM404"),
        tried(
            1,
            "fetch",
            ending="fail",
            error_code="KFM404",
            error_message="no route",
            retryable=True,
            inputs_hash="sha256:in",
        ),
        tried(2),
        tried(2, "fetch"),
    ]
    message = OutboxMessage(
        number=5, event_id="e", topic="openlineage", subject=RUN_ID, body="lineage-1-fetch", recorded_at_ms=0
    )
    found = Found(uri="file:a", path="a.csv", media_type="text/csv")
    ledger = FakeLedger(
        runs=[make_run(attempts=2)], attempts=rows, messages=[message], inputs={"sha256:in": (found,)}
    )
    reason, chain = told(ledger, f"{RUN_ID[:6]}#1/fetch")
    assert reason == (
        f"Step fetch of attempt 1 of run {RUN_ID} failed: KFM404: no route. Trying again may help."
    )
    assert chain["It had 1 input: a.csv."] == "inputs:sha256:in"
    assert chain["Event e of topic openlineage waits for delivery."] == "letter:5"
    assert told(ledger, f"{RUN_ID[:6]}/fetch")[0] == f"Step fetch of attempt 2 of run {RUN_ID} completed."
    reason, chain = told(ledger, f"{RUN_ID}#1")
    assert reason.startswith(f"Attempt 1 of run {RUN_ID} failed: KFM404")
    assert any(text.startswith("Step fetch of attempt 1 began") for text in chain)
    with pytest.raises(UsageError, match="No evidence of #3/fetch in run"):
        told(ledger, f"{RUN_ID}#3/fetch")
    with pytest.raises(UsageError, match="No evidence of /validate in run"):
        told(ledger, f"{RUN_ID}/validate")


def test_a_dataset_now():
    """What blocks it comes first, then the newest call, then what readers see."""
    refused = make_call(invocation_id="call-9", outcome="busy", run_id=None, reason="Held.")
    ledger = FakeLedger(runs=[make_run()], invocations=[refused], heads=[PROMOTION], switches=[make_switch()])
    declared = Settings(datasets=(DatasetSettings(id="levels"),))
    explanation = explain_record(ledger, "levels", NOW_MS, datasets=["levels"], settings=declared)
    assert explanation.kind == "dataset"
    assert explanation.reason.text.startswith(
        "Dataset levels is blocked by kill switch on dataset levels, paused by "
    )
    assert explanation.reason.text.endswith(
        "Who can lift it: an operator: `kfm switch set running --dataset levels --rationale TEXT`."
    )
    texts = [sentence.text for sentence in explanation.chain]
    assert texts[0].startswith("Invocation call-9 found the dataset busy: Held.")
    assert texts[1] == f"Readers see version 3, promoted at 2026-01-02 00:00:01 UTC by run {RUN_ID}."


def test_nothing_happened_yet():
    """A source without a request is explained with the command that makes one."""
    explanation = explain_record(FakeLedger(), "daily", NOW_MS, sources=["daily"])
    assert explanation.reason.text == (
        "No run was requested yet (source: daily). To start one: `kfm run --source daily`."
    )


def test_many_are_bounded():
    """However much is on record, an explanation has an end."""
    rows = [tried(number) for number in range(1, 500)]
    calls = [make_call(invocation_id=f"c{n}", reason=f"r{n}", requested_at_ms=n) for n in range(500)]
    retries = [retry(1, call=number) for number in range(500)]
    ledger = FakeLedger(runs=[make_run(attempts=499)], attempts=rows, invocations=calls, retries=retries)
    assert len(explain_record(ledger, RUN_ID, NOW_MS).chain) < 150
