/** Is an error worth another try? Decided by the table in `contracts/retry.json` alone. */

import { contract } from "./contracts.mjs";
import { KfmError, lineOf } from "./errors.mjs";

/** @typedef {import("../types.js").Classification} Classification */
/** @typedef {{exceptions?: string[], http_status?: number | null, code?: string | null, errno?: string | null, message?: string}} Failure */

export const CAUSES_MAX = 8;
/** @type {Classification} */
export const UNKNOWN = { retryable: false, error_class: "unknown" };

export const rules = () => contract("retry.json");

/** @type {Map<string, Map<string, Classification>>} */
const tables = new Map();

/** @param {string} name */
function table(name) {
  let found = tables.get(name);
  if (!found) {
    found = new Map();
    for (const [error_class, family] of Object.entries(/** @type {Record<string, any>} */ (rules()[name])))
      for (const member of family.names) found.set(member, { retryable: family.retryable, error_class });
    tables.set(name, found);
  }
  return found;
}

/** The most telling sign first: code, status, errno, exception, message. @param {Failure} failure @returns {Classification} */
export function classify(failure) {
  if (failure.code !== undefined && failure.code !== null) {
    const found = byCode(failure.code);
    if (found) return found;
  }
  if (failure.http_status !== undefined && failure.http_status !== null)
    return { retryable: rules().http_retryable.includes(failure.http_status), error_class: `HTTP_${failure.http_status}` };
  if (failure.errno) {
    const found = table("errnos").get(failure.errno);
    if (found) return found;
  }
  for (const name of failure.exceptions ?? []) {
    const found = table("exceptions").get(name);
    if (found) return found;
  }
  for (const rule of rules().messages)
    if ((failure.exceptions ?? []).includes(rule.exception) && (failure.message ?? "").includes(rule.contains))
      return { retryable: rule.retryable, error_class: rule.error_class };
  return UNKNOWN;
}

/** @param {string} code @returns {Classification | null} */
function byCode(code) {
  const found = table("codes").get(code);
  if (found) return found;
  for (const [prefix, verdict] of Object.entries(/** @type {Record<string, any>} */ (rules().code_prefixes)))
    if (code.startsWith(prefix)) return { retryable: verdict.retryable, error_class: verdict.error_class };
  return null;
}

/** @param {Classification} one */
export const isUnknown = (one) => one.retryable === UNKNOWN.retryable && one.error_class === UNKNOWN.error_class;

/** As `classify`; where an error says nothing, what it was raised from decides. @param {unknown} error @returns {Classification} */
export function classifyError(error) {
  for (const each of causesOf(error)) {
    const found = classify(failureOf(each));
    if (!isUnknown(found)) return found;
  }
  return UNKNOWN;
}

/** The error and what it was raised from. @param {unknown} error @returns {unknown[]} */
export function causesOf(error) {
  const found = [];
  let current = error;
  while (current !== undefined && current !== null && found.length < CAUSES_MAX) {
    found.push(current);
    current = current instanceof Error ? current.cause : null;
  }
  return found;
}

/** The plain values of an error. @param {unknown} error @returns {Failure} */
export function failureOf(error) {
  if (error instanceof KfmError) {
    const silent = ["KFM600", "KFM601", "KFM607"].includes(error.code);
    return { exceptions: lineOf(error.kind), code: silent ? null : error.code, message: error.message.slice(0, 1000) };
  }
  const system = /** @type {NodeJS.ErrnoException} */ (error);
  const errno = typeof system.errno === "number" && typeof system.code === "string" ? system.code : null;
  const name = error instanceof Error ? error.constructor.name : typeof error;
  return { exceptions: errno ? ["OSError", name] : [name], errno, message: String(system.message ?? error).slice(0, 1000) };
}
