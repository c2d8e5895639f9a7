/** Circuit breakers that all processes share: the state is a row of the ledger, read once a second. */

import { PROBE_LEASE_MS, closedBreaker, mayCall, onFailure, onSuccess, probeGivenUp, probePutOff, probeRenewed, probeStarted, waitMs } from "../model/breaker.mjs";
import { CircuitOpen, KfmError } from "../model/errors.mjs";
import { moment } from "../model/wording.mjs";

/** @typedef {import("../types.js").Breaker} Breaker */

const FRESH_MS = 1_000;

/** One provider's circuit breaker. */
export class SharedCircuit {
  /** @param {string} provider @param {any} ledger @param {any} store null in a dry-run @param {import("../types.js").Clock} clock */
  constructor(provider, ledger, store, clock) {
    this.provider = provider;
    this.ledger = ledger;
    this.store = store;
    this.clock = clock;
    this.state = closedBreaker(provider);
    /** @type {number | null} */
    this.seenMs = null;
    /** The fence of a probe that was asked for and not made yet. @type {number | null} */
    this.reserved = null;
  }

  /** Permission for one try; a probe gets its fence. Raises CircuitOpen instead of waiting. @returns {number | null} */
  before() {
    const fence = this.reserved;
    this.reserved = null;
    if (fence !== null && this.#isStillOurs(fence)) return fence;
    this.#look();
    return this.state.state === "closed" ? null : this.#probe();
  }

  /** How the try went. @param {boolean} ok @param {number | null} fence */
  after(ok, fence) {
    if (!ok) this.#change((breaker, now) => onFailure(breaker, now, fence));
    else if (fence !== null || !this.#quiet()) this.#change((breaker, now) => onSuccess(breaker, fence, now));
  }

  /** @param {number} fence */
  giveUp(fence) {
    this.#change((breaker, now) => probeGivenUp(breaker, now, fence));
  }

  /** @param {number} fence @param {number} askedMs */
  putOff(fence, askedMs) {
    this.#change((breaker, now) => probePutOff(breaker, now, fence, askedMs));
  }

  reserve() {
    this.reserved ??= this.before();
  }

  release() {
    const fence = this.reserved;
    this.reserved = null;
    if (fence !== null) this.giveUp(fence);
  }

  waitMs() {
    return waitMs(this.state, this.clock.nowMs());
  }

  /** Has a reserved probe not passed to another? While the ledger is away, the lease that was written last decides. @param {number} fence */
  #isStillOurs(fence) {
    const known = this.state;
    if (!this.#change((breaker, now) => probeRenewed(breaker, now, fence))) this.state = known;
    return this.state.state === "half-open" && this.state.fence === fence && this.waitMs() > 0;
  }

  #quiet() {
    return this.#fresh() && this.state.state === "closed" && !this.state.failures;
  }

  #probe() {
    if (mayCall(this.state, this.clock.nowMs()) === "refuse" || !this.store) throw this.#refusal();
    const [seen, kept] = this.store.changeBreaker(this.provider, (/** @type {Breaker} */ breaker, /** @type {number} */ now) => (mayCall(breaker, now) === "probe" ? probeStarted(breaker, now, PROBE_LEASE_MS) : breaker));
    this.#keep(kept);
    if (kept.fence > seen.fence) return kept.fence;
    throw this.#refusal();
  }

  #refusal() {
    const now = this.clock.nowMs();
    const at = now + waitMs(this.state, now);
    let when = `is tried again at ${moment(at)}`;
    if (this.state.state === "half-open" && at - now > PROBE_LEASE_MS) when = `has asked not to be called before ${moment(at)}`;
    else if (this.state.state === "half-open") when = `is being tried by another call, until ${moment(at)} at most`;
    else if (at === now) when = "is tried by the next run that is no dry-run";
    return new CircuitOpen(`${this.provider} ${when}; this call was not made.`, { provider: this.provider, not_before_ms: at, circuit_open: true, transient: false, cause: "circuit-open" });
  }

  #fresh() {
    return this.seenMs !== null && this.clock.monotonicMs() - this.seenMs < FRESH_MS;
  }

  #look() {
    if (!this.#fresh()) this.#keep(this.ledger.breaker(this.provider));
  }

  /** @param {Breaker} breaker */
  #keep(breaker) {
    this.state = breaker;
    this.seenMs = this.clock.monotonicMs();
  }

  /** False where it could not be written. @param {(breaker: Breaker, nowMs: number) => Breaker} decide */
  #change(decide) {
    if (!this.store) return false; // a dry-run leaves no trace, not here either
    try {
      this.#keep(this.store.changeBreaker(this.provider, decide)[1]);
      return true;
    } catch (error) {
      if (!(error instanceof KfmError)) throw error;
      this.state = decide(this.state, this.clock.nowMs());
      return false;
    }
  }
}

/** The circuits of all providers. */
export class SharedBreakers {
  /** @param {any} ledger @param {any} store @param {import("../types.js").Clock} clock */
  constructor(ledger, store, clock) {
    this.ledger = ledger;
    this.store = store;
    this.clock = clock;
    /** @type {Map<string, SharedCircuit>} */
    this.known = new Map();
  }

  /** @param {string} provider */
  circuit(provider) {
    let found = this.known.get(provider);
    if (!found) {
      found = new SharedCircuit(provider, this.ledger, this.store, this.clock);
      this.known.set(provider, found);
    }
    return found;
  }

  /** Raises CircuitOpen if a circuit is open. Where a probe is due, this process reserves it. @param {string[]} providers */
  reserve(providers) {
    try {
      for (const provider of providers) this.circuit(provider).reserve();
    } catch (error) {
      if (error instanceof CircuitOpen) this.release();
      throw error;
    }
  }

  release() {
    for (const circuit of this.known.values()) circuit.release();
  }
}
