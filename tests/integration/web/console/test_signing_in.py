"""Sessions of the console: a token once, a cookie that expires, and masked names."""

from __future__ import annotations

import pytest

from kfm.web.console.sign_in import COOKIE, SESSION_MS, Sessions
from tests.browser.filled import TOKENS, Filled
from tests.integration.web.console.reading import Reader


def _signed_in(filled: Filled, who: str) -> Reader:
    reader = Reader(filled.context)
    answer = reader.ask("sign-in", "POST", data={"token": TOKENS[who]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/")
    return reader


@pytest.mark.req("GOV-3")
def test_pages_ask_who_is_there_where_people_are_declared(guarded: Filled) -> None:
    """Without a session every page leads to the form, and from there to what was wanted."""
    reader = Reader(guarded.context)
    for path in guarded.paths:
        answer = reader.ask(path)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/console/sign-in")
    answer = reader.ask("runs?status=failed")
    form = reader.page(f"http://127.0.0.1{answer.headers['location']}")
    (action,) = [attrs["action"] for tag, attrs in form.tags if tag == "form"]
    answer = reader.ask(f"http://127.0.0.1{action}", "POST", data={"token": TOKENS["ann"]})
    assert answer.headers["location"] == "/console/runs?status=failed"
    assert reader.ask("runs").status_code == 200


@pytest.mark.req("GOV-3")
def test_the_cookie_is_not_the_token(guarded: Filled) -> None:
    """It is for this path, for no script, for no other site, and says nothing of the token."""
    reader = Reader(guarded.context)
    answer = reader.ask("sign-in", "POST", data={"token": TOKENS["ann"]})
    said = answer.headers["set-cookie"].lower()
    assert all(word in said for word in ("httponly", "samesite=strict", "path=/console", "max-age=28800"))
    assert TOKENS["ann"] not in said
    assert "secure" not in said
    behind = reader.ask(
        "sign-in", "POST", data={"token": TOKENS["ann"]}, headers={"X-Forwarded-Proto": "https"}
    )
    assert "secure" in behind.headers["set-cookie"].lower()
    assert TOKENS["ann"] not in answer.headers["location"]
    answer = reader.ask("sign-out", "POST")
    assert (answer.status_code, reader.ask("runs").status_code) == (303, 303)


@pytest.mark.req("GOV-3")
def test_signing_out_ends_the_session(guarded: Filled) -> None:
    """A copy of the cookie is worth nothing afterwards; another session of the same token goes on."""
    here, there = _signed_in(guarded, "ann"), _signed_in(guarded, "ann")
    there._app = here._app  # one service, two browsers
    there.ask("sign-in", "POST", data={"token": TOKENS["ann"]})
    copied = here.cookies[COOKIE]
    assert here.ask("sign-out", "POST").status_code == 303
    here.cookies.set(COOKIE, copied)
    assert here.ask("runs").status_code == 303
    assert there.ask("runs").status_code == 200


def test_ended_sessions_are_remembered_within_bounds(
    guarded: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that have expired are forgotten; if there are too many, all sessions are over."""
    monkeypatch.setattr("kfm.web.console.sign_in.ENDED_MAX", 3)
    people, token = guarded.context.people, TOKENS["ann"]
    sessions = Sessions(b"k" * 32, lambda: people)
    for now_ms in range(0, 10 * SESSION_MS, SESSION_MS):
        _, kept = sessions.begin(token, now_ms)
        _, ended = sessions.begin(token, now_ms)
        sessions.end(ended, now_ms)
        assert (sessions.of(kept, now_ms) is None, sessions.of(ended, now_ms)) == (False, None)
    cookies = [sessions.begin(token, 0)[1] for _ in range(6)]
    for cookie in cookies[:5]:
        sessions.end(cookie, 0)
    assert [sessions.of(cookie, 0) for cookie in cookies] == [None] * 6
    assert sessions.of(sessions.begin(token, 1)[1], 1) is not None


@pytest.mark.parametrize("token", ["", "x", "x" * 40, TOKENS["ann"][:-1], TOKENS["ann"] + "x"])
def test_an_unknown_token_opens_nothing(guarded: Filled, token: str) -> None:
    """The form says so, sets nothing, and does not repeat what was typed."""
    reader = Reader(guarded.context)
    answer = reader.ask("sign-in", "POST", data={"token": token})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert len(token) < 2 or token not in answer.text
    assert reader.ask("runs").status_code == 303


def test_a_cookie_that_we_did_not_sign_is_nothing(guarded: Filled) -> None:
    """Neither made up, cut, changed, of another process nor too old."""
    context = guarded.context
    now_ms = context.now_ms()
    _, good = Sessions(b"k" * 32, lambda: context.people).begin(TOKENS["ann"], now_ms)
    ours = Sessions(b"k" * 32, lambda: context.people)
    found = ours.of(good, now_ms)
    assert found is not None
    assert (found.subject, found.known_by, found.roles) == ("ann", "token", ("read", "operate"))
    assert found.names == ("ann",)
    body, _, signature = good.partition(".")
    for bad in (
        "",
        ".",
        body,
        f"{body}.",
        f"{body}x.{signature}",
        f"{body}.{'1' if signature[0] == '0' else '0'}{signature[1:]}",  # the last one has unused bits
        "é.é",
        good[:40],
    ):
        assert ours.of(bad, now_ms) is None, bad
    assert Sessions(b"o" * 32, lambda: context.people).of(good, now_ms) is None
    assert ours.of(good, now_ms + SESSION_MS) is None
    others = [one for one in context.people if one.subject != "ann"]
    assert Sessions(b"k" * 32, lambda: others).of(good, now_ms) is None


def test_a_form_from_elsewhere_is_refused(guarded: Filled) -> None:
    """Another site's page can start or end no session."""
    reader = _signed_in(guarded, "ann")
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://elsewhere.example"}):
        for path in ("sign-in", "sign-out"):
            answer = reader.ask(path, "POST", data={"token": TOKENS["cy"]}, headers=headers)
            assert answer.status_code == 403, (path, headers)
            assert "set-cookie" not in answer.headers
    assert reader.ask("sign-in", "POST", content=b"token=" + b"x" * 20_000).status_code == 413


@pytest.mark.parametrize(
    "wanted",
    [
        "//elsewhere.example",
        "https://elsewhere.example",
        "/\\elsewhere",
        "../../x",
        "javascript:alert(1)",
        "a b",
    ],
)
def test_no_reader_is_led_elsewhere(guarded: Filled, wanted: str) -> None:
    """After signing in one goes on to a page of ours, or to the overview."""
    reader = Reader(guarded.context)
    answer = reader.ask("sign-in", "POST", params={"next": wanted}, data={"token": TOKENS["ann"]})
    assert answer.headers["location"] == "/console/"


def test_names_that_may_not_be_told_are_masked_for_readers(guarded: Filled) -> None:
    """Who may only read sees a mask for a restricted dataset and its source, and no page about its traces."""
    cy, ann = _signed_in(guarded, "cy"), _signed_in(guarded, "ann")
    for path in guarded.paths:
        answer = cy.ask(path)
        assert answer.status_code in (200, 400, 403, 404), path
        assert "burials" not in answer.text, path
        assert "mound<" not in answer.text, path
        assert 'mound"' not in answer.text, path
    assert cy.ask(f"calls/{guarded.call_id}").status_code == 403
    assert "masked-" in cy.ask("").text
    assert "burials" in ann.ask("").text
    assert ann.ask(f"calls/{guarded.call_id}").status_code == 200


def test_a_mask_can_be_filtered_by(guarded: Filled) -> None:
    """A link with a mask in it leads to the rows that it stands for."""
    cy = _signed_in(guarded, "cy")
    href = next(link for link in cy.page("").links() if "dataset=masked-" in link)
    page = cy.page(f"http://127.0.0.1{href}")
    chosen = [attrs["value"] for tag, attrs in page.tags if tag == "option" and "selected" in attrs]
    assert chosen[1].startswith("masked-")


def test_without_people_no_reader_is_asked(reader: Reader) -> None:
    """The form leads to the overview where no people are declared."""
    assert reader.ask("sign-in").headers["location"] == "/console/"
    assert COOKIE not in reader.cookies
