"""Where spans and metrics are sent, from the file and from OpenTelemetry's own variables."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kfm.core.settings import Telemetry


class Otlp(msgspec.Struct, frozen=True):
    """Header values may be references."""

    endpoint: str
    headers: dict[str, str]
    service: str


def collector(settings: Telemetry, environ: Mapping[str, str]) -> Otlp | None:
    """None if neither names one, or OpenTelemetry is switched off."""
    named = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    endpoint = named or settings.otlp
    if not endpoint or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    from urllib.parse import unquote  # late: only who has a collector needs it

    # Another collector than the file's: the file's credentials are not for it.
    headers = {} if named else dict(settings.headers)
    for pair in environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","):
        name, equals, value = pair.partition("=")
        if equals and name.strip():
            headers[unquote(name.strip())] = unquote(value.strip())
    return Otlp(endpoint, headers, environ.get("OTEL_SERVICE_NAME") or settings.service)
