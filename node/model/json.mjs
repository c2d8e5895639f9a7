/**
 * JSON as Python reads it: a number with a fraction or an exponent is a float, any other is whole, however large.
 *
 * JavaScript has one kind of number, so a float is kept in a `Float` and a whole number beyond ±(2^53-1) is a bigint.
 */

export class Float {
  /** @param {number} value */
  constructor(value) {
    this.value = value;
  }

  toJSON() {
    return this.value;
  }
}

export class JsonProblem extends Error {
  /** @param {string} msg @param {number} at @param {"unterminated" | "malformed"} [code] */
  constructor(msg, at, code = "malformed") {
    super(msg);
    this.code = code;
    this.msg = msg;
    this.at = at;
  }
}

/** @typedef {{depthMax?: number, onTwice?: (key: string) => never, constants?: (word: string, at: number) => never, whole?: (text: string) => any, float?: (text: string) => any}} Rules */

const BLANK = /[ \t\n\r]*/y;
const NUMBER = /(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const PLAIN = /[^"\\\x00-\x1f]*/y;
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

/** @param {string} text */
export function wholeNumber(text) {
  const value = Number(text);
  return Number.isSafeInteger(value) ? value + 0 : BigInt(text);
}

/** Reads one value after the other from a text; complains in the words of Python's decoder. */
export class Reader {
  /** @param {string} text @param {Rules} [rules] */
  constructor(text, rules = {}) {
    this.text = text;
    this.rules = rules;
  }

  /** @param {number} at */
  skip(at) {
    BLANK.lastIndex = at;
    BLANK.test(this.text);
    return BLANK.lastIndex;
  }

  /** @param {number} at @param {number} [depth] @returns {[any, number]} the value and where it ends */
  value(at, depth = 0) {
    const char = this.text[at];
    if (depth > (this.rules.depthMax ?? 990)) throw new RangeError("nested too deeply");
    if (char === '"') return this.string(at + 1);
    if (char === "{") return this.object(at + 1, depth);
    if (char === "[") return this.array(at + 1, depth);
    if (char === "n" && this.text.startsWith("null", at)) return [null, at + 4];
    if (char === "t" && this.text.startsWith("true", at)) return [true, at + 4];
    if (char === "f" && this.text.startsWith("false", at)) return [false, at + 5];
    NUMBER.lastIndex = at;
    const found = NUMBER.exec(this.text);
    if (found) return [this.number(found), NUMBER.lastIndex];
    for (const word of ["NaN", "Infinity", "-Infinity"]) {
      if (this.text.startsWith(word, at)) {
        if (this.rules.constants) this.rules.constants(word, at);
        throw new JsonProblem(`${word} is not JSON`, -1);
      }
    }
    throw new JsonProblem("Expecting value", at);
  }

  /** @param {RegExpExecArray} found */
  number(found) {
    const text = found[0];
    if (found[2] !== undefined || found[3] !== undefined) return this.rules.float ? this.rules.float(text) : new Float(Number(text));
    return this.rules.whole ? this.rules.whole(text) : wholeNumber(text);
  }

  /** @param {number} at @returns {[string, number]} */
  string(at) {
    const begin = at - 1;
    let out = "";
    for (;;) {
      PLAIN.lastIndex = at;
      PLAIN.test(this.text);
      const end = PLAIN.lastIndex;
      out += this.text.slice(at, end);
      const char = this.text[end];
      if (char === undefined) throw new JsonProblem("Unterminated string starting at", begin, "unterminated");
      if (char === '"') return [out, end + 1];
      if (char !== "\\") throw new JsonProblem("Invalid control character at", end);
      const escape = this.text[end + 1];
      if (escape === undefined) throw new JsonProblem("Unterminated string starting at", begin, "unterminated");
      if (escape === "u") {
        const digits = this.text.slice(end + 2, end + 6);
        if (!/^[0-9a-fA-F]{4}$/.test(digits)) throw new JsonProblem("Invalid \\uXXXX escape", end + 1);
        out += String.fromCharCode(Number.parseInt(digits, 16));
        at = end + 6;
      } else {
        const plain = /** @type {Record<string, string>} */ (ESCAPES)[escape];
        if (plain === undefined) throw new JsonProblem("Invalid \\escape", end);
        out += plain;
        at = end + 2;
      }
    }
  }

  /** @param {number} at @param {number} depth @returns {[Record<string, any>, number]} */
  object(at, depth) {
    /** @type {Record<string, any>} */
    const found = Object.create(null);
    at = this.skip(at);
    if (this.text[at] === "}") return [found, at + 1];
    if (this.text[at] !== '"') throw new JsonProblem("Expecting property name enclosed in double quotes", at);
    for (;;) {
      const [key, afterKey] = this.string(at + 1);
      at = this.skip(afterKey);
      if (this.text[at] !== ":") throw new JsonProblem("Expecting ':' delimiter", at);
      const [value, afterValue] = this.value(this.skip(at + 1), depth + 1);
      if (key in found) {
        if (this.rules.onTwice) this.rules.onTwice(key);
        throw new JsonProblem("a member stands twice in one object", -1);
      }
      found[key] = value;
      at = this.skip(afterValue);
      if (this.text[at] === "}") return [found, at + 1];
      if (this.text[at] !== ",") throw new JsonProblem("Expecting ',' delimiter", at);
      at = this.skip(at + 1);
      if (this.text[at] !== '"') throw new JsonProblem("Expecting property name enclosed in double quotes", at);
    }
  }

  /** @param {number} at @param {number} depth @returns {[any[], number]} */
  array(at, depth) {
    /** @type {any[]} */
    const found = [];
    at = this.skip(at);
    if (this.text[at] === "]") return [found, at + 1];
    for (;;) {
      const [value, after] = this.value(at, depth + 1);
      found.push(value);
      at = this.skip(after);
      if (this.text[at] === "]") return [found, at + 1];
      if (this.text[at] !== ",") throw new JsonProblem("Expecting ',' delimiter", at);
      at = this.skip(at + 1);
    }
  }

  /** The whole text as one value. */
  whole() {
    const [value, after] = this.value(this.skip(0));
    const end = this.skip(after);
    if (end !== this.text.length) throw new JsonProblem("Extra data", end);
    return value;
  }
}

// --- values of people's own code ---------------------------------------------------------

/** @param {any} value @returns {any} */
export function fromPlain(value) {
  if (typeof value === "number") return Number.isInteger(value) ? value + 0 : new Float(value);
  if (Array.isArray(value)) return value.map(fromPlain);
  if (value && typeof value === "object" && !(value instanceof Float)) return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, fromPlain(each)]));
  return value === undefined ? null : value;
}
