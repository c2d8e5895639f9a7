"""The address of an HTTP source: what may be shown, and what is added only when it goes out."""

from __future__ import annotations

import base64
from collections.abc import Callable
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit, urlunsplit

from kfm.model.errors import ConfigError, UpstreamUnavailable
from kfm.model.redaction import MASK, hide, is_secret_name, redact_url, strip_params
from kfm.model.settings import SourceSettings
from kfm.model.templates import Fields, render

Resolve = Callable[[str], str]  # `env:NAME` and `file:PATH` → the secret; anything else as it is


def is_reference(value: str) -> bool:
    return value.startswith(("env:", "file:"))


class Address:
    """Secrets are resolved at use and never become part of a shown address."""

    def __init__(self, source: SourceSettings, resolve: Resolve) -> None:
        self._source = source
        self._resolve = resolve
        self._secret = {
            name for name, value in source.params.items() if is_reference(value) or is_secret_name(name)
        }

    def first(self, fields: Fields) -> str:
        """The rendered address with its public parameters, without credentials."""
        parts = urlsplit(render(self._source.url or "", fields))
        public = {
            name: render(value, fields)
            for name, value in self._source.params.items()
            if name not in self._secret
        }
        query = "&".join(part for part in (parts.query, _encoded(public)) if part)
        netloc = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, netloc, parts.path or "/", query, ""))

    def outgoing(self, shown: str) -> str:
        """The address as it goes out: with the secret parameters."""
        parts = urlsplit(strip_params(shown, self._secret))
        secret = {name: self._resolve(self._source.params[name]) for name in sorted(self._secret)}
        query = "&".join(part for part in (parts.query, _encoded(secret)) if part)
        return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))

    def shown(self, url: str) -> str:
        """The address as it may be stored and published."""
        try:
            public = strip_params(url, self._secret)
        except ValueError:
            return MASK
        return hide(redact_url(public), self.secrets())

    def secrets(self) -> list[str]:
        """Every secret that goes out, to be looked for in whatever is said about the answer."""
        source = self._source
        named = [*source.params.items(), *source.headers.items()]
        values = [
            self._resolve(value) for name, value in named if is_reference(value) or is_secret_name(name)
        ]
        user, password = self._credentials()
        if password:
            values += [password, _basic(user, password)]
        # `Bearer abc` may be repeated without its first word.
        return [part for value in values for part in (value, *value.split()[1:])]

    def headers(self) -> dict[str, str]:
        headers = {name: self._resolve(value) for name, value in self._source.headers.items()}
        user, password = self._credentials()
        if user is not None and "authorization" not in {name.lower() for name in headers}:
            headers["Authorization"] = f"Basic {_basic(user, password)}"
        for name, value in headers.items():
            # The client's own complaint would quote the value.
            if (
                not value.isascii()
                or value != value.strip()
                or any(ord(character) < 32 or ord(character) == 127 for character in value)
            ):
                raise ConfigError(
                    f"The header {name} of source `{self._source.id}` has characters that can't be sent, "
                    "or blanks around it."
                )
        return headers

    def follow(self, current: str, link: str) -> str:
        """The next page's address. It must lead to the same host: our credentials go with it."""
        try:
            here, there = urlsplit(current), urlsplit(urljoin(current, link))
            same = (
                there.scheme in ("http", "https")
                and here.hostname == there.hostname
                and there.port
                in (
                    here.port,
                    None,
                )
            )
        except ValueError:
            same = False
        if not same:
            raise UpstreamUnavailable(
                f"{self.shown(current)} continues at another host: {self.shown(link)}.", transient=False
            )
        # Servers behind a proxy often name themselves by http; the way we came is the way we go on.
        return urlunsplit((here.scheme, here.netloc, there.path or "/", there.query, ""))

    def _credentials(self) -> tuple[str | None, str | None]:
        parts = urlsplit(self._source.url or "")
        password = unquote(parts.password) if parts.password is not None else None
        user = unquote(parts.username) if parts.username is not None else None
        return user, self._resolve(password) if password else password


def _basic(user: str | None, password: str | None) -> str:
    return base64.b64encode(f"{user or ''}:{password or ''}".encode()).decode("ascii")


def with_params(url: str, params: dict[str, str]) -> str:
    """The address with these parameters set, others kept."""
    parts = urlsplit(strip_params(url, params))
    query = "&".join(part for part in (parts.query, _encoded(params)) if part)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, parts.fragment))


def _encoded(params: dict[str, str]) -> str:
    return urlencode(params, quote_via=quote, safe=":,/")
