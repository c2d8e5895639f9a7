/** How text and typed values become values that can be compared. Strict on purpose. */

import { isIPv4, isIPv6 } from "node:net";
import { pythonFloat } from "../../model/canonical.mjs";
import { Float } from "../../model/json.mjs";
import { calendarMs, compatible } from "../../model/times.mjs";
import { length, repr, sortedByPoints } from "../../model/wording.mjs";
import { Expression } from "./expressions.mjs";

/** @typedef {{fromText: (text: string) => any, fromTyped: (value: any) => any}} Parser */

const INTEGER = /^[+-]?\d{1,1000}$/;
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?$/;
const CLOCK = "(\\d{2}):(\\d{2})(?::(\\d{2})(?:\\.(\\d{1,9}))?)?(Z|[+-]\\d{2}:?\\d{2})?";
const TIMESTAMP = new RegExp(`^(\\d{4})-(\\d{2})-(\\d{2})[T ]${CLOCK}$`);
const TIME = new RegExp(`^${CLOCK}$`);
const FLOAT32_MAX = 3.4028234663852886e38;
const PATTERN_CHARS_MAX = 10_000;

/** The value is not of its type; the text completes «… is». */
export class ParseError extends Error {}

/** A date or an instant. */
export class Moment {
  /** @param {"date" | "timestamp"} kind @param {bigint} us microseconds since 1970 */
  constructor(kind, us) {
    this.kind = kind;
    this.us = us;
  }

  valueOf() {
    return this.us;
  }
}

/** @param {any} prop @returns {Parser} */
export function parserFor(prop) {
  const same = (/** @type {any} */ value) => value;
  switch (prop.logicalType) {
    case null:
      return { fromText: same, fromTyped: same };
    case "string":
      return { fromText: same, fromTyped: (value) => (typeof value === "string" ? value : wrong("not text")) };
    case "boolean":
      return {
        fromText: (text) => (/^(?:true|false)$/i.test(text) ? text.toLowerCase() === "true" : wrong("not true or false")),
        fromTyped: (value) => (typeof value === "boolean" ? value : wrong("not true or false")),
      };
    case "integer":
      return integerParser(prop);
    case "number":
      return numberParser(prop);
    case "object":
      return objectParser(prop);
    case "array":
      return arrayParser(prop);
    default:
      return momentParser(prop);
  }
}

/** @param {string} problem @returns {never} */
function wrong(problem) {
  throw new ParseError(problem);
}

/** @param {string} text @returns {number | bigint} */
function wholeOf(text) {
  const value = BigInt(text.replace(/^\+/, ""));
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/** @param {any} prop @returns {Parser} */
function integerParser(prop) {
  let [low, high] = /** @type {(bigint | null)[]} */ ([null, null]);
  if (prop.format) {
    const bits = BigInt(prop.format.slice(1));
    [low, high] = prop.format[0] === "u" ? [0n, 2n ** bits - 1n] : [-(2n ** (bits - 1n)), 2n ** (bits - 1n) - 1n];
  }
  const checked = (/** @type {any} */ value) => ((low !== null && low !== undefined && value < low) || (high !== null && high !== undefined && value > high) ? wrong(`not within ${prop.format}`) : value);
  return {
    fromText: (text) => (INTEGER.test(text) ? checked(wholeOf(text)) : wrong("not an integer")),
    fromTyped: (value) => (typeof value === "number" || typeof value === "bigint" ? checked(value) : wrong("not an integer")),
  };
}

/** @param {any} prop @returns {Parser} */
function numberParser(prop) {
  const highest = prop.format === "f32" ? FLOAT32_MAX : Infinity;
  const checked = (/** @type {any} */ value) => (!(-highest <= value && value <= highest) || (typeof value === "number" && !Number.isFinite(value)) ? wrong("not a finite number") : value);
  return {
    fromText: (text) => {
      if (text.length > 1000 || !NUMBER.test(text)) wrong("not a number");
      return checked(INTEGER.test(text) ? wholeOf(text) : Number(text));
    },
    fromTyped: (value) => {
      if (value instanceof Float) return checked(value.value);
      return typeof value === "number" || typeof value === "bigint" ? checked(value) : wrong("not a number");
    },
  };
}

// --- dates and times -------------------------------------------------------------------

const DATE_FIELDS = /** @type {Record<string, [string, string]>} */ ({
  yyyy: ["year", "\\d{4}"], uuuu: ["year", "\\d{4}"], MM: ["month", "\\d{2}"], dd: ["day", "\\d{2}"], HH: ["hour", "\\d{2}"],
  mm: ["minute", "\\d{2}"], ss: ["second", "\\d{2}"], XXX: ["offset", "Z|[+-]\\d{2}:\\d{2}"], XX: ["offset", "Z|[+-]\\d{4}"],
  xx: ["offset", "[+-]\\d{4}"], xxx: ["offset", "[+-]\\d{2}:\\d{2}"],
});

/** A JDK pattern such as `yyyy-MM-dd'T'HH:mm:ssXXX` as an expression; Error if unsupported. @param {string} pattern */
export function datePattern(pattern) {
  let out = "";
  const fields = new Set();
  let position = 0;
  const quoted = (/** @type {string} */ text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
  for (const token of pattern.matchAll(/'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+/g)) {
    if (token.index !== position) throw new Error("a quote is not closed");
    position = token.index + token[0].length;
    const text = token[0];
    if (text.startsWith("'")) out += quoted(/** @type {string} */ (token[1]).replaceAll("''", "'") || "'");
    else if (/[A-Za-z]/.test(text)) {
      const field = /^S+$/.test(text) ? /** @type {[string, string]} */ (["fraction", `\\d{${text.length}}`]) : DATE_FIELDS[text];
      if (!field) throw new Error(`${repr(text)} is not supported; use yyyy MM dd HH mm ss SSS XXX`);
      if (fields.has(field[0])) throw new Error(`${repr(text)} stands there twice`);
      fields.add(field[0]);
      out += `(?<${field[0]}>${field[1]})`;
    } else out += quoted(text);
  }
  if (position !== pattern.length) throw new Error("a quote is not closed");
  return new RegExp(`^${out}$`);
}

/** Microseconds since 1970 of a local time; null if there is none. @param {Record<string, any>} found @param {string} zone @returns {bigint | null} */
function instantOf({ year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0, fraction = "0", offset }, zone) {
  const local = calendarMs(Number(year), Number(month), Number(day), Number(hour), Number(minute), Number(second));
  if (local === null) return null;
  const micros = BigInt(String(fraction).slice(0, 6).padEnd(6, "0"));
  if (offset === undefined) return BigInt(compatible(zone, local)) * 1000n + micros;
  if (offset === "Z") return BigInt(local) * 1000n + micros;
  const [hours, minutes] = [Number(offset.slice(1, 3)), Number(offset.slice(-2))];
  if (hours > 23 || minutes > 59) return null;
  const shift = (hours * 60 + minutes) * 60_000 * (offset[0] === "-" ? -1 : 1);
  return BigInt(local - shift) * 1000n + micros;
}

/** Of a match's own fields, only those that are there. @param {Record<string, any>} given */
const present = (given) => Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));

/** @param {any} prop @returns {Parser} */
function momentParser(prop) {
  const kind = prop.logicalType;
  const zone = ["UTC", "Etc/UTC"].includes(prop.defaultTimezone) ? "UTC" : prop.defaultTimezone;
  const pattern = prop.format ? datePattern(kind === "time" ? `yyyy-MM-dd'T'${prop.format}` : prop.format) : null;
  const fromText = (/** @type {string} */ text) => (kind === "date" ? dateOf(text) : kind === "time" ? timeOf(text) : timestampOf(text));
  const byPattern = (/** @type {string} */ text) => {
    const match = /** @type {RegExp} */ (pattern).exec(text);
    if (!match) return wrong(`not a ${kind} like ${prop.format}`);
    const fields = present(match.groups ?? {});
    const us = instantOf("hour" in fields ? fields : { ...fields, minute: 0, second: 0, fraction: "0", offset: "Z" }, zone);
    return us === null ? wrong("not a time of the calendar") : { us, fields };
  };
  const dateOf = (/** @type {string} */ text) => {
    if (pattern) {
      const { fields } = byPattern(text);
      return new Moment("date", /** @type {bigint} */ (instantOf({ year: fields.year, month: fields.month, day: fields.day, offset: "Z" }, "UTC")));
    }
    const match = /^(\d{4})-(\d{2})-(\d{2})$/.exec(text);
    if (!match) return wrong("not a date like 2026-01-31");
    const us = instantOf({ year: match[1], month: match[2], day: match[3], offset: "Z" }, "UTC");
    return us === null ? wrong("not a date of the calendar") : new Moment("date", us);
  };
  const timestampOf = (/** @type {string} */ text) => {
    if (pattern) {
      const { us, fields } = byPattern(text);
      return new Moment("timestamp", "hour" in fields ? us : /** @type {bigint} */ (instantOf({ year: fields.year, month: fields.month, day: fields.day }, zone)));
    }
    const match = TIMESTAMP.exec(text);
    if (!match) return wrong("not a timestamp like 2026-01-31T06:00:00Z");
    const [, year, month, day, hour, minute, second, fraction, offset] = match;
    checkOffset(prop, offset);
    const us = instantOf(present({ year, month, day, hour, minute, second, fraction, offset }), zone);
    return us === null ? wrong("not a time of the calendar") : new Moment("timestamp", us);
  };
  const timeOf = (/** @type {string} */ text) => {
    // A day is put before it, so that one function reads all patterns.
    if (pattern) return Number(byPattern(`1970-01-02T${text}`).us - 86_400_000_000n);
    const match = TIME.exec(text);
    if (!match) return wrong("not a time like 06:00:00");
    const [, hour, minute, second, fraction, offset] = match;
    checkOffset(prop, offset);
    const us = instantOf(present({ day: 2, hour, minute, second, fraction, offset: offset ?? "Z" }), "UTC");
    return us === null ? wrong("not a time of the day") : Number(us - 86_400_000_000n);
  };
  return { fromText, fromTyped: (value) => (typeof value === "string" ? fromText(value) : wrong(`not a ${kind}`)) };
}

/** @param {any} prop @param {string | undefined} offset */
function checkOffset(prop, offset) {
  if (prop.timezone === true && offset === undefined) wrong("without a time zone offset");
  if (prop.timezone === false && offset !== undefined) wrong("with a time zone offset, which is not allowed");
}

// --- objects and arrays ------------------------------------------------------------------

/** @param {any} value */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Float);

/** @param {any} prop @returns {Parser} */
function objectParser(prop) {
  const members = prop.properties.map((/** @type {any} */ member) => [member, innerCheck(member)]);
  const needed = new Set([...prop.properties.filter((/** @type {any} */ one) => one.required).map((/** @type {any} */ one) => one.column), ...prop.requiredMembers]);
  return {
    fromText: () => wrong("text, not an object"),
    fromTyped: (value) => {
      if (!isObject(value)) wrong("not an object");
      for (const name of needed) if (value[name] === null || value[name] === undefined) wrong(`without its member ${repr(name)}`);
      for (const [member, check] of members) if (value[member.column] !== null && value[member.column] !== undefined) check(value[member.column]);
      return value;
    },
  };
}

/** @param {any} prop @returns {Parser} */
function arrayParser(prop) {
  const check = prop.items ? innerCheck(prop.items) : null;
  return {
    fromText: () => wrong("text, not an array"),
    fromTyped: (value) => {
      if (!Array.isArray(value)) wrong("not an array");
      if (check) for (const inner of value) if (inner !== null || prop.items.required) check(inner);
      if (prop.uniqueItems && new Set(value.map(keyOf)).size !== value.length) wrong("an array with equal items");
      return value;
    },
  };
}

/** The check of one member of an object, or of one item of an array. @param {any} member */
function innerCheck(member) {
  const parser = parserFor(member);
  const tests = valueTests(member);
  return (/** @type {any} */ value) => {
    let parsed;
    try {
      parsed = parser.fromTyped(value);
    } catch (error) {
      if (!(error instanceof ParseError)) throw error;
      wrong(`of the wrong kind: its ${member.name} is ${error.message}`);
    }
    for (const test of tests) if (!test.admits(parsed)) wrong(`of the wrong kind: its ${member.name} ${test.complaint}`);
  };
}

/** Text that is equal exactly if the values are: what uniqueness compares. @param {any} value @returns {string} */
export function keyOf(value) {
  if (typeof value === "string") return `s${value}`;
  if (typeof value === "boolean") return value ? "t" : "f";
  const number = value instanceof Float ? value.value : value;
  if (typeof number === "bigint") return `n${number}`;
  if (typeof number === "number") return `n${Number.isInteger(number) && Math.abs(number) < 1e300 ? BigInt(number) : pythonFloat(number)}`;
  if (value instanceof Moment) return `${value.kind === "date" ? "d" : "i"}${value.us}`;
  return `j${sortedJson(value)}`;
}

/** @param {any} value @returns {string} */
function sortedJson(value) {
  if (value instanceof Float) return pythonFloat(value.value);
  if (Array.isArray(value)) return `[${value.map(sortedJson).join(", ")}]`;
  if (value && typeof value === "object") return `{${sortedByPoints(Object.keys(value)).map((key) => `${JSON.stringify(key)}: ${sortedJson(value[key])}`).join(", ")}}`;
  return typeof value === "bigint" ? String(value) : JSON.stringify(value);
}

// --- what a parsed value has to satisfy ----------------------------------------------------

/** @typedef {{name: string, admits: (value: any) => boolean, complaint: string}} Test */

const LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
const STRING_FORMATS = /** @type {Record<string, (text: string) => boolean>} */ ({
  uuid: (text) => /^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/.test(text),
  email: (text) => length(text) <= 2048 && /^[^@\s]{1,64}@[^@\s.]+(?:\.[^@\s.]+)+$/u.test(text),
  hostname: (text) => new RegExp(`^(?=.{1,253}$)${LABEL}(?:\\.${LABEL})*$`).test(text),
  uri: (text) => length(text) <= 2048 && /^[A-Za-z][A-Za-z0-9+.-]*:[^\s]+$/.test(text),
  ipv4: isIPv4,
  ipv6: isIPv6,
});

/** @param {any} prop @returns {Test[]} */
export function valueTests(prop) {
  /** @type {Test[]} */
  const tests = [];
  if (prop.bounds) tests.push({ name: "range", admits: (value) => within(prop.bounds, value), complaint: "is out of range" });
  if (prop.length) tests.push({ name: "length", admits: (value) => within(prop.length, sizeOf(value)), complaint: "has the wrong length" });
  if (prop.pattern !== null) tests.push({ name: "pattern", admits: matcher(prop.pattern), complaint: "does not match the pattern" });
  const known = prop.logicalType === "string" && prop.format ? STRING_FORMATS[prop.format] : undefined;
  if (known) tests.push({ name: "format", admits: known, complaint: `is not a ${prop.format}` });
  if (prop.enum) tests.push({ name: "values", admits: oneOf(prop.enum, prop), complaint: "is not one of the listed values" });
  return tests;
}

/** @param {any} value */
function sizeOf(value) {
  if (typeof value === "string") return length(value);
  return Array.isArray(value) ? value.length : Object.keys(value).length;
}

/** @param {any} bounds @param {any} value */
function within(bounds, value) {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = bounds;
  return (
    (minimum === undefined || value >= minimum) &&
    (maximum === undefined || value <= maximum) &&
    (exclusiveMinimum === undefined || value > exclusiveMinimum) &&
    (exclusiveMaximum === undefined || value < exclusiveMaximum) &&
    (multipleOf === undefined || isMultiple(value, multipleOf))
  );
}

/** @param {number | bigint} value @param {number} step */
function isMultiple(value, step) {
  if (Number.isInteger(step) && (typeof value === "bigint" || Number.isInteger(value))) return BigInt(value) % BigInt(step) === 0n;
  const ratio = Number(value) / step;
  return Number.isFinite(ratio) && Math.abs(ratio - Math.round(ratio)) <= 1e-9 * Math.max(1, Math.abs(ratio));
}

/** @param {string} pattern */
export function matcher(pattern) {
  const found = new Expression(pattern);
  return (/** @type {any} */ value) => {
    const text = typeof value === "string" ? value : String(value);
    return length(text) <= PATTERN_CHARS_MAX && found.matches(text);
  };
}

/** In a CSV file `1` is text, in a contract it is a number: both spellings count. @param {any[]} values @param {any} [prop] */
export function oneOf(values, prop) {
  const keys = new Set(values.map(keyOf));
  const texts = new Set(values.filter((value) => value !== null && typeof value !== "boolean").map((value) => (value instanceof Float ? pythonFloat(value.value) : String(value))));
  if (prop?.logicalType) {
    const parser = parserFor(prop);
    for (const value of values) {
      try {
        keys.add(keyOf(typeof value === "string" ? parser.fromText(value) : parser.fromTyped(value)));
      } catch (error) {
        if (!(error instanceof ParseError)) throw error;
      }
    }
  }
  return (/** @type {any} */ value) => keys.has(keyOf(value)) || (typeof value === "string" && texts.has(value));
}
