"""What was approved or planned is published, or nothing is: also by the second attempt, also after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.acceptance.starting.conftest import Starting, make_due
from tests.crash.project import WINDOW

pytestmark = pytest.mark.req("TRG-4")
Due = Callable[[Starting], list[int]]


@pytest.fixture(params=["retry-due", "run-due"])
def due(request: pytest.FixtureRequest) -> Due:
    """What makes the attempts that are due; the first round may only judge what a dead process left."""

    def by(project: Starting) -> list[int]:
        codes = []
        for _ in range(2):
            make_due(project)
            ended = project.retry_due() if request.param == "retry-due" else project.work_off()
            codes.append(ended.code)
        return codes

    return by


def check_that_nothing_is_ahead(project: Starting) -> None:
    """No later attempt publishes either."""
    for _ in range(2):
        project.retry_due()
        make_due(project)
    assert project.promoted == []
    assert project.rows("SELECT reason FROM retry_states WHERE fate = 'retry'") == []


def fail_once(project: Starting) -> None:
    """The approved attempt meets a time-out."""
    project.mode("slow")
    project.work_off()
    project.mode()


def be_killed(project: Starting) -> None:
    """The process of the approved attempt is killed."""
    project.mode("die")
    project.killed("schedule", "run-due")
    project.mode()


def approved(project: Starting) -> str:
    """A webhook's request whose preview a second person has approved."""
    project.set_up(webhook="approval: required")
    request = project.hook("approved")
    project.work_off()
    assert project.request(request).state == "awaiting-approval"
    project.approve(request)
    return request


def planned(project: Starting, digest: str | None) -> str:
    """The version that a kept preview would make."""
    ((text,),) = project.rows("SELECT plan FROM previews WHERE digest = ?", digest)
    return str(json.loads(text.splitlines()[0])["version_id"])


@pytest.mark.req("RET-9")
@pytest.mark.parametrize("trouble", [fail_once, be_killed])
def test_a_retry_publishes_nothing_that_was_not_approved(
    project: Starting, due: Due, trouble: Callable[[Starting], None]
) -> None:
    """Approved, failed or killed, and upstream has changed since: the request ends as refused, no version is
    made, and nothing is ahead."""
    request = approved(project)
    trouble(project)
    project.upstream_changes()
    due(project)
    assert project.promoted == []
    assert project.request(request).ended == ("done", "refused")
    check_that_nothing_is_ahead(project)
    assert project.current() == {}


@pytest.mark.req("RET-9")
@pytest.mark.parametrize("trouble", [fail_once, be_killed])
def test_a_retry_publishes_what_was_approved(
    project: Starting, due: Due, trouble: Callable[[Starting], None]
) -> None:
    """Approved, failed or killed, and upstream is as it was: the next attempt publishes exactly the plan."""
    request = approved(project)
    digest = project.request(request).plan_digest
    trouble(project)
    codes = due(project)
    assert project.promoted == [planned(project, digest)]
    ended = project.request(request)
    assert (ended.ended, ended.plan_digest) == (("done", "success"), digest)
    assert codes == [0, 0]


def test_the_next_approval_is_not_bound_by_the_first(project: Starting, due: Due) -> None:
    """After one plan has drifted, another preview can be shown, approved and published."""
    approved(project)
    fail_once(project)
    project.upstream_changes()
    due(project)
    second = project.hook("second")
    project.work_off()
    assert project.request(second).state == "awaiting-approval"
    project.approve(second)
    project.work_off()
    ended = project.request(second)
    assert ended.ended == ("done", "success")
    assert project.promoted == [planned(project, ended.plan_digest)]


# --- kfm run --plan ----------------------------------------------------------------------


def make_plan(project: Starting) -> str:
    """plan.jsonl, and the version that it would make."""
    made = project.kfm("diff", "--source", "notes", "--window", WINDOW, "--plan", "plan.jsonl")
    assert made.code == 0, made
    return str(json.loads(project.lines("plan.jsonl")[0])["version_id"])


def apply_and_fail(project: Starting) -> None:
    project.mode("slow")
    assert project.kfm("run", "--plan", "plan.jsonl").code == 1
    project.mode()


def apply_and_die(project: Starting) -> None:
    project.mode("die")
    project.killed("run", "--plan", "plan.jsonl")
    project.mode()


@pytest.mark.parametrize("trouble", [apply_and_fail, apply_and_die])
def test_a_retry_publishes_nothing_that_was_not_planned(
    project: Starting, due: Due, trouble: Callable[[Starting], None]
) -> None:
    """`kfm run --plan` is exactly that or nothing, whichever attempt comes to its end."""
    make_plan(project)
    trouble(project)
    project.upstream_changes()
    due(project)
    assert project.promoted == []
    check_that_nothing_is_ahead(project)


def test_a_retry_publishes_what_was_planned(project: Starting, due: Due) -> None:
    """While nothing has drifted, the attempt that is due applies the plan."""
    version = make_plan(project)
    apply_and_fail(project)
    assert due(project) == [0, 0]
    assert project.promoted == [version]


@pytest.mark.parametrize("trouble", [fail_once, be_killed])
def test_a_webhooks_preview_is_kept_before_each_promotion(
    project: Starting, due: Due, trouble: Callable[[Starting], None]
) -> None:
    """Also where the attempt that publishes is a retry: the request names a preview that was kept before, of
    just what was published."""
    request = project.hook("first")
    trouble(project)
    project.upstream_changes()  # so no preview of an earlier attempt will do
    due(project)
    ended = project.request(request)
    assert len(project.promoted) == 1
    assert ended.plan_digest is not None, "it was published without a preview"
    assert project.promoted == [planned(project, ended.plan_digest)]
    ((kept_ms, promoted_ms),) = project.rows(
        "SELECT made_at_ms, promoted_at_ms FROM previews, promotions WHERE digest = ?", ended.plan_digest
    )
    assert kept_ms <= promoted_ms
    assert ended.ended == ("done", "success")
