/** The lease of a run: renewed while work goes on, and noticed when it is lost. */

import { BackendUnavailable, Cancelled, LostLease } from "../model/errors.mjs";

/**
 * A lock that is ours until the database says otherwise.
 *
 * `check` is called between any two steps and chunks, and renews the lease when it is due: one thread does the work, so
 * one thread keeps the lease. Safety does not depend on it: the fence is compared where the promotion commits.
 */
export class HeldLease {
  /** @param {any} kernel @param {string} scope @param {number} fence @param {number} epoch @param {() => void} onEpoch */
  constructor(kernel, scope, fence, epoch, onEpoch) {
    this.kernel = kernel;
    this.scope = scope;
    this.fence = fence;
    this.epoch = epoch;
    this.epochSeen = epoch;
    this.onEpoch = onEpoch;
    this.lost = false;
    /** Why, once a person or a newer request cancels it. @type {string | null} */
    this.cancelled = null;
    this.dueMs = kernel.clock.monotonicMs() + kernel.heartbeatMs;
  }

  renew() {
    const renewed = this.kernel.store.renew(this.scope, this.fence, this.kernel.leaseMs);
    if (renewed === null) this.lost = true;
    else [this.epochSeen, this.cancelled] = renewed;
  }

  /** Renew if it is due; an error is left to the next heartbeat, or the fence. */
  tick() {
    const now = this.kernel.clock.monotonicMs();
    if (now < this.dueMs) return;
    this.dueMs = now + this.kernel.heartbeatMs;
    try {
      this.renew();
    } catch (error) {
      if (!(error instanceof BackendUnavailable)) throw error;
    }
  }

  /** Raise if the lock is lost, or a signal, a person or a switch cancels work in flight. */
  check() {
    this.tick();
    if (this.kernel.cancelled()) throw new Cancelled();
    if (this.cancelled !== null) throw new Cancelled(this.cancelled);
    if (this.lost) throw new LostLease(`${this.scope} has passed to another run.`);
    if (this.epochSeen !== this.epoch) {
      this.epoch = this.epochSeen;
      this.onEpoch();
    }
  }

  /** Renew also while a pipeline's own code waits for something. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  async withHeartbeat(work) {
    const timer = setInterval(() => this.tick(), Math.max(10, this.kernel.heartbeatMs));
    timer.unref();
    this.kernel.tick = () => this.tick();
    try {
      return await work();
    } finally {
      clearInterval(timer);
      this.kernel.tick = () => {};
    }
  }
}
