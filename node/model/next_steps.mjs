/** The next step: what a person does about a run that failed, was refused or is held. Pure. */

import { codeOf } from "./errors.mjs";
import { isSpent, mayBeGranted } from "./retry_budgets.mjs";
import { rfc3339 } from "./times.mjs";
import { shortId } from "./wording.mjs";

/** @typedef {{code: string, sentence: string, command: string}} NextStep */

/** @param {NextStep} step */
export const stepLine = ({ sentence, command }) => `${sentence}: \`${command}\`.`;

/**
 * Of one failed run; null: nothing has to be done.
 * @param {import("../types.js").Run} run @param {{state: any, held: any, approval: any, blocker: import("../types.js").GateResult | null, nowMs: number}} known @returns {NextStep | null}
 */
export function runStep(run, { state, held, approval, blocker, nowMs }) {
  if (run.status === "success") return null;
  const command = `kfm run --source ${run.source_id} --window ${rfc3339(run.window_start_ms)}/${rfc3339(run.window_end_ms)}`;
  if (run.status === "running") return { code: "take-over", sentence: "Should its process be gone, take it over", command };
  const spent = isSpent(run, state, nowMs);
  if (held && (approval || spent || held.error_code === codeOf("Halted"))) return heldStep(held, approval);
  if (blocker?.command) return { code: "lift", sentence: `Lift what refused it (gate ${blocker.gate}), then run the same work again`, command: blocker.command };
  if (held) return { code: "correct", sentence: "Correct the cause, then run the same work again", command };
  if (!spent) return { code: "retry", sentence: "Run the same work again", command };
  if (mayBeGranted(run, state))
    return { code: "answer", sentence: "Its retry budget is used up; run it again with a rationale and a ticket", command: `${command} --rationale TEXT --ticket ID` };
  return { code: "force", sentence: "Its last grant is used up; only a new revision goes on", command: `${command} --force --rationale TEXT --ticket ID` };
}

/** @param {any} held @param {any} approval @returns {NextStep} */
function heldStep(held, approval) {
  if (approval) return { code: "approve", sentence: "Its release was requested; another person approves it", command: `kfm approvals approve ${approval.request_id} --rationale TEXT` };
  return { code: "release", sentence: "Request its release; another person approves it", command: `kfm quarantine resume ${shortId(held.held_id)} --rationale TEXT` };
}
