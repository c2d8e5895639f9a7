"""What people decide about work in trouble, on the command line."""

from __future__ import annotations

import json
import shutil

from kfm.model.breaker import on_failure
from kfm.system import SystemClock
from tests.acceptance.runs.conftest import Inside
from tests.conformance.db.ledgers import sqlite_store

BROKEN = "def publish(context):\n    raise ValueError('riddles')\n"
WHY = ("--rationale", "known since this morning")


def test_a_target_is_filled_again(project: Inside) -> None:
    """A folder that was emptied shows the dataset again, and the reason is kept where one is given."""
    project.configure()
    assert project.kfm("run", "--window", "2026-01-05/P1D").code == 0
    before = sorted(one.name for one in (project.folder / "published").rglob("*"))
    shutil.rmtree(project.folder / "published")
    dataset = json.loads(project.kfm("status", "--json").out)["datasets"][0]["dataset_id"]
    assert project.kfm("project", "nothing").code == 2
    assert project.kfm("project", dataset, "--ticket", "OPS-1").code == 2
    assert project.kfm("project", dataset, *WHY).code == 0
    assert sorted(one.name for one in (project.folder / "published").rglob("*")) == before
    (entry,) = json.loads(project.kfm("audit", "list", "--kind", "projected-again", "--json").out)["entries"]
    assert (entry["subject"], entry["rationale"]) == (dataset, WHY[1])


def test_a_cause_has_a_person_and_is_tried_again_as_a_whole(project: Inside) -> None:
    """`incident assign` names who looks after it; `incident retry` asks for each failed run, once."""
    project.configure(extra="pipeline: broken.py:publish")
    project.write("broken.py", BROKEN)
    for day in ("05", "06"):
        assert project.kfm("run", "--window", f"2026-01-{day}/P1D").code == 1
    (incident,) = json.loads(project.kfm("incident", "list", "--json").out)["incidents"]
    short = incident["incident_id"][:13]
    assert project.kfm("incident", "assign", short, "ada").code == 3
    assert "assigned to ada" in project.kfm("incident", "assign", short, "ada", *WHY).out
    retried = json.loads(project.kfm("incident", "retry", short, "--json", *WHY).out)
    assert (len(retried["requests"]), retried["passed_over"]) == (2, [])
    again = json.loads(project.kfm("incident", "retry", short, "--json", *WHY).out)
    assert again == retried


def test_a_circuit_is_probed_and_held_open(project: Inside) -> None:
    """Both need a reason; a hold needs an end within a day; what is printed says when it is tried next."""
    project.configure()
    assert project.kfm("run", "--window", "2026-01-05/P1D").code == 0
    store = sqlite_store(str(project.folder / ".kfm" / "kfm.db"), SystemClock())
    for _ in range(3):
        store.change_breaker("upstream", on_failure)
    store.close()
    assert project.kfm("breaker", "probe", "upstream").code == 3
    assert project.kfm("breaker", "hold", "upstream", *WHY).code == 2
    assert project.kfm("breaker", "hold", "upstream", "--for", "P3D", *WHY).code == 2
    held = json.loads(project.kfm("breaker", "hold", "upstream", "--for", "PT2H", "--json", *WHY).out)
    assert (held["was"], held["breaker"]["state"]) == ("open", "half-open")
    probed = json.loads(project.kfm("breaker", "probe", "upstream", "--json", *WHY).out)
    assert probed["breaker"]["next_try"] < held["breaker"]["next_try"]
