/** A configuration file as plain values that remember their lines: JSON, or YAML 1.2. */

import { ConfigError } from "../model/errors.mjs";
import { Float, JsonProblem, Reader } from "../model/json.mjs";
import { head, thousands } from "../model/wording.mjs";

const VALUES_MAX = 100_000;
const DEPTH_MAX = 64;
const INT_MAX = Number.MAX_SAFE_INTEGER;

export class Document {
  /** @param {string} name @param {any} values @param {Map<string, number>} lines */
  constructor(name, values, lines) {
    this.name = name;
    this.values = values;
    this.lines = lines;
  }

  /** The line of a field, or of the nearest thing around it that was written. @param {string} path */
  line(path) {
    while (path && !this.lines.has(path)) path = path.slice(0, Math.max(path.lastIndexOf("."), path.lastIndexOf("["), 0));
    return this.lines.get(path) ?? 1;
  }

  /** @param {string} path @param {string} sentence */
  error(path, sentence) {
    return ConfigError.at(this.name, this.line(path), sentence);
  }
}

/** Builds a document value by value; refuses what would be ambiguous or endless. */
export class Collector {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
    /** @type {Map<string, number>} */
    this.lines = new Map();
    this.count = 0;
  }

  /** @param {number} line @param {string} sentence */
  fail(line, sentence) {
    return ConfigError.at(this.name, line, sentence);
  }

  /** @param {string} path @param {number} line @param {number} depth */
  note(path, line, depth) {
    this.count += 1;
    if (this.count > VALUES_MAX) throw this.fail(line, `more than ${thousands(VALUES_MAX)} values; is an alias repeated too often?`);
    if (depth > DEPTH_MAX) throw this.fail(line, `nested more than ${DEPTH_MAX} levels deep`);
    if (!this.lines.has(path)) this.lines.set(path, line);
  }

  /** @param {Record<string, any>} mapping @param {string} parent @param {string} key @param {number} line */
  key(mapping, parent, key, line) {
    const path = parent ? `${parent}.${key}` : key;
    if (Object.hasOwn(mapping, key)) throw this.fail(line, `\`${key}\` is given twice; the first is on line ${this.lines.get(path) ?? line}`);
    this.lines.set(path, line);
    return path;
  }
}

/** @param {string} name @param {Uint8Array} data @returns {Promise<Document>} */
export async function readDocument(name, data) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    throw ConfigError.at(name, 1, "the file is not UTF-8 text");
  }
  if (!text.trim()) throw ConfigError.ofFile(name, "the file is empty");
  const document = name.endsWith(".json") ? parseJson(name, text) : await parseYaml(name, text);
  if (!document.lines.size) throw document.error("", "the file holds no settings, only comments");
  if (document.values === null || typeof document.values !== "object" || Array.isArray(document.values) || document.values instanceof Float)
    throw document.error("", "the file must hold settings, written as `name: value`");
  return document;
}

// --- JSON ----------------------------------------------------------------------------

class JsonText {
  /** @param {string} name @param {string} text */
  constructor(name, text) {
    this.text = text;
    this.at = 0;
    this.collect = new Collector(name);
    this.strings = new Reader(text);
  }

  line() {
    return this.text.slice(0, this.at).split("\n").length;
  }

  /** @param {string} sentence */
  fail(sentence) {
    return this.collect.fail(this.line(), sentence);
  }

  peek() {
    this.at = this.strings.skip(this.at);
    return this.text[this.at] ?? "";
  }

  /** @param {string} char @param {string} after */
  expect(char, after) {
    if (this.peek() !== char) throw this.fail(`expected \`${char}\` ${after}, found ${this.found()}`);
    this.at += 1;
  }

  found() {
    const here = this.text[this.at] ?? "";
    return here.trim() ? `\`${here}\`` : "the end of the file";
  }

  /** @param {string} path @param {number} depth @returns {any} */
  value(path, depth) {
    const start = this.peek();
    this.collect.note(path, this.line(), depth);
    if (start === "{") return this.object(path, depth);
    if (start === "[") return this.array(path, depth);
    if (start === '"') return this.string();
    for (const [word, meaning] of /** @type {[string, any][]} */ ([["true", true], ["false", false], ["null", null]])) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return meaning;
      }
    }
    const number = /^-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/.exec(this.text.slice(this.at, this.at + 400));
    if (!number) throw this.fail(`expected a value, found ${this.found()}`);
    this.at += number[0].length;
    const digits = number[0];
    if (number[1] || number[2]) {
      const value = Number(digits);
      if (!Number.isFinite(value)) throw this.fail(`\`${digits}\` is too large a number`);
      return new Float(value);
    }
    if (digits.length > 17 || Math.abs(Number(digits)) > INT_MAX) throw this.fail(`\`${digits.slice(0, 20)}\` is too large a number`);
    return Number(digits) + 0;
  }

  string() {
    let value;
    try {
      [value, this.at] = this.strings.string(this.at + 1);
    } catch (error) {
      if (!(error instanceof JsonProblem)) throw error;
      throw this.fail(`the text can't be read: ${error.msg.toLowerCase()}`);
    }
    if (!value.isWellFormed()) throw this.fail("the text holds half of a surrogate pair");
    return value;
  }

  /** @param {string} path @param {number} depth */
  object(path, depth) {
    this.at += 1;
    /** @type {Record<string, any>} */
    const values = {};
    while (this.peek() !== "}") {
      if (Object.keys(values).length) {
        this.expect(",", "between two settings");
        this.peek();
      }
      if (this.peek() !== '"') throw this.fail(`expected a name in double quotes, found ${this.found()}`);
      const line = this.line();
      const key = this.string();
      const child = this.collect.key(values, path, key, line);
      this.expect(":", `after \`${key}\``);
      values[key] = this.value(child, depth + 1);
    }
    this.at += 1;
    return values;
  }

  /** @param {string} path @param {number} depth */
  array(path, depth) {
    this.at += 1;
    /** @type {any[]} */
    const values = [];
    while (this.peek() !== "]") {
      if (values.length) this.expect(",", "between two values");
      values.push(this.value(`${path}[${values.length}]`, depth + 1));
    }
    this.at += 1;
    return values;
  }
}

/** @param {string} name @param {string} text */
function parseJson(name, text) {
  const parser = new JsonText(name, text);
  const values = parser.value("", 0);
  if (parser.peek()) throw parser.fail(`expected the end of the file, found ${parser.found()}`);
  return new Document(name, values, parser.collect.lines);
}

// --- YAML ----------------------------------------------------------------------------

const BOOL = /^(?:true|True|TRUE|false|False|FALSE)$/;
const NULL = /^(?:~|null|Null|NULL|)$/;
const INT = /^(?:[-+]?0b[0-1_]+|[-+]?0o?[0-7_]+|[-+]?[0-9_]+|[-+]?0x[0-9a-fA-F_]+)$/;
const FLOAT =
  /^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?(?:[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)|[-+]?\.[0-9_]+(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/;
const TAG = "tag:yaml.org,2002:";
const SCALAR_FOLLOWS = "\x1f"; // what the lexer puts before a text

class YamlText {
  /** @param {any} yaml @param {Collector} collect @param {any} counter @param {any} document */
  constructor(yaml, collect, counter, document) {
    this.yaml = yaml;
    this.collect = collect;
    this.counter = counter;
    this.document = document;
    this.open = new Set();
  }

  /** @param {any} node */
  lineOf(node) {
    return node?.range ? this.counter.linePos(node.range[0]).line : 1;
  }

  /** @param {any} node @param {string} path @param {number} depth @param {number} [line] @returns {any} */
  value(node, path, depth, line = this.lineOf(node)) {
    this.collect.note(path, line, depth);
    if (node === null || node === undefined) return null;
    if (this.yaml.isAlias(node)) {
      const target = node.resolve(this.document);
      if (!target || this.open.has(target)) throw this.collect.fail(line, "an alias refers to something that it is part of");
      return this.inside(target, path, depth, line);
    }
    return this.inside(node, path, depth, line);
  }

  /** @param {any} node @param {string} path @param {number} depth @param {number} line @returns {any} */
  inside(node, path, depth, line) {
    if (this.yaml.isScalar(node)) return this.scalar(node, line);
    this.open.add(node);
    try {
      if (this.yaml.isMap(node)) return this.mapping(node, path, depth);
      return node.items.map((/** @type {any} */ item, /** @type {number} */ index) => this.value(item, `${path}[${index}]`, depth + 1));
    } finally {
      this.open.delete(node);
    }
  }

  /** @param {any} node @param {string} path @param {number} depth */
  mapping(node, path, depth) {
    /** @type {Record<string, any>} */
    const values = {};
    for (const pair of node.items) {
      const keyNode = this.yaml.isAlias(pair.key) ? pair.key.resolve(this.document) : pair.key;
      const line = this.lineOf(pair.key);
      if (keyNode !== null && !this.yaml.isScalar(keyNode)) throw this.collect.fail(line, "a name must be plain text");
      const key = keyNode === null ? "" : String(keyNode.source ?? keyNode.value ?? "");
      const child = this.collect.key(values, path, key, line);
      values[key] = this.value(pair.value, child, depth + 1, pair.value ? undefined : line);
    }
    return values;
  }

  /** @param {any} node @param {number} line */
  scalar(node, line) {
    const text = String(node.source ?? node.value ?? "");
    const plain = node.type === "PLAIN" || node.type === undefined || node.type === null;
    let kind = "str";
    if (node.tag) kind = String(node.tag).startsWith(TAG) ? String(node.tag).slice(TAG.length) : String(node.tag);
    if (plain && (!node.tag || node.tag === `${TAG}null`)) {
      if (NULL.test(text)) return null;
      if (BOOL.test(text)) kind = "bool";
      else if (INT.test(text)) kind = "int";
      else if (FLOAT.test(text)) kind = "float";
      else kind = "str";
    } else if (!plain && !this.#explicit(node)) kind = "str";
    if (kind === "null") return null;
    if (kind === "bool") return text.toLowerCase() === "true";
    if (kind === "int") return this.integer(text, line);
    if (kind === "float") return this.decimal(text, line);
    if (kind === "str" || kind === "timestamp") return plain ? text : String(node.value);
    throw this.collect.fail(line, `the tag \`${kind}\` is not supported`);
  }

  /** @param {any} node */
  #explicit(node) {
    return Boolean(node.tag) && node.tag !== `${TAG}str`;
  }

  /** @param {string} text @param {number} line */
  integer(text, line) {
    const digits = text.replaceAll("_", "");
    const match = /^([-+]?)(0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+|[0-9]+)$/i.exec(digits);
    if (!match) throw this.collect.fail(line, `\`${head(text, 20)}\` is not a number`);
    const value = Number(/** @type {string} */ (match[2])) * (match[1] === "-" ? -1 : 1) + 0;
    if (Math.abs(value) > INT_MAX) throw this.collect.fail(line, `\`${head(text, 20)}\` is too large a number`);
    return value;
  }

  /** @param {string} text @param {number} line */
  decimal(text, line) {
    const value = Number(text.replaceAll("_", ""));
    if (!Number.isFinite(value)) throw this.collect.fail(line, `\`${head(text, 20)}\` is not a finite number`);
    return new Float(value);
  }
}

/** Nesting and directives are refused where they begin. @param {any} yaml @param {Collector} collect @param {string} text */
function requireBounds(yaml, collect, text) {
  let [depth, line, isText] = [0, 1, false];
  for (const token of new yaml.Lexer().lex(text)) {
    if (!isText && (token === "[" || token === "{")) depth += 1;
    if (!isText && (token === "]" || token === "}")) depth -= 1;
    if (depth > DEPTH_MAX) throw collect.fail(line, `not YAML: nested more than ${DEPTH_MAX} levels deep`);
    // Under `%YAML 1.1` a bare `yes` is true, and under others we don't know.
    if (!isText && token.startsWith("%") && !/^%YAML 1\.2\s*$/.test(token)) throw collect.fail(line, "not YAML: a directive other than `%YAML 1.2` is not supported");
    isText = token === SCALAR_FOLLOWS;
    line += token.split("\n").length - 1;
  }
}

/** One document; one without anything in it has no lines. @param {string} name @param {string} text @returns {Promise<Document>} */
export async function parseYaml(name, text) {
  const yaml = await import("yaml");
  const collect = new Collector(name);
  const counter = new yaml.LineCounter();
  requireBounds(yaml, collect, text);
  const parsed = yaml.parseAllDocuments(text, { version: "1.2", schema: "core", lineCounter: counter, uniqueKeys: false, keepSourceTokens: false, merge: false });
  const documents = Array.isArray(parsed) ? parsed : [];
  for (const document of documents) {
    const problem = document.errors[0];
    if (problem) {
      const said = problem.message.split(" at line ")[0]?.split("\n")[0] ?? "";
      const complaint = said.startsWith("Maximum call stack") ? `nested more than ${DEPTH_MAX} levels deep` : said; // it recurses
      throw collect.fail(problem.linePos?.[0].line ?? 1, `not YAML: ${complaint.charAt(0).toLowerCase()}${complaint.slice(1)}`);
    }
  }
  const [first, second] = documents;
  if (second) throw collect.fail(counter.linePos(second.range[0]).line, "a second document begins here; one file holds one configuration");
  const values = first && first.contents !== null ? new YamlText(yaml, collect, counter, first).value(first.contents, "", 0) : null;
  return new Document(name, values, collect.lines);
}
