/** Requests: what asks for work. Pure. */

import { createHash } from "node:crypto";
import { keyOf } from "./keys.mjs";

/** The end of a request. @typedef {{state: "done" | "cancelled", outcome: string | null, reason: string}} RequestOutcome */
/** A request goes back, for later. @typedef {{not_before_ms: number, blocked_by: string, reason: string}} PutOff */
/** What becomes of the requests of a run when one of its attempts has ended. @typedef {RequestOutcome | PutOff} Settlement */

const SYNCHRONOUS_TAG = "synchronous/1";
export const SYNCHRONOUS = "synchronous"; // in the details of a request that its own process works off at once
export const SPREAD_MS = 10_000; // what waited for one thing wakes over this time

/** The key of a request that its own process works off at once. @param {string} invocationId */
export const synchronousKey = (invocationId) => keyOf({ kfm: SYNCHRONOUS_TAG, invocation_id: invocationId });

/** A stable share of a span of time: what waited for one thing does not wake at one instant. @param {string} key @param {number} [overMs] */
export function spreadMs(key, overMs = SPREAD_MS) {
  return Number.parseInt(createHash("sha256").update(key).digest("hex").slice(-8), 16) % overMs;
}
