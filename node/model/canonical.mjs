/** Canonical bytes: RFC 8785 over text, whole numbers within ±(2^53-1), true, false, null, lists and objects. */

import { createHash } from "node:crypto";
import canonicalize from "canonicalize";
import { MalformedJson, UnhashableInput } from "./errors.mjs";
import { Float, JsonProblem, Reader } from "./json.mjs";
import { repr } from "./wording.mjs";

export const FLOAT_TAG = "$float";
export const INT_MAX = Number.MAX_SAFE_INTEGER;
export const DEPTH_MAX = 100;
export const JSON_BYTES_MAX = 64 * 1024 * 1024;

/** @param {any} document @returns {string} Its canonical text. */
export function canonicalText(document) {
  requirePlain(document, [], 0);
  return /** @type {string} */ (/** @type {any} */ (canonicalize)(document));
}

/** @param {string | Uint8Array} data */
export function sha256Hex(data) {
  return createHash("sha256").update(data).digest("hex");
}

/** @param {string | Uint8Array} data */
export function sha256Text(data) {
  return `sha256:${sha256Hex(data)}`;
}

/** The canonical text with floats tagged. @param {any} document */
export function canonicalHashed(document) {
  return canonicalText(tagFloats(document));
}

/** A copy in which each float is `{"$float": "0.1"}`; whole ones are whole numbers. @param {any} document */
export function tagFloats(document) {
  return tagged(document, [], 0);
}

/** @param {any} value @param {(string | number)[]} path @param {number} depth @returns {any} */
function tagged(value, path, depth) {
  if (depth > DEPTH_MAX) refuse(path, `is nested deeper than ${DEPTH_MAX} levels`);
  if (value instanceof Float) {
    const number = value.value;
    if (!Number.isFinite(number)) refuse(path, `is ${pythonFloat(number)}, which no number is`);
    if (Number.isSafeInteger(number)) return number + 0;
    return { [FLOAT_TAG]: String(number) };
  }
  if (Array.isArray(value)) return value.map((child, index) => tagged(child, [...path, index], depth + 1));
  if (value !== null && typeof value === "object") {
    if (FLOAT_TAG in value) refuse([...path, FLOAT_TAG], "is a key that is kept for tagged floats");
    return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, tagged(child, [...path, key], depth + 1)]));
  }
  return value;
}

/** @param {any} value @param {(string | number)[]} path @param {number} depth */
function requirePlain(value, path, depth) {
  if (depth > DEPTH_MAX) refuse(path, `is nested deeper than ${DEPTH_MAX} levels`);
  if (value === null || typeof value === "boolean") return;
  if (typeof value === "string") {
    if (!value.isWellFormed()) refuse(path, "holds half of a surrogate pair");
  } else if (typeof value === "number") {
    if (!Number.isInteger(value)) refuse(path, `is the float ${pythonFloat(value)}, which was not tagged`);
    if (Math.abs(value) > INT_MAX) refuse(path, "is a whole number beyond ±(2^53-1)");
  } else if (typeof value === "bigint") refuse(path, "is a whole number beyond ±(2^53-1)");
  else if (value instanceof Float) refuse(path, `is the float ${pythonFloat(value.value)}, which was not tagged`);
  else if (Array.isArray(value)) for (let index = 0; index < value.length; index += 1) requirePlain(value[index], [...path, index], depth + 1);
  else if (typeof value === "object") {
    for (const [key, child] of Object.entries(value)) {
      if (!key.isWellFormed()) refuse(path, `has the key ${repr(key)}, which holds half of a surrogate pair`);
      requirePlain(child, [...path, key], depth + 1);
    }
  } else refuse(path, `is a ${typeof value}, which has no canonical form`);
}

/** A float as Python's repr prints it. @param {number} value */
export function pythonFloat(value) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value < 0 ? "-inf" : "inf";
  if (Object.is(value, -0)) return "-0.0";
  const text = String(value);
  const [mantissa, exponent] = text.split("e");
  if (exponent !== undefined) {
    const power = Number(exponent);
    if (power >= 16 || power < -4) {
      const sign = power < 0 ? "-" : "+";
      return `${mantissa}e${sign}${String(Math.abs(power)).padStart(2, "0")}`;
    }
    return text;
  }
  if (Math.abs(value) >= 1e16) return scientific(value);
  if (Math.abs(value) < 1e-4 && value !== 0) return scientific(value);
  return text.includes(".") ? text : `${text}.0`;
}

/** @param {number} value */
function scientific(value) {
  const [mantissa, exponent] = value.toExponential().split("e");
  const power = Number(exponent);
  return `${mantissa}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

/** @param {(string | number)[]} path @param {string} problem @returns {never} */
function refuse(path, problem) {
  const field = pathText(path);
  throw new UnhashableInput(`${field} ${problem}.`, { field });
}

/** @param {(string | number)[]} path */
export function pathText(path) {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else if (/^[A-Za-z_][A-Za-z0-9_-]*$/.test(step)) text += text ? `.${step}` : step;
    else text += `[${JSON.stringify(step)}]`;
  }
  return text || "(the whole document)";
}

/** Read JSON and refuse what readers disagree about. @param {Uint8Array} data @param {number} [bytesMax] @returns {any} */
export function strictLoads(data, bytesMax = JSON_BYTES_MAX) {
  if (data.length > bytesMax) throw new MalformedJson(`It has ${data.length} bytes; the limit is ${bytesMax}.`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new MalformedJson(`Byte ${firstBad(data)} is not UTF-8.`);
  }
  if (text.startsWith("\ufeff")) throw new MalformedJson("Expecting value at line 1, column 1.");
  const reader = new Reader(text, {
    depthMax: 900,
    onTwice: (key) => {
      throw new MalformedJson(`The key ${repr(key)} stands twice in one object.`);
    },
    constants: (word) => {
      throw new MalformedJson(`${word} is not a number.`);
    },
    whole: (digits) => {
      const value = Number(digits);
      if (digits.length > 17 || !Number.isSafeInteger(value)) throw new MalformedJson(`The whole number ${digits.slice(0, 32)} is beyond ±(2^53-1).`);
      return value + 0;
    },
    float: (digits) => {
      const value = Number(digits);
      if (!Number.isFinite(value)) throw new MalformedJson(`The number ${digits.slice(0, 32)} is too large.`);
      return new Float(value);
    },
  });
  let document;
  try {
    document = reader.whole();
  } catch (error) {
    if (error instanceof RangeError) throw new MalformedJson(`It is nested deeper than ${DEPTH_MAX} levels.`);
    if (!(error instanceof JsonProblem)) throw error;
    const before = text.slice(0, error.at);
    const line = before.split("\n").length;
    throw new MalformedJson(`${error.msg} at line ${line}, column ${error.at - before.lastIndexOf("\n")}.`);
  }
  if (depthOf(document) > DEPTH_MAX) throw new MalformedJson(`It is nested deeper than ${DEPTH_MAX} levels, or far too large.`);
  if (text.includes("\\u") && !JSON.stringify(document, (_k, v) => (v instanceof Float ? v.value : v)).replace(/\\u[dD][89abAB]|\\u[dD][c-fC-F]/g, "\ud800").isWellFormed())
    throw new MalformedJson("It holds half of a surrogate pair.");
  return document;
}

/** @param {any} value @returns {number} */
function depthOf(value) {
  if (value === null || typeof value !== "object" || value instanceof Float) return 0;
  let deepest = 0;
  for (const child of Array.isArray(value) ? value : Object.values(value)) deepest = Math.max(deepest, depthOf(child));
  return deepest + 1;
}

/** @param {Uint8Array} data */
function firstBad(data) {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  for (let end = 1; end <= data.length; end += 1) {
    try {
      decoder.decode(data.subarray(0, end), { stream: true });
    } catch {
      return Math.max(0, end - 1);
    }
  }
  return data.length - 1;
}
