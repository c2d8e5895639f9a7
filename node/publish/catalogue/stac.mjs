/** STAC 1.1 from a version: a collection for a dataset, an item for each piece of work, catalogs on the way. */

import { rfc3339 } from "../../model/times.mjs";
import { quote, splitUrl } from "../../model/urls.mjs";
import { factsOf, folded, intervalOf, isSnapshot } from "../../model/version_trees.mjs";
import { counted } from "../../model/wording.mjs";
import { requireRights, sourcePart } from "../manifest.mjs";
import { COLLECTION, DCAT, aboveItem, abovePage, assetAddress, itemName, pageName, pageTitle } from "./pages.mjs";

/** @typedef {import("../../types.js").Manifest} Manifest */
/** @typedef {import("../../types.js").Item} Item */
/** @typedef {import("../../types.js").Asset} Asset */
/** @typedef {import("./pages.mjs").Page} Page */
/** @typedef {{rel: string, href: string, type?: string, title?: string, "kfm:items"?: number}} Link */

const STAC_VERSION = "1.1.0";
const FILE_EXTENSION = "https://stac-extensions.github.io/file/v2.1.0/schema.json";
const PROCESSING_EXTENSION = "https://stac-extensions.github.io/processing/v1.2.0/schema.json";
const HIDDEN_LEVELS = ["restricted", "blocked"];
/** The collection; it is also the root, so that a version stands on its own. @param {Manifest} manifest @param {Link[]} links to its items, or to the pages of its sources */
export function collection(manifest, links) {
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
      link("root", `./${COLLECTION}`),
      ...licenseLinks(rights),
      ...links,
      link("describedby", `./${DCAT}`, "application/ld+json"),
    ],
    ...(manifest.keywords.length ? { keywords: manifest.keywords } : {}),
    ...(rights.attribution ? { providers: [{ name: rights.attribution, roles: ["producer"] }] } : {}),
  };
}

/** A page of the catalogue: a STAC catalog. @param {Manifest} manifest @param {Page} one */
export function catalog({ dataset_id }, one) {
  const [up, title, { dates, source_id }] = [abovePage(one), pageTitle(one), one];
  const when = dates.length ? ` whose windows begin ${dates.length === 3 ? "on" : "in"} ${title} (UTC)` : "";
  return {
    type: "Catalog",
    stac_version: STAC_VERSION,
    id: [dataset_id, sourcePart(source_id), dates.join("-")].filter(Boolean).join("_"),
    title,
    description: `Items of ${source_id}${when}.`,
    links: [
      link("root", up + COLLECTION),
      link("parent", up + (one.above ? quote(pageName(one.above)) : COLLECTION)),
      ...one.pages.map((each) => pageLink(up, each)),
      ...one.items.map((each) => itemLink(up, each)),
    ],
  };
}

/** @param {string} up @param {Item} one @returns {Link} */
export const itemLink = (up, one) => ({ ...link("item", up + itemName(one), "application/geo+json"), title: one.id });

/** @param {string} up @param {Page} one @returns {Link} */
export const pageLink = (up, one) => ({ ...link("child", up + pageName(one)), title: pageTitle(one) });

/** With how many items are below it. @param {string} up @param {Page} one @returns {Link} */
export const sourceLink = (up, one) => ({ ...pageLink(up, one), "kfm:items": one.count });

/** One item. Rights stand on it as well: items are read without their collection. @param {Manifest} manifest @param {Item} one */
export function stacItem(manifest, one) {
  const rights = requireRights(manifest.dataset_id, manifest.rights);
  const [box, up, interval] = [boxOf(one.bbox, rights), aboveItem(one), intervalOf(one).map(rfc3339)];
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
      datetime: isSnapshot(one) ? interval[1] : null, // a snapshot is true as of its newest part; a window is a span
      start_datetime: interval[0],
      end_datetime: interval[1],
      license: stacLicense(rights),
      "kfm:source_id": one.source_id,
      ...rightsFields(rights),
      ...(one.run_state ? runFields(one.source_id, one.run_state) : {}),
      ...(one.partition === null ? {} : { "kfm:partition": one.partition }),
      ...(modified.length ? { updated: rfc3339(Math.max(...modified)) } : {}),
      ...(rights.attribution ? { providers: [{ name: rights.attribution, roles: ["producer"] }] } : {}),
    },
    assets: Object.fromEntries(one.assets.map((asset) => [asset.path, stacAsset(asset, up + assetAddress(asset))])),
    links: [...["root", "parent", "collection"].map((rel) => link(rel, up + COLLECTION)), ...licenseLinks(rights)],
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
export function lineageText(pipelineId, state) {
  const { checks = 0, failed = 0 } = state.validation_summary;
  let kept = "no contract was declared";
  if (checks) kept = failed ? `${failed} of ${counted(checks, "check")} of its contract failed` : `its contract was kept (${counted(checks, "check")})`;
  return `Made by run ${state.run_id} of pipeline ${pipelineId}, version ${state.code_sha}, from the inputs ${state.inputs_hash}; ${kept}.`;
}

/** @param {Asset} asset @param {string} href */
function stacAsset(asset, href) {
  return {
    href,
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
export const stacLicense = (rights) => (/^(?!LicenseRef-)[A-Za-z0-9.+-]+$/.test(rights.license) ? rights.license : "other");
/** @param {string} text */
export const isWeb = (text) => ["http", "https"].includes(splitUrl(text)?.scheme ?? "");

/** @param {any} rights */
function licenseLinks(rights) {
  const links = [];
  if (isWeb(rights.license)) links.push({ rel: "license", href: rights.license });
  if (rights.local_contexts && isWeb(rights.local_contexts)) links.push({ rel: "related", href: rights.local_contexts, title: "Local Contexts project" });
  return links;
}

/** @param {Manifest} manifest */
function extent({ items, rights }) {
  const [, , startMs, endMs, , , , bbox] = folded(items.map(factsOf));
  const interval = items.length ? [rfc3339(startMs), rfc3339(endMs)] : [null, null];
  return { spatial: { bbox: [boxOf(bbox, rights) ?? [-180, -90, 180, 90]] }, temporal: { interval: [interval] } };
}

/** An extent, unless the rights forbid to tell where the data lies. @param {import("../../model/version_trees.mjs").Box | null} bbox @param {any} rights @returns {number[] | null} */
function boxOf(bbox, rights) {
  return bbox === null || HIDDEN_LEVELS.includes(rights.care.level) ? null : bbox.map((edge) => Number(edge) + 0);
}

/** @param {number[]} box */
function polygon(box) {
  const [west, south, east, north] = /** @type {[number, number, number, number]} */ (box);
  const ring = (/** @type {number} */ left, /** @type {number} */ right) => [[[left, south], [right, south], [right, north], [left, north], [left, south]]];
  if (west > east) return { type: "MultiPolygon", coordinates: [ring(west, 180), ring(-180, east)] };
  return { type: "Polygon", coordinates: ring(west, east) };
}

/** @param {string} rel @param {string} href @param {string} [type] @returns {Link} */
const link = (rel, href, type = "application/json") => ({ rel, href, type });
