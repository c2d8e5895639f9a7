"""`kfm schedule pause | resume | backfill | history | run-due`, with a ledger of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from kfm.model.quantities import instant
from tests.acceptance.cli.conftest import Called

pytestmark = pytest.mark.req("UPD-13")

CRON = """\
version: 1
schedules:
  - {id: hours, source: hourly, cron: "MINUTE * * * *", missed: {run: none}}
  - {id: letting-go, source: hourly, cron: "MINUTE * * * *", while_paused: drop}
  - {id: days, source: daily, cron: "MINUTE HOUR * * *"}
"""
Kfm = Callable[..., Called]
Valid = Callable[[str, Any], None]
WHY = ("--rationale", "the gauge is being moved")
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def cron(project: Path) -> Path:
    path, now = project / "cron.yml", datetime.now(UTC)
    # Nothing fires while a test looks on.
    minute, hour = str((now.minute + 30) % 60), str((now.hour + 12) % 24)
    path.write_text(CRON.replace("MINUTE", minute).replace("HOUR", hour))
    (project / "incoming" / "a.txt").write_text("a")
    with (project / "kfm.yml").open("a") as file:
        file.write("serve: {runners: 1}\n")
    return path


@pytest.fixture
def change(project: Path) -> Callable[[str], list[tuple[Any, ...]]]:
    def execute(sql: str) -> list[tuple[Any, ...]]:
        connection = apsw.Connection(str(project / ".kfm" / "kfm.db"))
        connection.set_busy_timeout(5000)
        try:
            return list(connection.execute(sql))
        finally:
            connection.close()

    return execute


@pytest.mark.req("GOV-3")
def test_pause_and_resume(kfm: Kfm, valid: Valid, change: Callable[[str], list[Any]]) -> None:
    """A pause needs a reason, is on record with it, says what it means, and is the same when repeated."""
    assert kfm("schedule", "pause", "hours").code == 3
    paused = kfm("schedule", "pause", "hours", *WHY, "--json")
    valid("schedule-pause", paused.document)
    assert paused.document["changed"] is True
    assert "count as missed" in paused.document["meaning"]
    again = kfm("schedule", "pause", "hours", *WHY)
    assert (again.code, again.out.startswith("unchanged: hours is paused already")) == (0, True)
    listed = kfm("schedule", "list", "--json").document
    valid("schedule-list", listed)
    states = {each["schedule_id"]: each["paused"] for each in listed["schedules"]}
    assert states["hours"]["rationale"] == WHY[1]
    assert states["letting-go"] is None
    assert "paused" in kfm("schedule", "list").out
    assert "dropped meanwhile" in kfm("schedule", "pause", "letting-go", *WHY).out
    resumed = kfm("schedule", "resume", "hours", *WHY, "--json")
    valid("schedule-resume", resumed.document)
    assert resumed.document["paused"] is None
    assert "not paused" in kfm("schedule", "resume", "hours", *WHY).out
    kinds = [row[0] for row in change("SELECT kind FROM governance ORDER BY rowid")]
    assert kinds == ["schedule-paused", "schedule-paused", "schedule-resumed"]
    assert kfm("schedule", "pause", "hour", *WHY).code == 2


def test_once_and_end(kfm: Kfm, valid: Valid, change: Callable[[str], list[Any]]) -> None:
    """Without a service: each call accounts for what has come and runs what is due, and the same instant
    never twice."""
    first = kfm("schedule", "run-due")
    assert (first.code, first.out) == (0, "")
    assert "nothing is due" in first.err
    change(f"UPDATE schedules SET cursor_ms = cursor_ms - {24 * HOUR_MS} WHERE schedule_id = 'days'")
    change("DELETE FROM instants WHERE schedule_id = 'days'")
    ran = kfm("schedule", "run-due", "--json")
    valid("schedule-run-due", ran.document)
    (request,) = ran.document["requests"]
    assert (ran.code, request["outcome"], request["schedule_id"]) == (0, "success", "days")
    assert kfm("schedule", "run-due").out == ""
    (line,) = kfm("schedule", "history", "days", "--limit", "1", "-o", "jsonl").out.splitlines()
    assert '"success"' in line
    runs = kfm("runs", "--json").document["runs"]
    assert [one["trigger_type"] for one in runs] == ["cron"]
    assert "schedule:days" in kfm("explain", runs[0]["run_id"]).out
    assert "published" in kfm("schedule", "list").out


def test_backfill(kfm: Kfm, valid: Valid, change: Callable[[str], list[Any]]) -> None:
    """A backfill is a preview unless a person confirms and says why; then each scheduled time that has no
    request gets one, run in order, once, and told by the history."""
    kfm("schedule", "run-due")
    ((cursor_ms,),) = change("SELECT cursor_ms FROM schedules WHERE schedule_id = 'hours'")
    start = instant(cursor_ms - 3 * HOUR_MS) or ""
    command = ("schedule", "backfill", "hours", "--from", start, "--missed")
    shown = kfm(*command, "--json")
    valid("schedule-backfill", shown.document)
    assert (shown.document["dry_run"], len(shown.document["instants"])) == (True, 3)
    assert "--yes --rationale TEXT makes 3 requests" in shown.err
    assert kfm(*command, "--yes").code == 3
    assert kfm(*command, "--yes", "--dry-run", *WHY, "--json").document["made"] == 0
    assert change("SELECT * FROM requests") == []
    made = kfm(*command, "--yes", *WHY, "--json")
    valid("schedule-backfill", made.document)
    assert made.document["made"] == 3
    assert kfm(*command, "--yes", *WHY).out == "nothing to catch up\n"
    everything = kfm("schedule", "backfill", "hours", "--from", start, "--json").document
    assert [each["has_request"] for each in everything["instants"]] == [True] * 3
    ran = kfm("schedule", "run-due", "--json").document["requests"]
    ended = [each for each in ran if each["details"].get("backfill")]
    assert [each["outcome"] for each in ended] == ["success"] * 3
    assert [each["instant"] for each in ended] == sorted(each["instant"] for each in ended)
    told = kfm("schedule", "history", "hours", "--since", start, "--json")
    valid("schedule-history", told.document)
    fates = [(each["fate"], each["outcome"]) for each in told.document["instants"]]
    assert fates[:3] == [("backfilled", "success")] * 3
    kinds = [row[0] for row in change("SELECT kind FROM governance WHERE kind = 'backfill'")]
    assert kinds == ["backfill"]


def test_wrong_options(kfm: Kfm) -> None:
    """What can't be meant is refused with the way out."""
    assert kfm("schedule", "backfill", "hours").code == 2
    assert kfm("schedule", "backfill", "no-such-schedule", "--from", "2026-01-01").code == 2
    assert kfm("schedule", "history", "hours", "--since", "soon").code == 2
    future = kfm("schedule", "backfill", "hours", "--from", "2999-01-01")
    assert (future.code, future.out) == (0, "nothing to catch up\n")
