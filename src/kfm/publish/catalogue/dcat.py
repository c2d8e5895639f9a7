"""A DCAT 3 record of a dataset, as JSON-LD that needs nothing from the network to be understood."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kfm.model.keys import run_urn
from kfm.model.records import Asset, Item
from kfm.model.settings import LicenceTerms, Rights
from kfm.model.times import rfc3339
from kfm.model.version_trees import NO_ITEMS, ItemFacts
from kfm.model.versions import Version
from kfm.publish.catalogue.pages import LINKED_MAX
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
_HOUR_MS = 3_600_000
_RHYTHMS = (
    (23, 25, "P1D", "daily"),
    (167, 169, "P7D", "weekly"),
    (28 * 24 - 1, 31 * 24 + 1, "P1M", "monthly"),
    (365 * 24 - 1, 366 * 24 + 1, "P1Y", "annual"),
)
_MEDIA_TYPES = "https://www.iana.org/assignments/media-types/"

Locate = Callable[[Asset], str]  # an asset's address


def dataset(version: Version, locate: Locate, documents: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The record. Its address is the document's own, so it says the same wherever it stands.

    `documents`: title and address of what lists the files, where they are too many for the record.
    """
    header, facts = version.header, version.facts()
    rights = require_rights(header.dataset_id, header.rights)
    document: dict[str, Any] = {
        "@context": CONTEXT,
        "@id": "",
        "@type": "dcat:Dataset",
        "dcterms:identifier": header.dataset_id,
        "dcterms:title": header.title,
        "dcterms:description": header.description,
        "dcat:theme": {"@type": "skos:Concept", "skos:prefLabel": header.domain},
        "dcterms:license": license_node(rights),
        "dcterms:accessRights": _statement(f"{rights.care.label} ({rights.care.level})"),
        "dcterms:rights": [_statement(text) for text in _statements(rights)],
    }
    if facts.files <= LINKED_MAX and len(version) <= LINKED_MAX:
        items = version.items()
        document["dcat:distribution"] = [
            _distribution(one, asset, rights, locate) for one in items for asset in one.assets
        ]
        document.update(_provenance(items))
    else:
        document["dcat:distribution"] = [_document(*one, rights) for one in documents]
    if header.keywords:
        document["dcat:keyword"] = list(header.keywords)
    if rights.attribution:
        document["odrs:attributionText"] = rights.attribution
    if rights.local_contexts and rights.local_contexts.startswith(("http://", "https://")):
        document["dcterms:relation"] = {"@id": rights.local_contexts}
    if facts != NO_ITEMS:
        document["dcterms:temporal"] = _period(facts.start_ms, facts.end_ms)
        if rhythm := _rhythm(facts):
            document["dcat:temporalResolution"] = {"@type": "xsd:duration", "@value": rhythm[0]}
            document["dcterms:accrualPeriodicity"] = {"@id": _FREQUENCIES + rhythm[1]}
    if facts.modified_ms is not None:
        document["dcterms:modified"] = _instant(facts.modified_ms)
    return document


def _provenance(items: Iterable[Item]) -> dict[str, Any]:
    """One statement for each run whose work is part of the version, and its name in PROV documents."""
    made = {
        state.run_id: processing_lineage(one.source_id, state)
        for one in items
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


def _document(title: str, href: str, rights: Rights) -> dict[str, Any]:
    return {
        "@type": "dcat:Distribution",
        "dcterms:title": title,
        "dcat:downloadURL": {"@id": href},
        "dcat:mediaType": {"@id": f"{_MEDIA_TYPES}application/json"},
        "dcterms:license": license_node(rights),
    }


def _distribution(one: Item, asset: Asset, rights: Rights, locate: Locate) -> dict[str, Any]:
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


def _rhythm(facts: ItemFacts) -> tuple[str, str] | None:
    """How often an item is added, where all windows have the same length. A day may have 23 to 25 hours."""
    for low, high, duration, frequency in _RHYTHMS:
        if low * _HOUR_MS <= facts.shortest_ms and facts.longest_ms <= high * _HOUR_MS:
            return duration, frequency
    return None
