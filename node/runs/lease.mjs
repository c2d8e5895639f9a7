/** The lease of a run: renewed while work goes on, until something stops that work. */

import { BackendUnavailable, Cancelled, KfmError, LostLease, RunTimedOut } from "../model/errors.mjs";
import { refusal } from "../model/gates.mjs";
import { inFlight } from "./gates.mjs";

const LOOK_MS = 2_000; // between two looks for a stop
const GRACE_MS = 10_000; // in which a function has to end after a stop

/**
 * A lock that is ours until the database says otherwise.
 *
 * `check` is called between any two steps and chunks, and renews the lease when it is due: one thread does the work, so
 * one thread keeps the lease. Safety does not depend on it: the fence is compared where the promotion commits.
 */
export class HeldLease {
  /** @param {any} kernel @param {import("./subject.mjs").Subject} subject @param {import("../types.js").Run} run @param {number} epoch */
  constructor(kernel, subject, run, epoch) {
    this.kernel = kernel;
    this.subject = subject;
    this.run = run;
    this.epoch = epoch;
    /** What stops the work. @type {KfmError | null} */
    this.stop = null;
    this.stoppedMs = 0;
    this.beganMs = kernel.clock.monotonicMs();
    this.dueMs = this.beganMs + kernel.heartbeatMs;
    this.lookMs = this.beganMs + LOOK_MS;
  }

  /** Look for a stop, and renew the lease, where that is due; an error is left to the next time, or the fence. */
  tick() {
    const { clock, runMs, cancelled } = this.kernel;
    const now = clock.monotonicMs();
    const limitMs = runMs(this.subject.source);
    if (cancelled()) this.#stopped(new Cancelled());
    if (now - this.beganMs >= limitMs) this.#stopped(new RunTimedOut(`Its limit is ${limitMs / 1000} s.`));
    if (now < Math.min(this.dueMs, this.lookMs)) return;
    this.lookMs = now + LOOK_MS;
    try {
      this.#look(now);
    } catch (error) {
      if (!(error instanceof BackendUnavailable)) throw error;
    }
  }

  /** @param {number} now */
  #look(now) {
    const { store, leaseMs, heartbeatMs } = this.kernel;
    const { scope } = this.subject;
    const isDue = now >= this.dueMs;
    if (isDue) this.dueMs = now + heartbeatMs;
    const seen = isDue ? store.renew(scope, this.run.fence, leaseMs) : [store.policyEpoch(), store.cancelled(this.run.run_id)];
    if (seen === null) {
      this.stop = null; // whatever else has stopped it
      return this.#stopped(new LostLease(`${scope} has passed to another run.`));
    }
    const [epoch, cancelled] = seen;
    if (cancelled !== null) this.#stopped(new Cancelled(cancelled));
    if (epoch === this.epoch) return undefined;
    this.epoch = epoch;
    const decision = inFlight(this.kernel, this.subject);
    if (decision.allowed) return undefined;
    const error = refusal(decision, true);
    error.facts.gates = decision.results;
    return this.#stopped(error);
  }

  /** @param {KfmError} error */
  #stopped(error) {
    if (this.stop) return;
    this.stop = error;
    this.stoppedMs = this.kernel.clock.monotonicMs();
  }

  /** Raise if something has stopped the work: the lock is lost, a signal, a person, a switch, its limit in time. */
  check() {
    this.tick();
    if (this.stop) throw this.stop;
  }

  /** Renew also while a pipeline's own code waits for something; after a stop it is waited for no longer than the grace. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  async withHeartbeat(work) {
    /** @type {NodeJS.Timeout | undefined} */
    let timer;
    /** @type {Promise<never>} */
    const abandoned = new Promise((_, reject) => {
      const look = () => {
        this.tick();
        if (this.stop && this.kernel.clock.monotonicMs() - this.stoppedMs >= GRACE_MS) reject(this.stop);
      };
      timer = setInterval(look, Math.max(10, Math.min(this.kernel.heartbeatMs, LOOK_MS)));
      timer.unref();
    });
    this.kernel.tick = () => this.tick();
    try {
      return await Promise.race([work(), abandoned]);
    } finally {
      clearInterval(timer);
      this.kernel.tick = () => {};
    }
  }
}
