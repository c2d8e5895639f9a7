/** Withdrawals: what of a dataset may not be published. As `kfm.model.dataset_changes`; only Python makes and lifts them. */

import { rfc3339 } from "./times.mjs";

/** Is anything of this window withdrawn? Spans are half open. @param {any} one @param {string} sourceId @param {number} startMs @param {number} endMs */
export function covers(one, sourceId, startMs, endMs) {
  if (one.source_id && one.source_id !== sourceId) return false;
  if (one.start_ms === null || one.end_ms === null) return true;
  return startMs < one.end_ms && one.start_ms < Math.max(endMs, startMs + 1);
}

/** @param {any[]} withdrawals */
export const active = (withdrawals) => withdrawals.filter((one) => one.lifted_by === null);

/** Does a version hold anything that may not be published? @param {any[]} withdrawals @param {any[]} items */
export const isWithdrawn = (withdrawals, items) => active(withdrawals).some((one) => items.some((item) => covers(one, item.source_id, item.window_start_ms, item.window_end_ms)));

/** Has this version a tombstone? @param {any[]} withdrawals @param {number} sequence */
export const hasTombstone = (withdrawals, sequence) => withdrawals.some((one) => one.since_sequence <= sequence && (one.until_sequence === null || sequence < one.until_sequence));

/** @param {any} one */
const span = (one) => (one.start_ms === null || one.end_ms === null ? null : `${rfc3339(one.start_ms)}/${rfc3339(one.end_ms)}`);

/** What is withdrawn, for people. @param {any} one */
export function spanWords(one) {
  const what = span(one) ?? "all of it";
  return one.source_id ? `${what} from ${one.source_id}` : what;
}

/** The command that lets this be published again. @param {any} one */
export function liftCommand(one) {
  const window = span(one);
  return `kfm withdraw ${one.dataset_id}${window ? ` --window ${window}` : ""}${one.source_id ? ` --source ${one.source_id}` : ""} --lift --yes --rationale TEXT`;
}
