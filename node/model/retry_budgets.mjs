/** Retry budgets: attempts and time that a grant allows, and the state of a run after a failure. Pure. */

import { contract } from "./contracts.mjs";
import { KfmError, isA } from "./errors.mjs";
import { NOT_HELD } from "./quarantine.mjs";
import { CAUSES_MAX, budgetState, causesOf, classify, classifyError, decideRetry, failureOf, grantsMax, grantsPerDayMax, isUnknown, policyFor } from "./retry.mjs";
import { DAY_MS, counted, moment } from "./wording.mjs";

/** @typedef {import("../types.js").Run} Run */
/** @typedef {import("../types.js").RetryState} RetryState */
/** @typedef {import("../types.js").Classification} Classification */

export const NEEDS_APPROVAL = "needs-approval";
export const CIRCUIT_OPEN = "circuit-open";
/** In the details of requests whose windows are published in one promotion, and why these are not retried by themselves. */
export const TOGETHER = "together";
/** @type {{retried_then: Record<string, string>, not_retried: Record<string, string>}} */
export const { retried_then: RETRIED_THEN, not_retried: NOT_RETRIED } = contract("tables/reasons.json");
/** @type {Classification} */
const REFUSED_BY_CIRCUIT = { retryable: true, error_class: CIRCUIT_OPEN };
/** The process is gone, the work may be fine. @type {Classification} */
export const REAPED = { retryable: true, error_class: "lease" };

/** @param {Run} run @param {RetryState | null} state */
export function standing(run, state) {
  if (!state) return { grants: 1, attempts: run.attempts, since_ms: run.start_time_ms };
  return { grants: state.grants, attempts: state.grant_attempts + run.attempts - state.attempt, since_ms: state.granted_at_ms };
}

/** Until when attempts need no person who answers for them. @param {Run} run @param {RetryState | null} state */
export const budgetEndsMs = (run, state) => standing(run, state).since_ms + policyFor(run.trigger_type).budget_ms;

/** Is the budget spent, so that the next attempt needs a rationale? @param {Run} run @param {RetryState | null} state @param {number} nowMs */
export function isSpent(run, state, nowMs) {
  const now = standing(run, state);
  return budgetState(now.attempts, now.since_ms, nowMs, policyFor(run.trigger_type)) !== "free";
}

/** Has the present grant attempts left, whatever the time is? @param {Run} run @param {RetryState | null} state */
export const hasAttempts = (run, state) => standing(run, state).attempts < policyFor(run.trigger_type).attempts_max;

/** Grants are few: after the last one only a new revision goes on. @param {Run} run @param {RetryState | null} state */
export const mayBeGranted = (run, state) => standing(run, state).grants < grantsMax();

/** One piece of work gets so many grants in a UTC day, whatever its inputs are. @param {RetryState | null} state @param {number} nowMs */
export const mayBeGrantedToday = (state, nowMs) => grantsOfDay(state, nowMs) < grantsPerDayMax();

/** @param {RetryState | null} state @param {number} nowMs */
function grantsOfDay(state, nowMs) {
  return state && Math.floor(state.granted_at_ms / DAY_MS) === Math.floor(nowMs / DAY_MS) ? state.day_grants : 0;
}

/** A new grant for a run that has ended; with a fingerprint for other inputs, whose grants are counted from one. @param {Run} run @param {RetryState | null} state @param {number} nowMs @param {string | null} [fingerprint] @returns {RetryState} */
export function granted(run, state, nowMs, fingerprint = null) {
  return {
    run_id: run.run_id,
    attempt: run.attempts,
    grants: fingerprint === null ? standing(run, state).grants + 1 : 1,
    grant_attempts: 0,
    granted_at_ms: nowMs,
    not_before_ms: nowMs,
    fate: "retry",
    error_class: state?.error_class ?? "unknown",
    reason: "granted",
    updated_at_ms: nowMs,
    fingerprint: fingerprint || (state?.fingerprint ?? null),
    day_grants: grantsOfDay(state, nowMs) + 1,
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
    if (isA(each, "CircuitOpen")) return REFUSED_BY_CIRCUIT;
    if (each instanceof KfmError && ("transient" in each.facts || "status" in each.facts)) return classifyCall(each);
    if (!isUnknown(classify(failureOf(each)))) break; // it speaks for itself
  }
  return classifyError(error);
}

/** Was it the failure that opened a provider's circuit, or was it refused by one? @param {unknown} error */
export function hasOpened(error) {
  return causesOf(error).some((each) => isA(each, "CircuitOpen") || (each instanceof KfmError && Boolean(each.facts.circuit_open)));
}

/** @typedef {{nowMs: number, unitRandom: number, askedMs?: number | null, idempotent?: boolean, acted?: boolean, counts?: boolean, stopped?: boolean, lastsMs?: number, fingerprint?: string | null}} Circumstances */

/** What becomes of a run whose attempt has just ended without success. @param {Run} run @param {Classification} kind @param {RetryState | null} prior @param {Circumstances} about @returns {RetryState} */
export function judge(run, kind, prior, { nowMs, unitRandom, askedMs = null, idempotent = true, acted = false, counts = true, stopped = false, lastsMs = 0, fingerprint = null }) {
  let now = standing(run, prior);
  let day_grants = prior?.day_grants ?? 0;
  if (hasOtherInputs(prior, fingerprint) && mayBeGrantedToday(prior, nowMs)) {
    now = { grants: 1, attempts: 1, since_ms: nowMs - lastsMs };
    day_grants = grantsOfDay(prior, nowMs) + 1;
  }
  const attempts = counts ? now.attempts : now.attempts - 1;
  const decision = decideRetry(kind, policyFor(run.trigger_type), attempts, now.since_ms, nowMs, unitRandom, askedMs);
  /** @type {RetryState["fate"]} */
  let fate = decision.retry ? "retry" : "spent";
  let { reason } = decision;
  if (decision.retry && askedMs !== null && askedMs >= (decision.delay_ms ?? 0)) reason = kind.error_class === CIRCUIT_OPEN ? CIRCUIT_OPEN : "retry-after";
  if (stopped) [fate, reason] = ["spent", "stopped"];
  else if (!kind.retryable) fate = "quarantine";
  else if (!idempotent) [fate, reason] = ["spent", "not-idempotent"];
  else if (acted) [fate, reason] = ["spent", "acted"];
  else if (fate === "spent" && now.grants >= grantsMax()) fate = "quarantine";
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
    fingerprint: fingerprint || (prior?.fingerprint ?? null),
    day_grants,
  };
}

/** @param {RetryState | null} prior @param {string | null} fingerprint */
function hasOtherInputs(prior, fingerprint) {
  const known = prior?.fingerprint ?? null;
  return known !== null && fingerprint !== null && known !== fingerprint;
}

/** An automatic attempt that will not be made after all. @param {RetryState} state @param {string} reason @param {number} nowMs @returns {RetryState} */
export const givenUp = (state, reason, nowMs) => ({ ...state, fate: "spent", reason, updated_at_ms: nowMs });

/** The retry state of a run whose attempt has just ended with this error. @param {Run} run @param {KfmError} error @param {RetryState | null} prior @param {Circumstances} about @returns {RetryState} */
export function judged(run, error, prior, about) {
  const counts = !causesOf(error).some((each) => isA(each, "CircuitOpen"));
  const stopped = ["Cancelled", "SwitchThrown", "PlanDrifted"].some((name) => isA(error, name));
  const state = judge(run, kindOf(error), prior, { ...about, askedMs: asked(error, about.nowMs), counts, stopped });
  return isA(error, "PlanDrifted") ? givenUp(state, "drifted", about.nowMs) : state;
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

/** What happens by itself, and what is left of the budget; what a person does is the next step's. @param {Run} run @param {RetryState} state @param {number} nowMs @param {boolean} [halted] the dataset waits for a review, so that no budget starts anything */
export function advise(run, state, nowMs, halted = false) {
  const policy = policyFor(run.trigger_type);
  const used = standing(run, state);
  const left = Math.max(0, policy.attempts_max - used.attempts);
  const endsMs = used.since_ms + policy.budget_ms;
  const isOver = left === 0 || nowMs >= endsMs;
  const free = isOver ? "the retry budget is used up" : `${counted(left, "attempt")} ${left === 1 ? "is" : "are"} free until ${moment(endsMs)}`;
  return `${prospect(state, nowMs)}; ${halted ? "no attempt begins before a second person has approved its release" : free}.`;
}

/** Work that a second person approved for one attempt is never tried again by itself. @param {RetryState} state @param {boolean} approved @param {number} nowMs @returns {RetryState} */
export function attended(state, approved, nowMs) {
  return approved && state.fate === "retry" ? givenUp(state, NEEDS_APPROVAL, nowMs) : state;
}

/** Work that was to be published together with other windows is never tried again alone by itself. @param {RetryState} state @param {boolean} together @param {number} nowMs @returns {RetryState} */
export function tied(state, together, nowMs) {
  return together && state.fate === "retry" ? givenUp(state, TOGETHER, nowMs) : state;
}
