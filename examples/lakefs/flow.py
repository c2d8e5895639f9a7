"""Lake levels from two lists. `directory` reads gauges alone, so new levels leave it as it is."""

import csv
from pathlib import Path

import kfm

Rows = list[dict[str, str]]
lakes = kfm.Pipeline("lakes")


@lakes.node("lakes.gauges", inputs=["incoming/gauges.csv"])
def gauges() -> Rows:
    return list(csv.DictReader(Path("incoming/gauges.csv").open()))


@lakes.node("lakes.levels", inputs=["incoming/levels.csv"])
def levels() -> Rows:
    return list(csv.DictReader(Path("incoming/levels.csv").open()))


@lakes.node("lakes.directory")
def directory(gauges: Rows) -> dict[str, str]:
    return {each["id"]: each["name"] for each in gauges}


@lakes.node("lakes.report")
def report(gauges: Rows, levels: Rows) -> dict[str, object]:
    known = {each["id"] for each in gauges}
    strangers = sorted({each["gauge"] for each in levels} - known)
    return {"readings": len(levels), "strangers": strangers}
