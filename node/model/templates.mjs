/** Fields in braces: the one renderer of `{window.start}` and its like, and what a published path may be. */

import { ConfigError } from "./errors.mjs";
import { closest } from "./patterns.mjs";
import { rfc3339, shown } from "./times.mjs";
import { head, length, partition, repr } from "./wording.mjs";

/** @typedef {{window: import("../types.js").Window, time_zone: string, source: string, dataset: string, partition: string | null, name?: string, relpath?: string}} Fields */

const PATH_BYTES_MAX = 1024;
const SEGMENT_BYTES_MAX = 255;
const TEMPLATE_CHARS_MAX = 4096;
export const PLACE_FIELDS = ["window.start", "window.end", "source", "dataset", "partition"];
export const PATH_FIELDS = [...PLACE_FIELDS, "name", "relpath"];
const DIGITS = /** @type {Record<string, number>} */ ({ Y: 4, m: 2, d: 2, H: 2, M: 2, S: 2, j: 3, y: 2 });
// Controls, what turns or joins text, what has no glyph: two names that differ in it look the same.
const UNSEEN =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Cn}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/u;
export const PATH_REMEDY = "Give the source a `path` template that makes a plain relative path, such as {name}.";

/** @param {string} template @param {Fields} fields */
export function render(template, fields) {
  const allowed = fields.name === undefined ? PLACE_FIELDS : PATH_FIELDS;
  let out = "";
  for (const [text, field] of pieces(template)) out += field === null ? text : valueOf(template, field, fields, allowed);
  return out;
}

/** What is wrong with a template, without rendering it. @param {string} template @param {string[]} allowed */
export function templateProblem(template, allowed) {
  try {
    for (const [, field] of pieces(template)) if (field !== null) known(template, field, allowed);
  } catch (error) {
    if (error instanceof ConfigError) return error.detail;
    throw error;
  }
  return null;
}

/** The path in NFC, if it can be published anywhere. @param {string} given @param {string} [remedy] */
export function safePath(given, remedy = PATH_REMEDY) {
  const path = given.normalize("NFC");
  const problem = pathProblem(path);
  if (problem) throw new ConfigError(`The path ${repr(head(path, 200))} can't be published: ${problem}.`, { remedy });
  return path;
}

/** @param {string} path */
function pathProblem(path) {
  if (!path) return "it is empty";
  if (path.startsWith("/")) return "it is absolute";
  for (const character of path) {
    if (character === "\\") return "it has a backslash";
    if (UNSEEN.test(character))
      return `it has the unprintable character U+${/** @type {number} */ (character.codePointAt(0)).toString(16).toUpperCase().padStart(4, "0")}`;
  }
  if (Buffer.byteLength(path) > PATH_BYTES_MAX) return `it is longer than ${PATH_BYTES_MAX} bytes`;
  for (const segment of path.split("/")) {
    if (!segment) return "it has an empty segment";
    if (segment.startsWith(".")) return `its segment ${repr(segment)} begins with a dot`;
    if (segment !== segment.trim()) return `its segment ${repr(segment)} begins or ends with a space`;
    if (Buffer.byteLength(segment) > SEGMENT_BYTES_MAX) return `a segment is longer than ${SEGMENT_BYTES_MAX} bytes`;
  }
  return null;
}

/** @param {string} template @returns {Generator<[string, string | null]>} */
function* pieces(template) {
  if (length(template) > TEMPLATE_CHARS_MAX) throw new ConfigError(`A template is longer than ${TEMPLATE_CHARS_MAX} characters: ${repr(head(template, 40))}…`);
  let at = 0;
  for (const match of template.matchAll(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g)) {
    yield [template.slice(at, match.index), null];
    at = match.index + match[0].length;
    if (match[1] !== undefined) yield ["", match[1]];
    else if (match[0].length === 2) yield [/** @type {string} */ (match[0][0]), null];
    else throw new ConfigError(`A brace stands alone in ${repr(template)}: write {{ or }} for a brace itself.`);
  }
  yield [template.slice(at), null];
}

/** @param {string} template @param {string} field @param {string[]} allowed @returns {[string, string]} */
function known(template, field, allowed) {
  const [name, , form] = partition(field, ":");
  if (!allowed.includes(name)) throw new ConfigError(`{${name}} in ${repr(template)} means nothing here.${nearest(name, allowed)}`);
  if (field.includes(":") && !name.startsWith("window.")) throw new ConfigError(`{${name}} takes no format, but has one in ${repr(template)}.`);
  if (field.includes(":") && form !== "date") {
    if (!form.includes("%")) throw new ConfigError(`\`${form}\` in ${repr(template)} is no way to write a time.${nearest(form, ["date", "%Y-%m-%d"])}`);
    for (const [, directive = ""] of form.matchAll(/%(.?)/g))
      if (!(directive in DIGITS) && directive !== "%") throw new ConfigError(`\`%${directive}\` in ${repr(template)} is not one of %${Object.keys(DIGITS).join(" %")}.`);
  }
  return [name, form];
}

/** @param {string} template @param {string} field @param {Fields} fields @param {string[]} allowed */
function valueOf(template, field, fields, allowed) {
  const [name, form] = known(template, field, allowed);
  if (name.startsWith("window.")) return timeText(name === "window.start" ? fields.window.start_ms : fields.window.end_ms, form, fields.time_zone);
  const value = /** @type {any} */ (fields)[name];
  if (value === null || value === undefined) throw new ConfigError(`{${name}} in ${repr(template)} has no value: source \`${fields.source}\` declares none.`);
  return value;
}

/** @param {number} atMs @param {string} form @param {string} zone */
function timeText(atMs, form, zone) {
  if (!form) return rfc3339(atMs);
  const at = new Date(shown(zone, atMs));
  const year = at.getUTCFullYear();
  const first = new Date(0);
  first.setUTCFullYear(year, 0, 1);
  const values = /** @type {Record<string, number>} */ ({
    Y: year,
    m: at.getUTCMonth() + 1,
    d: at.getUTCDate(),
    H: at.getUTCHours(),
    M: at.getUTCMinutes(),
    S: at.getUTCSeconds(),
    j: Math.floor((at.getTime() - first.getTime()) / 86_400_000) + 1,
    y: year % 100,
  });
  return (form === "date" ? "%Y-%m-%d" : form).replace(/%(.)/g, (_all, directive) => (directive === "%" ? "%" : String(values[directive]).padStart(/** @type {number} */ (DIGITS[directive]), "0")));
}

/** @param {string} word @param {string[]} words */
function nearest(word, words) {
  const close = closest(word, words);
  return close ? ` Did you mean \`${close}\`?` : ` There are: ${words.join(", ")}.`;
}
