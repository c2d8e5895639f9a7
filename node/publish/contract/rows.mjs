/** Rows of staged files, whatever their format, in the order of the declared properties. */

import { outOfScope } from "../../config/scope.mjs";
import { Float } from "../../model/json.mjs";
import { repr } from "../../model/wording.mjs";
import { GeometryProblem, checkBbox, checkCrs, checkGeometry, featuresOf, windsRight } from "./geojson.mjs";
import { CsvRecords, FileProblem, JsonStream, Lines, decodeLine } from "./streams.mjs";

/** The row has no such column. */
export const MISSING = Symbol("missing");
const COLUMNS_MAX = 10_000;

/** @typedef {[string, any[], boolean]} Row where it stands, its values, and whether they are text */

/** @param {any} value */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Float);

/** Reads the files of one schema object; what is wrong with them goes to `findings`. */
export class RowReader {
  /** @param {any} table @param {any} findings */
  constructor(table, findings) {
    this.table = table;
    this.findings = findings;
    /** @type {string[]} */
    this.columns = table.properties.map((/** @type {any} */ prop) => prop.column);
    this.known = new Set(this.columns);
  }

  /** All rows of one file. FileProblem where it can't be read on. @param {string} format @param {import("../../types.js").Asset} asset @param {any} reader @param {string} prefix @returns {Generator<Row>} */
  rows(format, asset, reader, prefix) {
    if (format === "csv") return this.#csv(reader, asset, prefix);
    if (format === "jsonl") return this.#jsonLines(reader, prefix);
    if (format === "json") return this.#json(reader, prefix);
    if (format === "geojson") return this.#geojson(reader, prefix);
    throw outOfScope(`${asset.path} is checked as Parquet`);
  }

  // --- CSV

  /** @param {any} reader @param {import("../../types.js").Asset} asset @param {string} prefix @returns {Generator<Row>} */
  *#csv(reader, asset, prefix) {
    const lines = new Lines(reader, false);
    const delimiter = this.table.delimiter === "," && asset.path.toLowerCase().endsWith(".tsv") ? "\t" : this.table.delimiter;
    const records = new CsvRecords(lines, delimiter);
    const header = records.next();
    if (!header?.length) throw new FileProblem("has no header");
    const places = this.#places(header, asset);
    for (;;) {
      const start = lines.number + 1;
      const record = records.next();
      if (record === null) return;
      if (!record.length && header.length > 1) continue; // a blank line
      const place = `${prefix}line ${start}`;
      if (record.length !== header.length && !(!record.length && header.length === 1)) {
        this.findings.ragged.add(place);
        continue;
      }
      const values = record.length ? record : [""];
      yield [place, places.map((at) => (at === undefined ? MISSING : values[at])), true];
    }
  }

  /** @param {string[]} header @param {import("../../types.js").Asset} asset */
  #places(header, asset) {
    if (header.length > COLUMNS_MAX) throw new FileProblem(`has more than ${COLUMNS_MAX} columns`);
    const names = new Set(header);
    if (names.size !== header.length) {
      const twins = header.length < 1000 ? [...names].filter((name) => header.filter((one) => one === name).length > 1).length : "some";
      throw new FileProblem(`has ${twins} column names that stand twice in its header`);
    }
    for (const prop of this.table.properties) if (!names.has(prop.column)) this.findings.lacksColumn(prop.name, asset.path);
    if (this.columns.length) for (const name of header) this.#noteExtra(name);
    const index = new Map(header.map((name, position) => [name, position]));
    return this.columns.map((name) => index.get(name));
  }

  /** @param {string} name */
  #noteExtra(name) {
    if (!this.known.has(name)) this.findings.extraColumn(name);
  }

  // --- JSON

  /** @param {any} reader @param {string} prefix @returns {Generator<Row>} */
  *#jsonLines(reader, prefix) {
    const lines = new Lines(reader, true);
    for (let line = lines.next(); line !== null; line = lines.next()) {
      lines.record();
      if (lines.number === 1 && line.startsWith("\ufeff")) throw new FileProblem("begins with a byte order mark, which JSON does not allow");
      if (!line.trim()) continue;
      let row;
      try {
        row = decodeLine(line);
      } catch (error) {
        if (error instanceof FileProblem) throw new FileProblem(`${error.message} in line ${lines.number}`);
        throw error;
      }
      yield* this.#jsonRow(row, `${prefix}line ${lines.number}`);
    }
  }

  /** @param {any} reader @param {string} prefix @returns {Generator<Row>} */
  *#json(reader, prefix) {
    const stream = new JsonStream(reader);
    if (!stream.peek()) throw new FileProblem("is empty");
    const tokens = this.table.pointer.split("/").slice(1).map((/** @type {string} */ token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
    let number = 0;
    for (const row of this.#at(stream, tokens)) {
      number += 1;
      yield* this.#jsonRow(row, `${prefix}row ${number}`);
    }
    stream.end();
  }

  /** @param {JsonStream} stream @param {string[]} tokens @returns {Generator<any>} */
  *#at(stream, tokens) {
    const [first, ...rest] = tokens;
    if (first === undefined) {
      if (stream.peek() !== "[") throw new FileProblem(`has no array of rows where one is expected${this.table.pointer ? "" : "; name the place of its rows with kfmPointer"}`);
      yield* stream.elements();
      return;
    }
    const nowhere = `has no member ${repr(first)}, so ${this.table.pointer} leads nowhere`;
    if (stream.peek() !== "{") throw new FileProblem(nowhere);
    let found = false;
    for (const name of stream.named()) {
      if (name === first) {
        found = true;
        yield* this.#at(stream, rest);
      } else stream.value();
    }
    if (!found) throw new FileProblem(nowhere);
  }

  /** @param {any} row @param {string} place @returns {Generator<Row>} */
  *#jsonRow(row, place) {
    if (!isObject(row)) {
      this.findings.ragged.add(place);
      return;
    }
    if (this.columns.length) for (const name of Object.keys(row)) this.#noteExtra(name);
    yield [place, this.columns.map((name) => (Object.hasOwn(row, name) ? row[name] : MISSING)), false];
  }

  // --- GeoJSON

  /** @param {any} reader @param {string} prefix @returns {Generator<Row>} */
  *#geojson(reader, prefix) {
    const stream = new JsonStream(reader);
    if (!stream.peek()) throw new FileProblem("is empty");
    /** @type {Record<string, any>} */
    const head = {};
    let number = 0;
    for (const feature of featuresOf(stream, head)) {
      number += 1;
      const place = `${prefix}feature ${number}`;
      const members = this.#feature(feature, place);
      if (members === null) continue;
      if (this.columns.length) for (const name of Object.keys(members)) this.#noteExtra(name);
      const own = (/** @type {string} */ name) => (["id", "geometry"].includes(name) && Object.hasOwn(feature, name) ? feature[name] : MISSING);
      yield [place, this.columns.map((name) => (Object.hasOwn(members, name) ? members[name] : own(name))), false];
    }
    if (head.type === "FeatureCollection") this.#judged(`${prefix}the collection`, () => this.#around(head));
  }

  /** The properties of a feature, with its geometry checked; null if it is no feature. @param {any} feature @param {string} place @returns {Record<string, any> | null} */
  #feature(feature, place) {
    if (!isObject(feature) || feature.type !== "Feature" || !Object.hasOwn(feature, "geometry")) {
      this.findings.geo("structure", place, "it is not a Feature with a geometry member");
      return null;
    }
    const members = Object.hasOwn(feature, "properties") ? feature.properties : MISSING;
    if (members !== null && !isObject(members)) {
      this.findings.geo("structure", place, "its properties are not an object");
      return null;
    }
    const id = feature.id;
    if (Object.hasOwn(feature, "id") && !["string", "number", "bigint"].includes(typeof id) && !(id instanceof Float)) this.findings.geo("structure", place, "its id is not text or a number");
    this.#judged(place, () => this.#geometry(feature, place));
    return members ?? {};
  }

  /** @param {any} feature @param {string} place */
  #geometry(feature, place) {
    this.#around(feature);
    const { geometry } = feature;
    if (geometry === null) {
      if (!this.table.nullGeometryAllowed) this.findings.geo("null", place, "it has no geometry");
      return;
    }
    checkGeometry(geometry);
    if (this.table.winding !== "ignore" && !windsRight(geometry)) this.findings.geo("winding", place, "a ring winds the wrong way round");
  }

  /** @param {any} owner */
  #around(owner) {
    if (Object.hasOwn(owner, "crs")) checkCrs(owner.crs);
    if (Object.hasOwn(owner, "bbox")) checkBbox(owner.bbox);
  }

  /** @param {string} place @param {() => void} check */
  #judged(place, check) {
    try {
      check();
    } catch (error) {
      if (!(error instanceof GeometryProblem)) throw error;
      this.findings.geo(error.check, place, error.message);
    }
  }
}
