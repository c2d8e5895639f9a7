/** Windows: which span of time a run covers. Windows of one length tile time in the source's zone. */

import { UsageError, WindowError } from "./errors.mjs";
import { MS_MAX, MS_MIN, calendarMs, parseRfc3339, rfc3339, compatible, instantsOf, shown, startOfDay, zoneExists } from "./times.mjs";
import { DAY_MS, head, partition, repr } from "./wording.mjs";

/** @typedef {{years: number, months: number, weeks: number, days: number, time_ms: number}} Duration */
/** @typedef {{start_ms: number, end_ms: number, spec: string}} Window */

const DURATION =
  /^P(?:(\d{1,7})Y)?(?:(\d{1,7})M)?(?:(\d{1,7})W)?(?:(\d{1,7})D)?(?:T(?:(\d{1,7})H)?(?:(\d{1,7})M)?(?:(\d{1,7})S)?)?$/;
const TOO_LONG = /\d{8,}/;
const TOO_LONG_ALL = /\d{8,}/g;
const DATE = /^(\d{4})-(\d\d)-(\d\d)$/;
const NAIVE = /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?$/;
const SHORT_OFFSET = /^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d)(Z|[+-]\d\d:\d\d)$/;
const DAY_ONE_MS = MS_MIN; // 0001-01-01, a Monday

/** @param {string} text @returns {Duration} */
export function parseDuration(text) {
  const match = DURATION.exec(text);
  const isDuration = match && !text.endsWith("P") && !text.endsWith("T");
  if (!isDuration && TOO_LONG.test(text) && DURATION.test(text.replace(TOO_LONG_ALL, "1"))) throw new WindowError(`${repr(head(text, 64))} is too long.`, { remedy: "A number has seven digits at most." });
  if (!isDuration) throw new WindowError(`${repr(head(text, 64))} is not an ISO 8601 duration.`);
  const [years, months, weeks, days, hours, minutes, seconds] = /** @type {number[]} */ (match.slice(1).map((part) => Number(part ?? 0)));
  const time_ms = ((/** @type {number} */ (hours) * 60 + /** @type {number} */ (minutes)) * 60 + /** @type {number} */ (seconds)) * 1000;
  const duration = /** @type {Duration} */ ({ years, months, weeks, days, time_ms });
  if (!Object.values(duration).some(Boolean)) throw new WindowError(`${repr(text)} has no length.`);
  return duration;
}

/** The absolute window that a person's words mean at this moment. @param {string} spec @param {string} zone @param {number} nowMs @returns {Window} */
export function resolveWindow(spec, zone, nowMs) {
  if (spec.includes("/")) return explicit(spec, zone);
  const duration = alignable(spec);
  let [start, end] = containing(duration, zone, nowMs);
  if (end > nowMs) [start, end] = containing(duration, zone, start - 1);
  return { start_ms: start, end_ms: end, spec };
}

/** @param {Window} window @param {string} zone */
export const nextWindow = (window, zone) => neighbour(window, zone, true);
/** @param {Window} window @param {string} zone */
export const previousWindow = (window, zone) => neighbour(window, zone, false);

/** @param {Window} window @param {string} zone @param {boolean} forward @returns {Window} */
function neighbour(window, zone, forward) {
  const [left, , right] = partition(window.spec, "/");
  if (!right) {
    const [start_ms, end_ms] = containing(alignable(left), zone, forward ? window.end_ms : window.start_ms - 1);
    return { start_ms, end_ms, spec: window.spec };
  }
  if (right.startsWith("P")) {
    const duration = parseDuration(right);
    const start_ms = forward ? window.end_ms : shifted(window.start_ms, duration, zone, -1);
    const end_ms = forward ? shifted(window.end_ms, duration, zone, 1) : window.start_ms;
    return { start_ms, end_ms, spec: `${rfc3339(start_ms)}/${right}` };
  }
  const length = (window.end_ms - window.start_ms) * (forward ? 1 : -1);
  const [start_ms, end_ms] = [window.start_ms + length, window.end_ms + length];
  return { start_ms, end_ms, spec: `${rfc3339(start_ms)}/${rfc3339(end_ms)}` };
}

/** @param {string} spec @param {string} zone @returns {Window} */
function explicit(spec, zone) {
  const [left, , right] = partition(spec, "/");
  const start_ms = parseInstant(left, zone);
  const end_ms = right.startsWith("P") ? shifted(start_ms, parseDuration(right), zone, 1) : parseInstant(right, zone);
  if (end_ms <= start_ms) throw new WindowError(`${repr(head(spec, 128))} ends before it begins, or is empty.`);
  return { start_ms, end_ms, spec };
}

/** A date (its first instant), a local time, or a time with an offset. @param {string} text @param {string} zone @returns {number} */
export function parseInstant(text, zone) {
  const day = DATE.exec(text);
  if (day) {
    const local = calendarMs(Number(day[1]), Number(day[2]), Number(day[3]));
    if (local === null) throw new WindowError(`${repr(text)} is not a date.`);
    return midnight(local, zone);
  }
  const local = NAIVE.exec(text);
  if (!local) {
    const short = SHORT_OFFSET.exec(text);
    try {
      return parseRfc3339(short ? `${short[1]}:00${short[2]}` : text);
    } catch (error) {
      if (error instanceof UsageError) throw new WindowError(error.detail);
      throw error;
    }
  }
  const [year, month, date, hour, minute, second] = /** @type {number[]} */ (local.slice(1, 7).map((part) => Number(part ?? 0)));
  const ms = Number((local[7] ?? "0").padEnd(3, "0"));
  const plain = calendarMs(/** @type {number} */ (year), /** @type {number} */ (month), /** @type {number} */ (date), hour, minute, second, ms);
  if (plain === null || !zoneExists(zone)) throw new WindowError(`${repr(text)} in ${zone}: it names no time that exists.`);
  const found = instantsOf(zone, plain);
  if (found.length > 1) throw new WindowError(`The clocks of ${zone} show ${text} twice: add an offset such as -05:00.`);
  if (!found.length) throw new WindowError(`The clocks of ${zone} never show ${text}.`);
  return /** @type {number} */ (found[0]);
}

/** Calendar parts first, on the local clock; then the exact part. @param {number} fromMs @param {Duration} duration @param {string} zone @param {number} sign */
function shifted(fromMs, duration, zone, sign) {
  if (!zoneExists(zone)) throw new WindowError(`${fromMs} ms in ${zone}: there is no such time zone.`);
  const local = shown(zone, fromMs);
  const at = new Date(local);
  const months = at.getUTCFullYear() * 12 + at.getUTCMonth() + sign * (duration.years * 12 + duration.months);
  const year = Math.floor(months / 12);
  const month = months - year * 12;
  if (year < 1 || year > 9999) throw new WindowError("The window leaves the calendar.");
  const lastDay = new Date(0);
  lastDay.setUTCFullYear(year, month + 1, 0);
  const day = Math.min(at.getUTCDate(), lastDay.getUTCDate());
  const base = /** @type {number} */ (calendarMs(year, month + 1, day)) + (local - Math.floor(local / DAY_MS) * DAY_MS);
  const moved = base + sign * (duration.weeks * 7 + duration.days) * DAY_MS;
  if (!(MS_MIN <= moved && moved <= MS_MAX)) throw new WindowError("The window leaves the calendar.");
  const calendar = duration.years || duration.months || duration.weeks || duration.days;
  const result = (calendar ? compatible(zone, moved) : fromMs) + sign * duration.time_ms;
  if (!(MS_MIN <= result && result <= MS_MAX)) throw new WindowError("The window leaves the calendar.");
  return result;
}

/** @param {string} spec @returns {Duration} */
function alignable(spec) {
  const duration = parseDuration(spec);
  if (Object.values(duration).filter(Boolean).length !== 1)
    throw new WindowError(`${repr(spec)} mixes units, so nothing says where it begins: name a start.`);
  if (duration.time_ms && DAY_MS % duration.time_ms)
    throw new WindowError(`${repr(spec)} does not divide a day: use a length that does, whole days, or name a start.`);
  return duration;
}

const DAY = { years: 0, months: 0, weeks: 0, days: 1, time_ms: 0 };

/** The aligned window that holds an instant. @param {Duration} duration @param {string} zone @param {number} atMs @returns {[number, number]} */
function containing(duration, zone, atMs) {
  if (duration.time_ms) {
    const [dayStart, dayEnd] = containing(DAY, zone, atMs);
    const start = dayStart + Math.floor((atMs - dayStart) / duration.time_ms) * duration.time_ms;
    return [start, Math.min(start + duration.time_ms, dayEnd)];
  }
  if (!(MS_MIN <= atMs && atMs <= MS_MAX)) throw new WindowError(`${atMs} ms in ${zone}: it is outside the calendar.`);
  if (!zoneExists(zone)) throw new WindowError(`${atMs} ms in ${zone}: there is no such time zone.`);
  let index = indexOf(duration, shown(zone, atMs));
  let start = boundary(duration, index, zone);
  let end = boundary(duration, index + 1, zone);
  while (start > atMs) {
    [index, end] = [index - 1, start];
    start = boundary(duration, index, zone);
  }
  while (end <= atMs) {
    [index, start] = [index + 1, end];
    end = boundary(duration, index + 1, zone);
  }
  return [start, end];
}

/** @param {Duration} duration @param {number} localMs */
function indexOf(duration, localMs) {
  const at = new Date(localMs);
  if (duration.years) return Math.floor(at.getUTCFullYear() / duration.years);
  if (duration.months) return Math.floor((at.getUTCFullYear() * 12 + at.getUTCMonth()) / duration.months);
  return Math.floor(Math.floor((localMs - DAY_ONE_MS) / DAY_MS) / (duration.weeks * 7 || duration.days));
}

/** @param {Duration} duration @param {number} index @param {string} zone */
function boundary(duration, index, zone) {
  let local;
  if (duration.years) local = calendarMs(index * duration.years, 1, 1);
  else if (duration.months) {
    const months = index * duration.months;
    local = calendarMs(Math.floor(months / 12), (((months % 12) + 12) % 12) + 1, 1);
  } else {
    local = DAY_ONE_MS + index * (duration.weeks * 7 || duration.days) * DAY_MS;
    if (!(MS_MIN <= local && local <= MS_MAX)) local = null;
  }
  if (local === null) throw new WindowError("The window leaves the calendar.");
  return midnight(local, zone);
}

/** The first instant of a local day; where the zone left the day out, of the next one. @param {number} dayMs @param {string} zone */
function midnight(dayMs, zone) {
  const date = new Date(dayMs).toISOString().slice(0, 10);
  if (!zoneExists(zone)) throw new WindowError(`${date} in ${zone}: there is no such time zone.`);
  const found = startOfDay(zone, compatible(zone, dayMs + DAY_MS / 2));
  if (!(MS_MIN <= found && found <= MS_MAX)) throw new WindowError(`${date} in ${zone}: it is outside the calendar.`);
  return found;
}
