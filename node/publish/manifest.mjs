/** A manifest is one whole version of a dataset; here it is merged and compared. No side effects. */

import { canonicalText, pythonFloat, sha256Hex } from "../model/canonical.mjs";
import { PathConflict, RightsMissing } from "../model/errors.mjs";
import { isAllTime, rfc3339 } from "../model/times.mjs";
import { factsOf, folded } from "../model/version_trees.mjs";
import { byPoints, head as firstChars, sortedByPoints } from "../model/wording.mjs";

/** @typedef {import("../types.js").Manifest} Manifest */
/** @typedef {import("../types.js").Item} Item */
/** @typedef {import("../types.js").Asset} Asset */

const PART_CHARS_MAX = 80;

// --- names ---------------------------------------------------------------------------

/** The id of a slot: readable, safe in a URL and as a file name. @param {string} sourceId @param {{start_ms: number, end_ms: number}} window @param {string | null} partition */
export function itemId(sourceId, window, partition) {
  const instant = (/** @type {number} */ at) => rfc3339(at).replace(/[-:]/g, "");
  const span = isAllTime(window.start_ms, window.end_ms) ? "" : `_${instant(window.start_ms)}_${instant(window.end_ms)}`;
  const name = `${sourcePart(sourceId)}${span}`;
  return partition === null ? name : `${name}~${sourcePart(partition)}`;
}

/** Text as it may stand in an id; where something had to go, a hash keeps it unique. @param {string} text */
export function sourcePart(text) {
  const plain = firstChars(text.replace(/[^A-Za-z0-9._-]+/gu, "-"), PART_CHARS_MAX);
  return plain === text && text ? text : `${plain}~${sha256Hex(text).slice(0, 12)}`;
}

// --- merging -------------------------------------------------------------------------

/** The head with these items in their slots. @param {Manifest | null} head @param {any} dataset @param {Item[]} items @param {string} mode @returns {Manifest} */
export function mergeItems(head, dataset, items, mode) {
  const rights = requireRights(dataset.id, dataset.rights);
  const old = new Map((head?.items ?? []).map((item) => [item.id, item]));
  const fresh = items.map((item) => asItStands(old, normal(item, dataset), mode));
  const slots = new Set(fresh.map(slot));
  const sources = new Set(mode === "replace" ? fresh.map((item) => item.source_id) : []);
  const kept = (head?.items ?? []).filter((item) => !slots.has(slot(item)) && !sources.has(item.source_id));
  requireUnique([...kept, ...fresh]);
  requirePaths(kept, fresh);
  const { license, care, sovereignty, local_contexts, attribution } = rights;
  return {
    dataset_id: dataset.id,
    title: dataset.title || dataset.id,
    description: dataset.description || dataset.title || dataset.id,
    domain: dataset.domain,
    keywords: dataset.keywords,
    rights: { license, care, sovereignty, local_contexts, attribution },
    items: [...kept, ...fresh].sort((a, b) => byPoints(a.id, b.id)),
  };
}

/** Rights travel with the data, or the data does not travel. @param {string} datasetId @param {any} rights */
export function requireRights(datasetId, rights) {
  if (!rights) throw new RightsMissing(`Dataset ${datasetId} declares none.`);
  if (!rights.license.trim()) throw new RightsMissing(`Dataset ${datasetId} names no licence.`);
  if (!rights.care.label.trim()) throw new RightsMissing(`Dataset ${datasetId} has no CARE label.`);
  return rights;
}

/** Work done again with the same outcome changes nothing; where one window takes the place of another, the label alone makes no version. @param {Map<string, Item>} old @param {Item} item @param {string} mode */
function asItStands(old, item, mode) {
  const known = old.get(item.id);
  if (known && unsigned(known) === unsigned(item)) return known;
  const [only, ...others] = mode === "replace" ? [...old.values()].filter((one) => one.source_id === item.source_id) : [];
  return only && !others.length && sameContent(only, item) ? only : item;
}

/** @param {Item} item */
const files = ({ partition, bbox, assets }) => canonicalText({ partition, bbox, assets: assets.map(({ path, sha256, media_type, roles }) => ({ path, sha256, media_type, roles })) });

/** Do two items hold the same files, whatever window they are labelled with? @param {Item} one @param {Item} other */
const sameContent = (one, other) => files(one) === files(other);

/** The files that a version has of one window of a source, item by item. @param {Manifest} manifest @param {string} sourceId @param {{start_ms: number, end_ms: number}} window */
export function filesOfWindow({ items }, sourceId, { start_ms, end_ms }) {
  return items.filter((item) => item.source_id === sourceId && item.window_start_ms === start_ms && item.window_end_ms === end_ms).map(files);
}

/** Do two versions show the same files of a source? @param {Manifest} one @param {Manifest} other @param {string} sourceId */
export function shows(one, other, sourceId) {
  const [mine, its] = [one, other].map(({ items }) => items.filter((item) => item.source_id === sourceId).map(files));
  return JSON.stringify(mine) === JSON.stringify(its);
}

/** @param {Item} item */
function unsigned({ run_state: _, ...item }) {
  return canonicalText(item);
}

/** @param {Item} item */
const slot = (item) => JSON.stringify([item.source_id, item.window_start_ms, item.window_end_ms, item.partition]);

/** One form for one meaning. @param {Item} item @param {any} dataset @returns {Item} */
function normal(item, dataset) {
  const bbox = item.bbox ?? (dataset.bbox ? dataset.bbox.map(decimalText) : null);
  return {
    ...item,
    id: itemId(item.source_id, { start_ms: item.window_start_ms, end_ms: item.window_end_ms }, item.partition),
    assets: [...item.assets].sort((a, b) => byPoints(a.path, b.path)),
    bbox,
  };
}

/** The shortest decimal that reads back as the same number, without exponent. @param {number} value */
export function decimalText(value) {
  const [mantissa = "", exponent] = pythonFloat(value).split("e");
  const sign = mantissa.startsWith("-") ? "-" : "";
  const [whole = "", decimals = ""] = mantissa.replace("-", "").split(".");
  const power = Number(exponent ?? 0);
  const digits = whole + decimals;
  const point = whole.length + power;
  let text;
  if (point <= 0) text = `0.${"0".repeat(-point)}${digits}`;
  else if (point >= digits.length) text = digits + "0".repeat(point - digits.length);
  else text = `${digits.slice(0, point)}.${digits.slice(point)}`;
  if (text.includes(".")) text = text.replace(/0+$/, "").replace(/\.$/, "");
  text = sign + text;
  return text === "-0" || text === "" ? "0" : text;
}

/** @param {Item[]} items */
function requireUnique(items) {
  const slots = new Map();
  for (const item of items) {
    if (slots.has(item.id)) throw new PathConflict(`${slotText(slots.get(item.id))} and ${slotText(item)} are both called ${item.id}.`);
    slots.set(item.id, item);
  }
}

/** A path has one owner, and is no folder of another one. @param {Item[]} kept @param {Item[]} fresh */
function requirePaths(kept, fresh) {
  const old = new Map(kept.flatMap((item) => item.assets.map(({ path }) => [path, item.id])));
  /** @type {Map<string, string>} */
  const owners = new Map();
  for (const item of fresh)
    for (const { path } of item.assets) {
      if (owners.has(path)) throw new PathConflict(`${path} belongs to ${owners.get(path)} and to ${item.id}.`);
      owners.set(path, item.id);
    }
  const [taken] = sortedByPoints([...owners.keys()].filter((path) => old.has(path)));
  if (taken !== undefined) throw new PathConflict(`${taken} belongs to ${old.get(taken)} and to ${owners.get(taken)}.`);
  const all = new Map([...old, ...owners]);
  const [folder] = sortedByPoints([...all.keys()].flatMap(foldersOf).filter((one) => all.has(one)));
  if (folder === undefined) return;
  const [path = ""] = sortedByPoints([...all.keys()].filter((one) => one.startsWith(`${folder}/`)));
  throw new PathConflict(`${folder} of ${all.get(folder)} is a folder of ${all.get(path)} (${path}).`);
}

/** @param {string} path */
const foldersOf = (path) => [...path.matchAll(/\//g)].map(({ index }) => path.slice(0, index));

/** @param {Item} item */
const slotText = (item) => `('${item.source_id}', ${item.window_start_ms}, ${item.window_end_ms}, ${item.partition === null ? "None" : `'${item.partition}'`})`;

// --- comparing -----------------------------------------------------------------------

/** @param {any} more */
const change = (more) => ({ kind: null, what: null, name: null, item_id: null, size_before: null, size_after: null, sha256_before: null, sha256_after: null, before: null, after: null, ...more });

/** Every difference, fields first, then items, then files by path. @param {Manifest | null} old @param {Manifest} fresh @returns {any[]} */
export function diff(old, fresh) {
  return [...fieldChanges(old, fresh), ...itemChanges(old, fresh), ...assetChanges(old, fresh)];
}

/** @param {Manifest | null} old @param {Manifest} fresh */
function* fieldChanges(old, fresh) {
  if (!old) return;
  for (const name of /** @type {("title" | "description" | "domain")[]} */ (["title", "description", "domain"]))
    if (old[name] !== fresh[name]) yield change({ kind: "changed", what: name, name, before: old[name], after: fresh[name] });
  if (JSON.stringify(old.keywords) !== JSON.stringify(fresh.keywords))
    yield change({ kind: "changed", what: "keywords", name: "keywords", before: old.keywords.join(", "), after: fresh.keywords.join(", ") });
  const [before, after] = [flatRights(old.rights), flatRights(fresh.rights)];
  for (const name of sortedByPoints(new Set([...before.keys(), ...after.keys()])))
    if (before.get(name) !== after.get(name)) yield change({ kind: "changed", what: "rights", name: `rights.${name}`, before: before.get(name) ?? null, after: after.get(name) ?? null });
}

/** @param {any} rights */
function flatRights(rights) {
  /** @type {Map<string, string>} */
  const flat = new Map();
  const walk = (/** @type {string} */ prefix, /** @type {any} */ node) => {
    for (const [key, value] of Object.entries(node)) {
      if (value && typeof value === "object") walk(`${prefix}${key}.`, value);
      else if (value !== null) flat.set(prefix + key, String(value));
    }
  };
  walk("", rights);
  return flat;
}

/** @param {Manifest | null} old @param {Manifest} fresh */
function* itemChanges(old, fresh) {
  const before = new Map((old?.items ?? []).map((item) => [item.id, item]));
  const after = new Map(fresh.items.map((item) => [item.id, item]));
  const bare = (/** @type {Item} */ item) => unsigned({ ...item, assets: [] });
  for (const name of sortedByPoints(new Set([...before.keys(), ...after.keys()]))) {
    const [was, now] = [before.get(name), after.get(name)];
    if (!was && now && !now.assets.length) yield change({ kind: "added", what: "item", name, item_id: name });
    else if (!now && was && !was.assets.length) yield change({ kind: "removed", what: "item", name, item_id: name });
    else if (was && now && bare(was) !== bare(now)) yield change({ kind: "changed", what: "item", name, item_id: name });
  }
}

/** @param {Manifest | null} old @param {Manifest} fresh */
function* assetChanges(old, fresh) {
  const [before, after] = changedSides(old, fresh);
  for (const name of sortedByPoints(new Set([...before.keys(), ...after.keys()]))) {
    const [was, now] = [before.get(name), after.get(name)];
    if (was && now && sameFile(was, now)) continue;
    yield change({
      kind: was && now ? "changed" : now ? "added" : "removed",
      what: "asset",
      name,
      item_id: (now ?? was)?.owner,
      size_before: was?.asset.size ?? null,
      size_after: now?.asset.size ?? null,
      sha256_before: was?.asset.sha256 ?? null,
      sha256_after: now?.asset.sha256 ?? null,
      before: detail(was, now),
      after: detail(now, was),
    });
  }
}

/** @typedef {{owner: string, asset: Asset}} Placed */

/** @param {Placed} one @param {Placed} other */
const sameFile = (one, other) => one.owner === other.owner && canonicalText(one.asset) === canonicalText(other.asset);

/** What differs beside the bytes, of one side. @param {Placed | undefined} one @param {Placed | undefined} other */
function detail(one, other) {
  if (!one || !other) return null;
  const parts = one.owner === other.owner ? [] : [`item ${one.owner}`];
  const { asset } = one;
  if (asset.media_type !== other.asset.media_type) parts.push(`media_type ${asset.media_type}`);
  if (asset.modified_ms !== other.asset.modified_ms) parts.push(`modified_ms ${asset.modified_ms ?? "None"}`);
  if (asset.source_uri !== other.asset.source_uri) parts.push(`source_uri ${asset.source_uri ?? "None"}`);
  if (JSON.stringify(asset.roles) !== JSON.stringify(other.asset.roles)) parts.push(`roles (${asset.roles.map((role) => `'${role}'`).join(", ")}${asset.roles.length === 1 ? "," : ""})`);
  return parts.join("; ") || null;
}

/** @param {Item[]} items @returns {Map<string, Placed>} */
function byPath(items) {
  return new Map(items.flatMap((item) => item.assets.map((asset) => [asset.path, { owner: item.id, asset }])));
}

/** The counts of files behind `diff`. Bytes that a file of another path had already are not new, as far as that one changed, too. @param {Manifest | null} old @param {Manifest} fresh */
export function tally(old, fresh) {
  const [before, after] = changedSides(old, fresh);
  const known = new Set([...before.values()].map(({ asset }) => asset.sha256));
  const fetched = new Map([...after.values()].filter(({ asset }) => !known.has(asset.sha256)).map(({ asset }) => [asset.sha256, asset.size]));
  const both = [...before.keys()].filter((path) => after.has(path));
  const changed = both.filter((path) => !sameFile(/** @type {Placed} */ (before.get(path)), /** @type {Placed} */ (after.get(path)))).length;
  const added = after.size - both.length;
  const [files, bytes] = folded(fresh.items.map(factsOf));
  return {
    added,
    changed,
    removed: before.size - both.length,
    unchanged: files - added - changed,
    bytes_new: [...fetched.values()].reduce((total, size) => total + size, 0),
    bytes_total: bytes,
  };
}

/** The files of the items that differ, before and after, by path. @param {Manifest | null} old @param {Manifest} fresh @returns {[Map<string, Placed>, Map<string, Placed>]} */
function changedSides(old, fresh) {
  const texts = (/** @type {Manifest | null} */ one) => new Map((one?.items ?? []).map((item) => [item.id, canonicalText(item)]));
  const [was, now] = [texts(old), texts(fresh)];
  const differs = (/** @type {Item} */ item) => was.get(item.id) !== now.get(item.id);
  return [byPath((old?.items ?? []).filter(differs)), byPath(fresh.items.filter(differs))];
}
