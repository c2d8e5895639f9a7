"""`kfm webhook`: make a secret, sign a request, send it as a sender would."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click

from kfm.cli.options import CommandGroup, session_options
from kfm.cli.session import CommandSession
from kfm.model.errors import BackendUnavailable, ConfigNotFound, UpstreamUnavailable, UsageError
from kfm.model.webhooks import SECRET_BYTES, secret_text
from kfm.system import SystemClock, SystemIds

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.model.webhooks import Scheme


ANSWER_BYTES_MAX = 4 * 1024 * 1024
TIMEOUT_MS = 120_000  # a dry-run does all the work of a run
BODY_BYTES_MAX = 16 * 1024 * 1024
EVENT = "kfm.test"


class SentWebhook(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def now_ms() -> int:
    return SystemClock().now_ms()


def new_id() -> str:
    return SystemIds().new()


def new_secret() -> str:
    return secret_text(os.urandom(SECRET_BYTES))


def post(url: str, headers: dict[str, str], body: bytes) -> SentWebhook:
    """One request, sent once. Redirects are not followed: a signature is for one address."""
    from kfm.objects.http_client import HttpxClient

    try:
        with (
            closing(HttpxClient()) as client,
            client.send("POST", url, headers, body, TIMEOUT_MS, shown="The service") as answer,
        ):
            received = b""
            for chunk in answer.decoded():
                received += chunk
                if len(received) > ANSWER_BYTES_MAX:
                    break
            return SentWebhook(answer.status, dict(answer.headers), received[:ANSWER_BYTES_MAX])
    except UpstreamUnavailable as error:
        raise BackendUnavailable(
            error.detail, remedy="Is `kfm serve` running? Name its address with --url."
        ) from None


@click.group(name="webhook", cls=CommandGroup)
def command() -> None:
    """Make secrets for webhooks; sign and send one, as a sender would.

    A source that has `webhook:` in the configuration is brought up to date when a sender posts a signed
    request to /hooks/SOURCE of `kfm serve`. These commands show what such a request looks like, in each of
    the three schemes: X-KFM-Signature, Standard Webhooks, GitHub's.
    """


def _made(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options by which a request is made."""
    for option in reversed(
        (
            click.argument("source", metavar="SOURCE"),
            click.argument("file", metavar="[FILE]", required=False),
            click.option(
                "--scheme",
                type=click.Choice(("kfm", "standard", "github")),
                default="kfm",
                show_default=True,
                help="How it is signed.",
            ),
            click.option(
                "--secret", metavar="REFERENCE", help="env:NAME or file:PATH; else the source's first."
            ),
            click.option("--uuid", metavar="ID", help="What it is known by; else a new one."),
            click.option("--dry-run", is_flag=True, help="Ask for the preview only; nothing is changed."),
            click.option("--event", metavar="TYPE", help=f"The event's type; else {EVENT}."),
            click.option("--window", metavar="W", help="Of which window, as for `kfm run`."),
            click.option("--actor", metavar="NAME", help="On whose behalf; a claim that is kept."),
            click.option("--rationale", metavar="TEXT", help="Why."),
            click.option("--ticket", metavar="ID", help="The ticket that this belongs to."),
            click.option("--url", metavar="URL", help="Where to; else the service of this configuration."),
        )
    ):
        function = option(function)
    return function


@command.command()
@session_options
def secret(session: CommandSession) -> None:
    """Print a new secret: 32 random bytes, in the form that every scheme takes.

    Keep it where the configuration's reference leads, and give it to the sender. To replace one, add the new
    one to `secrets`, restart the service, change the sender, then remove the old one.

    \b
    kfm webhook secret > hook.secret && chmod 600 hook.secret
    """

    made = new_secret()
    session.emit({"secret": made}, [made])


@command.command()
@_made
@session_options
def sign(session: CommandSession, **asked: Any) -> None:
    """Sign a request for SOURCE and print its headers, its body, and a curl command that sends it.

    The body is read from FILE, or from standard input if FILE is `-`; it is signed byte by byte as it is.
    Without FILE a body is made from the options. The secret is never printed.

    \b
    Examples:
      kfm webhook sign gauges --dry-run
      kfm webhook sign gauges push.json --scheme github --secret env:HOOK
      kfm webhook sign gauges --json | jq -r .curl
    """
    request = _request(session, asked)
    lines = [
        f"POST {request.url}",
        *(f"{name}: {value}" for name, value in request.headers.items()),
        "",
        request.body.decode("utf-8", "replace"),
        "",
        request.curl,
    ]
    session.emit(request.document, lines)


@command.command()
@_made
@session_options
def send(session: CommandSession, **asked: Any) -> int:
    """Sign a request for SOURCE, send it once, and print what the service answers.

    FILE and the options are those of `kfm webhook sign`. It goes to this configuration's own service unless
    --url names another; what is not on this machine is asked over https only.

    Exit codes: 0 accepted, or previewed · 2 not understood · 3 refused, or used before · 4 no answer, or
    the service can't accept it now.

    \b
    Examples:
      kfm webhook send gauges --dry-run
      kfm webhook send gauges --window 2026-01-01/P1D --rationale "the gauge was repaired"
      kfm webhook send gauges --scheme standard --url https://kfm.example.org/hooks/gauges
    """

    request = _request(session, asked)
    answer = post(request.url, request.headers, request.body)
    answered = _answer(answer.body)
    document = {"status": answer.status, "answer": answered, "request": request.document}
    session.emit(document, _lines(answer.status, answered))
    return _exit_code(answer.status)


# --- the request ---------------------------------------------------------------------


class _Request(NamedTuple):
    url: str
    scheme: str
    headers: dict[str, str]
    body: bytes
    curl: str

    @property
    def document(self) -> dict[str, Any]:
        return {
            "method": "POST",
            "url": self.url,
            "scheme": self.scheme,
            "headers": self.headers,
            "body": self.body.decode("utf-8", "replace"),
            "curl": self.curl,
        }


def _request(session: CommandSession, asked: dict[str, Any]) -> _Request:
    from kfm.model.webhooks import new_body, signed_headers

    loaded = _loaded(session, asked)
    secret = _secret(loaded, asked["source"], asked["secret"])
    url = _url(loaded, asked["source"], asked["url"])
    scheme: Scheme = asked["scheme"]
    at_ms, uuid = now_ms(), asked["uuid"] or new_id()
    if asked["file"] is None:
        said = {name: asked[name] for name in ("window", "actor", "rationale", "ticket") if asked[name]}
        if said and scheme != "kfm":
            raise UsageError(f"--{next(iter(said))} can be said with --scheme kfm only.")
        body = new_body(
            asked["source"],
            scheme,
            request_uuid=uuid if scheme != "standard" else None,  # its own header says it, and is signed
            now_ms=at_ms,
            dry_run=asked["dry_run"],
            event_type=asked["event"] or EVENT,
            metadata=said,
        )
    else:
        _require_own_words(asked, scheme)
        body = _read(asked["file"])
    headers = signed_headers(scheme, secret, body, uuid, at_ms)
    return _Request(url, scheme, headers, body, _curl(url, headers, body, asked["file"]))


def _require_own_words(asked: dict[str, Any], scheme: str) -> None:
    """A body that is given says everything itself."""
    names = ["dry_run", "event", "window", "actor", "rationale", "ticket"]
    if scheme != "standard":
        names.append("uuid")
    for name in names:
        if asked[name]:
            option = name.replace("_", "-")
            raise UsageError(
                f"--{option} can't be given beside FILE: only what is in the body is signed.",
                remedy="Write it into the file, or leave FILE out.",
            )


def _loaded(session: CommandSession, asked: dict[str, Any]) -> Loaded | None:
    """A sender elsewhere has no configuration, and needs none if it says everything."""
    try:
        return session.load()
    except ConfigNotFound:
        if asked["secret"] and asked["url"] and session.config is None:
            return None
        raise


def _secret(loaded: Loaded | None, source_id: str, reference: str | None) -> str:
    from kfm.config.loader import resolve_secret
    from kfm.config.secrets import is_reference

    if reference is None:
        assert loaded is not None
        known = [source for source in loaded.settings.sources if source.webhook is not None]
        source = next((one for one in known if source_id in one.names), None)
        if source is None or source.webhook is None:
            names = ", ".join(one.names[-1] for one in known) or "none"
            raise UsageError(
                f"There is no source `{source_id[:80]}` with a `webhook`. Those that have one: {names}.",
                remedy="Add `webhook: {secrets: [env:NAME]}` to the source, or give --secret.",
            )
        reference = source.webhook.secrets[0]
    elif not is_reference(reference):
        raise UsageError("--secret takes a reference, env:NAME or file:PATH: others can read a command line.")
    text = loaded.secret(reference) if loaded is not None else resolve_secret(reference)
    if loaded is not None:
        loaded.discretion.learn(text.strip())
    return text.strip()


def _url(loaded: Loaded | None, source_id: str, url: str | None) -> str:
    if url is None:
        assert loaded is not None
        serve = loaded.settings.serve
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(serve.host, serve.host)  # noqa: S104 - asked, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{serve.port}/hooks/{source_id}"
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
        _ = parts.port
    except ValueError:
        fine = False
    if not fine:
        raise UsageError("--url must begin with http:// or https:// and name a place.")
    if urlsplit(url).scheme == "http" and not _is_local(url):
        raise UsageError(
            "Over plain http others on the way could read it, and send it before you do.",
            remedy="Use https://; plain http is for this machine.",
        )
    return url


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(name: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(BODY_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{name} can't be read: {(error.strerror or str(error)).lower()}.") from None
    if len(data) > BODY_BYTES_MAX:
        raise UsageError(f"{name} is larger than {BODY_BYTES_MAX:,} bytes.")
    return data


def _curl(url: str, headers: dict[str, str], body: bytes, file: str | None) -> str:
    from shlex import quote

    given = [f"-H {quote(f'{name}: {value}')}" for name, value in headers.items()]
    data = quote(f"@{file}") if file is not None else quote(body.decode())
    return " ".join(["curl -sS -X POST", *given, f"--data-binary {data}", quote(url)])


# --- the answer ----------------------------------------------------------------------


def _answer(body: bytes) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return body[:2000].decode("utf-8", "replace")


def _lines(status: int, answered: Any) -> list[str]:
    from kfm.cli.output import encode, one_line

    if not isinstance(answered, dict):
        return [f"{status}  {one_line(str(answered)[:500])}"]
    if status == 202:
        return [f"accepted  {one_line(str(answered.get('request_id')))}"]
    if "detail" in answered:
        return [f"{status}  {one_line(str(answered.get('code')))}  {one_line(str(answered['detail']))}"]
    return encode(answered, "json").splitlines()


def _exit_code(status: int) -> int:
    if 200 <= status < 300:
        return 0
    if status in (401, 403, 409):
        return 3
    return 4 if status >= 500 or status < 200 or 300 <= status < 400 else 2
