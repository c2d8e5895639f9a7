/** All checks of one schema object over its files, with counters in bounded memory. */

import { createHash } from "node:crypto";
import { counted, head, isPrintable, utcText } from "../../model/wording.mjs";
import { Reader, Writer } from "../../objects/files.mjs";
import { namelessFile } from "../../objects/scratch.mjs";
import { MISSING, RowReader } from "./rows.mjs";
import { FileProblem } from "./streams.mjs";
import { ParseError, keyOf, matcher, oneOf, parserFor, valueTests } from "./values.mjs";

// --- counters ----------------------------------------------------------------------------

export const SAMPLES_MAX = 5;
const UNIQUE_IN_MEMORY_MAX = 500_000;
const BUCKETS = 64;
const DIGEST_BYTES = 16;

/** A count with a bounded memory of where. */
export class Tally {
  constructor() {
    this.count = 0;
    /** @type {string[]} */
    this.places = [];
  }

  /** @param {string} place */
  add(place) {
    this.count += 1;
    if (this.places.length < SAMPLES_MAX) this.places.push(place);
  }

  /** «: line 7, line 9, and 12 more», or nothing. */
  where() {
    if (!this.places.length) return "";
    const more = this.count - this.places.length;
    return `: ${this.places.join(", ")}${more ? ` and ${more} more` : ""}`;
  }
}

/** Which values came before, in bounded memory: past the bound hashes go to nameless files. */
export class Distinct {
  constructor() {
    /** @type {Set<string>} */
    this.seen = new Set();
    /** @type {Writer[]} */
    this.buckets = [];
    this.row = 0;
    this.tally = new Tally();
  }

  /** @param {string} key @param {string} place */
  add(key, place) {
    const digest = createHash("sha256").update(key).digest().subarray(0, DIGEST_BYTES);
    this.row += 1;
    if (this.buckets.length) return this.#spill(digest, this.row);
    const text = digest.toString("latin1");
    if (this.seen.has(text)) return this.tally.add(place);
    this.seen.add(text);
    if (this.seen.size > UNIQUE_IN_MEMORY_MAX) {
      this.buckets = Array.from({ length: BUCKETS }, () => new Writer(namelessFile()));
      for (const known of this.seen) this.#spill(Buffer.from(known, "latin1"), 0);
      this.seen = new Set();
    }
    return undefined;
  }

  /** @param {Buffer} digest @param {number} row */
  #spill(digest, row) {
    const record = Buffer.alloc(DIGEST_BYTES + 8);
    digest.copy(record);
    record.writeBigUInt64BE(BigInt(row), DIGEST_BYTES);
    /** @type {Writer} */ (this.buckets[/** @type {number} */ (digest[0]) % BUCKETS]).write(record);
  }

  /** The rows that repeat an earlier value. */
  duplicates() {
    let count = 0;
    /** @type {number[]} */
    let found = [];
    for (const bucket of this.buckets) {
      const reader = new Reader(bucket.descriptor, false);
      const seen = new Set();
      for (let record = reader.read(DIGEST_BYTES + 8); record.length; record = reader.read(DIGEST_BYTES + 8)) {
        const digest = record.subarray(0, DIGEST_BYTES).toString("latin1");
        if (seen.has(digest)) {
          count += 1;
          found = [...found, Number(record.readBigUInt64BE(DIGEST_BYTES))].sort((a, b) => a - b).slice(0, SAMPLES_MAX);
        }
        seen.add(digest);
      }
    }
    this.close();
    for (const row of found) this.tally.add(`row ${row}`);
    this.tally.count += count - found.length;
    return this.tally;
  }

  close() {
    for (const bucket of this.buckets) bucket.close();
    this.buckets = [];
  }
}

// --- checks ------------------------------------------------------------------------------

/** @typedef {import("../../types.js").Check} Check */

const NAMES_MAX = 1000;
const VALUE_CHARS_MAX = 60;
const GEO_CHECKS = ["structure", "positions", "rings", "bbox", "crs", "null", "winding"];

/** What was noticed about the files of one schema object, apart from single values. */
class Findings {
  constructor() {
    this.unreadable = new Tally();
    /** @type {string[]} */
    this.problems = [];
    this.ragged = new Tally();
    /** @type {Map<string, Tally>} */
    this.lacking = new Map();
    /** @type {Set<string>} */
    this.extra = new Set();
    this.geometry = new Map(GEO_CHECKS.map((name) => [name, { tally: new Tally(), problems: new Set() }]));
    this.rows = 0;
  }

  /** @param {string} path @param {string} problem */
  cannotRead(path, problem) {
    this.unreadable.add(path);
    if (this.problems.length < SAMPLES_MAX) this.problems.push(`${path} ${problem}`);
  }

  /** @param {string} name @param {string} path */
  lacksColumn(name, path) {
    const tally = this.lacking.get(name) ?? new Tally();
    this.lacking.set(name, tally);
    tally.add(path);
  }

  /** @param {string} name */
  extraColumn(name) {
    if (this.extra.size < NAMES_MAX) this.extra.add(name);
  }

  /** @param {string} check @param {string} place @param {string} problem */
  geo(check, place, problem) {
    const found = this.geometry.get(check);
    found?.tally.add(place);
    found?.problems.add(problem);
  }

  extraNames() {
    const shown = [...this.extra].slice(0, SAMPLES_MAX).map(printable);
    const more = this.extra.size - shown.length;
    return shown.join(", ") + (more ? ` and ${more} more` : "");
  }
}

/** Short, on one line, without control characters. @param {string} value */
function printable(value) {
  const escape = (/** @type {string} */ char) => {
    const point = /** @type {number} */ (char.codePointAt(0));
    const named = /** @type {Record<string, string>} */ ({ "\n": "\\n", "\r": "\\r", "\t": "\\t" })[char];
    if (named) return named;
    return point < 256 ? `\\x${point.toString(16).padStart(2, "0")}` : point < 65536 ? `\\u${point.toString(16).padStart(4, "0")}` : `\\U${point.toString(16).padStart(8, "0")}`;
  };
  const shown = `'${Array.from(head(value, VALUE_CHARS_MAX + 1), (char) => (isPrintable(char) ? char : escape(char))).join("")}'`;
  return Array.from(shown).length <= VALUE_CHARS_MAX ? shown : `${head(shown, VALUE_CHARS_MAX - 1)}…`;
}

/** Everything that is counted about one column while the rows go by. */
class Column {
  /** @param {any} prop @param {boolean} tracksNewest */
  constructor(prop, tracksNewest) {
    this.prop = prop;
    this.required = prop.required || prop.primaryKeyPosition !== null;
    this.parser = parserFor(prop);
    this.tests = valueTests(prop).map((test) => ({ test, tally: new Tally() }));
    this.rules = prop.quality.filter((/** @type {any} */ rule) => rule.metric !== "duplicateValues").map((/** @type {any} */ rule) => ({ rule, tally: new Tally(), breaks: breaker(rule) }));
    this.nulls = new Tally();
    this.wrongType = new Tally();
    /** @type {Set<string>} */
    this.complaints = new Set();
    this.distinct = prop.unique || prop.quality.some((/** @type {any} */ rule) => rule.metric === "duplicateValues") ? new Distinct() : null;
    this.tracksNewest = tracksNewest;
    /** @type {any} */
    this.newest = null;
  }

  /** Count one value; what it means, null if it is null. @param {string} place @param {any} value @param {boolean} isText */
  feed(place, value, isText) {
    const isNull = value === null || value === MISSING || (isText && value === "");
    for (const { tally, breaks } of this.rules) if (breaks(value, isNull)) tally.add(place);
    if (isNull) {
      this.nulls.add(place);
      return null;
    }
    let parsed;
    try {
      parsed = isText ? this.parser.fromText(value) : this.parser.fromTyped(value);
    } catch (error) {
      if (!(error instanceof ParseError)) throw error;
      this.complaints.add(error.message);
      this.wrongType.add(place);
      return value;
    }
    for (const { test, tally } of this.tests) if (!test.admits(parsed)) tally.add(place);
    this.distinct?.add(keyOf(parsed), place);
    if (this.tracksNewest && (this.newest === null || parsed > this.newest)) this.newest = parsed;
    return parsed;
  }
}

/** Does a value break a quality rule? @param {any} rule @returns {(value: any, isNull: boolean) => boolean} */
function breaker(rule) {
  const missing = new Set(rule.missingValues.map(keyOf));
  const isValid = rule.validValues ? oneOf(rule.validValues) : null;
  const matches = rule.pattern === null ? null : matcher(rule.pattern);
  return (value, isNull) => {
    if (rule.metric === "nullValues") return isNull;
    // CSV can't tell an empty text from none, so a null counts under either name.
    if (rule.metric === "missingValues") return (isNull ? [keyOf(null), keyOf("")] : [keyOf(value)]).some((name) => missing.has(name));
    if (isNull || rule.metric !== "invalidValues") return false;
    return (isValid !== null && !isValid(value)) || (matches !== null && !matches(value));
  };
}

/** Uniqueness of several columns together. A row with a null in it is not compared. */
class Composite {
  /** @param {any} table @param {string[]} names */
  constructor(table, names) {
    const order = table.properties.map((/** @type {any} */ prop) => prop.name);
    this.indexes = names.map((name) => order.indexOf(name));
    this.distinct = new Distinct();
  }

  /** @param {string} place @param {any[]} meanings */
  feed(place, meanings) {
    const parts = this.indexes.map((index) => meanings[index]);
    if (!parts.length || parts.includes(null)) return;
    const keys = parts.map(keyOf);
    this.distinct.add(keys.map((key) => `${key.length}:${key}`).join(""), place);
  }
}

/** Reads files row by row, then tells what it saw. */
export class TableChecks {
  /** @param {any} contract @param {any} table @param {boolean} several @param {() => void} tick */
  constructor(contract, table, several, tick) {
    this.table = table;
    this.prefix = several ? `${table.name}.` : "";
    this.freshness = contract.freshness.filter((/** @type {any} */ item) => item.objectName === table.name);
    const fresh = new Set(this.freshness.map((/** @type {any} */ item) => item.propertyName));
    /** @type {Column[]} */
    this.columns = table.properties.map((/** @type {any} */ prop) => new Column(prop, fresh.has(prop.name)));
    this.findings = new Findings();
    this.reader = new RowReader(table, this.findings);
    this.key = new Composite(table, table.primaryKey.map((/** @type {any} */ prop) => prop.name));
    this.composites = table.quality.filter((/** @type {any} */ rule) => rule.metric === "duplicateValues").map((/** @type {any} */ rule) => ({ rule, composite: new Composite(table, rule.properties) }));
    this.formats = new Set();
    this.tick = tick;
  }

  /** @param {import("../../types.js").Asset} asset @param {any} reader @param {string | null} format @param {string} prefix */
  read(asset, reader, format, prefix) {
    const { findings } = this;
    if (format === null) return findings.cannotRead(asset.path, "has a format that is not known; name it with kfmFormat");
    this.formats.add(format);
    if (format === "opaque") return undefined;
    try {
      for (const [place, values, isText] of this.reader.rows(format, asset, reader, prefix)) {
        findings.rows += 1;
        if (findings.rows % 10_000 === 0) this.tick();
        const meanings = this.columns.map((column, at) => column.feed(place, values[at], isText));
        this.key.feed(place, meanings);
        for (const { composite } of this.composites) composite.feed(place, meanings);
      }
    } catch (error) {
      if (!(error instanceof FileProblem)) throw error;
      findings.cannotRead(asset.path, error.message);
    }
    return undefined;
  }

  close() {
    for (const column of this.columns) column.distinct?.close();
    for (const { distinct } of [this.key, ...this.composites.map((/** @type {any} */ one) => one.composite)]) distinct.close();
  }

  /** @param {import("../../types.js").Asset[]} files @param {number} referenceMs @returns {Check[]} */
  checks(files, referenceMs) {
    const path = files.length === 1 ? /** @type {any} */ (files[0]).path : null;
    if (!files.length) {
      const detail = `No file holds ${this.table.name}.`;
      return [this.#check("schema.present", this.table.optional, this.table.optional ? `${detail} It is optional.` : detail, null)];
    }
    const found = [this.#check("schema.present", true, `${counted(files.length, "file")}.`, path), ...this.#fileChecks(path)];
    if (this.formats.size === 1 && this.formats.has("opaque")) return found;
    found.push(...this.#geoChecks(path));
    for (const column of this.columns) found.push(...this.#columnChecks(column, path));
    if (this.table.primaryKey.length) found.push(this.#primaryKey(path));
    found.push(...this.#objectRules(path), ...this.#freshChecks(path, referenceMs));
    return found;
  }

  /** @param {string} name @param {boolean} passed @param {string} detail @param {string | null} path @param {string[]} [sample] @returns {Check} */
  #check(name, passed, detail, path, sample = []) {
    return { name: name.includes(":") ? name : `${name}:${this.table.name}`, passed, detail, path, sample };
  }

  /** @param {string | null} path @returns {Generator<Check>} */
  *#fileChecks(path) {
    const { findings } = this;
    if (findings.unreadable.count) yield this.#check("schema.readable", false, `${counted(findings.unreadable.count, "file")} can't be read: ${findings.problems.join("; ")}.`, path);
    else yield this.#check("schema.readable", true, `${counted(findings.rows, "row")} read.`, path);
    const { ragged } = findings;
    if (ragged.count) {
      const lack = ragged.count === 1 ? "does not have" : "do not have";
      yield this.#check("schema.rows", false, `${counted(ragged.count, "row")} ${lack} the shape of the table${ragged.where()}.`, path, ragged.places);
    }
    if (findings.extra.size) yield this.#check("schema.columns.extra", this.table.extraColumnsAllowed, `Columns that the contract does not name: ${findings.extraNames()}.`, path);
  }

  /** @param {string | null} path @returns {Generator<Check>} */
  *#geoChecks(path) {
    if (!this.formats.has("geojson")) return;
    for (const [name, { tally, problems }] of this.findings.geometry) {
      if (name === "winding" && this.table.winding === "ignore") continue;
      if (!tally.count) {
        yield this.#check(`geojson.${name}`, true, "Every feature is as RFC 7946 asks.", path);
        continue;
      }
      const warns = name === "winding" && this.table.winding === "warn";
      const detail = `${warns ? "Warning only: " : ""}${counted(tally.count, "time")} (${[...problems].join("; ")})${tally.where()}.`;
      yield this.#check(`geojson.${name}`, warns, detail, path, tally.places);
    }
  }

  /** @param {Column} column @param {string | null} path @returns {Generator<Check>} */
  *#columnChecks(column, path) {
    const { prop } = column;
    const named = (/** @type {string} */ check) => `${check}:${this.prefix}${prop.name}`;
    const lacking = this.findings.lacking.get(prop.name);
    if (lacking) yield this.#check(named("schema.column.present"), false, `The column ${prop.column} is missing in ${counted(lacking.count, "file")}${lacking.where()}.`, path);
    const { rows } = this.findings;
    const some = (/** @type {number} */ count) => `${count} of ${counted(rows, "value")} ${count === 1 ? "is" : "are"}`;
    if (prop.logicalType !== null) {
      const why = [...column.complaints].sort().slice(0, SAMPLES_MAX).join("; ");
      yield this.#counted(named("schema.column.type"), column.wrongType, `${some(column.wrongType.count)} ${why}`, path);
    }
    if (column.required) yield this.#counted(named("schema.column.required"), column.nulls, `${some(column.nulls.count)} missing`, path);
    for (const { test, tally } of column.tests)
      yield this.#counted(named(`schema.column.${test.name}`), tally, `${tally.count} of ${counted(rows, "value")}${tally.count === 1 ? "" : ": each"} ${test.complaint}`, path);
    const repeated = column.distinct?.duplicates() ?? null;
    if (prop.unique && repeated) yield this.#counted(named("schema.column.unique"), repeated, `${counted(repeated.count, "value")} ${repeated.count === 1 ? "stands" : "stand"} more than once`, path);
    for (const { rule, tally } of column.rules) yield this.#ruled(rule, tally, this.prefix + prop.name, path);
    for (const rule of prop.quality) if (rule.metric === "duplicateValues" && repeated) yield this.#ruled(rule, repeated, this.prefix + prop.name, path);
  }

  /** @param {string} name @param {Tally} tally @param {string} verdict @param {string | null} path */
  #counted(name, tally, verdict, path) {
    const { rows } = this.findings;
    if (!tally.count) return this.#check(name, true, rows === 1 ? "The row passes." : `All ${rows} rows pass.`, path);
    return this.#check(name, false, `${verdict}${tally.where()}.`, path, tally.places);
  }

  /** @param {any} rule @param {Tally} tally @param {string} target @param {string | null} path */
  #ruled(rule, tally, target, path) {
    const { rows } = this.findings;
    return this.#ruleCheck(rule, rule.percent ? (rows ? (100 * tally.count) / rows : 0) : tally.count, target, path);
  }

  /** @param {any} rule @param {number} measured @param {string} target @param {string | null} path */
  #ruleCheck(rule, measured, target, path) {
    const holds = admits(rule.operator, measured);
    const unit = rule.percent ? " percent" : "";
    const operator = `${rule.operator.name} ${rule.operator.operand.join(" and ")}`;
    const detail = `${!holds && rule.warnsOnly ? "Warning only: " : ""}${rule.metric} is ${general(measured)}${unit}; ${operator}${unit}.`;
    return this.#check(`quality.${(rule.name ?? rule.metric).replaceAll(":", "_")}:${target}`, holds || rule.warnsOnly, detail, path);
  }

  /** @param {string | null} path */
  #primaryKey(path) {
    const tally = this.key.distinct.duplicates();
    const names = this.table.primaryKey.map((/** @type {any} */ prop) => prop.name).join(", ");
    const verdict = `${counted(tally.count, "row")} ${tally.count === 1 ? "repeats" : "repeat"} the primary key (${names}) of an earlier row`;
    return this.#counted(`schema.primary-key:${this.table.name}`, tally, verdict, path);
  }

  /** @param {string | null} path @returns {Generator<Check>} */
  *#objectRules(path) {
    for (const rule of this.table.quality) if (rule.metric === "rowCount") yield this.#ruleCheck(rule, this.findings.rows, this.table.name, path);
    for (const { rule, composite } of this.composites) yield this.#ruled(rule, composite.distinct.duplicates(), this.table.name, path);
  }

  /** @param {string | null} path @param {number} referenceMs @returns {Generator<Check>} */
  *#freshChecks(path, referenceMs) {
    for (const rule of this.freshness) {
      const column = this.columns.find((item) => item.prop.name === rule.propertyName);
      const name = `sla.freshness:${this.prefix}${rule.propertyName}`;
      const newest = column?.newest ?? null;
      if (newest === null) {
        yield this.#check(name, false, `There is no value of ${rule.propertyName} to measure.`, path);
        continue;
      }
      /** @type {bigint} */
      const us = newest.us;
      const newestMs = Number(us >= 0n ? us / 1000n : -((999n - us) / 1000n));
      const age = referenceMs - newestMs;
      const detail = `The newest value is of ${utcText(newestMs)}, ${(Math.max(0, age) / 3_600_000).toFixed(1)} h before ${utcText(referenceMs)}; allowed is ${rule.label}.`;
      yield this.#check(name, age <= rule.ageMsMax, detail, path);
    }
  }
}

/** @param {any} operator @param {number} measured */
function admits({ name, operand }, measured) {
  const [low, high] = [operand[0].value, operand.at(-1).value];
  const answers = /** @type {Record<string, boolean>} */ ({
    mustBe: measured === low,
    mustNotBe: measured !== low,
    mustBeGreaterThan: measured > low,
    mustBeGreaterOrEqualTo: measured >= low,
    mustBeLessThan: measured < low,
    mustBeLessOrEqualTo: measured <= low,
    mustBeBetween: low <= measured && measured <= high,
    mustNotBeBetween: !(low <= measured && measured <= high),
  });
  return answers[name] === true;
}

/** As Python's `.12g`. @param {number} value */
function general(value) {
  if (value === 0) return "0";
  const [mantissa = "", exponent = "0"] = value.toExponential(11).split("e");
  const power = Number(exponent);
  if (power < -4 || power >= 12) return `${mantissa.replace(/\.?0+$/, "")}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  const fixed = value.toFixed(Math.max(0, 11 - power));
  return fixed.includes(".") ? fixed.replace(/\.?0+$/, "") : fixed;
}
