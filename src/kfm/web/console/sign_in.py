"""Sessions of the console: a signed cookie that expires. The token itself is kept nowhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from secrets import token_urlsafe

import msgspec
from itsdangerous import BadData, URLSafeSerializer

from kfm.model.roles import Identity, KnownPerson, hash_of, identify

COOKIE = "kfm_console"
SECURE_COOKIE = "__Host-kfm_console"
SESSION_MS = 8 * 3_600_000
COOKIE_CHARS_MAX = 2048
FORM_BYTES_MAX = 16_384
ENDED_MAX = 10_000  # sessions ended within eight hours
ACCOUNT = "console"  # of no person: over HTTP only a token identifies


class Sessions:
    """Signed with a key of this process: a restart ends all sessions, and no other process knows any.

    So the marks of sessions that were ended by signing out are kept here, until they would have expired.
    """

    def __init__(self, key: bytes, people: Callable[[], Sequence[KnownPerson]]) -> None:
        self._signer = URLSafeSerializer(key, salt=COOKIE, signer_kwargs={"digest_method": sha256})
        self._people = people
        self._ended: dict[str, int] = {}  # session → when it would have expired
        self._over_ms = 0  # sessions that expire until then are over as well

    def begin(self, token: str, now_ms: int) -> tuple[Identity, str]:
        """The identity of this token, and the cookie's value."""
        # The hash of the token's hash: a token that is taken away ends its sessions.
        cookie = self._signer.dumps([_mark(hash_of(token)), now_ms + SESSION_MS, token_urlsafe(16)])
        return identify(self._people(), ACCOUNT, token), str(cookie)

    def of(self, cookie: str | None, now_ms: int) -> Identity | None:
        """The identity of a cookie; None: it is not ours, has expired, or its token was taken away."""
        read = self._read(cookie)
        if read is None:
            return None
        token, until_ms, session = read
        if now_ms >= until_ms or until_ms <= self._over_ms or session in self._ended:
            return None
        for person in self._people():
            if token in map(_mark, person.token_hashes):
                return _as_token(person)
        return None

    def end(self, cookie: str | None, now_ms: int) -> None:
        """The session of this cookie is over, wherever copies of it are."""
        read = self._read(cookie)
        if read is None:
            return
        _, until_ms, session = read
        if len(self._ended) >= ENDED_MAX:
            self._ended = {each: at_ms for each, at_ms in self._ended.items() if at_ms > now_ms}
        if len(self._ended) >= ENDED_MAX:  # too many to remember: then all are over
            self._over_ms, self._ended = now_ms + SESSION_MS, {}
        self._ended[session] = until_ms

    def _read(self, cookie: str | None) -> tuple[str, int, str] | None:
        try:
            token, until_ms, session = self._signer.loads((cookie or "")[:COOKIE_CHARS_MAX])
        except BadData:
            return None
        return token, until_ms, session


def _mark(token_hash: str) -> str:
    return sha256(token_hash.encode()).hexdigest()


def _as_token(person: KnownPerson) -> Identity:
    """The identity that showing the token again would give."""
    # By an account that only this person has here: roles and names follow by the same rules.
    alone = msgspec.structs.replace(person, accounts=(*person.accounts, ACCOUNT))
    found = identify([alone], ACCOUNT)
    names = tuple(name for name in found.names if name != ACCOUNT or ACCOUNT in person.accounts)
    return msgspec.structs.replace(found, known_by="token", names=names)
