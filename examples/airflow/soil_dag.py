"""A pipeline of kfm as a DAG of Airflow 3. Its contract: README.md beside this file."""

import csv
import os

import kfm
from kfm.integrations.airflow import dag_of

HOME = os.environ.get("SOIL_HOME", os.path.dirname(os.path.abspath(__file__)))

pipeline = kfm.Pipeline("soil")


@pipeline.node("soil.samples", inputs=["samples.csv"])
def samples(ctx):
    """Read and check the samples."""
    with open(os.path.join(HOME, "samples.csv"), newline="") as file:
        rows = [{"county": row["county"], "ph": float(row["ph"])} for row in csv.DictReader(file)]
    ctx.validate("every pH is one", all(0 <= row["ph"] <= 14 for row in rows))
    return rows


@pipeline.node("soil.means", params={"digits": 2})
def means(samples, digits):
    """The mean pH of each county."""
    by_county = {}
    for row in samples:
        by_county.setdefault(row["county"], []).append(row["ph"])
    return {county: round(sum(values) / len(values), digits) for county, values in sorted(by_county.items())}


@pipeline.node("soil.page")
def page(means, ctx):
    """A page to read."""
    lines = [f"| {county} | {ph} |" for county, ph in means.items()]
    ctx.publisher.write_file("soil.md", "\n".join(["| county | pH |", "|---|---|", *lines, ""]))


dag = dag_of(pipeline, directory=HOME, description="Soil of three counties")
