/** Pages of the catalogue, and the names of documents in a version's folder. The twin of kfm.publish.catalogue.pages, which makes all of them each time. */

import { rfc3339 } from "../../model/times.mjs";
import { quote } from "../../model/urls.mjs";
import { isSnapshot } from "../../model/version_trees.mjs";
import { byPoints } from "../../model/wording.mjs";
import { sourcePart } from "../manifest.mjs";

/** @typedef {import("../../types.js").Item} Item */
/** @typedef {import("../../types.js").Asset} Asset */
/** @typedef {{source_id: string, dates: string[], above: Page | null, pages: Page[], items: Item[], count: number}} Page a source, or a year, a month or a day of it (UTC): what it lists, and how many items are below it */

export const COLLECTION = "collection.json";
export const MANIFEST = "manifest.json";
export const DCAT = "dcat.jsonld";
export const LINKED_MAX = 100; // items that a collection itself links, and files that a DCAT record lists

/** Year, month and day on which its window begins; nothing for a source without windows. @param {Item} item */
const datesOf = (item) => (isSnapshot(item) ? [] : rfc3339(item.window_start_ms).slice(0, 10).split("-"));

/** @param {Item} item */
export const itemName = (item) => ["items", sourcePart(item.source_id), ...datesOf(item), `${item.id}.json`].join("/");
/** The way from an item's document up to the version's folder. @param {Item} item */
export const aboveItem = (item) => "../".repeat(2 + datesOf(item).length);
/** @param {Asset} asset */
export const assetAddress = (asset) => quote(`data/${asset.path}`);

/** @param {Page} page */
export function pageName({ source_id, dates }) {
  const folder = ["catalogue", sourcePart(source_id), ...dates].join("/");
  return dates.length === 3 ? `${folder}.json` : `${folder}/index.json`;
}
/** @param {Page} page */
export const abovePage = ({ dates }) => "../".repeat(dates.length === 3 ? 4 : 2 + dates.length);
/** @param {Page} page */
export const pageTitle = ({ source_id, dates }) => dates.join("-") || source_id;

/** The pages of the sources, in the order of their names in ids, with all that is below them; none, where the collection itself links the items. @param {Item[]} items in the order of their ids @returns {Page[]} */
export function sourcePages(items) {
  if (items.length <= LINKED_MAX) return [];
  /** @type {Map<string, Page>} */
  const pages = new Map();
  const pageOf = (/** @type {string} */ source_id, /** @type {string[]} */ dates) => {
    const key = JSON.stringify([source_id, dates]);
    const known = pages.get(key);
    if (known) return known;
    /** @type {Page | null} */
    const above = dates.length ? pageOf(source_id, dates.slice(0, -1)) : null;
    /** @type {Page} */
    const made = { source_id, dates, above, pages: [], items: [], count: 0 };
    above?.pages.push(made);
    pages.set(key, made);
    return made;
  };
  for (const item of items) {
    const page = pageOf(item.source_id, datesOf(item));
    page.items.push(item);
    for (let each = /** @type {Page | null} */ (page); each; each = each.above) each.count += 1;
  }
  return [...pages.values()].filter((page) => !page.above).sort((a, b) => byPoints(sourcePart(a.source_id), sourcePart(b.source_id)));
}

/** A page, and all below it. @param {Page} page @returns {Page[]} */
export const allPages = (page) => [page, ...page.pages.flatMap(allPages)];
