"""The reference page names every facet that the schema allows."""

from __future__ import annotations

import json

from kfm.lineage.facets import PUBLIC_SCHEMAS
from tests.unit.lineage.samples import ROOT, SCHEMA


def test_every_facet_is_explained() -> None:
    """Each facet has its line in the reference, and is marked as standard where it is."""
    defs = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]
    page = (ROOT / "docs/reference/lineage.md").read_text(encoding="utf-8").splitlines()
    facets = {
        *defs["runFacets"]["properties"],
        *defs["datasetFacets"]["properties"],
        *defs["job"]["properties"]["facets"]["properties"],
        *defs["output"]["properties"]["outputFacets"]["properties"],
    }
    for name in facets:
        (line,) = (line for line in page if line.startswith(f"| `{name}` |"))
        assert (line.split("|")[2].strip() == "yes") == (name in PUBLIC_SCHEMAS)
    assert facets >= PUBLIC_SCHEMAS.keys()
