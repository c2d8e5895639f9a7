"""What the environment says about telemetry."""

from __future__ import annotations

import pytest

from kfm.config.loader import Otlp, log_format, otlp, token
from kfm.model.settings import TelemetrySettings


@pytest.mark.req("UPD-15")
def test_environment_beats_the_file() -> None:
    """OpenTelemetry's own variables are honoured; the file's credentials stay with the file's collector."""
    file = TelemetrySettings(
        otlp="https://file.example", headers={"authorization": "env:SECRET"}, service="mine"
    )
    assert otlp(file, {}) == Otlp("https://file.example", {"authorization": "env:SECRET"}, "mine")
    said = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%3Db, other = c ,nonsense,=d",
        "OTEL_SERVICE_NAME": "theirs",
    }
    assert otlp(file, said) == Otlp("http://127.0.0.1:4318", {"x-key": "a=b", "other": "c"}, "theirs")
    assert otlp(file, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}) == otlp(file, {})


def test_off_unless_a_collector_is_named() -> None:
    """Nothing is sent without an endpoint, or where OpenTelemetry is switched off."""
    assert otlp(TelemetrySettings(), {}) is None
    assert otlp(TelemetrySettings(otlp="https://a.example"), {"OTEL_SDK_DISABLED": "TRUE"}) is None


def test_token_and_form() -> None:
    """An empty variable says nothing."""
    assert (token({"KFM_TOKEN": ""}), token({"KFM_TOKEN": "x"})) == (None, "x")
    assert (log_format({"KFM_LOG_FORMAT": ""}), log_format({"KFM_LOG_FORMAT": "json"})) == (None, "json")
