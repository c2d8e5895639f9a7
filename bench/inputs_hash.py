"""What it costs to hash a step's inputs: checks, sorting and canonical bytes, against SHA-256 alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from bench.harness import Benchmark
from kfm.model.input_hash import inputs_bytes, inputs_hash

PARAMS = {"band": 13, "area": "CONUS"}


@dataclass(frozen=True)
class Inputs:
    rows: list[dict[str, Any]]
    encoded: bytes


def _shuffled(count: int) -> Callable[[ExitStack], Inputs]:
    """Satellite files by address and checksum, in no order at all."""

    def setup(_: ExitStack) -> Inputs:
        chance = random.Random(7)
        rows = []
        for index in range(count):
            day, hour = index // 24 % 365 + 1, index % 24
            name = f"OR_ABI-L2-CMIPF-M6C13_G16_s2024{day:03d}{hour:02d}{index % 60:02d}207_e{index:011d}.nc"
            rows.append(
                {
                    "uri": f"s3://noaa-goes16/ABI-L2-CMIPF/2024/{day:03d}/{hour:02d}/{name}",
                    "checksum": f"sha256:{chance.getrandbits(256):064x}",
                }
            )
        chance.shuffle(rows)
        return Inputs(rows, inputs_bytes(rows, PARAMS))

    return setup


def _ours(inputs: Inputs) -> None:
    inputs_hash(inputs.rows, PARAMS)


def _reference(inputs: Inputs) -> None:
    sha256(inputs.encoded).hexdigest()


def benchmarks() -> list[Benchmark]:
    return [
        Benchmark(
            name=f"inputs_hash_{count}",
            kind="cost",
            goal=goal,
            setup=_shuffled(count),
            ours=_ours,
            reference=_reference,
            rounds=25,
            inner=inner,
        )
        for count, goal, inner in ((100, 4.0, 500), (10_000, 8.0, 5))
    ]
