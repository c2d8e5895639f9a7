/** Paths and media types of discovered objects in the dataset. */

import { contract } from "../model/contracts.mjs";
import { ConfigError, LimitExceeded, PathConflict } from "../model/errors.mjs";
import { matchesName } from "../model/patterns.mjs";
import { render, safePath } from "../model/templates.mjs";
import { rfc3339 } from "../model/times.mjs";
import { partition, repr, rpartition, sortedByPoints } from "../model/wording.mjs";

/** @typedef {import("../types.js").Found} Found */
/** @typedef {import("../types.js").Window} Window */

const SHORTEST_DAY_MS = 23 * 3_600_000;
const UNKNOWN = "application/octet-stream";

/** @param {any} source @param {Window} window */
export function placeFields(source, window) {
  return { window, time_zone: source.time_zone, source: source.id, dataset: source.dataset, partition: source.partition };
}

/** The path by the source's template; without one, upstream's. @param {any} source @param {Window} window @param {string} relpath */
export function publishedPath(source, window, relpath) {
  const fields = { ...placeFields(source, window), name: rpartition(relpath, "/")[2], relpath };
  if (source.path !== null) return safePath(render(source.path, fields));
  if (source.mode === "replace") return safePath(relpath);
  const wholeDays = window.end_ms - window.start_ms >= SHORTEST_DAY_MS;
  const folder = wholeDays ? render("{window.start:date}", fields) : rfc3339(window.start_ms).replaceAll(":", "");
  return safePath(`${folder}/${relpath}`);
}

/** In the order of their paths, which must differ, and not too many. @param {string} sourceId @param {Iterable<Found>} found @param {any} limits @returns {Found[]} */
export function settled(sourceId, found, limits) {
  /** @type {Map<string, Found>} */
  const placed = new Map();
  for (const one of found) {
    const other = placed.get(one.path);
    if (other)
      throw new PathConflict(`Source \`${sourceId}\`: ${one.uri} and ${other.uri} would both be ${repr(one.path)}.`, { remedy: "Use {name} or {relpath} in the source's `path` template." });
    placed.set(one.path, one);
    if (placed.size > limits.objects_per_run_max) throw new LimitExceeded(`Source \`${sourceId}\` has more than ${limits.objects_per_run_max} objects (limits.objects_per_run_max).`);
    if (one.size !== null && one.size > limits.object_bytes_max) throw new LimitExceeded(`${one.uri} has ${one.size} bytes, more than limits.object_bytes_max.`);
  }
  return sortedByPoints(placed.keys()).map((path) => /** @type {Found} */ (placed.get(path)));
}

/** What the suffix says, else what the answer declared, else bytes. @param {string} name @param {string | null} [declared] */
export function mediaType(name, declared = null) {
  const suffix = name.includes(".") ? rpartition(name, ".")[2].toLowerCase() : "";
  const plain = partition(declared ?? "", ";")[0].trim().toLowerCase();
  const known = contract("tables/media.json").by_suffix;
  // eslint-disable-next-line no-control-regex
  return (Object.hasOwn(known, suffix) ? known[suffix] : null) ?? (plain.split("/").length === 2 && /^[\x00-\x7f]*$/.test(plain) ? plain : UNKNOWN);
}

/** A suffix for a resource whose address has none. @param {string | null} declared @returns {string} */
export function suffixFor(declared) {
  return contract("tables/media.json").suffixes[partition(declared ?? "", ";")[0].trim().toLowerCase()] ?? "";
}

/** Patterns for relative paths: `*`, `?`, `[…]` within a segment, `**` for any number of folders. */
export class Pattern {
  /** @param {string} pattern */
  constructor(pattern) {
    this.segments = pattern.split("/");
    if (this.segments.some((segment) => ["", ".", ".."].includes(segment)))
      throw new ConfigError(`The pattern ${repr(pattern)} must be relative, without empty segments, \`.\` or \`..\`.`);
  }

  /** @param {string} relpath */
  matches(relpath) {
    const names = relpath.split("/");
    let reached = [true, ...names.map(() => false)];
    for (const segment of this.segments) {
      if (segment === "**") for (let at = 0; at < names.length; at += 1) reached[at + 1] = /** @type {boolean} */ (reached[at + 1] || reached[at]);
      else {
        const before = reached;
        reached = [false, ...names.map((name, at) => /** @type {boolean} */ (before[at]) && matchesName(name, segment))];
      }
    }
    return reached.at(-1) === true;
  }
}
