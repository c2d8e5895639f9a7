"""What is said of each attempt, on every path there is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kfm.lineage.emitter import TOPIC, NullEmitter
from kfm.lineage.facets import NAMED_MAX
from kfm.model.canonical import canonical_bytes
from kfm.model.input_hash import sha256_text
from kfm.model.keys import attempt_id, uuid5
from kfm.model.redaction import redactor
from kfm.model.runs import Circumstances, Code
from kfm.model.units import wal_id
from tests.unit.lineage.samples import (
    INVOCATION_ID,
    RUN_ID,
    START_MS,
    asset,
    attempt,
    changes,
    emitter,
    ended,
    event,
    everything,
    found,
    gates,
    invocation,
    report,
    run,
    validator,
)


def facets(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["run"]["facets"]
    return found


@pytest.mark.req("UPD-15", "TRG-8")
@pytest.mark.parametrize(("ending", "kind"), [("complete", "COMPLETE"), ("fail", "FAIL"), ("abort", "ABORT")])
@pytest.mark.parametrize("node", ["", "fetch"])
def test_an_attempt_has_a_start_and_an_end(ending: str, kind: str, node: str) -> None:
    """Start and end of an attempt are events of one OpenLineage run, which is the attempt's own."""
    said = emitter()
    start = said.started(attempt(node), run(), everything())
    end = said.ended(ended(ending, node), run(), everything())
    assert end is not None
    first, last = event(start), event(end)
    assert (first["eventType"], last["eventType"]) == ("START", kind)
    assert first["run"]["runId"] == last["run"]["runId"] == attempt(node).lineage_id
    assert first["job"] == last["job"]
    assert first["job"]["name"] == ("usgs-daily.fetch" if node else "usgs-daily")
    assert first["job"]["namespace"] == "kfm.test"
    assert first["eventTime"] == "2026-01-01T00:00:00.001Z"
    assert last["eventTime"] == "2026-01-01T00:00:02.500Z"
    assert start.event_id == uuid5(attempt(node).lineage_id, "START")
    assert end.event_id == uuid5(attempt(node).lineage_id, kind)
    assert (end.topic, end.subject) == (TOPIC, RUN_ID)
    assert ("errorMessage" in facets(last)) == (kind != "COMPLETE")


@pytest.mark.req("TRG-8")
def test_an_attempt_belongs_to_its_run_and_a_node_to_its_attempt() -> None:
    """The run is the parent of its attempts; an attempt is the parent of its nodes, the run their root."""
    whole = facets(event(emitter().started(attempt(number=2), run(), Circumstances())))["parent"]
    node = facets(event(emitter().started(attempt("fetch", 2), run(), Circumstances())))["parent"]
    job = {"namespace": "kfm.test", "name": "usgs-daily"}
    assert (whole["run"]["runId"], whole["job"]) == (RUN_ID, job)
    assert (node["run"]["runId"], node["job"]) == (attempt_id(RUN_ID, 2), job)
    assert node["root"] == {"run": {"runId": RUN_ID}, "job": job}


@pytest.mark.req("TRG-8")
def test_an_attempt_that_was_reaped_ends_without_circumstances() -> None:
    """Of an attempt whose process died only its row is known: that is enough for an event."""
    reaped = ended("abort", "fetch", error_code="WORKER_DIED", error_message=None)
    document = event(emitter().ended(reaped, run(), Circumstances()))
    assert document["eventType"] == "ABORT"
    assert facets(document)["errorMessage"]["message"] == "WORKER_DIED"
    assert document["inputs"] == document["outputs"] == []


def test_an_attempt_under_way_has_no_end() -> None:
    """No terminal event is made of an attempt that has none."""
    assert emitter().ended(attempt(), run(), everything()) is None


@pytest.mark.req("RS-8")
def test_a_node_carries_its_record_of_run_state() -> None:
    """kfmRunState of a node holds the members of its run-state record."""
    state = facets(event(emitter().ended(ended("complete", "validate"), run(), everything())))["kfmRunState"]
    assert state["kind"] == "node"
    assert (state["dataset_id"], state["run_id"], state["attempt"]) == ("ks-streamflow", RUN_ID, 1)
    assert state["inputs_hash"] == "sha256:" + "4" * 64
    assert state["validation_summary"] == {"checks": 2, "passed": 2, "failed": 0}
    assert state["outcome"] == "success"
    assert state["recorded_at"] == "2026-01-01T00:00:02.500Z"
    assert state["code_sha"] == "sha256:" + "5" * 64


@pytest.mark.req("UPD-15", "TRG-8")
def test_the_keys_can_be_computed_from_what_is_told() -> None:
    """The documents behind the keys are told in full: their hashes are the keys."""
    told = facets(event(emitter().ended(ended("complete"), run(), everything())))["kfmIdempotency"]
    for name, key in (("trigger", told["idempotency_key"]), ("work", told["work_key"])):
        assert told["documents"][name]["complete"]
        assert sha256_text(canonical_bytes(told["documents"][name]["document"])) == key


def test_a_key_document_that_is_not_told_in_full_says_so() -> None:
    """Credentials in an announced address, and members that are not known, stay at home."""
    secret = {"kfm": "trigger/1", "source_uri": "https://me:hunter22@host/x", "payload": {"name": "Ada"}}
    known = everything(key_documents={"trigger": secret})
    document = event(emitter().started(attempt(), run(), known))
    told = facets(document)["kfmIdempotency"]["documents"]["trigger"]
    assert told == {"complete": False, "document": {"kfm": "trigger/1", "source_uri": "https://host/x"}}
    assert "hunter22" not in json.dumps(document)


@pytest.mark.req("TRG-8")
def test_gates_are_told_with_their_policies() -> None:
    """What each gate said, by which policies, under which bundle; secrets in a reason are masked."""
    told = facets(event(emitter().started(attempt(), run(), everything(gates=gates(allowed=False)))))[
        "kfmGates"
    ]
    assert told["policies"] == "sha256:" + "8" * 64
    assert [gate["allowed"] for gate in told["gates"]] == [True, False]
    assert told["gates"][1]["policy_ids"] == ["care.public"]
    assert "hunter22" not in told["gates"][1]["reason"]


@pytest.mark.req("TRG-8")
def test_energy_is_told_with_its_assumption() -> None:
    """Energy and carbon say that they are modelled, and with which figures."""
    told = facets(event(emitter().ended(ended("complete"), run(), everything())))["kfmEnergy"]
    assert (told["cpu_us"], told["energy_uwh"], told["co2_ug"]) == (1500, 4, 1386)
    assert told["method"] == "modelled"
    assert "332.6" in told["assumption"]


@pytest.mark.req("UPD-15", "TRG-8")
def test_inputs_carry_their_checksums_and_outputs_their_version() -> None:
    """Inputs by their checksum, outputs by address, version, columns and size."""
    document = event(emitter().ended(ended("complete"), run(), everything()))
    source = document["inputs"][0]
    assert (source["namespace"], source["name"]) == ("https://water.example", "/daily/1.csv")
    assert source["facets"]["kfmContent"]["sha256"] == "6" * 64
    assert source["facets"]["kfmContent"]["etag"] == '"abc"'
    local, bucket, first, _ = document["outputs"]
    assert (local["namespace"], local["name"]) == ("file", "/srv/open/ks-streamflow")
    assert (bucket["namespace"], bucket["name"]) == ("s3://open-data", "v1/ks-streamflow")
    for home in (local, bucket):
        assert home["facets"]["version"]["datasetVersion"] == "sha256:" + "9" * 64
        assert [field["name"] for field in home["facets"]["schema"]["fields"]] == ["site", "q"]
        assert home["outputFacets"]["outputStatistics"]["fileCount"] == 2
    assert first["name"] == "/srv/open/ks-streamflow/daily/1.csv"
    assert first["facets"]["kfmContent"]["sha256"] == "7" * 64
    assert document["job"]["facets"]["sourceCodeLocation"]["path"] == "pipelines/daily.py"


@pytest.mark.req("RS-13", "TRG-9")
def test_checks_are_told_without_what_they_found() -> None:
    """A failed check is named; the rows that broke it are not."""
    known = Circumstances(report=report(failed=2))
    emitted = emitter().ended(ended("fail", "validate"), run(), known)
    document = event(emitted)
    judged = document["inputs"][0]
    assert judged["name"] == "/srv/open/ks-streamflow"
    assertions = judged["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [told["success"] for told in assertions] == [True, False, False]
    assert assertions[1]["assertion"] == "not_null"
    assert assertions[0]["params"] == {"path": "daily/1.csv"}
    assert emitted is not None
    assert "Lovelace" not in emitted.body


@pytest.mark.req("TRG-9", "RS-13")
def test_of_a_person_only_the_acting_name_is_told() -> None:
    """The actor is named; rationale and claimed names are not."""
    emitted = emitter().ended(ended("complete"), run(), everything())
    assert emitted is not None
    assert facets(event(emitted))["kfmTrigger"]["actor"] == "maria"
    assert "555-0100" not in emitted.body


@pytest.mark.req("TRG-5", "TRG-9")
def test_a_webhook_and_an_announcement_are_told_by_hash_and_verdict() -> None:
    """Envelope hash, signature verdict, tags and watermark go in where they are known; nothing else does."""
    documents = {
        "trigger": {
            "kfm": "trigger/1",
            "trigger_type": "upstream-event",
            "source_uri": "s3://noaa/x.nc",
            "content_tag": "etag-1",
            "member_keys": ["a", "b"],
        },
        "envelope": {
            "envelope_sha256": "f" * 64,
            "signature": "valid",
            "reason": "refresh",
            "watermark_time": "2026-01-01T00:00:00Z",
            "watermark_sequence": 12,
            "body": "Ada Lovelace",
        },
    }
    emitted = emitter().started(attempt(), run(), everything(key_documents=documents))
    told = facets(event(emitted))["kfmTrigger"]
    assert told["envelope_sha256"] == "f" * 64
    assert (told["signature"], told["reason"]) == ("valid", "refresh")
    assert (told["source_uri"], told["content_tag"], told["members"]) == ("s3://noaa/x.nc", "etag-1", 2)
    assert (told["watermark_time"], told["watermark_sequence"]) == ("2026-01-01T00:00:00Z", 12)
    assert "Lovelace" not in emitted.body


@pytest.mark.req("WAL-17")
def test_a_unit_has_its_place_among_the_tags() -> None:
    """Beside the trigger an event may name the unit that it is about; a tag of any other name is refused."""
    document = event(emitter().started(attempt(), run(), everything()))
    tags = facets(document)["tags"]["tags"]
    assert [tag["key"] for tag in tags] == ["trigger"]
    tags.append({**tags[0], "key": "wal_id", "value": wal_id("goes-abi", "s3://b/k", START_MS)})
    assert validator().is_valid(document)
    tags[-1]["key"] = "unit"
    assert not validator().is_valid(document)


@pytest.mark.req("TRG-8")
@pytest.mark.parametrize(("outcome", "kind"), [("refused", "ABORT"), ("failed", "FAIL")])
@pytest.mark.parametrize("run_id", [RUN_ID, None])
def test_a_refused_invocation_has_a_start_and_an_end(outcome: str, kind: str, run_id: str | None) -> None:
    """An invocation that never became an attempt leaves both events, under an id made from its own."""
    call = invocation(
        outcome=outcome, reason="The policy gate: token=hunter22", run_id=run_id, gates=gates(False)
    )
    start, end = emitter().refused(call, Circumstances(), START_MS + 5)
    first, last = event(start), event(end)
    assert [first["eventType"], last["eventType"]] == ["START", kind]
    assert first["run"]["runId"] == last["run"]["runId"] == uuid5(INVOCATION_ID, "0")
    assert start.subject == end.subject == (run_id or INVOCATION_ID)
    assert facets(last)["kfmRunState"]["outcome"] == outcome
    assert [gate["allowed"] for gate in facets(last)["kfmGates"]["gates"]] == [True, False]
    assert facets(last)["errorMessage"]["message"] == "The policy gate: token=***"
    assert ("parent" in facets(last)) == (run_id is not None)


@pytest.mark.parametrize("outcome", ["noop", "busy", "success", None])
def test_a_call_that_found_nothing_to_do_is_no_event(outcome: str | None) -> None:
    """Unchanged and busy calls are rows of the ledger and nothing more."""
    assert emitter().refused(invocation(outcome=outcome), Circumstances(), START_MS) == ()


@pytest.mark.req("RS-13")
def test_a_masked_dataset_is_not_named() -> None:
    """No id, address, column, check, message or person of a masked dataset leaves the house."""
    secret_words = "usgs ks-streamflow water.example daily maria KS-7 upstream site gauge pipelines sha256:4"
    said = emitter(masked=lambda _: True, mask=lambda text: "masked-" + format(len(text), "012x"))
    known = everything(report=report(failed=1))
    texts = [
        said.started(attempt(), run(partition="daily"), known),
        said.ended(ended("complete"), run(partition="daily"), known),
        said.ended(ended("fail", "validate"), run(), known),
        *said.refused(invocation(outcome="refused", reason="ks-streamflow"), known, START_MS),
    ]
    for emitted in texts:
        document = event(emitted)
        assert emitted is not None
        body = emitted.body.replace("sha256:4444", "")
        for word in secret_words.split():
            assert word not in body, word
        assert document["job"]["name"].startswith("masked-")
        assert facets(document)["kfmRunState"].get("code_sha") is None  # run ids are made of it
        for dataset in document["inputs"] + document["outputs"]:
            assert dataset["namespace"] == "masked"
            assert re.fullmatch("masked-[0-9a-f]{12}", dataset["name"])
            assert dataset["facets"].keys() <= {"dataSource", "version"}
    assert facets(event(texts[1]))["kfmMore"]["outputs"] == 2


@pytest.mark.req("UPD-15")
def test_an_event_names_a_bounded_number_of_datasets() -> None:
    """Of 10,000 inputs and outputs 500 are named, and the event says how many more there are."""
    many = range(10_000)
    known = everything(inputs=tuple(map(found, many)), outputs=tuple(map(asset, many)))
    document = event(emitter().ended(ended("complete"), run(), known))
    assert len(document["inputs"]) == len(document["outputs"]) == NAMED_MAX
    more = facets(document)["kfmMore"]
    assert more["inputs"] == 10_000 - NAMED_MAX
    assert more["outputs"] == 10_000 - (NAMED_MAX - 2)  # two of those named are the dataset's homes
    statistics = document["outputs"][0]["outputFacets"]["outputStatistics"]
    assert (statistics["fileCount"], statistics["size"]) == (10_000, 100_000)


@pytest.mark.req("TRG-8")
def test_code_is_found_by_path_function_and_hash() -> None:
    """The file of a pipeline, its function and the hash of its bytes are told apart."""
    known = Circumstances(code=Code(path="pipelines/a b.py:publish", sha="sha256:5"))
    told = event(emitter().started(attempt("transform"), run(), known))["job"]["facets"]["sourceCodeLocation"]
    assert (told["path"], told["version"]) == ("pipelines/a b.py", "sha256:5")
    assert told["url"] == "file:pipelines/a%20b.py#publish"


def test_files_of_a_project_have_whole_names() -> None:
    """A relative path is seen from the project, so that two projects' files are not taken for one."""
    known = everything(inputs=(found(uri="file:incoming/a%20b.csv"),))
    document = event(emitter(folder="/srv/project").ended(ended("complete"), run(), known))
    assert document["inputs"][0]["name"] == "/srv/project/incoming/a b.csv"


def test_a_dataset_without_a_home_goes_by_its_id() -> None:
    """Where nothing is published, the output is the dataset itself, in the namespace of its jobs."""
    document = event(emitter(outputs=lambda _: ()).ended(ended("complete"), run(), everything()))
    assert (document["outputs"][0]["namespace"], document["outputs"][0]["name"]) == (
        "kfm.test",
        "ks-streamflow",
    )


def test_a_clock_set_back_does_not_end_an_attempt_before_its_start() -> None:
    """An end is never earlier than its start."""
    document = event(emitter().ended(ended("complete", ended_at_ms=START_MS - 99), run(), Circumstances()))
    assert document["eventTime"] == "2026-01-01T00:00:00.001Z"


def test_file_names_that_are_no_text_cost_no_evidence() -> None:
    """A name with bytes that are not UTF-8 is written with a replacement, also under a mask."""
    known = everything(inputs=(found(uri="file:///data/\udcff.csv", etag="\udc80"),))
    document = event(emitter().ended(ended("complete"), run(), known))
    assert document["inputs"][0]["name"] == "/data/?.csv"
    said = emitter(masked=lambda _: True, mask=lambda text: text.encode().hex())
    assert event(said.ended(ended("complete"), run(), known))


@pytest.mark.req("TRG-9")
def test_a_secret_that_is_known_is_in_no_event() -> None:
    """What the process knows to be secret is masked wherever it stands, and the event stays valid."""
    clean = redactor(frozenset({'swordfish"42'}))
    known = everything(inputs=(found(uri='https://h/swordfish"42/x', etag='swordfish"42'),))
    emitted = emitter(hide=clean).ended(ended("complete"), run(), known)
    source = event(emitted)["inputs"][0]
    assert (source["name"], source["facets"]["kfmContent"]["etag"]) == ("/***/x", "***")
    assert "swordfish" not in emitted.body


def test_the_null_emitter_emits_nothing() -> None:
    """Without lineage there are no events."""
    silent = NullEmitter()
    assert silent.started(attempt(), run(), everything()) is None
    assert silent.ended(ended("complete"), run(), everything()) is None
    assert silent.refused(invocation(outcome="refused"), everything(), START_MS) == ()


@pytest.mark.req("DAT-4", "DAT-5")
def test_a_change_tells_its_kind_in_public_words() -> None:
    """Each change has a start and an end with the versions that it came from, and what became of the dataset
    in a word that other tools know."""
    found = []
    for told in changes():
        first, last = (event(one) for one in emitter().changed(told))
        assert (first["eventType"], last["eventType"]) == ("START", "COMPLETE")
        assert {**first, "eventType": ""} == {**last, "eventType": ""}
        assert [one["facets"]["version"]["datasetVersion"] for one in last["inputs"]] == list(told.came_from)
        found.append(last["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"])
    assert found == ["OVERWRITE", "ALTER", "TRUNCATE", "OVERWRITE", "ALTER", "DROP"]
