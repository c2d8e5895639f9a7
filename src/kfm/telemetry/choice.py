"""Which telemetry there is: none, unless a collector is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kfm.telemetry.off import Off

if TYPE_CHECKING:
    from kfm.ports import Telemetry

MISSING = "telemetry: a collector is configured, but the extra is not installed: pip install 'kfm[otel]'"


def choose(
    endpoint: str | None,
    *,
    headers: Mapping[str, str] | None = None,
    service: str = "kfm",
    environment: str | None = None,
    instance: str | None = None,
    announce: Callable[[str], None] = lambda _line: None,
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
        announce(MISSING)
    except Exception as error:  # noqa: BLE001 - an SDK that can't be set up is no reason to stop
        announce(f"telemetry: {type(error).__name__}: off for now")
    return Off()
