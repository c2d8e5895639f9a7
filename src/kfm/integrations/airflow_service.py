"""What Airflow's tasks ask of kfm, and what the answers mean. Nothing of Airflow is imported here."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kfm.model.completeness import THERE
from kfm.model.times import is_all_time, parse_rfc3339

if TYPE_CHECKING:
    import httpx

PORT = 8377
TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 5.0
POLL_SECONDS_MAX = 60.0
FAILED_POLLS_MAX = 20  # in a row: some fifteen minutes
VERSIONS_MAX = 100  # of one look at a dataset
_Found = TypeVar("_Found")
_LATER = frozenset({408, 409, 425, 429})  # the same question may be answered otherwise later
_SUCCEEDED = {"success": "published", "noop": "unchanged", "empty": "empty"}
_FATES = {
    "failed": "The run has failed, and kfm has given it up.",
    "refused": "A gate has refused the run.",
    "absent": "The data did not come in time.",
}


class KfmFailure(Exception):
    """Work that did not succeed: code, cause and remedy. `is_final`: asking again would not change it."""

    def __init__(self, cause: str, *, code: str | None, remedy: str | None, is_final: bool) -> None:
        self.cause, self.code, self.remedy, self.is_final = cause, code, remedy, is_final
        super().__init__(cause)

    def __str__(self) -> str:
        fix = f" fix: {self.remedy}" if self.remedy else ""
        return f"{f'{self.code}: ' if self.code else ''}{self.cause}{fix}"


# --- what is asked for ----------------------------------------------------------------


def request_key(*, dag_id: str, run_id: str, task_id: str, map_index: int, try_number: int, at: str) -> str:
    """The Idempotency-Key of one try of a task, for one window.

    A try that begins again, since its worker was lost, finds its own request. A retry and a cleared task
    are further tries, so they ask anew for the same window.
    """
    named = [dag_id, run_id, task_id, map_index, try_number, at]
    return f"airflow-{hashlib.sha256(json.dumps(named).encode()).hexdigest()}"


def times_of(at: str | None, extras: Sequence[Mapping[str, Any]], interval_end: str) -> list[str]:
    """The times for whose last complete windows a task asks.

    One that is given; or the ends of the windows that the asset events which started the DAG are about, so
    that none is left out where Airflow gathered several; or the end of the data interval.
    """
    if at is not None:
        return [at]
    ends = set()
    for extra in extras:
        told = extra.get("payload") or extra  # a watcher's event has it one level below
        for one in told.get("windows") or [told]:
            if one.get("window_end"):
                ends.add(str(one["window_end"]))
    return sorted(ends, key=parse_rfc3339) or [interval_end]


# --- what it came to ------------------------------------------------------------------


def is_settled(request: Mapping[str, Any]) -> bool:
    return request["state"] in ("done", "cancelled")


def result_of(request: Mapping[str, Any], shown: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a request that has ended has come to, for XCom and asset events; raises unless it succeeded.

    `shown` is the document of its run.
    """
    run = shown["run"] if shown else {}
    word = _SUCCEEDED.get(request["outcome"] or "")
    if request["state"] != "done" or word is None:
        raise _failure_of(request, shown)
    made = shown["promotions"] if shown and word == "published" else []
    if word == "published" and not made:
        word = "unchanged"  # its result was published already
    return _result(
        outcome=word,
        dataset_id=request["dataset_id"],
        source_id=request["source_id"],
        window=(request["window_start"], request["window_end"]),
        run_id=request["run_id"],
        version=shown["version"] if shown else None,
        version_id=run.get("version_id"),
    ) | {"request_id": request["request_id"]}


def _failure_of(request: Mapping[str, Any], shown: Mapping[str, Any] | None) -> KfmFailure:
    run, outcome = (shown["run"] if shown else {}), request["outcome"]
    step = (shown.get("next_step") if shown else None) or {}
    said = run.get("error_message") if outcome == "failed" else None
    if request["state"] == "cancelled":
        cause = request["reason"] or "The request was cancelled."
    else:
        cause = said or request["reason"] or _FATES.get(outcome, f"It ended as {outcome}.")
    return KfmFailure(
        cause,
        code=run.get("error_code") if outcome == "failed" else None,
        remedy=_remedy(step) or f"`kfm explain {request['run_id'] or request['request_id']}` says why.",
        is_final=outcome != "absent",
    )


def _remedy(step: Mapping[str, Any]) -> str | None:
    """A person's next step."""
    sentence, command = step.get("sentence"), step.get("command")
    if not sentence:
        return None
    return f"{sentence}: `{command}`." if command else f"{sentence}."


def result_of_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """The same of one result of `kfm run --json`."""
    if report["word"] not in ("published", "unchanged"):
        error = report["error"] or {}
        step = report["next_step"] or {}
        raise KfmFailure(
            error.get("message") or report["reason"] or report["word"],
            code=error.get("code"),
            remedy=_remedy(step) or error.get("remedy"),
            is_final=report["outcome"] == "refused",
        )
    return _result(
        outcome=report["word"],
        dataset_id=report["dataset_id"],
        source_id=report["source_id"],
        window=(report["window_start"], report["window_end"]),
        run_id=report["run_id"],
        version=report["version"],
        version_id=report["version_id"],
    )


def _result(window: tuple[str | None, str | None], **facts: Any) -> dict[str, Any]:
    start, end = window
    if start and end and is_all_time(parse_rfc3339(start), parse_rfc3339(end)):
        start = end = None  # a source without windows has one snapshot
    return {**facts, "window_start": start, "window_end": end}


def summary_of(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a task returns: the newest window, or the newest that was published; and each of them."""
    published = [one for one in results if one["outcome"] == "published"]
    return {**(published or results)[-1], "windows": list(results)}


def event_of(results: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What an asset event tells of what a task has promoted; None: nothing."""
    names = ("dataset_id", "version", "version_id", "run_id", "window_start", "window_end")
    told = [{name: one[name] for name in names} for one in results if one["outcome"] == "published"]
    return {**told[-1], "windows": told} if told else None


def is_complete(windows: Sequence[Mapping[str, Any]]) -> bool:
    """Are the windows there? Each has its data, or upstream says that there is none."""
    return bool(windows) and all(one["state"] in THERE for one in windows)


# --- a service, by its API ------------------------------------------------------------


class ServiceAddress(NamedTuple):
    """Where a service is, and how to speak with it."""

    url: str  # with the API's path
    token: str | None = None
    ca_file: str | None = None


def address_of(
    host: str | None, port: int | None, scheme: str | None, token: str | None, extra: Mapping[str, Any]
) -> ServiceAddress:
    """The address that the fields of a connection name."""
    if not host:
        raise KfmFailure("The connection has no host.", code=None, remedy="Give it one.", is_final=True)
    base = host.rstrip("/") if "://" in host else f"{scheme or 'https'}://{host}"
    if not base.startswith(("https://", "http://")):
        remedy = "Its schema is https or http."
        raise KfmFailure("The connection is not of HTTP.", code=None, remedy=remedy, is_final=True)
    port_text = f":{port or PORT}" if "://" not in host or port else ""
    prefix = str(extra.get("prefix") or "").strip("/")
    return ServiceAddress(
        f"{base}{port_text}{f'/{prefix}' if prefix else ''}/api/v1", token, extra.get("ca_file") or None
    )


class KfmService:
    """The API of one service. Errors are `KfmFailure`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(self, body: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Ask for an update. The same key asks once, however often it is sent."""
        answer = await self._call("POST", "/requests", json=body, headers={"Idempotency-Key": key})
        return dict(answer["request"])

    async def request(self, request_id: str) -> dict[str, Any]:
        return dict((await self._call("GET", f"/requests/{request_id}"))["request"])

    async def run(self, run_id: str) -> dict[str, Any]:
        return await self._call("GET", f"/runs/{run_id}")

    async def cancel(self, request_id: str, rationale: str) -> None:
        """Cancel a request, unless it has ended."""
        if not is_settled(await self.request(request_id)):
            await self._call("POST", f"/requests/{request_id}/cancel", json={"rationale": rationale})

    async def windows_at(self, dataset: str, at: str) -> list[dict[str, Any]]:
        """The window of each source of a dataset that was the last complete one at a time."""
        answer = await self._call("GET", f"/datasets/{dataset}/coverage", params={"at": at})
        return list(answer["windows"])

    async def versions(self, dataset: str, limit: int = VERSIONS_MAX) -> list[dict[str, Any]]:
        """Versions of a dataset, the newest first."""
        answer = await self._call("GET", f"/datasets/{dataset}/versions", params={"limit": limit})
        return list(answer["versions"])

    async def heads(self, dataset: str) -> list[int]:
        """The number of the newest version, in a list; 0 where there is none."""
        return [one["version"] for one in await self.versions(dataset, 1)] or [0]

    async def whoami(self) -> dict[str, Any]:
        return await self._call("GET", "/whoami")

    async def _call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        import httpx

        try:
            answer = await self._client.request(method, path, **more)
        except httpx.HTTPError as error:
            remedy = "Look at the connection in Airflow, and whether `kfm serve` runs."
            cause = f"The service can't be reached: {str(error) or type(error).__name__}."
            raise KfmFailure(cause, code=None, remedy=remedy, is_final=False) from None
        try:
            document = answer.json()
        except ValueError:
            document = None
        if not answer.is_success or not isinstance(document, dict):
            raise _problem(answer.status_code, document if isinstance(document, dict) else {})
        return document


def _problem(status: int, problem: Mapping[str, Any]) -> KfmFailure:
    cause = problem.get("detail") or f"The service answered {status}, and nothing that could be read."
    is_final = 400 <= status < 500 and status not in _LATER
    return KfmFailure(str(cause), code=problem.get("code"), remedy=problem.get("remedy"), is_final=is_final)


@asynccontextmanager
async def opened(address: ServiceAddress) -> AsyncIterator[KfmService]:
    """A service, with its connections."""
    import ssl

    import httpx

    headers = {"Accept": "application/json"}
    if address.token:
        headers["Authorization"] = f"Bearer {address.token}"
    verify: Any = False  # of what is not encrypted
    if address.url.startswith("https:"):
        # In a thread: it reads files, and a triggerer has one loop for everything that waits.
        verify = await asyncio.to_thread(ssl.create_default_context, cafile=address.ca_file)
    async with httpx.AsyncClient(
        base_url=address.url, headers=headers, timeout=TIMEOUT_SECONDS, verify=verify
    ) as client:
        yield KfmService(client)


def intervals(first: float) -> Iterator[float]:
    """Seconds between two looks: longer each time, up to a limit."""
    seconds = min(max(first, 0.1), POLL_SECONDS_MAX)
    while True:
        yield seconds
        seconds = min(seconds * 1.5, POLL_SECONDS_MAX)


async def until(
    look: Callable[[], Awaitable[_Found | None]], poll_seconds: float = POLL_SECONDS, *, grows: bool = True
) -> _Found:
    """What a look finds, once it finds something. `grows`: the time between two looks does.

    A service that is away for a while, as for an upgrade, is waited for.
    """
    failed = 0
    for seconds in intervals(poll_seconds):
        try:
            found = await look()
            failed = 0
        except KfmFailure as failure:
            failed += 1
            if failure.is_final or failed >= FAILED_POLLS_MAX:
                raise
            found = None
        if found:
            return found
        await asyncio.sleep(seconds if grows or failed else poll_seconds)
    raise AssertionError("the intervals do not end")


async def wait_until_settled(
    service: KfmService,
    request_ids: Sequence[str],
    poll_seconds: float = POLL_SECONDS,
    limit_seconds: float | None = None,
) -> bool:
    """Until each request has ended; False: some had not within the limit."""
    try:
        async with asyncio.timeout(limit_seconds):
            for request_id in request_ids:

                async def ended(request_id: str = request_id) -> bool:
                    return is_settled(await service.request(request_id))

                await until(ended, poll_seconds)
    except TimeoutError:
        return False
    return True


async def results(service: KfmService, request_ids: Sequence[str]) -> list[dict[str, Any]]:
    """What requests that have ended have come to; raises for the first that did not succeed."""
    found = []
    for request_id in request_ids:
        request = await service.request(request_id)
        shown = await service.run(request["run_id"]) if request["run_id"] else None
        found.append(result_of(request, shown))
    return found


async def readiness(
    service: KfmService, dataset: str, at: str | None, newer_than: int | None
) -> dict[str, Any] | None:
    """What a sensor waits for, once it is there: the newest version, and the windows."""
    windows = await service.windows_at(dataset, at) if at is not None else []
    if at is not None and not is_complete(windows):
        return None
    head = next(iter(await service.versions(dataset, 1)), None)
    return ready_of(dataset, head, windows, newer_than)


def ready_of(
    dataset: str, head: Mapping[str, Any] | None, windows: Sequence[Mapping[str, Any]], newer_than: int | None
) -> dict[str, Any] | None:
    if newer_than is not None and (head is None or head["version"] <= newer_than):
        return None
    facts = {name: head[name] if head else None for name in ("version", "version_id", "run_id")}
    return {"dataset_id": dataset, **facts, "windows": [dict(one) for one in windows]}


async def promotions_after(service: KfmService, dataset: str, version: int) -> list[dict[str, Any]]:
    """What asset events tell of the versions after one, the oldest first."""
    fresh = [one for one in await service.versions(dataset) if one["version"] > version]
    told = []
    for one in reversed(fresh):
        run = (await service.run(one["run_id"]))["run"] if one["run_id"] else {}
        facts = {name: one[name] for name in ("version", "version_id", "run_id")}
        window = (run.get("window_start"), run.get("window_end"))
        told.append(_result(window, dataset_id=dataset, **facts))
    return told


# --- a project on the worker, by the command ---------------------------------------------


def run_command(
    command: Sequence[str], source: str, window: str | None, at: str, correction: str | None, rationale: str
) -> list[str]:
    """`kfm run` for one window, as a machine."""
    options = ["--source", source, "--at", at, "--rationale", rationale]
    if window is not None:
        options += ["--window", window]
    if correction is not None:
        options += ["--correction", correction]
    return [*command, "run", "--no-input", "--output", "json", *options]


def document_of(stdout: str, stderr: str, exit_code: int) -> dict[str, Any]:
    """The document that a command printed; its error, where it printed one."""
    try:
        document = json.loads(stdout)
    except ValueError:
        document = {}
    if isinstance(document, dict) and document and "code" not in document:
        return document
    error = document if isinstance(document, dict) else {}
    cause = error.get("message") or stderr.strip()[-2000:] or f"The command ended with {exit_code}."
    is_final = exit_code in (2, 3)
    raise KfmFailure(cause, code=error.get("code"), remedy=error.get("remedy"), is_final=is_final)
