"""What is told of units: their lineage, their history under seal, and the answers to those who ask."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyshacl
import pytest
import rdflib

from kfm.audit.chain import links, seal_all, verify_seals
from kfm.db.queries import migrate, migration_files
from kfm.db.sqlite import SqliteDatabase
from kfm.db.unit_history import of_trail
from kfm.lineage.run_facts import AttemptEvents
from kfm.lineage.unit_events import UnitEventBuilder
from kfm.lineage.unit_provenance import unit_document
from kfm.model.audit import UNITS
from kfm.model.keys import unit_attempt_id
from kfm.model.records import GovernanceEntry
from kfm.model.units import RejectedRecord, UnitFilter, tries, versions
from kfm.reports.lookup import unit_of_activity
from kfm.system import SystemClock
from tests.conformance.units.scene import START_MS, Scene, done, gone, id_of, taken, undone

SHAPES = Path(__file__).resolve().parents[3] / "src" / "kfm" / "contracts" / "shapes" / "prov.ttl"
BODY = '{"Records": "secret of a sender"}'


def told(scene: Scene) -> list[dict[str, Any]]:
    """Every event of every message about units."""
    builder = UnitEventBuilder(namespace="kfm.test", producer_version="1")
    found = []
    for message in scene.store.events_between(1, 2**62, 10_000):
        if message.topic == "unit-lineage":
            found += [json.loads(one.body) for one in builder.messages(message)]
    return found


def busy(scene: Scene) -> None:
    """One unit of each kind: done, tried again, lapsed, put back untried, superseded, given up, gone."""
    scene.succeeded("plain")
    scene.failed("again", "retry")
    scene.due()
    scene.succeeded("again")
    scene.claimed("lapsed")
    assert scene.lapse() == 1
    scene.succeeded("lapsed")
    put_back = scene.claimed("untried")
    scene.end(undone(put_back, charged=False))
    scene.due()
    scene.succeeded("untried")
    old = scene.claimed("superseded")
    scene.take(taken("superseded", "e2", "02"))
    assert scene.end(done(old)).lost == (old.wal_id,)
    scene.succeeded("superseded")
    scene.failed("poison", "quarantine")
    scene.failed("spent", "spent")
    scene.take(gone("plain"))


NAMES = ("plain", "again", "lapsed", "untried", "superseded", "poison", "spent")


@pytest.mark.req("WAL-17", "TRG-8")
def test_each_attempt_is_told_once(scene: Scene) -> None:
    """However attempts end, each that was made has one start and one end in lineage, and no other has any."""
    busy(scene)
    kinds: dict[str, Counter[str]] = {}
    for event in told(scene):
        kinds.setdefault(event["run"]["runId"], Counter())[event["eventType"]] += 1
    made = {
        unit_attempt_id(id_of(name), one.attempt): one for name in NAMES for one in tries(scene.history(name))
    }
    assert set(kinds) == set(made)
    for lineage_id, one in made.items():
        over = "COMPLETE" if one.error_code is None else "FAIL"
        over = "ABORT" if one.error_code in ("LEASE_EXPIRED", "SUPERSEDED") else over
        assert kinds[lineage_id] == Counter({"START": 1, over: 1}), one


@pytest.mark.req("WAL-17")
def test_a_unit_finds_the_messages_about_it(scene: Scene) -> None:
    """All of them, whatever else was posted in the same transaction or millisecond, and each once."""
    busy(scene)
    builder = UnitEventBuilder(namespace="kfm.test", producer_version="1")
    for name in NAMES:
        made = [unit_attempt_id(id_of(name), one.attempt) for one in tries(scene.history(name))]
        wanted = [event for event in told(scene) if event["run"]["runId"] in made]
        messages = scene.units.messages_of(id_of(name))
        found = [one.body for message in messages for one in builder.of_unit(message, id_of(name))]
        assert list(map(json.loads, found)) == wanted != []
    assert scene.units.messages_of(id_of("unknown")) == []


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_an_end_writes_no_index_of_subjects(scene: Scene) -> None:
    """A message about units is found from the history, so a commit does not pay for a second way to it."""
    scene.succeeded("a")
    scene.failed("poison", "quarantine")
    by_subject = scene.sql(
        "SELECT COUNT(*) FROM outbox INDEXED BY outbox_by_subject WHERE topic <> 'unit-lineage'"
    )
    assert by_subject == [(scene.messages("incident"),)]
    assert scene.messages("unit-lineage") == 2


@pytest.mark.req("WAL-17")
def test_messages_from_before_are_found(tmp_path: Path) -> None:
    """Pages that do not say how far the outbox went are told it, also two of one millisecond."""
    database = SqliteDatabase(str(tmp_path / "kfm.db"), SystemClock())
    migrate(database, "sqlite", 1, migration_files()[:18])

    def fill(_session: object) -> None:
        execute = database._connection.execute
        for number, (topic, at_ms) in enumerate(
            [("openlineage", 1), ("unit-lineage", 5), ("unit-lineage", 5), ("unit-lineage", 7)], start=1
        ):
            execute(
                "INSERT INTO outbox VALUES (?, ?, ?, ?, '[]', ?, 0, 0, NULL)",
                (number, f"e{number}", topic, f"units/{at_ms}" if topic != "openlineage" else "run", at_ms),
            )
        for number, at_ms in enumerate((5, 5, 7, 9), start=1):
            execute(
                "INSERT INTO unit_pages VALUES (?, 'succeeded', 'succeeded', ?, NULL, '[]')", (number, at_ms)
            )

    database.write(fill)
    migrate(database, "sqlite", 2)
    found = [[one.number for one in of_trail(database.session, trail)] for trail in ("1", "2", "1 3", "4")]
    assert found == [[2, 3], [2, 3], [2, 3, 4], []]
    database.close()


@pytest.mark.req("WAL-17")
def test_times_of_an_attempt_are_those_of_its_history(scene: Scene) -> None:
    """The start is the claim, the end the transaction that ended it."""
    scene.succeeded("plain")
    start, end = told(scene)
    (one,) = tries(scene.history("plain"))
    texts = [f"{event['eventTime'][:23]}" for event in (start, end)]
    from kfm.lineage.facets import instant

    assert one.ended_at_ms is not None
    assert texts == [instant(at_ms)[:23] for at_ms in (one.started_at_ms, one.ended_at_ms)]


@pytest.mark.req("WAL-17")
def test_what_was_put_back_untried_is_no_attempt(scene: Scene) -> None:
    """A unit that a circuit or a switch kept from being tried has no attempt in its story, nor in lineage."""
    untried = scene.claimed("untried")
    assert len(tries(scene.history("untried"))) == 1  # under way
    scene.end(undone(untried, charged=False))
    assert tries(scene.history("untried")) == []
    assert told(scene) == []


def test_an_attempt_looked_at_what_was_known_when_it_began(scene: Scene) -> None:
    """Bytes that were announced during an attempt are the next one's."""
    busy(scene)
    first, second = tries(scene.history("superseded"))
    assert (first.looked_at.number, first.looked_at.etag) == (1, "e1")
    assert (second.looked_at.number, second.looked_at.etag) == (2, "e2")
    assert [one.number for one in versions(scene.history("superseded"))] == [1, 2]


@pytest.mark.req("WAL-17")
def test_a_unit_is_found_by_any_of_its_attempts(scene: Scene) -> None:
    """Each attempt's lineage run, or its activity, leads to the unit; an id of nothing leads nowhere."""
    busy(scene)
    reader = scene.store.unit_reader()
    for name in NAMES:
        for one in tries(scene.history(name)):
            run = unit_attempt_id(id_of(name), one.attempt)
            assert unit_of_activity(reader, run) == id_of(name)
            assert unit_of_activity(reader, f"urn:kfm:attempt:{run.upper()}") == id_of(name)
    assert unit_of_activity(reader, unit_attempt_id(id_of("plain"), 9)) is None
    assert unit_of_activity(reader, id_of("plain")) is None


@pytest.mark.req("WAL-17", "RS-8")
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_provenance_keeps_to_the_shapes(scene: Scene, masked: bool) -> None:
    """Each unit's document has an activity with its id for each attempt, and is valid, also at work."""
    busy(scene)
    scene.take(taken("waiting"))
    scene.claimed("waiting")
    scene.end(done(scene.claimed("whole"), sha256="ab" * 32))
    bundle = "sha256:" + "cd" * 32
    shapes = rdflib.Graph().parse(SHAPES, format="turtle")
    for name in (*NAMES, "waiting", "whole"):
        document = unit_document(
            scene.stored(name),
            scene.history(name),
            mask=(lambda text: f"masked-{len(text)}") if masked else None,
            environment="test",
            workers={"w1": AttemptEvents(policies=bundle, producer="1.2.3")} if name == "whole" else None,
            policies={bundle: {"care": "permit(principal, action, resource);"}},
        )
        if name == "whole":
            told = json.dumps(document)
            assert "urn:kfm:software:kfm:1.2.3" in told
            assert "unknown" not in told
            assert ("ab" * 32 in told) == (not masked)
        graph = rdflib.Graph().parse(data=json.dumps(document), format="json-ld")
        conforms, _, text = pyshacl.validate(graph, shacl_graph=shapes, inference="none")
        assert conforms, text
        activities = [thing for thing in document["@graph"] if "kfm:UnitAttempt" in thing["@type"]]
        assert len(activities) == len(tries(scene.history(name)))
        assert {thing["kfm:walId"] for thing in activities} == {"masked-34" if masked else id_of(name)}


@pytest.mark.req("WAL-17", "RS-8")
def test_provenance_tells_which_attempt_made_the_item(scene: Scene) -> None:
    """An item that is new, or new again, was generated by the attempt that entered it, from what that saw."""
    busy(scene)
    for name, attempt, version in (("plain", 1, 1), ("again", 2, 1), ("superseded", 2, 2)):
        document = unit_document(scene.stored(name), scene.history(name), mask=None, environment="test")
        (item,) = (thing for thing in document["@graph"] if "kfm:CatalogueItem" in thing["@type"])
        lineage_id = unit_attempt_id(id_of(name), attempt)
        assert item["prov:wasGeneratedBy"] == {"@id": f"urn:kfm:attempt:{lineage_id}"}
        assert item["prov:wasDerivedFrom"] == {"@id": f"urn:kfm:object:{id_of(name)}:{version}"}


# --- seals ---------------------------------------------------------------------------


@pytest.mark.req("GOV-2", "WAL-3")
def test_history_is_sealed_and_its_tail_declared(scene: Scene) -> None:
    """Seals vouch for every page that there is; what came after the last one is counted and named."""
    busy(scene)
    before = verify_seals(scene.store, links(scene.store), UNITS)
    pages = scene.units.pages_written()
    assert (before.sealed, before.unsealed) == (0, pages)
    made = seal_all(scene.store, "tests", stream=UNITS)
    assert sum(one.count for one in made) == pages
    after = verify_seals(scene.store, links(scene.store), UNITS)
    assert (after.sound, after.sealed, after.unsealed, after.unsealed_since) == (True, pages, 0, None)
    assert seal_all(scene.store, "tests", stream=UNITS) == []
    scene.take(taken("more"))
    later = verify_seals(scene.store, links(scene.store), UNITS)
    assert (later.sound, later.unsealed) == (True, 1)
    assert later.unsealed_since is not None
    # The events of the same ledger are another stream.
    assert verify_seals(scene.store, links(scene.store)).seals == 0


TAMPERING = {
    "status": "UPDATE unit_pages SET status = 'succeeded' WHERE event = 'quarantined'",
    "time": "UPDATE unit_pages SET at_ms = at_ms + 1 WHERE event = 'claimed'",
    "members": "UPDATE unit_pages SET members = replace(members, 'e1', 'e9') WHERE event = 'created'",
    "worker": "UPDATE unit_pages SET worker_id = 'intruder' WHERE event = 'claimed'",
    "removed": "DELETE FROM unit_pages WHERE event = 'failed'",
}


@pytest.mark.req("GOV-2", "WAL-3")
@pytest.mark.parametrize("change", TAMPERING.values(), ids=TAMPERING)
def test_a_page_that_was_changed_is_found(scene: Scene, change: str) -> None:
    """Whatever is changed about a sealed page, or if it is taken out, the check names the seal."""
    busy(scene)
    (entry,) = seal_all(scene.store, "tests", stream=UNITS)
    scene.sql(f"{change} RETURNING number")
    verdict = verify_seals(scene.store, links(scene.store), UNITS)
    assert not verdict.sound
    assert (verdict.detail or "").startswith("Pages of units")
    assert entry.stream == UNITS


# --- being asked ---------------------------------------------------------------------


def test_units_are_found_by_what_they_are(scene: Scene) -> None:
    """By dataset, status, error and time of change, the newest first and no more than asked for."""
    busy(scene)
    scene.take(taken("other", dataset="gfs"))

    def found(**wanted: Any) -> set[str]:
        return {unit.object_uri.rpartition("/")[2] for unit in scene.units.find_units(UnitFilter(**wanted))}

    assert found(dataset="gfs") == found(status="pending") == {"other"}
    assert found(status="quarantined") == {"poison"}
    assert found(status="failed", dataset="hrrr") == {"spent"}
    assert found(error_code="HTTP_503") == {"poison", "spent"}
    assert found(status="succeeded") == {"plain", "again", "lapsed", "untried", "superseded"}
    assert found(status="in_progress") == set()
    assert len(scene.units.find_units(UnitFilter(limit=3))) == 3
    ids = [unit.wal_id for unit in scene.units.find_units(UnitFilter())]
    assert ids == sorted(ids, reverse=True)
    newest = max(unit.updated_at_ms for unit in scene.units.find_units(UnitFilter()))
    assert found(since_ms=newest + 1) == set()


def test_the_oldest_open_unit(scene: Scene) -> None:
    """Of what waits or is worked on, the one of the earliest time; none where all is done."""
    assert scene.units.oldest_open("hrrr") is None
    scene.succeeded("plain")
    assert scene.units.oldest_open("hrrr") is None
    scene.take(taken("waits"))
    oldest = scene.units.oldest_open("hrrr")
    assert oldest is not None
    assert oldest.unit.wal_id == id_of("waits")
    scene.claimed("waits")
    at_work = scene.units.oldest_open("hrrr")
    assert at_work is not None
    assert at_work.unit.status == "in_progress"


@pytest.mark.req("WAL-20", "TRG-9")
def test_dead_messages_are_listed_without_what_they_say(scene: Scene) -> None:
    """A list has hashes and codes, the body is told to who asks for it, and a release is on record."""
    hash_of = "sha256:" + "a" * 64
    rejected = RejectedRecord(
        envelope_hash=hash_of, index=0, queue="nodd", error_code="BODY_INVALID", error="No.", body=BODY
    )
    scene.take(rejected)
    scene.take(rejected)
    (listed,) = scene.units.dead_messages()
    assert (listed.envelope_hash, listed.times, listed.body) == (hash_of, 2, None)
    assert scene.units.dead_messages(error_code="OTHER") == []
    (whole,) = scene.units.dead_message(hash_of)
    assert (whole.body, whole.error_code, whole.state) == (BODY, "BODY_INVALID", "held")
    entry = GovernanceEntry(
        kind="dead-message-release", subject=hash_of, actor="ann", recorded_at_ms=START_MS, rationale="Known."
    )
    assert scene.units.release_dead(hash_of, entry) == 1
    assert scene.units.release_dead(hash_of, entry) == 0
    assert scene.units.dead_messages() == []
    assert len(scene.store.governance(kind="dead-message-release", subject=hash_of)) == 1
    assert BODY not in repr(scene.store.governance(limit=100))


def test_figures_come_from_counters(scene: Scene) -> None:
    """What status and metrics read is what the counters say, before and after they are added up."""
    busy(scene)
    before = {(row[0], row[1]): (int(row[2]), row[3]) for row in scene.store.unit_figures()}
    assert before == scene.units.totals()
    scene.units.fold_counts()
    after = {(row[0], row[1]): (int(row[2]), row[3]) for row in scene.store.unit_figures()}
    assert {key: value for key, value in after.items() if value[0]} == {
        key: value for key, value in before.items() if value[0]
    }
