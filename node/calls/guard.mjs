/** The call tier: one external call, tried a few times with full jitter. */

import { KfmError } from "../model/errors.mjs";
import { callPolicy, decideCallRetry, parseRetryAfter } from "../model/retry.mjs";
import { classifyCall } from "../model/retry_budgets.mjs";

/**
 * Call with a timeout in ms, again after failures that may pass.
 * @template T @param {(timeoutMs: number) => Promise<T>} call
 * @param {{clock: import("../types.js").Clock, unitRandom: () => number, timeoutMs: number, untilMs?: number, onRetry?: (retrying: any) => void}} about
 * @returns {Promise<T>}
 */
export async function guarded(call, { clock, unitRandom, timeoutMs, untilMs, onRetry = () => {} }) {
  const policy = callPolicy();
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await call(timeoutMs);
    } catch (error) {
      const nowMs = clock.nowMs();
      const deadline = untilMs === undefined ? null : nowMs + untilMs - clock.monotonicMs();
      const decision = decideCallRetry(classifyCall(error), policy, attempt, deadline, nowMs, unitRandom(), askedMs(error, nowMs));
      if (!decision.retry) {
        handUp(error, decision, nowMs);
        throw error;
      }
      onRetry({ attempt, delay_ms: decision.delay_ms ?? 0, error_class: decision.error_class, error });
      await clock.sleepMs(decision.delay_ms ?? 0);
    }
  }
}

/** One line for people. @param {any} retrying */
export function retryText({ error, attempt, delay_ms }) {
  const cause = error instanceof KfmError ? error.message : `${error.constructor.name}: ${error.message}`;
  return `${cause} Attempt ${attempt} failed; the next in ${(delay_ms / 1000).toFixed(1)} s.`;
}

/** @param {unknown} error @param {number} nowMs */
function askedMs(error, nowMs) {
  const header = error instanceof KfmError ? error.facts.retry_after : null;
  return typeof header === "string" ? parseRetryAfter(header, nowMs) : null;
}

/** When the run tier may try again. @param {unknown} error @param {any} decision @param {number} nowMs */
function handUp(error, decision, nowMs) {
  if (decision.reason === "non-retryable" || !(error instanceof KfmError)) return;
  const asked = askedMs(error, nowMs);
  const notBefore = decision.not_before_ms || (asked ? nowMs + asked : null);
  error.facts.error_class = decision.error_class;
  if (notBefore !== null) error.facts.not_before_ms = notBefore;
}
