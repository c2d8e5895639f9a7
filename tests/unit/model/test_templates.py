"""Fields in braces, and which paths can be published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.model.errors import ConfigError
from kfm.model.records import Window
from kfm.model.templates import PATH_FIELDS, Fields, render, safe_path, template_problem
from kfm.model.times import parse_rfc3339

DAY = Window(
    start_ms=parse_rfc3339("2026-03-08T06:00:00Z"), end_ms=parse_rfc3339("2026-03-09T05:00:00Z"), spec="P1D"
)
PLACE = Fields(window=DAY, time_zone="America/Chicago", source="usgs", dataset="flow", partition="north")
NAMED = Fields(
    window=DAY, time_zone="America/Chicago", source="usgs", dataset="flow", name="a.csv", relpath="x/a.csv"
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{window.start}", "2026-03-08T06:00:00Z"),
        ("{window.end}", "2026-03-09T05:00:00Z"),
        ("{window.start:date}", "2026-03-08"),
        ("{window.end:date}", "2026-03-09"),
        ("{window.end:%Y/%m/%d %H:%M:%S}", "2026/03/09 00:00:00"),
        ("{window.start:%y%j%%}", "26067%"),
        ("{source}-{dataset}-{partition}", "usgs-flow-north"),
        ("{{x}} plain", "{x} plain"),
        ("", ""),
    ],
)
def test_fields(template, expected):
    """Each field is written as documented, times in the source's zone, also when the clocks change."""
    assert render(template, PLACE) == expected
    assert template_problem(template) is None


def test_object_fields():
    """The published path may use the object's name."""
    assert render("{window.start:date}/{name}", NAMED) == "2026-03-08/a.csv"
    assert render("{relpath}", NAMED) == "x/a.csv"


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        ("{window.strat}", "window.start"),
        ("{sorce}", "source"),
        ("{window.start:dat}", "date"),
        ("{window.start:%B}", "%B"),
        ("{source:date}", "format"),
        ("{name}", "means nothing here"),
        ("{", "brace"),
        ("}", "brace"),
        ("{}", "means nothing"),
        ("{window}", "window."),
        ("{source.__class__}", "source"),
    ],
)
def test_wrong_fields_are_explained(template, hint):
    """An unknown field is a configuration error that names the nearest right word."""
    with pytest.raises(ConfigError, match=hint):
        render(template, PLACE)
    assert hint in (template_problem(template) or "")


def test_a_partition_that_is_not_declared():
    """A field without a value is an error, never an empty piece of a path."""
    with pytest.raises(ConfigError, match="partition"):
        render("{partition}", NAMED)


@given(st.text(max_size=60))
def test_no_template_makes_it_stumble(template):
    """Any text is either rendered or refused with a configuration error."""
    try:
        render(template, NAMED)
    except ConfigError:
        assert template_problem(template, allowed=PATH_FIELDS) or "partition" in template


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".hidden", "a/.b", "a\\b", "a\nb", "a\x00", "a/ b",
        "x" * 256, "/".join(["abc"] * 400), "a\u202eb", "\ud800", "..", ".",
    ],
)  # fmt: skip
def test_paths_that_are_refused(path):
    """A path that could leave its folder, hide or mislead is refused."""
    with pytest.raises(ConfigError):
        safe_path(path)


@given(st.text(max_size=40))
def test_safe_paths_stay_inside(path):
    """Whatever is accepted stays below its folder and is accepted again unchanged."""
    try:
        safe = safe_path(path)
    except ConfigError:
        return
    assert not safe.startswith("/")
    assert all(segment not in ("", ".", "..") for segment in safe.split("/"))
    assert safe_path(safe) == safe


def test_equal_looking_names_are_one():
    """Composed and decomposed characters are the same path."""
    assert safe_path("Cañon.csv") == safe_path("Can\u0303on.csv")
