"""Reading over HTTP with httpx: GET and HEAD, bounded redirects, no surprises from the environment."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from kfm import __version__
from kfm.model.errors import UpstreamUnavailable
from kfm.model.redaction import redact, redact_url

if TYPE_CHECKING:
    import httpx

REDIRECTS_MAX = 5
CHUNK_BYTES = 256 * 1024
CONNECTIONS_MAX = 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# What a stranger may see when an answer sends us elsewhere.
_HARMLESS = frozenset({"accept", "accept-encoding", "range", "if-range", "if-none-match", "user-agent"})
_PORTS = {"http": 80, "https": 443}


class HttpxClient:
    """One pool of connections. Proxies, netrc and certificates of the environment are not looked at:
    what reaches the network is decided by the configuration alone."""

    def __init__(self, *, proxy: str | None = None, ca_file: str | None = None) -> None:
        self._proxy = proxy
        self._ca_file = ca_file
        self._client: httpx.Client | None = None

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
    ) -> Iterator[HttpxResponse]:
        """Errors name the address as `shown`, and none of the secrets, so that they can be passed on."""
        if method not in ("GET", "HEAD"):
            raise ValueError(f"only GET and HEAD go out, not {method}")
        wording = Wording(redact_url(url) if shown is None else shown, secrets)
        response = self._follow(method, url, dict(headers), timeout_ms, wording)
        try:
            yield HttpxResponse(response, wording)
        finally:
            response.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _follow(
        self, method: str, url: str, headers: dict[str, str], timeout_ms: int, wording: Wording
    ) -> httpx.Response:
        address = url
        for _ in range(REDIRECTS_MAX + 1):
            response = self._send(method, address, headers, timeout_ms, wording)
            location = response.headers.get("location")
            if response.status_code not in _REDIRECTS or not location:
                return response
            response.close()
            target = _target(address, location, wording)
            if not _keeps_trust(address, target):
                headers = {name: value for name, value in headers.items() if name.lower() in _HARMLESS}
            address = target
        raise UpstreamUnavailable(
            f"{wording.address} redirects more than {REDIRECTS_MAX} times.", transient=False
        )

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], timeout_ms: int, wording: Wording
    ) -> httpx.Response:
        import httpx

        client = self._connected()
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
                    timeout=httpx.Timeout(timeout_ms / 1000),
                )
            except (httpx.InvalidURL, UnicodeError, ValueError, TypeError) as error:
                raise UpstreamUnavailable(
                    f"{wording.address} is no address: {wording.of(error)}.", transient=False
                ) from None
            return client.send(request, stream=True, follow_redirects=False)

    def _connected(self) -> httpx.Client:
        if self._client is None:
            import ssl

            import httpx

            self._client = httpx.Client(
                trust_env=False,
                proxy=self._proxy,
                verify=ssl.create_default_context(cafile=self._ca_file) if self._ca_file else True,
                limits=httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=4),
            )
        return self._client


class Wording(NamedTuple):
    """How errors name the address."""

    address: str
    secrets: Collection[str]

    def of(self, error: Exception) -> str:
        return redact(str(error), self.secrets)


class HttpxResponse:
    """The bytes as they came over the wire: a content encoding is the reader's business."""

    def __init__(self, response: httpx.Response, wording: Wording) -> None:
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._response = response
        self._wording = wording

    def chunks(self) -> Iterator[bytes]:
        with _explained(self._wording):
            # As it arrives: what waits in a buffer is lost when the connection is cut.
            yield from self._response.iter_raw()


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
    except httpx.TransportError as error:
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
