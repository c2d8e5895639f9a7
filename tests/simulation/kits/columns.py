"""Columns: what a contract says of them, values that keep it, values that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Column:
    """`good` makes the value of the n-th row; the others break what is said, as JSON and as text."""

    name: str
    says: dict[str, Any]
    good: Callable[[int], Any]
    bad: tuple[Any, ...] = ()
    bad_text: tuple[str, ...] = ()
    key: str = field(default="")  # what the file calls it

    @property
    def member(self) -> str:
        return self.key or self.name

    def property(self) -> dict[str, Any]:
        named = {"physicalName": self.key} if self.key else {}
        return {"name": self.name, **named, **self.says}


def typed(logical_type: str, required: bool = True, **options: Any) -> dict[str, Any]:
    says: dict[str, Any] = {"logicalType": logical_type, "required": required}
    return {**says, "logicalTypeOptions": options} if options else says


def _word(n: int) -> str:
    """A new word for each row: AAA0, AAB1, …"""
    characters = "".join(chr(65 + n // 26**place % 26) for place in (2, 1, 0))
    return f"{characters}{n % 10}"


CODE = Column(
    "code",
    typed("string", minLength=2, maxLength=6, pattern=r"^(?<word>[A-Z]+)\d[^$]?$"),
    _word,
    ("ab1", "ABCDEFGHIJ1", "AB", 7, None, "AB1\n$", "A" * 20_000),
    ("ab1", "ABCDEFGHIJ1", "AB", ""),
)
REMARK = Column("remark", {"logicalType": "string"}, lambda n: ("ok", "odd")[n % 2], (7,))

PLAIN = (
    Column(
        "level",
        typed("integer", format="u8", multipleOf=5, minimum=5, maximum=250),
        lambda n: 5 * (1 + n % 50),
        (7, 300, 0, True, "5", 5.5, None),
        ("7", "256", "0", "1.5", " 5", "five", "9" * 2000),
    ),
    Column(
        "small",
        typed("integer", format="i8"),
        lambda n: n % 100 - 50,
        (200, -129, "1"),
        ("200", "-129", "1e2"),
    ),
    Column(
        "flow",
        typed("number", format="f32", exclusiveMinimum=0, maximum=1000.5, multipleOf=0.5),
        lambda n: 0.5 * (n % 2000 + 1),
        ("1", 0, 1e39, 0.3, True, -1),
        ("0", "1e400", "nan", "1000.75", "0.3", "1,5", "1" * 2000),
    ),
    Column("wet", typed("boolean"), lambda n: n % 2 == 0, (1, "true", None), ("yes", "1", "T", "tru")),
    Column(
        "day",
        typed("date", minimum="2020-01-01", exclusiveMaximum="2030-01-01"),
        lambda n: f"2026-01-{1 + n % 28:02d}",
        ("2019-12-31", "2030-01-01", "2026-02-30", 20260101),
        ("2019-12-31", "2030-01-01", "2026-02-30", "01.01.2026", "20260101"),
    ),
    Column(
        "local_day",
        typed("date", format="dd.MM.yyyy", minimum="01.01.2020"),
        lambda n: f"{1 + n % 28:02d}.03.2026",
        ("2026-03-01", "31.02.2026", "31.12.2019"),
        ("2026-03-01", "31.02.2026", "31.12.2019"),
    ),
    Column(
        "at",
        typed("timestamp", timezone=True, minimum="2020-01-01T00:00:00Z"),
        lambda n: f"2026-01-01T00:00:{n % 60:02d}.123456789{('Z', '+05:30', '-0600')[n % 3]}",
        ("2026-01-01T00:00:00", "2026-01-01T25:00:00Z", "2019-12-31T23:59:59Z", 5),
        ("2026-01-01T00:00:00", "2026-01-01T25:00:00Z", "yesterday", "2026-02-30T00:00:00Z"),
    ),
    Column(
        "local_at",
        typed("timestamp", timezone=False, defaultTimezone="America/Chicago", maximum="2026-12-31T00:00:00"),
        lambda n: f"2026-01-01 06:{n % 60:02d}",
        ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00", None),
        ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00", "2026-01-01"),
    ),
    Column(
        "stamp",
        typed("timestamp", format="yyyy-MM-dd'T'HH:mm:ss.SSSXXX"),
        lambda n: f"2026-01-01T00:00:{n % 60:02d}.500{('Z', '+02:00', '-05:30')[n % 3]}",
        ("2026-01-01T00:00:00Z", "2026-01-01T24:00:00.000Z"),
        ("2026-01-01T00:00:00Z", "2026-01-01 00:00:00.500Z"),
    ),
    Column(
        "midnight",
        typed("timestamp", format="yyyy-MM-dd", minimum="2026-01-01"),
        lambda n: f"2026-02-{1 + n % 28:02d}",
        ("2025-12-31", "2026-02-30", "02/03/2026"),
        ("2025-12-31", "2026-02-30", "02/03/2026"),
    ),
    Column(
        "clock",
        typed("time", minimum="06:00:00", maximum="20:00:00Z"),
        lambda n: f"12:{n % 60:02d}:00{('', 'Z', '.5')[n % 3]}",
        ("05:59:59", "20:00:01", "24:30:00", 12),
        ("05:59:59", "23:00", "24:30:00", "noon"),
    ),
    Column(
        "minute", typed("time", format="HH:mm"), lambda n: f"07:{n % 60:02d}", ("7:00",), ("7:00", "25:00")
    ),
    Column(
        "grade",
        {"logicalType": "string", "enum": [{"value": "low", "description": "little"}, "high", "2026-01-01"]},
        lambda n: ("low", "high", "2026-01-01")[n % 3],
        ("middle", 3),
        ("middle", "Low"),
        key="Grade of water",
    ),
    Column(
        "count",
        {"logicalType": "integer", "enum": [1, 2, "3"], "required": True},
        lambda n: 1 + n % 3,
        (4, "1"),
        ("4", "x"),
    ),
    Column("free", {"enum": ["a", "b", 1, None]}, lambda n: ("a", "b")[n % 2], ("c", [1]), ("c",)),
    Column(
        "ident",
        typed("string", format="uuid"),
        lambda n: f"{n:08x}-0000-4000-8000-00000000000a",
        ("x",),
        ("x",),
    ),
    Column(
        "mail", typed("string", format="email"), lambda n: f"a{n}@example.org", ("a@b",), ("a@b", "a b@c.d")
    ),
    Column(
        "host", typed("string", format="hostname"), lambda n: f"h{n}.example.org", ("-x",), ("-x", "a..b")
    ),
    Column(
        "link", typed("string", format="uri"), lambda n: f"https://example.org/{n}", ("//x",), ("no link",)
    ),
    Column("v4", typed("string", format="ipv4"), lambda n: f"10.0.0.{n % 255}", ("10.0.0.256",), ("10.0.0",)),
    Column("v6", typed("string", format="ipv6"), lambda n: f"::{n % 9 + 1}", ("10.0.0.1",), ("::g",)),
    Column("hint", typed("string", format="password"), str, (5,), ("",)),
)

NESTED = (
    Column(
        "place",
        {
            "logicalType": "object",
            "required": True,
            "logicalTypeOptions": {"minProperties": 1, "maxProperties": 3, "required": ["a"]},
            "properties": [
                {"name": "a", "logicalType": "integer", "required": True},
                {"name": "b", "logicalType": "string", "logicalTypeOptions": {"maxLength": 3}},
            ],
        },
        lambda n: {"a": n, **({"b": "xyz"} if n % 2 else {})},
        (
            {},
            {"b": "x"},
            {"a": "1"},
            {"a": 1, "b": "long one"},
            {"a": 1, "c": 2, "d": 3, "e": 4},
            [1],
            "text",
        ),
    ),
    Column(
        "depths",
        {
            **typed("array", minItems=1, maxItems=4, uniqueItems=True),
            "items": {"logicalType": "number", "required": True, "logicalTypeOptions": {"minimum": 0}},
        },
        lambda n: [n, n + 0.5],
        ([], [1, 1.0], [-1], ["x"], [1, 2, 3, 4, 5], {"0": 1}, [None]),
    ),
    Column(
        "tags",
        {**typed("array", required=False, uniqueItems=True), "items": {"logicalType": "object"}},
        lambda n: [{"k": n}, {"k": n, "v": None}] if n % 2 else None,
        ([{"k": 1}, {"k": 1}], [3]),
    ),
)
