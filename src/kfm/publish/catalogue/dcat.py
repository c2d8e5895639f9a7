"""A DCAT 3 record of a dataset, as JSON-LD that needs nothing from the network to be understood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kfm.model.keys import run_urn
from kfm.model.records import Asset, Item, Manifest
from kfm.model.settings import LicenceTerms, Rights
from kfm.model.times import rfc3339
from kfm.publish.catalogue.stac_collection import license_url, processing_lineage, stac_license
from kfm.publish.manifest import require_rights

CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcterms": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "odrs": "http://schema.theodi.org/odrs#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "spdx": "http://spdx.org/rdf/terms#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_SPDX_LICENSES = "https://spdx.org/licenses/"
_FREQUENCIES = "http://purl.org/cld/freq/"
_RHYTHMS = (
    (23, 25, "P1D", "daily"),
    (167, 169, "P7D", "weekly"),
    (28 * 24 - 1, 31 * 24 + 1, "P1M", "monthly"),
    (365 * 24 - 1, 366 * 24 + 1, "P1Y", "annual"),
)
_MEDIA_TYPES = "https://www.iana.org/assignments/media-types/"


def dataset(manifest: Manifest, locate: Callable[[Asset], str]) -> dict[str, Any]:
    """The record. Its address is the document's own, so it says the same wherever it stands."""
    rights = require_rights(manifest.dataset_id, manifest.rights)
    document: dict[str, Any] = {
        "@context": CONTEXT,
        "@id": "",
        "@type": "dcat:Dataset",
        "dcterms:identifier": manifest.dataset_id,
        "dcterms:title": manifest.title,
        "dcterms:description": manifest.description,
        "dcat:theme": {"@type": "skos:Concept", "skos:prefLabel": manifest.domain},
        "dcterms:license": license_node(rights),
        "dcterms:accessRights": _statement(f"{rights.care.label} ({rights.care.level})"),
        "dcterms:rights": [_statement(text) for text in _statements(rights)],
        "dcat:distribution": [
            _distribution(one, asset, rights, locate) for one in manifest.items for asset in one.assets
        ],
    }
    document.update(_provenance(manifest))
    if manifest.keywords:
        document["dcat:keyword"] = list(manifest.keywords)
    if rights.attribution:
        document["odrs:attributionText"] = rights.attribution
    if rights.local_contexts and rights.local_contexts.startswith(("http://", "https://")):
        document["dcterms:relation"] = {"@id": rights.local_contexts}
    if manifest.items:
        document["dcterms:temporal"] = _period(
            min(one.interval_ms[0] for one in manifest.items),
            max(one.interval_ms[1] for one in manifest.items),
        )
        if rhythm := _rhythm(manifest):
            document["dcat:temporalResolution"] = {"@type": "xsd:duration", "@value": rhythm[0]}
            document["dcterms:accrualPeriodicity"] = {"@id": _FREQUENCIES + rhythm[1]}
    modified = [a.modified_ms for one in manifest.items for a in one.assets if a.modified_ms is not None]
    if modified:
        document["dcterms:modified"] = _instant(max(modified))
    return document


def _provenance(manifest: Manifest) -> dict[str, Any]:
    """One statement for each run whose work is part of the version, and its name in PROV documents."""
    made = {
        state.run_id: processing_lineage(one.source_id, state)
        for one in manifest.items
        if not isinstance(state := one.run_state, msgspec.UnsetType)
    }
    if not made:
        return {}
    return {
        "dcterms:provenance": [
            {"@type": "dcterms:ProvenanceStatement", "dcterms:description": made[run_id]}
            for run_id in sorted(made)
        ],
        "prov:wasGeneratedBy": [
            {"@id": run_urn(run_id), "@type": "prov:Activity"} for run_id in sorted(made)
        ],
    }


def _distribution(one: Item, asset: Asset, rights: Rights, locate: Callable[[Asset], str]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "@type": "dcat:Distribution",
        "dcterms:title": asset.path,
        "dcat:downloadURL": {"@id": locate(asset)},
        "dcat:mediaType": {"@id": _MEDIA_TYPES + asset.media_type.partition(";")[0].strip()},
        "dcat:byteSize": {"@type": "xsd:nonNegativeInteger", "@value": str(asset.size)},
        "dcterms:license": license_node(rights),
        "dcterms:temporal": _period(*one.interval_ms),
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256"},
            "spdx:checksumValue": {"@type": "xsd:hexBinary", "@value": asset.sha256},
        },
    }
    if asset.modified_ms is not None:
        document["dcterms:modified"] = _instant(asset.modified_ms)
    return document


def license_node(rights: Rights) -> dict[str, str]:
    if url := license_url(rights):
        return {"@id": url}
    if stac_license(rights) == rights.license:
        return {"@id": _SPDX_LICENSES + rights.license}
    title = rights.terms.name if isinstance(rights.terms, LicenceTerms) else rights.license
    return {"@type": "dcterms:LicenseDocument", "dcterms:title": title}


def _statements(rights: Rights) -> list[str]:
    statements = [f"CARE label: {rights.care.label}", f"CARE level: {rights.care.level}"]
    if rights.local_contexts:
        statements.append(f"Local Contexts project: {rights.local_contexts}")
    if rights.sovereignty:
        statements.append(
            f"Sovereignty: {rights.sovereignty.authority}, consent {rights.sovereignty.consent}"
            + (f", agreement {rights.sovereignty.agreement}" if rights.sovereignty.agreement else "")
        )
    if rights.attribution:
        statements.append(f"Attribution: {rights.attribution}")
    return statements


def _statement(text: str) -> dict[str, str]:
    return {"@type": "dcterms:RightsStatement", "dcterms:description": text}


def _period(start_ms: int, end_ms: int) -> dict[str, Any]:
    return {
        "@type": "dcterms:PeriodOfTime",
        "dcat:startDate": _instant(start_ms),
        "dcat:endDate": _instant(end_ms),
    }


def _instant(at_ms: int) -> dict[str, str]:
    return {"@type": "xsd:dateTime", "@value": rfc3339(at_ms)}


def _rhythm(manifest: Manifest) -> tuple[str, str] | None:
    """How often an item is added, where all windows have the same length. A day may have 23 to 25 hours."""
    hours = {(one.window_end_ms - one.window_start_ms) / 3_600_000 for one in manifest.items}
    for low, high, duration, frequency in _RHYTHMS:
        if all(low <= length <= high for length in hours):
            return duration, frequency
    return None
