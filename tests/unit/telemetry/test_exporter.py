"""The exporter that the configuration chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfm.config.loader import load
from kfm.telemetry.exporter import Off, configured


def test_without_a_collector_no_id_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs have the same sequence of ids in both languages: telemetry that is off takes none of it."""
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "kfm.yml").write_text("version: 1\n")
    drawn: list[str] = []
    made = configured(load(str(tmp_path / "kfm.yml")), lambda: drawn.append("id") or "id")
    assert isinstance(made, Off)
    assert drawn == []
