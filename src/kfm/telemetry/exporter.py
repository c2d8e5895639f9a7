"""Which telemetry there is: none, unless a collector is configured; and the names that it may show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from kfm.model.masked_names import MaskedNames
from kfm.model.redaction import hidden_names
from kfm.model.run_state import PassFigures
from kfm.model.settings import Settings

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
    """Names as metrics show them: of masked datasets, and of what only they use, the masks."""

    def __init__(self, settings: Settings, ledger: LedgerReader) -> None:
        self._names = MaskedNames(settings, ledger)
        self._hides = hidden_names(settings.datasets)

    def __call__(self, dataset_id: str) -> str:
        return self._names.mask(dataset_id) if self._names.hides(dataset_id) else dataset_id

    def of_units(self, dataset: str) -> str:
        return self._names.mask(dataset) if self._names.hides_units(dataset) else dataset

    def provider(self, name: str) -> str:
        """The name of a provider or a domain: masked where it could give a masked dataset away."""
        return self._names.mask(name) if self._names.is_name(name) else name

    def pipeline(self, figures: PassFigures) -> str:
        """A pipeline's name, or its mask where it works for a masked dataset, or is named after one."""
        owner, name = figures.dataset_id, figures.pipeline_id
        named_after = self._names.is_name(name) or (self._hides is not None and self._hides(name))
        hidden = named_after if owner is None else self._names.hides(owner)
        return self._names.mask(name) if hidden else name
