"""Lineage events and provenance of units, for export."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kfm import __version__
from kfm.lineage.collectors import RUN_DELIVERY_MS, LineageContext, MaskKey, deliver, make_collector
from kfm.lineage.delivery import Delivered, deliver_messages
from kfm.lineage.run_facts import AttemptEvents
from kfm.lineage.unit_events import UnitCollector, UnitEventBuilder
from kfm.model.errors import UsageError
from kfm.model.redaction import MASK_KEY, is_masked
from kfm.model.units import TOPIC

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader
    from kfm.model.runs import OutboxMessage
    from kfm.policy.cedar import CedarPolicies
    from kfm.ports import Collector

BATCH = 20  # messages; each is some hundred events
WORKER_MARK = "worker/"


def hidden_units(app: LineageContext) -> Callable[[str], bool]:
    """Must the name of a dataset of units be masked? Announcements are public, so only where rights that
    are declared here demand it."""
    declared = {dataset.id: is_masked(dataset) for dataset in app.settings.datasets}
    return lambda dataset: declared.get(dataset, False)


def unit_mask(app: LineageContext) -> Callable[[str], str]:
    key = MaskKey()
    key.value = app.ledger.mark(MASK_KEY)
    return key.mask


def unit_event_builder(app: LineageContext) -> UnitEventBuilder:
    settings = app.settings
    return UnitEventBuilder(
        namespace=settings.lineage.namespace or f"kfm.{settings.environment}",
        producer_version=__version__,
        masked=hidden_units(app),
        mask=unit_mask(app),
        hide=lambda text: app.loaded.discretion.hide(text),
    )


def deliver_units(
    app: LineageContext,
    *,
    deadline_ms: int = RUN_DELIVERY_MS,
    progress: Callable[[int], None] = lambda _sent: None,
) -> Delivered:
    """Deliver waiting messages about units, for a bounded time. Never raises."""
    if app.store is None:
        return Delivered()
    return UnitDeliveries(app, app.store).step(deadline_ms=deadline_ms, progress=progress)


class UnitDeliveries:
    """Delivers messages about units, in a thread with a store of its own: a slow collector delays no unit."""

    def __init__(self, app: LineageContext, store: Ledger) -> None:
        self._app = app
        self._store = store
        self._builder = unit_event_builder(app)

    def step(
        self,
        *,
        deadline_ms: int = RUN_DELIVERY_MS,
        progress: Callable[[int], None] = lambda _sent: None,
    ) -> Delivered:
        return deliver_messages(
            self._store,
            self._collector,
            self._app.clock,
            topic=TOPIC,
            batch=BATCH,
            deadline_ms=deadline_ms,
            progress=progress,
        )

    def _collector(self) -> Collector | None:
        made = make_collector(self._app)
        return None if made is None else UnitCollector(made, self._builder, self._app.clock)


def deliver_events(
    app: LineageContext, *, deadline_ms: int, progress: Callable[[int], None] = lambda _sent: None
) -> tuple[Delivered, Delivered]:
    """Events of runs, then messages about units."""
    runs = deliver(app, deadline_ms=deadline_ms, progress=progress)
    units = deliver_units(app, deadline_ms=deadline_ms, progress=lambda sent: progress(runs.sent + sent))
    return runs, units


def unit_messages(app: LineageContext, wal_id: str) -> list[OutboxMessage]:
    """The events of a unit's attempts, in their order."""
    builder = unit_event_builder(app)
    messages = app.ledger.unit_reader().messages_of(wal_id)
    return [event for message in messages for event in builder.of_unit(message, wal_id)]


def introduce(store: Ledger, worker_id: str, policies: CedarPolicies) -> None:
    """Put on record which software a worker is, and which policies it works under. The first word counts."""
    if store.policy_texts(policies.bundle_id) is None:
        store.keep_policies(policies.bundle_id, policies.texts)
    known = AttemptEvents(policies=policies.bundle_id, producer=__version__)
    store.ensure_mark(f"{WORKER_MARK}{worker_id}", msgspec.json.encode(known).decode())


def introduced(ledger: LedgerReader, worker_id: str) -> AttemptEvents | None:
    found = ledger.mark(f"{WORKER_MARK}{worker_id}")
    return None if found is None else AttemptEvents(**msgspec.json.decode(found))


def unit_provenance(app: LineageContext, wal_id: str, *, internal: bool = False) -> bytes:
    """The PROV-O document of a unit."""
    from kfm.lineage.provenance import written
    from kfm.lineage.unit_provenance import unit_document

    reader = app.ledger.unit_reader()
    stored = reader.stored(wal_id)
    if stored is None:
        raise UsageError(f"There is no unit `{wal_id}`.", remedy="`kfm nodd units` lists them.")
    hidden = hidden_units(app)(stored.unit.dataset) and not internal
    history = reader.history_of(wal_id)
    named = {move.worker_id for move in history if move.worker_id is not None}
    workers = {name: known for name in sorted(named) if (known := introduced(app.ledger, name)) is not None}
    bundles = {one.policies for one in workers.values() if one.policies is not None}
    return written(
        unit_document(
            stored,
            history,
            workers=workers,
            policies={bundle: app.ledger.policy_texts(bundle) for bundle in bundles},
            mask=unit_mask(app) if hidden else None,
            environment=app.settings.environment,
        )
    )
