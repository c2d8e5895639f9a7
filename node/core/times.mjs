/** Times as text: RFC 3339 in UTC, milliseconds only where there are any. */

import { UsageError } from "./errors.mjs";
import { head, repr } from "./wording.mjs";

export const MS_MIN = -62_135_596_800_000;
export const MS_MAX = 253_402_300_799_999;
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
