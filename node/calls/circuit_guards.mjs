/** The circuit guard: one request behind the circuit breaker of its provider, which counts how it went. */

import { KfmError, isA } from "../model/errors.mjs";
import { parseRetryAfter } from "../model/retry.mjs";
import { classifyCall } from "../model/retry_budgets.mjs";

/** @typedef {import("./shared_breakers.mjs").SharedCircuit} SharedCircuit */

const OURS = ["contention", "circuit-open"];

/** A download behind a provider's circuit breaker: judged where its last byte is. @param {SharedCircuit | null} circuit @param {import("../types.js").Clock} clock @param {() => Promise<any>} request @returns {Promise<any>} */
export async function downloadBehindCircuit(circuit, clock, request) {
  if (!circuit) return request();
  const fence = circuit.before();
  const blame = (/** @type {unknown} */ error) => {
    judge(circuit, clock, fence, error);
    return error;
  };
  /** @type {any} */
  let download;
  try {
    download = await request();
  } catch (error) {
    throw blame(error);
  }
  async function* chunks() {
    try {
      yield* download.chunks;
    } catch (error) {
      throw blame(error);
    }
    circuit?.after(true, fence);
  }
  return { ...download, chunks: chunks() };
}

/** One request behind a provider's circuit breaker: permitted before it, judged after it. @template T @param {SharedCircuit | null} circuit @param {import("../types.js").Clock} clock @param {() => Promise<T>} request @returns {Promise<T>} */
export async function callBehindCircuit(circuit, clock, request) {
  if (!circuit) return request();
  const fence = circuit.before();
  let answer;
  try {
    answer = await request();
  } catch (error) {
    judge(circuit, clock, fence, error);
    throw error;
  }
  circuit.after(true, fence);
  return answer;
}

/** @param {SharedCircuit} circuit @param {import("../types.js").Clock} clock @param {number | null} fence @param {unknown} error */
function judge(circuit, clock, fence, error) {
  const kind = classifyCall(error);
  const undecided = () => {
    if (fence !== null) circuit.giveUp(fence);
  };
  if (!(error instanceof KfmError) || !(isA(error, "UpstreamUnavailable") || isA(error, "ChecksumMismatch")) || OURS.includes(kind.error_class)) return undecided();
  const differs = isA(error, "ChecksumMismatch");
  if (differs || !kind.retryable) {
    // A status is an answer of the provider; without one, as for a bad address, nothing is known about it.
    if (error.facts.status !== undefined || differs) circuit.after(true, fence);
    else undecided();
    return undefined;
  }
  const asked = parseRetryAfter(error.facts.retry_after ?? "", clock.nowMs());
  if (asked) {
    // The provider is up and says when to come back: that is obeyed, and its circuit is spared.
    if (fence !== null) circuit.putOff(fence, asked);
    return undefined;
  }
  circuit.after(false, fence);
  const waitS = Math.ceil(circuit.waitMs() / 1000);
  if (waitS <= 0) return undefined;
  error.facts.circuit_open = true;
  error.facts.retry_after = String(waitS);
  return undefined;
}
