"""Previews for approval: judged by the class of their error and their trigger's budget, as runs are."""

from __future__ import annotations

import pytest

from kfm.system import SystemClock, SystemRng
from tests.acceptance.starting.conftest import SECONDS_MAX, Starting, Throttling, make_due
from tests.crash.project import finish

WEBHOOK_ATTEMPTS = 3


@pytest.fixture
def asking(project: Starting) -> Starting:
    """A project whose webhooks need an approval."""
    return project.set_up(webhook="approval: required")


def work_off_in_time(project: Starting, rounds: int) -> None:
    """Every time that something is promised for has come."""
    for _ in range(rounds):
        project.work_off()
        make_due(project)


def quarantined(project: Starting) -> list[tuple[str, str]]:
    return project.rows("SELECT kind, subject FROM held WHERE state = 'held'")


@pytest.mark.req("RET-1", "RET-2", "TRG-7")
def test_a_schema_error_is_executed_once(asking: Starting) -> None:
    """What can't get better is not repeated: the request ends as failed, quarantined, with an incident."""
    asking.mode("wrong")
    request = asking.hook("wrong")
    work_off_in_time(asking, rounds=3)
    assert asking.executions == ["preview"]
    assert asking.request(request).ended == ("done", "failed")
    assert quarantined(asking) == [("quarantine", request)]
    assert asking.rows("SELECT kind FROM incidents WHERE state = 'open'") == [("quarantine",)]
    listed = asking.kfm("quarantine", "list", "--json").document["held"]
    assert [one["error_classes"] for one in listed] == [["schema"]]


@pytest.mark.req("TRG-1", "TRG-7")
def test_what_may_pass_has_the_attempts_of_its_trigger(asking: Starting) -> None:
    """A time-out is tried as often as a webhook may be; then it is a dead letter, with an incident."""
    asking.mode("slow")
    request = asking.hook("slow")
    work_off_in_time(asking, rounds=WEBHOOK_ATTEMPTS + 2)
    assert asking.executions == ["preview"] * WEBHOOK_ATTEMPTS
    assert asking.request(request).ended == ("done", "failed")
    assert quarantined(asking) == [("dead-letter", request)]
    assert asking.rows("SELECT kind FROM incidents WHERE state = 'open'") == [("dead-letter",)]


@pytest.mark.req("TRG-1")
def test_a_preview_that_kills_its_process_is_no_exception(asking: Starting) -> None:
    """An attempt whose process died is one of the attempts."""
    request = asking.hook("poison")
    for _ in range(WEBHOOK_ATTEMPTS + 1):
        asking.mode("die")
        finish(asking.start("schedule", "run-due"), SECONDS_MAX)
        asking.mode("slow")
        asking.work_off()  # judges what the dead process left
        make_due(asking)
        if asking.request(request).is_settled:
            break
    assert asking.executions == ["preview"] * WEBHOOK_ATTEMPTS
    assert asking.request(request).ended == ("done", "failed")
    assert [subject for _, subject in quarantined(asking)] == [request]


@pytest.mark.req("TRG-4")
def test_a_preview_that_succeeds_later_is_shown(asking: Starting) -> None:
    """After a time-out the next attempt asks for the approval."""
    asking.mode("slow")
    request = asking.hook("slow")
    asking.work_off()
    asking.mode()
    make_due(asking)
    asking.work_off()
    assert asking.request(request).state == "awaiting-approval"
    assert quarantined(asking) == []


# --- times -------------------------------------------------------------------------------


def delay_ms(project: Starting, request: str) -> int:
    """How long a request is to wait from now."""
    return project.request(request).not_before_ms - SystemClock().now_ms()


@pytest.mark.req("RET-5")
def test_upstream_is_left_in_peace_as_long_as_it_asked(project: Starting, throttling: Throttling) -> None:
    """`Retry-After` is the earliest time of the next preview."""
    project.set_up(webhook="approval: required", kind=throttling.kind)
    throttling.wants(seconds=600)
    request = project.hook("busy")
    project.work_off()
    asked = throttling.asked
    assert project.request(request).state == "open"
    assert delay_ms(project, request) > 590_000
    project.work_off()
    assert throttling.asked == asked


@pytest.mark.req("RET-5", "TRG-7")
def test_longer_than_its_budget_is_never(project: Starting, throttling: Throttling) -> None:
    """Upstream that wants more time than a webhook has ends it now, as a dead letter."""
    project.set_up(webhook="approval: required", kind=throttling.kind)
    throttling.wants(seconds=3600)
    request = project.hook("busy")
    project.work_off()
    assert project.request(request).ended == ("done", "failed")
    assert quarantined(project) == [("dead-letter", request)]


@pytest.mark.req("TRG-1", "TRG-3")
def test_delays_have_jitter(asking: Starting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two previews that fail alike are not tried again after the same time, nor at once."""
    asking.mode("slow")
    waits = []
    for day, unit in ((1, 0.0), (2, 0.99)):
        monkeypatch.setattr(SystemRng, "unit", lambda _self, unit=unit: unit)
        request = asking.hook(f"day-{day}", window=f"2026-01-0{day}/P1D")
        asking.work_off()
        waits.append(delay_ms(asking, request))
    assert waits[1] - waits[0] > 4_000, waits
    assert min(waits) > 10_000, waits


# --- breakers ----------------------------------------------------------------------------


@pytest.mark.req("RET-7")
@pytest.mark.usefixtures("hurried")
def test_failures_of_previews_open_the_circuit(project: Starting, throttling: Throttling) -> None:
    """An upstream that fails in previews is in trouble for everybody: the circuit opens, and the next preview
    does not call, but waits for the circuit."""
    project.set_up(webhook="approval: required", kind=throttling.kind)
    project.hook("first")
    project.work_off()
    assert throttling.asked > 0
    assert project.rows("SELECT state FROM breakers") == [("open",)]
    asked = throttling.asked
    second = project.hook("second", window="2026-01-02/P1D")
    project.work_off()
    assert throttling.asked == asked
    assert project.request(second).state == "open"
    assert delay_ms(project, second) > 60_000


# --- claims ------------------------------------------------------------------------------


@pytest.mark.req("TRG-2", "TRG-4")
@pytest.mark.usefixtures("hurried")
def test_a_long_preview_is_not_taken_over(asking: Starting) -> None:
    """The claim is renewed as long as the preview is made: another runner finds nothing to do, and one
    approval is asked for."""
    asking.mode("long")
    request = asking.hook("long")
    asking.work_off()
    assert asking.executions == ["preview"]
    assert asking.request(request).state == "awaiting-approval"
    assert asking.rows("SELECT count(*) FROM approvals") == [(1,)]
