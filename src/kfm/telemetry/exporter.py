"""Which telemetry there is: none, unless a collector is configured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfm.config.loader import Loaded
    from kfm.ports import Telemetry, TelemetrySpan


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
    def close(self) -> None: ...
