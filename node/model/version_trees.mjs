/** Version trees: the items and the files of a version as ordered maps, which versions share pages of. The twin of kfm.model.version_trees and, as far as it is needed, kfm.model.trees. */

import { createHash } from "node:crypto";
import { canonicalText, sha256Hex } from "./canonical.mjs";
import { StoreCorrupt } from "./errors.mjs";
import { isAllTime } from "./times.mjs";
import { byPoints } from "./wording.mjs";

const SPREAD = 15; // a mask: one key in 16 closes a page
const [WEST, EAST] = ["-180", "180"];

export const EMPTY = sha256Hex("[0,[]]"); // the id of the tree without entries

/** @typedef {import("../types.js").Item} Item */
/** @typedef {[string, string, string, string]} Box decimal text: hashed documents hold no floats */
/** @typedef {[files: number, bytes: number, startMs: number, endMs: number, shortestMs: number, longestMs: number, modifiedMs: number | null, bbox: Box | null]} Facts what is known of one item, or of many, without reading them */
/** @typedef {[string, string, number]} FileRow [path, SHA-256, size] or [last path, page id, number of entries] */
/** @typedef {[string, string, number, Facts]} ItemRow the same of items, with facts */
/** @typedef {FileRow | ItemRow} Row */
/** @typedef {{level: number, rows: Row[]}} Page */
/** @typedef {{treeId: string, pages: Map<string, string>}} Tree */

// --- pages ---------------------------------------------------------------------------

/** How many bodies, from the leaf upwards, end with this key. @param {string} key */
function height(key) {
  let found = 0;
  for (const byte of createHash("sha256").update(key).digest()) {
    if (byte & SPREAD) break;
    found += 1;
  }
  return found;
}

/** Pieces that end where their last key says so. @param {number} level @param {Row[]} rows */
function* cut(level, rows) {
  let start = 0;
  for (let end = 1; end <= rows.length; end += 1) {
    if (end < rows.length && height(/** @type {Row} */ (rows[end - 1])[0]) <= level) continue;
    yield rows.slice(start, end);
    start = end;
  }
}

/** The tree of these rows, which are in order, with all of its pages. Facts, where rows have them, are folded from page to page. @param {Row[]} rows @returns {Tree} */
export function treeOf(rows) {
  /** @type {Map<string, string>} */
  const pages = new Map();
  const make = (/** @type {number} */ level, /** @type {Row[]} */ piece) => {
    const body = JSON.stringify([level, piece]);
    const id = sha256Hex(body);
    pages.set(id, body);
    const entries = level === 0 ? piece.length : piece.reduce((total, row) => total + row[2], 0);
    const facts = piece.flatMap((row) => (row.length === 4 ? [row[3]] : []));
    return /** @type {Row} */ ([/** @type {Row} */ (piece.at(-1))[0], id, entries, ...(facts.length ? [folded(facts)] : [])]);
  };
  let above = [...cut(0, rows)].map((piece) => make(0, piece));
  for (let level = 1; above.length > 1; level += 1) above = [...cut(level, above)].map((piece) => make(level, piece));
  return { treeId: above[0]?.[1] ?? EMPTY, pages };
}

/** The page, if it is the one that has this id. @param {string} id @param {string} body @returns {Page} */
export function decodePage(id, body) {
  if (sha256Hex(body) !== id) throw new StoreCorrupt(`The tree ${id.slice(0, 12)} is not what was stored under this id.`);
  const [level, rows] = JSON.parse(body);
  return { level, rows };
}

// --- items and files -----------------------------------------------------------------

/** An item's row and its document. @param {Item} item @returns {{row: ItemRow, document: string}} */
export function itemRow(item) {
  const document = canonicalText(item);
  return { row: [item.id, sha256Hex(document), Buffer.byteLength(document), factsOf(item)], document };
}

/** The item, if it is the one that has this hash. @param {string} digest @param {string} document @returns {Item} */
export function itemFrom(digest, document) {
  if (sha256Hex(document) !== digest) throw new StoreCorrupt(`The item ${digest.slice(0, 12)} is not what was stored under this hash.`);
  return JSON.parse(document);
}

/** The rows of all files, in the order of their paths. @param {Item[]} items @returns {FileRow[]} */
export function fileRows(items) {
  const rows = items.flatMap((item) => item.assets.map(({ path, sha256, size }) => /** @type {FileRow} */ ([path, sha256, size])));
  return rows.sort((a, b) => byPoints(a[0], b[0]));
}

// --- facts ---------------------------------------------------------------------------

/** Is it the one item of a source without windows? @param {Item} item */
export const isSnapshot = (item) => isAllTime(item.window_start_ms, item.window_end_ms);

/** The first and the last instant that an item tells of: windows are half open. @param {Item} item @returns {[number, number]} */
export function intervalOf(item) {
  if (isSnapshot(item) && item.as_of) return item.as_of;
  return [item.window_start_ms, Math.max(item.window_start_ms, item.window_end_ms - 1)];
}

/** @param {Item} item @returns {Facts} */
export function factsOf(item) {
  const length = item.window_end_ms - item.window_start_ms;
  const bytes = item.assets.reduce((total, asset) => total + asset.size, 0);
  return [item.assets.length, bytes, ...intervalOf(item), length, length, newest(item.assets.map((asset) => asset.modified_ms)), item.bbox];
}

/** What facts come to together, in whatever order and portions they are folded. @param {Facts[]} some @returns {Facts} */
export function folded(some) {
  const [only] = some;
  if (!only) return [0, 0, 0, 0, 0, 0, null, null];
  if (some.length === 1) return only;
  /** @type {Facts} */
  const all = [...only];
  for (const [files, bytes, startMs, endMs, shortestMs, longestMs] of some.slice(1)) {
    all[0] += files;
    all[1] += bytes;
    all[2] = Math.min(all[2], startMs);
    all[3] = Math.max(all[3], endMs);
    all[4] = Math.min(all[4], shortestMs);
    all[5] = Math.max(all[5], longestMs);
  }
  all[6] = newest(some.map((each) => each[6]));
  all[7] = union(some.flatMap((each) => (each[7] ? [each[7]] : [])));
  return all;
}

/** @param {(number | null)[]} times */
const newest = (times) => times.reduce((a, b) => (a === null || (b !== null && b > a) ? b : a), null);

/** The box around all. One that crosses the antimeridian makes it a band around the globe, unless all are the same. @param {Box[]} boxes @returns {Box | null} */
function union(boxes) {
  const different = [...new Map(boxes.map((box) => [box.join(), box])).values()];
  if (different.length < 2) return different[0] ?? null;
  const edge = (/** @type {number} */ at) => different.map((box) => /** @type {string} */ (box[at])).sort(byDegrees);
  const [south, north] = [/** @type {string} */ (edge(1)[0]), /** @type {string} */ (edge(3).at(-1))];
  if (different.some(([west, , east]) => Number(west) > Number(east))) return [WEST, south, EAST, north];
  return [/** @type {string} */ (edge(0)[0]), south, /** @type {string} */ (edge(2).at(-1)), north];
}

/** One of two texts for one number, whatever the order. @param {string} one @param {string} other */
const byDegrees = (one, other) => Number(one) - Number(other) || byPoints(one, other);
