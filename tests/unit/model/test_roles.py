"""Who a person is, and what that person may do."""

from __future__ import annotations

import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model import roles
from kfm.model.roles import ROLES, UNKNOWN, Identity, KnownPerson, decide, hash_of, identify, is_same_person

ANN_TOKEN = "ann-" + "a" * 40
BOB_TOKEN = "bob-" + "b" * 40
ANN = KnownPerson(
    subject="ann", roles=("operate",), accounts=("ann", "ann-adm"), token_hashes=(hash_of(ANN_TOKEN),)
)
BOB = KnownPerson(subject="bob", roles=("approve",), accounts=("robert",), token_hashes=(hash_of(BOB_TOKEN),))
CY = KnownPerson(subject="cy", roles=("read",), accounts=("cy",))
PEOPLE = (ANN, BOB, CY)


@pytest.mark.req("GOV-3")
def test_without_people_every_account_may_everything() -> None:
    """A machine with one person needs no list, and a token says nothing there."""
    for token in (None, ANN_TOKEN):
        someone = identify((), "ada", token)
        assert (someone.subject, someone.roles, someone.open) == ("ada", ROLES, True)
        assert all(decide(someone, role).allowed for role in ROLES)


@pytest.mark.req("GOV-3")
@pytest.mark.parametrize(
    ("account", "token", "subject", "has"),
    [
        ("ann", None, "ann", ("read", "operate")),
        ("ann-adm", None, "ann", ("read", "operate")),
        ("robert", None, "bob", ("read", "approve")),
        ("runner", ANN_TOKEN, "ann", ("read", "operate")),
        ("ann", BOB_TOKEN, "bob", ("read", "approve")),  # the token is who asks, whatever the account
        ("stranger", None, "stranger", ()),
        ("ann", "x" * 40, UNKNOWN, ()),  # never the account instead
        ("ann", ANN_TOKEN[:20], UNKNOWN, ()),
        ("ann", "", UNKNOWN, ()),
    ],
)
def test_the_token_is_who_asks_else_the_account(
    account: str, token: str | None, subject: str, has: tuple[str, ...]
) -> None:
    """One person is one subject, by whichever name."""
    someone = identify(PEOPLE, account, token)
    assert (someone.subject, someone.roles) == (subject, has)


@pytest.mark.req("GOV-3")
def test_roles_do_not_include_each_other() -> None:
    """Operating does not approve, approving does not operate; both read."""
    ann, bob = identify(PEOPLE, "ann"), identify(PEOPLE, "robert")
    assert [decide(ann, role).allowed for role in ROLES] == [True, True, False]
    assert [decide(bob, role).allowed for role in ROLES] == [True, False, True]


@pytest.mark.req("GOV-3")
def test_a_refusal_names_who_could() -> None:
    """A person who is refused learns by what they are known and whom to ask."""
    access = decide(identify(PEOPLE, "cy"), "operate", PEOPLE, what="`kfm run`")
    assert access.reason == "`kfm run` needs the role operate; cy has read."
    assert access.others == ("ann",)
    assert "Ask ann;" in roles.who_could(access.others)
    assert "No person has that role" in roles.who_could(())


@pytest.mark.req("GOV-3")
def test_reading_is_asked_of_tokens_and_on_servers() -> None:
    """Here the file system decides who reads, unless a token is shown; a server always asks."""
    stranger, unknown = identify(PEOPLE, "stranger"), identify(PEOPLE, "ann", "x" * 40)
    assert decide(stranger, "read").allowed
    assert not decide(stranger, "read", remote=True).allowed
    assert not decide(unknown, "read").allowed


@pytest.mark.req("GOV-3")
def test_every_hash_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long it takes says nothing: the comparison is constant and never ends early."""
    seen: list[Any] = []

    def compare(one: str, other: str) -> bool:
        seen.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert identify(PEOPLE, "x", ANN_TOKEN).subject == "ann"
    assert len(seen) == 2
    assert not any(ANN_TOKEN in pair for pair in seen)


@pytest.mark.req("GOV-3")
def test_a_token_of_two_people_is_nobodys() -> None:
    """References may lead to one hash twice; then there is no telling who it is."""
    twin = KnownPerson(subject="eve", roles=("approve",), token_hashes=ANN.token_hashes)
    assert identify((ANN, twin), "x", ANN_TOKEN).subject == UNKNOWN


# --- two persons -----------------------------------------------------------------------

NAMES = st.sampled_from(["ann", "ann-adm", "bob", "robert", "cy", "runner"])
CONFIGURATIONS = st.sampled_from([(), PEOPLE, (BOB, CY), (ANN,)])
TOKENS = st.sampled_from([None, ANN_TOKEN, BOB_TOKEN])
# Who really sits there: the owner of an account or of a token.
OWNER = {"ann": "ann", "ann-adm": "ann", "bob": "bob", "robert": "bob", "cy": "cy", "runner": "runner"}
HOLDER = {ANN_TOKEN: "ann", BOB_TOKEN: "bob"}


def person(someone: Identity, token: str | None) -> str:
    return HOLDER[token] if token and someone.known_by == "token" else OWNER[someone.account]


@pytest.mark.req("GOV-3")
@given(
    asked=st.tuples(NAMES, TOKENS),
    agrees=st.tuples(NAMES, TOKENS),
    people=st.sampled_from(
        [PEOPLE, (*PEOPLE, KnownPerson(subject="r", roles=("operate",), accounts=("runner",)))]
    ),
)
def test_one_person_is_never_two(
    asked: tuple[str, str | None], agrees: tuple[str, str | None], people: tuple[KnownPerson, ...]
) -> None:
    """By account or token, first and second: the requester is recognised."""
    first, second = identify(people, *asked), identify(people, *agrees)
    same = is_same_person(first.subject, first.names, second.names)
    if person(first, asked[1]) == person(second, agrees[1]) and first.declared and second.declared:
        assert same
    if first.subject != second.subject and first.declared and second.declared:
        assert not same, "two declared people may agree with each other"


@pytest.mark.req("GOV-3")
@given(account=NAMES, before=CONFIGURATIONS, after=CONFIGURATIONS)
def test_an_account_stays_who_it_is(
    account: str, before: tuple[KnownPerson, ...], after: tuple[KnownPerson, ...]
) -> None:
    """People may be declared, changed or removed between a request and its approval."""
    first, second = identify(before, account), identify(after, account)
    assert is_same_person(first.subject, first.names, second.names)


@pytest.mark.req("GOV-3")
@given(other=st.sampled_from(["ann", "ann-adm"]), token=st.booleans(), after=st.booleans())
def test_a_request_by_an_account_is_not_approved_by_its_token(other: str, token: bool, after: bool) -> None:
    """Asked for before anybody was declared, or after: the token of the same person does not agree."""
    first = identify(PEOPLE if after else (), other)
    second = identify(PEOPLE, "runner", ANN_TOKEN) if token else identify(PEOPLE, "ann")
    assert is_same_person(first.subject, first.names, second.names)
