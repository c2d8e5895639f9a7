"""One lakeFS repository: calls with timeouts and retries, branch names, the environment's settings."""

from __future__ import annotations

import base64
import importlib
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from kfm.calls.foreign_errors import is_untrusted
from kfm.model.errors import BranchesUnavailable, BranchProtected, ExtraMissing, KfmError
from kfm.ports import Clock, Guard, Ids, Objects, Reader, Retrying, Rng

if TYPE_CHECKING:
    from kfm.branches_remote.lakefs_branches import LakefsBranches
    from kfm.config.loader import Loaded


META_HEADER = "x-lakefs-meta-"
REASON_CHARS_MAX = 300
CHUNK_BYTES = 1024 * 1024
# lakeFS has no codes for these: status and a phrase of its message. No other code reads what it writes.
_REFUSALS = (
    (400, "no changes", "no-changes"),
    (400, "uncommitted", "uncommitted"),
    (403, "protected", "protected"),
)


def status_of(error: KfmError) -> int | None:
    """Which status the server answered with, if that is what failed."""
    return error.facts.get("status")


def reason_of(error: KfmError) -> str:
    return str(error.facts.get("reason", ""))


def refusal_of(error: KfmError) -> str | None:
    """Why the server refused: `no-changes`, `uncommitted`; None for anything else."""
    return error.facts.get("refusal")


def plain_guard(call: Callable[[int], Any], **_: Any) -> Any:
    """One try, a minute at most."""
    return call(60_000)


class Client:
    def __init__(
        self,
        endpoint: str,
        repository: str,
        access_key: str,
        secret_key: str,
        guard: Guard = plain_guard,
        discreet: Callable[[str], str] = lambda text: text,
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self.repository = repository
        self._base = f"{self.endpoint}/api/v1"
        self._keys = (access_key, secret_key)
        self._guard = guard
        self._discreet = discreet
        self._sdk: Any = None
        self._client: Any = None

    @property
    def sdk(self) -> Any:
        if self._sdk is None:
            try:
                self._sdk = importlib.import_module("lakefs_sdk")
            except ModuleNotFoundError:
                raise ExtraMissing(
                    "lakeFS needs the package lakefs-sdk.", remedy="pip install 'kfm-kernel[lakefs]'"
                ) from None
            settings = self._sdk.Configuration(
                host=self._base, username=self._keys[0], password=self._keys[1]
            )
            settings.retries = False  # the call tier's are the only ones
            self._client = self._sdk.ApiClient(settings)
        return self._sdk

    def close(self) -> None:
        if self._client is not None:
            self._client.rest_client.pool_manager.clear()

    # --- calls -------------------------------------------------------------------------------

    def ask(self, api: str, method: str, *args: Any, **options: Any) -> Any:
        """`ask("branches", "get_branch", "main")`: the repository is put before the arguments."""
        return self.guarded(lambda timeout_ms: self.once(timeout_ms, api, method, *args, **options))

    def guarded(self, call: Callable[[int], Any]) -> Any:
        return self._guard(call)

    def once(self, timeout_ms: int, api: str, method: str, *args: Any, **options: Any) -> Any:
        offered = getattr(self.sdk, f"{api.capitalize()}Api")(self._client)
        with self._in_our_words():
            return getattr(offered, method)(
                self.repository, *args, _request_timeout=timeout_ms / 1000, **options
            )

    def upload(
        self, branch: str, path: str, body: Callable[[], Reader], size: int, meta: dict[str, str]
    ) -> None:
        """As a stream: the SDK's own way reads the whole object into memory."""

        def attempt(timeout_ms: int) -> None:
            reader = body()
            try:
                headers = {f"{META_HEADER}{name}": value for name, value in meta.items()}
                headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
                with self._raw(
                    timeout_ms, "POST", f"branches/{branch}/objects", path, headers, reader
                ) as answer:
                    answer.read(CHUNK_BYTES)
            finally:
                reader.close()

        self.guarded(attempt)

    def download(self, ref: str, path: str, take: Callable[[Iterator[bytes]], Any]) -> Any:
        """Whatever `take` makes of the bytes; after a failure it begins again."""

        def attempt(timeout_ms: int) -> Any:
            with self._raw(timeout_ms, "GET", f"refs/{ref}/objects", path, {}, None) as answer:
                return take(answer.stream(CHUNK_BYTES))

        return self.guarded(attempt)

    @contextmanager
    def _raw(
        self, timeout_ms: int, method: str, where: str, path: str, headers: dict[str, str], body: Any
    ) -> Iterator[Any]:
        assert self.sdk is not None
        login = base64.b64encode(":".join(self._keys).encode()).decode()
        url = (
            f"{self._base}/repositories/{quote(self.repository, safe='')}/{where}?path={quote(path, safe='')}"
        )
        with self._in_our_words():
            answer = self._client.rest_client.pool_manager.request(
                method,
                url,
                body=body,
                headers={"Authorization": f"Basic {login}", **headers},
                timeout=timeout_ms / 1000,
                preload_content=False,
            )
            try:
                if answer.status >= 300:
                    raise self._refusal(answer.status, answer.read(CHUNK_BYTES), answer.headers)
                yield answer
            finally:
                answer.release_conn()

    # --- failures ----------------------------------------------------------------------------

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except KfmError:
            raise
        except Exception as error:
            package = type(error).__module__.partition(".")[0]
            answer: Any = error  # the SDK, and so the class, is not imported before it is needed
            if package == "lakefs_sdk" and getattr(answer, "status", None):
                raise self._refusal(int(answer.status), answer.body, answer.headers) from None
            if package in ("lakefs_sdk", "urllib3"):
                reason = _reason(error)
                raise BranchesUnavailable(
                    f"lakeFS at {self.endpoint} can't be reached: {self._discreet(reason)}.",
                    remedy="Check `lakefs.endpoint`, and whether the server runs; then try again.",
                    transient=not is_untrusted(error),
                    cause="network",
                ) from None
            raise

    def _refusal(self, status: int, body: Any, headers: Any) -> KfmError:
        sentence = _sentence(body)
        reason = self._discreet(sentence)
        refusal = next((code for at, phrase, code in _REFUSALS if at == status and phrase in sentence), None)
        if status == 401:
            return BranchesUnavailable(
                f"lakeFS at {self.endpoint} does not accept our keys.",
                remedy="Check what `lakefs.access_key` and `lakefs.secret_key` refer to.",
                status=status,
            )
        if refusal == "protected":
            return BranchProtected(f"lakeFS: {reason}.")
        facts = {
            "status": status,
            "reason": reason,
            "refusal": refusal,
            "retry_after": (headers or {}).get("Retry-After"),
        }
        return BranchesUnavailable(
            f"lakeFS at {self.endpoint} answered {status}: {reason or 'no reason given'}.",
            remedy="Act on the server's message; `lakectl` shows the same.",
            **facts,
        )


def _sentence(body: Any) -> str:
    """The server describes an error by an object with a `message`."""
    data = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else b""
    try:
        found = msgspec.json.decode(data)
    except msgspec.MsgspecError:
        return ""
    text = found.get("message", "") if isinstance(found, dict) else ""
    return " ".join(str(text).split())[:REASON_CHARS_MAX]


def _reason(error: Exception) -> str:
    """The innermost of what urllib3 wraps into each other."""
    inner = getattr(error, "reason", None)
    text = str(inner or error).rpartition("> ")[2] if "<" in str(inner or error) else str(inner or error)
    return " ".join((text.rpartition(": ")[2] or type(error).__name__).split())[:REASON_CHARS_MAX]


logger = logging.getLogger(__name__)


def open_branches(
    loaded: Loaded,
    objects: Objects,
    store: Any,
    *,
    clock: Clock,
    ids: Ids,
    rng: Rng,
) -> LakefsBranches:
    """`store` is the ledger: who changed which ref, and why, is recorded there."""
    from kfm.branches_remote.lakefs_branches import LakefsBranches

    client = _client(loaded, _guard(loaded, clock, rng))
    return LakefsBranches(
        client,
        objects,
        ids,
        clock,
        record=lambda entry: store.append_governance([entry]),
        epoch=store.policy_epoch,
    )


def default_branch(loaded: Loaded, timeout_ms: int) -> str:
    """Asked once: whether the server answers, knows our keys and has the repository."""

    def once(call: Callable[[int], Any], **_: Any) -> Any:
        return call(timeout_ms)

    client = _client(loaded, once)
    try:
        return str(client.ask("repositories", "get_repository").default_branch)
    finally:
        client.close()


def _client(loaded: Loaded, guard: Guard) -> Client:

    server = loaded.settings.lakefs
    assert server is not None, "the configuration names no lakeFS repository"
    return Client(
        loaded.secret(server.endpoint),
        server.repository,
        loaded.secret(server.access_key),
        loaded.secret(server.secret_key),
        guard=guard,
        discreet=loaded.discretion.hide,
    )


def _guard(loaded: Loaded, clock: Clock, rng: Rng) -> Guard:
    from kfm.calls.guard import guarded, retry_fields, retry_text

    def log(retrying: Retrying) -> None:
        logger.info("%s", retry_text(retrying), extra=retry_fields(retrying))

    timeout_ms = loaded.settings.limits.call_timeout_ms
    return partial(guarded, clock=clock, rng=rng, timeout_ms=timeout_ms, on_retry=log)


TEMPORARY = "kfm-tmp-"  # branches on which a change is prepared; readers never see them

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]|-(?=-[0-9a-f]{2})")
_WRITTEN = re.compile(r"--([0-9a-f]{2})")


def to_server(name: str) -> str:
    """`run/7` → `run--2f7`. What lakeFS takes as it is stays as it is."""
    return _FOREIGN.sub(lambda found: f"--{ord(found[0]):02x}", name)


def from_server(name: str) -> str:
    """The other way round; a name that we would not have written so is kept as it is."""
    read = _WRITTEN.sub(lambda found: chr(int(found[1], 16)), name)
    return read if to_server(read) == name else name
