/** Admission: key, gates and lock in one transaction, or a refusal on record. */

import { circumstances } from "../model/attempts.mjs";
import { BudgetSpent, Busy, CircuitOpen, KfmError, LockHeld } from "../model/errors.mjs";
import { overridden, refusal } from "../model/gates.mjs";
import { keyOf, namesItself, triggerDocument, triggerKey, workDocument } from "../model/keys.mjs";
import { granted, isSpent, mayBeGranted, standing } from "../model/retry_budgets.mjs";
import { rfc3339 } from "../model/times.mjs";
import { again, forced, newRun } from "./subject.mjs";

/** @typedef {import("./subject.mjs").Subject} Subject */
/** @typedef {import("../types.js").Run} Run */
/** @typedef {{kind: "start" | "restart" | "compare" | "done" | "busy" | "stop", code: string, reason: string, revision: number, run: Run | null, governed?: boolean}} Verdict */

/** Why work is opened again, or is not: a code for programs, a sentence for readers. @typedef {{code: string, text: string}} Reason */

/** @type {Reason} */
export const UPSTREAM_CHANGED = { code: "upstream-changed", text: "Upstream has changed." };
const ROUNDS_MAX = 10;

/** The invocation was refused, found the work running, or could not be decided; it is on record. */
export class NotAdmitted extends Error {
  /** @param {KfmError} error @param {any} invocation @param {Run | null} run */
  constructor(error, invocation, run) {
    super(error.message);
    this.error = error;
    this.invocation = invocation;
    this.run = run;
  }
}

// --- what a call means ---------------------------------------------------------------

/** What this call means right now. Reads only: a dry-run asks the same function. @param {any} ledger @param {any} liveness @param {Subject} subject @returns {Verdict} */
export function look(ledger, liveness, subject) {
  const run = ledger.latestRun(subject.workBase);
  const { correction, force } = subject.trigger;
  if (correction !== null && correction !== undefined) {
    const corrected = ledger.runOfCorrection(subject.workBase, correction);
    if (corrected?.status === "success" && !force)
      return { kind: "done", code: "correction-applied", run: corrected, revision: corrected.revision, reason: `Correction ${correction} was applied as revision ${corrected.revision}.` };
  }
  const nowMs = ledger.nowMs();
  const live =
    run !== null &&
    ledger.locks().some((/** @type {any} */ lock) => lock.holder?.run_id === run.run_id && lock.lease_until_ms > nowMs && !liveness.isDead(lock.holder.worker_id));
  const state = run && run.status !== "success" ? ledger.retryState(run.run_id) : null;
  return decide(run, subject.trigger, live, nowMs, state);
}

/** @param {Run | null} run @param {import("../types.js").Trigger} trigger @param {boolean} live @param {number} nowMs @param {any} state @returns {Verdict} */
export function decide(run, trigger, live, nowMs, state) {
  if (!run) return { kind: "start", code: "first-time", reason: "This work has not been done yet.", revision: 0, run: null };
  if (run.status === "running" && live) return { kind: "busy", code: "running", reason: "The same work is running.", revision: 0, run };
  const next = (/** @type {string} */ code, /** @type {string} */ why) => /** @type {Verdict} */ ({ kind: "start", code, run, revision: run.revision + 1, reason: `${why}: revision ${run.revision + 1} opens.` });
  if (trigger.force) return next("forced", "Forced");
  if (run.dataset_id !== trigger.dataset_id) return next("dataset-changed", `The source feeds ${trigger.dataset_id} now, not ${run.dataset_id}`);
  if (trigger.correction !== null && trigger.correction !== undefined && run.correction !== trigger.correction) return next("correction", `Correction ${trigger.correction}`);
  if (run.status === "success") return { kind: "compare", code: "compared", run, revision: run.revision, reason: `Done as revision ${run.revision}.` };
  return afterFailure(run, trigger, nowMs, state);
}

/** Within budget freely, past it answered for. @param {Run} run @param {import("../types.js").Trigger} trigger @param {number} nowMs @param {any} state @returns {Verdict} */
function afterFailure(run, trigger, nowMs, state) {
  const code = run.status === "failed" ? "attempt-failed" : "attempt-interrupted";
  const why = run.status === "failed" ? `Attempt ${run.attempts} failed with ${run.error_code}.` : `Attempt ${run.attempts} was interrupted.`;
  if (!isSpent(run, state, nowMs)) return { kind: "restart", code, run, revision: run.revision, reason: why };
  if (trigger.rationale && trigger.ticket && mayBeGranted(run, state))
    return { kind: "restart", code: "budget-spent", run, revision: run.revision, governed: true, reason: `${why} Retried past its budget by ${trigger.actor} (${trigger.ticket}).` };
  const used = standing(run, state);
  let spent = `${why} ${used.attempts} attempts since ${rfc3339(used.since_ms)} have used up its budget.`;
  if (!mayBeGranted(run, state)) spent += ` It was granted ${used.grants} times; only a new revision (--force) goes on.`;
  return { kind: "stop", code: "budget-spent", run, revision: run.revision, reason: spent };
}

/** The next revision of work that was done. @param {Run} run @param {Reason} why @returns {Verdict} */
export function reopened(run, why) {
  return { kind: "start", code: why.code, run: null, revision: run.revision + 1, reason: `${why.text.replace(/\.+$/, "")}: revision ${run.revision + 1} opens.` };
}

/** @param {Run} run @returns {Reason} */
export const unchanged = (run) => ({ code: "unchanged", text: `Upstream is unchanged since revision ${run.revision}.` });

/** What the keys of a run are made of; of a run that has begun, as its first attempt kept it. @param {any} ledger @param {Subject} subject @param {number} revision @param {Run | null} [begun] @returns {Record<string, any>} */
export function keyDocuments(ledger, { trigger, work }, revision, begun = null) {
  const documents = { work: workDocument(work, revision) };
  const kept = begun ? ledger.runDocuments(begun.run_id) : null;
  if (kept !== null) return { ...documents, ...kept };
  if (!namesItself(trigger)) return documents;
  const named = triggerDocument(trigger, work, revision);
  // Runs of earlier versions kept none: what asks now may be another trigger than theirs.
  return begun === null || keyOf(named) === begun.idempotency_key ? { ...documents, trigger: named } : documents;
}

/** @param {import("../types.js").Lock} lock */
function heldBy(lock) {
  if (!lock.holder) return `${lock.scope} was just released.`;
  if (lock.scope === "gc") return `Garbage collection has been running since ${rfc3339(lock.acquired_at_ms)}.`;
  const { run_id, worker_id } = lock.holder;
  return `${lock.scope} is held by run ${run_id} (worker ${worker_id}) since ${rfc3339(lock.acquired_at_ms)}; its lease ends ${rfc3339(lock.lease_until_ms)}.`;
}

// --- one invocation ------------------------------------------------------------------

export class Admission {
  /** @param {any} kernel @param {{force: boolean, gates: (subject: Subject) => any, fingerprint: () => Promise<string>, staleReason: (run: Run) => Reason | null, reserve: (subject: Subject) => void}} ways */
  constructor(kernel, ways) {
    this.kernel = kernel;
    this.store = kernel.store;
    this.ways = ways;
    this.invocationId = kernel.ids.new();
  }

  /** @param {Subject} subject @returns {Promise<any>} entered with a run, or answered without one */
  async admit(subject) {
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      const answer = await this.#once(subject);
      if (answer) return answer;
    }
    throw new Busy("The ledger kept changing while this invocation was being decided.");
  }

  /** Refuse an invocation for a reason that the executor knows. @param {Subject} subject @param {KfmError} error @returns {never} */
  refuse(subject, error) {
    return this.#notAdmitted(subject, "refused", error);
  }

  /** One look and one try; null if the ledger changed in between. @param {Subject} given */
  async #once(given) {
    const { store, kernel, ways } = this;
    const subject = ways.force ? forced(given, store.forces(given.workBase) + 1) : given;
    const epoch = store.policyEpoch();
    let verdict = look(store, kernel.liveness, subject);
    if (verdict.kind === "busy") {
      const lock = store.lock(subject.scope);
      this.#notAdmitted(subject, "busy", new LockHeld(lock ? heldBy(lock) : ""), { run: verdict.run });
    }
    const decision = ways.gates(subject);
    if (!decision.allowed) this.#notAdmitted(subject, "refused", refusal(decision), { gates: decision.results, halts: decision.halts });
    if (verdict.kind === "stop") this.#notAdmitted(subject, "refused", new BudgetSpent(verdict.reason), { run: verdict.run });
    if (verdict.kind === "done") return this.#answered(subject, /** @type {Run} */ (verdict.run), decision, { code: verdict.code, text: verdict.reason });
    this.#requireProviders(subject, verdict);
    if (verdict.kind === "compare") {
      const run = /** @type {Run} */ (verdict.run);
      let why = /** @type {Reason | null} */ (UPSTREAM_CHANGED);
      if ((await this.#compared(subject, run)) === run.fingerprint) why = ways.staleReason(run);
      if (why === null) return this.#answered(subject, run, decision, unchanged(run));
      verdict = reopened(run, why);
    }
    return this.#admitRun(subject, verdict, decision, epoch);
  }

  /** Nothing begins while a provider's circuit is open: no run, no key, no attempt. @param {Subject} subject @param {Verdict} verdict */
  #requireProviders(subject, verdict) {
    try {
      this.ways.reserve(subject);
    } catch (error) {
      if (!(error instanceof CircuitOpen)) throw error;
      this.#notAdmitted(subject, "failed", error, { run: ["restart", "compare"].includes(verdict.kind) ? verdict.run : null });
    }
  }

  /** Upstream's fingerprint now; that it can't be had is an answer that goes on record, too. @param {Subject} subject @param {Run} run */
  async #compared(subject, run) {
    try {
      return await this.ways.fingerprint();
    } catch (error) {
      if (error instanceof KfmError) this.#notAdmitted(subject, "failed", error, { run });
      throw error;
    }
  }

  /** @param {Subject} subject @param {Verdict} verdict @param {any} decision @param {number} epoch */
  #admitRun(subject, verdict, decision, epoch) {
    const { store, kernel } = this;
    const nowMs = store.nowMs();
    const seen = verdict.kind === "restart" ? verdict.run : null;
    const run = seen ? again(seen) : newRun(subject, verdict.revision, nowMs);
    const invocation = this.#invocation(subject, null, run, verdict.reason, verdict.code, decision.results);
    const known = this.#known(subject, decision.results, run.revision, seen);
    const admitted = store.admit(
      {
        run,
        seen,
        scope: subject.scope,
        worker_id: kernel.workerId,
        lease_ms: kernel.leaseMs,
        invocation,
        policy_epoch: epoch,
        entries: this.#entries(subject, run, verdict, decision),
        known,
        grant: verdict.governed && seen ? granted(seen, store.retryState(seen.run_id), nowMs) : null,
        approval: decision.approval ?? null,
      },
      (/** @type {string} */ id) => kernel.liveness.isDead(id),
    );
    if (admitted.answer === "locked") this.#notAdmitted(subject, "busy", new LockHeld(heldBy(admitted.lock)));
    if (admitted.answer !== "admitted") return null;
    return { admitted: true, subject, run: admitted.run, invocation, policyEpoch: epoch, reason: verdict.reason, known };
  }

  // --- not admitted ----------------------------------------------------------------

  /** @param {Subject} subject @param {Run} run @param {any} decision @param {Reason} why */
  #answered(subject, run, decision, why) {
    const invocation = this.#invocation(subject, "noop", run, why.text, why.code, decision.results);
    this.store.recordInvocation(invocation);
    return { admitted: false, subject, run, invocation, reason: why.text };
  }

  /** @param {Subject} subject @param {string} outcome @param {KfmError} error @param {{run?: Run | null, gates?: any[], halts?: boolean}} [more] @returns {never} */
  #notAdmitted(subject, outcome, error, { run = null, gates = [], halts = false } = {}) {
    const reason = this.kernel.redact(error.message);
    const invocation = this.#invocation(subject, outcome, run, reason, error.code, gates);
    const kinds = outcome !== "refused" ? [] : halts ? ["gate-refused", "review"] : ["gate-refused"];
    const entries = kinds.map((kind) => this.#entry(kind, subject.dataset.id, subject, { reason, policies: this.kernel.policies.bundleId }));
    // An invocation that found the work running has no lineage event.
    const known = outcome === "busy" ? null : this.#known(subject, gates, run?.revision ?? 0);
    this.store.recordInvocation(invocation, entries, known);
    throw new NotAdmitted(error, invocation, run);
  }

  // --- records ---------------------------------------------------------------------

  /** @param {Subject} subject @param {string | null} outcome @param {Run | null} run @param {string} reason @param {string} code @param {any[]} gates */
  #invocation(subject, outcome, run, reason, code, gates) {
    const { trigger } = subject;
    return {
      invocation_id: this.invocationId,
      run_id: run?.run_id ?? null,
      source_id: subject.source.id,
      dataset_id: subject.dataset.id,
      trigger_type: run && run.attempts > 1 && outcome === null ? "retry" : trigger.type,
      idempotency_key: run?.idempotency_key ?? triggerKey(trigger, subject.work),
      outcome,
      actor: trigger.actor,
      requested_at_ms: this.store.nowMs(),
      claimed_actor: trigger.claimed_actor,
      rationale: trigger.rationale,
      ticket: trigger.ticket,
      reason,
      reason_code: code,
      gates,
    };
  }

  /** @param {Subject} subject @param {any[]} gates @param {number} revision @param {Run | null} [begun] */
  #known(subject, gates, revision, begun = null) {
    const key_documents = keyDocuments(this.store, subject, revision, begun);
    return circumstances({ gates, policies: this.kernel.policies.bundleId, key_documents });
  }

  /** @param {Subject} subject @param {Run} run @param {Verdict} verdict @param {any} decision */
  #entries(subject, run, verdict, decision) {
    const details = { reason: verdict.reason, overridden: overridden(decision), revision: run.revision };
    const kinds = [
      ...(this.ways.force ? ["force"] : []),
      ...(subject.trigger.correction && verdict.kind === "start" ? ["correction"] : []),
      ...(verdict.governed ? ["governed-retry"] : []),
      ...(decision.approval ? ["approved-attempt"] : []),
    ];
    const more = decision.approval ? { request_id: decision.approval[0] } : {};
    return kinds.map((kind) => this.#entry(kind, run.run_id, subject, { ...details, ...more }));
  }

  /** @param {string} kind @param {string} about @param {Subject} subject @param {Record<string, any>} details */
  #entry(kind, about, { trigger, dataset }, details) {
    return {
      kind,
      subject: about,
      actor: trigger.actor,
      recorded_at_ms: this.store.nowMs(),
      rationale: trigger.rationale,
      ticket: trigger.ticket,
      details: { invocation_id: this.invocationId, dataset_id: dataset.id, ...details },
    };
  }
}
