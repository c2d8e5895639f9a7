"""Each change that the console offers is made once, by who may, from its own page, and is on record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.web.console.actions import ACTIONS
from kfm.web.console.sign_in import COOKIE, SECURE_COOKIE
from tests.seeded.changes import CHANGES, REASON, entries, newest
from tests.seeded.site import CONSOLE, Site, Visitor, plain, site_of
from tests.world.keeping import copied_world
from tests.world.story import TOKENS

FOREIGN = ({"Origin": "null"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"})

# The world lists no bucket, has no dead messages, and keeps no replay.
NOT_THERE = ("reconcileFeed", "releaseDeadMessage", "runReplay", "stopReplay")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Site]:
    """A world to change."""
    with site_of(copied_world(tmp_path / "world")) as site:
        yield site


def test_every_change_has_a_case() -> None:
    """The table of changes that are tried has each that the console offers."""
    assert sorted([*(change.action for change in CHANGES), *NOT_THERE]) == sorted(ACTIONS)


@pytest.mark.req("GOV-3", "GOV-2")
def test_each_change_leaves_one_entry(own: Site) -> None:
    """From another origin, without the role or with a placeholder for a reason nothing is done; sent twice,
    one entry in the name of the session's person, with the reason."""
    reader = own.as_person("rea")
    for change in CHANGES:
        visitor = own.as_person(change.who)
        form = change.form(visitor.page(change.address(visitor)))
        before = newest(own)
        for headers in FOREIGN:
            assert visitor.post(change.action, form, **headers).status_code == 403, (change, headers)
        assert visitor.post(change.action, {**form, "rationale": "TEXT"}).status_code == 422, change
        assert newest(own) == before, change
        # The role is looked at before the subject: to a reader all ids are alike.
        assert reader.post(change.action, form).status_code == 403, change
        assert [one.kind for one in entries(own, before) if one.kind != "role-refused"] == [], change
        before = newest(own)
        for _ in range(2):
            answer = visitor.post(change.action, form)
            assert answer.status_code == 200, (change, plain(answer.text)[100:900])
            assert f"{ACTIONS[change.action].verb}: done." in plain(answer.text), change
        made = entries(own, before)
        assert [one.actor for one in made if one.rationale == REASON] == [change.who], (change, made)
        assert {one.actor for one in made} == {change.who}, (change, made)


@pytest.mark.req("GOV-3")
def test_a_session_ends_when_one_signs_out(own: Site) -> None:
    """A copy of its cookie opens nothing afterwards; behind https the cookie has the prefix that browsers let
    no other host set."""
    visitor = Visitor(own, TOKENS["ann"])
    kept = visitor.cookies[COOKIE]
    assert visitor.ask(CONSOLE).status_code == 200
    assert visitor.ask(f"{CONSOLE}sign-out", "POST", headers={"Origin": "null"}).status_code == 403
    visitor.ask(f"{CONSOLE}sign-out", "POST")
    visitor.cookies.set(COOKIE, kept)
    assert visitor.ask(CONSOLE).headers["location"] == f"{CONSOLE}sign-in"
    behind = {"X-Forwarded-Proto": "https"}
    answer = visitor.ask(f"{CONSOLE}sign-in", "POST", data={"token": TOKENS["ann"]}, headers=behind)
    said = answer.headers["set-cookie"]
    assert said.startswith("__Host-")
    assert said.startswith(f"{SECURE_COOKIE}=")
    assert {"Path=/", "Secure", "HttpOnly", "SameSite=strict"} <= set(said.split("; "))
