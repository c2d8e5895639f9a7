/** The inputs hash of a step: equal hashes mean that there is nothing new to do. */

import { canonicalText, sha256Text, tagFloats } from "./canonical.mjs";
import { LimitExceeded, UnhashableInput } from "./errors.mjs";

const INPUTS_TAG = "inputs/1";
const INPUTS_MAX = 1_000_000;
const NAME_FIELDS = ["uri", "id"];
const CONTENT_FIELDS = ["checksum", "etag", "version", "commit", "md5", "last_modified", "modified_ms"];

/** The canonical document behind an inputs hash. @param {any[]} inputs @param {Record<string, any> | null} [params] */
export function inputsText(inputs, params) {
  if (inputs.length > INPUTS_MAX) throw new LimitExceeded(`More than ${INPUTS_MAX} inputs for one hash.`);
  const document = tagFloats({ params: params ?? {} });
  return canonicalText({ inputs: rows(inputs), kfm: INPUTS_TAG, ...document });
}

/** The fingerprint of what discovery found, as one hash. @param {import("../types.js").Found[]} found */
export function fingerprint(found) {
  return sha256Text(inputsText(found.map(sign)));
}

/** The strongest sign that an object has, and no weaker one beside it. @param {import("../types.js").Found} one @param {number} index */
function sign(one, index) {
  if (one.checksum) return { uri: one.uri, checksum: one.checksum };
  if (one.etag || one.version) return { uri: one.uri, size: one.size, etag: one.etag, version: one.version };
  if (one.modified_ms === null) {
    const field = `found[${index}]`;
    throw new UnhashableInput(`${field} (${one.uri}) has no checksum, etag, version or modification time.`, { field });
  }
  return { uri: one.uri, size: one.size, modified_ms: one.modified_ms };
}

/** @param {any[]} inputs */
function rows(inputs) {
  /** @type {Map<string, [string, any]>} */
  const byName = new Map();
  inputs.forEach((row, index) => {
    const here = `inputs[${index}]`;
    if (row === null || typeof row !== "object" || Array.isArray(row))
      throw new UnhashableInput(`${here} is a ${row === null ? "NoneType" : typeof row}, not a mapping or a record.`, { field: here });
    /** @type {Record<string, any>} */
    const present = Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null && value !== undefined));
    const name = NAME_FIELDS.filter((field) => field in present).map((field) => present[field])[0];
    if (typeof name !== "string" || !name) throw new UnhashableInput(`${here} has neither a uri nor an id.`, { field: here });
    if (!CONTENT_FIELDS.some((field) => present[field] !== undefined && present[field] !== ""))
      throw new UnhashableInput(`${here} (${name}) has nothing that identifies its content: ${CONTENT_FIELDS.join(", ")}.`, { field: here });
    const tagged = tagFloats({ inputs: [present] }).inputs[0];
    const text = canonicalText(tagged);
    const known = byName.get(name);
    if (known === undefined) byName.set(name, [text, tagged]);
    else if (known[0] !== text) throw new UnhashableInput(`${here} (${name}) stands twice, with different contents.`, { field: here });
  });
  return [...byName.keys()].sort((a, b) => (a < b ? -1 : 1)).map((name) => /** @type {[string, any]} */ (byName.get(name))[1]);
}
