/** The circuit breaker of one provider: closed, open, half-open; and which provider a source calls. Pure; the ledger shares it. */

import { IllegalTransition } from "./errors.mjs";
import { checkTransition } from "./states.mjs";
import { splitUrl } from "./urls.mjs";

/** @typedef {import("../types.js").Breaker} Breaker */

export const FAILURES_MAX = 3;
export const COOLDOWN_MS = 300_000;
const ASKED_MAX_MS = 86_400_000;
export const PROBE_LEASE_MS = 60_000;
const RECOVERY_STRETCH = 1.5;
const RECOVERY_MAX_MS = 86_400_000;

/** @param {string} provider @returns {Breaker} */
export function closedBreaker(provider) {
  return { provider, state: "closed", failures: 0, opened_at_ms: null, probe_until_ms: null, fence: 0, tripped_at_ms: null, closed_at_ms: null };
}

/** @param {Breaker} breaker @param {number} nowMs @returns {"call" | "probe" | "refuse"} */
export function mayCall(breaker, nowMs) {
  if (breaker.state === "closed") return "call";
  return waitMs(breaker, nowMs) > 0 ? "refuse" : "probe";
}

/** @param {Breaker} breaker @param {number} nowMs */
export function waitMs(breaker, nowMs) {
  if (breaker.state === "open") return lapsing((breaker.opened_at_ms ?? 0) + COOLDOWN_MS - nowMs, COOLDOWN_MS);
  if (breaker.state === "half-open") return lapsing((breaker.probe_until_ms ?? 0) - nowMs, ASKED_MAX_MS);
  return 0;
}

/** Twice as long as any wait: the clock was far ahead when that was written. @param {number} leftMs @param {number} longestMs */
const lapsing = (leftMs, longestMs) => (leftMs > 0 && leftMs <= 2 * longestMs ? leftMs : 0);

/** @param {Breaker} breaker @param {number} nowMs @param {number} [leaseMs] @returns {Breaker} */
export function probeStarted(breaker, nowMs, leaseMs = PROBE_LEASE_MS) {
  if (mayCall(breaker, nowMs) !== "probe") throw new IllegalTransition(`breaker ${breaker.provider}: no probe is due while it is ${breaker.state}.`);
  checkTransition("breaker", breaker.state, "half-open", breaker.state === "open" ? "probe_started" : "probe_taken_over");
  return { ...breaker, state: "half-open", probe_until_ms: nowMs + leaseMs, fence: breaker.fence + 1 };
}

/** @param {Breaker} breaker @param {number} nowMs @param {number} fence @param {number} [leaseMs] @returns {Breaker} */
export function probeRenewed(breaker, nowMs, fence, leaseMs = PROBE_LEASE_MS) {
  return breaker.state !== "half-open" || fence !== breaker.fence ? breaker : { ...breaker, probe_until_ms: nowMs + leaseMs };
}

/** @param {Breaker} breaker @param {number} nowMs @param {number} fence @returns {Breaker} */
export function probeGivenUp(breaker, nowMs, fence) {
  return breaker.state !== "half-open" || fence !== breaker.fence ? breaker : { ...breaker, probe_until_ms: nowMs };
}

/** The provider said when to come back: the next probe is due then. @param {Breaker} breaker @param {number} nowMs @param {number} fence @param {number} askedMs @returns {Breaker} */
export function probePutOff(breaker, nowMs, fence, askedMs) {
  return breaker.state !== "half-open" || fence !== breaker.fence ? breaker : { ...breaker, probe_until_ms: nowMs + Math.min(askedMs, ASKED_MAX_MS) };
}

/** @param {Breaker} breaker @param {number | null} [fence] @param {number | null} [nowMs] @returns {Breaker} */
export function onSuccess(breaker, fence = null, nowMs = null) {
  if (breaker.state === "closed") return breaker.failures ? { ...breaker, failures: 0 } : breaker;
  if (breaker.state === "open" || fence !== breaker.fence) return breaker;
  checkTransition("breaker", breaker.state, "closed", "probe_succeeded");
  return {
    ...breaker,
    state: "closed",
    failures: 0,
    opened_at_ms: null,
    probe_until_ms: null,
    tripped_at_ms: nowMs === null ? null : breaker.tripped_at_ms,
    closed_at_ms: nowMs,
  };
}

/** @param {Breaker} breaker @param {number} nowMs @param {number | null} [fence] @returns {Breaker} */
export function onFailure(breaker, nowMs, fence = null) {
  if (breaker.state === "closed") {
    const failures = breaker.failures + 1;
    if (failures < FAILURES_MAX) return { ...breaker, failures };
    checkTransition("breaker", "closed", "open", "tripped");
    const again = nowMs < recoveredAtMs(breaker);
    return { ...breaker, state: "open", failures, opened_at_ms: nowMs, tripped_at_ms: again ? breaker.tripped_at_ms : nowMs, closed_at_ms: null };
  }
  if (breaker.state === "open" || fence !== breaker.fence) return breaker;
  checkTransition("breaker", breaker.state, "open", "probe_failed");
  return { ...breaker, state: "open", failures: breaker.failures + 1, opened_at_ms: nowMs, probe_until_ms: null };
}

/** @param {Breaker} breaker */
function recoveredAtMs(breaker) {
  if (breaker.tripped_at_ms === null || breaker.closed_at_ms === null) return 0;
  const outage = Math.max(0, breaker.closed_at_ms - breaker.tripped_at_ms);
  return breaker.closed_at_ms + Math.min(RECOVERY_MAX_MS, Math.floor(RECOVERY_STRETCH * outage));
}

// --- the provider of a source ------------------------------------------------------------

export const PROVIDER_CHARS_MAX = 200;

/** @param {string} text */
export const isProviderName = (text) => text.length <= PROVIDER_CHARS_MAX && /^[!-~]+$/.test(text);

/** Its own `provider`, else the host of its URL; null where no other host is called. @param {any} source @returns {string | null} */
export function providerOf(source) {
  if (source.provider !== null) return source.provider;
  if (!source.url) return null;
  const parts = splitUrl(source.url);
  const host = parts && parts.port !== false ? parts.hostname : null;
  if (!parts || !host || host.includes("{")) return null;
  const usual = /** @type {Record<string, number>} */ ({ http: 80, https: 443 })[parts.scheme];
  return parts.port === null || parts.port === usual ? host : `${host}:${parts.port}`;
}

/** The providers that a source calls: of a sync, those of its members, each once. @param {any} source @param {(id: string) => any} find @returns {string[]} */
export function providersOf(source, find) {
  const members = source.members.length ? source.members.map(find) : [source];
  const named = members.map(providerOf).filter((/** @type {string | null} */ one) => one !== null);
  return [...new Set(/** @type {string[]} */ (named))];
}
