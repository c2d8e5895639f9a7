/**
 * Idempotency keys: trigger keys, work keys and the ids that follow from them.
 *
 * A key is `sha256:<hex>` over a canonical document. The same keys as `updater.idempotency.keygen` makes.
 */

import { createHash } from "node:crypto";
import { canonicalText, sha256Text } from "./canonical.mjs";
import { UsageError } from "./errors.mjs";
import { rfc3339 } from "./times.mjs";
import { head, repr } from "./wording.mjs";

/** @typedef {import("../types.js").Trigger} Trigger */
/** @typedef {import("../types.js").Work} Work */

export const TRIGGER_TAG = "trigger/1";
const WEBHOOK_TAG = "trigger/2";
export const WORK_TAG = "work/1";
export const SCHEDULE_TAG = "schedule/1";
export const RUN_TAG = "run/1";
export const REQUEST_TAG = "request/1";

/** @param {any} document */
export function keyOf(document) {
  return sha256Text(canonicalText(document));
}

// --- the work ------------------------------------------------------------------------

/** @param {Work} work @param {number} [revision] */
export function workDocument(work, revision) {
  const document = {
    kfm: WORK_TAG,
    source_id: work.source_id,
    window_start: rfc3339(work.window.start_ms),
    window_end: rfc3339(work.window.end_ms),
    partition: work.partition,
    output_version: work.output_version,
  };
  return revision === undefined ? document : { ...document, revision: whole(revision, "revision") };
}

/** The key that all revisions of one work share. @param {Work} work */
export const workBase = (work) => keyOf(workDocument(work));
/** @param {Work} work @param {number} [revision] */
export const workKey = (work, revision = 0) => keyOf(workDocument(work, revision));

/** A UUIDv8 of a work's key and environment. @param {string} environment @param {string} key */
export function runId(environment, key) {
  return uuidText(digest(canonicalText({ kfm: RUN_TAG, environment, work_key: key })), 8);
}

// --- the triggers --------------------------------------------------------------------

/** @param {Trigger} trigger @param {Work} work */
export function manualDocument(trigger, work) {
  return {
    kfm: TRIGGER_TAG,
    trigger_type: "manual",
    source_id: work.source_id,
    window: windowOf(work),
    pipeline_version: work.output_version,
    ...(work.partition === null || work.partition === undefined ? {} : { partition: work.partition }),
    ...overrides(trigger),
  };
}

/** @param {Trigger} trigger @param {Work} work */
export function cronDocument(trigger, work) {
  return {
    kfm: TRIGGER_TAG,
    trigger_type: "cron",
    dataset_id: trigger.dataset_id,
    source_id: work.source_id,
    period: windowOf(work),
    partition: work.partition,
    code_sha: work.output_version,
    ...overrides(trigger),
  };
}

/** The source and the request alone: its id is good for one use there. @param {Trigger} trigger */
export function webhookDocument(trigger) {
  return { ...formerWebhookDocument(trigger), kfm: WEBHOOK_TAG, source_id: trigger.source_id };
}

/** As earlier versions made it, without the source. @param {Trigger} trigger */
export function formerWebhookDocument(trigger) {
  return {
    kfm: TRIGGER_TAG,
    trigger_type: "webhook",
    request_uuid: required(trigger.request_uuid, "request_uuid", "webhook"),
    ...overrides(trigger),
  };
}

/** @param {Trigger} trigger @param {string} [codeSha] */
export function upstreamEventDocument(trigger, codeSha) {
  /** @type {Record<string, any>} */
  const document = { kfm: TRIGGER_TAG, trigger_type: "upstream-event", source_id: trigger.source_id };
  if (trigger.member_keys?.length) document.member_keys = coalesced(trigger.member_keys);
  else if (trigger.message_id) document.message_id = trigger.message_id;
  else {
    document.source_uri = required(trigger.source_uri, "source_uri or message_id", "upstream-event");
    document.content_tag = required(trigger.content_tag, "content_tag", "upstream-event");
  }
  if (codeSha !== undefined && codeSha !== null) document.code_sha = codeSha;
  return { ...document, ...overrides(trigger) };
}

/** Sorted by UTF-16 units, each once. @param {Iterable<string>} memberKeys */
export function coalesced(memberKeys) {
  return [...new Set(memberKeys)].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
}

/** @param {string} scheduleId @param {number} utcInstantMs */
export function scheduleInstantDocument(scheduleId, utcInstantMs) {
  return { kfm: SCHEDULE_TAG, schedule_id: scheduleId, utc_instant: rfc3339(utcInstantMs) };
}

/** The document behind `triggerKey`. @param {Trigger} trigger @param {Work} work @param {number} [revision] */
export function triggerDocument(trigger, work, revision = 0) {
  if (trigger.type === "webhook") return webhookDocument(trigger);
  if (trigger.type === "upstream-event") return upstreamEventDocument(trigger);
  /** @type {Record<string, any>} */
  let document;
  if (trigger.type === "cron") document = cronDocument(trigger, work);
  else if (trigger.type === "manual") document = manualDocument(trigger, work);
  else throw new UsageError(`A ${trigger.type} has no key of its own: it keeps the key of its run.`);
  return revision ? { ...document, revision: whole(revision, "revision") } : document;
}

/** Does the trigger contain everything that its key is made of? @param {Trigger} trigger */
export function namesItself(trigger) {
  if (trigger.type === "webhook") return trigger.request_uuid !== null && trigger.request_uuid !== undefined;
  if (trigger.type === "upstream-event") return Boolean(trigger.member_keys?.length || trigger.message_id || trigger.source_uri);
  return trigger.type !== "retry";
}

/** The documented idempotency key: the same request acts once. @param {Trigger} trigger @param {Work} work @param {number} [revision] */
export const triggerKey = (trigger, work, revision = 0) => keyOf(triggerDocument(trigger, work, revision));

/** @param {string} key */
export const requestId = (key) => uuidText(digest(canonicalText({ kfm: REQUEST_TAG, key })), 8);

// --- lineage ids ---------------------------------------------------------------------

/** @param {string} run @param {number} attempt */
export const attemptId = (run, attempt) => uuid5(run, String(whole(attempt, "attempt")));
/** @param {string} run @param {number} attempt @param {string} node */
export const nodeAttemptId = (run, attempt, node) => uuid5(attemptId(run, attempt), node);
/** @param {string} invocationId */
export const notAdmittedId = (invocationId) => uuid5(invocationId, "0");

/** RFC 9562 UUIDv5. @param {string} namespace @param {string} name */
export function uuid5(namespace, name) {
  const hash = createHash("sha1").update(uuidBytes(namespace)).update(name, "utf8");
  return uuidText(hash.digest(), 5);
}

/** @param {string} text */
function uuidBytes(text) {
  const digits = text.replaceAll("-", "");
  if (text.length === 36 && /^[0-9a-fA-F]{32}$/.test(digits)) return Buffer.from(digits, "hex");
  throw new UsageError(`${repr(head(text, 64))} is not a UUID.`);
}

/** @param {Buffer} found @param {number} version */
function uuidText(found, version) {
  const raw = Buffer.from(found.subarray(0, 16));
  raw[6] = (/** @type {number} */ (raw[6]) & 0x0f) | (version << 4);
  raw[8] = (/** @type {number} */ (raw[8]) & 0x3f) | 0x80;
  const digits = raw.toString("hex");
  return [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20), digits.slice(20)].join("-");
}

/** @param {string} text */
function digest(text) {
  return createHash("sha256").update(text).digest();
}

// --- parts of documents --------------------------------------------------------------

/** @param {Work} work */
function windowOf(work) {
  return { start: rfc3339(work.window.start_ms), end: rfc3339(work.window.end_ms) };
}

/** @param {Trigger} trigger */
function overrides(trigger) {
  /** @type {Record<string, any>} */
  const members = {};
  if (trigger.force) members.force = whole(trigger.force, "force");
  if (trigger.correction !== null && trigger.correction !== undefined) members.correction = trigger.correction;
  return members;
}

/** @param {string | null | undefined} value @param {string} field @param {string} kind */
function required(value, field, kind) {
  if (!value) throw new UsageError(`A ${kind} trigger needs its ${field}.`);
  return value;
}

/** @param {number} value @param {string} field */
function whole(value, field) {
  if (!Number.isInteger(value) || value < 0) throw new UsageError(`${field} is ${value}; it counts from 0 upwards.`);
  return value;
}
