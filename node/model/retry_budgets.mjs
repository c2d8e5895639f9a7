/** Retry budgets: attempts and time that a grant allows, and the state of a run after a failure. Pure. */

import { contract } from "./contracts.mjs";
import { KfmError, isA } from "./errors.mjs";
import { NOT_HELD } from "./quarantine.mjs";
import { CAUSES_MAX, budgetState, causesOf, classify, classifyError, decideRetry, failureOf, grantsMax, isUnknown, policyFor } from "./retry.mjs";
import { counted, moment } from "./wording.mjs";

/** @typedef {import("../types.js").Run} Run */
/** @typedef {import("../types.js").RetryState} RetryState */
/** @typedef {import("../types.js").Classification} Classification */

export const NEEDS_APPROVAL = "needs-approval";
/** @type {{retried_then: Record<string, string>, not_retried: Record<string, string>}} */
const { retried_then: RETRIED_THEN, not_retried: NOT_RETRIED } = contract("tables/reasons.json");
/** @type {Classification} */
const CIRCUIT_OPEN = { retryable: true, error_class: "circuit-open" };

/** @param {Run} run @param {RetryState | null} state */
export function standing(run, state) {
  if (!state) return { grants: 1, attempts: run.attempts, since_ms: run.start_time_ms };
  return { grants: state.grants, attempts: state.grant_attempts + run.attempts - state.attempt, since_ms: state.granted_at_ms };
}

/** @param {Run} run @param {RetryState | null} state */
export const budgetEndsMs = (run, state) => standing(run, state).since_ms + policyFor(run.trigger_type).budget_ms;

/** Is the budget spent, so that the next attempt needs a rationale? @param {Run} run @param {RetryState | null} state @param {number} nowMs */
export function isSpent(run, state, nowMs) {
  const now = standing(run, state);
  return budgetState(now.attempts, now.since_ms, nowMs, policyFor(run.trigger_type)) !== "free";
}

/** @param {Run} run @param {RetryState | null} state */
export const mayBeGranted = (run, state) => standing(run, state).grants < grantsMax();

/** A new grant for a run that has ended. @param {Run} run @param {RetryState | null} state @param {number} nowMs @returns {RetryState} */
export function granted(run, state, nowMs) {
  return {
    run_id: run.run_id,
    attempt: run.attempts,
    grants: standing(run, state).grants + 1,
    grant_attempts: 0,
    granted_at_ms: nowMs,
    not_before_ms: nowMs,
    fate: "retry",
    error_class: state?.error_class ?? "unknown",
    reason: "granted",
    updated_at_ms: nowMs,
  };
}

// --- after a failure -------------------------------------------------------------------

/** What an adapter saw (`transient`, `status`) says more than the class that it raised. @param {unknown} error @returns {Classification} */
export function classifyCall(error) {
  const facts = error instanceof KfmError ? error.facts : {};
  if ("transient" in facts) return { retryable: Boolean(facts.transient), error_class: String(facts.cause ?? "upstream") };
  if ("status" in facts) return classify({ http_status: facts.status });
  return classifyError(error);
}

/** Is it worth another attempt? @param {unknown} error @returns {Classification} */
export function kindOf(error) {
  for (const each of causesOf(error)) {
    if (isA(each, "CircuitOpen")) return CIRCUIT_OPEN;
    if (each instanceof KfmError && ("transient" in each.facts || "status" in each.facts)) return classifyCall(each);
    if (!isUnknown(classify(failureOf(each)))) break; // it speaks for itself
  }
  return classifyError(error);
}

/** Was it the failure that opened a provider's circuit, or was it refused by one? @param {unknown} error */
export function hasOpened(error) {
  return causesOf(error).some((each) => isA(each, "CircuitOpen") || (each instanceof KfmError && Boolean(each.facts.circuit_open)));
}

/** The retry state of a run whose attempt has just ended with this error. @param {Run} run @param {KfmError} error @param {RetryState | null} prior @param {{idempotent: boolean, nowMs: number, unitRandom: number}} about @returns {RetryState} */
export function judged(run, error, prior, { idempotent, nowMs, unitRandom }) {
  const kind = kindOf(error);
  const now = standing(run, prior);
  const counts = !causesOf(error).some((each) => isA(each, "CircuitOpen"));
  const attempts = counts ? now.attempts : now.attempts - 1;
  const askedMs = asked(error, nowMs);
  const decision = decideRetry(kind, policyFor(run.trigger_type), attempts, now.since_ms, nowMs, unitRandom, askedMs);
  /** @type {RetryState["fate"]} */
  let fate = decision.retry ? "retry" : "spent";
  let { reason } = decision;
  if (decision.retry && askedMs !== null && askedMs >= (decision.delay_ms ?? 0)) reason = kind.error_class === "circuit-open" ? "circuit-open" : "retry-after";
  if (["Cancelled", "SwitchThrown", "PlanDrifted"].some((name) => isA(error, name))) [fate, reason] = ["spent", "stopped"];
  else if (!kind.retryable) fate = "quarantine";
  else if (!idempotent) [fate, reason] = ["spent", "not-idempotent"];
  else if (fate === "spent" && reason !== "next-run" && now.grants >= grantsMax()) fate = "quarantine";
  return {
    run_id: run.run_id,
    attempt: run.attempts,
    grants: now.grants,
    grant_attempts: attempts,
    granted_at_ms: now.since_ms,
    not_before_ms: decision.not_before_ms,
    fate,
    error_class: kind.error_class,
    reason,
    updated_at_ms: nowMs,
  };
}

/** How long upstream, or its circuit breaker, asks to wait. @param {unknown} error @param {number} nowMs */
function asked(error, nowMs) {
  for (const each of causesOf(error).slice(0, CAUSES_MAX)) {
    const at = each instanceof KfmError ? each.facts.not_before_ms : undefined;
    if (Number.isInteger(at)) return Math.max(0, at - nowMs);
  }
  return null;
}

/** What happens by itself to a run that has failed, and why; without the full stop. @param {RetryState} state @param {number} nowMs */
export function prospect(state, nowMs) {
  if (state.fate !== "retry") return `It is not retried automatically: ${NOT_RETRIED[state.reason] ?? NOT_RETRIED[""]}${NOT_HELD.includes(state.reason) ? "" : "; it is quarantined"}`;
  const atMs = state.not_before_ms || nowMs;
  return `The next automatic attempt ${atMs <= nowMs ? "is due since" : "is not made before"} ${moment(atMs)}, ${RETRIED_THEN[state.reason] ?? RETRIED_THEN.retry}`;
}

/** What happens by itself, and what is left of the budget; what a person does is the next step's. @param {Run} run @param {RetryState} state @param {number} nowMs */
export function advise(run, state, nowMs) {
  const policy = policyFor(run.trigger_type);
  const used = standing(run, state);
  const left = Math.max(0, policy.attempts_max - used.attempts);
  const endsMs = used.since_ms + policy.budget_ms;
  const isOver = left === 0 || nowMs >= endsMs;
  const free = isOver ? "the retry budget is used up" : `${counted(left, "attempt")} ${left === 1 ? "is" : "are"} free until ${moment(endsMs)}`;
  return `${prospect(state, nowMs)}; ${free}.`;
}

/** Work that a second person approved for one attempt is never tried again by itself. @param {RetryState} state @param {boolean} approved @param {number} nowMs @returns {RetryState} */
export function attended(state, approved, nowMs) {
  return approved && state.fate === "retry" ? { ...state, fate: "spent", reason: NEEDS_APPROVAL, updated_at_ms: nowMs } : state;
}
