"""Run-state around a function that knows nothing of pipelines. Its contract: README.md beside this file."""

import csv

import kfm


@kfm.run_state("soil.mean", inputs=["samples.csv"])
def mean(county):
    print("reading samples.csv")
    with open("samples.csv", newline="") as file:
        values = [float(row["ph"]) for row in csv.DictReader(file) if row["county"] == county]
    return sum(values) / len(values)


print("Ellis", mean("Ellis"))
print("Riley", mean("Riley"))
