"""Contracts against bytes, more of them than runs would see."""

from __future__ import annotations

import hashlib
import random
from typing import Protocol

from kfm.model.errors import ContractError
from kfm.model.gates import contract_gate
from kfm.model.records import Asset, Window
from kfm.publish.contract import bbox_of, load_contract, validate
from kfm.publish.contract.model import ContractLimits
from tests.simulation.actors.scene import Scene, refused
from tests.simulation.judging import require
from tests.simulation.kits.features import FeatureKit
from tests.simulation.kits.tables import TableKit
from tests.simulation.kits.wrong import wrong_contract

DAY_MS = 86_400_000
TIGHT = ContractLimits(unique_in_memory_max=2, samples_max=2)
TINY = ContractLimits(record_chars_max=4, element_chars_max=4, columns_max=1)


class Kit(Protocol):
    contract: bytes
    media_type: str
    suffix: str

    def files(self, rng: random.Random, start: int, window: Window, *, good: bool) -> dict[str, bytes]: ...


class Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int) -> bytes:
        head, self._data = self._data[:size], self._data[size:]
        return head

    def close(self) -> None:
        self._data = b""


def audit(scene: Scene) -> None:
    rng = scene.rng
    window = Window(start_ms=scene.now_ms - 2 * DAY_MS, end_ms=scene.now_ms - DAY_MS, spec="P1D")
    scene.pause("contract")
    kit: Kit = TableKit(rng, columns=4) if rng.random() < 0.65 else FeatureKit(rng)
    _audit_one(scene, kit, window)
    scene.pause("contract")
    text = wrong_contract(rng)
    error = refused(
        ContractError, lambda: load_contract(text, "k.odcs.yaml"), "no contract, no meaning", text=text
    )
    require("k.odcs.yaml" in error.detail, "a complaint names the file", detail=error.detail)


def _audit_one(scene: Scene, kit: Kit, window: Window) -> None:
    rng = scene.rng
    contract = load_contract(kit.contract, "k.odcs.yaml")
    for number in range(4):
        good = rng.random() < 0.5
        files = kit.files(rng, number * 100, window, good=good)
        stored = {hashlib.sha256(data).hexdigest(): data for data in files.values()}
        assets = [
            Asset(
                path=f"a/{name}",
                sha256=hashlib.sha256(data).hexdigest(),
                size=len(data),
                media_type=kit.media_type,
            )
            for name, data in files.items()
        ]

        def opened(sha256: str, stored: dict[str, bytes] = stored) -> Bytes:
            return Bytes(stored[sha256])

        shown = rng.random() < 0.5
        report = validate(
            contract,
            assets,
            opened,
            now_ms=scene.now_ms,
            window=window,
            show_values=shown,
            limits=rng.choice((None, TIGHT)),
        )
        gate = contract_gate(report)
        require(
            gate.allowed == good,
            "what keeps its contract passes, what breaks it does not",
            good=good,
            reason=gate.reason,
            contract=kit.contract,
            files=files,
        )
        summary = report.summary()
        require(summary["checks"] == summary["passed"] + summary["failed"], "checks add up", summary=summary)
        if kit.suffix in ("csv", "tsv", "jsonl") and rng.random() < 0.2:
            bounded = validate(contract, assets, opened, now_ms=scene.now_ms, limits=TINY)
            require(not contract_gate(bounded).allowed, "what is too long is refused, not read", files=files)
        if kit.suffix == "geojson":
            box = bbox_of(assets, opened)
            require(box is None or len(box) == 4, "an extent has four sides", box=box)
            if box is not None:
                west, south, east, north = map(float, box)
                require(west <= east and south <= north, "an extent is not inside out", box=box)
    stray = Asset(path="a/stray.xyz", sha256="0" * 64, size=1, media_type="text/plain")
    report = validate(contract, [stray], lambda _sha: Bytes(b"x"), now_ms=scene.now_ms)
    require(not contract_gate(report).allowed, "what no contract covers is refused")
