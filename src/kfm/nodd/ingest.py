"""The ingest of announced objects, put together: queues, inspection, circuits, gates, ledger of units."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from kfm.lineage.collectors import lineage_export
from kfm.model.errors import ConfigError, UsageError
from kfm.model.records import GateResult
from kfm.model.retry_budgets import unit_policy
from kfm.model.settings import IngestQueue
from kfm.nodd.dataset_registry import Generic, IntakePolicy, Registry, load_registry
from kfm.nodd.grammar import Place
from kfm.nodd.inspect.inspection import make_inspector
from kfm.nodd.intake import KeyCache
from kfm.nodd.poller import Poller
from kfm.nodd.unit_evidence import introduce
from kfm.nodd.unit_observer import UnitObserver
from kfm.nodd.worker import IngestContext

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from kfm.app import App
    from kfm.db.ledger import Ledger
    from kfm.model.units import ClaimedUnit, UnitFailure, UnitSuccess
    from kfm.nodd.intake import Check
    from kfm.ports import Queue, Upstream

ACTOR = "kfm"
NOTHING_ENDED_S = 0.2  # after which who waits for results of units looks at their leases


class NoddIngest:
    """The parts of a worker, as configured; each is made when it is first needed."""

    def __init__(self, app: App, *, concurrency: int | None = None) -> None:
        """`concurrency`: how many objects are read at once; None: as configured."""
        self._app = app
        self._concurrency = concurrency
        self._pool: ThreadPoolExecutor | None = None
        self._stores: list[Ledger] = []
        self._polled: list[Queue] = []
        self.settings = app.settings.ingest
        self.worker_id = app.worker_id

    @cached_property
    def registry(self) -> Registry:
        return registry_of(self._app)

    @cached_property
    def keys(self) -> KeyCache:
        return KeyCache(self.registry)

    @cached_property
    def upstream(self) -> Upstream:
        return upstream_of(self._app)

    def context(self, store: Ledger | None = None) -> IngestContext:
        """For one thread; every thread but the first needs a store of its own."""
        app, ledger = self._app, store or self._app.writer
        return IngestContext(
            settings=self.settings,
            wal=ledger.units(),
            registry=self.registry,
            clock=app.clock,
            rng=app.rng,
            worker_id=self.worker_id,
            ingest_run_id=self.worker_id,
            keys=self.keys,
            gate=lambda dataset, in_flight: self._gate(ledger, dataset, in_flight),
            policy_epoch=ledger.policy_epoch,
            inspect=make_inspector(self.upstream, self._media_type),
            circuit_open_until=self._circuit_open_until,
            retry_policy=partial(unit_policy, app.settings),
            redact=app.loaded.discretion,
            downstream=self.downstream,
            replicas=tuple(replica.name for replica in self.settings.replicas),
            map_units=self._map_units,
            lineage=lineage_export(app.settings) != "none",
            observer=self.observer,
            introduce=lambda: introduce(ledger, self.worker_id, app.policies),
        )

    @cached_property
    def observer(self) -> UnitObserver | None:
        """None while no spans are collected."""
        from kfm.telemetry.exporter import Off, PublicNames

        app = self._app
        if isinstance(app.telemetry, Off):
            return None
        systems = {queue.name: "aws_sqs" for queue in self.settings.queues if queue.kind == "sqs"}
        names = PublicNames(app.settings, app.writer)
        return UnitObserver(app.telemetry, self.worker_id, systems, names.of_units)

    @property
    def downstream(self) -> tuple[tuple[str, str], ...]:
        """(dataset, source that follows it)."""
        return tuple(
            (dataset, source.id) for source in self._app.settings.sources for dataset in source.follows
        )

    # --- threads ---------------------------------------------------------------------

    def pollers(self, stream: BinaryIO | None = None) -> list[tuple[Poller, Queue]]:
        """One for each queue, each with a store of its own."""
        pollers = []
        for queue, check in self.queues(stream):
            self._polled.append(queue)
            pollers.append((Poller(self.context(self.another_store()), queue, check), queue))
        return pollers

    def another_store(self) -> Ledger:
        """A store for a thread; closed with everything else."""
        store = self._app.state_folder.open_ledger()
        self._stores.append(store)
        return store

    def queues(self, stream: BinaryIO | None = None) -> list[tuple[Queue, Check | None]]:
        if stream is not None:
            from kfm.nodd.queues.line_stream import StreamQueue

            return [(StreamQueue(stream, self._app.clock), None)]
        return [(self.queue(one), self._check(one)) for one in self.settings.queues]

    def queue(self, one: IngestQueue) -> Queue:
        app = self._app
        if one.kind == "folder":
            from kfm.nodd.queues.folder_queue import FolderQueue

            if one.path is None:
                raise ConfigError(f"The queue `{one.name}` is a folder without a path.")
            folder = app.loaded.resolve(one.path)
            return FolderQueue(folder, app.clock, worker=self.worker_id, name=one.name)
        from kfm.nodd.queues.sqs import open_sqs

        if one.url is None:
            raise ConfigError(f"The queue `{one.name}` has no url.")
        options = {name: app.loaded.secret(value) for name, value in one.options.items()}
        return open_sqs(
            one.url,
            name=one.name,
            region=options.get("region"),
            endpoint_url=options.get("endpoint_url"),
        )

    def dead_letters(self, name: str, url: str | None) -> tuple[Queue, Check | None]:
        """The dead-letter queue of a configured queue: another of its kind, at another address."""
        one = next((queue for queue in self.settings.queues if queue.name == name), None)
        if one is None:
            known = ", ".join(sorted(queue.name for queue in self.settings.queues)) or "none"
            raise UsageError(
                f"No queue `{name[:80]}` is configured.", remedy=f"Configured under `ingest.queues`: {known}."
            )
        if url is None:
            raise UsageError(
                f"Where the dead letters of `{name}` are is not known.",
                remedy="Give --url URL, the address of its dead-letter queue; a folder's path for a folder.",
            )
        at = replace(one, path=url) if one.kind == "folder" else replace(one, url=url)
        return self.queue(at), self._check(one)

    def _check(self, one: IngestQueue) -> Check | None:
        if one.signatures == "off":
            return None
        from kfm.nodd.messages.sns_signatures import Verifier
        from kfm.nodd.queues.certificates import HttpsCertificates

        return Verifier(HttpsCertificates(), self._app.clock, self.registry.topics).check

    def _map_units(
        self,
        process: Callable[[ClaimedUnit], UnitSuccess | UnitFailure],
        units: Iterable[ClaimedUnit],
        wait: bool,
    ) -> Iterable[UnitSuccess | UnitFailure | None]:
        return self._in_threads(process, iter(units)) if wait else map(process, units)

    def _in_threads(
        self, process: Callable[[ClaimedUnit], UnitSuccess | UnitFailure], units: Iterator[ClaimedUnit]
    ) -> Iterator[UnitSuccess | UnitFailure | None]:
        """Results as they come, None if none came for a while; a unit is taken when a thread is free for it.
        This thread reads nothing itself, not even a single unit: it has the leases to renew."""
        from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

        threads = self._concurrency or self.settings.concurrency
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kfm-unit")
        context = contextvars.copy_context()  # a context runs once at a time: each unit has a copy
        running: set[Future[UnitSuccess | UnitFailure]] = set()
        while True:
            for one in islice(units, threads - len(running)):
                running.add(self._pool.submit(context.copy().run, process, one))
            if not running:
                return
            done, running = wait(running, NOTHING_ENDED_S, FIRST_COMPLETED)
            yield from (one.result() for one in done)
            if not done:
                yield None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        for queue in self._polled:
            queue.close()
        for store in self._stores:
            store.close()

    # --- gates and circuits ------------------------------------------------------------

    @cached_property
    def _known(self) -> frozenset[str]:
        return self.registry.names

    def _gate(self, ledger: Ledger, dataset: str, in_flight: bool) -> GateResult:
        """Switches and freezes for every dataset; policies for those whose rights are declared here."""
        from kfm.model.gates import (
            combine,
            denied,
            freeze_gate,
            rights_gate,
            switch_gate,
            undeclared_gate,
        )
        from kfm.runs.gates import facts

        if not in_flight and dataset not in self._known:
            # The worker that took it in knows more datasets: the unit waits for such a worker.
            cause = f"This worker knows no dataset {dataset}: its bucket is not under `ingest.generic`."
            return denied("policy", "dataset-unknown", cause)
        app = self._app
        try:
            settings = app.loaded.current()
        except ConfigError as error:
            return denied("policy", "policies-failed", error.message)
        declared, domain = settings.declared(dataset), settings.domain_of(dataset)
        if declared is None and app.settings.declared(dataset) is not None:
            return undeclared_gate(dataset)
        results = [switch_gate(ledger.switches(), dataset, domain, in_flight=in_flight)]
        if not in_flight:
            results.append(freeze_gate(app.settings.freezes, dataset, domain, ledger.now_ms(), work=None))
        if declared is not None:
            context = facts("upstream-event", None, None)
            results += [rights_gate(declared), *app.policies.decide("publish", declared, ACTOR, context)]
        decision = combine(results)
        return decision.first_blocker or results[0]

    def _circuit_open_until(self, provider: str) -> int | None:
        """When the next trial of a provider's circuit is due; None while the circuit is closed."""
        from kfm.model.breaker import circuit_name

        circuit = self._app.breakers.circuit(circuit_name(provider))
        return circuit.due_ms(0, self.worker_id) or None

    def _media_type(self, dataset: str) -> str:
        found = self.registry.find(dataset)
        return found.media_type if found is not None else "application/octet-stream"


def registry_of(app: App) -> Registry:
    """The known datasets, with the generic ones of the configuration."""
    ingest = app.settings.ingest
    generic = tuple(
        Generic(dataset=one.dataset, bucket=one.bucket, provider=one.provider) for one in ingest.generic
    )
    copies = tuple(
        (dataset, Place(bucket=bucket, provider=one.name, home=False))
        for one in ingest.providers
        for bucket, dataset in one.buckets.items()
    )
    return load_registry(IntakePolicy(generic=generic, topics=ingest.topics, copies=copies))


def upstream_of(app: App) -> Upstream:
    from kfm.calls.guarded_clients import CircuitGuard, GuardedUpstream
    from kfm.model.breaker import circuit_name
    from kfm.objects.upstream import CloudUpstream

    ingest = app.settings.ingest
    options = {
        address: {name: app.loaded.secret(value) for name, value in given.items()}
        for address, given in ingest.object_options.items()
    }
    plain = CloudUpstream(
        options=options,
        mirrors={bucket: app.loaded.resolve(path) for bucket, path in ingest.mirrors.items()},
        discreet=app.loaded.discretion,
    )
    if ingest.reads_buckets:
        plain.check()

    def circuit_guard(provider: str) -> CircuitGuard:
        return CircuitGuard(app.breakers.circuit(circuit_name(provider)), app.clock)

    return GuardedUpstream(plain, circuit_guard)
