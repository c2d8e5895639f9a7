"""Runs and datasets of kfm in Airflow: hook, operator, sensor, triggers and assets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Any, TypeVar

from airflow.sdk import (
    Asset,
    AssetWatcher,
    BaseHook,
    BaseOperator,
    BaseSensorOperator,
    PokeReturnValue,
)
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from kfm.integrations import airflow_service as kfm_service
from kfm.integrations.airflow import SCHEME
from kfm.integrations.airflow_service import POLL_SECONDS, KfmFailure, KfmService, ServiceAddress

DEFAULT_CONNECTION = "kfm_default"
KFM = (sys.executable, "-m", "kfm")
DEFER_AFTER_SECONDS = 3.0  # most requests have ended by then, and need no triggerer
FIRST_LOOK_SECONDS = 10.0  # of a trigger; see there
_SEEN = "kfm_version"  # of a watched asset: the last version that an event told of
_Answer = TypeVar("_Answer")


# --- assets -------------------------------------------------------------------------------


def kfm_asset(
    dataset: str,
    place: str = DEFAULT_CONNECTION,
    *,
    watch: bool = False,
    poll_seconds: float = 30.0,
    **more: Any,
) -> Asset:
    """A dataset of kfm as an asset: each promotion is an event.

    `place` is the connection to its service, or a name for a project that has none. With `watch` Airflow's
    triggerer looks for promotions, whatever made them; without it an operator whose outlet this is tells of
    its own. Use one of the two.
    """
    if watch:
        trigger = KfmPromotionTrigger(conn_id=place, dataset=dataset, poll_seconds=poll_seconds)
        more["watchers"] = [AssetWatcher(name=f"{place}.{dataset}", trigger=trigger)]
    return Asset(uri=f"{SCHEME}://{place}/{dataset}", **{"group": "kfm", **more})


def _is_kfm_asset(outlet: object) -> bool:
    return isinstance(outlet, Asset) and outlet.uri.startswith(f"{SCHEME}://")


# --- connection ---------------------------------------------------------------------------


class KfmHook(BaseHook):  # type: ignore[misc]
    """Hook of a service: its address and token are a connection of the type `kfm`."""

    conn_name_attr = "conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = "kfm"
    hook_name = "kfm"

    def __init__(self, conn_id: str = DEFAULT_CONNECTION, **more: Any) -> None:
        super().__init__(**more)
        self.conn_id = conn_id

    def get_conn(self) -> ServiceAddress:
        return _address(self.get_connection(self.conn_id))

    async def aget_conn(self) -> ServiceAddress:
        return _address(await self.aget_connection(self.conn_id))

    def call(self, work: Callable[[KfmService], Coroutine[Any, Any, _Answer]]) -> _Answer:
        """Do something with the service, to its end."""
        return asyncio.run(_with(self.get_conn(), work))

    async def acall(self, work: Callable[[KfmService], Coroutine[Any, Any, _Answer]]) -> _Answer:
        return await _with(await self.aget_conn(), work)

    def test_connection(self) -> tuple[bool, str]:
        """What the button *Test* of Airflow's connections asks for."""
        try:
            known = self.call(lambda service: service.whoami())
        except KfmFailure as failure:
            return False, str(failure)
        roles = ", ".join(known["roles"]) or "none"
        return "operate" in known["roles"], f"known as {known['subject']}, roles: {roles}"


async def _with(
    address: ServiceAddress, work: Callable[[KfmService], Coroutine[Any, Any, _Answer]]
) -> _Answer:
    async with kfm_service.opened(address) as service:
        return await work(service)


def _address(connection: Any) -> ServiceAddress:
    return kfm_service.address_of(
        connection.host, connection.port, connection.schema, connection.password, connection.extra_dejson
    )


def _raised(failure: KfmFailure) -> AirflowException:
    """As Airflow tells failures apart: those that a retry may help, and those that it can't."""
    return (AirflowFailException if failure.is_final else AirflowException)(str(failure))


# --- when -----------------------------------------------------------------------------------


def _interval_end(context: Any) -> str:
    """The time as of which a DAG run works: what its scheduled time was, also when it runs later."""
    run = context["dag_run"]
    at = run.data_interval_end or run.logical_date or run.run_after
    return str(at.isoformat(timespec="milliseconds"))


def _times(context: Any, at: str | None) -> list[str]:
    events = context.get("triggering_asset_events") or {}
    extras = [event.extra or {} for asset in events for event in events[asset]]
    return kfm_service.times_of(at or None, extras, _interval_end(context))


# --- runs -----------------------------------------------------------------------------------


class KfmRunOperator(BaseOperator):  # type: ignore[misc]
    """Operator that brings a source of kfm up to date, for the window of the DAG run.

    It asks the service of `conn_id`, and by default leaves the waiting to Airflow's triggerer; or, with
    `project`, it runs `kfm run` in that folder of the worker. The window is the source's own that was the
    last complete one at the end of the data interval; at the end of each window that asset events are about,
    where they have started the DAG run; or at `at`. It succeeds when the window is published or unchanged,
    and XCom has outcome, version, run and window. Assets of kfm among its `outlets` have an event where it
    has promoted something, and none where nothing changed.
    """

    template_fields: Sequence[str] = ("source", "window", "at", "correction", "rationale", "project")
    ui_color = "#dfe9f5"

    def __init__(
        self,
        *,
        source: str,
        conn_id: str = DEFAULT_CONNECTION,
        project: str | None = None,
        command: Sequence[str] = KFM,
        window: str | None = None,
        at: str | None = None,
        correction: str | None = None,
        rationale: str = "Airflow: {{ dag.dag_id }}, {{ run_id }}, {{ ti.task_id }}",
        deferrable: bool = True,
        poll_seconds: float = POLL_SECONDS,
        wait_timeout: timedelta | None = None,
        **task: Any,
    ) -> None:
        super().__init__(**task)
        self._process: subprocess.Popen[str] | None = None
        self._asked: list[str] = []  # requests, of the service at:
        self._address: ServiceAddress | None = None
        self.source = source
        self.conn_id = conn_id
        self.project = project
        self.command = tuple(command)
        self.window = window
        self.at = at
        self.correction = correction
        self.rationale = rationale
        self.deferrable = deferrable
        self.poll_seconds = poll_seconds
        self.wait_timeout = wait_timeout

    def execute(self, context: Any) -> dict[str, Any]:
        times = _times(context, self.at)
        try:
            if self.project is not None:
                return self._ended(context, [self._run_here(at) for at in times])
            self._ask(context, times)
            if not self._is_settled():
                self.defer(
                    trigger=KfmRunTrigger(
                        conn_id=self.conn_id, request_ids=self._asked, poll_seconds=self.poll_seconds
                    ),
                    method_name="execute_complete",
                    timeout=self.wait_timeout,
                )
            return self._results(context, self._asked)
        except KfmFailure as failure:
            raise _raised(failure) from None

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Go on after the trigger: the requests have ended, or could not be followed."""
        request_ids: list[str] = _found(event)
        try:
            return self._results(context, request_ids)
        except KfmFailure as failure:
            raise _raised(failure) from None

    def on_kill(self) -> None:
        """What was asked for is cancelled when the task is stopped."""
        if self._process is not None:
            self._process.terminate()
        if self._asked:
            # In a thread: this is called by a signal's handler, within the event loop that waits.
            thread = Thread(target=self._cancel)
            thread.start()
            thread.join()

    def _cancel(self) -> None:
        assert self._address is not None  # asked requests have one
        try:
            asyncio.run(_with(self._address, _cancelling(self._asked, "The task was stopped in Airflow.")))
        except KfmFailure as failure:
            self.log.warning("could not be cancelled: %s", failure)

    def _ask(self, context: Any, times: Sequence[str]) -> None:
        ti = context["ti"]

        async def ask(service: KfmService) -> None:
            for at in times:
                body = {
                    "source": self.source,
                    "window": self.window,
                    "at": at,
                    "machine": True,
                    "correction": self.correction,
                    "rationale": self.rationale,
                }
                key = kfm_service.request_key(
                    dag_id=ti.dag_id,
                    run_id=ti.run_id,
                    task_id=ti.task_id,
                    map_index=ti.map_index,
                    try_number=ti.try_number,
                    at=at,
                )
                given = {name: value for name, value in body.items() if value is not None}
                request = await service.ask(given, key)
                span = f"{request['window_start']} … {request['window_end']}"
                self.log.info("asked for %s of %s: request %s", span, self.source, request["request_id"])
                self._asked.append(request["request_id"])

        self._address = KfmHook(self.conn_id).get_conn()
        asyncio.run(_with(self._address, ask))

    def _is_settled(self) -> bool:
        """Wait for the end of the requests; where the task can be deferred, for a short time."""
        often, limit = (0.2, DEFER_AFTER_SECONDS) if self.deferrable else (self.poll_seconds, None)
        return KfmHook(self.conn_id).call(
            lambda service: kfm_service.wait_until_settled(service, self._asked, often, limit)
        )

    def _results(self, context: Any, request_ids: Sequence[str]) -> dict[str, Any]:
        return self._ended(
            context,
            KfmHook(self.conn_id).call(lambda service: kfm_service.results(service, request_ids)),
        )

    def _run_here(self, at: str) -> dict[str, Any]:
        command = kfm_service.run_command(
            self.command, self.source, self.window, at, self.correction, self.rationale
        )
        self.log.info("%s in %s", " ".join(command[len(self.command) :]), self.project)
        with subprocess.Popen(
            command,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            self._process = process
            stdout, stderr = process.communicate()
        for line in stderr.splitlines():
            self.log.info(line)
        document = kfm_service.document_of(stdout, stderr, process.returncode)
        return kfm_service.result_of_report(document["results"][0])

    def _ended(self, context: Any, results: list[dict[str, Any]]) -> dict[str, Any]:
        for result in results:
            self.log.info(
                "%s: %s, version %s, run %s",
                result["dataset_id"],
                result["outcome"],
                result["version"],
                result["run_id"],
            )
        told = kfm_service.event_of(results)
        if told is None:
            # Airflow makes an event for each outlet of a task that succeeds: here nothing was promoted.
            self.outlets: list[Any] = [one for one in self.outlets if not _is_kfm_asset(one)]
        for asset in filter(_is_kfm_asset, self.outlets):
            context["outlet_events"][asset].extra = told
        return kfm_service.summary_of(results)


def _cancelling(
    request_ids: Sequence[str], rationale: str
) -> Callable[[KfmService], Coroutine[Any, Any, None]]:
    async def cancel(service: KfmService) -> None:
        for request_id in request_ids:
            await service.cancel(request_id, rationale)

    return cancel


class _Trigger(BaseTrigger, ABC):  # type: ignore[misc]
    """Trigger that has one event: what it waited for, or why that could not be followed.

    Airflow 3.3 fails a task that goes on before the scheduler has seen that its worker is done with it, which
    a worker tells up to five seconds late (apache/airflow#72716). So the first look is not at once.
    """

    conn_id: str

    @abstractmethod
    async def _wait(self, service: KfmService) -> Any: ...

    async def run(self) -> AsyncIterator[TriggerEvent]:
        told: dict[str, Any] = {"found": None, "failure": None, "is_final": False}
        await asyncio.sleep(FIRST_LOOK_SECONDS)
        try:
            told["found"] = await KfmHook(self.conn_id).acall(self._wait)
        except KfmFailure as failure:
            told |= {"failure": str(failure), "is_final": failure.is_final}
        yield TriggerEvent(told)


def _found(event: dict[str, Any]) -> Any:
    """What a trigger's event tells of, for the task that goes on."""
    if event["failure"] is not None:
        raise (AirflowFailException if event["is_final"] else AirflowException)(event["failure"])
    return event["found"]


def _serialized(trigger: Any, *names: str) -> tuple[str, dict[str, Any]]:
    path = f"{type(trigger).__module__}.{type(trigger).__qualname__}"
    return path, {name: getattr(trigger, name) for name in names}


class KfmRunTrigger(_Trigger):
    """Trigger that waits until requests have ended."""

    def __init__(self, conn_id: str, request_ids: list[str], poll_seconds: float = POLL_SECONDS) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.request_ids = request_ids
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return _serialized(self, "conn_id", "request_ids", "poll_seconds")

    async def _wait(self, service: KfmService) -> list[str]:
        await kfm_service.wait_until_settled(service, self.request_ids, self.poll_seconds)
        return self.request_ids

    async def on_kill(self) -> None:
        """A person has cleared or marked the task: what it asked for is cancelled."""
        cancel = _cancelling(self.request_ids, "The task was cleared or marked in Airflow.")
        await KfmHook(self.conn_id).acall(cancel)


# --- datasets -------------------------------------------------------------------------------


class KfmDatasetSensor(BaseSensorOperator):  # type: ignore[misc]
    """Sensor that waits until a dataset has its data.

    By default until the window of each of its sources is there that was the last complete one at the end of
    the data interval, or at `at`; with `newer_than` until it has a newer version than that. XCom has the
    version and the windows.
    """

    template_fields: Sequence[str] = ("dataset", "at", "newer_than")
    ui_color = "#eef3dc"

    def __init__(
        self,
        *,
        dataset: str,
        conn_id: str = DEFAULT_CONNECTION,
        at: str | None = None,
        newer_than: int | str | None = None,
        deferrable: bool = True,
        **task: Any,
    ) -> None:
        super().__init__(**task)
        self.dataset = dataset
        self.conn_id = conn_id
        self.at = at
        self.newer_than = newer_than
        self.deferrable = deferrable

    def _wanted(self, context: Any) -> tuple[str, str | None, int | None]:
        newer_than = None if self.newer_than in (None, "") else int(self.newer_than)
        at = self.at or (None if newer_than is not None else _interval_end(context))
        return self.dataset, at, newer_than

    def poke(self, context: Any) -> PokeReturnValue:
        wanted = self._wanted(context)
        try:
            found = KfmHook(self.conn_id).call(lambda service: kfm_service.readiness(service, *wanted))
        except KfmFailure as failure:
            raise _raised(failure) from None
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    def execute(self, context: Any) -> Any:
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if found:
            return found.xcom_value
        dataset, at, newer_than = self._wanted(context)
        return self.defer(
            trigger=KfmDatasetTrigger(
                conn_id=self.conn_id,
                dataset=dataset,
                at=at,
                newer_than=newer_than,
                poll_seconds=self.poke_interval,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        found: dict[str, Any] = _found(event)
        return found


class KfmDatasetTrigger(_Trigger):
    """Trigger that waits until a dataset has its data."""

    def __init__(
        self, conn_id: str, dataset: str, at: str | None, newer_than: int | None, poll_seconds: float
    ) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.dataset = dataset
        self.at = at
        self.newer_than = newer_than
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return _serialized(self, "conn_id", "dataset", "at", "newer_than", "poll_seconds")

    async def _wait(self, service: KfmService) -> dict[str, Any]:
        return await kfm_service.until(
            lambda: kfm_service.readiness(service, self.dataset, self.at, self.newer_than), self.poll_seconds
        )


class KfmPromotionTrigger(BaseEventTrigger):  # type: ignore[misc]
    """Trigger of an asset's watcher: an event for each promotion, also of runs that Airflow did not start.

    Airflow keeps the last version that an event told of, so that promotions which come while no triggerer
    runs have theirs afterwards. What was published before the asset was first watched has none.
    """

    def __init__(self, conn_id: str, dataset: str, poll_seconds: float = 30.0) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.dataset = dataset
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return _serialized(self, "conn_id", "dataset", "poll_seconds")

    async def run(self) -> AsyncIterator[TriggerEvent]:
        address = await KfmHook(self.conn_id).aget_conn()
        async with kfm_service.opened(address) as service:
            seen = await self._seen(service)
            while True:
                look = partial(kfm_service.promotions_after, service, self.dataset, seen)
                for told in await kfm_service.until(look, self.poll_seconds, grows=False):
                    yield TriggerEvent(told)
                    seen = told["version"]
                    await self._keep(seen)

    async def _seen(self, service: KfmService) -> int:
        kept = await self.asset_state_store.aget(_SEEN) if self.asset_state_store is not None else None
        if kept is not None:
            return int(kept)
        head = await kfm_service.until(lambda: service.heads(self.dataset), self.poll_seconds, grows=False)
        await self._keep(head[0])
        return int(head[0])

    async def _keep(self, version: int) -> None:
        if self.asset_state_store is not None:
            await self.asset_state_store.aset(_SEEN, version)
