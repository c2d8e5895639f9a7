"""Random inputs and contracts, from a seed: what a drawn run reads."""

from __future__ import annotations

import json
from random import Random
from typing import Any

NAMES = (
    "a.csv",
    "b.csv",
    "ü.csv",
    "日本.csv",
    "x y.csv",
    "deep/er/c.csv",
    "d.json",
    "e.geojson",
    "f.jsonl",
    "🌾.csv",
)


def inputs(random: Random) -> dict[str, str]:
    drawn = {"in/.kept": ""}  # an empty folder is a folder
    drawn |= {f"in/{name}": content(random, name) for name in random.sample(NAMES, random.randint(0, 4))}
    if random.random() < 0.2:
        drawn["in2/z.csv"] = "id,v\n1,1\n"
    return drawn


def content(random: Random, name: str) -> str:
    rows = random.randint(0, 6)
    if name.endswith(".csv"):
        lines = [random.choice(("id,v,at", "id,v", "id,v,at,extra", "id,id"))]
        lines += [
            ",".join(
                (
                    cell(random),
                    cell(random),
                    random.choice(("2026-01-01T00:00:00Z", "", "2026-13-01", "2026-01-01 10:00")),
                )
            )
            for _ in range(rows)
        ]
        return random.choice(("\n", "\r\n")).join(lines) + random.choice(("\n", "", '\n"open'))
    if name.endswith(".geojson"):
        features = [
            {
                "type": "Feature",
                "properties": {"id": n, "v": random.choice((1, 1.5, None, "x"))},
                "geometry": geometry(random),
            }
            for n in range(rows)
        ]
        text = json.dumps({"type": "FeatureCollection", "features": features}, ensure_ascii=False)
        return text if random.random() < 0.9 else text[:-3]
    records: list[Any] = [{"id": n, "v": random.choice((1, 2.0, 1e-7, None, True, "ü"))} for n in range(rows)]
    if name.endswith(".jsonl"):
        return "".join(json.dumps(record) + "\n" for record in records) + random.choice(
            ("", "{bad\n", '{"a":1,"a":2}\n')
        )
    return json.dumps(random.choice((records, {"rows": records}, records[:1] or 3)))


def cell(random: Random) -> str:
    return random.choice(
        ("1", "2", "-3", "1.0", "1.5", "", "x", '"q,""u"', "ü", "1e3", "99999999999999999999", "true", " 1")
    )


def geometry(random: Random) -> Any:
    return random.choice(
        (
            None,
            {
                "type": "Point",
                "coordinates": [round(random.uniform(-180, 180), 5), round(random.uniform(-90, 90), 5)],
            },
            {"type": "Point", "coordinates": [200, 0]},
            {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]},
            {"type": "Polygon", "coordinates": [[[0, 0], [0, 1], [1, 1], [0, 0.5]]]},
            {"type": "LineString", "coordinates": [[0, 0]]},
            {"type": "Round"},
        )
    )


def contract(random: Random) -> str:
    """An ODCS document; now and then one that can't be read."""
    columns: list[dict[str, Any]] = [
        {
            "name": "id",
            "logicalType": random.choice(("integer", "number", "string")),
            "required": random.random() < 0.5,
            "unique": random.random() < 0.4,
        }
    ]
    value: dict[str, Any] = {"name": "v"}
    if random.random() < 0.8:
        value["logicalType"] = random.choice(("integer", "number", "string", "boolean"))
        if value["logicalType"] in ("integer", "number") and random.random() < 0.6:
            value["logicalTypeOptions"] = random.choice(
                ({"minimum": 0}, {"maximum": 1.5}, {"exclusiveMinimum": 1}, {"multipleOf": 0.5})
            )
        elif value["logicalType"] == "string" and random.random() < 0.6:
            value["logicalTypeOptions"] = random.choice(
                (
                    {"maxLength": 1},
                    {"pattern": "^[a-z]+$"},
                    {"pattern": r"^\w*\b.?$|(?:1|x){2,}"},
                    {"pattern": "^(?!x)"},
                    {"format": "uri"},
                )
            )
    if random.random() < 0.3:
        value["enum"] = [1, "x", True]
    if random.random() < 0.3:
        value["quality"] = [
            random.choice(
                (
                    {"metric": "nullValues", "mustBeLessThan": 2},
                    {
                        "metric": "invalidValues",
                        "arguments": {"validValues": [1, "x"]},
                        "mustBe": 0,
                        "unit": "percent",
                    },
                    {
                        "metric": "duplicateValues",
                        "mustBeLessOrEqualTo": 1,
                        "severity": "warning",
                        "name": "a:b",
                    },
                )
            )
        ]
    columns.append(value)
    if random.random() < 0.5:
        columns.append({"name": "at", "logicalType": random.choice(("timestamp", "date")), "required": False})
    table: dict[str, Any] = {"name": "t", "properties": columns}
    custom = []
    for word, values in (
        ("kfmExtraColumns", ("allow", "refuse")),
        ("kfmNullGeometry", ("allow",)),
        ("kfmWinding", ("warn", "refuse")),
        ("kfmOptional", (True,)),
        ("kfmPointer", ("/rows",)),
    ):
        if random.random() < 0.35:
            custom.append({"property": word, "value": random.choice(values)})
    if custom:
        table["customProperties"] = custom
    if random.random() < 0.4:
        table["physicalName"] = random.choice(("*.csv", "*.json", "a*"))
    if random.random() < 0.3:
        table["quality"] = [
            random.choice(
                (
                    {"metric": "rowCount", "mustBeGreaterThan": 1},
                    {"metric": "duplicateValues", "mustBe": 0, "arguments": {"properties": ["id", "v"]}},
                )
            )
        ]
    document: dict[str, Any] = {
        "kind": "DataContract",
        "apiVersion": "v3.1.0",
        "id": "c",
        "version": "1",
        "status": "active",
        "schema": [table],
    }
    if random.random() < 0.3:
        document["customProperties"] = [{"property": "kfmUncovered", "value": "allow"}]
    if len(columns) > 2 and random.random() < 0.5:
        document["slaProperties"] = [
            {
                "property": "freshness",
                "value": random.choice((1, 2.5, 9000)),
                "unit": random.choice(("d", "h")),
                "element": "t.at",
            }
        ]
    if random.random() < 0.06:
        random.choice(
            (
                lambda: document.update(statu="x"),
                lambda: columns[0].update(logicalType="int"),
                lambda: document.update(apiVersion="v2.0.0"),
                lambda: table.pop("name"),
            )
        )()
    return json.dumps(document, ensure_ascii=False, indent=1)
