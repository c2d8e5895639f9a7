/** Quarantine and dead letters: the record of a run that is not tried again. Pure. */

import { uuid5 } from "./keys.mjs";

/** @typedef {import("../types.js").Run} Run */
/** @typedef {import("../types.js").RetryState} RetryState */

const SOURCE_IDS_MAX = 100;
export const NOT_HELD = ["stopped", "superseded", "drifted", "together"];

/** The quarantine row of a run; null if it is tried again. @param {Run} run @param {RetryState} state @param {any} about */
export function heldRun(run, state, { payload_hash, inputs, error_classes, error_code, error_message }) {
  if (state.fate === "retry" || NOT_HELD.includes(state.reason)) return null;
  const names = inputs.map((/** @type {any} */ found) => found.uri).slice(0, SOURCE_IDS_MAX);
  return {
    held_id: uuid5(run.run_id, `held/${run.attempts}`),
    kind: state.fate === "quarantine" ? "quarantine" : "dead-letter",
    grain: "run",
    subject: run.run_id,
    dataset_id: run.dataset_id,
    source_id: run.source_id,
    payload_hash,
    source_ids: names.length ? names : [run.source_id],
    code_sha: run.pipeline_version,
    idempotency_key: run.idempotency_key,
    attempts: run.attempts,
    error_classes,
    error_code,
    error_message,
    reason: state.reason,
    held_at_ms: state.updated_at_ms,
    state: "held",
    released_at_ms: null,
    released_by: null,
  };
}

/** The facts of its governance entry. @param {any} held @param {string | null} careLabel */
export function factsOf(held, careLabel) {
  const { held_id, dataset_id, attempts, error_classes, error_code, reason, payload_hash, code_sha } = held;
  return { held_id, dataset_id, care_label: careLabel, attempts, error_classes, code: error_code, reason, payload_hash, code_sha };
}
