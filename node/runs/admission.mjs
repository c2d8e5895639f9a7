/** Admission: key, gates and lock in one transaction, or a refusal on record. */

import { circumstances } from "../model/attempts.mjs";
import { mayStart } from "../model/admission.mjs";
import { providersOf } from "../model/breaker.mjs";
import { BudgetSpent, Busy, CircuitOpen, KfmError, LockHeld, PersonNeeded, WaitsUntil, WorkQuarantined } from "../model/errors.mjs";
import { overridden, refusal } from "../model/gates.mjs";
import { keyOf, namesItself, requestId, triggerDocument, triggerKey, workDocument } from "../model/keys.mjs";
import { SYNCHRONOUS, synchronousKey } from "../model/requests.mjs";
import { granted } from "../model/retry_budgets.mjs";
import { rfc3339 } from "../model/times.mjs";
import * as runGates from "./gates.mjs";
import { planText } from "./plan.mjs";
import { staleReason } from "./staleness.mjs";
import { again, forced, newRun } from "./subject.mjs";

/** @typedef {import("./subject.mjs").Subject} Subject */
/** @typedef {import("../types.js").Run} Run */
/** @typedef {import("../types.js").GateDecision} GateDecision */
/** @typedef {import("../model/admission.mjs").StartDecision} StartDecision */
/** @typedef {import("../model/admission.mjs").StartFacts} StartFacts */
/** How a run is asked for, by its own process, at once. @typedef {{byPerson: boolean, force: boolean, plan: import("./plan.mjs").Plan | null, artifactsDir: string | null}} Start */

const ROUNDS_MAX = 10;

/** The invocation was refused, waits, found the work running, or could not be decided; it is on record. */
export class NotAdmitted extends Error {
  /** @param {KfmError} error @param {any} invocation @param {Run | null} run */
  constructor(error, invocation, run) {
    super(error.message);
    this.error = error;
    this.invocation = invocation;
    this.run = run;
  }
}

// --- what is decided -----------------------------------------------------------------

/** What the decision is told of a request. @param {Subject} subject @param {Start} start @returns {import("../model/admission.mjs").Asked} */
export const askedFor = (subject, start) => ({ trigger: subject.trigger, by_person: start.byPerson, plan: start.plan?.header.digest ?? null });

/** What the ledger knows about the newest run of the work. Reads only, as in a dry-run. @param {any} kernel @param {Subject} subject @param {Run | null} run @param {GateDecision} gates @returns {StartFacts} */
export function factsOfRun({ ledger, liveness }, subject, run, gates) {
  const { correction } = subject.trigger;
  const corrected = correction === null || correction === undefined ? null : ledger.runOfCorrection(subject.workBase, correction);
  if (!run || run.status === "success") return { gates, corrected };
  const nowMs = ledger.nowMs();
  return {
    gates,
    corrected,
    // Under whichever scope it began: the setting may have changed since.
    is_live: ledger.locks().some((/** @type {any} */ lock) => lock.holder?.run_id === run.run_id && lock.lease_until_ms > nowMs && !liveness.isDead(lock.holder.worker_id)),
    state: ledger.retryState(run.run_id),
    acts: ledger.acts(run.run_id),
    idempotent: subject.source.idempotent,
    bound: ledger.boundTo(run.run_id),
  };
}

/** The facts, once upstream's fingerprint is known. @param {any} ledger @param {Subject} subject @param {Run} run @param {StartFacts} facts @param {string} fingerprint @returns {StartFacts} */
export function compared(ledger, subject, run, facts, fingerprint) {
  const same = run.status === "success" && fingerprint === run.fingerprint;
  return { ...facts, fingerprint, reopens: same ? staleReason(ledger, subject, run) : null };
}

/** The error that tells a person of a decision against a start. @param {StartDecision} decision @param {GateDecision} gates @param {() => string} holder */
export function errorOf(decision, gates, holder) {
  if (decision.kind === "busy") return new LockHeld(holder());
  if (decision.kind === "waits") return new WaitsUntil(decision.reason, { not_before_ms: decision.until_ms, blocked_by: decision.blocked_by });
  if (decision.blocked_by.startsWith("gate:")) return refusal(gates);
  const Kind = /** @type {Record<string, typeof BudgetSpent>} */ ({ acts: PersonNeeded, quarantine: WorkQuarantined })[decision.blocked_by] ?? BudgetSpent;
  return new Kind(decision.reason);
}

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
  if (lock.scope === "gc") return `Garbage collection is under way, or waits for runs in progress to end, since ${rfc3339(lock.acquired_at_ms)}.`;
  const { run_id, worker_id } = lock.holder;
  return `${lock.scope} is held by run ${run_id} (worker ${worker_id}) since ${rfc3339(lock.acquired_at_ms)}; its lease ends ${rfc3339(lock.lease_until_ms)}.`;
}

// --- one invocation ------------------------------------------------------------------

export class Admission {
  /** @param {any} kernel @param {{start: Start, fingerprint: () => Promise<string>}} about `fingerprint`: of upstream now, read only where it decides */
  constructor(kernel, { start, fingerprint }) {
    this.kernel = kernel;
    this.store = kernel.store;
    this.start = start;
    this.fingerprint = fingerprint;
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

  /** One decision and one try to commit it; null if the ledger changed in between. @param {Subject} given */
  async #once(given) {
    const { store, kernel, start } = this;
    const subject = start.force ? forced(given, store.forces(given.workBase) + 1) : given;
    const epoch = store.policyEpoch();
    const gates = runGates.atAdmission(kernel, subject);
    const { decision, judged } = await this.#decided(subject, gates);
    if (decision.kind === "duplicate") return this.#alreadyDone(subject, decision, gates);
    if (decision.kind !== "admitted") this.#refused(subject, decision, gates);
    return this.#commit(subject, decision, gates, epoch, judged);
  }

  /** The decision, and what was decided before about the run's last attempt. @param {Subject} subject @param {GateDecision} gates */
  async #decided(subject, gates) {
    const { store, kernel } = this;
    const asked = askedFor(subject, this.start);
    const run = store.latestRun(subject.workBase);
    const facts = factsOfRun(kernel, subject, run, gates);
    const decision = mayStart(asked, run, facts, store.nowMs());
    if (["admitted", "compare"].includes(decision.kind)) this.#requireProviders(subject, decision);
    const judged = facts.state ?? null;
    if (decision.kind !== "compare") return { decision, judged };
    const seen = compared(kernel.ledger, subject, run, facts, await this.#compared(subject, run));
    return { decision: mayStart(asked, run, seen, store.nowMs()), judged };
  }

  /** Nothing begins while a provider's circuit is open: no run, no key, no attempt. @param {Subject} subject @param {StartDecision} decision */
  #requireProviders(subject, { run, revision }) {
    const { loaded, providers } = this.kernel;
    try {
      providers.reserve(providersOf(subject.source, (id) => loaded.source(id)));
    } catch (error) {
      if (!(error instanceof CircuitOpen)) throw error;
      this.#notAdmitted(subject, "failed", error, { run: run?.revision === revision ? concerned(run) : null });
    }
  }

  /** Upstream's fingerprint now; that it can't be had is an answer that goes on record, too. @param {Subject} subject @param {Run} run */
  async #compared(subject, run) {
    try {
      return await this.fingerprint();
    } catch (error) {
      if (error instanceof KfmError) this.#notAdmitted(subject, "failed", error, { run: concerned(run) });
      throw error;
    }
  }

  /** @param {Subject} subject @param {StartDecision} decision @param {GateDecision} gates @returns {never} */
  #refused(subject, decision, gates) {
    const error = errorOf(decision, gates, () => {
      const lock = this.store.lock(subject.scope);
      return lock ? heldBy(lock) : "";
    });
    const results = decision.blocked_by.startsWith("gate:") ? gates.results : [];
    return this.#notAdmitted(subject, decision.kind === "refused" ? "refused" : "busy", error, { run: decision.run, gates: results, halts: gates.halts && results.length > 0 });
  }

  /** @param {Subject} subject @param {StartDecision} decision @param {GateDecision} gates @param {number} epoch @param {any} judged */
  async #commit(subject, decision, gates, epoch, judged) {
    const { store, kernel, start } = this;
    const nowMs = store.nowMs();
    const seen = decision.how === "restart" ? decision.run : null;
    const run = seen ? again(seen) : newRun(subject, decision.revision, nowMs);
    const invocation = this.#invocation(subject, null, run, decision.reason, decision.code, gates.results);
    const known = this.#known(subject, gates.results, run.revision, seen);
    const asked = this.#synchronous(subject, run, nowMs);
    const admitted = store.admit(
      {
        run,
        seen,
        scope: subject.scope,
        worker_id: kernel.workerId,
        lease_ms: kernel.leaseMs,
        invocation,
        policy_epoch: epoch,
        entries: this.#entries(subject, run, decision, gates),
        known,
        judged,
        grant: await this.#grant(decision, seen, nowMs),
        approval: gates.approval ?? null,
        asked,
        plan: start.plan ? [start.plan.header.digest, planText(start.plan)] : null,
      },
      (/** @type {string} */ id) => kernel.liveness.isDead(id),
    );
    if (admitted.answer === "locked") this.#notAdmitted(subject, "busy", new LockHeld(heldBy(admitted.lock)));
    if (admitted.answer !== "admitted") return null;
    return { admitted: true, subject, run: admitted.run, invocation, policyEpoch: epoch, reason: decision.reason, known, requestId: asked.request_id };
  }

  /** @param {StartDecision} decision @param {Run | null} seen @param {number} nowMs */
  async #grant(decision, seen, nowMs) {
    if (!decision.grant || !seen) return null;
    const fingerprint = decision.grant === "inputs" ? await this.fingerprint() : null; // read before: kept
    return granted(seen, this.store.retryState(seen.run_id), nowMs, fingerprint);
  }

  /** The request of a run that its own process asks for: it exists with the run, and is claimed. @param {Subject} subject @param {Run} run @param {number} nowMs @returns {import("../types.js").UpdateRequest} */
  #synchronous({ trigger, source, dataset, window }, run, nowMs) {
    const { kernel, start } = this;
    const key = synchronousKey(this.invocationId);
    const plan_digest = start.plan?.header.digest ?? null;
    return {
      request_id: requestId(key),
      key,
      kind: trigger.type === "retry" ? "manual" : trigger.type,
      source_id: source.id,
      dataset_id: dataset.id,
      window_start_ms: window.start_ms,
      window_end_ms: window.end_ms,
      actor: trigger.actor,
      accepted_at_ms: nowMs,
      not_before_ms: 0,
      claimed_actor: trigger.claimed_actor,
      rationale: trigger.rationale,
      ticket: trigger.ticket,
      correction: trigger.correction ?? null,
      schedule_id: null,
      instant_ms: null,
      request_uuid: trigger.request_uuid ?? null,
      envelope_hash: null,
      needs_approval: false,
      details: { [SYNCHRONOUS]: true },
      state: "running",
      outcome: null,
      reason: null,
      run_id: run.run_id,
      plan_digest,
      claimed_by: kernel.workerId,
      claim_until_ms: nowMs + kernel.leaseMs,
      tries: 1,
      cancel: null,
      ended_at_ms: null,
      blocked_by: null,
      is_bound: plan_digest !== null,
      by_person: start.byPerson,
      tried_at_ms: nowMs,
    };
  }

  // --- not admitted ----------------------------------------------------------------

  /** @param {Subject} subject @param {StartDecision} decision @param {GateDecision} gates */
  #alreadyDone(subject, { run, reason, code }, gates) {
    const invocation = this.#invocation(subject, "noop", run, reason, code, gates.results);
    this.store.recordInvocation(invocation);
    return { admitted: false, subject, run, invocation, reason };
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
      window_start_ms: subject.window.start_ms,
      window_end_ms: subject.window.end_ms,
    };
  }

  /** @param {Subject} subject @param {any[]} gates @param {number} revision @param {Run | null} [begun] */
  #known(subject, gates, revision, begun = null) {
    const key_documents = keyDocuments(this.store, subject, revision, begun);
    return circumstances({ gates, policies: this.kernel.policies.bundleId, key_documents });
  }

  /** @param {Subject} subject @param {Run} run @param {StartDecision} decision @param {GateDecision} gates */
  #entries(subject, run, decision, gates) {
    const details = { reason: decision.reason, overridden: overridden(gates), revision: run.revision };
    const kinds = [
      ...(this.start.force ? ["force"] : []),
      ...(subject.trigger.correction && decision.how === "start" ? ["correction"] : []),
      ...(decision.grant === "governed" ? ["governed-retry"] : []),
      ...(gates.approval ? ["approved-attempt"] : []),
    ];
    const more = gates.approval ? { request_id: gates.approval[0] } : {};
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

/** The run that a failure before the next attempt belongs to: not one that has succeeded before. @param {any} run */
function concerned(run) {
  return run?.status === "success" ? null : run;
}
