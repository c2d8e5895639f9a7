"""Staged bytes in memory, for the tests of contracts."""

from __future__ import annotations

import io
from typing import Any

import msgspec

from kfm.model.records import Asset, Check, ValidationReport, Window
from kfm.publish.contract import ContractLimits, load_contract, validate

NOW_MS = 1767398400000  # 2026-01-03T00:00:00Z
DAY_MS = 86_400_000

HEAD = {"apiVersion": "v3.1.0", "kind": "DataContract", "id": "c", "version": "1", "status": "active"}


class Slowly(io.BytesIO):
    """Gives a few bytes at a time, as a socket may."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 0, 7) if size and size > 0 else size)


def contract_text(*objects: dict[str, Any], **more: Any) -> bytes:
    """JSON is YAML too."""
    return msgspec.json.encode({**HEAD, "schema": list(objects), **more})


def table(*properties: dict[str, Any], custom: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    extensions = [{"property": name, "value": value} for name, value in (custom or {}).items()]
    return {"name": "t", "properties": list(properties), "customProperties": extensions, **more}


def check_files(
    text: bytes,
    files: dict[str, bytes],
    *,
    now_ms: int = NOW_MS,
    window: Window | None = None,
    show_values: bool = True,
    limits: ContractLimits | None = None,
    slowly: bool = False,
) -> ValidationReport:
    assets = [
        Asset(path=path, sha256=path, size=len(data), media_type="application/octet-stream")
        for path, data in files.items()
    ]
    contract = load_contract(text, "c.odcs.yaml")
    reader = Slowly if slowly else io.BytesIO
    return validate(
        contract,
        assets,
        lambda sha256: reader(files[sha256]),
        now_ms,
        window,
        show_values=show_values,
        limits=limits,
    )


def failed(report: ValidationReport) -> list[str]:
    return [check.name for check in report.checks if not check.passed]


def find(report: ValidationReport, name: str) -> Check:
    return next(check for check in report.checks if check.name == name)
