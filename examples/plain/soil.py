"""A pipeline of plain functions. Its contract: README.md beside this file."""

import csv

import kfm

pipeline = kfm.Pipeline("soil")


@pipeline.node("soil.samples", inputs=["samples.csv"])
def samples(ctx):
    with open("samples.csv", newline="") as file:
        rows = [{"county": row["county"], "ph": float(row["ph"])} for row in csv.DictReader(file)]
    ctx.validate("every pH is one", all(0 <= row["ph"] <= 14 for row in rows))
    return rows


@pipeline.node("soil.means", params={"digits": 2})
def means(samples, digits):
    by_county = {}
    for row in samples:
        by_county.setdefault(row["county"], []).append(row["ph"])
    return {county: round(sum(values) / len(values), digits) for county, values in sorted(by_county.items())}


@pipeline.node("soil.page")
def page(means, ctx):
    lines = [f"| {county} | {ph} |" for county, ph in means.items()]
    ctx.publisher.write_file("soil.md", "\n".join(["| county | pH |", "|---|---|", *lines, ""]))


if __name__ == "__main__":
    for node in pipeline.run().nodes.values():
        print(node.id, "ran" if node.ran else "unchanged")
