/** Approvals: a second person's consent to one attempt. Pure. */

import { canonicalText, sha256Text } from "./canonical.mjs";
import { gateResult } from "./gates.mjs";

/** The digest that an approval of one attempt is about. @param {any} dataset @param {string} workBase @param {import("./targets.mjs").ReachedTarget[]} targets */
export function attemptDigest(dataset, workBase, targets) {
  const named = targets.length ? { targets } : {}; // without any it is the document of earlier versions
  return sha256Text(canonicalText({ kfm: "approval/1", kind: "attempt", dataset_id: dataset.id, rights: dataset.rights, work_base: workBase, ...named }));
}

/** The approval that the next attempt may use up: the one that lapses first. @param {any[]} approvals @param {string} digest @param {number} nowMs */
export function usableApproval(approvals, digest, nowMs) {
  const found = approvals.filter((one) => one.kind === "attempt" && one.digest === digest && one.used_at_ms === null && (one.expires_at_ms ?? 0) > nowMs);
  found.sort((a, b) => a.expires_at_ms - b.expires_at_ms || (a.request_id < b.request_id ? -1 : 1));
  return found[0] ?? null;
}

/** Does it wait for a second person, or for the attempt that uses it? @param {any} one @param {number} nowMs */
export function isOpenAttempt(one, nowMs) {
  if (one.kind !== "attempt" || one.rejected_at_ms !== null || one.used_at_ms !== null) return false;
  return one.state === "requested" || (one.expires_at_ms ?? 0) > nowMs;
}

/** @param {any} approval */
export function approvalSeen(approval) {
  return gateResult("approval", true, `Request ${approval.request_id} was approved by a second person, for this attempt only.`);
}
