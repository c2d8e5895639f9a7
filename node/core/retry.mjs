/** Whether to try again, and when. Pure: time and chance come in as values. */

import { rules } from "./classify.mjs";
import { parseHttpDate } from "./http_dates.mjs";

/** @typedef {import("../types.js").Classification} Classification */
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
