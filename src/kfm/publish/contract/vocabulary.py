"""The vocabulary of the Open Data Contract Standard 3.x, and its regular expressions and date patterns."""

from __future__ import annotations

import re
from functools import lru_cache

from kfm.model.patterns import late
from kfm.publish.contract.expressions import Expression, ExpressionError
from kfm.publish.contract.yaml_document import DocumentPart

_DATE_FIELDS = {
    "yyyy": r"(?P<year>\d{4})",
    "uuuu": r"(?P<year>\d{4})",
    "MM": r"(?P<month>\d{2})",
    "dd": r"(?P<day>\d{2})",
    "HH": r"(?P<hour>\d{2})",
    "mm": r"(?P<minute>\d{2})",
    "ss": r"(?P<second>\d{2})",
    "XXX": r"(?P<offset>Z|[+-]\d{2}:\d{2})",
    "XX": r"(?P<offset>Z|[+-]\d{4})",
    "xx": r"(?P<offset>[+-]\d{4})",
    "xxx": r"(?P<offset>[+-]\d{2}:\d{2})",
}
_DATE_TOKEN = late(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def require_expression(part: DocumentPart) -> str:
    """The pattern, or a complaint that names its line."""
    try:
        Expression(part.text())
    except ExpressionError as error:
        part.fail(f"is not a regular expression: {error}")
    return part.text()


@lru_cache(maxsize=64)
def date_pattern(pattern: str) -> re.Pattern[str]:
    """A JDK pattern such as `yyyy-MM-dd'T'HH:mm:ssXXX` as an expression; ValueError if unsupported."""
    out: list[str] = []
    fields: set[str] = set()
    position = 0
    for token in _DATE_TOKEN.finditer(pattern):
        if token.start() != position:
            raise ValueError("a quote is not closed")
        position = token.end()
        text = token.group(0)
        if text.startswith("'"):
            out.append(re.escape(token.group(1).replace("''", "'") or "'"))
        elif text[0].isalpha():
            expression = rf"(?P<fraction>\d{{{len(text)}}})" if set(text) == {"S"} else _DATE_FIELDS.get(text)
            if expression is None:
                raise ValueError(f"{text!r} is not supported; use yyyy MM dd HH mm ss SSS XXX")
            if expression in fields:
                raise ValueError(f"{text!r} stands there twice")
            fields.add(expression)
            out.append(expression)
        else:
            out.append(re.escape(text))
    if position != len(pattern):
        raise ValueError("a quote is not closed")
    try:
        return re.compile("".join(out), re.ASCII)
    except re.error as error:
        raise ValueError(f"a field stands there twice ({error})") from None


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
