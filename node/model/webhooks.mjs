/**
 * Webhook validation: signature, shape and freshness. Nothing of a webhook is used before all of them hold.
 *
 * Three ways of signing are understood, by the header that is there: Standard Webhooks (`webhook-id`,
 * `webhook-timestamp`, `webhook-signature`), `X-KFM-Signature` and GitHub's `X-Hub-Signature-256`. All are checked over
 * the raw bytes, in constant time. The same answers as `updater.scheduler.webhook_validator` gives.
 */

import { KfmError } from "./errors.mjs";
import { parseRfc3339 } from "./times.mjs";
import { checkFresh, verifyGithub, verifyKfm, verifyStandard } from "./webhook_signatures.mjs";
import { length } from "./wording.mjs";

/** @typedef {{source_id: string, trigger: string, event_type: string, sent_at: string, request_uuid: string | null, dry_run: boolean, metadata: Record<string, any>, integrity: Record<string, any>}} Payload */
/** @typedef {{ok: boolean, status: 202 | 400 | 403 | 413, reason: string, payload: Payload | null, secret_index: number | null}} Validation what to answer; `reason` is for the log */

export const BODY_BYTES_MAX = 1024 * 1024;
const TEXT_CHARS_MAX = 200;

/** @param {Validation["status"]} status @param {string} reason @returns {Validation} */
const refused = (status, reason) => ({ ok: false, status, reason, payload: null, secret_index: null });

/**
 * Check size, signature, shape and freshness, in this order.
 * @param {Record<string, string>} headers @param {Uint8Array} body the raw bytes
 * @param {string[]} secrets all active ones, so that they can be rotated
 * @param {number} nowMs @param {{legacyConcat?: boolean}} [about] `legacyConcat` accepts the older sha256(secret + body)
 * @returns {Validation}
 */
export function validate(headers, body, secrets, nowMs, { legacyConcat = false } = {}) {
  if (body.length > BODY_BYTES_MAX) return refused(413, "too large");
  const named = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  const signed = signatureOf(named, body, secrets, nowMs, legacyConcat);
  if (!signed.ok) return refused(403, signed.reason);
  const payload = payloadOf(body);
  if (!payload) return refused(400, "malformed payload");
  let sentAtMs;
  try {
    sentAtMs = parseRfc3339(payload.sent_at);
  } catch (error) {
    if (error instanceof KfmError) return refused(400, "malformed payload");
    throw error;
  }
  if (![payload.source_id, payload.trigger, payload.event_type].every((text) => text && length(text) <= TEXT_CHARS_MAX)) return refused(400, "malformed payload");
  const fresh = checkFresh(sentAtMs, nowMs);
  if (!fresh.ok) return refused(403, fresh.reason);
  return { ok: true, status: 202, reason: "ok", payload, secret_index: signed.secret_index };
}

/** @param {Record<string, string>} headers @param {Uint8Array} body @param {string[]} secrets @param {number} nowMs @param {boolean} legacyConcat */
function signatureOf(headers, body, secrets, nowMs, legacyConcat) {
  const signature = headers["webhook-signature"];
  if (signature !== undefined)
    return verifyStandard(secrets.filter((secret) => secret.startsWith("whsec_")), body, { messageId: headers["webhook-id"], timestamp: headers["webhook-timestamp"], signature, nowMs });
  const plain = secrets.map((secret) => Buffer.from(secret));
  if (headers["x-kfm-signature"] !== undefined) return verifyKfm(plain, body, headers["x-kfm-signature"], legacyConcat);
  if (headers["x-hub-signature-256"] !== undefined) return verifyGithub(plain, body, headers["x-hub-signature-256"]);
  return { ok: false, reason: "missing", secret_index: null };
}

/** The payload; fields beside these are ignored. @param {Uint8Array} body @returns {Payload | null} */
function payloadOf(body) {
  let plain;
  try {
    plain = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body));
  } catch {
    return null;
  }
  if (plain === null || typeof plain !== "object" || Array.isArray(plain)) return null;
  const { source_id, trigger, event_type, sent_at, request_uuid = null, dry_run = false, metadata = {}, integrity = {} } = plain;
  const isGroup = (/** @type {any} */ value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const right =
    [source_id, trigger, event_type, sent_at].every((text) => typeof text === "string") &&
    (request_uuid === null || typeof request_uuid === "string") &&
    typeof dry_run === "boolean" &&
    isGroup(metadata) &&
    isGroup(integrity);
  return right ? { source_id, trigger, event_type, sent_at, request_uuid, dry_run, metadata, integrity } : null;
}
