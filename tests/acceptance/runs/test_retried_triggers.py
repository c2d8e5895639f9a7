"""Attempts made again at the runs of webhooks, events and people: what their key was made of stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.model.keys import key_of
from kfm.model.records import Run
from kfm.runs.kernel import RunRequest
from tests.acceptance.runs.conftest import Inside
from tests.acceptance.runs.test_retries import FINE, SLOW, change, make_due

ENVELOPE = {"envelope_sha256": f"sha256:{'e' * 64}", "signature": "kfm ok", "reason": "source.updated"}
WEBHOOK = RunRequest(
    source_id="notes", trigger_type="webhook", actor="webhook:notes", request_uuid="u-1", envelope=ENVELOPE
)
EVENT = RunRequest(source_id="notes", trigger_type="upstream-event", actor="queue:levels", message_id="m-1")
FORCED = RunRequest(source_id="notes", actor="ann", force=True, rationale="look again", ticket="OPS-7")


def begun(project: Inside, request: RunRequest) -> Run:
    """A run that this request began and that failed; upstream is mended since."""
    project.write("pipeline.py", SLOW)
    project.configure(extra='pipeline: "pipeline.py:publish", output_version: "1"')
    with project._surroundings(), open_app(load()) as app:
        run = app.run(request).run
    assert run is not None
    assert run.status == "failed"
    project.write("pipeline.py", FINE)
    return run


def left(project: Inside, run: Run, attempt: int = 2) -> dict[str, Any]:
    path = project.state / "runs" / run.run_id / f"attempt-{attempt}" / "idempotency.json"
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def facets(project: Inside, run: Run) -> dict[str, Any]:
    """Of the last event of the run."""
    events = json.loads(project.kfm("lineage", "show", run.run_id, "--events", "--json").out)
    whole = [one for one in events if one["run"]["facets"]["kfmRunState"]["kind"] == "run"]
    told: dict[str, Any] = whole[-1]["run"]["facets"]
    assert told["kfmRunState"]["attempt"] == 2
    return told


@pytest.mark.req("TRG-1", "TRG-2")
@pytest.mark.parametrize("how", ["RUN", "--due"])
@pytest.mark.parametrize(
    ("request_", "named"),
    [(WEBHOOK, {"request_uuid": "u-1"}), (EVENT, {"message_id": "m-1"}), (FORCED, {"force": 1})],
    ids=["webhook", "upstream-event", "forced"],
)
def test_retry_leaves_what_the_key_was_made_of(
    project: Inside,
    valid: Callable[[str, Any], None],
    request_: RunRequest,
    named: dict[str, Any],
    how: str,
) -> None:
    """A retry ends well and leaves a valid idempotency.json, whose document is the one of the run's key."""
    run = begun(project, request_)
    make_due(project)
    ended = project.kfm("retry", run.run_id if how == "RUN" else how)
    assert ended.code == 0, ended
    document = left(project, run)
    valid("idempotency", document)
    trigger = document["key_documents"]["trigger"]
    assert key_of(trigger) == document["idempotency_key"] == run.idempotency_key
    assert trigger.items() >= named.items()


@pytest.mark.req("TRG-5", "TRG-8")
def test_lineage_of_a_retry_has_the_facts_of_the_trigger(project: Inside) -> None:
    """The first trigger's kind, actor, id, envelope and verdict, beside the actor of the retry."""
    run = begun(project, WEBHOOK)
    assert project.kfm("retry", run.run_id).code == 0
    told = facets(project, run)
    trigger = told["kfmTrigger"]
    assert (trigger["type"], trigger["first_type"]) == ("retry", "webhook")
    assert trigger["first_actor"] == "webhook:notes"
    assert trigger["actor"] != "webhook:notes"
    assert trigger.items() >= {**ENVELOPE, "request_uuid": "u-1"}.items()
    assert told["kfmIdempotency"]["documents"]["trigger"]["document"]["request_uuid"] == "u-1"


@pytest.mark.req("TRG-2")
def test_another_trigger_does_not_replace_the_document(project: Inside) -> None:
    """A person who runs what a webhook began makes an attempt at the webhook's run."""
    run = begun(project, WEBHOOK)
    make_due(project)
    with project._surroundings(), open_app(load()) as app:
        assert app.run(RunRequest(source_id="notes", actor="ann")).outcome == "success"
    document = left(project, run)
    assert key_of(document["key_documents"]["trigger"]) == run.idempotency_key


@pytest.mark.req("TRG-2")
def test_run_of_an_earlier_version_has_no_document(
    project: Inside, valid: Callable[[str, Any], None]
) -> None:
    """Where none was kept, it is left out: the retry ends well all the same."""
    run = begun(project, WEBHOOK)
    change(project, "DELETE FROM run_documents")
    assert project.kfm("retry", run.run_id).code == 0
    document = left(project, run)
    valid("idempotency", document)
    assert document["key_documents"].keys() == {"work"}
    assert facets(project, run)["kfmTrigger"]["type"] == "retry"


@pytest.mark.req("TRG-2")
def test_document_of_an_earlier_run_is_made_again_where_it_can_be(project: Inside) -> None:
    """The document of a person's request follows from the work, so it is there without having been kept."""
    run = begun(project, RunRequest(source_id="notes", actor="ann"))
    change(project, "DELETE FROM run_documents")
    assert project.kfm("retry", run.run_id).code == 0
    assert key_of(left(project, run)["key_documents"]["trigger"]) == run.idempotency_key
