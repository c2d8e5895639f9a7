"""Which telemetry there is: none, unless a collector is configured; and the names that it may show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from kfm.model.breaker import provider_of
from kfm.model.redaction import MASK_KEY, hidden_names, is_masked, mask
from kfm.model.run_state import PassFigures
from kfm.model.settings import DatasetSettings, Settings

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.db.ledger_reader import LedgerReader
    from kfm.ports import Telemetry, TelemetrySpan
    from kfm.telemetry.exposition import Tallies


MISSING = (
    "telemetry: a collector is configured, but the extra is not installed: pip install 'kfm-kernel[otel]'"
)


def choose(
    endpoint: str | None,
    *,
    headers: Mapping[str, str] | None = None,
    service: str = "kfm",
    environment: str | None = None,
    instance: str | None = None,
) -> Telemetry:
    """OpenTelemetry where an endpoint is given and the extra is there; watching never stops the work."""
    if endpoint is None:
        return Off()
    try:
        from kfm.telemetry.otel import OpenTelemetry

        return OpenTelemetry(
            endpoint, headers=headers, service=service, environment=environment, instance=instance
        )
    except ImportError:
        _warn(MISSING)
    except Exception as error:  # noqa: BLE001 - an SDK that can't be set up is no reason to stop
        _warn(f"telemetry: {type(error).__name__}: off for now")
    return Off()


def configured(loaded: Loaded, new_id: Callable[[], str]) -> Telemetry:
    """The exporter to the collector that the environment or the configuration names; `Off` without one.

    An id is drawn only for an exporter: without one, runs in both languages have the same sequence of ids.
    """
    from kfm.config.loader import otlp

    named = otlp(loaded.settings.telemetry)
    if named is None:
        return Off()
    return choose(
        named.endpoint,
        headers={name: loaded.secret(value) for name, value in named.headers.items()},
        service=named.service,
        environment=loaded.settings.environment,
        instance=new_id(),
    )


def _warn(text: str) -> None:
    import logging  # late: nothing is logged where no collector is named

    logging.getLogger(__name__).warning("%s", text)


class _Unwatched:
    """One for all: it holds nothing."""

    def note(self, **attributes: str | int | bool) -> None: ...

    def __enter__(self) -> TelemetrySpan:
        return self

    def __exit__(self, *_problem: object) -> None: ...


_UNWATCHED = _Unwatched()


class Off:
    """Telemetry while no collector is configured."""

    def span(
        self,
        name: str,  # noqa: ARG002
        *,
        trace_id: str | None = None,  # noqa: ARG002
        lasted_ms: int = 0,  # noqa: ARG002
        **attributes: str | int | bool,  # noqa: ARG002
    ) -> AbstractContextManager[TelemetrySpan]:
        return _UNWATCHED

    def add(self, metric: str, amount: int = 1, **labels: str) -> None: ...
    def observe(self, metric: str, value: float, **labels: str) -> None: ...
    def totals(self, tallies: Tallies) -> None: ...
    def close(self) -> None: ...


class PublicNames:
    """A dataset's id, or its mask. One that is not configured any more goes by its last published rights."""

    def __init__(self, settings: Settings, ledger: LedgerReader) -> None:
        self._sources = settings.sources
        self._datasets = {dataset.id: dataset for dataset in settings.datasets}
        self._ledger = ledger
        self._key = ledger.mark(MASK_KEY)
        self._known: dict[str, str] = {}
        self._hides = hidden_names(settings.datasets)

    def __call__(self, dataset_id: str) -> str:
        if dataset_id not in self._known:
            hidden = is_masked(self._described(dataset_id))
            self._known[dataset_id] = self._masked(dataset_id) if hidden else dataset_id
        return self._known[dataset_id]

    def of_units(self, dataset: str) -> str:
        """What is announced publicly is no secret, unless its rights are declared here and say so."""
        return self(dataset) if dataset in self._datasets else dataset

    def provider(self, provider: str) -> str:
        """A provider's name, or its mask where it could give a hidden dataset away."""
        users = [one for one in self._sources if provider_of(one) == provider]
        hidden = [is_masked(self._described(one.dataset)) for one in users]
        if not users:  # a name from a pipeline's own code: whose, is not known
            hidden = [is_masked(dataset) for dataset in self._datasets.values()]
            return self._masked(provider) if any(hidden) else provider
        return self._masked(provider) if all(hidden) else provider

    def pipeline(self, figures: PassFigures) -> str:
        """A pipeline's name, or its mask where it works for a hidden dataset, or is named after one."""
        owner, name = figures.dataset_id, figures.pipeline_id
        named_after = self._hides is not None and self._hides(name)
        hidden = named_after if owner is None else self(owner) != owner
        return self._masked(name) if hidden else name

    def _described(self, dataset_id: str) -> DatasetSettings:
        if dataset_id in self._datasets:
            return self._datasets[dataset_id]
        head = self._ledger.head(dataset_id)
        return DatasetSettings(id=dataset_id, rights=head[1].rights if head else None)

    def _masked(self, dataset_id: str) -> str:
        # Without a key (there is no ledger yet) they can't be distinguished, and need not be.
        return mask(dataset_id, self._key)
