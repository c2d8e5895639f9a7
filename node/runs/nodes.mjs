/** The nodes of one attempt, one after the other, and their evidence. */

import { circumstances, newAttempt } from "../model/attempts.mjs";
import { energyOf } from "../model/energy.mjs";
import { KfmError, LostLease } from "../model/errors.mjs";
import { attemptId, nodeAttemptId } from "../model/keys.mjs";
import { classifyCall } from "../model/retry_budgets.mjs";

/** @typedef {import("../types.js").Run} Run */

export const TRANSFORM = "transform"; // the step in which a pipeline's own code runs

/** A dry-run leaves no evidence. */
export class Unrecorded {
  /** @param {any} kernel */
  constructor(kernel) {
    this.kernel = kernel;
  }

  begin() {}
  learn() {}
  validated() {}

  /** @template T @param {(timeoutMs: number) => Promise<T>} call @param {(retrying: any) => void} onRetry @returns {Promise<T>} */
  guard(call, onRetry) {
    return this.kernel.guard(call, { onRetry });
  }
}

/** Nodes as rows of the store. */
export class RecordedNodes {
  /** @param {any} kernel @param {Run} run @param {any} invocation @param {any} known @param {{budgetEndsMs: number, actsAs: string | null}} about */
  constructor(kernel, run, invocation, known, { budgetEndsMs, actsAs }) {
    // When the run's budget ends, in which its calls' waiting counts: on the monotonic clock.
    this.untilMs = kernel.clock.monotonicMs() + budgetEndsMs - kernel.store.nowMs();
    this.kernel = kernel;
    this.run = run;
    this.invocation = invocation;
    this.known = known; // about the run as a whole
    this.actsAs = actsAs; // what the transformation does outside, as one act
    this.ofNode = circumstances();
    /** @type {any} */
    this.open = null;
    /** @type {any[]} */
    this.retries = [];
    this.calls = 0;
    /** During discovery: the call that failed, and its last try. @type {[number, number]} */
    this.discovering = [0, 0];
    this.triedCpuUs = 0;
    /** @type {string | null} */
    this.fingerprint = null;
    /** @type {any[]} */
    this.found = [];
    /** @type {string | null} */
    this.inputsHash = null;
    /** @type {any} */
    this.validation = null;
    this.cpuUs = this.runCpuUs = kernel.meter.cpuUs();
  }

  /** Opening a node closes the one before it, in the same transaction. @param {string} node @param {string | null} [inputsHash] */
  begin(node, inputsHash = null) {
    const { kernel, run } = this;
    const nowMs = kernel.store.nowMs();
    const closes = this.open ? this.#closed(this.open, "complete", nowMs) : null;
    const opened = newAttempt({
      run_id: run.run_id,
      attempt: run.attempts,
      node,
      lineage_id: nodeAttemptId(run.run_id, run.attempts, node),
      invocation_id: this.invocation.invocation_id,
      started_at_ms: nowMs,
      inputs_hash: inputsHash,
      code_sha: run.pipeline_version,
    });
    const act = node === TRANSFORM ? this.actsAs : null;
    const step = { run, closes, opens: { attempt: opened, known: circumstances() }, retries: this.retries, fingerprint: this.fingerprint, inputs: this.found, act };
    if (!kernel.store.step(step)) throw new LostLease(`Run ${run.run_id} has passed to another.`);
    this.open = opened;
    this.ofNode = circumstances();
    this.retries = [];
    [this.fingerprint, this.found] = [null, []];
    this.cpuUs = kernel.meter.cpuUs();
  }

  /** Something about the node under way, and so about the run. @param {Record<string, any>} facts */
  learn(facts) {
    this.ofNode = { ...this.ofNode, ...facts };
    this.known = { ...this.known, ...facts };
  }

  /** The gates judge a run, not one of its nodes. @param {any[]} gates */
  decided(gates) {
    this.known = { ...this.known, gates };
  }

  /** Every check is reported with the node that made it; the run carries the summary. @param {any} report @param {any} summary */
  validated(report, summary) {
    this.ofNode = { ...this.ofNode, report };
    this.validation = summary;
  }

  /** Kept with the next transaction, whatever becomes of the run. @param {string} fingerprint @param {any[]} found */
  discovered(fingerprint, found) {
    [this.fingerprint, this.found, this.inputsHash] = [fingerprint, found, fingerprint];
    this.discovering = [0, 0];
    if (this.open) this.open = { ...this.open, inputs_hash: fingerprint };
    this.learn({ inputs: found });
  }

  /** The call tier, with each failed try on record. @template T @param {(timeoutMs: number) => Promise<T>} call @param {(retrying: any) => void} onRetry @returns {Promise<T>} */
  async guard(call, onRetry) {
    this.calls += 1;
    const number = this.calls;
    let tried = 0;
    const timed = (/** @type {number} */ timeoutMs) => {
      this.triedCpuUs = this.kernel.meter.cpuUs();
      return call(timeoutMs);
    };
    try {
      return await this.kernel.guard(timed, {
        untilMs: this.untilMs,
        onRetry: (/** @type {any} */ retrying) => {
          tried = retrying.attempt;
          this.#note(number, retrying.attempt, retrying.delay_ms, retrying.error_class || "unknown", "retried", { energy: this.#energy(this.triedCpuUs) });
          onRetry(retrying);
        },
      });
    } catch (error) {
      const facts = error instanceof KfmError ? error.facts : {};
      const opened = Boolean(facts.circuit_open);
      if (tried || opened) {
        const kind = String(facts.error_class ?? (error instanceof KfmError ? error.kind : /** @type {Error} */ (error).constructor.name));
        this.#note(number, tried + 1, 0, kind, "gave-up", { circuit_open: opened, retryable: classifyCall(error).retryable || opened, energy: this.#energy(this.triedCpuUs) });
      }
      throw error;
    }
  }

  /** A try failed while upstream is being discovered: there one call is made after the other. @param {any} retrying */
  retried(retrying) {
    const call = retrying.attempt === 1 || !this.discovering[0] ? (this.calls += 1) : this.discovering[0];
    this.discovering = [call, retrying.attempt];
    this.#note(call, retrying.attempt, retrying.delay_ms, retrying.error_class || "unknown", "retried");
  }

  /** The run ends with this error: where discovery had trouble, or a circuit opened, that was a try. @param {import("../types.js").Classification} kind @param {boolean} circuitOpen */
  discoveryFailed(kind, circuitOpen) {
    const [call, tries] = this.discovering;
    const noted = this.retries.some((row) => row.circuit_open);
    if (!call && (noted || !circuitOpen)) return;
    this.#note(call || (this.calls += 1), tries + 1, 0, kind.error_class, "gave-up", { circuit_open: circuitOpen, retryable: kind.retryable });
  }

  /** @param {number} call @param {number} number @param {number} delay_ms @param {string} error_class @param {string} outcome @param {any} [more] */
  #note(call, number, delay_ms, error_class, outcome, more = {}) {
    const { run_id, attempts } = this.run;
    this.retries.push({
      run_id, attempt: attempts, node: this.open?.node ?? "", call, number, delay_ms, error_class, retryable: true, outcome,
      circuit_open: false, at_ms: this.kernel.store.nowMs(), energy: null, ...more,
    });
  }

  // --- for the transaction that ends the run ---------------------------------------------

  /** The evidence for the transaction that promotes or fails the run. @param {string} ending @param {Record<string, any>} [error] */
  ending(ending, error = {}) {
    const nowMs = this.kernel.store.nowMs();
    const closes = this.open ? [this.#closed(this.open, ending, nowMs, error)] : [];
    const whole = newAttempt({
      run_id: this.run.run_id,
      attempt: this.run.attempts,
      node: "",
      lineage_id: attemptId(this.run.run_id, this.run.attempts),
      invocation_id: this.invocation.invocation_id,
      started_at_ms: this.invocation.requested_at_ms,
      ended_at_ms: nowMs,
      ending,
      inputs_hash: this.inputsHash,
      validation: this.validation,
      code_sha: this.run.pipeline_version,
      energy: this.#energy(this.runCpuUs),
      ...error,
    });
    closes.push({ attempt: whole, known: this.known });
    return { closes, retries: this.retries };
  }

  /** @param {any} attempt @param {string} ending @param {number} nowMs @param {Record<string, any>} [error] */
  #closed(attempt, ending, nowMs, error = {}) {
    const { report } = this.ofNode;
    return {
      attempt: {
        ...attempt,
        ended_at_ms: nowMs,
        ending,
        outcome: ending === "complete" ? "success" : "failed",
        validation: report ? this.validation : null,
        energy: this.#energy(this.cpuUs),
        ...error,
      },
      known: this.ofNode,
    };
  }

  /** @param {number} sinceCpuUs */
  #energy(sinceCpuUs) {
    return energyOf(this.kernel.meter.cpuUs() - sinceCpuUs, this.kernel.settings.energy);
  }
}
