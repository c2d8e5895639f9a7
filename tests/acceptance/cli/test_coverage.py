"""`kfm coverage`, `kfm dismiss`, `kfm run --missing`: what did not come is seen, asked for and settled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kfm.config.loader import load
from kfm.model.records import Invocation
from tests.acceptance.cli.conftest import Called

Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
CONFIG = """\
version: 1
environment: test
datasets:
  - id: levels
    domain: hydrology
    rights: {license: CC0-1.0, care: {label: Public}}
  - id: other
    rights: {license: CC0-1.0, care: {label: Public}}
sources:
  - {id: daily, dataset: levels, kind: files, folder: incoming, pattern: "{window.start:date}/*"EXPECT}
  - {id: else, dataset: other, kind: files, folder: elsewhere}
publish:
  - {kind: local, path: published}
"""
EXPECTED = ", expect: {from: '2026-01-01', within: P1D}"
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")


def configured(project: Path, expect: str = "") -> None:
    (project / "kfm.yml").write_text(CONFIG.replace("EXPECT", expect))
    (project / "elsewhere").mkdir(exist_ok=True)


def deliver(project: Path, *days: str) -> None:
    for day in days:
        (project / "incoming" / day).mkdir()
        (project / "incoming" / day / "data.csv").write_text(day)


def health(kfm: Kfm) -> dict[str, Any]:
    found: dict[str, Any] = kfm("status", "--json").document["datasets"][0]["health"]
    return found


@pytest.mark.req("DAT-1")
def test_refused_windows_are_never_all_clear(kfm: Kfm, project: Path) -> None:
    """A switch refuses three windows; once it is lifted, each is still missed by name."""
    configured(project)
    kfm("switch", "set", "paused", "--dataset", "levels", "--rationale", "repairs")
    for day in DAYS:
        assert kfm("run", "--source", "daily", "--window", f"{day}/P1D").code == 3
    kfm("switch", "set", "running", "--dataset", "levels", "--rationale", "done")
    first = kfm("status").out.splitlines()[0]
    assert first.startswith("failing: dataset levels: 3 windows refused (switch)")
    assert health(kfm)["windows"] == {"refused": 3}
    deliver(project, *DAYS)
    assert kfm("run", "--missing", "levels", "--yes").code == 0
    assert kfm("status", "--json").document["lineage"]["waiting"] == 0
    assert health(kfm)["windows"] == {"published": 3}
    assert health(kfm)["state"] == "fresh"


@pytest.mark.req("DAT-1")
def test_an_empty_folder_is_no_data(kfm: Kfm, project: Path) -> None:
    """The run succeeds and publishes nothing: what was asked for is missing until its file comes."""
    configured(project)
    deliver(project, "2026-01-01")
    assert kfm("run", "--source", "daily", "--window", "2026-01-01/P1D").code == 0
    assert kfm("run", "--source", "daily", "--window", "2026-01-02/P1D").code == 0
    first = kfm("status").out.splitlines()[0]
    assert first.startswith("late: dataset levels: 1 window missing, of 2026-01-02 00:00")
    said = kfm("explain", "levels").out
    assert "asked for it, and it was unchanged: Upstream has no data for this window" in said
    deliver(project, "2026-01-02")
    kfm("run", "--missing", "--yes")
    assert kfm("status").out.splitlines()[0] == "all clear"


@pytest.mark.req("DAT-1")
@pytest.mark.parametrize("expect", ["", ", expect: {from: DAY, within: P1D}"])
def test_a_window_that_has_not_ended_is_not_late(kfm: Kfm, project: Path, expect: str) -> None:
    """Who asks early makes nothing late: the window is due once it is over, and as declared."""
    today = datetime.now(UTC).date()
    end = today + timedelta(days=2)  # a day ahead at the least, should midnight pass meanwhile
    configured(project, expect=expect.replace("DAY", end.isoformat()))
    assert kfm("run", "--source", "daily", "--window", f"{today}/P2D").code == 0
    (window,) = kfm("coverage", "levels", "--json").document["windows"]
    assert (window["state"], window["is_late"]) == ("waiting", False)
    due = end + timedelta(days=1 if expect else 0)
    assert window["due_at"].startswith(f"{due}T00:00")
    assert health(kfm)["state"] == "never"


@pytest.mark.req("DAT-3")
def test_nothing_in_the_states_that_were_named_is_told_so(kfm: Kfm, project: Path) -> None:
    """Of windows in other states nothing is said, and a list that has changed is counted in plain words."""
    configured(project, expect=EXPECTED)
    chosen = ("run", "--missing", "levels", "--to", "2026-01-02")
    assert kfm(*chosen, "--state", "empty").out == "no window is empty\n"
    assert kfm(*chosen, "--state", "empty", "--state", "failed").out == "no window is empty or failed\n"
    drifted = kfm(*chosen, "--digest", "sha256:0")
    assert "it has 1 window and is" in drifted.err


@pytest.mark.req("DAT-1")
@pytest.mark.parametrize("option", ["--from", "--to"])
def test_what_is_no_date_is_answered_with_one(kfm: Kfm, project: Path, option: str) -> None:
    """The way out is a date, for an option that takes one."""
    configured(project)
    for command in (("coverage", "levels"), ("run", "--missing", "levels")):
        called = kfm(*command, option, "nonsense")
        assert called.code == 2
        assert f"{option} takes a date or a time" in called.err
        assert f"fix: Write it as {option} 2026-01-31" in called.err


@pytest.mark.req("DAT-3")
def test_an_empty_name_is_refused(kfm: Kfm, project: Path) -> None:
    """A person without a name did nothing."""
    configured(project, expect=EXPECTED)
    said = ("--rationale", "never", "--actor", "")
    called = kfm("dismiss", "levels", "2026-01-01/P1D", *said)
    assert (called.code, "--actor is empty" in called.err) == (2, True)


@pytest.mark.req("DAT-1")
def test_a_hole_under_newer_data_keeps_the_dataset_incomplete(kfm: Kfm, project: Path) -> None:
    """Windows are expected by themselves: one that no row mentions is as visible as one that failed."""
    configured(project, expect=EXPECTED)
    deliver(project, "2026-01-01", "2026-01-03")
    for day in ("2026-01-01", "2026-01-03"):
        kfm("run", "--source", "daily", "--window", f"{day}/P1D")
    called = kfm("coverage", "levels", "--to", "2026-01-04")
    lines = called.out.splitlines()
    assert lines[0] == "levels is late"  # of all windows, whatever is chosen
    assert "  2026-01  #M#" in lines
    assert f"  {'UTC':>7}  1         11        21        31" in lines
    chosen = kfm("coverage", "levels", "--to", "2026-01-04", "--state", "published").out.splitlines()
    assert "  2026-01  # #" in chosen  # each at its own place
    states = {
        each["window_start"][:10]: each["state"]
        for each in kfm("coverage", "levels", "--json").document["windows"]
    }
    assert [states[day] for day in DAYS] == ["published", "missing", "published"]
    document = kfm("coverage", "levels", "--json").document
    assert document["health"]["watermark"].startswith("2026-01-02T00:00")


@pytest.mark.req("DAT-1")
def test_ten_thousand_newer_no_ops_change_nothing_about_another(kfm: Kfm, project: Path) -> None:
    """Neither its last run nor its blockers nor its health are lost below what another source did."""
    configured(project)
    kfm("switch", "set", "paused", "--dataset", "levels", "--rationale", "repairs")
    kfm("run", "--source", "daily", "--window", "2026-01-01/P1D")
    before = kfm("status", "--json").document
    explained = kfm("explain", "levels").out
    with _opened(project) as app:
        session_calls = [
            Invocation(
                invocation_id=f"{number:08x}-0000-7000-8000-000000000000",
                run_id=None,
                source_id="else",
                dataset_id="other",
                trigger_type="cron",
                idempotency_key="sha256:" + "0" * 64,
                outcome="noop",
                actor="kfm",
                requested_at_ms=app.ledger.now_ms(),
                window_start_ms=0,
                window_end_ms=1,
            )
            for number in range(10_000)
        ]
        from kfm.db import rows

        app.writer.database.write(
            lambda session: session.many(
                "invocations.insert", [rows.invocation_parameters(one) for one in session_calls]
            )
        )
    after = kfm("status", "--json").document
    for document in (before, after):
        document["datasets"][0]["health"]["lag_ms"] = 0
    assert after["datasets"][0] == before["datasets"][0]
    assert kfm("explain", "levels").out == explained
    assert "1 window refused (switch)" in explained


def _opened(project: Path) -> Any:
    from kfm.app import open_app

    return open_app(load(str(project / "kfm.yml")))


@pytest.mark.req("DAT-1")
def test_one_verdict_everywhere(kfm: Kfm, project: Path, valid: Valid) -> None:
    """Status, coverage, the API, metrics and explain say the same of a dataset."""
    from starlette.testclient import TestClient

    from kfm.web.api.routes import api_app
    from kfm.web.request_context import WebContext

    configured(project, expect=EXPECTED)
    deliver(project, "2026-01-01")
    kfm("run", "--source", "daily", "--window", "2026-01-01/P1D")
    kfm("dismiss", "levels", "2026-01-02/P1D", "--rationale", "the gauge was in repair")
    coverage = kfm("coverage", "levels", "--json").document
    valid("coverage", coverage)
    summary = kfm("coverage", "--json").document
    valid("coverage", summary)
    told = coverage["health"]
    assert told["state"] == "late"
    assert health(kfm)["windows"] == told["windows"]
    assert summary["datasets"][0]["windows"] == told["windows"]
    context = WebContext(load(str(project / "kfm.yml")))
    client = TestClient(api_app(context), base_url="http://127.0.0.1", client=("127.0.0.1", 5000))
    answer = client.get("/api/v1/datasets")
    assert answer.status_code == 200, answer.text
    listed = answer.json()["datasets"][0]["health"]
    shown = client.get("/api/v1/datasets/levels/coverage?limit=2").json()
    for other in (listed, shown["health"], health(kfm)):
        assert {**other, "lag_ms": 0} == {**told, "lag_ms": 0}
    assert [each["window_start"] for each in shown["windows"]] == [
        each["window_start"] for each in coverage["windows"][-2:]
    ]
    metrics = {
        (metric["name"], one["labels"].get("state") or one["labels"].get("health")): one["value"]
        for metric in kfm("metrics", "--json").document["metrics"]
        for one in metric["series"]
        if one["labels"].get("dataset") == "levels" and "value" in one
    }
    for state, count in told["windows"].items():
        assert metrics["kfm.dataset.windows", state] == count
    assert metrics["kfm.dataset.health", "late"] == 1
    assert "is late: " in kfm("explain", "levels").out


@pytest.mark.req("DAT-3")
def test_a_dismissed_window_is_settled_and_can_come_back(kfm: Kfm, project: Path, valid: Valid) -> None:
    """It needs a reason, is audited, and is open again once that is undone; data counts in any case."""
    configured(project, expect=EXPECTED)
    assert kfm("dismiss", "levels", "2026-01-01/P1D").code == 3
    called = kfm("dismiss", "levels", "2026-01-01/2026-01-03", "--rationale", "repairs", "--json")
    valid("dismiss", called.document)
    assert [each["state"] for each in called.document["windows"]] == ["dismissed", "dismissed"]
    assert "window-dismissed" in kfm("audit", "list").out
    again = kfm("dismiss", "levels", "2026-01-01/P1D", "--rationale", "twice")
    assert again.code == 2
    assert "none is open: dismissed" in again.err
    assert kfm("dismiss", "levels", "2026-01-01/P1D", "--undo", "--rationale", "no").code == 0
    assert health(kfm)["windows"]["dismissed"] == 1
    deliver(project, "2026-01-02")
    kfm("run", "--source", "daily", "--window", "2026-01-02/P1D")
    assert "dismissed" not in health(kfm)["windows"]


@pytest.mark.req("DAT-3")
def test_the_list_of_what_is_missing_is_frozen(kfm: Kfm, project: Path, valid: Valid) -> None:
    """Shown first, with its digest; asked for as a whole; refused once it has changed."""
    configured(project, expect=EXPECTED)
    deliver(project, "2026-01-01", "2026-01-02")
    span = ("--from", "2026-01-01", "--to", "2026-01-04")
    shown = kfm("run", "--missing", "levels", *span)
    assert (shown.code, shown.out.count("missing")) == (0, 3)
    assert "nothing was asked for" in shown.err
    listed = kfm("run", "--missing", "levels", *span, "--dry-run", "--json").document
    valid("run-missing", listed)
    assert listed["digest"] in shown.out
    assert listed["asked_for"] == 0
    done = kfm("run", "--missing", "levels", *span, "--digest", listed["digest"], "--json")
    assert done.code == 0
    valid("run-missing", done.document)
    assert [each["outcome"] for each in done.document["windows"]] == ["success"] * 3
    assert "now 2 published, 1 missing" in done.err
    drifted = kfm("run", "--missing", "levels", *span, "--digest", listed["digest"])
    assert drifted.code == 3
    assert "KFM306" in drifted.err
    assert (
        msgspec.json.decode(kfm("run", "--missing", *span, "--json").out)["windows"][0]["state"] == "missing"
    )


PIPELINE = """\
def publish(context):
    for each in context.inputs:
        if each.read() == b"bad":
            raise ValueError("no number in it")
        context.publisher.write_file(each.path, each.read())
"""


@pytest.mark.req("DAT-3", "GOV-3")
def test_what_is_quarantined_is_asked_for_and_told(kfm: Kfm, project: Path, valid: Valid) -> None:
    """A window whose attempts are used up is asked for as well: where upstream has changed it is filled;
    else its release is requested from a second person, once."""
    configured(project, expect=f"{EXPECTED[:-1]}}}, pipeline: 'pipeline.py:publish', retry: {{attempts: 1}}")
    (project / "pipeline.py").write_text(PIPELINE)
    deliver(project, *DAYS[:2])
    for day in DAYS[:2]:
        (project / "incoming" / day / "data.csv").write_text("bad")
    span = ("--from", "2026-01-01", "--to", "2026-01-03")
    why = ("--rationale", "the provider has mended it")
    for _ in range(3):
        first = kfm("run", "--missing", "levels", *span, "--yes", "--json")
    assert {each["state"] for each in first.document["windows"]} == {"quarantined"}
    (project / "incoming" / DAYS[1] / "data.csv").write_text("good")
    again = kfm("run", "--missing", "levels", *span, "--yes", "--json", *why)
    valid("run-missing", again.document)
    assert [each["outcome"] for each in again.document["windows"]] == ["refused", "success"]
    (approval,) = again.document["approvals"]
    assert "needs a second person" in again.err
    assert again.code == 3
    waiting = kfm("approvals", "list", "--json").document["requests"]
    assert [each["request_id"] for each in waiting] == [approval]
    once_more = kfm("run", "--missing", "levels", *span, "--yes", "--json", *why).document
    assert (len(once_more["windows"]), once_more["approvals"]) == (1, [])


@pytest.mark.req("DAT-3")
def test_what_does_not_go_together_is_refused(kfm: Kfm, project: Path) -> None:
    """A window with --missing, a digest without it, a dataset that is not there."""
    configured(project)
    assert kfm("run", "--missing", "--window", "P1D").code == 2
    assert kfm("run", "levels", "--digest", "sha256:00").code == 2
    assert "did you mean `levels`" in kfm("coverage", "level").err
    assert kfm("coverage", "--state", "missing").code == 2


@pytest.mark.req("DAT-1")
def test_what_a_source_brought_to_another_dataset_is_not_there(kfm: Kfm, project: Path) -> None:
    """A source that feeds another dataset now has brought nothing to it: all of its windows are missing, and
    are filled from the list; what was dismissed of the one is not settled for the other."""
    configured(project, expect=EXPECTED)
    deliver(project, *DAYS[:2])
    for day in DAYS[:2]:
        kfm("run", "--source", "daily", "--window", f"{day}/P1D")
    kfm("dismiss", "levels", f"{DAYS[2]}/P1D", "--rationale", "never")
    text = (project / "kfm.yml").read_text()
    (project / "kfm.yml").write_text(text.replace("id: daily, dataset: levels", "id: daily, dataset: other"))
    to = ("--to", "2026-01-04")
    states = {each["state"] for each in kfm("coverage", "other", *to, "--json").document["windows"]}
    assert states == {"missing"}
    assert kfm("run", "--source", "daily", "--window", f"{DAYS[0]}/P1D").out.startswith("published")
    assert kfm("run", "--missing", "other", *to, "--state", "missing", "--yes").code == 0
    shown = {
        each["window_start"][:10]: each["state"]
        for each in kfm("coverage", "other", *to, "--json").document["windows"]
    }
    assert [shown[day] for day in DAYS] == ["published", "published", "missing"]
    kfm("dismiss", "other", f"{DAYS[2]}/P1D", "--rationale", "never here, either")
    found = kfm("coverage", "other", *to, "--json").document["windows"]
    assert [each["state"] for each in found] == ["published", "published", "dismissed"]


@pytest.mark.req("DAT-3")
def test_a_dataset_is_run_by_its_name(kfm: Kfm, project: Path) -> None:
    """`kfm run DATASET` runs its sources and no others; the name of a source alone is told to be one."""
    configured(project)
    deliver(project, DAYS[0])
    ran = kfm("run", "levels", "--window", f"{DAYS[0]}/P1D", "--json").document["results"]
    assert [(one["source_id"], one["word"]) for one in ran] == [("daily", "published")]
    refused = kfm("run", "daily")
    assert (refused.code, "`daily` is a source" in refused.err) == (2, True)
    assert "kfm run --source daily" in refused.err
    assert kfm("run", "levels", "--source", "daily").code == 2
    assert kfm("run", "nowhere").code == 2


@pytest.mark.req("DAT-3")
def test_what_waited_for_a_pause_is_taken_up_once_it_is_lifted(kfm: Kfm, project: Path, valid: Valid) -> None:
    """The list says beforehand what blocks, and the command that lifts it; lifted, `run --missing` works off
    the requests that wait, once, with no second request for any of them."""
    configured(project, expect=EXPECTED)
    deliver(project, *DAYS)
    chosen = ("run", "--missing", "levels", "--to", "2026-01-04")
    kfm("switch", "set", "paused", "--dataset", "levels", "--rationale", "repairs")
    shown = kfm(*chosen).out
    assert "blocked  blocked by kill switch on dataset levels, paused" in shown
    assert "kfm switch set running --dataset levels" in shown
    assert kfm(*chosen, "--yes").code == 0
    waiting = kfm(*chosen, "--yes", "--json").document
    valid("run-missing", waiting)
    assert (waiting["windows"], waiting["asked_for"], len(waiting["skipped"])) == ([], 0, 3)
    assert waiting["blocked_by"][0]["command"].startswith("kfm switch set running --dataset levels")
    kfm("switch", "set", "running", "--dataset", "levels", "--rationale", "done")
    taken = kfm(*chosen, "--yes", "--json").document
    valid("run-missing", taken)
    assert {one["action"] for one in taken["windows"]} == {"take-up"}
    assert {one["request_state"] for one in taken["windows"]} == {"done"}
    assert (taken["blocked_by"], taken["asked_for"]) == ([], 0)
    found = kfm("coverage", "levels", "--to", "2026-01-04", "--json").document["windows"]
    assert [one["state"] for one in found] == ["published"] * 3
    assert "no window is missing" in kfm(*chosen, "--yes").out


@pytest.mark.req("DAT-3")
def test_quarantine_ends_with_the_window(kfm: Kfm, project: Path) -> None:
    """Requests that became no run are quarantined, too; with its data, nothing of a window is any more."""
    configured(project, expect=EXPECTED)
    deliver(project, *DAYS[:2])
    incoming = project / "incoming"
    chosen = ("run", "--missing", "levels", "--to", "2026-01-03", "--yes")

    def broken() -> None:
        incoming.rename(project / "away")
        incoming.write_text("no folder")

    def mended() -> None:
        incoming.unlink()
        (project / "away").rename(incoming)

    broken()
    for _ in range(8):  # until attempts are used up, and inputs can't be compared
        kfm(*chosen)
    held = kfm("quarantine", "list", "--json").document["held"]
    assert {one["grain"] for one in held} == {"request", "run"}
    mended()
    assert kfm(*chosen).code == 0
    assert kfm("quarantine", "list", "--json").document["held"] == []
    kinds = {one["kind"] for one in kfm("incident", "list", "--json").document["incidents"]}
    assert kinds == {"overdue"}  # of later days


@pytest.mark.req("DAT-1")
def test_a_look_at_upstream_that_failed_is_seen_although_there_is_data(kfm: Kfm, project: Path) -> None:
    """The window is failed until upstream is seen again, in coverage, status and the list; what is published
    stays, and no run that succeeded before is named for it."""
    configured(project, expect=EXPECTED)
    deliver(project, DAYS[0])
    day, to = ("--window", f"{DAYS[0]}/P1D"), ("--to", "2026-01-02")
    kfm("run", "--source", "daily", *day)
    (run,) = kfm("runs", "--json").document["runs"]
    (project / "incoming").rename(project / "away")
    (project / "incoming").write_text("no folder")
    failed = kfm("run", "--source", "daily", *day, "--json")
    assert failed.code == 4
    (result,) = failed.document["results"]
    assert (result["outcome"], result["run_id"]) == ("failed", None)
    assert run["run_id"][:8] not in kfm("run", "--source", "daily", *day).out
    found = kfm("coverage", "levels", *to, "--json").document
    (window,) = found["windows"]
    assert (window["state"], window["code"], window["run_id"], window["is_late"]) == (
        "failed",
        result["error"]["code"],
        None,
        False,
    )
    assert found["health"]["watermark"].startswith("2026-01-02")
    said = kfm("status").out.splitlines()[0]
    assert said.startswith(
        f"failing: dataset levels: 1 window failed ({result['error']['code']}), of 2026-01-01"
    )
    (project / "incoming").unlink()
    (project / "away").rename(project / "incoming")
    assert kfm("run", "--missing", "levels", *to, "--yes").code == 0
    (window,) = kfm("coverage", "levels", *to, "--json").document["windows"]
    assert window["state"] == "published"
