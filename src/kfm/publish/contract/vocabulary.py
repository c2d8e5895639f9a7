"""The words of the Open Data Contract Standard 3.x, by level. Words not used here are known and ignored."""

from __future__ import annotations

_ELEMENT = frozenset(
    "id name physicalType description businessName authoritativeDefinitions tags customProperties".split()
)

CONTRACT = frozenset(
    "id version kind apiVersion name tenant tags status servers dataProduct description domain schema "
    "support price team roles slaDefaultElement slaProperties authoritativeDefinitions customProperties "
    "contractCreatedTs context variables".split()
)

OBJECT = _ELEMENT | frozenset(
    "logicalType physicalName dataGranularityDescription properties relationships quality context".split()
)

PROPERTY = _ELEMENT | frozenset(
    "primaryKey primaryKeyPosition logicalType logicalTypeOptions physicalName required unique partitioned "
    "partitionKeyPosition classification encryptedName transformSourceObjects transformLogic "
    "transformDescription examples criticalDataElement relationships quality properties items enum "
    "context".split()
)

_RANGE = frozenset("minimum maximum exclusiveMinimum exclusiveMaximum format".split())
OPTIONS: dict[str, frozenset[str]] = {
    "string": frozenset("minLength maxLength pattern format".split()),
    "date": _RANGE,
    "timestamp": _RANGE | {"timezone", "defaultTimezone"},
    "time": _RANGE | {"timezone", "defaultTimezone"},
    "integer": _RANGE | {"multipleOf"},
    "number": _RANGE | {"multipleOf"},
    "object": frozenset("minProperties maxProperties required".split()),
    "array": frozenset("minItems maxItems uniqueItems".split()),
    "boolean": frozenset(),
}

OPERATORS = (
    "mustBe",
    "mustNotBe",
    "mustBeGreaterThan",
    "mustBeGreaterOrEqualTo",
    "mustBeLessThan",
    "mustBeLessOrEqualTo",
    "mustBeBetween",
    "mustNotBeBetween",
)

QUALITY = frozenset(
    "id name description type metric rule arguments unit query engine implementation dimension method "
    "severity businessImpact customProperties tags authoritativeDefinitions scheduler schedule "
    "validValues context".split()
) | frozenset(OPERATORS)

METRICS = ("nullValues", "missingValues", "invalidValues", "duplicateValues", "rowCount")

# What the first releases of version 3 called the same metrics, under `rule`.
OLD_RULES = {"nullCheck": "nullValues", "duplicateCount": "duplicateValues", "uniqueCheck": "duplicateValues"}

SLA = frozenset(
    "id property value valueExt unit element driver description scheduler schedule customProperties tags "
    "authoritativeDefinitions context".split()
)

# ODCS keeps extensions in customProperties; ours begin with kfm.
KFM_CONTRACT = frozenset({"kfmUncovered"})
KFM_OBJECT = frozenset(
    "kfmFormat kfmPointer kfmDelimiter kfmExtraColumns kfmNullGeometry kfmWinding kfmOptional".split()
)
KFM_QUALITY = frozenset({"kfmIgnore"})

FORMATS = ("csv", "json", "jsonl", "geojson", "parquet", "opaque")

UNIT_MS: dict[str, int] = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
    **dict.fromkeys(("mo", "month", "months"), 30 * 86_400_000),
    **dict.fromkeys(("y", "yr", "year", "years"), 365 * 86_400_000),
}
