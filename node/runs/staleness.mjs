/** Staleness: is a successful run still the published one? Reads only. */

import { canonicalText } from "../model/canonical.mjs";
import { mergeItems } from "../publish/manifest.mjs";

/** Why the work is done again although upstream is unchanged; null if it is not. @param {any} ledger @param {import("./subject.mjs").Subject} subject @param {import("../types.js").Run} run @returns {import("../model/admission.mjs").Reason | null} */
export function staleReason(ledger, subject, run) {
  const newest = ledger.latestSuccess(subject.work);
  if (newest && newest.run_id !== run.run_id) return { code: "other-pipeline-published", text: `Pipeline version ${newest.pipeline_version} has published this window since.` };
  const head = ledger.head(subject.dataset.id);
  if (!head) return run.version_id ? { code: "not-published", text: "Nothing of this dataset is published." } : null;
  const described = mergeItems(head[1], subject.dataset, [], "merge");
  return canonicalText(described) === canonicalText(head[1]) ? null : { code: "description-changed", text: "The dataset's description or rights have changed." };
}
