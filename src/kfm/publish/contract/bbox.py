"""The bounding box of GeoJSON files, as decimal text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from kfm.core.records import Asset
from kfm.ports import Reader
from kfm.publish.contract.features import features
from kfm.publish.contract.formats import format_of
from kfm.publish.contract.geometry import GeometryProblem, check_geometry, positions
from kfm.publish.contract.model import ContractLimits
from kfm.publish.contract.streams import FileProblem, JsonStream

Bbox = tuple[str, str, str, str]


def bbox_of(
    assets: Sequence[Asset], open: Callable[[str], Reader], limits: ContractLimits | None = None
) -> Bbox | None:
    """West, south, east, north of all GeoJSON assets; None if there is none, or if one can't be trusted.

    The plain smallest and largest values: a dataset across the antimeridian gets
    a box around the globe, which is large but not wrong.
    """
    bounds = limits or ContractLimits()
    box: list[float] | None = None
    for asset in assets:
        if format_of(asset) != "geojson":
            continue
        reader = open(asset.sha256)
        try:
            box = _grown(box, JsonStream(reader, bounds.element_chars_max))
        except (FileProblem, GeometryProblem):
            return None
        finally:
            reader.close()
    if box is None:
        return None
    west, south, east, north = (decimal_text(number) for number in box)
    return west, south, east, north


def _grown(box: list[float] | None, stream: JsonStream) -> list[float] | None:
    for feature in features(stream, {}):
        geometry = feature.get("geometry") if isinstance(feature, dict) else None
        if geometry is None:
            continue
        check_geometry(geometry)
        corners = list(positions(geometry))
        if box is not None:
            corners += [(box[0], box[1]), (box[2], box[3])]
        if corners:
            east_west, north_south = zip(*corners, strict=True)
            box = [min(east_west), min(north_south), max(east_west), max(north_south)]
    return box


def decimal_text(number: float | int) -> str:
    """The shortest decimal digits that mean this number: no exponent, no trailing zeros, no minus zero."""
    text = format(Decimal(repr(number)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
