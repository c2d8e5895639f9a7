"""Identity and access: who the caller is, and what they may do. Pure: every front end decides alike."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from kfm.model.patterns import late
from kfm.model.records import GovernanceEntry, Justification, Record, governance_entry

Role = Literal["read", "operate", "approve"]
ROLES: tuple[Role, ...] = ("read", "operate", "approve")
TOKEN_CHARS_MIN = 32  # the hash of a shorter one could be guessed
TOKEN_CHARS_MAX = 4096
UNKNOWN = "unknown"  # the subject of a token that belongs to no person
_HASH = late(r"sha256:([0-9a-f]{64})", re.ASCII)
_NAMED_MAX = 10


class KnownPerson(Record, frozen=True):
    """One person of the configuration, the references of its tokens resolved."""

    subject: str
    roles: tuple[Role, ...]
    accounts: tuple[str, ...] = ()
    token_hashes: tuple[str, ...] = ()  # bare hex


class Identity(Record, frozen=True):
    """Who is asking, and by what that is known."""

    subject: str
    known_by: Literal["token", "account"]
    account: str  # that the process runs under, whatever it claims to be
    roles: tuple[Role, ...]
    names: tuple[str, ...]  # everything this person may be recorded as
    declared: bool  # stands in the configuration
    open: bool = False  # no person has a role, so all have all


def is_person(identity: Identity) -> bool:
    """Is it a declared person's token? An account alone may be a machine's."""
    return identity.declared and identity.known_by == "token"


class AccessDecision(Record, frozen=True):
    """May this be done? If not: why, and who could."""

    allowed: bool
    reason: str
    others: tuple[str, ...] = ()


def hash_of(token: str) -> str:
    """What stands for a token in a configuration, without its prefix."""
    from hashlib import sha256  # late: most people are known by their account, and OpenSSL is large

    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def read_hash(text: str) -> str | None:
    """The hex of `sha256:HEX`, or None if that is not what it is."""
    found = _HASH.fullmatch(text.strip())
    return found[1] if found else None


def identify(people: Sequence[KnownPerson], account: str, token: str | None = None) -> Identity:
    """Who runs under this account and shows this token, if any.

    Without people in the configuration every account has every role, and a token is ignored. An unknown
    token never falls back to the account: then revoking it would only change who its holder is.
    """
    if not people:
        return Identity(
            subject=account,
            known_by="account",
            account=account,
            roles=ROLES,
            names=(account,),
            declared=False,
            open=True,
        )
    if token is not None:
        found = _by_token(people, token)
        if found is None:
            return Identity(
                subject=UNKNOWN, known_by="token", account=account, roles=(), names=(UNKNOWN,), declared=False
            )
        return _declared(found, "token", account)
    person = next((one for one in people if account in one.accounts), None)
    if person is None:
        # By its account's name; should a person have that name, too, they count as the same.
        return Identity(
            subject=account, known_by="account", account=account, roles=(), names=(account,), declared=False
        )
    return _declared(person, "account", account)


def _by_token(people: Sequence[KnownPerson], token: str) -> KnownPerson | None:
    if not TOKEN_CHARS_MIN <= len(token) <= TOKEN_CHARS_MAX:
        return None
    from hmac import compare_digest

    shown = hash_of(token)
    # No early end: how long it takes says nothing about how near a guess was.
    found = [person for person in people for known in person.token_hashes if compare_digest(known, shown)]
    return found[0] if len({person.subject for person in found}) == 1 else None


def _declared(person: KnownPerson, known_by: Literal["token", "account"], account: str) -> Identity:
    given = set(person.roles) | ({"read"} if person.roles else set())
    return Identity(
        subject=person.subject,
        known_by=known_by,
        account=account,
        roles=tuple(role for role in ROLES if role in given),
        names=tuple(dict.fromkeys((person.subject, *person.accounts))),
        declared=True,
    )


def decide(
    identity: Identity,
    role: Role,
    people: Iterable[KnownPerson] = (),
    *,
    what: str = "This",
    remote: bool = False,
) -> AccessDecision:
    """May this identity do what needs the role?

    On this machine reading is the file system's matter, so it asks for a role only of those who show a
    token. `remote`: on a server it always does.
    """
    if role in identity.roles:
        return AccessDecision(allowed=True, reason=f"{identity.subject} has the role {role}.")
    if role == "read" and identity.known_by == "account" and not remote:
        return AccessDecision(
            allowed=True, reason="An account that can read the files here can read the ledger."
        )
    others = tuple(
        person.subject
        for person in people
        if role in person.roles or (role == "read" and person.roles)
        if person.subject != identity.subject
    )
    return AccessDecision(
        allowed=False, reason=f"{what} needs the role {role}; {_has(identity)}.", others=others
    )


def _has(identity: Identity) -> str:
    if identity.known_by == "token" and not identity.declared:
        return "the token is unknown"
    who = identity.subject
    if identity.known_by == "account" and identity.account != who:
        who += f" (account {identity.account})"
    if not identity.declared:
        return f"the account {who} is not among the people of the configuration"
    return f"{who} has {' and '.join(identity.roles) or 'none'}"


def who_could(others: Sequence[str]) -> str:
    """The way out of a refusal."""
    if not others:
        return "No person has that role: the configuration grants it under `people:`."
    named = ", ".join(others[:_NAMED_MAX]) + (", …" if len(others) > _NAMED_MAX else "")
    return f"Ask {named}; `kfm whoami` shows who you are here, and how that is known."


def refusal_entry(
    identity: Identity, role: Role, what: str, reason: str, at_ms: int, count: int = 1
) -> GovernanceEntry:
    """The governance entry of a change that was refused for lack of a role, so many times since the last."""
    return governance_entry(
        "role-refused",
        what,
        at_ms,
        Justification(actor=identity.subject),
        role=role,
        roles=list(identity.roles),
        known_by=identity.known_by,
        account=identity.account,
        reason=reason,
        count=count,
    )


def is_same_person(requested_by: str, requested_names: Iterable[str], approver_names: Iterable[str]) -> bool:
    """Is the approver the requester, under any name of either?

    The requester's names were recorded with the request, the approver's are those of now: people who were
    declared, changed or removed in between stay who they are.
    """
    return not {requested_by, *requested_names}.isdisjoint(approver_names)
