"""The one HTTP client: every connection goes to an address that was checked, secrets to one origin only.

Public addresses may be connected to, and private ones that the configuration names (`model.addresses`). A
name is resolved here, once for each connection, and the connection is made to the address that was checked:
a name that changes its address in between gains nothing. Proxies, netrc, cookies and certificates of the
environment are not looked at: what reaches the network is decided by the configuration alone.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from kfm import __version__
from kfm.model.addresses import Reach, reach_of
from kfm.model.errors import AddressRefused, UpstreamUnavailable
from kfm.model.redaction import redact, redact_url

if TYPE_CHECKING:
    import httpcore
    import httpx

REDIRECTS_MAX = 5
CHUNK_BYTES = 256 * 1024
CONNECTIONS_MAX = 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# What a stranger may see when an answer sends us elsewhere.
_HARMLESS = frozenset({"accept", "accept-encoding", "range", "if-range", "if-none-match", "user-agent"})
_PORTS = {"http": 80, "https": 443}

Resolve = Callable[[str, int], Sequence[str]]  # host, port → addresses, the best first


def system_addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class HttpxClient:
    """One pool of connections for each set of addresses that may be reached: none is lent to another."""

    def __init__(
        self,
        *,
        ca_file: str | None = None,
        resolve: Resolve = system_addresses,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """For tests: `ca_file` replaces the trusted authorities, `resolve` the name servers, `transport`
        the network."""
        self._ca_file = ca_file
        self._resolve = resolve
        self._transport = transport
        self._trusted: Any = None  # ssl.SSLContext: made once, since reading the authorities takes long
        self._clients: dict[Reach, httpx.Client] = {}

    @contextlib.contextmanager
    def open(
        self,
        method: Literal["GET", "HEAD"],
        url: str,
        headers: Mapping[str, str],
        timeout_ms: int,
        *,
        shown: str | None = None,
        secrets: Collection[str] = (),
        allow: Collection[str] = (),
    ) -> Iterator[HttpxResponse]:
        """Reads, and follows redirects. Private hosts other than the one of `url` must be in `allow`.

        Errors name the address as `shown`, and none of the secrets, so that they can be passed on.
        """
        if method not in ("GET", "HEAD"):
            raise ValueError(f"only GET and HEAD go out, not {method}")
        wording = Wording(redact_url(url) if shown is None else shown, secrets)
        with self._follow(method, url, dict(headers), timeout_ms, wording, allow) as response:
            yield response

    @contextlib.contextmanager
    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_ms: int,
        *,
        shown: str | None = None,
        secrets: Collection[str] = (),
    ) -> Iterator[HttpxResponse]:
        """One request to the host of `url`, wherever it is: that one alone was chosen by the configuration or
        a person. A redirect is an answer like any other."""
        wording = Wording(redact_url(url) if shown is None else shown, secrets)
        host = _host(url)
        reach = reach_of(host, (host,)) if host else Reach()
        try:
            response = self._send(method, url, headers, timeout_ms, wording, reach, body)
        except _NotPermitted as refusal:  # its name leads nowhere
            raise UpstreamUnavailable(f"{wording.address}: {refusal}.", transient=True) from None
        with contextlib.closing(response):
            yield HttpxResponse(response, wording, url)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    @contextlib.contextmanager
    def _follow(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        timeout_ms: int,
        wording: Wording,
        allow: Collection[str],
    ) -> Iterator[HttpxResponse]:
        address, reach = url, reach_of(_host(url), allow)
        for _ in range(REDIRECTS_MAX + 1):
            try:
                response = self._send(method, address, headers, timeout_ms, wording, reach)
            except _NotPermitted as refusal:
                how = "leads to" if address == url else "redirects to"
                raise AddressRefused(
                    f"{wording.address} {how} {refusal}, which is not public.", transient=False
                ) from None
            location = response.headers.get("location")
            if response.status_code not in _REDIRECTS or not location:
                with contextlib.closing(response):
                    yield HttpxResponse(response, wording, address)
                return
            response.close()
            target = _target(address, location, wording)
            if not _keeps_trust(address, target):
                headers = {name: value for name, value in headers.items() if name.lower() in _HARMLESS}
            address = target
        raise UpstreamUnavailable(
            f"{wording.address} redirects more than {REDIRECTS_MAX} times.", transient=False
        )

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        timeout_ms: int,
        wording: Wording,
        reach: Reach,
        body: bytes | None = None,
    ) -> httpx.Response:
        import httpx

        client = self._connected(reach)
        client.cookies.clear()  # nothing of one answer leaks into another request
        with _explained(wording):
            try:
                _ = urlsplit(url).port  # stricter than the library
                request = client.build_request(
                    method,
                    url,
                    headers={
                        # Encoded bodies have other lengths and offsets than what they stand for.
                        "accept-encoding": "identity",
                        "user-agent": f"kfm/{__version__}",
                        **{name.lower(): value for name, value in headers.items()},
                    },
                    content=body,
                    timeout=httpx.Timeout(timeout_ms / 1000),
                )
            except (httpx.InvalidURL, UnicodeError, ValueError, TypeError) as error:
                raise UpstreamUnavailable(
                    f"{wording.address} is no address: {wording.of(error)}.", transient=False
                ) from None
            return client.send(request, stream=True, follow_redirects=False)

    def _connected(self, reach: Reach) -> httpx.Client:
        if reach not in self._clients:
            import httpx

            transport = self._transport or self._checked_transport(reach)
            self._clients[reach] = httpx.Client(trust_env=False, transport=transport)
        return self._clients[reach]

    def _checked_transport(self, reach: Reach) -> httpx.BaseTransport:
        """httpx's own, on connections that are made by us."""
        import ssl

        import httpcore
        import httpx

        if self._trusted is None:
            own = ssl.create_default_context(cafile=self._ca_file) if self._ca_file else None
            self._trusted = own or httpx.create_ssl_context(trust_env=False)
        made = httpx.HTTPTransport(verify=self._trusted, trust_env=False)
        backend: Any = _CheckedConnections(reach, self._resolve)
        made._pool = httpcore.ConnectionPool(
            ssl_context=self._trusted,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=4,
            keepalive_expiry=5.0,
            network_backend=backend,
        )
        return made


class _NotPermitted(Exception):
    """A host, or where it leads, that may not be connected to."""


class _CheckedConnections:
    """httpcore's network backend: resolves a name, checks the addresses, and connects to one of those."""

    def __init__(self, reach: Reach, resolve: Resolve) -> None:
        self._reach = reach
        self._resolve = resolve

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        import httpcore

        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from None
        permitted = [address for address in addresses if self._reach.permits(host, address)]
        if not permitted:
            raise _NotPermitted(_shown_place(host, addresses))
        for number, address in enumerate(permitted, 1):
            try:
                return httpcore.SyncBackend().connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            # kfm: allow KFM102 each address of a name is another place
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == len(permitted):
                    raise
        raise AssertionError("unreachable")


def _shown_place(host: str, addresses: Sequence[str]) -> str:
    named = host[:100]
    return named if not addresses or named == addresses[0] else f"{named} ({addresses[0]})"


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class Wording(NamedTuple):
    """How errors name the address."""

    address: str
    secrets: Collection[str]

    def of(self, error: Exception) -> str:
        return redact(str(error), self.secrets)


class HttpxResponse:
    """An answer, and the address that gave it."""

    def __init__(self, response: httpx.Response, wording: Wording, address: str) -> None:
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self.address = address
        self._response = response
        self._wording = wording

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they came over the wire: a content encoding is the reader's business."""
        with _explained(self._wording):
            # As it arrives: what waits in a buffer is lost when the connection is cut.
            yield from self._response.iter_raw()

    def decoded(self) -> Iterator[bytes]:
        with _explained(self._wording):
            yield from self._response.iter_bytes()


@contextlib.contextmanager
def _explained(wording: Wording) -> Iterator[None]:
    """Errors of the library, in our words, without secrets."""
    import httpx

    from kfm.calls.foreign_errors import is_untrusted

    try:
        yield
    except httpx.TimeoutException as error:
        raise UpstreamUnavailable(
            f"{wording.address} did not answer in time ({type(error).__name__}).",
            transient=True,
            cause="timeout",
        ) from None
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise UpstreamUnavailable(f"{wording.address}: {wording.of(error)}", transient=False) from None
    except httpx.RequestError as error:
        reason = wording.of(error) or type(error).__name__
        raise UpstreamUnavailable(
            f"{wording.address}: {reason}.", transient=not is_untrusted(error), cause="network"
        ) from None


def _target(address: str, location: str, wording: Wording) -> str:
    try:
        target = urlsplit(urljoin(address, location))
        host, _ = target.hostname, target.port
    except ValueError:
        host = None
    if host is None or target.scheme not in _PORTS:
        raise UpstreamUnavailable(f"{wording.address} redirects to no web address.", transient=False)
    if urlsplit(address).scheme == "https" and target.scheme == "http":
        raise UpstreamUnavailable(f"{wording.address} redirects from https to http.", transient=False)
    netloc = target.netloc.rpartition("@")[2]
    return urlunsplit(SplitResult(target.scheme, netloc, target.path or "/", target.query, ""))


def _keeps_trust(address: str, target: str) -> bool:
    """Same host and port, or the step from http to https on the same host."""
    here, there = urlsplit(address), urlsplit(target)
    if here.hostname != there.hostname:
        return False
    ports = tuple(parts.port or _PORTS[parts.scheme] for parts in (here, there))
    return (here.scheme == there.scheme and ports[0] == ports[1]) or ports == (80, 443)
