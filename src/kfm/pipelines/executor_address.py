"""Where the nodes of a pipeline run: threads, processes, or a cluster by its address."""

from __future__ import annotations

from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from kfm.model.errors import PipelineError

ExecutorKind = Literal["threads", "processes", "dask"]
FORMS = "threads, processes or dask://HOST:PORT"
_COMMS = {"dask": "tcp", "dask+tls": "tls"}


class ExecutorAddress(NamedTuple):
    """An executor: its kind, and of a cluster where its scheduler answers."""

    kind: ExecutorKind
    scheduler: str | None = None
    shares_files: bool = False  # its workers see this machine's file system under the same paths


def executor_of(text: str) -> ExecutorAddress:
    """PipelineError if it is no executor."""
    if text == "threads":
        return ExecutorAddress("threads")
    if text == "processes":
        return ExecutorAddress("processes")
    scheme, _, _ = text.partition("://")
    if scheme not in _COMMS:
        raise PipelineError(f"{text[:80]!r} is no executor; it can be {FORMS}.")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        host, port, parts, query = None, None, None, {}
    if parts is None or not host or not port or parts.path.strip("/") or "@" in parts.netloc:
        raise PipelineError(
            f"{text[:80]!r} names no scheduler.", remedy=f"Write {scheme}://HOST:PORT, as Dask prints it."
        )
    files = query.pop("files", None)
    if query or files not in (None, "shared"):
        raise PipelineError(
            f"{text[:80]!r} has an option that is not known.", remedy="The only one is `?files=shared`."
        )
    place = f"[{host}]" if ":" in host else host
    return ExecutorAddress("dask", f"{_COMMS[scheme]}://{place}:{port}", files == "shared")
