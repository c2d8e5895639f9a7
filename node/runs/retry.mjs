/** Retries: judging runs whose process died before it could. */

import { SWITCH_MS, settlement } from "../model/admission.mjs";
import { factsOf, heldRun } from "../model/quarantine.mjs";
import { classify } from "../model/retry.mjs";
import { REAPED, TOGETHER, attended, judge, tied } from "../model/retry_budgets.mjs";
import { approvalOf } from "./gates.mjs";

const GONE = ["WORKER_DIED", "LEASE_EXPIRED"];
const CANCELLED = "CANCELLED";
const UNSETTLED = ["open", "running", "awaiting-approval"];
const BATCH_MAX = 100; // runs that one round looks at

/** Decide about the runs whose process died before it could. @param {any} kernel */
export function judgeReaped(kernel) {
  const { store, loaded } = kernel;
  for (const run of store.unjudged(BATCH_MAX)) {
    const [seen, nowMs] = [store.retryState(run.run_id), store.nowMs()];
    const about = {
      nowMs,
      unitRandom: kernel.unitRandom(),
      idempotent: loaded.source(run.source_id)?.idempotent ?? true,
      acted: store.acts(run.run_id).length > 0,
      stopped: run.error_code === CANCELLED || store.cancelled(run.run_id) !== null,
      fingerprint: inputsOf(store, run),
    };
    // Gone with its process, or abandoned after a stop.
    const kind = GONE.includes(run.error_code) ? REAPED : classify({ code: run.error_code });
    const retry = tied(attended(judge(run, kind, seen, about), approvalOf(store, run) !== null, nowMs), isTied(store, run), nowMs);
    const held = heldOf(store, run, retry);
    const careLabel = loaded.dataset(run.dataset_id)?.rights?.care.label ?? null;
    const entries = held ? [{ kind: held.kind, subject: run.run_id, actor: "kfm", recorded_at_ms: nowMs, rationale: null, ticket: null, details: factsOf(held, careLabel) }] : [];
    const why = run.error_message || "Its process is gone.";
    const isStopped = retry.reason === "stopped" && run.error_code === CANCELLED; // other requests for it still wait
    const settle = isStopped ? { not_before_ms: nowMs + SWITCH_MS, blocked_by: "switch", reason: why } : settlement(retry, why, nowMs);
    store.judge({ run, seen, retry, held, entries, settle }); // another process may be faster; then its decision holds
  }
}

/** Is it asked for together with other windows, and by nothing else? @param {any} store @param {import("../types.js").Run} run */
function isTied(store, run) {
  const asking = store.requestsOfRun(run.run_id).filter((/** @type {any} */ one) => UNSETTLED.includes(one.state));
  return asking.length > 0 && asking.every((/** @type {any} */ one) => TOGETHER in one.details);
}

/** The fingerprint of what the last attempt of a run has seen; null: it did not come so far. @param {any} store @param {import("../types.js").Run} run @returns {string | null} */
function inputsOf(store, run) {
  return store.attempts(run.run_id).find((/** @type {any} */ one) => one.attempt === run.attempts && one.inputs_hash)?.inputs_hash ?? null;
}

/** @param {any} store @param {import("../types.js").Run} run @param {import("../types.js").RetryState} state */
function heldOf(store, run, state) {
  const attempts = store.attempts(run.run_id).filter((/** @type {any} */ one) => !one.node);
  const payload_hash = attempts.findLast((/** @type {any} */ one) => one.inputs_hash)?.inputs_hash ?? null;
  return heldRun(run, state, {
    payload_hash,
    inputs: payload_hash ? store.inputs(payload_hash) : [],
    error_classes: attempts.map((/** @type {any} */ one) => one.error_class).filter(Boolean),
    error_code: run.error_code || "KFM601",
    error_message: run.error_message || "",
  });
}
