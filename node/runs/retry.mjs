/** Retries: judging runs whose process died before it could. */

import { settlement } from "../model/admission.mjs";
import { factsOf, heldRun } from "../model/quarantine.mjs";
import { REAPED, attended, judge } from "../model/retry_budgets.mjs";
import { approvalOf } from "./gates.mjs";

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
      stopped: store.cancelled(run.run_id) !== null,
    };
    const retry = attended(judge(run, REAPED, seen, about), approvalOf(store, run) !== null, nowMs);
    const held = heldOf(store, run, retry);
    const careLabel = loaded.dataset(run.dataset_id)?.rights?.care.label ?? null;
    const entries = held ? [{ kind: held.kind, subject: run.run_id, actor: "kfm", recorded_at_ms: nowMs, rationale: null, ticket: null, details: factsOf(held, careLabel) }] : [];
    // Another process may be faster; then its decision holds.
    store.judge({ run, seen, retry, held, entries, settle: settlement(retry, run.error_message || "Its process is gone.") });
  }
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
