/**
 * The decision whether work may start: one function for every starter. Pure.
 *
 * Facts are read before; no other module compares attempts, times, switches or fates to decide on a start.
 */

import { spreadMs } from "./requests.mjs";
import { grantsPerDayMax } from "./retry.mjs";
import { CIRCUIT_OPEN, NOT_RETRIED, RETRIED_THEN, hasAttempts, isSpent, mayBeGranted, mayBeGrantedToday, prospect, standing, TOGETHER } from "./retry_budgets.mjs";
import { holds, rfc3339 } from "./times.mjs";
import { counted, moment } from "./wording.mjs";

/** @typedef {import("../types.js").Run} Run */
/** @typedef {import("../types.js").RetryState} RetryState */
/** Why done work is opened again: a code for programs, a sentence for readers. @typedef {{code: string, text: string}} Reason */

/**
 * What asks for work, as far as the decision needs it.
 * @typedef {{trigger: import("../types.js").Trigger, name?: string, by_person?: boolean, can_wait?: boolean, plan?: string | null, promised?: boolean}} Asked
 */
/**
 * What is known when it asks.
 * @typedef {{
 *   gates: import("../types.js").GateDecision, is_live?: boolean, state?: RetryState | null, acts?: string[], idempotent?: boolean,
 *   bound?: string | null, corrected?: Run | null, fingerprint?: string | null, reopens?: Reason | null,
 *   circuit?: {provider: string, until_ms: number} | null, next_run_ms?: number | null,
 * }} StartFacts
 */
/**
 * admitted: as `how` says · waits: until then, for what blocks it · refused: not by this starter · duplicate: the work is done ·
 * busy: a living process does it · compare: upstream's fingerprint decides.
 * @typedef {{
 *   kind: "admitted" | "waits" | "refused" | "duplicate" | "busy" | "compare", code: string, reason: string, run: Run | null, revision: number,
 *   how: "start" | "restart", grant: "" | "governed" | "inputs" | "late", until_ms: number, blocked_by: string,
 * }} StartDecision
 */

export const SWITCH_MS = 15_000; // how soon a request that a switch blocks is looked at again; lifting it wakes it
/** @type {Reason} */
const UPSTREAM_CHANGED = { code: "upstream-changed", text: "Upstream has changed." };

/** The decision about the newest run of the work that is asked for; null: there is none. @param {Asked} asked @param {Run | null} run @param {StartFacts} facts @param {number} nowMs @returns {StartDecision} */
export function mayStart(asked, run, facts, nowMs) {
  if (run?.status === "running" && facts.is_live) return at(run, "busy", "running", "The same work is running.");
  if (!facts.gates.allowed) return gated(asked, facts, nowMs);
  const decision = byRun(asked, run, facts, nowMs);
  if (["admitted", "compare"].includes(decision.kind) && facts.circuit) return waits(decision.code, `circuit:${facts.circuit.provider}`, facts.circuit.until_ms);
  return decision;
}

/** @param {Asked} asked @param {Run | null} run @param {StartFacts} facts @param {number} nowMs */
function byRun(asked, run, facts, nowMs) {
  const { trigger } = asked;
  const { corrected } = facts;
  const correction = trigger.correction ?? null;
  if (corrected?.status === "success" && !trigger.force) return at(corrected, "duplicate", "correction-applied", `Correction ${correction} was applied as revision ${corrected.revision}.`);
  if (!run) return decided({ kind: "admitted", code: "first-time", reason: "This work has not been done yet." });
  if (trigger.force) return opens(run, { code: "forced", text: "Forced" });
  if (run.dataset_id !== trigger.dataset_id) return opens(run, { code: "dataset-changed", text: `The source feeds ${trigger.dataset_id} now, not ${run.dataset_id}` });
  if (correction !== null && run.correction !== correction) return opens(run, { code: "correction", text: `Correction ${correction}` });
  if (run.status === "success") return doneBefore(run, facts);
  return again(asked, run, facts, nowMs);
}

/** @param {Run} run @param {StartFacts} facts */
function doneBefore(run, facts) {
  const fingerprint = facts.fingerprint ?? null;
  if (fingerprint === null) return at(run, "compare", "compared", `Done as revision ${run.revision}.`);
  if (fingerprint !== run.fingerprint) return opens(run, UPSTREAM_CHANGED);
  if (facts.reopens) return opens(run, facts.reopens);
  return at(run, "duplicate", "unchanged", `Upstream is unchanged since revision ${run.revision}.`);
}

/** The next revision of the same work. @param {Run} run @param {Reason} why */
function opens(run, why) {
  const revision = run.revision + 1;
  return decided({ kind: "admitted", code: why.code, run, revision, reason: `${why.text.replace(/\.+$/, "")}: revision ${revision} opens.` });
}

/** A failed run, or one whose worker is gone. @param {Asked} asked @param {Run} run @param {StartFacts} facts @param {number} nowMs */
function again(asked, run, facts, nowMs) {
  const person = isAnswered(asked, facts);
  const code = run.status === "failed" ? "attempt-failed" : "attempt-interrupted";
  const why = `Attempt ${run.attempts} ${run.status === "failed" ? `failed with ${run.error_code}` : "was interrupted"}.`;
  const acts = facts.acts ?? [];
  const state = facts.state?.attempt === run.attempts ? facts.state : null;
  const bound = facts.bound ?? null;
  const elsewhere = bound !== null && bound !== (asked.plan ?? null);
  const released = state?.reason === "granted" && !elsewhere; // two persons have answered for another attempt at it, and at nothing else
  if (acts.length && !(released || (person && (asked.trigger.rationale || facts.gates.approval))))
    return at(run, "refused", "acted", `${why} It may have acted outside (${acts.join(", ")}): a person has to see what it did.`, { blocked_by: "acts" });
  if (facts.idempotent === false && !(released || person))
    return at(run, "refused", "not-idempotent", `${why} Nothing retries it automatically: ${NOT_RETRIED["not-idempotent"]}.`, { blocked_by: "acts" });
  if (elsewhere) return opens(run, { code: "bound", text: `Revision ${run.revision} publishes what was approved for it, or nothing` });
  const restarted = at(run, "admitted", code, why, { how: "restart" });
  if (!state || state.reason === "stopped" || state.reason === TOGETHER) return restarted; // nothing was decided against it
  if (state.fate === "retry") return asPromised(asked, run, state, facts, nowMs, restarted);
  return person ? byPerson(asked, run, state, facts, nowMs, why) : quarantined(run, state, facts, nowMs, why);
}

/** Does a person answer for this start: who asks, or who approved it? @param {Asked} asked @param {StartFacts} facts */
const isAnswered = (asked, facts) => Boolean((asked.by_person && !asked.promised) || facts.gates.approval);

/** An attempt is ahead of the run: made when it is due, also late; a person may be earlier. @param {Asked} asked @param {Run} run @param {RetryState} state @param {StartFacts} facts @param {number} nowMs @param {StartDecision} admitted */
function asPromised(asked, run, state, facts, nowMs, admitted) {
  const dueMs = state.not_before_ms ?? 0;
  if (holds(dueMs, nowMs, dueMs - state.updated_at_ms) && !isAnswered(asked, facts)) return waits(admitted.code, blockerOf(state), dueMs, { run });
  const nextMs = facts.next_run_ms ?? 0;
  if (asked.promised && state.reason !== "next-run" && nextMs > nowMs) return waits(admitted.code, "next-run", nextMs, { run });
  return admitted;
}

/** Freely within the budget; once its attempts are used up, at other inputs, or with a rationale and a ticket. @param {Asked} asked @param {Run} run @param {RetryState} state @param {StartFacts} facts @param {number} nowMs @param {string} why */
function byPerson(asked, run, state, facts, nowMs, why) {
  const { trigger } = asked;
  const restarts = (/** @type {string} */ code, /** @type {string} */ reason, /** @type {StartDecision["grant"]} */ grant) => at(run, "admitted", code, reason, { how: "restart", grant });
  if (!isSpent(run, state, nowMs)) return restarts("attempt-failed", why, "");
  if (hasAttempts(run, state) && mayBeGrantedToday(state, nowMs)) return restarts("attempt-failed", `${why} Its time is over, its attempts are not.`, "late");
  const may = mayBeGranted(run, state);
  if (trigger.rationale && trigger.ticket && may) return restarts("budget-spent", `${why} Retried past its budget by ${trigger.actor} (${trigger.ticket}).`, "governed");
  const fingerprint = facts.fingerprint ?? null;
  if (fingerprint === null) return at(run, "compare", "compared", why);
  if (fingerprint !== state.fingerprint && mayBeGrantedToday(state, nowMs)) return atOtherInputs(run, why);
  const used = standing(run, state);
  const spent = `${why} ${counted(used.attempts, "attempt")} since ${rfc3339(used.since_ms)} used up its budget.`;
  const last = may ? "" : ` It was granted ${counted(used.grants, "time")}; only a new revision (--force) goes on.`;
  return at(run, "refused", "budget-spent", spent + last, { blocked_by: "budget" });
}

/** A machine may try it again only at other inputs. @param {Run} run @param {RetryState} state @param {StartFacts} facts @param {number} nowMs @param {string} why */
function quarantined(run, state, facts, nowMs, why) {
  const fingerprint = facts.fingerprint ?? null;
  if (fingerprint === null) return at(run, "compare", "compared", why);
  if (fingerprint === state.fingerprint)
    return at(run, "refused", "quarantined", `${why} It is not retried automatically: ${NOT_RETRIED[state.reason] ?? NOT_RETRIED[""]}. Upstream is unchanged since.`, { blocked_by: "quarantine" });
  if (!mayBeGrantedToday(state, nowMs))
    return at(run, "refused", "budget-spent", `${why} Upstream has changed, and the work had all grants of the day (${grantsPerDayMax()}).`, { blocked_by: "budget" });
  return atOtherInputs(run, why);
}

/** A budget is for one content. @param {Run} run @param {string} why */
const atOtherInputs = (run, why) => at(run, "admitted", "inputs-changed", `${why} Upstream has changed since.`, { how: "restart", grant: "inputs" });

/** A switch and a freeze are waited for, where waiting is possible; every other gate refuses. @param {Asked} asked @param {StartFacts} facts @param {number} nowMs */
function gated(asked, facts, nowMs) {
  const blocker = /** @type {import("../types.js").GateResult} */ (facts.gates.first_blocker);
  const name = asked.name ?? "";
  if (asked.can_wait && blocker.gate === "switch") return waits("blocked", "switch", nowMs + SWITCH_MS + spreadMs(name, SWITCH_MS), { reason: blocker.reason });
  if (asked.can_wait && blocker.gate === "freeze" && blocker.until_ms !== undefined) return waits("blocked", "freeze", blocker.until_ms + spreadMs(name), { reason: blocker.reason });
  // It answers with no run: what was done before is not what was asked for.
  return decided({ kind: "refused", code: "blocked", reason: blocker.reason, blocked_by: `gate:${blocker.gate}` });
}

/** What a promised attempt waits for, as a request names it. @param {RetryState} state */
const blockerOf = (state) => (state.reason in RETRIED_THEN ? state.reason : "retry");

/** What becomes of the requests of a run whose attempt has ended without success: they wait for the next one, or end with it. @param {RetryState} state @param {string} why @param {number} nowMs @param {{outcome?: string, provider?: string | null}} [about] @returns {import("./requests.mjs").Settlement} */
export function settlement(state, why, nowMs, { outcome = "failed", provider = null } = {}) {
  const reason = `${why} ${prospect(state, nowMs)}.`;
  if (state.fate !== "retry") return { state: "done", outcome, reason };
  const blocker = blockerOf(state);
  return { not_before_ms: state.not_before_ms ?? 0, blocked_by: blocker === CIRCUIT_OPEN && provider ? `circuit:${provider}` : blocker, reason };
}

/** With a run: what it waits for is that run's promised attempt; it ends with that run. @param {string} code @param {string} blocked_by @param {number} until_ms @param {{reason?: string, run?: Run | null}} [about] */
function waits(code, blocked_by, until_ms, { reason = "", run = null } = {}) {
  const because = RETRIED_THEN[blocked_by.startsWith("circuit:") ? CIRCUIT_OPEN : blocked_by] ?? RETRIED_THEN.retry;
  return decided({ kind: "waits", code, run, revision: run?.revision ?? 0, reason: reason || `It waits until ${moment(until_ms)}, ${because}.`, until_ms, blocked_by });
}

/** @param {Run} run @param {StartDecision["kind"]} kind @param {string} code @param {string} reason @param {Partial<StartDecision>} [more] */
const at = (run, kind, code, reason, more = {}) => decided({ kind, code, reason, run, revision: run.revision, ...more });

/** @param {Pick<StartDecision, "kind" | "code" | "reason"> & Partial<StartDecision>} known @returns {StartDecision} */
function decided(known) {
  return { run: null, revision: 0, how: "start", grant: "", until_ms: 0, blocked_by: "", ...known };
}
