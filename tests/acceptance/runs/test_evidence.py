"""Whatever became of a call, a stranger can read from its evidence what happened, and check it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyshacl
import pytest
import rdflib

from tests.acceptance.runs.conftest import SCHEMAS, Inside, http_source
from tests.crash import evidence
from tests.crash.project import finish
from tests.crash.scenarios import RUN
from tests.crash.upstream import Upstream

pytestmark = pytest.mark.req("TRG-8", "RS-8", "GOV-2")

PIPELINE = """\
import os

def publish(context):
    if os.path.exists("broken"):
        raise RuntimeError("the model does not converge")
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)
"""
NODES = ("fetch", "transform", "validate", "publish")
Valid = Callable[[str, Any], None]


@pytest.fixture(scope="module")
def shapes() -> rdflib.Graph:
    return rdflib.Graph().parse(SCHEMAS.parent / "shapes" / "prov.ttl", format="turtle")


class Reader:
    """A reader who has no more than the commands."""

    def __init__(self, project: Inside, shapes: rdflib.Graph, valid: Valid) -> None:
        self._project = project
        self._shapes = shapes
        self._valid = valid

    def told(self, subject: str) -> dict[tuple[int, str], list[str]]:
        """Attempt and node → what is told of it, in order. Every event keeps to its schema."""
        ended = self._project.kfm("lineage", "show", subject, "--events")
        assert ended.code == 0, ended
        found: dict[tuple[int, str], list[str]] = {}
        names: dict[str, tuple[int, str]] = {}
        for line in ended.out.splitlines():
            event = json.loads(line)
            self._valid("openlineage-event", event)
            state = event["run"]["facets"]["kfmRunState"]
            place = (state["attempt"] or 0, state.get("node") or "")
            assert names.setdefault(event["run"]["runId"], place) == place, "one lineage run, one attempt"
            found.setdefault(place, []).append(event["eventType"])
        assert len(names) == len(found), "every attempt has a lineage run of its own"
        return found

    def provenance(self, subject: str) -> rdflib.Graph:
        """The PROV document, which keeps to its shapes."""
        ended = self._project.kfm("lineage", "prov", subject)
        assert ended.code == 0, ended
        graph = rdflib.Graph().parse(data=ended.out, format="json-ld")
        conforms, _, text = pyshacl.validate(graph, shacl_graph=self._shapes, inference="none")
        assert conforms, text
        return graph

    def sound(self) -> None:
        """The chain verifies, and nothing is torn, doubled or lost."""
        ended = self._project.kfm("audit", "verify", "--json")
        assert ended.code == 0, ended
        assert evidence.problems(self._project) == []


@pytest.fixture
def reader(project: Inside, shapes: rdflib.Graph, valid: Valid) -> Iterator[Reader]:
    made = Reader(project, shapes, valid)
    yield made
    made.sound()


def whole(end: str) -> dict[str, list[str]]:
    return {name: ["START", end] for name in ("", *NODES)}


def of_attempt(told: dict[tuple[int, str], list[str]], number: int) -> dict[str, list[str]]:
    return {node: kinds for (attempt, node), kinds in told.items() if attempt == number}


def test_a_run_that_succeeds(project: Inside, reader: Reader) -> None:
    """A success has one start and one completion, for itself and for each of its nodes."""
    project.configure(extra='pipeline: "pipeline.py:publish"')
    project.write("pipeline.py", PIPELINE)
    ended = project.run()
    assert ended.code == 0, ended
    run_id = ended.result["run_id"]
    assert reader.told(run_id) == {(1, node): kinds for node, kinds in whole("COMPLETE").items()}
    assert len(reader.provenance(run_id)) > 0


def test_a_run_that_fails(project: Inside, reader: Reader) -> None:
    """A failure ends the node that failed and its run; nodes that it did not reach never began."""
    project.configure(extra='pipeline: "pipeline.py:publish"')
    project.write("pipeline.py", PIPELINE)
    project.write("broken", "")
    ended = project.run()
    assert ended.code == 1, ended
    run_id = ended.result["run_id"]
    assert of_attempt(reader.told(run_id), 1) == {
        "": ["START", "FAIL"],
        "fetch": ["START", "COMPLETE"],
        "transform": ["START", "FAIL"],
    }
    reader.provenance(run_id)


def test_data_that_breaks_its_contract(project: Inside, reader: Reader) -> None:
    """What the contract refuses has failed by itself: its validation and its run end with FAIL."""
    project.write("incoming/a.csv", b"station,level_m\nx,1000\n")
    ended = project.run()
    assert ended.code == 3, ended
    told = of_attempt(reader.told(ended.result["run_id"]), 1)
    assert told[""] == ["START", "FAIL"]
    assert {kinds[0] for kinds in told.values()} == {"START"}
    assert {len(kinds) for kinds in told.values()} == {2}
    reader.provenance(ended.result["run_id"])


def test_a_call_that_is_refused(project: Inside, reader: Reader) -> None:
    """A call that a switch turns away becomes no run, and still has a start and an end."""
    assert project.kfm("switch", "set", "stopped", "--all", "--rationale", "flood").code == 0
    ended = project.run()
    assert ended.code == 3, ended
    call = ended.result["invocation_id"]
    assert reader.told(call) == {(0, ""): ["START", "ABORT"]}
    reader.provenance(call)
    assert project.rows("SELECT count(*) FROM attempts") == [(0,)]


def test_a_run_that_is_killed(project: Inside, upstream: Upstream, reader: Reader) -> None:
    """A killed process leaves an attempt that the next process ends with ABORT, before its own begins."""
    project.configure(source=http_source(upstream))
    written = (project.folder / "kfm.yml").read_text()
    project.write("kfm.yml", written.replace("lease: {seconds: 1}", "lease: {seconds: 60}"))
    upstream.hold.clear()
    first = project.start(*RUN)
    assert upstream.began.wait(20)
    first.kill()
    finish(first)
    upstream.hold.set()
    ended = project.run()
    assert ended.code == 0, ended
    told = reader.told(ended.result["run_id"])
    assert of_attempt(told, 1) == {"": ["START", "ABORT"], "fetch": ["START", "ABORT"]}
    assert of_attempt(told, 2) == whole("COMPLETE")
    order = [attempt for attempt, _ in told]
    assert order == sorted(order)
    codes = project.rows("SELECT DISTINCT error_code FROM attempts WHERE ending = 'abort'")
    assert codes == [("WORKER_DIED",)]
    reader.provenance(ended.result["run_id"])


def test_a_run_that_is_retried(project: Inside, reader: Reader) -> None:
    """Each attempt of a retried run stands for itself, and the second says how long it waited."""
    project.configure(extra='pipeline: "pipeline.py:publish"')
    project.write("pipeline.py", PIPELINE)
    broken: Path = project.write("broken", "")
    assert project.run().code == 1
    broken.unlink()
    ended = project.run("--rationale", "fixed", "--ticket", "T-1")
    assert ended.code == 0, ended
    told = reader.told(ended.result["run_id"])
    assert of_attempt(told, 1)[""] == ["START", "FAIL"]
    assert of_attempt(told, 2) == whole("COMPLETE")
    (waited,) = project.rows("SELECT delay_ms FROM attempts WHERE attempt = 2 AND node = ''")[0]
    assert waited >= 0
    events = project.rows("SELECT body FROM outbox WHERE subject = ?", ended.result["run_id"])
    told_delays = {
        state["delay_ms"]
        for state in (json.loads(body)["run"]["facets"]["kfmRunState"] for (body,) in events)
        if state["attempt"] == 2 and state["kind"] == "run"
    }
    assert told_delays == {waited}, "start and end tell the same"
    reader.provenance(ended.result["run_id"])


def test_a_torn_history_is_noticed(project: Inside) -> None:
    """What these tests look at would show a missing end, a doubled start and a broken chain."""
    assert project.run().code == 0
    assert evidence.problems(project) == []
    import apsw

    connection = apsw.Connection(str(project.state / "kfm.db"))
    connection.execute("DELETE FROM outbox WHERE number = (SELECT MAX(number) FROM outbox)")
    connection.execute("UPDATE governance SET actor = 'mallory' WHERE number = 1")
    connection.execute("UPDATE attempts SET ending = NULL WHERE node = 'fetch'")
    connection.close()
    found = "\n".join(evidence.problems(project))
    for sign in ("is told as ['START']", "the audit chain", "has no end", "never posted"):
        assert sign in found, found
