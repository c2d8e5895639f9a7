"""A pipeline of plain functions: what was published becomes a page. Which of them must run, kfm decides."""

import csv
from pathlib import Path
from statistics import mean

import kfm

march = kfm.Pipeline("march")
FLOW = "published/ks-streamflow/current/data/2026/03/*-summary.csv"
RAIN = "published/ks-rainfall/current/data/2026/03/*-rain.asc"
PER_CFS = {"cfs": 1.0, "m3/s": 0.028316846592}


@march.node("march.flow", inputs=[FLOW], params={"unit": "cfs"})
def flow(unit: str) -> str:
    rows = [row for file in sorted(Path().glob(FLOW)) for row in csv.DictReader(file.open())]
    return f"{mean(float(row['mean_cfs']) for row in rows) * PER_CFS[unit]:.1f} {unit}"


@march.node("march.rain", inputs=[RAIN])
def rain() -> int:
    return len(list(Path().glob(RAIN)))


@march.node("march.page")
def page(flow: str, rain: int) -> str:
    return f"mean flow {flow}; rain on the map for {rain} days\n"
