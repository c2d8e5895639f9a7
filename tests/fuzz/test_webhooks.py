"""A short campaign of forged webhooks; a million is `make fuzz`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import webhooks


@pytest.mark.req("UPD-12")
def test_no_forged_webhook_is_accepted() -> None:
    """Whatever was changed on the way, in a header or the body: refused, and nothing is raised."""
    words = webhooks.forge(20_000, "test")
    assert words["mismatch"] > 5_000, "most of them are close to a genuine one"
    assert {"malformed", "missing", "unsigned", "stale", "downgrade"} & set(words)


@pytest.mark.req("UPD-12")
def test_hostile_bodies_with_a_right_signature_are_answered() -> None:
    """Accepted or refused by rule, never by accident."""
    words = webhooks.signed(3_000, "test")
    assert words["accepted"]
    assert words["body"]


@pytest.mark.req("UPD-12")
def test_the_route_answers_every_forged_one(tmp_path: Path) -> None:
    """With a refusal of its own, and never with a failure."""
    statuses = webhooks.route(1_500, "test", str(tmp_path))
    assert statuses[403] > 500


@pytest.mark.req("UPD-12")
def test_a_real_server_survives_broken_requests(tmp_path: Path) -> None:
    """Any byte of a whole request may be another one: no 5xx, and what is accepted has a signed body."""
    answers = webhooks.sockets(150, "test", str(tmp_path))
    assert sum(answers.values()) == 150
