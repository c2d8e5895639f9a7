"""Lineage by configuration: emitters, collectors, and the delivery of events that wait in the outbox."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kfm import __version__
from kfm.config.loader import Loaded, OpenLineage, openlineage
from kfm.lineage.delivery import Delivered, deliver_messages
from kfm.lineage.emitter import TOPIC, LineageEmitter, NullEmitter
from kfm.lineage.facets import below, dataset_name
from kfm.model.contracts import require_valid
from kfm.model.errors import ConfigError
from kfm.model.redaction import MASK_KEY, hidden_names, is_masked, mask
from kfm.model.settings import Settings, Target
from kfm.model.targets import takes

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader
    from kfm.lineage.pipeline_emitter import PipelineEmitter
    from kfm.ports import Clock, Collector, Emitter

BATCH = 100
RUN_DELIVERY_MS = 5_000  # after a run has been reported, this long at most
REQUEST_TIMEOUT_MS = 5_000
HOUR_MS = 3_600_000


class LineageContext(Protocol):
    """As much of the application as this needs."""

    loaded: Loaded
    settings: Settings
    state: str
    clock: Clock
    ledger: LedgerReader
    store: Ledger | None


class MaskKey:
    """The environment's mask key. The store that keeps it is opened after the emitter that uses it."""

    value: str | None = None
    names: Mapping[str, str] = {}  # of datasets that were renamed: what targets show them as

    def mask(self, name: str) -> str:
        return mask(name, self.value)

    def take(self, store: Ledger, settings: Settings, fresh: Callable[[], str]) -> None:
        """Read it, or make it, where there is something to mask, or hooks may get incidents.

        What is masked is remembered: it stays so when the configuration does not have it any more.
        """
        self.names = {one.dataset_id: one.new for one in store.change_reader().renames()}
        masked = any(is_masked(dataset) for dataset in settings.datasets)
        if settings.incidents or masked:
            self.value = store.mark(MASK_KEY) or store.ensure_mark(MASK_KEY, fresh())
        if masked:
            from kfm.model.masked_names import names_by_dataset  # late: most have nothing to mask

            store.remember_names(names_by_dataset(settings))


def make_emitter(loaded: Loaded, key: MaskKey, environment: OpenLineage | None = None) -> Emitter:
    settings = loaded.settings
    if _export(settings, environment or openlineage()) == "none":
        return NullEmitter()
    datasets = {dataset.id: is_masked(dataset) for dataset in settings.datasets}
    return LineageEmitter(
        namespace=settings.lineage.namespace or f"kfm.{settings.environment}",
        producer_version=__version__,
        outputs=lambda dataset_id, published=None: dataset_homes(
            loaded, dataset_id, published or key.names.get(dataset_id)
        ),
        masked=lambda dataset_id: datasets.get(
            dataset_id, True
        ),  # of what is not configured we know no rights
        mask=key.mask,
        folder=loaded.folder,
        hide=lambda text: loaded.discretion.hide(text),
        check=partial(require_valid, "openlineage-event"),
        passes=lambda: make_pipeline_emitter(loaded, key),
    )


def make_pipeline_emitter(loaded: Loaded, key: MaskKey) -> PipelineEmitter | None:
    """None where lineage goes nowhere."""
    if lineage_export(loaded.settings) == "none":
        return None
    from kfm.lineage.pipeline_emitter import PipelineEmitter

    settings = loaded.settings
    return PipelineEmitter(
        namespace=settings.lineage.namespace or f"kfm.{settings.environment}",
        producer_version=__version__,
        masked=hidden_names(settings.datasets),
        mask=key.mask,
        folder=loaded.folder,
        hide=loaded.hide,
    )


def public_names(settings: Settings, mask: Callable[[str], str]) -> Callable[[str], str]:
    hidden = hidden_names(settings.datasets)
    if hidden is None:
        return str
    return lambda name: mask(name) if hidden(name) else name


def dataset_homes(loaded: Loaded, dataset_id: str, published: str | None = None) -> Sequence[tuple[str, str]]:
    """Where the configured targets show a dataset, by the names of lineage. `published`: what it was renamed
    to."""
    homes = []
    dataset = loaded.settings.declared(dataset_id)
    for target in loaded.settings.publish:
        if dataset is not None and not takes(target, dataset):
            continue
        place = _place(loaded, target)
        if place is not None:
            homes.append(below(place, published or dataset_id))
    return homes


def _place(loaded: Loaded, target: Target) -> tuple[str, str] | None:
    # What a job uploads is not found under its path, and a catalogue has no data.
    if target.kind in ("noop", "github-actions", "dcat", "stac"):
        return None
    if target.url is not None:
        namespace, name = dataset_name(target.url)
        return namespace, "" if name == "/" else name
    return None if target.path is None else ("file", os.path.normpath(loaded.resolve(target.path)))


# --- delivery ------------------------------------------------------------------------


def make_collector(app: LineageContext, environment: OpenLineage | None = None) -> Collector | None:
    """Where events go; None where they go nowhere."""
    given = environment or openlineage()
    lineage = app.settings.lineage
    export = _export(app.settings, given)
    if export == "none":
        return None
    if export == "file":
        from kfm.sinks.event_file import FileCollector, Rotation

        path = f"{app.state}/lineage/openlineage.jsonl" if lineage.path is None else lineage.path
        rotation = Rotation(lineage.rotate_bytes, lineage.rotate_hours * HOUR_MS)
        return FileCollector(app.loaded.resolve(path), app.clock, rotation=rotation)
    from kfm.sinks.openlineage_http import HttpCollector

    transport = dict(given.transport)
    if "url" not in transport:
        if lineage.url is None:
            raise ConfigError(
                "lineage.export is http, but no collector is named.",
                remedy="Set lineage.url, or OPENLINEAGE_URL.",
            )
        transport["url"] = lineage.url
        # A token of the file is for the file's collector, not for one that the environment names.
        if lineage.token is not None:
            transport["auth"] = {"type": "api_key", "apiKey": app.loaded.secret(lineage.token)}
    return HttpCollector(transport, app.clock, timeout_ms=REQUEST_TIMEOUT_MS)


def describe_collector(app: LineageContext, environment: OpenLineage | None = None) -> str | None:
    """Where events go, in words that may be shown; None: nowhere."""
    from kfm.model.redaction import redact_url

    given = environment or openlineage()
    export = _export(app.settings, given)
    if export == "file":
        path = app.settings.lineage.path
        return app.loaded.resolve(path or f"{app.state}/lineage/openlineage.jsonl")
    if export == "http":
        return redact_url(str(given.transport.get("url") or app.settings.lineage.url or ""))
    return None


def ignored_transport(environment: OpenLineage | None = None) -> str | None:
    """The kind of transport that the environment asks for and that is not ours."""
    return (environment or openlineage()).ignored


def deliver(
    app: LineageContext,
    *,
    deadline_ms: int = RUN_DELIVERY_MS,
    progress: Callable[[int], None] = lambda _sent: None,
) -> Delivered:
    """Deliver what waits, for a bounded time. Never raises: a collector's error is part of the result."""
    if app.store is None:
        return Delivered()
    return deliver_messages(
        app.store,
        lambda: make_collector(app),
        app.clock,
        topic=TOPIC,
        batch=BATCH,
        deadline_ms=deadline_ms,
        progress=progress,
    )


def lineage_export(settings: Settings) -> str:
    """Where events go: none, file or http."""
    return _export(settings, openlineage())


def _export(settings: Settings, given: OpenLineage) -> str:
    """The environment chooses a collector over the file's; a plain `none` stays none."""
    if settings.lineage.export == "none" or given.disabled:
        return "none"
    return "http" if given.transport.get("url") else settings.lineage.export
