/** A data contract's document, whose every part knows its file and line. */

import { parseYaml } from "../config/document.mjs";
import { ConfigError, ContractError } from "../core/errors.mjs";
import { pythonFloat } from "../core/canonical.mjs";
import { Float } from "../core/json.mjs";
import { closest } from "../core/matching.mjs";
import { repr, sortedByPoints } from "../core/wording.mjs";

const BYTES_MAX = 1024 * 1024;

/** A number of the document, and how it is written. */
export class Figure {
  /** @param {number} value @param {boolean} isWhole */
  constructor(value, isWhole) {
    this.value = value;
    this.isWhole = isWhole;
  }

  toString() {
    return this.isWhole ? String(this.value) : pythonFloat(this.value);
  }
}

/** One value of the document, with the means to complain about it. */
export class Part {
  /** @param {any} value @param {import("../config/document.mjs").Document} document @param {number} line @param {string} path */
  constructor(value, document, line, path) {
    this.value = value;
    this.document = document;
    this.line = line;
    this.path = path;
  }

  /** @param {string} problem @param {number} [line] @returns {never} */
  fail(problem, line = this.line) {
    throw ContractError.at(this.document.name, line, `${this.path ? `${this.path} ` : ""}${problem}`);
  }

  /** Every key has to be a known word. @param {string[]} words */
  fields(words) {
    for (const key of Object.keys(this.#mapping())) if (!words.includes(key)) this.fail(`${repr(key)} is not a word of the standard${nearest(key, words)}`, this.#lineOf(key));
  }

  /** The member of that name; null if it is absent or null. @param {string} key @returns {Part | null} */
  get(key) {
    const value = this.#mapping()[key];
    if (value === null || value === undefined) return null;
    return new Part(value, this.document, this.#lineOf(key), this.path ? `${this.path}.${key}` : key);
  }

  /** @param {string} key @returns {Part} */
  need(key) {
    return this.get(key) ?? this.fail(`${key} is missing`);
  }

  /** @returns {Part[]} */
  parts() {
    if (!Array.isArray(this.value)) this.fail(`must be a list, not ${kindOf(this.value)}`);
    return this.value.map((/** @type {any} */ item, /** @type {number} */ index) => {
      const path = `${this.path}[${index}]`;
      return new Part(item, this.document, this.document.lines.get(path) ?? this.line, path);
    });
  }

  /** @returns {string} */
  text() {
    if (typeof this.value !== "string") this.fail(`must be text, not ${kindOf(this.value)}; put it in quotes`);
    if (!this.value.trim()) this.fail("must not be empty");
    return this.value;
  }

  /** @param {string[]} words */
  choice(words) {
    const text = this.text();
    if (!words.includes(text)) this.fail(`${repr(text)} is not one of ${words.join(", ")}${nearest(text, words)}`);
    return text;
  }

  /** @returns {Figure} */
  number() {
    if (this.value instanceof Float) return new Figure(this.value.value, false);
    if (typeof this.value !== "number") this.fail(`must be a number, not ${kindOf(this.value)}`);
    return new Figure(this.value, true);
  }

  /** @param {number} [minimum] */
  whole(minimum = 0) {
    const found = this.number();
    if (!found.isWhole || found.value < minimum) this.fail(`must be a whole number of at least ${minimum}`);
    return found.value;
  }

  /** @returns {boolean} */
  flag() {
    if (typeof this.value !== "boolean") this.fail(`must be true or false, not ${kindOf(this.value)}`);
    return this.value;
  }

  /** Text, number, flag or null. */
  scalar() {
    if (this.value !== null && typeof this.value === "object" && !(this.value instanceof Float)) this.fail(`must be one value, not ${kindOf(this.value)}`);
    return this.value;
  }

  /** @returns {Record<string, any>} */
  #mapping() {
    if (this.value === null || typeof this.value !== "object" || Array.isArray(this.value) || this.value instanceof Float) this.fail(`must be a mapping, not ${kindOf(this.value)}`);
    return this.value;
  }

  /** @param {string} key */
  #lineOf(key) {
    return this.document.lines.get(this.path ? `${this.path}.${key}` : key) ?? this.line;
  }
}

/** «; did you mean …?», or nothing. @param {string} word @param {string[]} words */
export function nearest(word, words) {
  const byLower = new Map(words.map((one) => [one.toLowerCase(), one]));
  const close = closest(word.toLowerCase(), byLower.keys());
  return close === null ? "" : `; did you mean ${repr(/** @type {string} */ (byLower.get(close)))}?`;
}

/** The extensions of ours in `customProperties`; others are none of our business. @param {Part} owner @param {string[]} known @returns {Map<string, Part>} */
export function customProperties(owner, known) {
  const found = new Map();
  for (const entry of owner.get("customProperties")?.parts() ?? []) {
    const name = entry.need("property").text();
    if (!name.startsWith("kfm")) continue;
    entry.need("property").choice(sortedByPoints(known));
    if (found.has(name)) entry.fail(`${name} stands here twice`);
    found.set(name, entry.need("value"));
  }
  return found;
}

/** @param {Buffer} data @param {string} name @returns {Promise<Part>} */
export async function readDocument(data, name) {
  if (data.length > BYTES_MAX) throw new ContractError(`${name}: larger than ${BYTES_MAX} bytes`);
  let document;
  try {
    document = await parseYaml(name, new TextDecoder("utf-8", { fatal: true }).decode(data));
  } catch (error) {
    if (error instanceof ConfigError) throw error.facts.problem ? ContractError.at(name, error.facts.line, error.facts.problem) : new ContractError(error.detail, error.facts);
    throw ContractError.at(name, 1, "it is not UTF-8 text");
  }
  const root = new Part(document.values, document, 1, "");
  root.fields(Object.keys(document.values ?? {}));
  return root;
}

/** @param {any} value */
function kindOf(value) {
  if (value === null) return "nothing";
  if (typeof value === "boolean") return "true or false";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "string") return "text";
  return typeof value === "number" || value instanceof Float ? "a number" : "a mapping";
}

