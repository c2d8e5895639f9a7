"""Which names a server answers to: a page elsewhere that makes a name of its own lead here learns nothing."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from kfm.serving.problems import problem

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Named:
    """Answers only to names that are known to be ours."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_ours(scope):
            await problem(421, "Ask under the address that the server has told.")(scope, receive, send)
            return
        if scope["type"] == "http" and _is_behind_tls(scope):
            scope = {**scope, "scheme": "https"}  # so that links and cookies suit the other side of the proxy
        await self._app(scope, receive, send)

    def _is_ours(self, scope: Scope) -> bool:
        said = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(said) != 1:
            return False
        host, colon, port = said[0].rpartition(":")
        if not colon or port.endswith("]"):
            host = said[0]
        elif not port.isascii() or not port.isdigit():
            return False
        return host.lower() in self._hosts


def _is_behind_tls(scope: Scope) -> bool:
    """As a proxy tells. Whoever lies about it gets links and cookies that do not suit himself, no more."""
    return [value for name, value in scope["headers"] if name == b"x-forwarded-proto"] == [b"https"]
