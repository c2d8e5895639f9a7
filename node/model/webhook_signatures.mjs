/** Signatures of webhooks, checked over the raw bytes and compared in constant time. */

import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { ConfigError } from "./errors.mjs";

/** @typedef {{ok: boolean, reason: string, secret_index: number | null}} Verification */

export const TOLERANCE_MS = 300_000;
const HEADER_CHARS_MAX = 4096;
const SIGNATURES_MAX = 16;
const HEX_SIGNATURE = /^sha256=([0-9a-fA-F]{64})$/;

/** @param {string} reason @param {number | null} [index] @returns {Verification} */
const verification = (reason, index = null) => ({ ok: reason === "ok", reason, secret_index: index });

/** @param {Uint8Array} secret @param {Uint8Array} body */
const hmac = (secret, body) => createHmac("sha256", secret).update(body).digest();

/** The value of X-KFM-Signature. @param {Uint8Array} secret @param {Uint8Array} body */
export const signKfm = (secret, body) => `sha256=${hmac(secret, body).toString("hex")}`;

/** @param {Uint8Array[]} secrets @param {Uint8Array} body @param {string | null | undefined} header @param {boolean} [legacyConcat] */
export function verifyKfm(secrets, body, header, legacyConcat = false) {
  const digests = secrets.map((secret) => hmac(secret, body));
  if (legacyConcat) digests.push(...secrets.map((secret) => createHash("sha256").update(secret).update(body).digest()));
  return verifyHex(digests, header, secrets.length);
}

/** GitHub's X-Hub-Signature-256. @param {Uint8Array[]} secrets @param {Uint8Array} body @param {string | null | undefined} header */
export function verifyGithub(secrets, body, header) {
  return verifyHex(secrets.map((secret) => hmac(secret, body)), header, secrets.length);
}

/** @param {string} secret @param {string} messageId @param {number} timestampS @param {Uint8Array} body */
export function signStandard(secret, messageId, timestampS, body) {
  return `v1,${standardDigest(standardSecret(secret), messageId, String(timestampS), body).toString("base64")}`;
}

/**
 * Standard Webhooks: any of several signatures by any of several secrets, over id.timestamp.body.
 * @param {string[]} secrets @param {Uint8Array} body
 * @param {{messageId?: string | null, timestamp?: string | null, signature?: string | null, nowMs: number, toleranceMs?: number}} sent
 */
export function verifyStandard(secrets, body, { messageId, timestamp, signature, nowMs, toleranceMs = TOLERANCE_MS }) {
  if (!messageId || !timestamp || !signature) return verification("missing");
  // eslint-disable-next-line no-control-regex
  if (!/^\d{1,12}$/.test(timestamp) || !/^[\x00-\x7f]*$/.test(messageId) || signature.length > HEADER_CHARS_MAX) return verification("malformed");
  const given = signature.split(" ").slice(0, SIGNATURES_MAX).filter((one) => one.startsWith("v1,")).map((one) => decoded(one.slice(3)));
  const candidates = given.filter((one) => one !== null);
  if (!candidates.length) return verification("malformed");
  const digests = secrets.map((secret) => standardDigest(standardSecret(secret), messageId, timestamp, body));
  const found = match(digests, candidates, secrets.length);
  if (!found.ok) return found;
  const fresh = checkFresh(Number(timestamp) * 1000, nowMs, toleranceMs);
  return fresh.ok ? found : fresh;
}

/** Was it sent about now? @param {number} sentAtMs @param {number} nowMs @param {number} [toleranceMs] */
export function checkFresh(sentAtMs, nowMs, toleranceMs = TOLERANCE_MS) {
  if (sentAtMs < nowMs - toleranceMs) return verification("stale");
  if (sentAtMs > nowMs + toleranceMs) return verification("future");
  return verification("ok");
}

/** The key inside `whsec_<base64>`. @param {string} secret */
export function standardSecret(secret) {
  const key = decoded(secret.replace(/^whsec_/, ""));
  if (!key?.length) throw new ConfigError("A Standard Webhooks secret is whsec_ and base64; this one can't be read.");
  return key;
}

/** @param {Uint8Array} key @param {string} messageId @param {string} timestamp @param {Uint8Array} body */
function standardDigest(key, messageId, timestamp, body) {
  return createHmac("sha256", key).update(`${messageId}.${timestamp}.`).update(body).digest();
}

/** @param {Uint8Array[]} digests @param {string | null | undefined} header @param {number} secretsCount */
function verifyHex(digests, header, secretsCount) {
  if (!header) return verification("missing");
  const found = header.length <= HEADER_CHARS_MAX ? HEX_SIGNATURE.exec(header) : null;
  return found ? match(digests, [Buffer.from(/** @type {string} */ (found[1]), "hex")], secretsCount) : verification("malformed");
}

/** Compares each digest with each candidate, so that timing does not reveal which one matched. @param {Uint8Array[]} digests @param {Uint8Array[]} candidates @param {number} secretsCount */
function match(digests, candidates, secretsCount) {
  if (!digests.length) return verification("no-secret");
  /** @type {number | null} */
  let matched = null;
  digests.forEach((digest, index) => {
    for (const candidate of candidates) {
      const padded = Buffer.alloc(digest.length);
      padded.set(candidate.subarray(0, digest.length));
      const same = timingSafeEqual(digest, padded) && candidate.length === digest.length;
      if (same && matched === null) matched = index % secretsCount;
    }
  });
  return matched === null ? verification("mismatch") : verification("ok", matched);
}

/** Strict base64, as Python's b64decode(validate=True). @param {string} text */
function decoded(text) {
  if (text.length % 4 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return null;
  return Buffer.from(text, "base64");
}
