/** Times: RFC 3339 in UTC, dates as HTTP writes them, time zones. */

import { UsageError } from "./errors.mjs";
import { head, repr } from "./wording.mjs";

export const MS_MIN = -62_135_596_800_000;
export const MS_MAX = 253_402_300_799_999;
export const WAIT_MAX_MS = 86_400_000;

/** Does a lease, a claim or a wait still last? One that lies further ahead than twice its length was set by a clock that was ahead, and is over. @param {number} untilMs @param {number} nowMs @param {number} [lengthMs] */
export const holds = (untilMs, nowMs, lengthMs = WAIT_MAX_MS) => untilMs > nowMs && untilMs - nowMs <= 2 * lengthMs;

/** Is it the window of a source without windows, which stands for all of time? @param {number} startMs @param {number} endMs */
export const isAllTime = (startMs, endMs) => startMs === MS_MIN && endMs === MS_MAX;
const RFC3339 = /^(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):(\d\d))$/;

/** @param {number} ms */
export function rfc3339(ms) {
  if (!(MS_MIN <= ms && ms <= MS_MAX)) throw new UsageError(`${ms} ms is outside the years 0001 to 9999.`);
  const text = new Date(ms).toISOString();
  return text.endsWith(".000Z") ? `${text.slice(0, 19)}Z` : text;
}

/** Milliseconds of a date and time of the calendar, as if in UTC; null if there is none. @param {number} year @param {number} month @param {number} day */
export function calendarMs(year, month, day, hour = 0, minute = 0, second = 0, ms = 0) {
  if (year < 1 || year > 9999 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59) return null;
  const at = new Date(0);
  at.setUTCFullYear(year, month - 1, day);
  at.setUTCHours(hour, minute, second, ms);
  return at.getUTCMonth() === month - 1 && at.getUTCDate() === day ? at.getTime() : null;
}

/** @param {string} text @returns {number} */
export function parseRfc3339(text) {
  const match = RFC3339.exec(text);
  if (!match) throw new UsageError(`${repr(head(text, 64))} is not an RFC 3339 time such as 2026-01-01T00:00:00Z.`);
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map(Number);
  const ms = Number((match[7] ?? "0").padEnd(3, "0").slice(0, 3));
  const hours = Number(match[10] ?? 0);
  const minutes = Number(match[11] ?? 0);
  const local = calendarMs(/** @type {number} */ (year), /** @type {number} */ (month), /** @type {number} */ (day), hour, minute, second, ms);
  if (local === null || hours > 23 || minutes > 59) throw new UsageError(`${repr(head(text, 64))} names no time that exists.`);
  const offset = (hours * 60 + minutes) * 60_000 * (match[9] === "-" ? -1 : 1);
  const since = local - offset;
  if (!(MS_MIN <= since && since <= MS_MAX)) throw new UsageError(`${repr(head(text, 64))} is outside the years 0001 to 9999.`);
  return since;
}

// --- dates of HTTP -----------------------------------------------------------------------

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const MONTH = MONTHS.join("|");
const IMF = new RegExp(`^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\\d\\d) (${MONTH}) (\\d{4}) (\\d\\d):(\\d\\d):(\\d\\d) GMT$`);
const RFC850 = new RegExp(`^(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (\\d\\d)-(${MONTH})-(\\d\\d) (\\d\\d):(\\d\\d):(\\d\\d) GMT$`);
const ASCTIME = new RegExp(`^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (${MONTH}) ([ \\d]\\d) (\\d\\d):(\\d\\d):(\\d\\d) (\\d{4})$`);

/** Does Last-Modified identify the content? Not within its second, by the server's clock: it may be written again in there. @param {Record<string, string | undefined>} headers @param {number} nowMs */
export function isStrongDate(headers, nowMs) {
  const modified = parseHttpDate(headers["last-modified"]);
  return modified !== null && modified < (parseHttpDate(headers.date) ?? nowMs);
}

/** Milliseconds since the epoch; null for what is no HTTP date. @param {string | null | undefined} given @param {number} [nowMs] */
export function parseHttpDate(given, nowMs) {
  const text = (given ?? "").replace(/^[ \t]+|[ \t]+$/g, "");
  let day, month, year, hour, minute, second;
  let match = IMF.exec(text);
  if (match) [, day, month, year, hour, minute, second] = match;
  else if ((match = ASCTIME.exec(text))) [, month, day, hour, minute, second, year] = match;
  else if ((match = RFC850.exec(text))) {
    [, day, month, year, hour, minute, second] = match;
    year = String(fullYear(Number(year), nowMs));
  } else return null;
  const leap = second === "60"; // allowed by the grammar, unknown to the calendar
  const at = calendarMs(Number(year), MONTHS.indexOf(String(month)) + 1, Number(day), Number(hour), Number(minute), leap ? 59 : Number(second));
  return at === null ? null : at + (leap ? 1000 : 0);
}

/** @param {number} twoDigits @param {number} [nowMs] */
function fullYear(twoDigits, nowMs) {
  if (nowMs === undefined) return twoDigits + (twoDigits >= 70 ? 1900 : 2000);
  const thisYear = new Date(nowMs).getUTCFullYear();
  const year = thisYear - (thisYear % 100) + twoDigits;
  return year > thisYear + 50 ? year - 100 : year;
}

// --- time zones --------------------------------------------------------------------------

/** @type {Map<string, Intl.DateTimeFormat | null>} */
const clocks = new Map();
const REACH_MS = 36 * 3_600_000;

/** @param {string} zone */
function clock(zone) {
  let found = clocks.get(zone);
  if (found === undefined) {
    try {
      found = new Intl.DateTimeFormat("en-US", {
        timeZone: zone,
        hourCycle: "h23",
        era: "short",
        year: "numeric",
        month: "2-digit",
        day: "2-digit",
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
      });
    } catch {
      found = null;
    }
    // Intl takes names in any case, and offsets; a zone is called by its own name.
    if (found && !/^[A-Za-z][A-Za-z0-9_+\-/]*$/.test(zone)) found = null;
    clocks.set(zone, found);
  }
  return found;
}

/** @param {string} zone */
export function zoneExists(zone) {
  return zone === "UTC" || clock(zone) !== null;
}

export function zoneNames() {
  return Intl.supportedValuesOf("timeZone");
}

/** What the clock of a zone shows at an instant, counted as if it were UTC. @param {string} zone @param {number} atMs */
export function shown(zone, atMs) {
  if (zone === "UTC") return atMs;
  const format = clock(zone);
  if (!format) throw new RangeError(`no such zone: ${zone}`);
  /** @type {Record<string, string>} */
  const parts = {};
  for (const part of format.formatToParts(atMs)) parts[part.type] = part.value;
  const year = Number(parts.year);
  const at = new Date(0);
  at.setUTCFullYear(parts.era === "BC" || parts.era === "B" ? 1 - year : year, Number(parts.month) - 1, Number(parts.day));
  at.setUTCHours(Number(parts.hour), Number(parts.minute), Number(parts.second), 0);
  return at.getTime() + (((atMs % 1000) + 1000) % 1000);
}

/** @param {string} zone @param {number} atMs */
export function offsetMs(zone, atMs) {
  return shown(zone, atMs) - atMs;
}

/** The instants at which the clock shows this, earliest first. @param {string} zone @param {number} localMs */
export function instantsOf(zone, localMs) {
  if (zone === "UTC") return [localMs];
  const offsets = new Set([offsetMs(zone, localMs - REACH_MS), offsetMs(zone, localMs), offsetMs(zone, localMs + REACH_MS)]);
  return [...offsets].map((offset) => localMs - offset).filter((at) => shown(zone, at) === localMs).sort((a, b) => a - b);
}

/** Of a time shown twice the earlier, of one never shown that much later. @param {string} zone @param {number} localMs */
export function compatible(zone, localMs) {
  const found = instantsOf(zone, localMs);
  if (found.length) return /** @type {number} */ (found[0]);
  return localMs - offsetMs(zone, localMs - REACH_MS);
}

/** The first instant of the local day that holds an instant. @param {string} zone @param {number} atMs */
export function startOfDay(zone, atMs) {
  const midnight = Math.floor(shown(zone, atMs) / 86_400_000) * 86_400_000;
  const found = instantsOf(zone, midnight);
  if (found.length) return /** @type {number} */ (found[0]);
  // Midnight was left out: the day begins where the clock jumps over it.
  let [low, high] = [midnight - offsetMs(zone, midnight - REACH_MS) - REACH_MS, atMs];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (shown(zone, middle) < midnight) low = middle;
    else high = middle;
  }
  return high;
}
