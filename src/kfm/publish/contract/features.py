"""GeoJSON as a stream of features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kfm.publish.contract.geometry import GEOMETRY_TYPES
from kfm.publish.contract.streams import FileProblem, JsonStream

_MEMBERS_MAX = 1000


def features(stream: JsonStream, head: dict[str, Any]) -> Iterator[Any]:
    """Every feature; the other members of the document are left in `head`.

    A collection is never held as a whole. A single feature or a bare geometry is
    a collection of one.
    """
    found = False
    for name in stream.named():
        if name == "features" and stream.peek() == "[":
            found = True
            yield from stream.elements()
        else:
            head[name] = stream.value()
        if len(head) > _MEMBERS_MAX:
            raise FileProblem(f"has more than {_MEMBERS_MAX} members at the top")
    stream.end()
    kind = head.get("type")
    if kind == "FeatureCollection" and found:
        return
    if found or kind == "FeatureCollection":
        raise FileProblem("is not a FeatureCollection with an array of features")
    if kind == "Feature":
        yield head
    elif isinstance(kind, str) and kind in GEOMETRY_TYPES:
        yield {"type": "Feature", "properties": None, "geometry": head}
    else:
        raise FileProblem("is not GeoJSON: it has no known type")
