"""What the composition root needs for evidence that leaves the house: the emitter and the collectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kfm import __version__
from kfm.config.collectors import OpenLineage
from kfm.config.loader import Loaded, openlineage
from kfm.lineage.delivery import Delivered, deliver_letters
from kfm.lineage.emitter import TOPIC, LineageEmitter, NullEmitter
from kfm.lineage.naming import below, dataset_name
from kfm.model.errors import ConfigError, UsageError
from kfm.model.redaction import MASK_KEY, is_masked, mask
from kfm.model.settings import DatasetSettings, Rights, Settings, Target

if TYPE_CHECKING:
    from kfm.db.ledger import Ledger
    from kfm.db.ledger_reader import LedgerReader
    from kfm.lineage.pipeline_emitter import PipelineEmitter
    from kfm.ports import Clock, Collector, Emitter

BATCH = 100
RUN_DELIVERY_MS = 5_000  # after a run has been reported, this long at most
REQUEST_TIMEOUT_MS = 5_000


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

    def mask(self, name: str) -> str:
        return mask(name, self.value)

    def take(self, store: Ledger, settings: Settings, fresh: Callable[[], str]) -> None:
        """Read it, or make it, where there is something to mask, or hooks may be told of what is gone."""
        if settings.incidents or any(is_masked(dataset) for dataset in settings.datasets):
            self.value = store.mark(MASK_KEY) or store.ensure_mark(MASK_KEY, fresh())


def make_emitter(loaded: Loaded, key: MaskKey, environment: OpenLineage | None = None) -> Emitter:
    settings = loaded.settings
    if _export(settings, environment or openlineage()) == "none":
        return NullEmitter()
    datasets = {dataset.id: is_masked(dataset) for dataset in settings.datasets}
    return LineageEmitter(
        namespace=settings.lineage.namespace or f"kfm.{settings.environment}",
        producer_version=__version__,
        outputs=lambda dataset_id: dataset_homes(loaded, dataset_id),
        masked=lambda dataset_id: datasets.get(
            dataset_id, True
        ),  # of what is not configured we know no rights
        mask=key.mask,
        folder=loaded.folder,
        hide=lambda text: loaded.discretion.hide(text),
        check=require_valid_event,
        passes=lambda: _passes(loaded, key),
    )


def _passes(loaded: Loaded, key: MaskKey) -> PipelineEmitter | None:
    from kfm.pipelines.evidence import make_pipeline_emitter

    return make_pipeline_emitter(loaded, key)


def require_valid_event(event: dict[str, Any]) -> None:
    from kfm.publish.publisher_trace import require_valid

    require_valid("openlineage-event", event)


def dataset_homes(loaded: Loaded, dataset_id: str) -> Sequence[tuple[str, str]]:
    """Where the configured targets show a dataset, by the names of lineage."""
    homes = []
    for target in loaded.settings.publish:
        place = _place(loaded, target)
        if place is not None:
            homes.append(below(place, dataset_id))
    return homes


def _place(loaded: Loaded, target: Target) -> tuple[str, str] | None:
    if target.kind in ("noop", "github-actions"):  # what a job uploads is not found under its path
        return None
    if target.url is not None:
        namespace, name = dataset_name(target.url)
        return namespace, "" if name == "/" else name
    return None if target.path is None else ("file", os.path.normpath(loaded.resolve(target.path)))


# --- provenance ----------------------------------------------------------------------


def provenance(app: LineageContext, wanted: str, *, internal: bool = False) -> bytes:
    """The PROV-O document of a run, or of a call that never became one."""
    from kfm.lineage.provenance import prov_bytes, prov_of, prov_of_call

    run = app.ledger.run(wanted)
    call = None if run else app.ledger.invocation(wanted)
    about = run or call
    if about is None:
        raise UsageError(f"There is no run and no call `{wanted}`.", remedy="`kfm runs` lists runs.")
    rights, hidden = _rights_of(app, about.dataset_id)
    key = MaskKey()
    key.value = app.ledger.mark(MASK_KEY)
    hide = key.mask if hidden and not internal else None
    make = prov_of if run else prov_of_call
    document = make(app.ledger, wanted, mask=hide, environment=app.settings.environment, rights=rights)
    if run is not None:
        from kfm.pipelines.evidence import add_pass

        add_pass(app, document, run.run_id, hide)
    return prov_bytes(document)


def _rights_of(app: LineageContext, dataset_id: str) -> tuple[Rights | None, bool]:
    """Rights now, and whether the name is masked: what was published under restriction stays under it."""
    configured = app.settings.declared(dataset_id)
    head = app.ledger.head(dataset_id)
    published = DatasetSettings(id=dataset_id, rights=head[1].rights) if head else None
    known = [one for one in (configured, published) if one is not None]
    return (known[0].rights if known else None), not known or any(map(is_masked, known))


def leave_provenance(app: LineageContext, run_id: str, folder: str) -> None:
    """Beside the other files of a run, for those who look there. The ledger can tell it again."""
    path = f"{folder}/prov.jsonld"
    with open(f"{path}.tmp", "wb") as file:
        file.write(provenance(app, run_id, internal=True))
    os.replace(f"{path}.tmp", path)


# --- delivery ------------------------------------------------------------------------


def make_collector(app: LineageContext, environment: OpenLineage | None = None) -> Collector | None:
    """Where events go; None where they go nowhere."""
    given = environment or openlineage()
    lineage = app.settings.lineage
    export = _export(app.settings, given)
    if export == "none":
        return None
    if export == "file":
        from kfm.sinks.event_file import FileCollector

        path = f"{app.state}/lineage/openlineage.jsonl" if lineage.path is None else lineage.path
        return FileCollector(app.loaded.resolve(path), app.clock)
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
    """One bounded pass over what waits. Never raises: a collector's trouble is told, not thrown."""
    if app.store is None:
        return Delivered()
    return deliver_letters(
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
