/** Reads an ODCS document into a data contract; every complaint names file, line and nearest word. */

import { parseYaml } from "../../config/document.mjs";
import { pythonFloat } from "../../model/canonical.mjs";
import { contract as table } from "../../model/contracts.mjs";
import { ConfigError, ContractError } from "../../model/errors.mjs";
import { Float } from "../../model/json.mjs";
import { closest } from "../../model/patterns.mjs";
import { zoneExists } from "../../model/times.mjs";
import { repr, sortedByPoints } from "../../model/wording.mjs";
import { Expression, ExpressionError } from "./expressions.mjs";
import { ParseError, datePattern, parserFor } from "./values.mjs";

// --- the document ------------------------------------------------------------------------

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
  /** @param {any} value @param {import("../../config/document.mjs").Document} document @param {number} line @param {string} path */
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
  if (data.length > BYTES_MAX) throw ContractError.ofFile(name, `larger than ${BYTES_MAX} bytes`);
  let document;
  try {
    document = await parseYaml(name, new TextDecoder("utf-8", { fatal: true }).decode(data));
  } catch (error) {
    if (error instanceof ConfigError) throw new ContractError(error.detail, error.facts);
    throw ContractError.at(name, 1, "the file is not UTF-8 text");
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

// --- the contract ------------------------------------------------------------------------

const words = () => table("tables/odcs.json");
const ORDERED = ["date", "timestamp", "time", "integer", "number"];
const TIMES = ["date", "timestamp", "time"];
const NUMBER_FORMATS = /** @type {Record<string, string[]>} */ ({ integer: ["i8", "i16", "i32", "i64", "i128", "u8", "u16", "u32", "u64", "u128"], number: ["f32", "f64"] });
const DEPTH_MAX = 16;
const WARNINGS = ["info", "information", "warn", "warning"];

/** @param {Buffer} data @param {string} name @returns {Promise<any>} */
export async function loadContract(data, name) {
  const root = await readDocument(data, name);
  root.fields(words().contract);
  root.need("kind").choice(["DataContract"]);
  const version = root.need("apiVersion");
  if (!/^v3\.\d+\.\d+$/.test(version.text())) version.fail(`${repr(version.text())} is not supported; write v3.1.0 (any v3 is read)`);
  const custom = customProperties(root, words().kfm_contract);
  const schema = root.get("schema");
  const objects = schema ? schema.parts().map(readObject) : [];
  objects.forEach((one, index) => {
    if (objects.slice(0, index).some((other) => other.name === one.name)) schema?.parts()[index]?.fail(`there is already an object called ${repr(one.name)}`);
  });
  for (const key of ["id", "version", "status"]) root.need(key).text();
  root.get("name")?.text();
  return { objects, freshness: readFreshness(root, objects), uncoveredAllowed: allows(custom, "kfmUncovered") };
}

/** @param {Map<string, Part>} custom @param {string} word */
const allows = (custom, word) => custom.get(word)?.choice(["allow", "refuse"]) === "allow";

/** @param {Part} part */
function readObject(part) {
  part.fields(words().object);
  part.get("logicalType")?.choice(["object"]);
  const name = part.need("name").text();
  const block = part.get("properties");
  const properties = block ? readProperties(block, 0) : [];
  const custom = customProperties(part, words().kfm_object);
  const format = custom.get("kfmFormat")?.choice(words().formats) ?? null;
  const winding = custom.get("kfmWinding")?.choice(["ignore", "warn", "refuse"]) ?? "ignore";
  return {
    name,
    pathPattern: part.get("physicalName")?.text() ?? null,
    properties,
    quality: readRules(part, properties.map((prop) => prop.name), "object"),
    format,
    pointer: pointerOf(custom),
    delimiter: delimiterOf(custom),
    extraColumnsAllowed: allows(custom, "kfmExtraColumns"),
    nullGeometryAllowed: allows(custom, "kfmNullGeometry"),
    winding,
    optional: custom.get("kfmOptional")?.flag() ?? false,
    primaryKey: properties.filter((prop) => prop.primaryKeyPosition !== null).sort((a, b) => a.primaryKeyPosition - b.primaryKeyPosition),
  };
}

/** @param {Map<string, Part>} custom */
function pointerOf(custom) {
  const part = custom.get("kfmPointer");
  if (!part) return "";
  if (!part.text().startsWith("/")) part.fail("a JSON pointer begins with '/'");
  return part.text();
}

/** @param {Map<string, Part>} custom */
function delimiterOf(custom) {
  const part = custom.get("kfmDelimiter");
  if (!part) return ",";
  if (typeof part.value !== "string" || Array.from(part.value).length !== 1 || '"\r\n\0'.includes(part.value)) part.fail("must be one character, such as ';' or a tab written as \"\\t\"");
  return part.value;
}

// --- columns -----------------------------------------------------------------------------

/** @param {Part} block @param {number} depth @returns {any[]} */
function readProperties(block, depth) {
  if (depth > DEPTH_MAX) block.fail(`properties are nested deeper than ${DEPTH_MAX}`);
  /** @type {any[]} */
  const properties = [];
  for (const part of block.parts()) {
    const prop = readProperty(part, part.need("name").text(), depth);
    if (properties.some((other) => other.name === prop.name || other.column === prop.column)) part.fail(`there is already a property called ${repr(prop.name)}`);
    properties.push(prop);
  }
  return properties;
}

/** @param {any} more */
const property = (more) => ({
  logicalType: null, required: false, unique: false, primaryKeyPosition: null, bounds: null, length: null, pattern: null, format: null, timezone: null,
  defaultTimezone: "UTC", uniqueItems: false, enum: null, requiredMembers: [], properties: [], items: null, quality: [], ...more,
});

/** @param {Part} part @param {string} name @param {number} depth @returns {any} */
function readProperty(part, name, depth) {
  part.fields(words().property);
  const kind = part.get("logicalType")?.choice(Object.keys(words().options)) ?? null;
  const options = part.get("logicalTypeOptions");
  if (options) {
    if (kind === null) options.fail("logicalTypeOptions need a logicalType");
    options.fields(words().options[/** @type {string} */ (kind)]);
  }
  const prop = property({
    name,
    column: part.get("physicalName")?.text() ?? name,
    logicalType: kind,
    required: part.get("required")?.flag() ?? false,
    unique: part.get("unique")?.flag() ?? false,
    primaryKeyPosition: part.get("primaryKey")?.flag() ? keyPosition(part) : null,
    enum: readEnum(part),
    quality: readRules(part, [name], "property"),
    ...(options ? readOptions(options, /** @type {string} */ (kind)) : {}),
    ...readInner(part, kind, depth),
  });
  if (depth && (prop.unique || prop.quality.length || prop.primaryKeyPosition !== null)) part.fail("unique, primaryKey and quality are for columns, not for members of an object");
  return prop;
}

/** @param {Part} part */
function keyPosition(part) {
  const position = part.get("primaryKeyPosition");
  return position && position.value !== -1 ? position.whole(1) : 1;
}

/** @param {Part} part */
function readEnum(part) {
  const block = part.get("enum");
  if (!block) return null;
  const isGroup = (/** @type {any} */ value) => value !== null && typeof value === "object" && !Array.isArray(value) && value.constructor === Object;
  const values = block.parts().map((item) => (isGroup(item.value) ? item.need("value") : item));
  if (!values.length) block.fail("an enumeration needs at least one value");
  return values.map((item) => item.scalar());
}

/** @param {Part} part @param {string | null} kind @param {number} depth */
function readInner(part, kind, depth) {
  const [block, items] = [part.get("properties"), part.get("items")];
  if (block && kind !== "object" && kind !== null) block.fail(`a ${kind} has no properties`);
  if (items && kind !== "array") items.fail("items need logicalType: array");
  return { properties: block ? readProperties(block, depth + 1) : [], items: items ? readProperty(items, "item", depth + 1) : null };
}

/** @param {Part} options @param {string} kind */
function readOptions(options, kind) {
  /** @type {Record<string, any>} */
  const found = {};
  const pattern = options.get("pattern");
  if (pattern) found.pattern = compiled(pattern);
  found.format = readFormat(options, kind);
  const zone = options.get("defaultTimezone");
  if (zone) {
    if (!zoneExists(zone.text())) zone.fail(`${repr(zone.text())} is not a time zone; write one such as America/Chicago`);
    found.defaultTimezone = zone.text();
  }
  const timezone = options.get("timezone");
  if (timezone) found.timezone = timezone.flag();
  const unique = options.get("uniqueItems");
  if (unique) found.uniqueItems = unique.flag();
  const members = options.get("required");
  if (members) found.requiredMembers = members.parts().map((item) => item.text());
  found.length = readLength(options);
  if (ORDERED.includes(kind)) found.bounds = readBounds(options, property({ name: "bound", column: "bound", logicalType: kind, format: found.format, defaultTimezone: found.defaultTimezone ?? "UTC" }));
  return found;
}

/** @param {Part} part @returns {string} */
function compiled(part) {
  try {
    new Expression(part.text());
  } catch (error) {
    if (error instanceof ExpressionError) part.fail(`is not a regular expression: ${error.message}`);
    throw error;
  }
  return part.text();
}

/** @param {Part} options @param {string} kind */
function readFormat(options, kind) {
  const part = options.get("format");
  if (!part) return null;
  if (NUMBER_FORMATS[kind]) return part.choice(NUMBER_FORMATS[kind]);
  if (TIMES.includes(kind)) {
    try {
      datePattern(part.text());
    } catch (error) {
      part.fail(/** @type {Error} */ (error).message);
    }
  }
  return part.text();
}

/** @param {Part} options */
function readLength(options) {
  /** @type {Record<string, number>} */
  const found = {};
  for (const [word, side] of [["min", "minimum"], ["max", "maximum"]])
    for (const noun of ["Length", "Items", "Properties"]) {
      const part = options.get(`${word}${noun}`);
      if (part) found[/** @type {string} */ (side)] = part.whole();
    }
  return Object.keys(found).length ? found : null;
}

/** @param {Part} options @param {any} template */
function readBounds(options, template) {
  const parse = parserFor(template).fromText;
  /** @type {Record<string, any>} */
  const found = {};
  for (const word of ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]) {
    const part = options.get(word);
    if (!part) continue;
    if (!TIMES.includes(template.logicalType)) {
      found[word] = part.number().value;
      continue;
    }
    try {
      found[word] = parse(part.text());
    } catch (error) {
      if (!(error instanceof ParseError)) throw error;
      part.fail(`${repr(part.text())} is ${error.message}`);
    }
  }
  const step = options.get("multipleOf");
  if (step) {
    if (step.number().value <= 0) step.fail("must be greater than 0");
    found.multipleOf = step.number().value;
  }
  return Object.keys(found).length ? found : null;
}

// --- quality rules -------------------------------------------------------------------------

/** @param {Part} owner @param {string[]} names @param {"object" | "property"} level */
function readRules(owner, names, level) {
  return (owner.get("quality")?.parts() ?? []).map((part) => readRule(part, names, level)).filter((rule) => rule !== null);
}

/** @param {Part} part @param {string[]} names @param {string} level */
function readRule(part, names, level) {
  part.fields(words().quality);
  const kind = part.get("type")?.choice(["library", "text", "sql", "custom"]) ?? "library";
  if (kind === "text" || customProperties(part, words().kfm_quality).get("kfmIgnore")?.flag()) return null;
  if (kind !== "library") part.fail(`${kind} rules are not run here; use a library metric, or say that it is checked elsewhere with the custom property kfmIgnore: true`);
  const [metric, isOld] = readMetric(part);
  if (level === "property" && metric === "rowCount") part.fail("rowCount belongs to the object, not to a property");
  if (level === "object" && !["rowCount", "duplicateValues"].includes(metric)) part.fail(`${metric} belongs to a property, not to the object`);
  return {
    metric,
    operator: readOperator(part, isOld),
    name: part.get("name")?.text() ?? null,
    percent: part.get("unit")?.choice(["rows", "percent"]) === "percent",
    warnsOnly: WARNINGS.includes(part.get("severity")?.text().toLowerCase() ?? ""),
    properties: [],
    missingValues: [null, ""],
    validValues: null,
    pattern: null,
    ...readArguments(part, metric, names, level),
  };
}

/** @param {Part} part @returns {[string, boolean]} */
function readMetric(part) {
  const [metric, rule] = [part.get("metric"), part.get("rule")];
  const { metrics, old_rules } = words();
  if (metric) return [metric.choice(metrics), false];
  if (!rule) part.fail(`metric is missing: one of ${metrics.join(", ")}`);
  return [old_rules[rule.text()] ?? rule.choice([...metrics, ...Object.keys(old_rules)]), true];
}

/** @param {Part} part @param {boolean} isOld @returns {{name: string, operand: Figure[]}} */
function readOperator(part, isOld) {
  const { operators } = words();
  const given = operators.filter((/** @type {string} */ word) => part.get(word));
  if (!given.length && isOld) return { name: "mustBe", operand: [new Figure(0, true)] };
  if (given.length !== 1) part.fail(`needs exactly one of ${operators.join(", ")}; it has ${given.length}`);
  const value = part.need(given[0]);
  if (!given[0].endsWith("Between")) return { name: given[0], operand: [value.number()] };
  const pair = value.parts().map((item) => item.number());
  if (pair.length !== 2 || /** @type {Figure} */ (pair[0]).value > /** @type {Figure} */ (pair[1]).value) value.fail("must be two numbers, the smaller one first");
  return { name: given[0], operand: pair };
}

/** @param {Part} part @param {string} metric @param {string[]} names @param {string} level */
function readArguments(part, metric, names, level) {
  const block = part.get("arguments");
  const allowed = /** @type {Record<string, string[]>} */ ({ missingValues: ["missingValues"], invalidValues: ["validValues", "pattern"], duplicateValues: level === "object" ? ["properties"] : [] })[metric] ?? [];
  block?.fields(allowed);
  /** @type {Record<string, any>} */
  const found = {};
  const missing = block?.get("missingValues");
  if (missing) found.missingValues = missing.parts().map((item) => item.scalar());
  const valid = block?.get("validValues") ?? part.get("validValues");
  if (valid) found.validValues = valid.parts().map((item) => item.scalar());
  const pattern = block?.get("pattern");
  if (pattern) found.pattern = compiled(pattern);
  if (metric === "invalidValues" && !found.validValues && !pattern) part.fail("invalidValues needs arguments: validValues, pattern, or both");
  if (metric === "duplicateValues" && level === "object") found.properties = readColumns(part, block, names);
  return found;
}

/** @param {Part} part @param {Part | null} block @param {string[]} names */
function readColumns(part, block, names) {
  const listed = block?.get("properties");
  if (!listed?.parts().length) part.fail("duplicateValues of an object needs arguments.properties: the names of its columns");
  for (const item of listed.parts()) if (!names.includes(item.text())) item.fail(`there is no property ${repr(item.text())}${nearest(item.text(), names)}`);
  return listed.parts().map((item) => item.text());
}

// --- freshness -----------------------------------------------------------------------------

/** @param {Part} root @param {any[]} objects */
function readFreshness(root, objects) {
  const found = [];
  const byDefault = root.get("slaDefaultElement");
  for (const part of root.get("slaProperties")?.parts() ?? []) {
    part.fields(words().sla);
    const word = part.need("property").text();
    if (!["freshness", "latency", "ly"].includes(word.toLowerCase())) continue;
    part.need("value");
    const elements = part.get("element") ?? byDefault;
    if (!elements) return part.fail(`${word} needs an element: the column whose newest value is looked at`);
    for (const element of elements.text().split(",")) found.push(freshnessOf(part, elements, element.trim(), objects));
  }
  return found;
}

/** @param {Part} part @param {Part} where @param {string} element @param {any[]} objects */
function freshnessOf(part, where, element, objects) {
  const dot = element.lastIndexOf(".");
  const [objectName, column] = dot < 0 ? ["", element] : [element.slice(0, dot), element.slice(dot + 1)];
  const candidates = objects.filter((item) => dot < 0 || item.name === objectName);
  if (dot < 0 && objects.length > 1) where.fail(`the contract has several objects: write OBJECT.${element}`);
  const prop = candidates[0]?.properties.find((/** @type {any} */ one) => one.name === column);
  if (!prop) {
    const known = objects.flatMap((item) => item.properties.map((/** @type {any} */ one) => `${item.name}.${one.name}`)).join(", ");
    where.fail(`there is no element ${repr(element)}; there are: ${known || "none"}`);
  }
  if (!["date", "timestamp"].includes(prop.logicalType)) where.fail(`${repr(element)} is not a date or a timestamp`);
  const unit = part.get("unit");
  const unitText = unit?.text() ?? "d";
  const unitMs = words().unit_ms[unitText.toLowerCase()];
  if (unit && unitMs === undefined) unit.choice(Object.keys(words().unit_ms));
  const value = part.need("value").number();
  if (!(value.value >= 0 && value.value < 1e9)) part.need("value").fail("must be a number of units, not negative");
  return { objectName: candidates[0].name, propertyName: prop.name, ageMsMax: Math.trunc(value.value * (unitMs ?? 0)), label: `${value} ${unitText}` };
}
