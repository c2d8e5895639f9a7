"""Pipeline runs tell what they did: the executed nodes one by one, those skipped all at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kfm.lineage.pipeline_emitter import PipelineEmitter
from kfm.model.records import Node, Output
from kfm.model.run_state import Left, NodeDone, Parent, PassEnd, PassTry, pass_id, pass_node_id, run_uuid
from kfm.pipelines.declaration import Pipeline
from tests.recording import Recording
from tests.unit.lineage.samples import validator
from tests.workshop import Workshop, chain

RUN = "0190b2c0-0000-7000-8000-000000000001"
HASH = "sha256:" + "a" * 64


def spoken(**changes: Any) -> PipelineEmitter:
    return PipelineEmitter(
        **{"namespace": "kfm.test", "producer_version": "1", "folder": "/project", **changes}
    )


def about(**changes: Any) -> PassTry:
    return PassTry(**{"run_id": RUN, "pipeline_id": "soil", "branch": "main", "attempt": 1,
                      "started_at_ms": 1_000_000, **changes})  # fmt: skip


def done(document: dict[str, Any] | None = None, **changes: Any) -> NodeDone:
    node = Node(**{"dataset_id": "soil.tiles", "run_id": RUN, "lakefs_branch": "main", "inputs_hash": HASH,
                   "validation_summary": {"checks": 2, "passed": 2, "failed": 0}, "outcome": "success",
                   "recorded_at_ms": 1_002_000, "duration_ms": 1500, "code_sha": "version:1",
                   "pipeline_id": "soil", "reason": "first run", **changes})  # fmt: skip
    return NodeDone(node, json.dumps(document or {"inputs": []}).encode())


def read(said: Any) -> list[dict[str, Any]]:
    events = [json.loads(each.body) for each in said]
    for event in events:
        validator().validate(event)
    return events


def events_of(workshop: Workshop) -> list[dict[str, Any]]:
    rows = workshop.database.session.all("outbox.between", first_number=0, last_number=2**40, row_limit=9999)
    events = [json.loads(row[4]) for row in rows]
    for event in events:
        validator().validate(event)
    return events


def kinds(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["eventType"], event["job"]["name"]) for event in events]


@pytest.mark.req("RS-8", "TRG-8")
def test_executed_nodes_have_a_start_and_an_end_each() -> None:
    """They stand between the start and the end of their pass, which is their parent."""
    workshop = Workshop()
    workshop.run(chain("a", "b"), run_id=RUN, kernel=workshop.kernel(emitter=spoken()))
    events = events_of(workshop)
    assert kinds(events) == [
        ("START", "chain"),
        ("START", "chain.a"),
        ("COMPLETE", "chain.a"),
        ("START", "chain.b"),
        ("COMPLETE", "chain.b"),
        ("COMPLETE", "chain"),
    ]
    whole, first = events[0]["run"], events[1]["run"]
    assert whole["runId"] == pass_id(RUN, 1)
    assert first["runId"] == pass_node_id(RUN, 1, "a")
    assert first["facets"]["parent"]["run"]["runId"] == whole["runId"]
    assert whole["facets"]["parent"]["run"]["runId"] == RUN


@pytest.mark.req("RS-3")
def test_skipped_nodes_are_named_by_their_pipeline_run_and_by_nothing_else() -> None:
    """Two events, however many nodes there are; the last names every one that was skipped."""
    workshop = Workshop()
    workshop.run(chain("a", "b"))
    report = workshop.run(chain("a", "b"), kernel=workshop.kernel(emitter=spoken()))
    begun, ended = events_of(workshop)
    state = ended["run"]["facets"]["kfmRunState"]
    assert (begun["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert (state["skipped"], state["counts"]["skipped"]) == (["a", "b"], 2)
    assert report.counts["skipped"] == 2


@pytest.mark.req("RS-8", "RS-1")
def test_a_nodes_facet_is_its_record() -> None:
    """Every field of a record of run-state is in it, by the same name."""
    outputs = (Output(name="out/tiles.csv", checksum="sha256:" + "b" * 64, size=7, kind="file"),)
    start, end = read(spoken().did(about(), done(outputs=outputs)))
    facet = end["run"]["facets"]["kfmRunState"]
    for name in (
        "dataset_id run_id lakefs_branch inputs_hash validation_summary outcome recorded_at attempt "
        "output_commit outputs skipped_because code_sha"
    ).split():
        assert name in facet, name
    assert (facet["outcome"], start["run"]["facets"]["kfmRunState"]["outcome"]) == ("success", None)
    assert start["eventTime"] < end["eventTime"]
    assert [each["name"] for each in end["outputs"]] == ["soil.tiles", "/project/out/tiles.csv"]


@pytest.mark.req("RS-8")
def test_what_a_node_reads_bears_the_name_that_its_maker_gave_it() -> None:
    """A reader who draws the graph finds one dataset, and not two. Parameters are not told."""
    document = {
        "inputs": [
            {"id": "soil.raw", "checksum": HASH},
            {"uri": "file:in/50% of #1?.csv", "checksum": HASH},
            {"uri": "s3://bucket/key?X-Amz-Signature=abc", "etag": "e"},
        ],
        "params": {"password": "hunter2hunter2"},
    }
    made = read(spoken().did(about(), done(dataset_id="soil.raw", outputs=(made_object(),))))[1]["outputs"][0]
    _, end = read(spoken().did(about(), done(document)))
    names = [(each["namespace"], each["name"]) for each in end["inputs"]]
    assert names[0] == (made["namespace"], made["name"])
    assert names[1:] == [("file", "/project/in/50% of #1?.csv"), ("s3://bucket", "key")]
    assert "hunter2" not in json.dumps(end)


def made_object() -> Output:
    return Output(name="value.json", checksum=HASH, size=3)


@pytest.mark.req("RS-8", "RS-9")
def test_an_attempt_that_was_killed_is_ended_by_the_next() -> None:
    """Its end is an abort with the reason, told when the run goes on, or another takes its place."""
    left: list[Left] = [(about(), "WORKER_DIED")]
    abort, start = read(spoken().began(about(attempt=2, started_at_ms=2_000_000), left))
    assert (abort["eventType"], abort["run"]["runId"]) == ("ABORT", pass_id(RUN, 1))
    assert "WORKER_DIED" in abort["run"]["facets"]["errorMessage"]["message"]
    assert (start["eventType"], start["run"]["runId"]) == ("START", pass_id(RUN, 2))


@pytest.mark.req("RS-13")
def test_a_masked_dataset_is_named_nowhere() -> None:
    """Neither the node, nor its job, branch, inputs, outputs, code, error; nor an id that proves a guess."""
    said = spoken(masked=lambda name: name.startswith("grave"), mask=lambda _: "masked-0123456789ab")
    document = {"inputs": [{"id": "grave.raw", "checksum": HASH}, {"uri": "s3://graves/a", "etag": "x"}]}
    whole = about(pipeline_id="grave", branch="graves-of-2020")
    events = read(
        [
            *said.began(whole, ()),
            *said.did(whole, done(document, dataset_id="grave.sites", outputs=(made_object(),))),
            *said.did(
                whole,
                done(document, dataset_id="grave.more", outcome="failed", error_code="PIPELINE_FAILED",
                     error_message="grave 7 is empty"),
            ),
            *said.ended(
                whole,
                PassEnd("failed", 3_000_000, {"skipped": 1}, ["grave.old"], ["grave.more"],
                        error_code="NODES_FAILED", error_message="grave.more"),
            ),
        ]
    )  # fmt: skip
    assert "grave" not in json.dumps(events)
    ids = {event["run"]["runId"] for event in events}
    assert pass_node_id(RUN, 1, "grave.sites") not in ids


@pytest.mark.req("RS-13")
def test_the_nodes_of_a_masked_run_are_masked_whatever_they_are_called() -> None:
    """A governed run's dataset decides for everything that is made on its way."""
    said = spoken(masked=lambda name: name == "graves", mask=lambda _: "masked-0123456789ab")
    within = about(parent=Parent("diggings", "graves"), branch=f"run/{RUN}")
    text = json.dumps(read([*said.began(within, ()), *said.did(within, done())]))
    assert "soil" not in text
    assert "diggings" not in text


@pytest.mark.req("RS-13")
def test_secrets_that_the_process_knows_are_taken_out() -> None:
    """Also from a message that a node's own error brought along."""
    said = spoken(hide=lambda text: text.replace("hunter2", "***"))
    failed = done(outcome="failed", error_code="PIPELINE_FAILED", error_message="no hunter2 here")
    assert "hunter2" not in json.dumps(read(said.did(about(), failed)))


@pytest.mark.req("RS-3")
def test_more_names_than_an_event_holds_are_counted() -> None:
    """The bound is told, not passed over."""
    names = [f"n{number}" for number in range(100_003)]
    (event,) = read(spoken().ended(about(), PassEnd("success", 2_000_000, {}, names)))
    assert len(event["run"]["facets"]["kfmRunState"]["skipped"]) == 100_000
    assert event["run"]["facets"]["kfmMore"]["nodes"] == 3


@pytest.mark.req("RS-8")
def test_a_run_that_people_named_has_an_id_that_everybody_takes() -> None:
    """OpenLineage knows runs by UUIDs alone; the name itself is in the facet."""
    (start,) = read(spoken().began(about(run_id="nightly 7"), ()))
    assert start["run"]["facets"]["parent"]["run"]["runId"] == run_uuid("nightly 7")
    assert start["run"]["facets"]["kfmRunState"]["run_id"] == "nightly 7"
    assert run_uuid(RUN) == RUN


@pytest.mark.req("RS-3", "RS-11")
def test_a_pass_is_one_span_with_a_child_for_each_executed_node() -> None:
    """Counts and names of skipped nodes are attributes of the pass; a skipped node has no span."""
    workshop, telemetry = Workshop(), Recording()
    workshop.run(chain("a", "b"))
    both = chain("a", "b", "c")
    workshop.run(both, kernel=workshop.kernel(telemetry=telemetry))
    whole, node = telemetry.spans
    assert (whole.name, node.name, node.parent) == ("kfm.pass", "kfm.node", whole)
    assert whole.ended
    assert (whole.attributes["skipped"], whole.attributes["skipped_nodes"]) == (2, "a b")
    assert node.attributes["node"] == "c"
    counted = {dict(labels)["outcome"]: n for (name, labels), n in telemetry.amounts.items()
               if name == "kfm.pass.nodes_total"}  # fmt: skip
    assert counted == {"success": 1, "skipped": 2}
    assert ("kfm.pass.skip_ratio", 2 / 3, {"pipeline": "chain"}) in telemetry.observed


@pytest.mark.req("RS-3")
def test_the_names_in_a_span_are_bounded() -> None:
    """An attribute is short; the event has all."""
    workshop, telemetry = Workshop(), Recording()
    pipeline = Pipeline("wide")
    for number in range(300):
        pipeline.node(f"wide.node{number}", params={"start": number})(_made)
    workshop.run(pipeline)
    workshop.run(pipeline, kernel=workshop.kernel(telemetry=telemetry))
    (whole,) = telemetry.spans
    assert len(str(whole.attributes["skipped_nodes"])) <= 1024
    assert str(whole.attributes["skipped_nodes"]).endswith("…")


def _made(start: int) -> int:
    return start


@pytest.mark.req("TRG-8")
def test_energy_is_told_where_one_node_runs_at_a_time() -> None:
    """And is said to be modelled. Beside other nodes it can't be told whose time it was."""

    class Ticking:
        now_us = 0

        def cpu_us(self) -> int:
            self.now_us += 1000
            return self.now_us

        def package_uj(self) -> None:
            return None

    workshop = Workshop()
    workshop.run(chain("a"), kernel=workshop.kernel(emitter=spoken(), meter=Ticking()))
    facets = events_of(workshop)[2]["run"]["facets"]
    assert (facets["kfmEnergy"]["method"], facets["kfmEnergy"]["cpu_us"]) == ("modelled", 1000)
    workshop = Workshop()
    workshop.run(chain("a"), jobs=2, kernel=workshop.kernel(emitter=spoken(), meter=Ticking()))
    assert "kfmEnergy" not in events_of(workshop)[2]["run"]["facets"]
