"""Checks of `people:`, and the people with their references resolved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kfm.config.secrets import is_reference
from kfm.model.errors import ConfigError
from kfm.model.roles import KnownPerson, read_hash
from kfm.model.settings import PersonSettings, Settings

if TYPE_CHECKING:
    from kfm.config.shape import Problem

SUBJECT_RULE = "letters, digits and `._@+-`, beginning with a letter or digit, at most 100"
_SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}", re.ASCII)
_RESERVED = ("kfm", "unknown")  # what is recorded where no person acted, or it is not known who did
PEOPLE_MAX = 1000


def people_problems(settings: Settings) -> Iterator[Problem]:
    """Path and sentence of whatever is wrong with the people; no token is ever repeated."""
    if len(settings.people) > PEOPLE_MAX:
        yield "people", f"at most {PEOPLE_MAX} people"
    owners: dict[str, str] = {}  # a name or a hash → whose it is
    for index, person in enumerate(settings.people):
        path = f"people[{index}]"
        if not _SUBJECT.fullmatch(person.subject) or person.subject in _RESERVED:
            said = f"the subject `{person.subject[:40]}`"
            kept = f"{said} is what kfm calls itself or a stranger"
            yield (
                f"{path}.subject",
                kept
                if person.subject in _RESERVED
                else f"{said} has characters that are not allowed: {SUBJECT_RULE}",
            )
        if not person.roles:
            yield f"{path}.roles", "give at least one role: `read`, `operate`, `approve`"
        if not (person.accounts or person.tokens):
            yield (
                path,
                f"`{person.subject[:40]}` has neither `accounts` nor `tokens`, so no person can act as it",
            )
        yield from _names(person, index, owners)
        yield from _tokens(person, index, owners)


def _names(person: PersonSettings, index: int, owners: dict[str, str]) -> Iterator[Problem]:
    """A name is one person's: a second one could approve what the first has asked for."""
    taken = owners.get(person.subject)
    if taken is not None:
        yield (
            f"people[{index}].subject",
            f"`{person.subject[:40]}` is a name of `{taken[:40]}` already: one person is one entry",
        )
    own = {person.subject}
    owners.setdefault(person.subject, person.subject)
    for position, account in enumerate(person.accounts):
        path = f"people[{index}].accounts[{position}]"
        if not account.strip():
            yield path, "an account must not be empty"
        elif account not in own and account in owners:
            yield (
                path,
                f"`{account[:40]}` is a name of `{owners[account][:40]}` already: one person is one entry",
            )
        own.add(account)
        owners.setdefault(account, person.subject)


def _tokens(person: PersonSettings, index: int, owners: dict[str, str]) -> Iterator[Problem]:
    for position, text in enumerate(person.tokens):
        path = f"people[{index}].tokens[{position}]"
        found = read_hash(text)
        if found is None and not is_reference(text):
            yield (
                path,
                "write `sha256:` and the token's SHA-256 in hex, or `env:NAME` or `file:PATH` that hold it; "
                "a token itself is never written here",
            )
        elif text in owners:
            yield path, f"`{owners[text][:40]}` has this token already"
        owners.setdefault(text, person.subject)


def known_people(settings: Settings, resolve: Callable[[str], str]) -> tuple[KnownPerson, ...]:
    """The people with the hashes of their tokens. One that can't be read stops everything: who is who?"""
    return tuple(
        KnownPerson(
            subject=person.subject,
            roles=person.roles,
            accounts=person.accounts,
            token_hashes=tuple(_hash(person, text, resolve) for text in person.tokens),
        )
        for person in settings.people
    )


def _hash(person: PersonSettings, text: str, resolve: Callable[[str], str]) -> str:
    found = read_hash(resolve(text))
    if found is None:
        raise ConfigError(
            f"people: `{text}` of {person.subject} holds no `sha256:HEX`.",
            remedy="Put `sha256:` and the SHA-256 of the token there, not the token.",
        )
    return found
