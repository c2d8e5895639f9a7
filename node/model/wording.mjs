/** How texts, counts, sizes and times are written for people: as Python writes them. */

const MS_PER_DAY = 86_400_000;
const SHORT_ID_CHARS = 13;

/** Is a character shown as itself by Python's repr and str.isprintable? @param {string} char */
export function isPrintable(char) {
  return char === " " || !/[\p{C}\p{Z}]/u.test(char);
}

/** Python's repr of a text. @param {string} text */
export function repr(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  let out = "";
  for (const char of text) {
    const point = /** @type {number} */ (char.codePointAt(0));
    if (char === quote || char === "\\") out += `\\${char}`;
    else if (char === "\n") out += "\\n";
    else if (char === "\r") out += "\\r";
    else if (char === "\t") out += "\\t";
    else if (isPrintable(char)) out += char;
    else if (point < 0x100) out += `\\x${hex(point, 2)}`;
    else if (point < 0x10000) out += `\\u${hex(point, 4)}`;
    else out += `\\U${hex(point, 8)}`;
  }
  return quote + out + quote;
}

/** @param {number} point @param {number} digits */
function hex(point, digits) {
  return point.toString(16).padStart(digits, "0");
}

/** How many characters Python counts. @param {string} text */
export function length(text) {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

/** The first characters, as Python counts them. @param {string} text @param {number} chars */
export function head(text, chars) {
  return text.length <= chars ? text : Array.from(text).slice(0, chars).join("");
}

/** Half a surrogate pair is no text. @param {string} text */
export function whole(text) {
  return text.isWellFormed() ? text : text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "?");
}

/** The order of code points, which is Python's. @param {string} a @param {string} b */
export function byPoints(a, b) {
  if (a === b) return 0;
  const size = Math.min(a.length, b.length);
  for (let at = 0; at < size; at += 1) {
    const x = a.charCodeAt(at);
    const y = b.charCodeAt(at);
    if (x !== y) {
      // Surrogates stand for characters beyond all others.
      const lift = (/** @type {number} */ unit) => (unit >= 0xd800 && unit <= 0xdfff ? unit + 0x10000 : unit);
      return lift(x) - lift(y);
    }
  }
  return a.length - b.length;
}

/** @param {Iterable<string>} texts */
export function sortedByPoints(texts) {
  return [...texts].sort(byPoints);
}

/** @param {number} count @param {string} word */
export function counted(count, word) {
  return count === 1 ? `${count} ${word}` : `${count} ${word}s`;
}

/** @param {number} value */
export function thousands(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** @param {number} size */
export function readableSize(size) {
  if (size < 1024) return `${size} B`;
  let amount = size;
  let shown = "";
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    amount /= 1024;
    shown = unit;
    if (amount < 1023.95 || unit === "TiB") break;
  }
  return `${amount.toFixed(1)} ${shown}`;
}

/** `2026-01-31T06:00:00` @param {number} atMs @returns {string | null} */
function second(atMs) {
  const at = new Date(Math.floor(atMs / 1000) * 1000);
  const year = at.getUTCFullYear();
  if (Number.isNaN(at.getTime()) || year < 1 || year > 9999) return null;
  return at.toISOString().slice(0, 19);
}

/** @param {number} atMs */
export function moment(atMs) {
  const text = second(atMs);
  return text === null ? `${atMs} ms after 1970-01-01 00:00:00 UTC` : `${text.replace("T", " ")} UTC`;
}

/** @param {number} atMs */
export function utcText(atMs) {
  const text = second(atMs);
  return text === null ? `${atMs} ms after 1970-01-01T00:00:00Z` : `${text}Z`;
}

/** @param {number | null} atMs */
export function instant(atMs) {
  if (atMs === null) return null;
  const text = second(atMs);
  if (text === null) return `${atMs} ms after 1970-01-01T00:00:00Z`;
  const rest = ((atMs % 1000) + 1000) % 1000;
  return `${text}.${String(rest).padStart(3, "0")}Z`;
}

/** @param {number} startMs @param {number} endMs */
export function span(startMs, endMs) {
  let [start, end] = [startMs, endMs].map((at) => moment(at).replace(/ UTC$/, ""));
  if (start?.endsWith(":00") && end?.endsWith(":00")) {
    start = start.slice(0, -3);
    end = end.slice(0, -3);
  }
  return `${start} … ${end} UTC`;
}

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const total = Math.floor(ms / 1000);
  const seconds = total % 60;
  const minutes = Math.floor(total / 60) % 60;
  const hours = Math.floor(total / 3600);
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${seconds} s`;
}

/** @param {string} runId */
export function shortId(runId) {
  return runId.slice(0, SHORT_ID_CHARS);
}

const UNSEEN = /[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udfff]/g;

/** JSON text in which everything that can't be seen is written as an escape; its meaning is the same. @param {string} text */
export function visibleJson(text) {
  return text.replace(UNSEEN, (found) => found.split("").map((half) => `\\u${half.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));
}

/** Text from outside may hold anything; a terminal must not obey it. @param {string} text */
export function oneLine(text) {
  return Array.from(text, (char) => (isPrintable(char) ? char : " ")).join("");
}

/** Words with single blanks between them. @param {string} text */
export function words(text) {
  return text.split(/[\s\x1c-\x1f\x85]+/u).filter(Boolean).join(" ");
}

/** Python's str.partition. @param {string} text @param {string} mark @returns {[string, string, string]} */
export function partition(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text, "", ""] : [text.slice(0, at), mark, text.slice(at + mark.length)];
}

/** Python's str.rpartition. @param {string} text @param {string} mark @returns {[string, string, string]} */
export function rpartition(text, mark) {
  const at = text.lastIndexOf(mark);
  return at < 0 ? ["", "", text] : [text.slice(0, at), mark, text.slice(at + mark.length)];
}

/** @param {string} text @param {string} prefix */
export function withoutPrefix(text, prefix) {
  return text.startsWith(prefix) ? text.slice(prefix.length) : text;
}

/** @param {string} text @param {string} suffix */
export function withoutSuffix(text, suffix) {
  return suffix && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
}

export const DAY_MS = MS_PER_DAY;
