/** A DCAT 3 record of a dataset, as JSON-LD that needs nothing from the network to be understood. */

import { rfc3339 } from "../../model/times.mjs";
import { quote } from "../../model/urls.mjs";
import { factsOf, folded, intervalOf } from "../../model/version_trees.mjs";
import { partition, sortedByPoints } from "../../model/wording.mjs";
import { requireRights } from "../manifest.mjs";
import { COLLECTION, LINKED_MAX, MANIFEST, assetAddress } from "./pages.mjs";
import { isWeb, lineageText, stacLicense } from "./stac.mjs";

/** @typedef {import("../../types.js").Manifest} Manifest */
/** @typedef {import("../../types.js").Item} Item */
/** @typedef {import("../../types.js").Asset} Asset */

const HOUR_MS = 3_600_000;
const MEDIA_TYPES = "https://www.iana.org/assignments/media-types/";
const CONTEXT = {
  dcat: "http://www.w3.org/ns/dcat#",
  dcterms: "http://purl.org/dc/terms/",
  prov: "http://www.w3.org/ns/prov#",
  odrs: "http://schema.theodi.org/odrs#",
  skos: "http://www.w3.org/2004/02/skos/core#",
  spdx: "http://spdx.org/rdf/terms#",
  xsd: "http://www.w3.org/2001/XMLSchema#",
};
/** @type {[number, number, string, string][]} */
const RHYTHMS = [
  [23, 25, "P1D", "daily"],
  [167, 169, "P7D", "weekly"],
  [28 * 24 - 1, 31 * 24 + 1, "P1M", "monthly"],
  [365 * 24 - 1, 366 * 24 + 1, "P1Y", "annual"],
];

/** The record. Its address is the document's own, so it says the same wherever it stands. @param {Manifest} manifest */
export function dcat(manifest) {
  const rights = requireRights(manifest.dataset_id, manifest.rights);
  const { items } = manifest;
  const [files, , startMs, endMs, shortestMs, longestMs, modifiedMs] = folded(items.map(factsOf));
  const rhythm = items.length ? rhythmOf(shortestMs, longestMs) : undefined;
  return {
    "@context": CONTEXT,
    "@id": "",
    "@type": "dcat:Dataset",
    "dcterms:identifier": manifest.dataset_id,
    "dcterms:title": manifest.title,
    "dcterms:description": manifest.description,
    "dcat:theme": { "@type": "skos:Concept", "skos:prefLabel": manifest.domain },
    "dcterms:license": licenseNode(rights),
    "dcterms:accessRights": statement(`${rights.care.label} (${rights.care.level})`),
    "dcterms:rights": statements(rights).map(statement),
    ...(files <= LINKED_MAX && items.length <= LINKED_MAX
      ? { "dcat:distribution": items.flatMap((one) => one.assets.map((asset) => distribution(one, asset, rights))), ...provenance(items) }
      : { "dcat:distribution": [listing("STAC collection", `./${COLLECTION}`, rights), listing("Manifest", `./${MANIFEST}`, rights)] }),
    ...(manifest.keywords.length ? { "dcat:keyword": manifest.keywords } : {}),
    ...(rights.attribution ? { "odrs:attributionText": rights.attribution } : {}),
    ...(/^https?:\/\//.test(rights.local_contexts ?? "") ? { "dcterms:relation": { "@id": rights.local_contexts } } : {}),
    ...(items.length ? { "dcterms:temporal": period(startMs, endMs) } : {}),
    ...(rhythm ? { "dcat:temporalResolution": { "@type": "xsd:duration", "@value": rhythm[2] }, "dcterms:accrualPeriodicity": { "@id": `http://purl.org/cld/freq/${rhythm[3]}` } } : {}),
    ...(modifiedMs === null ? {} : { "dcterms:modified": instant(modifiedMs) }),
  };
}

/** One statement for each run whose work is part of the version. @param {Item[]} items */
function provenance(items) {
  const made = new Map(items.filter((one) => one.run_state).map((one) => [one.run_state.run_id, lineageText(one.source_id, one.run_state)]));
  if (!made.size) return {};
  const ids = sortedByPoints(made.keys());
  return {
    "dcterms:provenance": ids.map((id) => ({ "@type": "dcterms:ProvenanceStatement", "dcterms:description": made.get(id) })),
    "prov:wasGeneratedBy": ids.map((id) => ({ "@id": `urn:kfm:run:${quote(id, "@+=,;!~*'()/")}`, "@type": "prov:Activity" })),
  };
}

/** A document that lists the files, where they are too many for the record. @param {string} title @param {string} href @param {any} rights */
function listing(title, href, rights) {
  return {
    "@type": "dcat:Distribution",
    "dcterms:title": title,
    "dcat:downloadURL": { "@id": href },
    "dcat:mediaType": { "@id": `${MEDIA_TYPES}application/json` },
    "dcterms:license": licenseNode(rights),
  };
}

/** @param {Item} one @param {Asset} asset @param {any} rights */
function distribution(one, asset, rights) {
  return {
    "@type": "dcat:Distribution",
    "dcterms:title": asset.path,
    "dcat:downloadURL": { "@id": assetAddress(asset) },
    "dcat:mediaType": { "@id": MEDIA_TYPES + partition(asset.media_type, ";")[0].trim() },
    "dcat:byteSize": { "@type": "xsd:nonNegativeInteger", "@value": String(asset.size) },
    "dcterms:license": licenseNode(rights),
    "dcterms:temporal": period(...intervalOf(one)),
    "spdx:checksum": {
      "@type": "spdx:Checksum",
      "spdx:algorithm": { "@id": "spdx:checksumAlgorithm_sha256" },
      "spdx:checksumValue": { "@type": "xsd:hexBinary", "@value": asset.sha256 },
    },
    ...(asset.modified_ms === null ? {} : { "dcterms:modified": instant(asset.modified_ms) }),
  };
}

/** @param {any} rights */
function licenseNode(rights) {
  if (isWeb(rights.license)) return { "@id": rights.license };
  if (stacLicense(rights) === rights.license) return { "@id": `https://spdx.org/licenses/${rights.license}` };
  return { "@type": "dcterms:LicenseDocument", "dcterms:title": rights.license };
}

/** @param {any} rights */
function statements(rights) {
  const { sovereignty } = rights;
  return [
    `CARE label: ${rights.care.label}`,
    `CARE level: ${rights.care.level}`,
    ...(rights.local_contexts ? [`Local Contexts project: ${rights.local_contexts}`] : []),
    ...(sovereignty ? [`Sovereignty: ${sovereignty.authority}, consent ${sovereignty.consent}${sovereignty.agreement ? `, agreement ${sovereignty.agreement}` : ""}`] : []),
    ...(rights.attribution ? [`Attribution: ${rights.attribution}`] : []),
  ];
}

/** @param {string} text */
const statement = (text) => ({ "@type": "dcterms:RightsStatement", "dcterms:description": text });
/** @param {number} startMs @param {number} endMs */
const period = (startMs, endMs) => ({ "@type": "dcterms:PeriodOfTime", "dcat:startDate": instant(startMs), "dcat:endDate": instant(endMs) });
/** @param {number} atMs */
const instant = (atMs) => ({ "@type": "xsd:dateTime", "@value": rfc3339(atMs) });

/** How often an item is added, where all windows have the same length. A day may have 23 to 25 hours. @param {number} shortestMs @param {number} longestMs */
function rhythmOf(shortestMs, longestMs) {
  return RHYTHMS.find(([low, high]) => low * HOUR_MS <= shortestMs && longestMs <= high * HOUR_MS);
}
