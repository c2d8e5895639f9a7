/** The next step: what a person does about a run that failed, was refused or is held. Pure. */

import { codeOf } from "./errors.mjs";
import { forceCommand } from "./gates.mjs";
import { NEEDS_APPROVAL, isSpent, mayBeGranted } from "./retry_budgets.mjs";
import { rfc3339 } from "./times.mjs";
import { moment, shortId } from "./wording.mjs";

/** @typedef {{code: string, sentence: string, command: string}} NextStep */

/** @param {NextStep} step */
export const stepLine = ({ sentence, command }) => `${sentence}: \`${command}\`.`;

/** The command that asks for one window of a source. @param {string} sourceId @param {number} startMs @param {number} endMs */
export const runCommand = (sourceId, startMs, endMs) => `kfm run --source ${sourceId} --window ${rfc3339(startMs)}/${rfc3339(endMs)}`;

/** @param {string} requestId */
const approveCommand = (requestId) => `kfm approvals approve ${requestId} --rationale TEXT`;

/**
 * Of one failed run; null: nothing has to be done.
 * @param {import("../types.js").Run} run @param {{state: any, held: any, approval: any, attempt: any, blocker: import("../types.js").GateResult | null, nowMs: number}} known @returns {NextStep | null}
 */
export function runStep(run, { state, held, approval, attempt, blocker, nowMs }) {
  if (run.status === "success") return null;
  const command = runCommand(run.source_id, run.window_start_ms, run.window_end_ms);
  if (run.status === "running") return { code: "take-over", sentence: "Should its process be gone, take it over", command };
  const spent = isSpent(run, state, nowMs);
  if (held && (approval || spent || held.error_code === codeOf("Halted"))) return heldStep(held, approval);
  if (blocker?.command && blocker.gate === "freeze") return { code: "lift", sentence: "Run it after the freeze, or pass the freeze with a force", command: forceCommand(command) };
  if (blocker?.command) return { code: "lift", sentence: `Lift what refused it (gate ${blocker.gate}), then run the same work again`, command: blocker.command };
  const judged = state && state.attempt === run.attempts ? state : null;
  if (judged?.reason === NEEDS_APPROVAL) return approving(run, attempt, command);
  const cause = ["not-idempotent", "acted"].includes(judged?.reason) ? "See what the attempt has done outside" : "Correct the cause";
  if (held) return { code: "correct", sentence: `${cause}, then run the same work again`, command };
  if (!spent) return { code: "retry", sentence: again(judged, nowMs), command };
  if (mayBeGranted(run, state))
    return { code: "answer", sentence: "Its retry budget is used up; run it again with a rationale and a ticket", command: `${command} --rationale TEXT --ticket ID` };
  return { code: "force", sentence: "Its last grant is used up; only a new revision goes on", command: forceCommand(command) };
}

/** Each attempt needs its own approval. @param {import("../types.js").Run} run @param {any} attempt @param {string} command @returns {NextStep} */
function approving(run, attempt, command) {
  if (!attempt) return { code: "request-approval", sentence: "Request another approval, then run the same work again", command: `kfm approvals request --run ${shortId(run.run_id)} --rationale TEXT` };
  if (attempt.state === "requested") return { code: "approve", sentence: "Another attempt was requested; another person approves it", command: approveCommand(attempt.request_id) };
  return { code: "retry", sentence: "Another attempt was approved; run the same work again", command };
}

/** At once, unless upstream or its circuit refuses calls until a time that is known. @param {any} state @param {number} nowMs */
function again(state, nowMs) {
  const reasons = /** @type {Record<string, string>} */ ({ "circuit-open": "Its provider's circuit is open", "retry-after": "Its provider is not to be called" });
  const why = reasons[state?.reason];
  if (!why || (state.not_before_ms ?? 0) <= nowMs) return "Run the same work again";
  return `${why} until ${moment(state.not_before_ms)}; run the same work again after that`;
}

/** @param {any} held @param {any} approval @returns {NextStep} */
function heldStep(held, approval) {
  if (approval) return { code: "approve", sentence: "Its release was requested; another person approves it", command: approveCommand(approval.request_id) };
  return { code: "release", sentence: "Request its release; another person approves it", command: `kfm quarantine resume ${shortId(held.held_id)} --rationale TEXT` };
}
