"""Who is signed in: a cookie that this process has signed, for a while. The token itself is kept nowhere."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from kfm.model.records import Record
from kfm.model.roles import Identity, KnownPerson, hash_of, identify

COOKIE = "kfm_console"
SESSION_MS = 8 * 3_600_000
COOKIE_CHARS_MAX = 2048
FORM_BYTES_MAX = 16_384
ACCOUNT = "console"  # nobody's: whoever comes over HTTP has no account here


class SignedIn(Record, frozen=True):
    token: str  # the hash of its hash: a token that was taken away ends its sessions
    until_ms: int


class Sessions:
    """Signed with a key of this process: a restart signs everybody out."""

    def __init__(self, key: bytes, people: Sequence[KnownPerson]) -> None:
        self._key = key
        self._people = people

    def begin(self, token: str, now_ms: int) -> tuple[Identity, str]:
        """Who shows this token, and the cookie's value."""
        session = SignedIn(token=_mark(hash_of(token)), until_ms=now_ms + SESSION_MS)
        body = urlsafe_b64encode(msgspec.json.encode(session)).decode()
        return identify(self._people, ACCOUNT, token), f"{body}.{self._sign(body)}"

    def of(self, cookie: str | None, now_ms: int) -> Identity | None:
        """Whose cookie this is; None: nobody's, or not any more."""
        body, _, signature = (cookie or "")[:COOKIE_CHARS_MAX].partition(".")
        if not hmac.compare_digest(self._sign(body).encode(), signature.encode("utf-8", "replace")):
            return None
        session = msgspec.json.decode(urlsafe_b64decode(body), type=SignedIn)
        if now_ms >= session.until_ms:
            return None
        for person in self._people:
            if session.token in map(_mark, person.token_hashes):
                return _as_token(person)
        return None

    def _sign(self, body: str) -> str:
        return hmac.new(self._key, body.encode("utf-8", "replace"), sha256).hexdigest()


def _mark(token_hash: str) -> str:
    return sha256(token_hash.encode()).hexdigest()


def _as_token(person: KnownPerson) -> Identity:
    """The identity that showing the token again would give."""
    # By an account that only this person has here: roles and names follow by the same rules.
    alone = msgspec.structs.replace(person, accounts=(*person.accounts, ACCOUNT))
    found = identify([alone], ACCOUNT)
    names = tuple(name for name in found.names if name != ACCOUNT or ACCOUNT in person.accounts)
    return msgspec.structs.replace(found, known_by="token", names=names)
