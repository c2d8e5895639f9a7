"""What NCEP's models have in common: `<run>.<date>/<cycle>/…/<name>.t<cycle>z.<rest>`."""

from __future__ import annotations

from kfm.nodd.catalogue.geometry import GLOBE, Footprint
from kfm.nodd.patterns import Fields, need
from kfm.nodd.spans import Span, digits, without_hour

GRIB2 = "application/wmo-GRIB2"
INDEX = {".idx": "index"}


def product(fields: Fields) -> str:
    """The name without the cycle, and without the forecast hour where that ends it."""
    return without_hour(f"{need(fields, 'head')}.{need(fields, 'rest')}")


def rest(fields: Fields) -> str:
    return need(fields, "rest")


def cycle_folder(fields: Fields, _span: Span) -> Fields:
    return {"d_cycle": need(fields, "hh")[:2]}


def cycle_of_folder(fields: Fields) -> Span:
    """A file that does not name its cycle: the folders do."""
    cycle = need(fields, "d_cycle")
    return Span(reference_ms=digits(need(fields, "ymd") + cycle))


def everywhere(_fields: Fields, _platform: str | None, _span: Span) -> Footprint:
    return GLOBE
