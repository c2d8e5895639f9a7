/** Bytes of a staged file as bounded text: its format, lines, CSV records, and the values of a JSON document one by one. */

import { contract } from "../../model/contracts.mjs";
import { Float, JsonProblem, Reader } from "../../model/json.mjs";
import { length, partition, repr } from "../../model/wording.mjs";

// --- format ------------------------------------------------------------------------------

/** The format; a name that says GeoJSON outweighs a media type that says only JSON. @param {import("../../types.js").Asset} asset @returns {string | null} */
export function formatOf(asset) {
  const { formats_by_media_type, formats_by_suffix } = contract("tables/media.json");
  const name = asset.path.toLowerCase();
  const suffix = Object.keys(formats_by_suffix).find((one) => name.endsWith(one));
  const byName = suffix === undefined ? null : formats_by_suffix[suffix];
  const byType = formats_by_media_type[partition(asset.media_type, ";")[0].trim().toLowerCase()] ?? null;
  return byType === "json" && ["geojson", "jsonl"].includes(byName) ? byName : (byType ?? byName);
}

// --- text --------------------------------------------------------------------------------

const CHUNK_BYTES = 256 * 1024;
const LINES_BYTES = 8192; // as Python reads text: where bad bytes are noticed depends on it
export const RECORD_CHARS_MAX = 8 * 1024 * 1024;
const ELEMENT_CHARS_MAX = 16 * 1024 * 1024;
const CUT_CHARS = 16;

/** The file can't be read on; the text completes «the file …». */
export class FileProblem extends Error {}

/** @typedef {{read(size: number): Buffer}} ByteReader */

/** Lines with their ends kept. `record()` tells that what was read so far is dealt with. */
export class Lines {
  /** @param {ByteReader} reader @param {boolean} keepsMark is a byte order mark a character of the text? */
  constructor(reader, keepsMark) {
    this.reader = reader;
    this.decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: keepsMark });
    this.buffer = "";
    this.ended = false;
    this.held = 0;
    this.number = 0;
  }

  /** @returns {string | null} */
  next() {
    const line = this.#line();
    if (!line) return null;
    this.number += 1;
    this.held += line.length;
    if (this.held > RECORD_CHARS_MAX) throw new FileProblem(`has a record longer than ${RECORD_CHARS_MAX} characters at line ${this.number}`);
    if (line.includes("\0")) throw new FileProblem(`holds a NUL character in line ${this.number}`);
    return line;
  }

  record() {
    this.held = 0;
  }

  #line() {
    for (;;) {
      const found = /\r\n|\n|\r/.exec(this.buffer);
      // A \r at the very end may be the first half of a line's end.
      const isSure = found && (found[0] !== "\r" || found.index + 1 < this.buffer.length || this.ended);
      if (found && isSure) {
        const end = found.index + found[0].length;
        const line = this.buffer.slice(0, end);
        this.buffer = this.buffer.slice(end);
        return line;
      }
      if (this.ended || this.buffer.length > RECORD_CHARS_MAX) {
        const rest = this.buffer;
        this.buffer = "";
        return rest;
      }
      const data = this.reader.read(LINES_BYTES);
      this.ended = !data.length;
      try {
        this.buffer += this.decoder.decode(data, { stream: !this.ended });
      } catch {
        throw new FileProblem(`is not UTF-8 text after line ${this.number}`);
      }
    }
  }
}

/** Records of a CSV file, by the strict rules of Python's csv module. */
export class CsvRecords {
  /** @param {Lines} lines @param {string} delimiter */
  constructor(lines, delimiter) {
    this.lines = lines;
    this.delimiter = delimiter;
  }

  /** @returns {string[] | null} */
  next() {
    /** @type {string[]} */
    const fields = [];
    let field = "";
    let state = "start-record";
    for (;;) {
      const line = this.lines.next();
      if (line === null) {
        if (state === "quoted") throw this.#problem("unexpected end of data");
        return state === "start-record" ? null : fields;
      }
      for (const char of line) {
        const isEnd = char === "\n" || char === "\r";
        if (state === "start-record") {
          if (isEnd) {
            state = "eat";
            continue;
          }
          state = "start-field";
        }
        if (state === "eat") {
          if (!isEnd) throw this.#problem("new-line character seen in unquoted field - do you need to open the file with newline=''?");
        } else if (state === "quoted") {
          if (char === '"') state = "quote-in-quoted";
          else field += char;
        } else if (char === '"' && state === "start-field") state = "quoted";
        else if (char === '"' && state === "quote-in-quoted") {
          field += '"';
          state = "quoted";
        } else if (char === this.delimiter || isEnd) {
          fields.push(field);
          field = "";
          state = isEnd ? "eat" : "start-field";
        } else if (state === "quote-in-quoted") throw this.#problem(`'${this.delimiter}' expected after '"'`);
        else {
          field += char;
          state = "unquoted";
        }
      }
      if (state === "quoted") continue;
      if (state === "start-record" || state === "eat") return this.#done(fields);
      fields.push(field); // the last line has no end
      return this.#done(fields);
    }
  }

  /** @param {string[]} fields */
  #done(fields) {
    this.lines.record();
    return fields;
  }

  /** @param {string} problem */
  #problem(problem) {
    return new FileProblem(`is not CSV: ${problem} (line ${this.lines.number})`);
  }
}

/** One JSON text. @param {string} line @returns {any} */
export function decodeLine(line) {
  try {
    return new Reader(line).whole();
  } catch (error) {
    if (error instanceof RangeError) throw new FileProblem("is nested too deeply");
    if (error instanceof JsonProblem) throw new FileProblem(`is not JSON (${error.msg})`);
    throw error;
  }
}

/** A JSON document read front to back, holding no more than one value of it. */
export class JsonStream {
  /** @param {ByteReader} reader */
  constructor(reader) {
    this.reader = reader;
    this.decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    this.json = new Reader("");
    this.position = 0;
    this.readChars = 0;
    this.ended = false;
  }

  /** The next character that is not blank; empty at the end. */
  peek() {
    for (;;) {
      this.position = this.json.skip(this.position);
      const char = this.json.text[this.position];
      if (char !== undefined) return char;
      if (!this.#more(CHUNK_BYTES)) return "";
    }
  }

  /** @param {string} expected */
  take(expected) {
    if (this.peek() !== expected) this.#complain(`${repr(expected)} is expected`);
    this.position += 1;
  }

  /** The next value, whole. @returns {any} */
  value() {
    if (!this.peek()) this.#complain("it ends too early");
    for (;;) {
      let value, end;
      try {
        [value, end] = this.json.value(this.position);
      } catch (error) {
        if (error instanceof RangeError) throw new FileProblem("is nested too deeply");
        if (!(error instanceof JsonProblem)) throw error;
        if (error.at < 0) throw new FileProblem(`is not JSON (${error.msg})`);
        if (!this.#mayBeCut(error)) this.#complain(error.msg);
        continue;
      }
      if (this.#isWhole(value, end) || !this.#more(CHUNK_BYTES)) {
        this.position = end;
        return value;
      }
    }
  }

  /** A number at the very end of the buffer may go on. @param {any} value @param {number} end */
  #isWhole(value, end) {
    if (typeof value !== "number" && typeof value !== "bigint" && typeof value !== "boolean" && !(value instanceof Float)) return true;
    const tail = this.json.text.slice(end, end + 3);
    return end + tail.length < this.json.text.length || /[^+\-.eE]/.test(tail);
  }

  /** @param {JsonProblem} error */
  #mayBeCut(error) {
    const held = this.json.text.length - this.position;
    if (error.code !== "unterminated" && error.at < this.json.text.length - CUT_CHARS) return false;
    if (held > ELEMENT_CHARS_MAX) throw new FileProblem(`holds a value longer than ${ELEMENT_CHARS_MAX} characters`);
    return this.#more(Math.max(CHUNK_BYTES, held));
  }

  /** Names of the next object; after each the caller takes the value. @returns {Generator<string>} */
  *named() {
    const names = new Set();
    this.take("{");
    if (this.peek() === "}") return this.take("}");
    for (;;) {
      if (this.peek() !== '"') this.#complain("a member's name is expected");
      const name = this.value();
      if (names.has(name)) throw new FileProblem("is not JSON (a member stands twice in one object)");
      names.add(name);
      this.take(":");
      yield name;
      if (this.peek() === "}") return this.take("}");
      this.take(",");
    }
  }

  /** The values of the next array. @returns {Generator<any>} */
  *elements() {
    this.take("[");
    if (this.peek() === "]") return this.take("]");
    for (;;) {
      yield this.value();
      if (this.peek() === "]") return this.take("]");
      this.take(",");
    }
  }

  end() {
    if (this.peek()) this.#complain("something follows the document");
  }

  /** @param {number} size */
  #more(size) {
    if (this.ended) return false;
    const data = this.reader.read(size);
    let text;
    try {
      text = this.decoder.decode(data, { stream: data.length > 0 });
    } catch {
      throw new FileProblem(`is not UTF-8 text after about ${this.readChars} characters`);
    }
    if (this.readChars === 0 && text.startsWith("\ufeff")) throw new FileProblem("begins with a byte order mark, which JSON does not allow");
    this.ended = !data.length;
    this.readChars += length(text);
    this.json = new Reader(this.json.text.slice(this.position) + text);
    this.position = 0;
    return !this.ended;
  }

  /** @param {string} problem @returns {never} */
  #complain(problem) {
    const near = this.readChars - length(this.json.text) + length(this.json.text.slice(0, this.position));
    throw new FileProblem(`is not JSON (${problem}, near character ${near})`);
  }
}
