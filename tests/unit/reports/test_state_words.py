"""One word for one state: what the console and the commands show for a stored value."""

from __future__ import annotations

from typing import get_args

import click
import pytest

from kfm.cli.options import StateChoice
from kfm.cli.output import PAGE, matching
from kfm.model.errors import ContractViolated
from kfm.model.records import UNIT_STATUSES, InvocationOutcome, NodeOutcome
from kfm.model.requests import RequestState
from kfm.reports import state_words
from kfm.web.console.state_words import word


def test_a_run_is_published_unchanged_or_refused() -> None:
    """A refusal is stored as a failure; its code tells them apart."""
    of_run = state_words.of_run
    assert of_run("success", version_id="sha256:1", error_code=None) == "published"
    assert of_run("success", version_id=None, error_code=None) == "unchanged"
    assert of_run("failed", version_id=None, error_code=ContractViolated.code) == "refused"
    assert of_run("failed", version_id=None, error_code="WORKER_DIED") == "failed"
    assert of_run("failed", version_id=None, error_code=None) == "failed"
    assert of_run("running", version_id=None, error_code=None) == "running"


def test_every_stored_value_has_a_word_that_pages_can_mark() -> None:
    """No word of a state is shown without its own sign."""
    shown = [
        *map(state_words.of_unit, UNIT_STATUSES),
        *map(state_words.of_invocation, (*get_args(InvocationOutcome), None)),
        *map(state_words.of_node, (*get_args(NodeOutcome), None)),
        *(state_words.of_request(state, None, None) for state in get_args(RequestState) if state != "done"),
        *(
            state_words.of_request("done", outcome, None)
            for outcome in ("success", "noop", "failed", "refused")
        ),
        *map(state_words.of_waiting, state_words.WAITING),
        *(state_words.of_quarantined("dead-letter", state) for state in ("held", "released", "resolved")),
        state_words.of_quarantined("quarantine", "held"),
        *map(state_words.of_approval, ("requested", "approved", "rejected")),
        *map(state_words.of_pipeline_run, ("running", "success", "partial", "failed", "cancelled")),
        *map(state_words.of_scheduled_time, ("held", "pending", "coming", "missed", "unaccounted")),
    ]
    assert [text for text in shown if word(text).sign == "·" and text != "upcoming"] == []
    assert not {"success", "noop", "open", "pending", "in_progress", "held", "awaiting-approval"} & {*shown}


@pytest.mark.req("TRG-1")
@pytest.mark.parametrize(
    ("blocked_by", "word"),
    [
        ("retry", "waiting for a retry"),
        ("retry-after", "waiting for a retry"),
        ("next-run", "waiting for a retry"),
        ("granted", "waiting for a retry"),
        ("circuit:usgs", "waiting for a provider"),
        ("circuit-open", "waiting for a provider"),
        ("switch", "waiting for a switch"),
        ("freeze", "waiting for a freeze"),
        ("busy", "waiting"),
        ("trouble", "waiting"),
        (None, "waiting"),
    ],
)
def test_an_open_request_says_what_it_waits_for(blocked_by: str | None, word: str) -> None:
    """Of any other state what blocked it once is of no interest."""
    assert state_words.of_request("open", None, blocked_by) == word
    assert state_words.of_scheduled_time("request", state="open", blocked_by=blocked_by) == word
    assert state_words.of_request("running", None, blocked_by) == "running"


def test_a_scheduled_time_has_the_word_of_its_request() -> None:
    """Without a request: of what it became; before a service had seen the schedule: that."""
    of = state_words.of_scheduled_time
    assert of("request", state="done", outcome="noop") == "unchanged"
    assert of("request", state="open") == "waiting"
    assert of("redefined") == "redefined"
    assert of("redefined", before_first_seen=True) == "not seen yet"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("waiting", "open"),
        ("open", "open"),
        ("waiting for approval", "awaiting-approval"),
        ("waiting-for-approval", "awaiting-approval"),
        ("awaiting-approval", "awaiting-approval"),
        ("published", "published"),
    ],
)
def test_a_filter_takes_the_word_and_the_stored_value(typed: str, meant: str) -> None:
    """The word first: help lists no stored value that has another word."""
    choice = StateChoice((*state_words.REQUESTS.values(), "published"), state_words.REQUESTS)
    assert choice.convert(typed, None, None) == meant
    assert "open" not in choice.choices
    assert "waiting-for-approval" in choice.choices
    with pytest.raises(click.BadParameter, match="'waiting'"):
        choice.convert("", None, None)


def test_rows_that_only_a_word_tells_apart_are_read_page_by_page() -> None:
    """As many as are wanted, however far apart they are."""
    rows = [(number, str(number)) for number in range(3 * PAGE, 0, -1)]

    def read(before: tuple[int, str] | None) -> list[tuple[int, str]]:
        return [row for row in rows if before is None or row < before][:PAGE]

    def found(limit: int) -> list[int]:
        return [
            number for number, _ in matching(read, lambda row: row[0] % PAGE == 7, lambda row: row, limit)
        ]

    assert found(2) == [2 * PAGE + 7, PAGE + 7]
    assert found(9) == [2 * PAGE + 7, PAGE + 7, 7]
