/** Retry budgets: attempts and time that a grant allows, and the state of a run after a failure. Pure. */

import { KfmError, isA } from "./errors.mjs";
import { CAUSES_MAX, budgetState, causesOf, classify, classifyError, decideRetry, failureOf, grantsMax, isUnknown, policyFor } from "./retry.mjs";
import { counted, moment } from "./wording.mjs";

/** @typedef {import("../types.js").Run} Run */
/** @typedef {import("../types.js").RetryState} RetryState */
/** @typedef {import("../types.js").Classification} Classification */

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

const WHY_NOT = /** @type {Record<string, string>} */ ({
  "non-retryable": "Trying again will not help before the cause is gone, so it is held (`kfm quarantine list`)",
  stopped: "It was stopped, so nothing tries it again by itself; the same command does",
  "not-idempotent":
    "Its source is declared `idempotent: false`, so nothing tries it again by itself: see what the attempt has done on the outside, then use the same command. " +
    "Where doing it twice does no more harm than doing it once, say `idempotent: true`",
  "needs-approval":
    "It was approved for this attempt only, so nothing tries it again by itself: ask for another approval with `kfm approvals request --run RUN --rationale TEXT`, then use the same command",
  "retry-after-exceeds-budget": "Upstream asks for more time than the budget has, so it is held as a dead letter; the same command tries again",
  "": "Nothing tries it again by itself, and it is held as a dead letter; the same command tries again",
});

/** What happens next by itself, and what a person can do. @param {Run} run @param {RetryState} state @param {number} nowMs */
export function advise(run, state, nowMs) {
  const policy = policyFor(run.trigger_type);
  const used = standing(run, state);
  const left = Math.max(0, policy.attempts_max - used.attempts);
  const endsMs = used.since_ms + policy.budget_ms;
  const free = `${counted(left, "attempt")} ${left === 1 ? "is" : "are"} free until ${moment(endsMs)}`;
  if (left === 0 || nowMs >= endsMs) return "The budget is used up: the next attempt needs --rationale and --ticket.";
  if (state.fate !== "retry") return `${WHY_NOT[state.reason] ?? WHY_NOT[""]}; ${free}.`;
  let now = "The same command tries again at once";
  if (state.reason === "circuit-open") now = "Until then its provider is not called, and no attempt is spent";
  else if (state.reason === "retry-after") now += ", unless its provider's circuit is open (`kfm breaker list`)";
  return `The next automatic attempt is due at ${moment(state.not_before_ms ?? nowMs)}: \`kfm retry --due\` makes it then. ${now}; ${free}.`;
}

/** Work that a second person approved for one attempt is never tried again by itself. @param {RetryState} state @param {boolean} approved @param {number} nowMs @returns {RetryState} */
export function attended(state, approved, nowMs) {
  return approved && state.fate === "retry" ? { ...state, fate: "spent", reason: "needs-approval", updated_at_ms: nowMs } : state;
}
