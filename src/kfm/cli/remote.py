"""`kfm --server`: a command is carried out by a service, over its API, with the token of KFM_TOKEN.

The command is parsed as ever; then it is one request (see `remote_commands`), and what comes back is the same
document that the command prints with --json. A problem becomes an error with the same code and exit code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import click
import msgspec
from click.core import ParameterSource

from kfm.cli.remote_commands import REMOTE, Given, Remote, why_it_stays
from kfm.cli.session import CommandSession
from kfm.model.errors import (
    BackendUnavailable,
    ConfigError,
    KfmError,
    RoleMissing,
    UpstreamUnavailable,
    UsageError,
    all_errors,
)

VARIABLE, TOKEN_VARIABLE = "KFM_SERVER", "KFM_TOKEN"
PROFILES = "servers.toml"
BASE = "/api/v1"
TIMEOUT_MS = 60_000
ANSWER_BYTES_MAX = 64 * 1024 * 1024
PAGE_MAX = 500
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
NOT_THERE = "Check the id; the lists of `kfm --server` show what there is."
_COMMON = frozenset(
    ("config", "output", "as_json", "verbose", "quiet", "yes", "no_input", "color", "overrides")
)
_FIELD = re.compile(r"\{(\w+)\}")


class Server(NamedTuple):
    """A service and the token for it, which is never shown."""

    url: str  # without the path of the API
    token: str

    def __repr__(self) -> str:
        return f"Server({self.url})"


def find_server(wanted: str, environ: Mapping[str, str] = os.environ) -> Server:
    """An address, or the name of a profile: `[NAME]` with `url` and, if need be, `token_file`."""
    profile: dict[str, Any] = {} if "://" in wanted else _profile(wanted, environ)
    url = str(profile.get("url", wanted)).rstrip("/").removesuffix(BASE)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.username or parts.query:
        raise UsageError(
            f"`{url[:80]}` is no address of a service.", remedy="Write --server https://kfm.example.org."
        )
    if parts.scheme == "http" and (parts.hostname or "") not in _LOOPBACK:
        raise UsageError(
            "A token is not sent over http, but to this machine.", remedy="Use the service's https address."
        )
    return Server(url, _token(profile, environ))


def _profile(name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    import tomllib

    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    path = os.path.join(home, "kfm", PROFILES)
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except FileNotFoundError:
        found = {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} can't be read: {error}") from None
    profile = found.get(name)
    if not isinstance(profile, dict) or not isinstance(profile.get("url"), str):
        raise UsageError(
            f"There is no profile `{name[:60]}` with a `url` in {path}.",
            remedy="Name one there, or give the address: --server https://kfm.example.org.",
        )
    return profile


def _token(profile: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    if token := environ.get(TOKEN_VARIABLE, "").strip():
        return token
    path = profile.get("token_file")
    if path is None:
        return ""
    try:
        with open(os.path.expanduser(str(path)), encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"The token in {path} can't be read: {error}") from None


# --- one command -----------------------------------------------------------------------------


def carry_out(server: Server, session: CommandSession, given: Given) -> int:
    """The command of the present context, by the service."""
    context = click.get_current_context()
    name = context.command_path.partition(" ")[2]
    remote = REMOTE.get(name)
    if remote is None:
        raise UsageError(
            f"`kfm {name}` works on the machine that has the project: {why_it_stays(name)}.",
            remedy=f"Leave --server and {VARIABLE} out there. A service does: {', '.join(REMOTE)}.",
        )
    for option, other in remote.instead.items():
        remote = other if given.get(option) else remote
    _require_known(context, remote, given)
    if remote.method == "POST" and "rationale" in given and not given.get("dry_run"):
        from kfm.model.rationales import require_rationale

        require_rationale(given["rationale"], "A service carries out a change with --rationale TEXT.")
    with Client(server) as client:
        documents = list(_documents(client, session, remote, given))
    for document in documents:
        _show(session, name, document)
    return max((int(one.get("exit_code", 0)) for one in documents), default=0)


def _require_known(context: click.Context, remote: Remote, given: Given) -> None:
    """What would be dropped without a word is refused."""
    several = remote.each.partition("=")[0]
    path = remote.path if isinstance(remote.path, str) else remote.path(given)
    known = {*remote.sends, *remote.ignores, *_FIELD.findall(path), *_FIELD.findall(remote.or_path), several}
    if remote.preview:
        known |= {"digest", "dry_run"}
    if remote.more(given):
        known |= {"states", "windows", "length"}
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in known or name in _COMMON or isinstance(parameter, click.Argument):
            continue
        if context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None):
            raise UsageError(f"{parameter.opts[0]} does not work with --server.")


def _documents(
    client: Client, session: CommandSession, remote: Remote, given: Given
) -> Iterator[dict[str, Any]]:
    several, _, sent_as = remote.each.partition("=")
    if not several:
        yield _document(client, session, remote, given, {})
        return
    if not given[several]:
        raise UsageError(f"With --server, say which: {'--source ID' if sent_as == 'source' else sent_as}.")
    for one in given[several]:
        yield _document(client, session, remote, given, {sent_as: one})


def _document(
    client: Client, session: CommandSession, remote: Remote, given: Given, extra: dict[str, Any]
) -> dict[str, Any]:
    sent = {to: given[name] for name, to in remote.sends.items() if given.get(name) not in (None, False, ())}
    sent |= remote.more(given) | extra
    path = _path(remote.path if isinstance(remote.path, str) else remote.path(given), given)
    if remote.method == "GET":
        return client.pages(path, sent)
    if remote.preview:
        return _previewed(client, session, path, sent, given)
    try:
        return client.change(path, sent)
    except UsageError as error:
        if not (remote.or_path and error.facts.get("is_missing")):
            raise
        return client.change(_path(remote.or_path, given), sent)


def _previewed(
    client: Client, session: CommandSession, path: str, sent: dict[str, Any], given: Given
) -> dict[str, Any]:
    """The plan; and, once it is confirmed, exactly that one."""
    asked = {name: value for name, value in sent.items() if name not in ("rationale", "ticket", "actor")}
    preview = client.read(path, asked)
    plan = preview.get("plan") or preview
    if given["dry_run"]:
        return preview
    digest = given["digest"] or plan["digest"]
    if not given["digest"]:
        from kfm.cli.remote_text import document_lines

        for line in document_lines(plan):
            session.note(line)
        if not session.confirm("Do this?"):
            raise UsageError("Not confirmed: nothing was changed.")
    return client.change(path, {**sent, "digest": digest})


def _path(template: str, given: Given) -> str:
    for name in _FIELD.findall(template):
        if not given[name]:
            raise UsageError(f"With --server, say which {name.removesuffix('_id').upper()}.")
    return _FIELD.sub(lambda found: quote(str(given[found[1]]), safe=":/"), template)


def _show(session: CommandSession, name: str, document: dict[str, Any]) -> None:
    rows = next((value for value in document.values() if isinstance(value, list)), None)
    if session.output != "text":
        session.emit(document, (), rows=rows)
        return
    if name == "status":
        from kfm.cli.status_fast import render

        session.emit(
            document,
            render(
                document,
                {
                    one["dataset_id"]: (one["last_run"] or {}).get("status", "-")
                    for one in document["datasets"]
                },
            ),
        )
        return
    from kfm.cli.remote_text import document_lines

    session.emit(document, document_lines(document))


# --- HTTP ------------------------------------------------------------------------------------


class Client:
    """Requests to one service."""

    def __init__(self, server: Server, timeout_ms: int = TIMEOUT_MS) -> None:
        from kfm.objects.http_client import HttpxClient

        self._server, self._http, self._timeout_ms = server, HttpxClient(), timeout_ms

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def read(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        given = [(name, _text(value)) for name, value in asked.items()]
        return self._call("GET", path + (f"?{urlencode(given)}" if given else ""), None)

    def pages(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The document; of a list as many rows as are wanted, page by page."""
        wanted = asked.get("limit")
        if wanted is None:
            return self.read(path, asked)
        whole = self.read(path, {**asked, "limit": min(int(wanted), PAGE_MAX)})
        name = next((key for key, value in whole.items() if isinstance(value, list)), "")
        while name and whole.get("next") and len(whole[name]) < int(wanted):
            left = min(int(wanted) - len(whole[name]), PAGE_MAX)
            page = self.read(path, {**asked, "limit": left, "cursor": whole["next"]})
            whole = {**page, name: [*whole[name], *page[name]]}
        return whole

    def change(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Sent once more under the same key, where the answer was lost: it is made once."""
        from kfm.system import SystemIds

        sent, key = msgspec.json.encode(body), {"Idempotency-Key": SystemIds().new()}
        try:
            return self._call("POST", path, sent, key)
        except UpstreamUnavailable:
            return self._call("POST", path, sent, key)

    def _call(
        self, method: str, path: str, body: bytes | None, more: Mapping[str, str] = {}
    ) -> dict[str, Any]:
        server = self._server
        headers = {"Accept": "application/json", **more}
        if server.token:
            headers["Authorization"] = f"Bearer {server.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        secrets = (server.token,) if server.token else ()
        url = f"{server.url}{BASE}{path}"
        with self._http.send(method, url, headers, body, self._timeout_ms, secrets=secrets) as response:
            held = bytearray()
            for chunk in response.decoded():
                held += chunk
                if len(held) > ANSWER_BYTES_MAX:
                    raise BackendUnavailable(f"{server.url} answers with more than 64 MiB.")
            status = response.status
        return _read(server, status, bytes(held))


def _read(server: Server, status: int, body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        document = None
    if not isinstance(document, dict):
        raise BackendUnavailable(
            f"{server.url} answers {status}, and not as a service of kfm does.",
            remedy="Check the address; the API is at /api/v1 below it.",
        )
    if status >= 400:
        raise _error(status, document)
    return document


def _error(status: int, problem: Mapping[str, Any]) -> KfmError:
    detail, remedy = str(problem.get("detail") or problem.get("title") or status), problem.get("remedy")
    if status == 401 or (status == 403 and "code" not in problem):
        return RoleMissing(detail, remedy=f"Put the token that the service knows you by in {TOKEN_VARIABLE}.")
    if status == 404:
        return UsageError(detail, remedy=NOT_THERE, is_missing=True)
    kinds = {kind.code: kind for kind in all_errors()}
    kind = kinds.get(str(problem.get("code")))
    if kind is None:
        kind = BackendUnavailable if status >= 500 else UsageError
    return kind(detail, remedy=str(remedy) if remedy else None)


def _text(value: Any) -> str:
    return "true" if value is True else str(value)
