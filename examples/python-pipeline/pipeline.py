"""Wells as CSV, in feet → points as GeoJSON, in metres."""

import csv
import io
import json
from typing import Any


def publish(context: Any) -> None:
    for entry in context.inputs:
        rows = csv.DictReader(io.StringIO(entry.read().decode()))
        features = [feature(row) for row in rows]
        context.log(f"{entry.path}: {len(features)} wells")
        collection = json.dumps({"type": "FeatureCollection", "features": features}, indent=1) + "\n"
        context.publisher.write_file(
            entry.path.replace(".csv", ".geojson"),
            collection.encode(),
            {"media_type": "application/geo+json"},
        )


def feature(row: dict[str, str]) -> dict[str, Any]:
    depth_m = round(float(row["depth_ft"]) * 0.3048, 2)
    return {
        "type": "Feature",
        "properties": {"well": row["well"], "measured_on": row["measured_on"], "depth_m": depth_m},
        "geometry": {"type": "Point", "coordinates": [float(row["lon"]), float(row["lat"])]},
    }
