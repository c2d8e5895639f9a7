"""`kfm replay`, as a person types it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.app import open_app
from kfm.config.loader import load
from kfm.model.replays import digest_of
from kfm.nodd.ingest import NoddIngest
from kfm.nodd.poller import Poller
from tests.conformance.units.scene import Scene, done, entry, undone

Kfm = Callable[..., Any]
Valid = Callable[[str, Any], None]

CONFIG = """\
version: 1
environment: test
ingest:
  queues:
    - {name: spool, kind: folder, path: spool}
  replay_reasons: [storm-2026]
  policies:
    - {datasets: [mrms], replay_quarantined: [GZIP_BOMB, REPLAY_MISMATCH]}
"""
WHY = ("--rationale", "the bucket is back")
DO = ("--confirm", *WHY)


def announcement(*numbers: int) -> str:
    records = [
        {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "eventTime": f"2026-01-01T00:{number:02}:30.000Z",
            "s3": {
                "bucket": {"name": "noaa-mrms-pds"},
                "object": {"key": key(number), "size": 10, "eTag": "e"},
            },
        }
        for number in numbers
    ]
    return json.dumps({"Records": records})


def key(number: int) -> str:
    return f"CONUS/PrecipRate_00.00/20260101/MRMS_PrecipRate_00.00_20260101-00{number:02}00.grib2.gz"


class Place:
    """A project's ledger from inside, for what only time or trouble would bring about."""

    def __init__(self, app: Any, spool: Path) -> None:
        self._app = app
        self._spool = spool
        self._ingest = NoddIngest(app)
        self.scene = Scene(app.kernel.store)

    def announce(self, *numbers: int) -> None:
        (self._spool / "message.json").write_text(announcement(*numbers))
        ((queue, check),) = self._ingest.queues()
        assert Poller(self._ingest.context(), queue, check).step().messages == 1
        queue.close()

    def given_up(self, *numbers: int, fate: str = "spent", code: str = "HTTP_503") -> list[str]:
        self.announce(*numbers)
        claimed = self.scene.claim("mrms")
        assert len(claimed) == len(numbers)
        self.scene.end(*(undone(one, fate, error_code=code) for one in claimed))
        return sorted(one.wal_id for one in claimed)

    def statuses(self) -> dict[str, int]:
        return dict(self.scene.sql("SELECT status, COUNT(*) FROM units GROUP BY status"))

    def chain(self) -> list[str]:
        return [row[0] for row in self.scene.sql("SELECT kind FROM governance ORDER BY number")]


@pytest.fixture
def place(project: Path) -> Iterator[Place]:
    (project / "kfm.yml").write_text(CONFIG)
    (project / "spool").mkdir()
    with open_app(load(None, {})) as app:
        yield Place(app, project / "spool")


@pytest.fixture
def as_person(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda name: monkeypatch.setattr("kfm.config.loader.actor", lambda: name)


# --- the whole way ---------------------------------------------------------------------


@pytest.mark.req("WAL-12", "WAL-13", "WAL-14")
def test_what_failed_is_planned_replayed_and_ends_as_the_others(
    kfm: Kfm, place: Place, project: Path, valid: Valid
) -> None:
    """Select, dry-run, run, work off, inspect: the same items as if nothing had ever failed."""
    units = place.given_up(1, 2, 3)
    place.announce(4)
    selected = kfm("replay", "select", "--dataset", "mrms", "--json")
    valid("replay-select", selected.document)
    assert [one["left_out"] for one in selected.document["units"]] == [None] * 3
    dry = kfm(
        "replay",
        "dry-run",
        "--dataset",
        "mrms",
        "--reason",
        "incident",
        "--selection-file",
        "p.json",
        "--json",
    )
    valid("replay-dry-run", dry.document)
    assert [one["wal_id"] for one in dry.document["units"]] == units
    assert dry.document["counts"]["by_error_code"] == {"HTTP_503": 3}
    assert place.statuses() == {"failed": 3, "pending": 1}
    ran = kfm("replay", "run", "--selection-file", "p.json", *DO, "--json")
    valid("replay-run", ran.document)
    assert (ran.code, ran.document["replay"]["state"], ran.document["replay"]["replayed"]) == (0, "done", 3)
    assert [one["receipt"] for one in ran.document["receipts"]] == ["replayed"] * 3
    assert kfm("worker", "--until-idle").code == 0
    seen = kfm("replay", "inspect", dry.document["replay_id"][:8], "--json")
    valid("replay-inspect", seen.document)
    assert seen.document["since"] == {"succeeded": 3}
    assert [one["now"]["attempts"] for one in seen.document["receipts"]] == [2] * 3
    valid("replay-list", kfm("replay", "inspect", "--json").document)
    items = kfm("catalogue", "search", "--json").document["features"]
    shapes = {
        json.dumps({**item["properties"], "datetime": None, "created": None, "updated": None})
        for item in items
    }
    assert len(items) == 4
    assert len({text.count(":") for text in shapes}) == 1
    assert place.chain() == ["replay", "replay-ended"]
    again = kfm("replay", "run", "--selection-file", "p.json", *DO)
    assert (again.code, again.out.split()[0]) == (0, "done")
    assert place.statuses() == {"succeeded": 4}


@pytest.mark.req("WAL-13")
def test_a_plan_that_has_drifted_is_refused(kfm: Kfm, place: Place) -> None:
    """Exit 3, since when and how many; not one unit comes back."""
    units = place.given_up(1, 2, 3)
    assert kfm("replay", "dry-run", "--dataset", "mrms", "--selection-file", "p.json").code == 0
    assert kfm("replay", "run", "--unit", units[0], *DO).code == 0
    late = kfm("replay", "run", "--selection-file", "p.json", *DO)
    assert late.code == 3
    assert "KFM306" in late.err
    assert "plan made at" in late.err
    assert "1 unit changed since" in late.err
    assert place.statuses() == {"failed": 2, "pending": 1}


@pytest.mark.req("WAL-18", "WAL-13", "GOV-3")
def test_what_had_ended_needs_a_second_person(
    kfm: Kfm, place: Place, as_person: Callable[[str], None], valid: Valid
) -> None:
    """The request holds the plan; only another person agrees, to exactly that; then it is carried out."""
    as_person("ana")
    place.given_up(1, 2, fate="quarantine", code="GZIP_BOMB")
    asked = kfm("replay", "run", "--error-code", "GZIP_BOMB", "--mode", "backfill", *DO, "--json")
    valid("replay-run", asked.document)
    assert asked.code == 3
    request, replay = asked.document["request"]["request_id"], asked.document["replay"]["replay_id"]
    assert f"kfm approvals approve {request}" in asked.err
    again = kfm("replay", "run", replay, *DO, "--json")
    assert (again.code, again.document["request"]["request_id"]) == (3, request)
    assert kfm("approve", request, "--rationale", "me too", "--actor", "bob").code == 3
    as_person("bob")
    assert "replay of 2 units of mrms" in kfm("approve").out
    valid("replay-inspect", kfm("replay", "inspect", replay, "--json").document)
    approved = kfm("approve", request, "--rationale", "looked at them", "--json")
    valid("approve", approved.document)
    assert f"kfm replay run {replay}" in approved.err
    assert place.statuses() == {"quarantined": 2}
    ran = kfm("replay", "run", replay, *DO, "--json")
    assert (ran.code, ran.document["replay"]["replayed"]) == (0, 2)
    assert place.statuses() == {"pending": 2}
    assert place.chain()[2:] == ["replay-requested", "approval", "replay", "replay-ended"]


@pytest.mark.req("WAL-18")
def test_an_approval_of_units_that_changed_is_refused(
    kfm: Kfm, place: Place, as_person: Callable[[str], None]
) -> None:
    """It was for them as they were."""
    as_person("ana")
    units = place.given_up(1, 2)
    asked = kfm("replay", "run", "--dataset", "mrms", "--mode", "repair-and-replace", *DO, "--json")
    assert kfm("replay", "run", "--unit", units[0], *DO).code == 0
    as_person("bob")
    late = kfm("approve", asked.document["request"]["request_id"], "--rationale", "fine")
    assert late.code == 3
    assert "1 unit changed since" in late.err
    assert kfm("approve").out == "nothing waits for an approval\n"


@pytest.mark.req("WAL-15")
def test_a_mismatch_is_shown_field_by_field(kfm: Kfm, place: Place, as_person: Callable[[str], None]) -> None:
    """What is published, and what the replay would have made of the same bytes."""
    place.announce(1)
    assert kfm("worker", "--until-idle").code == 0
    as_person("ana")
    asked = kfm("replay", "run", "--dataset", "mrms", "--mode", "repair-and-replace", *DO, "--json").document
    as_person("bob")
    assert kfm("approve", asked["request"]["request_id"], "--rationale", "fine").code == 0
    assert kfm("replay", "run", asked["replay"]["replay_id"], *DO).code == 0
    scene = place.scene
    scene.end(*(undone(one, "spent") for one in scene.claim("mrms")))
    ran = kfm("replay", "run", "--dataset", "mrms", *DO, "--json").document
    (again,) = scene.claim("mrms")
    item = kfm("catalogue", "search", "--json").document["features"][0]
    scene.end(done(again, entry(again, item["id"], collection=item["collection"])))
    told = kfm("replay", "inspect", ran["replay"]["replay_id"])
    assert "would have made another item of the same bytes" in told.out
    assert "  properties\n    is        {" in told.out
    assert '    would be  {"product":"sfc"}\n' in told.out
    document = kfm("replay", "inspect", ran["replay"]["replay_id"], "--json").document
    fields = {one["field"]: one["would_be"] for one in document["receipts"][0]["differences"]}
    assert fields["properties"] == '{"product":"sfc"}'
    assert place.statuses() == {"quarantined": 1}


# --- specs, batches, switches --------------------------------------------------------------


@pytest.mark.req("WAL-13")
def test_a_spec_is_kept_and_planned_anew(kfm: Kfm, place: Place, valid: Valid) -> None:
    """A spec has no units: each time it means those that fit then. Without --confirm nothing changes."""
    place.given_up(1)
    kept = kfm("replay", "select", "--dataset", "mrms", "--reason", "storm-2026", "--save-spec", "s.json")
    assert "from-spec s.json" in kept.err
    place.given_up(2)
    shown = kfm("replay", "from-spec", "s.json", "--json")
    valid("replay-dry-run", shown.document)
    assert (shown.code, shown.document["counts"]["units"]) == (0, 2)
    assert place.statuses() == {"failed": 2}
    assert kfm("replay", "from-spec", "s.json", "--confirm").code == 3  # no rationale
    ran = kfm("replay", "from-spec", "s.json", *DO, "--json")
    valid("replay-run", ran.document)
    assert (ran.code, ran.document["replay"]["reason"]) == (0, "storm-2026")
    assert place.statuses() == {"pending": 2}
    empty = kfm("replay", "from-spec", "s.json", *DO)
    assert (empty.code, empty.out) == (0, "nothing to replay\n")


@pytest.mark.req("WAL-14", "GOV-1")
def test_a_replay_is_paused_and_goes_on(kfm: Kfm, place: Place) -> None:
    """By a number of batches, and by a switch for replays alone, which leaves other work alone."""
    place.given_up(1, 2, 3, 4)
    first = kfm(
        "replay", "run", "--dataset", "mrms", "--batch-size", "1", "--max-batches", "1", *DO, "--json"
    )
    replay = first.document["replay"]["replay_id"]
    assert (first.code, first.document["replay"]["waiting"]) == (0, 3)
    assert f"kfm replay run {replay}" in first.err
    thrown = kfm("switch", "set", "paused", "--replays", "mrms", "--rationale", "too much")
    assert (thrown.code, "replays:mrms" in kfm("switch", "list").out) == (0, True)
    stopped = kfm("replay", "run", replay, *DO, "--json")
    assert (stopped.code, stopped.document["replay"]["waiting"]) == (3, 3)
    assert "Replays of mrms are paused" in stopped.document["stopped"]["mrms"]
    assert "kfm switch set running --replays mrms" in stopped.err
    assert kfm("worker", "--until-idle", "--no-intake").code == 0
    assert place.statuses() == {"failed": 3, "succeeded": 1}
    assert "blocked" not in kfm("status").out
    assert kfm("switch", "set", "running", "--replays", "mrms", "--rationale", "fine").code == 0
    assert kfm("replay", "run", replay, *DO).code == 0
    assert place.statuses() == {"pending": 3, "succeeded": 1}
    told = [kind for kind in place.chain() if kind.startswith("replay")]
    assert told == ["replay", "replay-resumed", "replay-resumed", "replay-ended"]


@pytest.mark.req("WAL-14", "WAL-13")
def test_a_dead_letter_queue_is_drained(kfm: Kfm, place: Place, project: Path, valid: Valid) -> None:
    """New objects become units that say how they came; failed ones get another grant; all on record."""
    place.given_up(1)
    (project / "dead").mkdir()
    (project / "dead" / "m.jsonl").write_text(f"{announcement(1, 2)}\nnonsense\n")
    drained = kfm("replay", "drain", "spool", "--url", "dead", *WHY, "--json")
    valid("replay-drain", drained.document)
    assert drained.code == 0
    assert drained.document["drained"] == {"received": 2, "durable": 2, "left": 0}
    assert (drained.document["report"]["created"], drained.document["report"]["dead"]) == (1, 1)
    assert drained.document["replayed"] == 1
    reasons = place.scene.sql("SELECT status, replay_reason FROM units")
    assert reasons == [("pending", "dlq-drain")] * 2
    assert list((project / "dead").iterdir()) == []
    assert place.chain() == ["queue-drain", "replay", "replay-ended", "queue-drained"]


# --- nonsense --------------------------------------------------------------------------


@pytest.mark.req("WAL-13", "CLI-1")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "without scope"),
        (["--status", "failed"], 2, "--dataset-in"),
        (["--attempts-max", "3", "--event-time-end", "2026-01-01T00:00:00Z"], 2, "without scope"),
        (["--dataset", "mrsm"], 2, "did you mean `mrms`"),
        (["--dataset-in", "mrms,,hrrr"], 2, "--dataset-in takes names"),
        (["--unit", "x' OR 1=1"], 2, "not the id of a unit"),
        (["--dataset", "mrms", "--event-time-start", "yesterday"], 2, "--event-time-start takes a time"),
        (["--dataset", "mrms", "--created-after", "1h", "--created-before", "2h"], 2, "no unit can be meant"),
        (["--dataset", "mrms", "--mode", "all"], 2, "'all' is not one of"),
        (["--dataset", "mrms", "--status", "broken"], 2, "'broken' is not one of"),
        (["--dataset", "mrms", "--reason", "because"], 2, "storm-2026"),
        (["--dataset", "mrms", "--limit", "0"], 2, "--limit"),
        (["--dataset", "mrms", "--limit", "20000"], 3, "KFM313"),
        (["--dataset", "mrms", "--save-spec", "no/such/folder/s.json"], 2, "can't be written"),
    ],
)
@pytest.mark.parametrize("word", ["dry-run", "run"])
def test_nonsense_is_refused_with_the_way_out(
    kfm: Kfm, place: Place, word: str, arguments: list[str], code: int, said: str
) -> None:
    """No traceback, nothing changed, the right exit code."""
    place.given_up(1)
    called = kfm("replay", word, *arguments, *(DO if word == "run" else ()))
    assert (called.code, called.out) == (code, "")
    assert said in called.err
    assert place.statuses() == {"failed": 1}


@pytest.mark.req("WAL-13")
def test_a_replay_is_not_run_by_accident(kfm: Kfm, place: Place) -> None:
    """Neither without a rationale nor without a yes, nor with two plans."""
    place.given_up(1)
    assert "KFM304" in kfm("replay", "run", "--dataset", "mrms", "--confirm").err
    unasked = kfm("replay", "run", "--dataset", "mrms", *WHY)
    assert unasked.code == 2
    assert "Give --confirm" in unasked.err
    assert kfm("replay", "dry-run", "--dataset", "mrms", "--selection-file", "p.json").code == 0
    both = kfm("replay", "run", "--selection-file", "p.json", "--dataset", "mrms", *DO)
    assert both.code == 2
    assert kfm("replay", "run", "ffffffff", *DO).code == 2
    assert kfm("replay", "inspect", "ffffffff").code == 2
    assert kfm("replay", "drain", "no-such-queue", "--url", "x", *WHY).code == 2
    assert kfm("replay", "drain", "spool", *WHY).code == 2
    assert kfm("replay", "drain", "spool", "--url", "x").code == 3
    assert place.statuses() == {"failed": 1}


@pytest.mark.req("WAL-13", "WAL-18")
@pytest.mark.parametrize(
    "how",
    [
        "status", "unit twice", "reason", "digest anew", "no json", "a spec", "deep", "missing",
        "object_uri", "attempts", "error_code", "grants", "by_dataset", "older digest",
    ],
)  # fmt: skip
def test_an_edited_plan_is_none(kfm: Kfm, place: Place, project: Path, how: str) -> None:
    """Whatever was changed in it, and also if its digest was made anew: nothing comes back."""
    place.given_up(1, fate="quarantine", code="GZIP_BOMB")
    kfm(
        "replay", "dry-run", "--dataset", "mrms", "--mode", "backfill", "--selection-file", "p.json",
        "--save-spec", "s.json",
    )  # fmt: skip
    path = project / "p.json"
    document = json.loads(path.read_bytes())
    if how in ("status", "digest anew"):  # so that no approval would be needed
        document["units"][0]["status"] = "failed"
    if how in ("object_uri", "error_code"):  # what only describes is part of what was agreed to
        document["units"][0][how] = "another"
    if how in ("attempts", "grants"):
        document["units"][0][how] += 1
    if how == "by_dataset":
        document["by_dataset"] = {"gfs": 1}
    if how == "older digest":  # which held less of a unit: the ledger knows the rest
        from kfm.model.replays import ReplayPlan

        document["units"][0]["object_uri"] = "s3://another/object"
        forged = msgspec.convert(document, ReplayPlan)
        document["digest"] = digest_of(forged.mode, forged.reason, forged.units, "replay-plan/1")
    if how == "unit twice":
        document["units"] *= 2
    if how == "reason":
        document["reason"] = "test"
    if how == "digest anew":
        from kfm.model.replays import ReplayPlan

        forged = msgspec.convert(document, ReplayPlan)
        document["by_status"] = {"failed": 1}
        document["digest"] = digest_of(forged.mode, forged.reason, forged.units)
    path.write_text(json.dumps(document))
    if how == "no json":
        path.write_bytes(b"\xff\x00{")
    if how == "deep":
        path.write_bytes(b"[" * 100_000)
    if how == "missing":
        path.unlink()
    called = kfm("replay", "run", "--selection-file", "s.json" if how == "a spec" else "p.json", *DO)
    assert called.code == (3 if how in ("digest anew", "older digest") else 2)
    assert "Traceback" not in called.err
    assert place.statuses() == {"quarantined": 1}


# --- what is left out, and said ----------------------------------------------------------


@pytest.mark.req("WAL-13", "CLI-1")
def test_a_unit_that_is_named_and_left_out_is_no_success(kfm: Kfm, place: Place) -> None:
    """Nothing of what was named comes back: exit 3 with the reason. Some of it: exit 1. Unknown: exit 2."""
    failed = place.given_up(1)[0]
    place.announce(2)
    waiting = next(row[0] for row in place.scene.sql("SELECT wal_id FROM units WHERE status = 'pending'"))
    alone = kfm("replay", "run", "--unit", waiting, *DO)
    assert (alone.code, alone.out.splitlines()) == (3, ["nothing to replay", "left out: 1 it is pending"])
    unknown = kfm("replay", "run", "--unit", "0" * 13 + "-" + "0" * 20, *DO)
    assert unknown.code == 2
    assert "There is no unit" in unknown.err
    both = kfm("replay", "run", "--unit", waiting, "--unit", failed, *DO, "--json")
    assert (both.code, both.document["replay"]["replayed"]) == (1, 1)
    assert kfm("replay", "run", "--dataset", "mrms", *DO).code == 0  # a selection may mean none


@pytest.mark.req("WAL-14", "RS-12")
def test_grants_are_a_setting_and_the_way_out(kfm: Kfm, place: Place, project: Path) -> None:
    """A unit that used its grants is told which setting brings it back, and with that it does come back."""
    unit = place.given_up(1)[0]
    place.scene.sql("UPDATE units SET grants = 5")
    for command in (("explain", unit), ("quarantine", "show", unit)):
        assert "raise `grants` under `retry` of its policy in `ingest.policies`" in kfm(*command).out
    refused = kfm("replay", "run", "--unit", unit, *DO)
    assert refused.code == 3
    assert "its grants are used up: 5 (`retry.grants` of its policy)" in refused.out
    (project / "kfm.yml").write_text(CONFIG.replace("MISMATCH]}", "MISMATCH], retry: {grants: 6}}"))
    assert "raise `grants`" not in kfm("explain", unit).out
    assert kfm("replay", "run", "--unit", unit, *DO).code == 0
    assert place.statuses() == {"pending": 1}


@pytest.mark.req("WAL-14", "CLI-2")
def test_every_code_may_be_named_at_once(kfm: Kfm, place: Place, project: Path) -> None:
    """`replay_quarantined: ["*"]` is as documented; a wrong number of grants has its line."""
    (project / "kfm.yml").write_text(CONFIG.replace("[GZIP_BOMB, REPLAY_MISMATCH]", '["*"]'))
    assert kfm("config", "check").code == 0
    unit = place.given_up(1, fate="quarantine", code="SIZE_MISMATCH")[0]
    asked = kfm("replay", "run", "--unit", unit, "--mode", "backfill", *DO)
    assert (asked.code, "approvals approve" in asked.err) == (3, True)
    (project / "kfm.yml").write_text(CONFIG.replace("MISMATCH]}", "MISMATCH], retry: {grants: 0}}"))
    wrong = kfm("config", "check")
    assert (wrong.code, "kfm.yml:8: `grants` must be from 1 to 1000" in wrong.err) == (2, True)


@pytest.mark.req("WAL-13")
def test_a_limit_leaves_out_what_it_says(kfm: Kfm, place: Place, project: Path) -> None:
    """Beyond the cap of one replay, too, every unit that is left out is counted."""
    (project / "kfm.yml").write_text(CONFIG.replace("ingest:\n", "ingest:\n  replays_max: 5\n"))
    units = place.given_up(*range(1, 13))
    place.scene.sql(f"UPDATE units SET grants = 5 WHERE wal_id <= '{units[6]}'")
    plan = kfm("replay", "dry-run", "--dataset", "mrms", "--limit", "3", "--json").document
    assert [one["wal_id"] for one in plan["units"]] == units[7:10]
    assert sorted(plan["left_out"].values()) == [2, 7]


# --- why it waits ------------------------------------------------------------------------


@pytest.mark.req("RS-12", "GOV-3")
def test_a_replay_and_its_approval_are_explained(
    kfm: Kfm, place: Place, as_person: Callable[[str], None], valid: Valid
) -> None:
    """Each says what it waits for, who can give it, and the command; in every state that it comes to."""
    as_person("ana")
    place.given_up(1, 2, fate="quarantine", code="GZIP_BOMB")
    asked = kfm("replay", "run", "--error-code", "GZIP_BOMB", "--mode", "backfill", *DO, "--json").document
    request, replay = asked["request"]["request_id"], asked["replay"]["replay_id"]
    way = f"another person than ana, with the role approve: `kfm approvals approve {request}"
    for wanted, kind in ((request[:8], "approval"), (replay[:8], "replay")):
        valid("explain", kfm("explain", wanted, "--json").document)
        assert kfm("explain", wanted, "--json").document["kind"] == kind
        assert way in kfm("explain", wanted).out.splitlines()[0]
    as_person("bob")
    assert kfm("approvals", "approve", request, "--rationale", "looked at them").code == 0
    assert f"`kfm replay run {replay} --confirm" in kfm("explain", request).out.splitlines()[0]
    kfm("switch", "set", "paused", "--replays", "mrms", "--rationale", "storm")
    kfm("replay", "run", replay, *DO)
    kfm("switch", "set", "running", "--replays", "mrms", "--rationale", "over")
    assert kfm("replay", "run", replay, *DO).code == 0
    assert "is done: 2 came back" in kfm("explain", replay).out.splitlines()[0]
    assert "was approved, and used at" in kfm("explain", request).out.splitlines()[0]
    assert kfm("explain", "provider:nowhere").code == 2
