/** The next step: what a person does about a run that failed, was refused or is held. Pure. */

import { codeOf } from "./errors.mjs";
import { forceCommand } from "./gates.mjs";
import { NEEDS_APPROVAL, isSpent, mayBeGranted } from "./retry_budgets.mjs";
import { rfc3339 } from "./times.mjs";
import { moment, shortId } from "./wording.mjs";

/** @typedef {{code: string, sentence: string, command: string}} NextStep */

const AGAIN = "Run the same work again";

/** @param {NextStep} step */
export const stepLine = ({ sentence, command }) => `${sentence}: \`${command}\`.`;

/** The command that asks for one window of a source. @param {string} sourceId @param {number} startMs @param {number} endMs */
export const runCommand = (sourceId, startMs, endMs) => `kfm run --source ${sourceId} --window ${rfc3339(startMs)}/${rfc3339(endMs)}`;

/** The command of a person who answers for an attempt that a machine may not make. @param {string} command */
const nowCommand = (command) => `${command} --now --rationale TEXT`;

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
  if (judged?.fate === "retry") return promised(judged, command, nowMs);
  if (held) return correcting(judged, command);
  if (!spent) return { code: "retry", sentence: AGAIN, command };
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

/** What may have acted outside is repeated only if a person answers for it. @param {any} state @param {string} command @returns {NextStep} */
function correcting(state, command) {
  if (["not-idempotent", "acted"].includes(state?.reason)) return { code: "correct", sentence: "See what the attempt has done outside, then run the same work again", command: nowCommand(command) };
  return { code: "correct", sentence: "Correct the cause, then run the same work again", command };
}

/** Its next attempt is made by itself. A person may be earlier, unless its provider refuses calls. @param {any} state @param {string} command @param {number} nowMs @returns {NextStep} */
function promised(state, command, nowMs) {
  const reasons = /** @type {Record<string, string>} */ ({ "circuit-open": "Its provider's circuit is open", "retry-after": "Its provider is not to be called" });
  const [atMs, why] = [state.not_before_ms ?? 0, reasons[state.reason]];
  if (atMs <= nowMs) return { code: "retry", sentence: AGAIN, command };
  if (why) return { code: "retry", sentence: `${why} until ${moment(atMs)}, then it is tried again; a person may run it after that`, command };
  return { code: "retry", sentence: `It is tried again at ${moment(atMs)}; a person may start it now`, command: nowCommand(command) };
}

/** @param {any} held @param {any} approval @returns {NextStep} */
function heldStep(held, approval) {
  if (approval) return { code: "approve", sentence: "Its release was requested; another person approves it", command: approveCommand(approval.request_id) };
  return { code: "release", sentence: "Request its release; another person approves it", command: `kfm quarantine resume ${shortId(held.held_id)} --rationale TEXT` };
}
