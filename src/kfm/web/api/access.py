"""Who asks, by the token that is shown, and whether he may. Nothing is opened for a stranger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

from starlette.requests import Request

from kfm.model.errors import KfmError, RoleMissing
from kfm.model.roles import Identity, KnownPerson, Role, decide, identify, refusal_entry, who_could
from kfm.web.context import WebContext

BEARER = {"WWW-Authenticate": 'Bearer realm="kfm"'}
ACCOUNT = "http"  # nobody's account: over HTTP only a token says who asks


class Stranger(NamedTuple):
    """Nobody that we know."""

    detail: str


def who_asks(request: Request, people: Sequence[KnownPerson]) -> Identity | Stranger:
    """By the token; without people anybody on this machine may look."""
    if not people:
        if not _is_near(request):
            return Stranger("Without people in the configuration only this machine is answered.")
        return identify((), ACCOUNT)
    said = request.headers.getlist("authorization")
    scheme, _, token = said[0].partition(" ") if len(said) == 1 else ("", "", "")
    if scheme.lower() != "bearer":
        return Stranger("Show a token: Authorization: Bearer TOKEN.")
    identity = identify(people, ACCOUNT, token.strip())
    return identity if identity.declared else Stranger("The token that was shown is nobody's.")


def _is_near(request: Request) -> bool:
    """A socket of this machine has no address, or one that leads nowhere else."""
    if request.client is None:
        return True
    try:
        return ip_address(request.client.host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def require(context: WebContext, identity: Identity, role: Role, what: str) -> None:
    """RoleMissing, unless he may. Who wanted to change something leaves a record of it."""
    if identity.open and role != "read":
        raise RoleMissing(
            f"`{what}` needs the role {role}, and nobody has one here.",
            remedy="Give people roles and tokens under `people:` in the configuration.",
        )
    access = decide(identity, role, context.people, what=f"`{what}`", remote=True)
    if access.allowed:
        return
    if role != "read":
        with suppress(KfmError, OSError), context.app(identity) as app:  # refused even without a ledger
            store = app.store
            assert store is not None, "it was opened for writing"
            store.append_governance([refusal_entry(identity, role, what, access.reason, store.now_ms())])
    raise RoleMissing(access.reason, remedy=who_could(access.others))
