/** Published documents, rendered from a manifest and from nothing else: STAC 1.1 and DCAT 3. Same manifest, same bytes. */

import canonicalize from "canonicalize";
import { rfc3339 } from "../../model/times.mjs";
import { quote, splitUrl } from "../../model/urls.mjs";
import { counted, partition, sortedByPoints } from "../../model/wording.mjs";
import { manifestText, requireRights } from "../manifest.mjs";

/** @typedef {import("../../types.js").Manifest} Manifest */
/** @typedef {import("../../types.js").Item} Item */
/** @typedef {import("../../types.js").Asset} Asset */

const STAC_VERSION = "1.1.0";
const FILE_EXTENSION = "https://stac-extensions.github.io/file/v2.1.0/schema.json";
const PROCESSING_EXTENSION = "https://stac-extensions.github.io/processing/v1.2.0/schema.json";
const HIDDEN_LEVELS = ["restricted", "blocked"];
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

/** Every document of a version by its path in the version's folder. @param {Manifest} manifest @returns {[string, string][]} */
export function documents(manifest) {
  return [
    ["manifest.json", manifestText(manifest)],
    ["collection.json", encode(collection(manifest))],
    ["dcat.jsonld", encode(dcat(manifest))],
    ...manifest.items.map((item) => /** @type {[string, string]} */ ([`items/${item.id}.json`, encode(stacItem(manifest, item))])),
  ];
}

/** RFC 8785 with real numbers: these documents are read, not hashed. @param {any} plain */
const encode = (plain) => `${/** @type {any} */ (canonicalize)(plain)}\n`;

/** @param {Asset} asset */
const locate = (asset) => `data/${quote(asset.path)}`;

// --- STAC ----------------------------------------------------------------------------

/** @param {Manifest} manifest */
function collection(manifest) {
  const rights = requireRights(manifest.dataset_id, manifest.rights);
  return {
    type: "Collection",
    stac_version: STAC_VERSION,
    stac_extensions: [],
    id: manifest.dataset_id,
    title: manifest.title,
    description: manifest.description,
    license: stacLicense(rights),
    extent: extent(manifest),
    "kfm:domain": manifest.domain,
    ...rightsFields(rights),
    links: [
      link("root", "./collection.json"),
      ...licenseLinks(rights),
      ...manifest.items.map((item) => link("item", `./items/${quote(item.id)}.json`, "application/geo+json")),
      link("describedby", "./dcat.jsonld", "application/ld+json"),
    ],
    ...(manifest.keywords.length ? { keywords: manifest.keywords } : {}),
    ...(rights.attribution ? { providers: [{ name: rights.attribution, roles: ["producer"] }] } : {}),
  };
}

/** @param {Manifest} manifest @param {Item} one */
function stacItem(manifest, one) {
  const rights = requireRights(manifest.dataset_id, manifest.rights);
  const box = boxOf(one, rights);
  const modified = one.assets.map((asset) => asset.modified_ms).filter((at) => at !== null);
  return {
    type: "Feature",
    stac_version: STAC_VERSION,
    stac_extensions: one.run_state ? [FILE_EXTENSION, PROCESSING_EXTENSION] : [FILE_EXTENSION],
    id: one.id,
    collection: manifest.dataset_id,
    geometry: box ? polygon(box) : null,
    ...(box ? { bbox: box } : {}),
    properties: {
      datetime: null,
      start_datetime: rfc3339(one.window_start_ms),
      end_datetime: rfc3339(lastMs(one)),
      license: stacLicense(rights),
      "kfm:source_id": one.source_id,
      ...rightsFields(rights),
      ...(one.run_state ? runFields(one.source_id, one.run_state) : {}),
      ...(one.partition === null ? {} : { "kfm:partition": one.partition }),
      ...(modified.length ? { updated: rfc3339(Math.max(...modified)) } : {}),
      ...(rights.attribution ? { providers: [{ name: rights.attribution, roles: ["producer"] }] } : {}),
    },
    assets: Object.fromEntries(one.assets.map((asset) => [asset.path, stacAsset(asset)])),
    links: [link("root", "../collection.json"), link("parent", "../collection.json"), link("collection", "../collection.json"), ...licenseLinks(rights)],
  };
}

/** @param {string} pipelineId @param {any} state */
function runFields(pipelineId, state) {
  return {
    "kfm:run_state": state,
    "processing:lineage": lineageText(pipelineId, state),
    "processing:software": { [pipelineId]: state.code_sha },
    "processing:version": state.code_sha,
  };
}

/** What happened, for people. @param {string} pipelineId @param {any} state */
function lineageText(pipelineId, state) {
  const { checks = 0, failed = 0 } = state.validation_summary;
  let kept = "no contract was declared";
  if (checks) kept = failed ? `${failed} of ${counted(checks, "check")} of its contract failed` : `its contract was kept (${counted(checks, "check")})`;
  return `Made by run ${state.run_id} of pipeline ${pipelineId}, version ${state.code_sha}, from the inputs ${state.inputs_hash}; ${kept}.`;
}

/** @param {Asset} asset */
function stacAsset(asset) {
  return {
    href: `../${locate(asset)}`,
    title: asset.path,
    type: asset.media_type,
    roles: asset.roles,
    "file:checksum": `1220${asset.sha256}`,
    "file:size": asset.size,
    ...(asset.modified_ms === null ? {} : { updated: rfc3339(asset.modified_ms) }),
  };
}

/** Label and project address as the community gave them. @param {any} rights */
function rightsFields(rights) {
  const { sovereignty } = rights;
  return {
    "kfm:care_label": rights.care.label,
    "kfm:care_level": rights.care.level,
    ...(stacLicense(rights) === rights.license ? {} : { "kfm:license": rights.license }),
    ...(rights.local_contexts ? { "kfm:local_contexts": rights.local_contexts } : {}),
    ...(rights.attribution ? { "kfm:attribution": rights.attribution } : {}),
    ...(sovereignty
      ? { "kfm:sovereignty": { authority: sovereignty.authority, consent: sovereignty.consent, ...(sovereignty.agreement ? { agreement: sovereignty.agreement } : {}) } }
      : {}),
  };
}

/** @param {any} rights */
const stacLicense = (rights) => (/^(?!LicenseRef-)[A-Za-z0-9.+-]+$/.test(rights.license) ? rights.license : "other");
/** @param {string} text */
const isWeb = (text) => ["http", "https"].includes(splitUrl(text)?.scheme ?? "");
/** Windows are half open, STAC's end is part of the range. @param {Item} one */
const lastMs = (one) => Math.max(one.window_start_ms, one.window_end_ms - 1);

/** @param {any} rights */
function licenseLinks(rights) {
  const links = [];
  if (isWeb(rights.license)) links.push({ rel: "license", href: rights.license });
  if (rights.local_contexts && isWeb(rights.local_contexts)) links.push({ rel: "related", href: rights.local_contexts, title: "Local Contexts project" });
  return links;
}

/** @param {Manifest} manifest */
function extent(manifest) {
  const boxes = manifest.items.map((one) => boxOf(one, manifest.rights)).filter((box) => box !== null);
  const { items } = manifest;
  const interval = items.length ? [rfc3339(Math.min(...items.map((one) => one.window_start_ms))), rfc3339(Math.max(...items.map(lastMs)))] : [null, null];
  return { spatial: { bbox: [boxes.length ? union(boxes) : [-180, -90, 180, 90]] }, temporal: { interval: [interval] } };
}

/** @param {number[][]} boxes */
function union(boxes) {
  const edge = (/** @type {number} */ at) => boxes.map((box) => /** @type {number} */ (box[at]));
  const [south, north] = [Math.min(...edge(1)), Math.max(...edge(3))];
  const crosses = boxes.some(([west = 0, , east = 0]) => west > east);
  if (crosses && new Set(boxes.map(String)).size > 1) return [-180, south, 180, north];
  return [Math.min(...edge(0)), south, Math.max(...edge(2)), north];
}

/** The item's extent, unless its rights forbid to tell where it lies. @param {Item} one @param {any} rights @returns {number[] | null} */
function boxOf(one, rights) {
  return one.bbox === null || HIDDEN_LEVELS.includes(rights.care.level) ? null : one.bbox.map((edge) => Number(edge) + 0);
}

/** @param {number[]} box */
function polygon(box) {
  const [west, south, east, north] = /** @type {[number, number, number, number]} */ (box);
  const ring = (/** @type {number} */ left, /** @type {number} */ right) => [[[left, south], [right, south], [right, north], [left, north], [left, south]]];
  if (west > east) return { type: "MultiPolygon", coordinates: [ring(west, 180), ring(-180, east)] };
  return { type: "Polygon", coordinates: ring(west, east) };
}

/** @param {string} rel @param {string} href @param {string} [type] */
const link = (rel, href, type = "application/json") => ({ rel, href, type });

// --- DCAT ----------------------------------------------------------------------------

/** @param {Manifest} manifest */
function dcat(manifest) {
  const rights = requireRights(manifest.dataset_id, manifest.rights);
  const { items } = manifest;
  const modified = items.flatMap((one) => one.assets.map((asset) => asset.modified_ms)).filter((at) => at !== null);
  const rhythm = items.length ? rhythmOf(manifest) : undefined;
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
    "dcat:distribution": items.flatMap((one) => one.assets.map((asset) => distribution(one, asset, rights))),
    ...provenance(manifest),
    ...(manifest.keywords.length ? { "dcat:keyword": manifest.keywords } : {}),
    ...(rights.attribution ? { "odrs:attributionText": rights.attribution } : {}),
    ...(/^https?:\/\//.test(rights.local_contexts ?? "") ? { "dcterms:relation": { "@id": rights.local_contexts } } : {}),
    ...(items.length ? { "dcterms:temporal": period(Math.min(...items.map((one) => one.window_start_ms)), Math.max(...items.map(lastMs))) } : {}),
    ...(rhythm ? { "dcat:temporalResolution": { "@type": "xsd:duration", "@value": rhythm[2] }, "dcterms:accrualPeriodicity": { "@id": `http://purl.org/cld/freq/${rhythm[3]}` } } : {}),
    ...(modified.length ? { "dcterms:modified": instant(Math.max(...modified)) } : {}),
  };
}

/** One statement for each run whose work is part of the version. @param {Manifest} manifest */
function provenance(manifest) {
  const made = new Map(manifest.items.filter((one) => one.run_state).map((one) => [one.run_state.run_id, lineageText(one.source_id, one.run_state)]));
  if (!made.size) return {};
  const ids = sortedByPoints(made.keys());
  return {
    "dcterms:provenance": ids.map((id) => ({ "@type": "dcterms:ProvenanceStatement", "dcterms:description": made.get(id) })),
    "prov:wasGeneratedBy": ids.map((id) => ({ "@id": `urn:kfm:run:${quote(id, "@+=,;!~*'()/")}`, "@type": "prov:Activity" })),
  };
}

/** @param {Item} one @param {Asset} asset @param {any} rights */
function distribution(one, asset, rights) {
  return {
    "@type": "dcat:Distribution",
    "dcterms:title": asset.path,
    "dcat:downloadURL": { "@id": locate(asset) },
    "dcat:mediaType": { "@id": MEDIA_TYPES + partition(asset.media_type, ";")[0].trim() },
    "dcat:byteSize": { "@type": "xsd:nonNegativeInteger", "@value": String(asset.size) },
    "dcterms:license": licenseNode(rights),
    "dcterms:temporal": period(one.window_start_ms, lastMs(one)),
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

/** How often an item is added, where all windows have the same length. @param {Manifest} manifest */
function rhythmOf(manifest) {
  const hours = manifest.items.map((one) => (one.window_end_ms - one.window_start_ms) / 3_600_000);
  return RHYTHMS.find(([low, high]) => hours.every((length) => low <= length && length <= high));
}
