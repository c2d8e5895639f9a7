/** Dates as HTTP writes them, in three historic shapes. */

import { calendarMs } from "./times.mjs";

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const MONTH = MONTHS.join("|");
const IMF = new RegExp(`^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\\d\\d) (${MONTH}) (\\d{4}) (\\d\\d):(\\d\\d):(\\d\\d) GMT$`);
const RFC850 = new RegExp(`^(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (\\d\\d)-(${MONTH})-(\\d\\d) (\\d\\d):(\\d\\d):(\\d\\d) GMT$`);
const ASCTIME = new RegExp(`^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (${MONTH}) ([ \\d]\\d) (\\d\\d):(\\d\\d):(\\d\\d) (\\d{4})$`);

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
