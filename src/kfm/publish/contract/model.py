"""A data contract as frozen values: what was promised about the bytes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Format = Literal["csv", "json", "jsonl", "geojson", "parquet", "opaque"]
LogicalType = Literal[
    "string", "date", "timestamp", "time", "number", "integer", "object", "array", "boolean"
]
Metric = Literal["nullValues", "missingValues", "invalidValues", "duplicateValues", "rowCount"]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a contract."""


class ValueBounds(Value, frozen=True, kw_only=True):
    """Limits of a value: numbers for numbers and lengths, instants for dates."""

    minimum: Any = None
    maximum: Any = None
    exclusive_minimum: Any = None
    exclusive_maximum: Any = None
    multiple_of: float | int | None = None

    def admit(self, value: Any) -> bool:
        """Is the value within? `minimum` and `maximum` themselves are."""
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.exclusive_minimum is None or value > self.exclusive_minimum)
            and (self.exclusive_maximum is None or value < self.exclusive_maximum)
            and (self.multiple_of is None or _is_multiple(value, self.multiple_of))
        )


def _is_multiple(value: Any, step: float | int) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    # 0.3 / 0.1 is not whole in binary; a relative tolerance says what people mean.
    try:
        ratio = value / step
        return bool(abs(ratio - round(ratio)) <= 1e-9 * max(1.0, abs(ratio)))
    except OverflowError:
        return False


class Operator(Value, frozen=True, kw_only=True):
    """The comparison of a measured number with what it must be."""

    name: str
    operand: tuple[float | int, ...]

    def admits(self, measured: float | int) -> bool:
        low, high = self.operand[0], self.operand[-1]
        return {
            "mustBe": measured == low,
            "mustNotBe": measured != low,
            "mustBeGreaterThan": measured > low,
            "mustBeGreaterOrEqualTo": measured >= low,
            "mustBeLessThan": measured < low,
            "mustBeLessOrEqualTo": measured <= low,
            "mustBeBetween": low <= measured <= high,
            "mustNotBeBetween": not low <= measured <= high,
        }[self.name]

    def __str__(self) -> str:
        return f"{self.name} {' and '.join(str(number) for number in self.operand)}"


class QualityRule(Value, frozen=True, kw_only=True):
    """A quality rule of the ODCS library."""

    metric: Metric
    operator: Operator
    name: str | None = None
    percent: bool = False
    warns_only: bool = False
    properties: tuple[str, ...] = ()  # of a composite duplicateValues
    missing_values: tuple[Any, ...] = (None, "")
    valid_values: tuple[Any, ...] | None = None
    pattern: str | None = None


class Property(Value, frozen=True, kw_only=True):
    """One column, or one member of an object."""

    name: str
    column: str  # what it is called in the file
    logical_type: LogicalType | None = None
    required: bool = False
    unique: bool = False
    primary_key_position: int | None = None
    bounds: ValueBounds | None = None
    length: ValueBounds | None = None  # of text, or the number of items or members
    pattern: str | None = None
    format: str | None = None
    timezone: bool | None = None  # True: an offset is required; False: refused
    default_timezone: str = "UTC"
    unique_items: bool = False
    enum: tuple[Any, ...] | None = None
    required_members: tuple[str, ...] = ()
    properties: tuple[Property, ...] = ()
    items: Property | None = None
    quality: tuple[QualityRule, ...] = ()


class SchemaObject(Value, frozen=True, kw_only=True):
    """One table, and the files that hold it."""

    name: str
    path_pattern: str | None = None  # None: every file
    properties: tuple[Property, ...] = ()
    quality: tuple[QualityRule, ...] = ()
    format: Format | None = None  # None: from media type and name
    pointer: str = ""  # where the rows are in a JSON document
    delimiter: str = ","
    extra_columns_allowed: bool = False
    null_geometry_allowed: bool = False
    winding: Literal["ignore", "warn", "refuse"] = "ignore"
    optional: bool = False

    @property
    def primary_key(self) -> tuple[Property, ...]:
        keys = [prop for prop in self.properties if prop.primary_key_position is not None]
        return tuple(sorted(keys, key=lambda prop: prop.primary_key_position or 0))


class Freshness(Value, frozen=True, kw_only=True):
    """The newest value of a column may not be older than this."""

    object_name: str
    property_name: str
    age_ms_max: int
    label: str


class Contract(Value, frozen=True, kw_only=True):
    """An ODCS document, as far as bytes can be checked against it."""

    id: str
    version: str
    status: str
    api_version: str
    name: str | None = None
    objects: tuple[SchemaObject, ...] = ()
    freshness: tuple[Freshness, ...] = ()
    uncovered_allowed: bool = False


class ContractLimits(Value, frozen=True, kw_only=True):
    """What validation may use. All memory is bounded by these, whatever the files hold."""

    contract_bytes_max: int = 1024 * 1024
    contract_nodes_max: int = 50_000
    record_chars_max: int = 8 * 1024 * 1024  # one CSV record, one JSON line
    element_chars_max: int = 16 * 1024 * 1024  # one feature, one element of an array
    columns_max: int = 10_000
    pattern_chars_max: int = 10_000  # longer text does not match
    parquet_footer_bytes_max: int = 16 * 1024 * 1024
    parquet_rows_free: int = 1_000_000  # beyond these, rows in proportion to the file
    parquet_rows_per_byte_max: int = 16
    inflated_free_bytes: int = 64 * 1024 * 1024  # beyond these, in proportion to the file
    inflated_ratio_max: int = 200
    decoder_bytes_max: int = 1024 * 1024 * 1024  # address space of the process that decodes Parquet
    decoder_seconds_max: int = 60  # until its next rows
    unique_in_memory_max: int = 500_000  # then hashes go to an unlinked temporary file
    samples_max: int = 5
