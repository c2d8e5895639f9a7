/** Values of people's own code, as the twin keeps them: a number with a fraction is a `Float`. */

import { Float } from "./json.mjs";

/** @param {any} value @returns {any} */
export function fromPlain(value) {
  if (typeof value === "number") return Number.isInteger(value) ? value + 0 : new Float(value);
  if (Array.isArray(value)) return value.map(fromPlain);
  if (value && typeof value === "object" && !(value instanceof Float)) return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, fromPlain(each)]));
  return value === undefined ? null : value;
}
