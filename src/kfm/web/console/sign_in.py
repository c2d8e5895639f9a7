"""Sessions of the console: a signed cookie that expires. The token itself is kept nowhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

import msgspec
from itsdangerous import BadData, URLSafeSerializer

from kfm.model.roles import Identity, KnownPerson, hash_of, identify

COOKIE = "kfm_console"
SESSION_MS = 8 * 3_600_000
COOKIE_CHARS_MAX = 2048
FORM_BYTES_MAX = 16_384
ACCOUNT = "console"  # of no person: over HTTP only a token identifies


class Sessions:
    """Signed with a key of this process: a restart ends all sessions."""

    def __init__(self, key: bytes, people: Callable[[], Sequence[KnownPerson]]) -> None:
        self._signer = URLSafeSerializer(key, salt=COOKIE, signer_kwargs={"digest_method": sha256})
        self._people = people

    def begin(self, token: str, now_ms: int) -> tuple[Identity, str]:
        """The identity of this token, and the cookie's value."""
        # The hash of the token's hash: a token that is taken away ends its sessions.
        cookie = self._signer.dumps([_mark(hash_of(token)), now_ms + SESSION_MS])
        return identify(self._people(), ACCOUNT, token), str(cookie)

    def of(self, cookie: str | None, now_ms: int) -> Identity | None:
        """The identity of a cookie; None: it is not ours, has expired, or its token was taken away."""
        try:
            token, until_ms = self._signer.loads((cookie or "")[:COOKIE_CHARS_MAX])
        except BadData:
            return None
        if now_ms >= until_ms:
            return None
        for person in self._people():
            if token in map(_mark, person.token_hashes):
                return _as_token(person)
        return None


def _mark(token_hash: str) -> str:
    return sha256(token_hash.encode()).hexdigest()


def _as_token(person: KnownPerson) -> Identity:
    """The identity that showing the token again would give."""
    # By an account that only this person has here: roles and names follow by the same rules.
    alone = msgspec.structs.replace(person, accounts=(*person.accounts, ACCOUNT))
    found = identify([alone], ACCOUNT)
    names = tuple(name for name in found.names if name != ACCOUNT or ACCOUNT in person.accounts)
    return msgspec.structs.replace(found, known_by="token", names=names)
