"""The readings as they came, and beside them one line for each gauge.

The same inputs must give the same outputs: a pipeline reads `context.inputs`, writes with
`context.publisher`, and does nothing else. A dry-run calls it too; then nothing that it writes stays.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from typing import Any


def publish(context: Any) -> None:
    for entry in context.inputs:
        context.publisher.write_file(entry.path, entry.fetched)
        summary = summarise(entry.read().decode())
        path = entry.path.replace("-readings.csv", "-summary.csv")
        context.publisher.write_file(path, summary.encode(), {"media_type": "text/csv"})
        context.log(f"summarised {entry.path}")


def summarise(readings: str) -> str:
    """Number, mean and peak of the readings of each gauge."""
    discharge: dict[str, list[float]] = defaultdict(list)
    for row in csv.DictReader(io.StringIO(readings)):
        discharge[row["site_no"]].append(float(row["discharge_cfs"]))
    lines = ["site_no,readings,mean_cfs,peak_cfs"]
    for site_no, values in sorted(discharge.items()):
        mean = sum(values) / len(values)
        lines.append(f"{site_no},{len(values)},{mean:.1f},{max(values):.1f}")
    return "\n".join(lines) + "\n"
