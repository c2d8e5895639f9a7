"""Collectors of lineage and telemetry, from the file and from OpenLineage's and OpenTelemetry's variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kfm.model.settings import TelemetrySettings


class Otlp(msgspec.Struct, frozen=True):
    """Header values may be references."""

    endpoint: str
    headers: dict[str, str]
    service: str


def collector(settings: TelemetrySettings, environ: Mapping[str, str]) -> Otlp | None:
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


PREFIX = "OPENLINEAGE__TRANSPORT__"


class OpenLineage(msgspec.Struct, frozen=True):
    transport: dict[str, Any]  # empty: they name no collector that we could use
    disabled: bool = False
    ignored: str | None = None  # a kind of transport that is not ours


def transport(environ: Mapping[str, str]) -> OpenLineage:
    """OPENLINEAGE_URL, _ENDPOINT, _API_KEY and _DISABLED, and OPENLINEAGE__TRANSPORT__* above them."""
    found: dict[str, Any] = {}
    if environ.get("OPENLINEAGE_URL"):
        found["url"] = environ["OPENLINEAGE_URL"]
        if environ.get("OPENLINEAGE_ENDPOINT"):
            found["endpoint"] = environ["OPENLINEAGE_ENDPOINT"]
        if environ.get("OPENLINEAGE_API_KEY"):
            found["auth"] = {"type": "api_key", "apiKey": environ["OPENLINEAGE_API_KEY"]}
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        place, steps = found, name.removeprefix(PREFIX).lower().split("__")
        for step in steps[:-1]:
            inner = place.get(step)
            place[step] = place = dict(inner) if isinstance(inner, dict) else {}
        place[steps[-1]] = _json_or_text(environ[name])
    kind = found.pop("type", "http")
    if kind not in ("http", "noop"):
        return OpenLineage({}, ignored=str(kind))  # meant for another program of this machine
    off = kind == "noop" or environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true"
    return OpenLineage({} if off else found, off)


def _json_or_text(text: str) -> Any:
    """Values may be JSON, as OpenLineage's clients read them; anything else is the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
