/** Staleness: is a successful run still the published one? Reads only. */

import { canonicalText } from "../model/canonical.mjs";
import { mergeItems } from "../publish/manifest.mjs";

/** Why the work is done again although upstream is unchanged; null if it is not. @param {any} ledger @param {import("./subject.mjs").Subject} subject @param {import("../types.js").Run} run @returns {import("../model/admission.mjs").Reason | null} */
export function staleReason(ledger, subject, run) {
  const newest = ledger.latestSuccess(subject.work);
  if (newest && newest.run_id !== run.run_id) return { code: "other-pipeline-published", text: `Pipeline version ${newest.pipeline_version} has published this window since.` };
  const head = ledger.head(subject.dataset.id);
  if (!head) return run.version_id ? { code: "not-published", text: "Nothing of this dataset is published." } : null;
  if (wasRemoved(ledger, head[1], subject, run)) return { code: "not-published", text: "A rollback or withdrawal has removed it since." };
  const described = mergeItems(head[1], subject.dataset, [], "merge");
  return canonicalText(described) === canonicalText(head[1]) ? null : { code: "description-changed", text: "The dataset's description or rights have changed." };
}

/** Did a person's change take from the head what this run had published? @param {any} ledger @param {any} head @param {import("./subject.mjs").Subject} subject @param {import("../types.js").Run} run */
function wasRemoved(ledger, head, { dataset, source, window }, run) {
  const changed = run.version_id ? ledger.newestChange(dataset.id) : null;
  if (changed === null || source.mode === "replace" || (run.end_time_ms ?? 0) > changed[1]) return false;
  return !head.items.some((/** @type {any} */ item) => item.source_id === source.id && item.window_start_ms === window.start_ms && item.window_end_ms === window.end_ms);
}
