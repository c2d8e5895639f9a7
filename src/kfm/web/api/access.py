"""Authentication by bearer tokens, and authorization by roles. Nothing is opened for an unknown caller."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import NamedTuple

from starlette.requests import Request

from kfm.model.errors import RoleMissing
from kfm.model.roles import Identity, KnownPerson, Role, decide, identify, who_could
from kfm.web.listener import bearer_token
from kfm.web.request_context import WebContext
from kfm.web.role_refusals import RoleRefusal

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
    """RoleMissing without the role. Refused changes are counted in the audit log."""
    if identity.open and role != "read":
        raise RoleMissing(
            f"`{what}` needs the role {role}, and no person has one here.",
            remedy="Give people roles and tokens under `people:` in the configuration.",
        )
    access = decide(identity, role, context.people, what=f"`{what}`", remote=True)
    if not access.allowed and role != "read":
        context.refusals.note(RoleRefusal(identity=identity, role=role, what=what, reason=access.reason))
    context.enter_refusals()
    if access.allowed:
        return
    raise RoleMissing(access.reason, remedy=who_could(access.others))
