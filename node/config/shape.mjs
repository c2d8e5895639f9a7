/** Turn a document into settings by `contracts/schemas/settings.schema.json`, or say what is wrong with its shape. */

import { pythonFloat } from "../model/canonical.mjs";
import { contract } from "../model/contracts.mjs";
import { ConfigError } from "../model/errors.mjs";
import { Float } from "../model/json.mjs";
import { closest } from "../model/patterns.mjs";
import { splitUrl } from "../model/urls.mjs";
import { isPrintable, length, rpartition, sortedByPoints } from "../model/wording.mjs";

const PROBLEMS_MAX = 20;
const PRIVATE = /headers|params|options|url|bucket|store/;
const NAMES = /** @type {Record<string, string>} */ ({ string: "text", integer: "a whole number", number: "a number", boolean: "true or false" });

/** @param {import("./document.mjs").Document} document @returns {any} the settings, with every default filled in */
export function toSettings(document) {
  const schema = contract("schemas/settings.schema.json");
  const walker = new Walker(document, schema);
  const settings = walker.walk(document.values, schema, "");
  if (walker.found.length) throw gathered(walker.found);
  return settings;
}

/** One error for all problems. @param {import("../model/errors.mjs").KfmError[]} problems */
export function gathered(problems) {
  problems = problems.filter((one, at) => problems.findIndex((other) => other.detail === one.detail) === at); // of a default it is said once
  const details = problems.slice(0, PROBLEMS_MAX).map((problem) => problem.detail);
  if (problems.length > details.length) details.push(`… and ${problems.length - details.length} more`);
  const { file, line } = problems[0]?.facts ?? {};
  return new ConfigError(details.join("\n"), { problems: details, file, line });
}

/** @param {string} url */
export function isWebAddress(url) {
  const parts = splitUrl(url);
  return Boolean(parts && parts.port !== false && ["http", "https"].includes(parts.scheme) && parts.netloc);
}

/** The known word that was meant: a misspelling of it, or the same in other case. @param {string} word @param {string[]} words @returns {string | null} */
function meant(word, words) {
  return closest(word, words) ?? words.find((right) => right.toLowerCase() === word.toLowerCase()) ?? null;
}

/** `; did you mean …?` where a word is near, else the words that would be right. @param {string} word @param {string[]} words */
export function nearest(word, words) {
  const close = meant(word, words);
  if (close !== null) return `; did you mean \`${close}\`?`;
  return words.length > 0 && words.length <= 8 ? `; known are ${words.map((one) => `\`${one}\``).join(", ")}` : "";
}

class Walker {
  /** @param {import("./document.mjs").Document} document @param {any} schema */
  constructor(document, schema) {
    this.document = document;
    this.schema = schema;
    /** @type {import("../model/errors.mjs").KfmError[]} */
    this.found = [];
  }

  /** @param {string} path @param {string} sentence */
  say(path, sentence) {
    this.found.push(this.document.error(path, sentence));
  }

  /** @param {any} value @param {any} given @param {string} path @returns {any} */
  walk(value, given, path) {
    const kind = this.#resolved(given);
    if (kind.anyOf) {
      const options = kind.anyOf.map((/** @type {any} */ one) => this.#resolved(one));
      const others = options.filter((/** @type {any} */ one) => one.type !== "null");
      if (value === null && others.length < options.length) return null;
      const words = others.find((/** @type {any} */ one) => one.enum);
      return this.walk(value, words && typeof value === "string" ? words : others[0], path);
    }
    if (kind.enum) return this.#literal(value, kind.enum, path);
    if (kind.type === "object") return kind.properties ? this.#struct(value, kind, path) : this.#table(value, kind, path);
    if (kind.type === "array") return this.#sequence(value, kind, path);
    if (!fits(value, kind.type)) {
      this.say(path, `\`${last(path)}\` must be ${NAMES[kind.type] ?? kind.type}, not ${describe(value, path)}`);
      return null;
    }
    return value instanceof Float ? value.value : value;
  }

  /** @param {any} given @returns {any} */
  #resolved(given) {
    return given.$ref ? this.schema.$defs[given.$ref.split("/").at(-1)] : given;
  }

  /** @param {any} value @param {any} kind @param {string} path */
  #struct(value, kind, path) {
    if (!isGroup(value)) {
      this.say(path, `\`${last(path)}\` must be a group of settings, not ${describe(value, path)}`);
      return {};
    }
    const fields = kind.properties;
    for (const key of Object.keys(value)) {
      if (Object.hasOwn(fields, key)) continue;
      const where = path ? ` of \`${last(path)}\`` : "";
      this.say(path ? `${path}.${key}` : key, `\`${key}\` is not a setting${where}${nearest(key, sortedByPoints(Object.keys(fields)))}`);
    }
    /** @type {Record<string, any>} */
    const made = {};
    for (const [key, field] of Object.entries(fields)) {
      const child = path ? `${path}.${key}` : key;
      if (Object.hasOwn(value, key)) made[key] = this.walk(value[key], field, child);
      else if ((kind.required ?? []).includes(key)) this.say(path, `\`${key}\` is missing from \`${last(path)}\``);
      else if (Object.hasOwn(/** @type {any} */ (field), "default")) made[key] = structuredClone(/** @type {any} */ (field).default); // else it is not set at all
    }
    return made;
  }

  /** @param {any} value @param {any} kind @param {string} path */
  #sequence(value, kind, path) {
    if (!Array.isArray(value)) {
      this.say(path, `\`${last(path)}\` must be a list, not ${describe(value, path)}`);
      return [];
    }
    const items = kind.prefixItems;
    if (items && items.length !== value.length) {
      this.say(path, `\`${last(path)}\` must hold ${items.length} values, not ${value.length}`);
      return [];
    }
    return value.map((item, index) => this.walk(item, items ? items[index] : kind.items, `${path}[${index}]`));
  }

  /** @param {any} value @param {any} kind @param {string} path */
  #table(value, kind, path) {
    if (!isGroup(value)) {
      this.say(path, `\`${last(path)}\` must be names with values, not ${describe(value, path)}`);
      return {};
    }
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.walk(item, kind.additionalProperties, `${path}.${key}`)]));
  }

  /** @param {any} value @param {any[]} allowed @param {string} path */
  #literal(value, allowed, path) {
    if (allowed.includes(value)) return value;
    const words = allowed.map(String);
    const close = typeof value === "string" ? meant(value, words) : null;
    if (close !== null) this.say(path, `\`${last(path)}\` can't be ${describe(value, path)}; did you mean \`${close}\`?`);
    else this.say(path, `\`${last(path)}\` must be ${words.map((word) => `\`${word}\``).join(" or ")}, not ${describe(value, path)}`);
    return allowed[0];
  }
}

/** @param {any} value */
export function isGroup(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Float);
}

/** @param {any} value @param {string} type */
function fits(value, type) {
  if (typeof value === "boolean") return type === "boolean";
  if (type === "string") return typeof value === "string";
  if (type === "integer") return typeof value === "number";
  if (type === "number") return typeof value === "number" || value instanceof Float;
  return false;
}

/** The part of a path that a person recognises. @param {string} path */
function last(path) {
  return rpartition(path, ".")[2] || "the file";
}

/** A value in words; its text only where no secret can stand. @param {any} value @param {string} path */
function describe(value, path) {
  if (value === null) return "empty";
  if (typeof value === "boolean") return `\`${value}\``;
  if (typeof value === "number") return `\`${value}\``;
  if (value instanceof Float) return `\`${pythonFloat(value.value)}\``;
  if (typeof value === "string") {
    const harmless = length(value) <= 40 && Array.from(value).every(isPrintable) && !PRIVATE.test(path);
    return harmless ? `\`${value}\`` : "that text";
  }
  return Array.isArray(value) ? "a list" : "a group";
}
