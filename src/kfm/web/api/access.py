"""Authentication by bearer tokens, and authorization by roles. Nothing is opened for an unknown caller."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

from starlette.requests import Request

from kfm.model.errors import KfmError, RoleMissing
from kfm.model.roles import Identity, KnownPerson, Role, decide, identify, refusal_entry, who_could
from kfm.web.listener import bearer_token
from kfm.web.request_context import WebContext

BEARER = {"WWW-Authenticate": 'Bearer realm="kfm"'}
ACCOUNT = "http"  # of no person: over HTTP only a token identifies


class Unauthenticated(NamedTuple):
    """A caller without a valid token."""

    detail: str


def authenticate(request: Request, people: Sequence[KnownPerson]) -> Identity | Unauthenticated:
    """The identity of the token; without people in the configuration, this machine may read."""
    if not people:
        if not _is_local(request):
            return Unauthenticated("Without people in the configuration only this machine has access.")
        return identify((), ACCOUNT)
    token = bearer_token(request.headers.getlist("authorization"))
    if token is None:
        return Unauthenticated("Send a token: Authorization: Bearer TOKEN.")
    identity = identify(people, ACCOUNT, token)
    return identity if identity.declared else Unauthenticated("The token is not known.")


def _is_local(request: Request) -> bool:
    """Is the client on this machine? A Unix socket has no address."""
    if request.client is None:
        return True
    try:
        return ip_address(request.client.host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def require(context: WebContext, identity: Identity, role: Role, what: str) -> None:
    """RoleMissing without the role. A refused change is recorded in the audit log."""
    if identity.open and role != "read":
        raise RoleMissing(
            f"`{what}` needs the role {role}, and no person has one here.",
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
