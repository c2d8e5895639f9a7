/** Retries: which errors are retryable, by the table in `contracts/retry.json` alone; whether to try again, and when. Pure: time and chance come in as values. */

import { contract } from "./contracts.mjs";
import { KfmError, lineOf } from "./errors.mjs";
import { parseHttpDate } from "./times.mjs";

// --- classification ----------------------------------------------------------------------

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

// --- decision ----------------------------------------------------------------------------

/** @typedef {{attempts_max: number, budget_ms: number, base_ms: number, cap_ms: number, ladder_ms: number[]}} Policy */
/** @typedef {{retry: boolean, reason: string, error_class: string, delay_ms: number | null, not_before_ms: number | null}} Decision */

const DOUBLINGS_MAX = 40;
const CALL_WAIT_MAX_MS = 30_000;
const RETRY_AFTER_MAX_S = 999_999_999;

/** @param {string} triggerType @returns {Policy} */
export const policyFor = (triggerType) => rules().matrix[triggerType];
/** @returns {{attempts_max: number, base_ms: number, cap_ms: number}} */
export const callPolicy = () => rules().call;
/** @returns {number} */
export const grantsMax = () => rules().grants_max;
/** @returns {number} */
export const grantsPerDayMax = () => rules().grants_per_day_max;

/** @param {number} base @param {number} cap @param {number} times */
const doubled = (base, cap, times) => Math.min(cap, base * 2 ** Math.min(times, DOUBLINGS_MAX));

/** @param {Policy} policy @param {number} retryIndex @param {number} unitRandom */
export function runDelayMs(policy, retryIndex, unitRandom) {
  const ladder = policy.ladder_ms ?? [];
  const nominal = ladder.length ? /** @type {number} */ (ladder[Math.min(retryIndex, ladder.length - 1)]) : doubled(policy.base_ms, policy.cap_ms, retryIndex);
  return Math.floor(nominal * (0.5 + unitRandom));
}

/** @param {{base_ms: number, cap_ms: number}} policy @param {number} retryIndex @param {number} unitRandom */
export function callDelayMs(policy, retryIndex, unitRandom) {
  return Math.floor(unitRandom * doubled(policy.base_ms, policy.cap_ms, retryIndex));
}

/** @param {Classification} kind @param {string} reason @param {number | null} [notBeforeMs] @returns {Decision} */
const givenUp = (kind, reason, notBeforeMs = null) => ({ retry: false, reason, error_class: kind.error_class, delay_ms: null, not_before_ms: notBeforeMs });

/** The run tier. @param {Classification} kind @param {Policy} policy @param {number} attempts @param {number} firstMs @param {number} nowMs @param {number} unitRandom @param {number | null} [retryAfterMs] @returns {Decision} */
export function decideRetry(kind, policy, attempts, firstMs, nowMs, unitRandom, retryAfterMs = null) {
  if (!kind.retryable) return givenUp(kind, "non-retryable");
  if (attempts >= policy.attempts_max) return givenUp(kind, "attempts-spent");
  const jittered = runDelayMs(policy, Math.max(attempts - 1, 0), unitRandom);
  const delay = Math.max(jittered, retryAfterMs ?? 0);
  const budgetEnd = firstMs + policy.budget_ms;
  if (nowMs + delay >= budgetEnd) {
    const asked = nowMs + jittered < budgetEnd;
    return givenUp(kind, asked ? "retry-after-exceeds-budget" : "budget-spent", nowMs + delay);
  }
  return { retry: true, reason: "retry", error_class: kind.error_class, delay_ms: delay, not_before_ms: nowMs + delay };
}

/** The call tier. @param {Classification} kind @param {any} policy @param {number} attempts @param {number | null} deadlineMs @param {number} nowMs @param {number} unitRandom @param {number | null} [retryAfterMs] @returns {Decision} */
export function decideCallRetry(kind, policy, attempts, deadlineMs, nowMs, unitRandom, retryAfterMs = null) {
  if (!kind.retryable) return givenUp(kind, "non-retryable");
  if (retryAfterMs !== null && retryAfterMs > CALL_WAIT_MAX_MS) return givenUp(kind, "retry-after-for-run-tier", nowMs + retryAfterMs);
  if (attempts >= policy.attempts_max) return givenUp(kind, "attempts-spent");
  const delay = Math.max(callDelayMs(policy, Math.max(attempts - 1, 0), unitRandom), retryAfterMs ?? 0);
  if (deadlineMs !== null && nowMs + delay >= deadlineMs) return givenUp(kind, "deadline-spent");
  return { retry: true, reason: "retry", error_class: kind.error_class, delay_ms: delay, not_before_ms: nowMs + delay };
}

/** @param {number} attempts @param {number} firstMs @param {number} nowMs @param {Policy} policy */
export function budgetState(attempts, firstMs, nowMs, policy) {
  return attempts >= policy.attempts_max || nowMs - firstMs >= policy.budget_ms ? "needs-rationale" : "free";
}

/** @param {Classification} kind @param {number} grantAttempts @param {number} grants @param {Policy} policy */
export function unitFate(kind, grantAttempts, grants, policy) {
  if (!kind.retryable) return "quarantine";
  if (grantAttempts < policy.attempts_max) return "retry";
  return grants < grantsMax() ? "dead-letter" : "quarantine";
}

/** How long to wait, in ms; nonsense is null, the past is 0. @param {string} value @param {number} nowMs */
export function parseRetryAfter(value, nowMs) {
  const text = value.replace(/^[ \t]+|[ \t]+$/g, "");
  if (/^[0-9]+$/.test(text)) {
    const digits = text.replace(/^0+/, "") || "0";
    return (digits.length < 10 ? Number(digits) : RETRY_AFTER_MAX_S) * 1000;
  }
  const at = parseHttpDate(text, nowMs);
  return at === null ? null : Math.max(0, at - nowMs);
}
