/** Rows to records and back. Column order in the queries is field order in the records. */

import { canonicalText } from "../model/canonical.mjs";
import { StoreCorrupt } from "../model/errors.mjs";
import { whole } from "../model/wording.mjs";

/** @typedef {import("../types.js").Run} Run */

const RUN =
  "run_id source_id dataset_id pipeline_id idempotency_key work_key work_base revision trigger_type window_spec window_start_ms window_end_ms partition pipeline_version status attempts fence start_time_ms end_time_ms fingerprint version_id error_code error_message force correction outcome".split(" ");
const WITHDRAWAL = "change_id dataset_id source_id start_ms end_ms retires purge reason since_sequence withdrawn_at_ms until_sequence lifted_by target".split(" ");
const PROMOTION = "dataset_id sequence version_id run_id fence policy_epoch promoted_at_ms".split(" ");
const SWITCH = "scope position rationale actor set_at_ms".split(" ");
const BREAKER = "provider state failures opened_at_ms probe_until_ms fence tripped_at_ms closed_at_ms".split(" ");
const ENTRY = "kind subject actor recorded_at_ms rationale ticket details".split(" ");
const HELD =
  "held_id kind grain subject dataset_id source_id payload_hash source_ids code_sha idempotency_key attempts error_classes error_code error_message reason held_at_ms state released_at_ms released_by".split(" ");
const ATTEMPT =
  "run_id attempt node lineage_id invocation_id started_at_ms delay_ms ended_at_ms ending outcome error_code error_class error_message retryable inputs_hash validation code_sha energy".split(" ");
const RETRY_STATE = "run_id attempt grants grant_attempts granted_at_ms not_before_ms fate error_class reason updated_at_ms fingerprint day_grants".split(" ");
const REQUEST =
  "request_id key kind source_id dataset_id window_start_ms window_end_ms actor accepted_at_ms not_before_ms claimed_actor rationale ticket correction schedule_id instant_ms request_uuid envelope_hash needs_approval details state outcome reason run_id plan_digest claimed_by claim_until_ms tries cancel ended_at_ms blocked_by is_bound by_person tried_at_ms".split(" ");
const INVOCATION =
  "invocation_id run_id source_id dataset_id trigger_type idempotency_key outcome actor requested_at_ms claimed_actor rationale ticket reason gates reason_code window_start_ms window_end_ms".split(" ");
const INCIDENT =
  "cause incident_id about name kind error_class error_code message subject state occurrence changes affected opened_at_ms last_at_ms resolved_at_ms acknowledged_at_ms acknowledged_by escalated_at_ms".split(" ");
const APPROVAL =
  "request_id kind subject digest requested_by requested_at_ms rationale ticket state approved_by approved_at_ms approval_rationale about dataset_id requested_names expires_at_ms used_by used_attempt used_at_ms rejected_by rejected_at_ms rejection_rationale terms fingerprint base_sequence superseded_by revoked_by revoked_at_ms revocation_rationale".split(" ");
const FOUND = ["uri", "path", "media_type", "size", "modified_ms", "etag", "checksum", "version"];
const ENERGY = ["cpu_us", "energy_uwh", "co2_ug", "assumption", "method", "package_uwh"];

/** @param {string[]} fields @param {any[]} row @returns {any} */
function record(fields, row) {
  /** @type {Record<string, any>} */
  const made = {};
  fields.forEach((field, index) => {
    made[field] = row[index] ?? null;
  });
  return made;
}

/** Free text that every database takes. @param {string} text */
export function storable(text) {
  return whole(text).replaceAll("\0", "\u2400");
}

/** @param {Record<string, any>} parameters @param {string[]} free */
function withStorable(parameters, free) {
  for (const name of free) if (typeof parameters[name] === "string") parameters[name] = storable(parameters[name]);
  return parameters;
}

/** @param {any} value */
export const textOf = (value) => canonicalText(value);

/** The same for documents that carry messages. @param {any} value */
export const proseOf = (value) => canonicalText(allStorable(value));

/** @param {any} value @returns {any} */
function allStorable(value) {
  if (typeof value === "string") return value.isWellFormed() ? value : storable(value);
  if (Array.isArray(value)) return value.map(allStorable);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, child]) => [allStorable(key), allStorable(child)]));
  return value;
}

/** @param {string} text @returns {any} */
export function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new StoreCorrupt(`A stored document can't be read: ${/** @type {Error} */ (error).message}.`);
  }
}

/** @param {any[]} row @returns {Run} */
export const runFrom = (row) => record(RUN, row);
/** @param {Run} run */
export function runParameters({ partition, ...run }) {
  return { ...run, partition_key: partition };
}
/** @param {any[]} row @returns {any} */
export const withdrawalFrom = (row) => record(WITHDRAWAL, row);

/** @param {any[]} row @returns {import("../types.js").Promotion} */
export const promotionFrom = (row) => record(PROMOTION, row);
/** @param {any[]} row */
export const switchFrom = (row) => record(SWITCH, row);
/** @param {any} one */
export const switchParameters = (one) => withStorable({ ...one }, ["rationale", "actor"]);
/** @param {any[]} row @returns {import("../types.js").Breaker} */
export const breakerFrom = (row) => record(BREAKER, row);
/** @param {any[]} row @returns {import("../types.js").RetryState} */
export const retryStateFrom = (row) => record(RETRY_STATE, row);
/** @param {any[]} row */
export const incidentFrom = (row) => record(INCIDENT, row);
/** @param {any} incident */
export const incidentParameters = (incident) => withStorable({ ...incident }, ["name", "message", "subject", "acknowledged_by"]);

/** @param {any[]} row */
export function approvalFrom(row) {
  const made = record(APPROVAL, row);
  return { ...made, requested_names: valueOf(made.requested_names) };
}

/** @param {any[]} row */
export function heldFrom(row) {
  const made = record(HELD, row);
  return { ...made, source_ids: valueOf(made.source_ids), error_classes: valueOf(made.error_classes) };
}

/** @param {any} held */
export function heldParameters(held) {
  return withStorable({ ...held, source_ids: proseOf(held.source_ids), error_classes: proseOf(held.error_classes) }, ["error_message"]);
}

/** @param {any[]} row @returns {import("../types.js").Lock} */
export function lockFrom(row) {
  const [scope, fence, worker_id, run_id, acquired_at_ms, lease_until_ms] = row;
  return { scope, fence, holder: worker_id === null ? null : { worker_id, run_id }, acquired_at_ms, lease_until_ms };
}

/** @param {any[]} row @returns {import("../types.js").GovernanceEntry} */
export function entryFrom(row) {
  const made = record(ENTRY, row);
  return { ...made, details: valueOf(made.details) };
}

/** @param {import("../types.js").GovernanceEntry} entry */
export function entryParameters(entry) {
  return withStorable({ ...entry, details: proseOf(entry.details) }, ["actor", "rationale", "ticket"]);
}

/** @param {import("../types.js").Invocation} invocation */
export function invocationParameters(invocation) {
  return withStorable({ ...invocation, gates: proseOf(invocation.gates) }, ["actor", "claimed_actor", "rationale", "ticket", "reason"]);
}

/** @param {any[]} row @returns {import("../types.js").Invocation} */
export function invocationFrom(row) {
  const made = record(INVOCATION, row);
  return { ...made, gates: valueOf(made.gates) };
}

/** @param {any[]} row @returns {import("../types.js").UpdateRequest} */
export function requestFrom(row) {
  const made = record(REQUEST, row);
  for (const name of ["needs_approval", "is_bound", "by_person"]) made[name] = Boolean(made[name]);
  return { ...made, details: valueOf(made.details) };
}

/** @param {import("../types.js").UpdateRequest} request */
export function requestParameters(request) {
  const flags = { needs_approval: Number(request.needs_approval), is_bound: Number(request.is_bound), by_person: Number(request.by_person) };
  return withStorable({ ...request, ...flags, details: proseOf(request.details) }, ["actor", "claimed_actor", "rationale", "ticket", "correction", "reason", "request_uuid"]);
}

/** @param {any[]} row */
export function attemptFrom(row) {
  const made = record(ATTEMPT, row);
  if (made.retryable !== null) made.retryable = Boolean(made.retryable);
  for (const name of ["validation", "energy"]) if (made[name] !== null) made[name] = valueOf(made[name]);
  return made;
}

/** What was learnt since it was opened. @param {any} attempt */
export function closingParameters(attempt) {
  return {
    ...attempt,
    error_message: attempt.error_message === null ? null : storable(attempt.error_message),
    retryable: attempt.retryable === null ? null : Number(attempt.retryable),
    validation: attempt.validation === null ? null : sortedText(attempt.validation),
    energy: energyText(attempt.energy),
  };
}

/** @param {any} energy */
const energyText = (energy) => (energy === null || energy === undefined ? null : ordered(ENERGY, energy));

/** @param {any} retry */
export function retryParameters(retry) {
  const { call, number, ...rest } = retry;
  return { ...rest, call_number: call, try_number: number, retryable: Number(retry.retryable), circuit_open: Number(retry.circuit_open), energy: energyText(retry.energy) };
}

/** @param {import("../types.js").Found[]} found */
export const foundText = (found) => `[${found.map((one) => ordered(one.origin === undefined ? FOUND : [...FOUND, "origin"], one)).join(",")}]`;

/** Members in the order of the record. @param {string[]} fields @param {any} value */
function ordered(fields, value) {
  return JSON.stringify(Object.fromEntries(fields.map((field) => [field, value[field] ?? null])));
}

/** @param {Record<string, any>} value */
function sortedText(value) {
  return JSON.stringify(Object.fromEntries(Object.keys(value).sort().map((key) => [key, value[key]])));
}
